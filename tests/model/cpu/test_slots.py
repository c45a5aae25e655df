"""cpu/slots.py, elf.py and addresses.py: damaged libraries, and a word on a read-only page."""

import ctypes
import mmap
import platform
import random

import pytest
from linux_cpu import libmlx, on_linux

from model.cpu import addresses
from model.cpu.elf import _segments
from model.cpu.slots import FUNCTIONS, import_slots


@on_linux
def test_damaged_elf_is_refused():
    """Cut anywhere, or with bytes changed in its tables: slots or ValueError, nothing else."""
    whole = libmlx().read_bytes()
    slots, chance = import_slots(whole, platform.machine()), random.Random(0)
    assert set(slots) <= set(FUNCTIONS)
    with pytest.raises(ValueError, match="not a 64-bit ELF"):
        import_slots(b"", platform.machine())
    with pytest.raises(ValueError, match="for this machine"):
        import_slots(whole, "aarch64" if platform.machine() == "x86_64" else "x86_64")
    for size in (15, 40, 63, 500, len(whole) // 2):
        with pytest.raises(ValueError, match=r"ELF|imported"):
            import_slots(whole[:size], platform.machine())
    far = whole[:32] + b"\xff" * 8 + whole[40:]  # the program headers' place
    with pytest.raises(ValueError, match="outside the file"):
        import_slots(far, platform.machine())
    damaged, dynamic = bytearray(whole), _segments(whole)[2][0][1]
    refused = 0
    for _ in range(150):
        start = chance.choice([0, 32, 64, 64, dynamic, dynamic])
        places = [start + chance.randrange(600 if start else 64) for _ in range(8)]
        for place in places:
            damaged[place] = chance.choice([0, 255, chance.randrange(256)])
        try:
            import_slots(damaged, platform.machine())
        except ValueError:
            refused += 1
        for place in places:
            damaged[place] = whole[place]
    assert refused > 50


@on_linux
def test_write_to_a_read_only_page():
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    addresses.protect(start, 8, mmap.PROT_READ)
    addresses.write_word(start + 8, 1234567890123456789)
    assert ctypes.c_uint64.from_address(start + 8).value == 1234567890123456789
    assert addresses.Mapping.at(start).access.startswith("r--")
