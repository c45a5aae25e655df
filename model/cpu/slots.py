"""a loaded library -> the words in its memory through which it calls other libraries' functions.

    libmlx's file --import_slots--> where the dynamic linker keeps each function's address
    that slot --one aligned store--> another library's function

A slot belongs to one library alone: what it leads to changes for nobody else.

Blind spot: it doesn't know whether the other function does the same.
"""

import ctypes
import mmap
import platform
from collections.abc import Callable
from dataclasses import dataclass

from model.cpu.addresses import Mapping, address_of, file_at, word, write_word
from model.cpu.elf import RELOCATIONS, Elf

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # all the BLAS that libmlx imports


def import_slots(data: bytes | mmap.mmap, machine: str) -> dict[str, list[int]]:
    """Where the dynamic linker keeps the addresses of FUNCTIONS that a library imports.

    Raises ValueError where the library is damaged or doesn't import cblas_sgemm.
    """
    elf, (_, *kinds) = Elf.read(data, machine), RELOCATIONS[machine]
    slots = {}  # cblas name -> addresses, counted from where the library is loaded
    for slot, info, _ in elf.relocations():
        if info & 0xFFFFFFFF in kinds:
            name = elf.name(info >> 32).decode("latin-1")
            if name in FUNCTIONS:
                slots.setdefault(name, []).append(slot)
    if "cblas_sgemm" not in slots:
        raise ValueError("no cblas_sgemm is imported, so there is nothing to replace")
    return slots


@dataclass(frozen=True)
class Slots:
    """Words in this process's memory through which a library calls functions."""

    addresses: dict[str, list[int]]  # function's name -> its slots

    @classmethod
    def of(cls, path: str, find: Callable[[mmap.mmap, str], dict[str, list[int]]]) -> "Slots":
        """find: import_slots or final_slots. path: of a loaded library, as in /proc/self/maps.

        Raises ValueError or OSError unless every slot lies in the library's own memory.
        """
        base = next(m.start for m in Mapping.all() if m.path == path and m.offset == 0)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = find(data, platform.machine())
            except ValueError as problem:
                raise ValueError(f"{path}: {problem}") from problem
        slots = cls({name: [base + slot for slot in found[name]] for name in found})
        if any(place % 8 or file_at(place) != path for place in slots.places()):
            raise ValueError(f"{path}: its slots aren't where its file says")
        return slots

    @classmethod
    def of_libmlx(cls) -> "Slots":
        """Raises ValueError or OSError unless they lead where they should."""
        path = next((m.path for m in Mapping.all() if m.path.endswith("/libmlx.so")), None)
        if path is None:
            raise ValueError("libmlx.so isn't loaded")
        slots, libmlx = cls.of(path, import_slots), ctypes.CDLL(path)
        for name, places in slots.addresses.items():
            # To the library it came with; or, where functions are looked up at their first call,
            # back into libmlx.
            own = file_at(address_of(getattr(libmlx, name)))
            for place in places:
                if (target := file_at(word(place))) not in (own, path):
                    raise ValueError(f"MLX already uses {target or 'another BLAS'}")
        return slots

    def places(self) -> list[int]:
        return [place for places in self.addresses.values() for place in places]

    def write(self, functions: dict[str, int]) -> dict[str, int]:
        """Point every slot at its function; return where they pointed before."""
        old = {}
        for name, places in self.addresses.items():
            for place in places:
                old[name] = word(place)
                write_word(place, functions[name])
        return old
