"""a path -> the bytes of the file, decompressed; or standard input's.

Blind spot: what the bytes mean.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

BLOCK_SIZE = 1 << 15  # bytes read at once


@contextmanager
def opened(path: Path | None) -> Iterator[BinaryIO]:
    """A file's bytes, decompressed. ValueError where it breaks off."""
    if path is None:
        if sys.stdin is None:
            raise ValueError("stdin is closed, so there is nothing to read; pass a file")
        yield sys.stdin.buffer
        return
    open_file, broken = COMPRESSED.get(path.suffix, _open_plain)()
    try:
        with open_file(path) as file:
            yield file
    except broken as error:
        raise ValueError(f"{path} is not a whole {path.suffix} file: {error}") from error


Opener = tuple[Callable[[Path], Any], tuple[type[Exception], ...]]  # and what a broken file raises


def _open_plain() -> Opener:
    return lambda path: path.open("rb"), ()


def _open_gzip() -> Opener:
    return lambda path: gzip.open(path, "rb"), (EOFError, gzip.BadGzipFile, zlib.error)


def _open_zstd() -> Opener:
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        return _open_zstandard()
    return lambda path: zstd.open(path, "rb"), (EOFError, zstd.ZstdError)


def _open_zstandard() -> Opener:
    try:
        import zstandard
    except ImportError:
        raise ValueError(
            "reading .zst files needs Python 3.14 or the package zstandard; pip install zstandard, "
            "or decompress the file with zstd -d"
        ) from None

    @contextmanager
    def open_file(path: Path) -> Iterator[BinaryIO]:
        with path.open("rb") as file:
            yield io.BufferedReader(_Frames(file, zstandard.ZstdDecompressor), BLOCK_SIZE)

    return open_file, (EOFError, zstandard.ZstdError)


class _Frames(io.RawIOBase):
    """The bytes of all zstd frames of a file; EOFError if the last one is not whole.

    The package's own reader ends silently where a file was cut off.
    """

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any]) -> None:
        self._file, self._decompressor = file, decompressor
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._frame.unused_data if self._frame and self._frame.eof else b""
            if self._frame is None or self._frame.eof:
                data = data or self._file.read(BLOCK_SIZE)
                if not data:
                    return 0
                self._frame = self._decompressor().decompressobj()
            else:
                data = self._file.read(BLOCK_SIZE)
                if not data:
                    raise EOFError("it ends in the middle of a frame")
            self._ready = memoryview(self._frame.decompress(data))
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


COMPRESSED = {".gz": _open_gzip, ".zst": _open_zstd}
