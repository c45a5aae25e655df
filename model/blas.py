"""The BLAS libraries on this machine -> a fast one inside MLX. Linux CPUs only.

MLX's wheel for Linux CPUs links the reference BLAS, 40 times slower than OpenBLAS. `enable` finds
a fast one (the package scipy-openblas32, Intel's mkl, the system's OpenBLAS) and points libmlx's
three imports, cblas_sgemm, cblas_dgemm and cblas_cgemm, at it:

    libmlx's file --import_slots--> where the dynamic linker keeps each function's address
    that slot --one aligned store--> the fast library's function

A slot belongs to libmlx alone, so LAPACK, numpy and the rest of the process keep what they have,
and it doesn't matter who was imported first. Whatever isn't as expected leaves MLX as it was.

Blind spot: it knows nothing of models. Products in bfloat16 and float16 and quantized ones don't
go through BLAS, so nothing here makes them faster.

Source: the ELF specification (System V ABI, chapter 5) and its x86-64 and AArch64 supplements.
"""

import ctypes
import importlib.metadata
import importlib.util
import mmap
import os
import platform
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # all the BLAS that libmlx imports
SWITCH = "BYTEPAIR_BLAS"  # off, openblas, mkl, system, or a library's path


@dataclass(frozen=True)
class Report:
    """What `enable` did. `name` is None where MLX keeps the BLAS it came with; `reason` says why.

    `num_threads` is what the library was last told to use, 0 where there is none.
    """

    reason: str
    name: str | None = None
    path: str | None = None
    version: str = ""
    num_threads: int = 0

    def __str__(self) -> str:
        if self.name is None:
            return f"MLX's own ({self.reason})"
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        return f"{self.name} {self.version}, {threads} ({self.reason})"


# ------------------------------------------------------------------------------ the public steps

_lock = threading.Lock()
_report: Report | None = None  # libmlx is patched once per process, so this is per process too
_pace: "Pace | None" = None


def enable() -> Report:
    """Give MLX a fast BLAS, once per process; later calls return the first one's report.

    Never raises: for want of a library, or of the expected layout, MLX stays as it was and the
    report's `reason` says why.
    """
    global _report, _pace
    with _lock:
        if _report is None:
            try:
                _report, _pace = _enable(_choice())
            except (OSError, ValueError) as problem:
                _report = Report(str(problem))
        return _report


def adapt() -> int:
    """Use as many threads as other processes leave cores free; return how many that is.

    For the generation loop: once per step. It looks at most four times a second and otherwise
    returns at once. A library's threads wait for each other by spinning, and one of them without
    a core holds up the rest: with two on a machine that has one core free, products were seen to
    take 2 to 60 times as long as with one.
    """
    global _report
    with _lock:
        if _pace is None or not _pace.is_due():
            return _report.num_threads if _report else 0
        _report = replace(_report, num_threads=_pace.adapt())
        return _report.num_threads


def _choice() -> str:
    choice = os.environ.get(SWITCH, "").strip() or "auto"
    if choice.lower() in {"auto", "off", "openblas", "mkl", "system"}:
        return choice.lower()
    if os.sep in choice:
        return choice
    raise ValueError(
        f"{SWITCH}={choice!r} is none of off, openblas, mkl, system or a library's path (with a /)"
    )


def _enable(choice: str) -> tuple[Report, "Pace"]:
    """The steps of `enable`. Raises ValueError or OSError with the reason not to."""
    # 1. Is this a process whose products go through BLAS at all?
    if choice == "off":
        raise ValueError(f"switched off by {SWITCH}=off")
    _check_platform()
    import mlx.core as mx

    if mx.default_device().type != mx.cpu:
        raise ValueError(f"products run on {mx.default_device()}")
    # 2. Where does libmlx keep the addresses?
    slots = Slots.in_this_process()
    # 3. The first library that computes correctly takes its place.
    problems = []
    for path in _candidates(choice):
        try:
            library = Library.open(path)
            reason = _install(library, slots)
        except (OSError, ValueError) as problem:
            problems.append(str(problem))
            continue
        pace = Pace(library)
        report = Report(reason, library.name, library.path, library.version, pace.adapt())
        return report, pace
    raise ValueError("; ".join(problems) or f"no library found for {SWITCH}={choice}")


def _check_platform() -> None:
    if sys.platform != "linux":
        raise ValueError(f"only Linux wheels of MLX have a slow BLAS, this is {sys.platform}")
    if platform.machine() not in _RELOCATIONS or struct.calcsize("P") != 8:
        raise ValueError(f"not written for {platform.machine()}")


