"""OpenBLAS's clean-up -> nothing, so that a process may end or fork while MLX's threads compute.

Blind spot: other libraries' clean-up; MKL needs none of this.
"""

import ctypes
import mmap

from model.cpu.addresses import address_of, file_at, word
from model.cpu.elf import FINI_ARRAY, FINI_ARRAYSZ, RELATIVE, Elf
from model.cpu.slots import Slots


def let_end_and_fork(path: str) -> None:
    """Have OpenBLAS do nothing when the process ends or forks while MLX's threads compute.

    It would stop its own threads, which hangs if one of MLX's is giving them work, and free the
    buffers of running products. Generation computes one step ahead of its reader, and 7 of 10
    processes that ended so were seen to hang. The system takes back everything anyhow.
    """
    # 1. Put a function that does nothing in the place of its clean-up.
    slots = Slots.of(path, final_slots)
    if any(file_at(word(place)) != path for place in slots.addresses["at the end"]):
        raise ValueError(f"{path}: its clean-up isn't where its file says")
    libc = ctypes.CDLL(None)
    nothing = address_of(libc.getpid)
    handles = slots.addresses.pop("handle")
    slots.write({"at the end": nothing})
    # 2. Take back its fork handler; enable() sees to the child.
    if len(handles) == 1 and word(handles[0]) == handles[0]:
        libc.__cxa_finalize(ctypes.c_void_p(handles[0]))


def final_slots(data: bytes | mmap.mmap, machine: str) -> dict[str, list[int]]:
    """Where a library keeps what it calls when the process ends, and where its `__dso_handle` is.

    The latter, by which the system tells whose handlers are whose, is the one word that holds its
    own address.
    """
    elf, relative = Elf.read(data, machine), RELATIVE[machine]
    size = len(elf.table(FINI_ARRAY, FINI_ARRAYSZ)) // 8 * 8
    start = elf.dynamic.get(FINI_ARRAY, 0)
    own = [slot for slot, info, value in elf.relocations() if info == relative and slot == value]
    return {"at the end": list(range(start, start + size, 8)), "handle": own}
