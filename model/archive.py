"""A zip file -> its members, as views of the mapped file where they are stored uncompressed.

PyTorch checkpoints and .npz files are zip files whose members are stored as they are, so that
gigabytes of them need no copy.

Blind spot: it doesn't know what members hold, and doesn't compute their checksums: reading
gigabytes twice costs more than it finds. Sizes are checked.

Source: PKWARE's APPNOTE 6.3.10, section 4.3.7 (local file headers).
"""

import mmap
import struct
import zipfile
import zlib
from pathlib import Path

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., lengths of name and extra field


class Archive:
    """An open zip file. sizes: member's name -> its bytes when read.

    Raises ValueError where the file is damaged or something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_start(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(error) from None
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._members = {info.filename: info for info in self._zip.infolist()}
        self.sizes: dict[str, int] = {n: info.file_size for n, info in self._members.items()}

    def view(self, name: str, num_bytes: int) -> memoryview:
        """The member's content, which must be num_bytes long."""
        info = self._members.get(name)
        if info is None:
            raise ValueError(f"{self.path} has no {name}, though it refers to it; it is damaged")
        if info.file_size != num_bytes:
            raise ValueError(
                f"{self.path}: {name} has {info.file_size} bytes instead of {num_bytes}; the file"
                " is damaged"
            )
        if info.flag_bits & 1:
            raise ValueError(f"{self.path}: {name} is encrypted, so it can't be read")
        if info.compress_type != zipfile.ZIP_STORED:
            return self._decompress(info)
        start = self._start(info)
        return memoryview(self._bytes)[start : start + num_bytes]

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where the content begins: after the member's own header, whose length varies."""
        header = self._bytes[info.header_offset : info.header_offset + _LOCAL_HEADER.size]
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            raise self._damaged(f"{info.filename} has no header")
        _, name, extra = _LOCAL_HEADER.unpack(header)
        start = info.header_offset + _LOCAL_HEADER.size + name + extra
        if start + info.file_size > len(self._bytes):
            raise self._damaged(f"{info.filename} ends outside of it")
        return start

    def _decompress(self, info: zipfile.ZipInfo) -> memoryview:
        try:
            return memoryview(self._zip.read(info))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: object) -> ValueError:
        return ValueError(
            f"{self.path} is truncated or damaged ({error}), or no zip file; download it again"
        )


def _check_start(path: Path) -> None:
    """One clear error for what is often found under the name of a checkpoint."""
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"version https://"[:16]):
        raise ValueError(
            f"{path} is a Git LFS pointer, not the weights; run `git lfs pull` in its directory"
        )
    if start[:2] == b"\x80\x02":  # a pickle of protocol 2
        raise ValueError(
            f"{path} is a bare pickle, as PyTorch wrote before version 1.6; load and save it again"
            " with a newer PyTorch, which writes zip files"
        )
    if not start:
        raise ValueError(f"{path} is empty; download it again")