def _install(library: "Library", slots: "Slots") -> str:
    """Point libmlx at the library; put back what was there if MLX's products change."""
    new, reason = library.functions, "in place of MLX's reference BLAS"
    if library.name == "openblas" and (shims := _row_shims(library)):
        new, reason = new | shims, f"{reason}; one-row products go to its gemv"
    expected = _products()
    old = slots.write(new)
    if _products() != expected:
        slots.write(old)
        raise ValueError(f"{library.path} computes wrong products")
    return reason


def _products() -> list[list[float]]:
    """Products of small whole numbers, which are exact in every order of summation.

    Sizes on both sides of the libraries' limits for one-row, small-matrix and threaded kernels.
    """
    import mlx.core as mx

    def matrix(rows: int, columns: int, modulus: int) -> mx.array:
        return ((mx.arange(rows * columns, dtype=mx.float32) % modulus) - 3).reshape(rows, columns)

    results = []
    for M, K, N in [(1, 37, 70), (5, 3, 2), (2, 9, 1), (33, 129, 70)]:
        a, b = matrix(M, K, 7), matrix(K, N, 5)
        at, bt = matrix(K, M, 7).T, matrix(N, K, 5).T
        for x, y in [(a, b), (at, b), (a, bt), (at, bt)]:
            results.append(mx.matmul(x, y, stream=mx.cpu))
        for dtype in (mx.float64, mx.complex64):
            with mx.stream(mx.cpu):
                results.append((a.astype(dtype) @ bt.astype(dtype)).astype(mx.float32))
    return [result.tolist() for result in results]


# --------------------------------------------------------------------------- finding the library


def _candidates(choice: str) -> Iterator[str]:
    """Paths to try, best first. Nothing is imported: the packages are only looked up.

    scipy-openblas32 comes first because it was the fastest measured, and is small. Never numpy's
    or scipy-openblas64's library: their whole numbers are 64 bits wide, MLX passes 32.
    """
    if os.sep in choice:
        yield choice
    if choice in {"auto", "openblas"} and (spec := importlib.util.find_spec("scipy_openblas32")):
        for folder in spec.submodule_search_locations or ():
            yield f"{folder}/lib/libscipy_openblas.so"
    if choice in {"auto", "mkl"}:
        yield from _files_of("mkl", "libmkl_rt.so")
    if choice == "mkl":
        yield from ("libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so")
    if choice in {"auto", "openblas", "system"}:
        yield from ("libopenblas.so.0", "libopenblas.so")


def _files_of(package: str, prefix: str) -> Iterator[str]:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name.startswith(prefix):
            yield str(Path(file.locate()).resolve())


@dataclass(frozen=True)
class Library:
    """An opened BLAS of 32-bit whole numbers, its products not yet trusted."""

    name: str
    path: str
    version: str
    set_num_threads: Callable[[int], None]
    get_num_threads: Callable[[], int]
    functions: dict[str, int]  # cblas name -> address, FUNCTIONS and the two gemv

    @classmethod
    def open(cls, path: str) -> "Library":
        """Raises OSError where it can't be loaded, ValueError where it isn't one we know."""
        handle = ctypes.CDLL(path)  # RTLD_LOCAL: nothing else in the process will see it
        for name, prefix, version, set_threads, get_threads in _KINDS:
            if hasattr(handle, prefix + set_threads):
                break
        else:
            raise ValueError(f"{path} is neither OpenBLAS nor MKL with 32-bit whole numbers")
        functions = {}  # cblas name -> address
        for function in (*FUNCTIONS, "cblas_sgemv", "cblas_dgemv", "cblas_sdot"):
            if not hasattr(handle, prefix + function):
                raise ValueError(f"{path} has no {prefix}{function}")
            functions[function] = _address(getattr(handle, prefix + function))
        if not _takes_32_bits(functions.pop("cblas_sdot")):
            raise ValueError(f"{path} takes 64-bit whole numbers, MLX passes 32-bit ones")
        return cls(
            name,
            _file_at(functions[FUNCTIONS[0]]) or path,
            version(handle, prefix),
            ctypes.CFUNCTYPE(None, ctypes.c_int)((prefix + set_threads, handle)),
            ctypes.CFUNCTYPE(ctypes.c_int)((prefix + get_threads, handle)),
            functions,
        )


