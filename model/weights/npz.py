"""An .npz file -> its tensors, one at a time.

MLX reads .npz files itself, but all of it at once and without a look at the headers first.

Blind spot: it doesn't know what a tensor is for; arrays of Python objects are refused.

Source: NEP 1 (numpy's .npy format, versions 1 to 3).
"""

import ast
import struct
from math import prod
from pathlib import Path

import mlx.core as mx

from model.weights.archive import Archive
from model.weights.files import NUM_BYTES, Stored, to_array

_TOO_DEEP = (MemoryError, RecursionError)  # Python's parser, of brackets within brackets
_LONGEST_HEADER = 1 << 16  # bytes; of an array they are about 100
_NPY_DTYPES = {  # bfloat16 is no type of .npy files; MLX writes it as two bytes of anything
    "<f4": "F32", "<f2": "F16", "<V2": "BF16", "|V2": "BF16", "<u4": "U32", "|u1": "U8",
    "<f8": "F64", "<i8": "I64", "<i4": "I32",
}  # fmt: skip


class NpzFile:
    """One .npz file, as mx.savez and numpy.savez write it. tensors: name -> Stored."""

    def __init__(self, path: Path) -> None:
        self._archive = Archive(path)
        self.tensors: dict[str, Stored] = {}
        self._members: dict[str, tuple[str, int, bool]] = {}  # member, header's bytes, by columns
        for member, size in self._archive.sizes.items():
            self._add(path, member, size)

    def read(self, name: str) -> mx.array:
        (member, start, by_columns), stored = self._members[name], self.tensors[name]
        view = self._archive.read(member, start)
        if not by_columns:
            return to_array(view, stored.dtype, stored.shape)
        return mx.contiguous(to_array(view, stored.dtype, stored.shape[::-1]).transpose())

    def _add(self, path: Path, member: str, size: int) -> None:
        name = member.removesuffix(".npy")
        self._archive.check(member, size)
        head = self._archive.read(member, 0, min(size, _LONGEST_HEADER))
        descr, by_columns, shape, start = _read_npy(path, member, head)
        if descr not in _NPY_DTYPES:
            raise ValueError(f"{path}: tensor {name} is stored as {descr!r}, which isn't supported")
        dtype = _NPY_DTYPES[descr]
        num_bytes = prod(shape) * NUM_BYTES[dtype]
        if size != start + num_bytes:
            raise ValueError(f"{path}: tensor {name} has {size - start} bytes for {dtype} {shape}")
        self.tensors[name] = Stored(path, dtype, shape, num_bytes)
        self._members[name] = member, start, by_columns


def _read_npy(path: Path, member: str, view: memoryview) -> tuple[str, bool, tuple[int, ...], int]:
    """An .npy file's (type, whether by columns, shape, where the numbers begin)."""
    try:
        magic, major, _ = struct.unpack_from("<6sBB", view)
        code = "<H" if major == 1 else "<I"
        (length,) = struct.unpack_from(code, view, 8)
        start = 8 + struct.calcsize(code) + length
        header = ast.literal_eval(bytes(view[start - length : start]).decode())
        descr, shape = header["descr"], tuple(header["shape"])
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(shape)
        if magic != b"\x93NUMPY" or type(descr) is not str:
            raise ValueError(header)
        return descr, header["fortran_order"] is True, shape, start
    except (struct.error, ValueError, SyntaxError, KeyError, TypeError, *_TOO_DEEP):
        raise ValueError(f"{path}: {member} is no .npy file; the file is damaged") from None
