"""weights/safetensors.py against MLX's own reading, and one clear error for each damaged file.

What load says of truncated files, of headers that contradict themselves and of gaps between tensors
is in test_load.py.
"""

import json
import os
import struct
import sys
from pathlib import Path

import mlx.core as mx
import pytest
import safetensors
from compare import ALL, REFERENCE, assert_close

from model.weights.safetensors import SafetensorsFile, begin_import

MLX = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16, "U32": mx.uint32, "U8": mx.uint8}
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def write(path: Path, header: dict | bytes, data: bytes = b"") -> Path:
    """A file by hand: 8 bytes of length, a JSON header, the data."""
    if isinstance(header, dict):
        header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def refused(path: Path, *words: str, kind: type = ValueError) -> None:
    with pytest.raises(kind) as caught:
        SafetensorsFile(path)
    assert type(caught.value) is kind
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_names_shapes_and_types_are_those_that_mlx_reads(name):
    for path in (REFERENCE / name).glob("*.safetensors"):
        arrays = mx.load(str(path))
        tensors = SafetensorsFile(path).tensors
        assert tensors.keys() == arrays.keys()
        for key, array in arrays.items():
            stored = tensors[key]
            assert (stored.file, stored.shape) == (path, array.shape)
            assert (MLX[stored.dtype], stored.num_bytes) == (array.dtype, array.nbytes)


def test_every_type_that_weights_have(tmp_path):
    arrays = {name: mx.array([[1, 0, 2]], dtype=dtype) for name, dtype in MLX.items()}
    arrays |= {"scalar": mx.array(0.5), "a name with spaces, é and \U0001f600": mx.ones(2)}
    mx.save_safetensors(str(tmp_path / "x.safetensors"), arrays, {"format": "mlx", "é": "ü"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    for name in MLX:
        assert (file.tensors[name].dtype, file.tensors[name].shape) == (name, (1, 3))
    for name, array in arrays.items():
        read = file.read(name)
        assert read.dtype == array.dtype
        assert_close(read, array, atol=0)


def test_tensors_without_numbers(tmp_path):
    empty = {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}
    file = SafetensorsFile(
        write(tmp_path / "x.safetensors", {"a": empty, "b": ONE}, struct.pack("<f", 7))
    )
    assert (file.tensors["a"].shape, file.tensors["a"].num_bytes) == ((0, 4), 0)
    assert file.read("b").tolist() == [7]
    assert SafetensorsFile(write(tmp_path / "x", {})).tensors == {}


@pytest.mark.parametrize("name", ["é ü.safetensors", "a\udcff.safetensors", "no ending"])
def test_any_name_of_a_file(tmp_path, name):
    if name.isascii() or sys.platform == "linux":
        assert list(SafetensorsFile(write(tmp_path / name, {"a": ONE}, bytes(4))).tensors) == ["a"]


def test_a_header_of_thousands_of_tensors(tmp_path):
    header = {
        f"model.layers.{i}.weight": {
            "dtype": "BF16", "shape": [1, 2], "data_offsets": [4 * i, 4 * i + 4],
        }
        for i in range(20_000)
    }  # fmt: skip
    assert len(SafetensorsFile(write(tmp_path / "x", header, bytes(80_000))).tensors) == 20_000


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["BOOL", "I8", "I16", "U16", "I32", "I64", "U64", "F64", "F8_E4M3", "F8_E5M2", "X9"]
)
def test_types_that_no_weights_have(tmp_path, dtype):
    """F8 is known to some versions of safetensors, X9 to none: the sentence is the same."""
    size = int("".join(filter(str.isdigit, dtype.split("_")[0])) or 8) // 8
    entry = {"dtype": dtype, "shape": [4], "data_offsets": [4, 4 + 4 * size]}
    path = write(tmp_path / "x", {"a": ONE, "odd": entry}, bytes(4 + 4 * size))
    refused(path, f"tensor odd is stored as {dtype}, not one of F32, F16, BF16, U32, U8")


def test_a_name_that_is_there_twice(tmp_path):
    """The format forbids it; safetensors and MLX take the last."""
    one, two = (
        f'"a": {{"dtype": "F32", "shape": [{n}], "data_offsets": [0, {4 * n}]}}' for n in (1, 2)
    )
    for header, num_bytes in ((f"{{{one}, {one}}}", 4), (f"{{{one}, {two}}}", 8)):
        path = write(tmp_path / "x", header.encode(), bytes(num_bytes))
        assert mx.load(str(path), format="safetensors").keys() == {"a"}
        refused(path, "has a twice in its header; it is damaged")


def test_a_tensor_with_the_name_of_a_field(tmp_path):
    """A header in which more seem to be is looked at again, and is right."""
    path = write(tmp_path / "x", {"data_offsets": ONE}, bytes(4))
    assert list(SafetensorsFile(path).tensors) == ["data_offsets"]


@pytest.mark.parametrize(
    "header",
    [
        b'{"a\xff": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"__metadata__": {"n": 1}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 99999999999999999999999]}}xx',
        b"{} x",
        b"",
    ],
)
def test_a_header_that_is_none(tmp_path, header):
    refused(write(tmp_path / "x", header, bytes(4)), "no safetensors header", "the file is damaged")


def test_a_shape_beyond_all_memory(tmp_path):
    entry = {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}
    refused(write(tmp_path / "x", {"a": entry}, bytes(4)), "tensor a has 4 bytes for F32 (1099511")


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_too_short_for_a_length(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    refused(tmp_path / "x", f"is truncated: it needs at least 8 bytes and has {len(content)};")


def test_a_header_longer_than_the_format_allows(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(struct.pack("<Q", 100_000_001) + b"{}")
    os.truncate(path, 100_000_009)  # a hole: no space is taken
    refused(path, "no safetensors header")


def test_what_is_no_regular_file(tmp_path):
    """A FIFO would be waited for."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "folder", "is a directory, so no weights")
    for name in ("fifo", "nowhere"):
        refused(tmp_path / name, "is no regular file")


def test_a_file_system_that_maps_no_files(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError("No such device (os error 19)")

    monkeypatch.setattr(safetensors, "safe_open", fails)
    path = write(tmp_path / "x", {"a": ONE}, bytes(4))
    refused(path, "can't be mapped into memory (No such device", "copy it", kind=OSError)


# --- numpy ---------------------------------------------------------------------------------------


def test_numpy_is_imported_early_where_it_will_be_needed(tmp_path):
    for path in ("nowhere", "x.gguf", "."):
        assert begin_import(tmp_path / path) is None
    write(tmp_path / "x.safetensors", {})
    for path in (tmp_path, tmp_path / "x.safetensors"):
        begin_import(path).join()
        assert "numpy" in sys.modules


def test_without_numpy_the_thread_says_nothing(tmp_path, monkeypatch, capfd):
    """Whoever opens the file does."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    begin_import(tmp_path / "x.safetensors").join()
    assert capfd.readouterr() == ("", "")
