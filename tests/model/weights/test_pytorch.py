"""weights/pytorch.py against a file of PyTorch's own, and against files that would run or lie."""

import json
import pickle
import random
import struct
import zipfile
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close
from torch_files import mapping, number, storage, tensor, text, write_torch, write_zip

from model.weights import memory
from model.weights.archive import Archive
from model.weights.pytorch import PyTorchFile

GOLDEN = REFERENCE.parent
FOUR = struct.pack("<4f", 1, 2, 3, 4)


def test_a_file_of_pytorchs_own():
    """Views, shared storages, parameters, short types: everything that a state_dict may hold."""
    expected = json.loads((GOLDEN / "torch_zip.json").read_text())["tensors"]
    file = PyTorchFile(GOLDEN / "torch_zip.pth")
    assert list(file.tensors) == list(expected)
    dtypes = {name: tensor.dtype for name, tensor in file.tensors.items()}
    assert (dtypes["f32"], dtypes["f16"], dtypes["bf16"], dtypes["int64"]) == (
        "F32", "F16", "BF16", "I64",
    )  # fmt: skip
    for name in expected.keys() - {"int64"}:
        shape = tuple(expected[name]["shape"])
        assert file.tensors[name].shape == shape
        values = mx.array(expected[name]["values"]).reshape(shape)
        assert_close(file.read(name), values, atol=0)
    assert file.read("bf16").dtype == mx.bfloat16


def test_the_files_of_these_tests_are_read_alike(tmp_path):
    arrays = {
        "a": mx.arange(6, dtype=mx.float32).reshape(2, 3),
        "b": mx.array([1.5, -2], dtype=mx.float16),
        "c": mx.array([[3.0]], dtype=mx.bfloat16),
    }
    file = PyTorchFile(write_torch(tmp_path / "m.pth", arrays))
    for name, array in arrays.items():
        assert file.read(name).dtype == array.dtype
        assert_close(file.read(name), array, atol=0)


def one(tmp_path, opcodes: bytes, **storages: bytes) -> PyTorchFile:
    """A file whose one tensor, "w", is made by the opcodes."""
    return PyTorchFile(write_zip(tmp_path / "m.pth", mapping({"w": opcodes}), storages))


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [
        ((2, 2), (1, 2), 0, [[1, 3], [2, 4]]),
        ((2,), (2,), 1, [2, 4]),
        ((3,), (1,), 1, [2, 3, 4]),
        ((2, 3), (0, 1), 0, [[1, 2, 3], [1, 2, 3]]),
        ((), (), 3, 4),
        ((1, 2), (77, 1), 2, [[3, 4]]),  # the stride of a single row means nothing
    ],
)
def test_views_of_a_storage(tmp_path, shape, strides, offset, expected):
    file = one(tmp_path, tensor("0", 4, shape, strides, offset), **{"0": FOUR})
    assert file.read("w").tolist() == expected


def test_wrappers_of_trainers(tmp_path):
    inner = mapping({"w": tensor("0", 4, (4,))})
    for key in ("state_dict", "model"):
        outer = mapping({key: inner, "epoch": number(3), "lr": b"G" + struct.pack(">d", 0.1)})
        file = PyTorchFile(write_zip(tmp_path / "m.pth", outer, {"0": FOUR}))
        assert list(file.tensors) == ["w"]


# --- nothing is run ------------------------------------------------------------------------------


