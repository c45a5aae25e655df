"""an address in this process -> what lies there; a word there -> another word.

Blind spot: it doesn't know why anybody wants to. Linux only, 64 bits.
"""

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mapping:
    """A line of /proc/self/maps."""

    start: int
    stop: int
    access: str  # "rw-p"
    offset: int
    path: str

    @classmethod
    def all(cls) -> "list[Mapping]":
        mappings = []
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            span, access, offset, _, _, *path = line.split(maxsplit=5)
            start, stop = (int(number, 16) for number in span.split("-"))
            mappings.append(cls(start, stop, access, int(offset, 16), *path or [""]))
        return mappings

    @classmethod
    def at(cls, address: int) -> "Mapping | None":
        return next((m for m in cls.all() if m.start <= address < m.stop), None)


def file_at(address: int) -> str:
    mapping = Mapping.at(address)
    return mapping.path if mapping else ""


def address_of(function: Callable) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


def word(place: int) -> int:
    return ctypes.c_uint64.from_address(place).value


def write_word(place: int, value: int) -> None:
    """One aligned store, so a product running in another thread sees the old or the new."""
    access = Mapping.at(place).access
    writable = access.startswith("rw")
    if not writable:  # read-only after relocation ("RELRO")
        protect(place, 8, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.c_uint64.from_address(place).value = value
    if not writable:
        protect(place, 8, mmap.PROT_READ)


def protect(start: int, size: int, protection: int) -> None:
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(start + size - first), protection):
        raise OSError(ctypes.get_errno(), "mprotect refused")