def _openblas_version(handle: ctypes.CDLL, prefix: str) -> str:
    """
    "OpenBLAS 0.3.34 DYNAMIC_ARCH NO_AFFINITY SkylakeX" -> "0.3.34 SkylakeX"
    """
    words = []
    for function in ("openblas_get_config", "openblas_get_corename"):
        if hasattr(handle, prefix + function):
            get = ctypes.CFUNCTYPE(ctypes.c_char_p)((prefix + function, handle))
            words.append((get() or b"").decode("ascii", "replace").removeprefix("OpenBLAS "))
    return " ".join(word.split(" ")[0] for word in words)


def _mkl_version(handle: ctypes.CDLL, prefix: str) -> str:
    """
    "Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build ..." -> "2026.2-Product"
    """
    text = ctypes.create_string_buffer(200)
    handle.MKL_Get_Version_String(text, len(text))
    return text.value.decode("ascii", "replace").partition("Version ")[2].partition(" ")[0]


_OPENBLAS = (_openblas_version, "openblas_set_num_threads", "openblas_get_num_threads")
_KINDS = (  # name, prefix of every function, how to tell its version, set its threads, get them
    ("openblas", "scipy_", *_OPENBLAS),
    ("openblas", "", *_OPENBLAS),
    ("mkl", "", _mkl_version, "MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
)


def _takes_32_bits(sdot: int) -> bool:
    """Tell the width of a library's whole numbers by a length that means two things.

    As 32 bits it is 3; as 64 bits it is negative, for which the dot product is 0 by definition.
    """
    length = (-1 << 32) | 3
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(ctypes.c_float, size, pointer, size, pointer, size)(sdot)
    numbers = (ctypes.c_float * 3)(1, 2, 3)
    return call(length, ctypes.addressof(numbers), 1, ctypes.addressof(numbers), 1) == 14


def _address(function: Callable) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


# --------------------------------------------------------------- one row times a matrix, on x86-64

# MLX calls gemm for every product. For one row, OpenBLAS on x86-64 then copies the whole matrix
# into its packed form first and reads memory at a quarter of the speed of its own gemv (MKL, and
# OpenBLAS on AArch64, call gemv themselves). These few instructions do it for them:
#
#     if M == 1 and A isn't transposed and the order is row-major and K > 0: jump to gemv
#     else: jump to gemm
#
# The arguments' places are the System V ABI's. gemm: edi order, esi transA, edx transB, ecx M,
# r8d N, r9d K, xmm0 alpha, xmm1 beta, on the stack A, lda, B, ldb, C, ldc. gemv: edi order,
# esi trans, edx rows, ecx columns, xmm0 alpha, r8 matrix, r9d its ld, xmm1 beta, on the stack
# x, incx, y, incy. So alpha, beta and A, which becomes x, stay where they are, and so does transA,
# 111 for "not transposed": B, an N x K matrix by rows where transB says so (112) and by columns
# otherwise (111), is described by the order alone: 213 - transB is 101, by rows, or 102.
_ROW_SHIM = bytes.fromhex(
    "f30f1efa"  #           endbr64
    "83f901 754d"  #        cmp ecx, 1; jne gemm          M
    "83fe6f 7548"  #        cmp esi, 111; jne gemm        transA
    "83ff65 7543"  #        cmp edi, 101; jne gemm        order
    "4585c9 7e3e"  #        test r9d, r9d; jle gemm       K: where it is 0, gemm clears C, gemv won't
    "83fa70 7739"  #        cmp edx, 112; ja gemm         transB
    "bfd5000000 29d7"  #    mov edi, 213; sub edi, edx    the order tells whether B is transposed
    "4489c2 4489c9"  #      mov edx, r8d; mov ecx, r9d    rows = N, columns = K
    "4c8b442418"  #         mov r8, [rsp+24]              matrix = B
    "448b4c2420"  #         mov r9d, [rsp+32]             its ld = ldb
    "488b442428"  #         mov rax, [rsp+40]             C
    "48c744241001000000"  # mov qword [rsp+16], 1         incx
    "4889442418"  #         mov [rsp+24], rax             y = C
    "48c744242001000000"  # mov qword [rsp+32], 1         incy
    "ff250a000000"  #       jmp [rip+10]                  gemv's address, after the code
    "ff250c000000"  #       gemm: jmp [rip+12]            gemm's address, after gemv's
    "90909090"  #           padding to 96 bytes
)


def _row_shims(library: "Library") -> dict[str, int]:
    """Addresses for cblas_sgemm and cblas_dgemm that send one-row products to gemv.

    Empty where they aren't needed, or where the system lets no page run that was written to.
    """
    if platform.machine() != "x86_64":
        return {}
    code, addresses = b"", {}
    for kind in "sd":
        addresses[f"cblas_{kind}gemm"] = len(code)
        gemv, gemm = (library.functions[f"cblas_{kind}{name}"] for name in ("gemv", "gemm"))
        code += _ROW_SHIM + struct.pack("<QQ", gemv, gemm)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    try:
        _protect(start, len(code), mmap.PROT_READ | mmap.PROT_EXEC)
    except OSError:
        return {}
    _pages.append(page)
    return {name: start + offset for name, offset in addresses.items()}


_pages: list[mmap.mmap] = []  # never freed: libmlx may call into them until the process ends


# ------------------------------------------------------------------------ libmlx's import slots

_RELOCATIONS = {  # machine -> ELF's number for it, GLOB_DAT, JUMP_SLOT
    "x86_64": (62, 6, 7),
    "aarch64": (183, 1025, 1026),
}
_LOAD, _DYNAMIC = 1, 2  # program headers
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = 5, 6, 7, 8, 2, 23  # dynamic section


def import_slots(elf: bytes | mmap.mmap, machine: str) -> dict[str, list[int]]:
    """Where the dynamic linker puts the addresses of FUNCTIONS, counted from the load address.

    elf: the bytes of a 64-bit shared library. Raises ValueError for anything that isn't one, or
    one that doesn't import each of FUNCTIONS. Reads nothing outside the bytes given.
    """
    try:
        slots = _import_slots(elf, *_RELOCATIONS[machine])
    except struct.error as error:  # a read past the end
        raise ValueError("libmlx's ELF tables point outside the file") from error
    if missing := [name for name in FUNCTIONS if not slots[name]]:
        raise ValueError(f"libmlx doesn't import {', '.join(missing)}")
    return slots


def _import_slots(
    elf: bytes | mmap.mmap, machine: int, glob_dat: int, jump_slot: int
) -> dict[str, list[int]]:
    # 1. A 64-bit little-endian library for this machine.
    if elf[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", elf, 16) != (3, machine):
        raise ValueError("libmlx isn't a 64-bit ELF library for this machine")
    # 2. Its segments and its dynamic section, which say where the tables are.
    segments, dynamic = _segments(elf), {}
    start, size = segments[_DYNAMIC][0][1:]
    for tag, value in struct.iter_unpack("<qQ", elf[start : start + size // 16 * 16]):
        dynamic.setdefault(tag, value)
        if tag == 0:
            break

    def offset(address: int, size: int) -> int:
        """address in memory -> place in the file"""
        for first, place, length in segments[_LOAD]:
            if first <= address and address + size <= first + length:
                return place + address - first
        raise ValueError("libmlx's ELF tables point outside its segments")

    # 3. Each relocation names the symbol whose address goes into its slot.
    slots = {name: [] for name in FUNCTIONS}
    for table, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        size = dynamic.get(length, 0)
        place = offset(dynamic.get(table, 0), size)
        for slot, info, _ in struct.iter_unpack("<QQq", elf[place : place + size]):
            if info & 0xFFFFFFFF not in (glob_dat, jump_slot):
                continue
            symbol = offset(dynamic.get(_SYMTAB, 0) + 24 * (info >> 32), 24)
            (name_at,) = struct.unpack_from("<I", elf, symbol)
            name_at = offset(dynamic.get(_STRTAB, 0) + name_at, 1)
            name = elf[name_at : name_at + 12].partition(b"\0")[0].decode("latin-1")
            if name in slots:
                slots[name].append(slot)
    return slots


def _segments(elf: bytes | mmap.mmap) -> dict[int, list[tuple[int, int, int]]]:
    """kind -> [(address in memory, place in the file, length in the file), ...]"""
    segments = {_LOAD: [], _DYNAMIC: []}
    (table,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<HH", elf, 54)
    for index in range(count):
        kind, _, place, address, _, length, _, _ = struct.unpack_from(
            "<IIQQQQQQ", elf, table + index * size
        )
        if kind in segments:
            segments[kind].append((address, place, length))
    # The load address of the library is then that of its first byte.
    if not segments[_DYNAMIC] or not segments[_LOAD] or segments[_LOAD][0][:2] != (0, 0):
        raise ValueError("libmlx's ELF segments aren't laid out as expected")
    return segments


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


@dataclass(frozen=True)
class Slots:
    """The words in this process's memory through which libmlx calls FUNCTIONS."""

    addresses: dict[str, list[int]]  # cblas name -> its slots

    @classmethod
    def in_this_process(cls) -> "Slots":
        """Raises ValueError or OSError unless every slot holds exactly what it should."""
        # 1. The file, and where it was loaded.
        base = next(
            (m for m in Mapping.all() if m.path.endswith("/libmlx.so") and m.offset == 0), None
        )
        if base is None:
            raise ValueError("libmlx.so isn't loaded")
        with open(base.path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as elf:
                slots = import_slots(elf, platform.machine())
        addresses = {name: [base.start + slot for slot in slots[name]] for name in FUNCTIONS}
        # 2. Each lies in libmlx's data and leads to the library that it came with, or, before the
        #    first call, back into libmlx, to the code that looks the function up.
        libmlx = ctypes.CDLL(base.path)
        for name, places in addresses.items():
            own = _file_at(_address(getattr(libmlx, name)))
            for place in places:
                if place % 8 or _file_at(place) != base.path:
                    raise ValueError("libmlx's import slots aren't where its file says")
                target = _file_at(ctypes.c_uint64.from_address(place).value)
                if target not in (own, base.path):
                    raise ValueError(f"MLX already uses {target or 'another BLAS'}")
        return cls(addresses)

    def write(self, functions: dict[str, int]) -> dict[str, int]:
        """Point every slot at its function; return where they pointed before."""
        old = {}
        for name, places in self.addresses.items():
            for place in places:
                old[name] = ctypes.c_uint64.from_address(place).value
                _write(place, functions[name])
        return old


def _write(place: int, value: int) -> None:
    """One aligned store, so a product running in another thread sees the old or the new."""
    access = Mapping.at(place).access
    writable = access.startswith("rw")
    if not writable:  # read-only after relocation ("RELRO")
        _protect(place, 8, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.c_uint64.from_address(place).value = value
    if not writable:
        _protect(place, 8, mmap.PROT_READ)


def _protect(start: int, size: int, protection: int) -> None:
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(start + size - first), protection):
        raise OSError(ctypes.get_errno(), "mprotect refused")


def _file_at(address: int) -> str:
    mapping = Mapping.at(address)
    return mapping.path if mapping else ""


# ------------------------------------------------------------------------------------- threads

_FIXED_BY = {  # kind of library -> the environment variables by which users set its threads
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
}
_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_OF_FIRST_LOOK = 0.06  # the kernel counts in hundredths
_MOST_OF_A_CORE = 0.75  # what must be free of a core to put a thread there


class Pace:
    """How many threads: as many as there are cores that other processes leave free."""

    def __init__(self, library: Library) -> None:
        self._set_num_threads = library.set_num_threads
        self._get_num_threads = library.get_num_threads
        self._fixed = any(os.environ.get(name) for name in _FIXED_BY[library.name])
        self._cores = num_cores()
        self._looked = (time.monotonic(), busy_seconds())
        time.sleep(_SECONDS_OF_FIRST_LOOK)

    def is_due(self) -> bool:
        return not self._fixed and time.monotonic() - self._looked[0] >= _SECONDS_BETWEEN_LOOKS

    def adapt(self) -> int:
        """Look, set the number of threads, return it. What the user's environment fixes stays."""
        if not self._fixed:
            before, self._looked = self._looked, (time.monotonic(), busy_seconds())
            seconds, busy = (now - then for now, then in zip(self._looked, before))
            free = self._cores - max(0.0, busy) / seconds
            self._set_num_threads(max(1, int(free + 1 - _MOST_OF_A_CORE)))
        return self._get_num_threads()


def busy_seconds() -> float:
    """Processor time that others have used, of the cores this process may use, since the start."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        cpu, *counts = line.split()
        if cpu in mine:  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user
            user, nice, system, _, _, *interrupts_and_steal = map(int, counts[:8])
            ticks += user + nice + system + sum(interrupts_and_steal)
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def num_cores() -> int:
    """Physical cores that this process may use: its affinity and its container's limit."""
    cpus = os.sched_getaffinity(0)
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    siblings = {_read(topology.format(cpu)) or cpu for cpu in cpus}
    return max(1, int(min(len(siblings), _container_limit())))


def _container_limit() -> float:
    """Cores' worth of time that the control group, version 2 or 1, grants."""
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if not period:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit():  # unlimited is "max" or -1
        return int(quota) / int(period)
    return float("inf")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