class Evil:
    """Python's own pickle calls os.system when it reads this."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        import os

        return os.system, (self.command,)


SYSTEM = b"cos\nsystem\n"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pythons_pickles_of_code_are_refused(tmp_path, protocol):
    mark = tmp_path / "it-ran"
    content = pickle.dumps({"w": Evil(f"touch {mark}")}, protocol)
    path = tmp_path / "m.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    with pytest.raises(ValueError, match=r"asks for posix\.system.*nothing of it was run"):
        PyTorchFile(path)
    assert not mark.exists()
    pickle.loads(content)
    assert mark.exists(), "the pickle would have run, or this test shows nothing"


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (SYSTEM + b"(" + text("true") + b"tR", r"asks for os\.system"),
        (b"(" + text("true") + b"ios\nsystem\n", "operation INST"),
        (b"(" + SYSTEM + text("true") + b"o", r"asks for os\.system"),
        (text("os") + text("system") + b"\x93", r"asks for os\.system"),
        (b"cbuiltins\neval\n", r"asks for builtins\.eval"),
        (b"ctorch\nload\n", r"asks for torch\.load"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)\x81", "operation NEWOBJ"),
        (b"\x82\x01", "operation EXT1"),
        (b"c_codecs\nencode\n", r"asks for _codecs\.encode"),
        (b"ctorch\nFloatStorage\n)R", r"calls 'torch\.FloatStorage'"),
        (text("eval") + b")R", "calls 'str'"),
        (b"ctorch\nFloatStorage\n}b", "sets attributes of a _Name"),
        (b"(" + text("module") + b"N" * 4 + b"tQ", "refers to 'module' outside"),
        (b"\x8f", "operation EMPTY_SET"),
        (b"(P1\n", "operation PERSID"),
    ],
)
def test_every_way_to_call_something_is_refused_by_name(tmp_path, opcodes, message):
    with pytest.raises(ValueError, match=message) as caught:
        one(tmp_path, opcodes)
    assert "m.pth" in str(caught.value)
    assert "\n" not in str(caught.value)


# --- damage and lies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (tensor("0", 4, (5,)), "w reaches beyond its storage of 4 values"),
        (tensor("0", 4, (2, 2), (3, 1)), "w reaches beyond"),
        (tensor("0", 4, (4,), offset=1), "w reaches beyond"),
        (tensor("0", 4, (4,), (-1,)), "damaged .*strides"),
        (tensor("0", 4, (-4,)), "damaged .*shape"),
        (tensor("0", 5, (4,)), "data/0 has 16 bytes instead of 20"),
        (tensor("1", 4, (4,)), "has no archive/data/1"),
        (tensor("../0", 4, (4,)), r"has no archive/data/\.\./0"),
        (tensor("0", -4, (4,)), "damaged"),
        (storage("0", 4), "holds 'w', a Storage, among its tensors"),
        (number(3), "holds 'w', a int, among its tensors"),
        (b"N" + tensor("0", 4, (4,)), "damaged"),
        (b"0000", "damaged"),
        (b"j\xff\xff\xff\xff", "damaged"),  # a memo entry that there isn't
        (b"r\xff\xff\xff\xff" + number(3), "holds 'w'"),  # Python's own would take 64 GB for it
        (b"c", "damaged"),
        (b"\xff", "damaged"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "damaged"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NJ\0\0\0\0))tR", "damaged"),
        (b"}" + b"]a", "damaged"),
        (b"(" + text("storage") + b"t" + b"Q", "damaged"),
    ],
)
def test_damage_and_lies_are_named(tmp_path, opcodes, message):
    with pytest.raises(ValueError, match=message) as caught:
        one(tmp_path, opcodes, **{"0": FOUR})
    assert "\n" not in str(caught.value)


def nested(depth: int) -> bytes:
    """A tuple of a tuple and itself again, `depth` times: a page of opcodes, 2**depth values."""
    pairs = (bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(depth))
    grow = (b"0h" + pair for pair in pairs)
    return b"K\1K\1\x86q\0" + b"".join(grow)


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (b"}" + nested(60) + b"K\1s", "a mapping by a tuple"),
        (b"(" + nested(60) + b"K\1d", "a mapping by a tuple"),
        (b"ccollections\nOrderedDict\n(](" + nested(60) + b"K\1tatR", "a mapping by a tuple"),
        (b"(" + nested(60) + b"NNNNtQ", "refers to a tuple outside"),
        (
            b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage("0", 4) + b"K\0" + nested(60)
            + b"h\0tR",
            "no whole numbers",
        ),
        (b"(" + text("storage") + b"ctorch\nFloatStorage\n" + nested(60) + b"NNtQ", "without name"),
        (b"}" + b")" + b"\x85" * 100000 + b"K\1s", "a mapping by a tuple"),
    ],
)  # fmt: skip
def test_what_would_take_years_to_hash_or_print_is_refused_at_once(tmp_path, opcodes, message):
    with pytest.raises(ValueError, match=message) as caught:
        one(tmp_path, opcodes, **{"0": FOUR})
    assert len(str(caught.value)) < 300


def test_a_view_reads_only_what_it_spans(tmp_path, monkeypatch):
    """A storage may be far larger, and where it is compressed a small file can hold gigabytes."""
    path = tmp_path / "m.pth"
    storages = {"0": bytes(4_000_000)}
    pickled = mapping({"w": tensor("0", 1_000_000, (2,), (1000,), 5)})
    file = PyTorchFile(write_zip(path, pickled, storages, compression=zipfile.ZIP_DEFLATED))
    read, sizes = Archive.read, []
    monkeypatch.setattr(Archive, "read", lambda *a: sizes.append(a[-1]) or read(*a))
    assert file.read("w").tolist() == [0, 0]
    assert sizes == [4 * 1001]
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 1000)
    with pytest.raises(memory.NotEnoughMemory, match="w picks from"):
        file.read("w")


def test_a_byte_order_of_another_length_is_not_read(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "m.pth", mapping({}), {})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/byteorder", b"little" + bytes(1_000_000))
    monkeypatch.setattr(Archive, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ValueError, match="big-endian"):
        PyTorchFile(path)


def test_other_content_is_named(tmp_path):
    path = tmp_path / "m.pth"
    with pytest.raises(ValueError, match="holds a list, not a mapping"):
        PyTorchFile(write_zip(path, b"]", {}))
    with pytest.raises(ValueError, match="holds a tensor, not a mapping"):
        PyTorchFile(write_zip(path, tensor("0", 4, (4,)), {"0": FOUR}))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(ValueError, match=r"zip file with 0 data\.pkl"):
        PyTorchFile(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "bare pickle, as PyTorch wrote before"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "truncated or damaged .* or no zip file"),
        (b"PK\x03\x04" + bytes(100), "truncated or damaged"),
    ],
)
def test_what_else_lies_under_that_name(tmp_path, content, message):
    path = tmp_path / "m.pth"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        PyTorchFile(path)


def test_big_endian_files_and_compressed_ones(tmp_path):
    path = tmp_path / "m.pth"
    pickled = mapping({"w": tensor("0", 4, (4,))})
    write_zip(path, pickled, {"0": FOUR}, compression=zipfile.ZIP_DEFLATED)
    assert PyTorchFile(path).read("w").tolist() == [1, 2, 3, 4]
    whole = write_zip(path, pickled, {"0": FOUR}).read_bytes()
    path.write_bytes(whole.replace(b"little", b"bigend"))
    with pytest.raises(ValueError, match="big-endian"):
        PyTorchFile(path)


def test_truncated_anywhere_is_one_clear_error(tmp_path):
    whole = write_torch(tmp_path / "w.pth", {"a": mx.ones((3, 4)), "b": mx.ones((5,))}).read_bytes()
    path = tmp_path / "m.pth"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"m\.pth is (truncated|empty)"):
            PyTorchFile(path)


def test_random_damage_never_ends_in_another_error(tmp_path):
    """Numbers may change unseen, but nothing else than ValueError may come out."""
    whole, draw = (GOLDEN / "torch_zip.pth").read_bytes(), random.Random(4)
    path, refused = tmp_path / "m.pth", 0
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        path.write_bytes(broken)
        try:
            file = PyTorchFile(path)
            mx.eval([file.read(n) for n, t in file.tensors.items() if t.dtype in ("F32", "F16")])
        except ValueError:
            refused += 1
    assert 100 < refused < 400


def test_opening_reads_no_numbers(tmp_path, monkeypatch):
    path = write_torch(tmp_path / "m.pth", {"a": mx.ones((3, 4))})
    monkeypatch.setattr(mx, "array", lambda *_: pytest.fail("numbers were read"))
    assert PyTorchFile(Path(path)).tensors["a"].shape == (3, 4)
