"""A zip file -> the content of its members, from any place of the stored ones.

PyTorch checkpoints and .npz files are zip files whose members are stored as they are.

Blind spot: it doesn't know what members hold, and doesn't compute their checksums: reading
gigabytes twice costs more than it finds. Sizes are checked.

Source: PKWARE's APPNOTE 6.3.10, section 4.3.7 (local file headers).
"""

import lzma
import struct
import zipfile
import zlib
from pathlib import Path

_BAD_CONTENT = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., lengths of name and extra field


class Archive:
    """An open zip file. sizes: member's name -> its bytes when read.

    Raises ValueError where the file is damaged or something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_start(path)
        try:
            with zipfile.ZipFile(path) as archive:
                self._members = {info.filename: info for info in archive.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(error) from None
        self._num_bytes = path.stat().st_size
        self.sizes: dict[str, int] = {n: info.file_size for n, info in self._members.items()}

    def check(self, name: str, num_bytes: int) -> None:
        """Raises ValueError unless there is such a member, whole and of that size."""
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
        self._start(info)

    def read(self, name: str, start: int = 0, num_bytes: int | None = None) -> memoryview:
        """num_bytes of the member's content from `start` on; all that follow where None."""
        info = self._members[name]
        num_bytes = info.file_size - start if num_bytes is None else num_bytes
        if info.compress_type != zipfile.ZIP_STORED:
            return self._decompress(info, start, num_bytes)
        # Not mapped: pages of a mapped file count as the process's memory.
        return memoryview(self._read(self._start(info) + start, num_bytes))

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where the content begins: after the member's own header, whose length varies."""
        at = info.header_offset
        header = self._read(at, _LOCAL_HEADER.size) if 0 <= at < self._num_bytes else b""
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            raise self._damaged(f"{info.filename} has no header")
        _, name, extra = _LOCAL_HEADER.unpack(header)
        start = at + _LOCAL_HEADER.size + name + extra
        if start + info.compress_size > self._num_bytes:
            raise self._damaged(f"{info.filename} ends outside of it")
        return start

    def _decompress(self, info: zipfile.ZipInfo, start: int, num_bytes: int) -> memoryview:
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as member:
                member.seek(start)
                return memoryview(member.read(num_bytes))
        except (OSError, EOFError, NotImplementedError, *_BAD_CONTENT) as error:
            raise self._damaged(error) from None

    def _read(self, start: int, num_bytes: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(num_bytes)

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
