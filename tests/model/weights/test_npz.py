"""weights/npz.py against MLX and numpy's format, and whole models in .npz and PyTorch files."""

import json
import shutil
import struct
import zipfile
from pathlib import Path

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, golden
from torch_files import write_torch

from model.weights.load import load
from model.weights.npz import NpzFile


def npy(descr: str, shape: tuple, content: bytes, *, by_columns=False, version=1) -> bytes:
    """An .npy file by hand, as NEP 1 has it."""
    header = repr({"descr": descr, "fortran_order": by_columns, "shape": shape}).encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def write(path: Path, members: dict[str, bytes], **options) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_files_of_mlxs_own(tmp_path):
    arrays = {
        "a": mx.random.normal((3, 4)),
        "b.weight": mx.array([1, -2.5], dtype=mx.bfloat16),
        "c": mx.array([[0.5]], dtype=mx.float16),
        "d": mx.array([[1, 2**31]], dtype=mx.uint32),
        "e": mx.array([7, 255], dtype=mx.uint8),
    }
    mx.savez(str(tmp_path / "w.npz"), **arrays)
    file = NpzFile(tmp_path / "w.npz")
    dtypes = {name: stored.dtype for name, stored in file.tensors.items()}
    assert dtypes == {"a": "F32", "b.weight": "BF16", "c": "F16", "d": "U32", "e": "U8"}
    for name, array in arrays.items():
        read = file.read(name)
        assert read.dtype == array.dtype
        assert_close(read, array, atol=0)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_format_by_hand(tmp_path, version):
    six = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    members = {
        "rows.npy": npy("<f4", (2, 3), six, version=version),
        "columns.npy": npy("<f4", (3, 2), six, by_columns=True, version=version),
        "scalar.npy": npy("<f4", (), six[:4], version=version),
    }
    for options in ({}, {"compression": zipfile.ZIP_DEFLATED}):
        file = NpzFile(write(tmp_path / "w.npz", members, **options))
        assert file.read("rows").tolist() == [[1, 2, 3], [4, 5, 6]]
        assert file.read("columns").tolist() == [[1, 4], [2, 5], [3, 6]]
        assert file.read("scalar").item() == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("|O", (1,), b"\x80\x04N."), r"tensor a is stored as '\|O', which isn't supported"),
        (npy(">f4", (1,), bytes(4)), "stored as '>f4'"),
        (npy("<f4", (3,), bytes(8)), r"tensor a has 8 bytes for F32 \(3,\)"),
        (npy("<f4", (-1,), bytes(8)), "is no .npy file"),
        (npy("<f4", ("x",), bytes(8)), "is no .npy file"),
        (npy("<f4", (-1, -2), bytes(8)), "is no .npy file"),
        (npy("<f4", (2.0,), bytes(8)), "is no .npy file"),
        (b"\x93NUMPY\1\0\0\x20" + b"-" * 8192, "is no .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xff{}", "is no .npy file"),
        (b"", "is no .npy file"),
        (b"hello", "is no .npy file"),
        (npy("<f4", (1,), bytes(4)).replace(b"{'descr'", b"{exit():"), "is no .npy file"),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    path = write(tmp_path / "w.npz", {"a.npy": content})
    with pytest.raises(ValueError, match=message):
        NpzFile(path)


def test_truncated_anywhere_is_one_clear_error(tmp_path):
    mx.savez(str(tmp_path / "w.npz"), a=mx.ones((3, 4)), b=mx.ones((2,)))
    whole = (tmp_path / "w.npz").read_bytes()
    for length in range(0, len(whole), 5):
        (tmp_path / "w.npz").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"w\.npz is (truncated|empty)"):
            NpzFile(tmp_path / "w.npz")


# --- whole models --------------------------------------------------------------------------------


def arrays_of(name: str) -> dict[str, mx.array]:
    """The tensors of a reference checkpoint, shards together."""
    arrays = {}
    for file in sorted((REFERENCE / name).glob("*.safetensors")):
        arrays |= mx.load(str(file))
    return arrays


def described(name: str, folder: Path) -> Path:
    """A folder with the config.json of a reference checkpoint, and no weights."""
    folder.mkdir()
    shutil.copyfile(REFERENCE / name / "config.json", folder / "config.json")
    return folder


def assert_golden(m, name: str) -> None:
    expected = golden(name)
    assert_close(m(mx.array([expected["ids"]]))[0, -1], expected["logits_last"], atol=2e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_model_in_npz(tmp_path, name):
    folder = described(name, tmp_path / "m")
    mx.savez(str(folder / "weights.npz"), **arrays_of(name))
    assert_golden(load(folder), name)
    assert_golden(load(folder / "weights.npz"), name)


@pytest.mark.parametrize("name", ALL)
def test_a_model_in_one_pytorch_file(tmp_path, name):
    folder = described(name, tmp_path / "m")
    write_torch(folder / "pytorch_model.bin", arrays_of(name))
    assert_golden(load(folder), name)


def test_a_model_in_pytorch_shards(tmp_path):
    folder = described("qwen3-moe", tmp_path / "m")
    names = [f"pytorch_model-0000{i + 1}-of-00003.bin" for i in range(3)]
    arrays = arrays_of("qwen3-moe")
    weight_map = {name: names[i % 3] for i, name in enumerate(arrays)}
    for shard in names:
        held = {name: array for name, array in arrays.items() if weight_map[name] == shard}
        write_torch(folder / shard, held)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_golden(load(folder), "qwen3-moe")
    (folder / names[1]).unlink()
    with pytest.raises(FileNotFoundError, match=f"{names[1]} of 3 shards named in .*bin.index"):
        load(folder)


def test_a_quantized_model_in_npz(tmp_path):
    name, folder = "qwen3-tied-mixed", tmp_path / "m"
    folder.mkdir()
    source = REFERENCE.parent / "quantized" / name
    shutil.copyfile(source / "config.json", folder / "config.json")
    mx.savez(str(folder / "model.weights.npz"), **mx.load(str(source / "model.safetensors")))
    (folder / "older.pth").touch()
    expected = json.loads((source / "expected.json").read_text())
    logits = load(folder, "float32")(mx.array([expected["ids"]]))[0, -1]
    assert_close(logits, expected["logits_last"], atol=2e-5)


def test_whole_numbers_among_the_weights(tmp_path):
    folder = described("qwen3-tied", tmp_path / "m")
    arrays = arrays_of("qwen3-tied")
    arrays["model.norm.weight"] = arrays["model.norm.weight"].astype(mx.int32)
    mx.savez(str(folder / "weights.npz"), **arrays)
    with pytest.raises(ValueError, match=r"model\.norm\.weight is stored as I32, not one of F32"):
        load(folder)
