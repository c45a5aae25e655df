"""the bytes of a shared library -> the tables by which the dynamic linker connects it with others.

Blind spot: it doesn't know where, or whether, the library is loaded.

Source: the ELF specification (System V ABI, chapter 5) and its x86-64 and AArch64 supplements.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

RELOCATIONS = {  # machine -> ELF's number for it, GLOB_DAT, JUMP_SLOT
    "x86_64": (62, 6, 7),
    "aarch64": (183, 1025, 1026),
}
RELATIVE = {"x86_64": 8, "aarch64": 1027}  # machine -> ELF's number for "load address + number"
_LOAD, _DYNAMIC = 1, 2  # program headers
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = 5, 6, 7, 8, 2, 23  # dynamic section
FINI_ARRAY, FINI_ARRAYSZ = 26, 28


@dataclass(frozen=True)
class Elf:
    """The bytes of a 64-bit shared library; its addresses count from where it is loaded.

    Only these bytes are ever read: a damaged file raises ValueError and does no harm.
    """

    data: bytes | mmap.mmap
    loads: list[tuple[int, int, int]]  # address in memory, place in the file, length in the file
    dynamic: dict[int, int]  # tag -> value

    @classmethod
    def read(cls, data: bytes | mmap.mmap, machine: str) -> "Elf":
        number = RELOCATIONS[machine][0]
        try:
            if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (3, number):
                raise ValueError("not a 64-bit ELF library for this machine")
            segments = _segments(data)
            start, size = segments[_DYNAMIC][0][1:]
            entries = struct.iter_unpack("<qQ", data[start : start + size // 16 * 16])
            dynamic = dict(takewhile(lambda entry: entry[0] != 0, entries))
        except (struct.error, OverflowError) as error:  # a read past the end
            raise ValueError("ELF headers point outside the file") from error
        return cls(data, segments[_LOAD], dynamic)

    def place(self, address: int, size: int) -> int:
        """address in memory -> place in the file"""
        for first, place, length in self.loads:
            if first <= address and address + size <= first + length:
                return place + address - first
        raise ValueError("ELF tables point outside the segments")

    def table(self, tag: int, size_tag: int) -> bytes:
        """A table that the dynamic section describes; empty where it has none."""
        size = self.dynamic.get(size_tag, 0)
        place = self.place(self.dynamic.get(tag, 0), size)
        return self.data[place : place + size]

    def relocations(self) -> Iterator[tuple[int, int, int]]:
        """(address of a word, kind and symbol, number to add) for each that the linker fills in"""
        for tag, size_tag in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            table = self.table(tag, size_tag)
            yield from struct.iter_unpack("<QQq", table[: len(table) // 24 * 24])

    def name(self, symbol: int) -> bytes:
        """The first bytes of a symbol's name, by its number: enough to tell those of BLAS."""
        place = self.place(self.dynamic.get(_SYMTAB, 0) + 24 * symbol, 24)
        (offset,) = struct.unpack_from("<I", self.data, place)
        place = self.place(self.dynamic.get(_STRTAB, 0) + offset, 1)
        return self.data[place : place + 12].partition(b"\0")[0]


def _segments(data: bytes | mmap.mmap) -> dict[int, list[tuple[int, int, int]]]:
    """kind -> [(address in memory, place in the file, length in the file), ...]"""
    segments = {_LOAD: [], _DYNAMIC: []}
    (table,), (size, count) = (
        struct.unpack_from("<Q", data, 32),
        struct.unpack_from("<HH", data, 54),
    )
    for index in range(count):
        kind, _, place, address, _, length, _, _ = struct.unpack_from(
            "<IIQQQQQQ", data, table + index * size
        )
        if kind in segments:
            segments[kind].append((address, place, length))
    # The load address of the library is then that of its first byte.
    if not segments[_DYNAMIC] or not segments[_LOAD] or segments[_LOAD][0][:2] != (0, 0):
        raise ValueError("ELF segments aren't laid out as expected")
    return segments
