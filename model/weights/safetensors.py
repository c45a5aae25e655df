"""A .safetensors file -> its tensors, each read from disk when it is computed.

The safetensors package checks the file and says what is in it, MLX reads the numbers. Where the
package refuses a file, the header is looked through for what its errors leave out: which tensor,
and how many bytes are missing.

Blind spot: it doesn't know what a tensor is for.
"""

import json
from collections import Counter
from contextlib import suppress
from math import prod
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import mlx.core as mx

from model.weights.files import DTYPES, NUM_BYTES, Stored, cpu_stream

_MAX_HEADER = 100_000_000  # bytes, the format's own limit


class SafetensorsFile:
    """One .safetensors file. tensors: name -> Stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tensors = _read(path)
        self._arrays: dict[str, mx.array] | None = None  # each read from disk when evaluated

    def read(self, name: str) -> mx.array:
        """The tensor, which can be read once."""
        if self._arrays is None:
            # By a thread of its own, beside those that convert what was read.
            self._arrays = mx.load(str(self._path), stream=cpu_stream(0))
        return self._arrays.pop(name)  # so that nothing else keeps it in memory


def begin_import(path: Path) -> Thread | None:
    """Import numpy, without which safetensors opens no file, in a thread if `path` has such files.

    That takes 80 ms of Python's time, most of which passes while others wait for something else.
    """
    if path.suffix != ".safetensors" and not any(path.glob("*.safetensors")):
        return None
    thread = Thread(target=_import_numpy)
    thread.start()
    return thread


def _import_numpy() -> None:
    with suppress(Exception):  # whoever opens the file will be told
        import numpy  # noqa: F401


def _read(file: Path) -> dict[str, Stored]:
    """The tensors of a file, which safetensors says is whole."""
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        what = "a directory" if file.is_dir() else "no regular file"
        raise ValueError(f"{file} is {what}, so no weights can be read from it")
    head = _head(file)
    try:
        with safe_open(file, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            found = [(name, s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()]
    except SafetensorError as error:
        _explain(file, head)
        raise ValueError(
            f"{file} has no safetensors header; the file is damaged ({error})"
        ) from None
    except OSError as error:  # a file system without mmap
        raise OSError(f"{file} can't be mapped into memory ({error}); copy it elsewhere") from None
    if head.count(b'"data_offsets"') > len(found):
        _explain(file, head)  # for of a name that is there twice safetensors shows the last
    return {name: _stored(file, name, dtype, shape) for name, dtype, shape in found}


def _head(file: Path) -> bytes:
    """The length of the header and the header, as far as they are there."""
    with file.open("rb") as opened:
        start = opened.read(8)
        length = int.from_bytes(start, "little")
        return start + opened.read(length if length <= _MAX_HEADER else 0)


def _stored(file: Path, name: str, dtype: str, shape: tuple[int, ...]) -> Stored:
    if dtype not in DTYPES:
        raise ValueError(
            f"{file}: tensor {name} is stored as {dtype}, not one of {', '.join(DTYPES)}"
        )
    return Stored(file, dtype, shape, prod(shape) * NUM_BYTES[dtype])


# --- what is wrong with a file -------------------------------------------------------------------


class _Entry(NamedTuple):
    """A tensor in a header. start, end: of its bytes, from the end of the header on."""

    start: int
    end: int
    name: str
    dtype: str
    shape: tuple[int, ...]


def _explain(file: Path, head: bytes) -> None:
    """Raise ValueError with what can be seen to be wrong; nothing happens where nothing is."""
    if head.startswith(b"version "):
        raise ValueError(
            f"{file} is a Git LFS pointer, not the weights; run `git lfs pull` in its directory"
        )
    length, num_bytes = int.from_bytes(head[:8], "little"), file.stat().st_size
    _check_length(file, 8, num_bytes)
    if length > _MAX_HEADER:
        return
    _check_length(file, 8 + length, num_bytes)
    try:
        entries = _entries(head[8:])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    _check_names(file, entries)
    _check_length(file, 8 + length + max((each.end for each in entries), default=0), num_bytes)
    _check_places(file, entries, num_bytes - 8 - length)
    for start, end, name, dtype, shape in entries:
        if end - start != _stored(file, name, dtype, shape).num_bytes:
            raise ValueError(f"{file}: tensor {name} has {end - start} bytes for {dtype} {shape}")


def _entries(header: bytes) -> list[_Entry]:
    """In the order of their bytes; a name that is there twice is here twice."""
    made = []
    for name, pairs in json.loads(header, object_pairs_hook=list):
        if name == "__metadata__":
            continue
        fields = dict(pairs)
        (start, end), shape, dtype = fields["data_offsets"], fields["shape"], fields["dtype"]
        if any(type(size) is not int or size < 0 for size in (start, end, *shape)):
            raise ValueError(name)
        if type(dtype) is not str:
            raise TypeError(dtype)
        made.append(_Entry(start, end, name, dtype, tuple(shape)))
    return sorted(made)


def _check_names(file: Path, entries: list[_Entry]) -> None:
    for name, count in Counter(each.name for each in entries).items():
        if count > 1:
            raise ValueError(f"{file} has {name} twice in its header; it is damaged")


def _check_length(file: Path, expected: int, found: int) -> None:
    if found < expected:
        raise ValueError(
            f"{file} is truncated: it needs at least {expected} bytes and has {found};"
            " download it again"
        )


def _check_places(file: Path, entries: list[_Entry], num_bytes: int) -> None:
    """Tensors follow each other without gaps, from the first byte of the data to the last: where
    they don't, the header or its length is wrong, and every number would be another one."""
    at, before = 0, "the header"
    places = [(each.start, each.end, each.name) for each in entries]
    for start, end, name in [*places, (num_bytes, num_bytes, "the end of the file")]:
        if start != at:
            what = "overlap" if start < at else f"have {start - at} bytes between them"
            raise ValueError(f"{file}: {before} and {name} {what}; the file is damaged")
        at, before = end, name
