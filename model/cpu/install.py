"""The BLAS libraries on this machine -> a fast one inside MLX. Linux CPUs only.

MLX's wheel for Linux CPUs links the reference BLAS, 40 times slower than OpenBLAS. `enable` finds
a fast one (the package scipy-openblas32, Intel's mkl, the system's OpenBLAS) and points libmlx's
imports (cblas_sgemm, cblas_dgemm, cblas_cgemm) at it:

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
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product, takewhile
from pathlib import Path
from typing import NamedTuple

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # all the BLAS that libmlx imports
SWITCH = "BYTEPAIR_BLAS"  # off, openblas, mkl, system, or a library's path
_PACKAGED = "/lib/libscipy_openblas.so"  # in the package scipy_openblas32
_SPIN = "OPENBLAS_THREAD_TIMEOUT"


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
    """Give MLX a fast BLAS, once per process; later calls say what the first one did.

    Never raises: for want of a library, or of the expected layout, MLX stays as it was and the
    report's `reason` says why.
    """
    global _report, _pace
    with _lock:
        if _report is None:
            try:
                _report, _pace = _enable(_choice())
                os.register_at_fork(after_in_child=_keep_to_one_thread)
            except Exception as problem:  # slow and right is better than not at all
                _report = Report(str(problem) or type(problem).__name__)
        return _report


def adapt() -> int:
    """Use as many threads as other processes leave cores free; return how many that is.

    For the generation loop: before each step. It looks at most four times a second and otherwise
    returns at once. A library's threads wait for each other within a product, so one of them
    without a core holds up the rest: with two threads on two cores, one of them busy, prefill was
    seen to run at a quarter of the speed of one thread, and single products at a fiftieth.
    """
    global _report
    with _lock:
        if _report is None or _pace is None:
            return 0
        if _pace.is_due():
            _report = replace(_report, num_threads=_pace.adapt())
        return _report.num_threads


def _keep_to_one_thread() -> None:
    """In a forked child, where the library's other threads, and who held the lock, are missing."""
    global _lock, _report
    _lock = threading.Lock()
    _report = replace(_report, num_threads=_pace.fix(1))


def _choice() -> str:
    choice = os.environ.get(SWITCH, "").strip() or "auto"
    if os.sep in choice:
        return choice
    if choice.lower() in {"auto", "off", "openblas", "mkl", "system"}:
        return choice.lower()
    raise ValueError(
        f"{SWITCH}={choice!r} is none of off, openblas, mkl, system or a library's path (with a /)"
    )


def _enable(choice: str) -> tuple[Report, "Pace"]:
    """The steps of `enable`. Raises with the reason not to take them."""
    # 1. Do this process's products go through BLAS at all?
    if choice == "off":
        raise ValueError(f"switched off by {SWITCH}=off")
    if sys.platform != "linux":
        raise ValueError(f"only MLX's Linux wheels have a slow BLAS, and this is {sys.platform}")
    if platform.machine() not in _RELOCATIONS or struct.calcsize("P") != 8:
        raise ValueError(f"not written for {platform.machine()}")
    import mlx.core as mx

    if mx.default_device().type != mx.cpu:
        raise ValueError(f"MLX computes on {mx.default_device()}")
    # 2. Where does libmlx keep the addresses of its BLAS?
    slots = Slots.of_libmlx()
    # 3. The first library that computes correctly takes its place.
    problems = []
    for path in _candidates(choice):
        try:
            library = Library.open(path)
            pace = Pace(library)
            num_threads = pace.adapt()
            reason = _install(library, slots)
        except (OSError, ValueError) as problem:
            problems.append(str(problem))
            continue
        return Report(reason, library.name, library.path, library.version, num_threads), pace
    raise ValueError(f"scipy-openblas32 or another fast BLAS is needed: {'; '.join(problems)}")


def _install(library: "Library", slots: "Slots") -> str:
    """Point libmlx at the library, and back where it pointed if MLX's products then change."""
    functions, reason = library.functions, "in place of MLX's reference BLAS"
    if library.name == "openblas" and (shims := _row_shims(library)):
        functions, reason = functions | shims, f"{reason}; one-row products go to its gemv"
    if not _multiplies(functions["cblas_sgemm"]):
        raise ValueError(f"{library.path} computes wrong products")
    if library.name == "openblas":
        _let_end_and_fork(library)
    expected = _products(slots.addresses)
    old, right = slots.write(functions), False
    try:
        right = _products(slots.addresses) == expected
    finally:
        if not right:
            slots.write(old)
    if not right:
        raise ValueError(f"{library.path} computes wrong products through MLX")
    return reason


def _multiplies(sgemm: int) -> bool:
    """Is (1 2) times a matrix right, the matrix by rows and by columns, and the old result unread?

    MLX doesn't clear the memory it hands over for the result: NaN in it must not survive.
    """
    size, number, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(
        None, *[size] * 6, number, pointer, size, pointer, size, number, pointer, size
    )(sgemm)
    row, matrix = (number * 2)(1, 2), (number * 6)(1, 2, 3, 4, 5, 6)
    for is_transposed, ld, expected in [(111, 3, [9, 12, 15]), (112, 2, [5, 11, 17])]:
        result = (number * 3)(*[float("nan")] * 3)
        a, b, c = (ctypes.addressof(numbers) for numbers in (row, matrix, result))
        call(101, 111, is_transposed, 1, 3, 2, 1.0, a, 2, b, ld, 0.0, c, 3)
        if list(result) != expected:
            return False
    return True


def _products(functions: Collection[str]) -> list[list[list[complex]]]:
    """MLX's products of small whole numbers, which are exact in every order of summation.

    Sizes on both sides of the libraries' limits for one-row, small and threaded products.
    """
    import mlx.core as mx

    def matrix(rows: int, columns: int, modulus: int) -> mx.array:
        return (mx.arange(rows * columns) % modulus - 3).astype(mx.float32).reshape(rows, columns)

    dtypes = {"cblas_sgemm": mx.float32, "cblas_dgemm": mx.float64, "cblas_cgemm": mx.complex64}
    results = []
    with mx.stream(mx.cpu):
        for M, K, N in [(1, 37, 270), (5, 3, 2), (2, 9, 1), (33, 129, 70)]:
            by_rows = matrix(M, K, 7), matrix(K, N, 5)
            by_columns = matrix(K, M, 7).T, matrix(N, K, 5).T
            for a, b, function in product(
                (by_rows[0], by_columns[0]), (by_rows[1], by_columns[1]), functions
            ):
                dtype = dtypes[function]
                results.append((a.astype(dtype) @ b.astype(dtype)).astype(mx.complex64).tolist())
    return results


# --------------------------------------------------------------------------- finding the library


def _candidates(choice: str) -> Iterator[str]:
    """Paths to try, best first. Nothing is imported: the packages are only looked up.

    scipy-openblas32 comes first: with its row shim it was the fastest measured, and it is small.
    Never numpy's or scipy-openblas64's: their whole numbers are 64 bits wide, MLX passes 32.
    """
    if os.sep in choice:
        yield choice
    if choice in {"auto", "openblas"} and (spec := importlib.util.find_spec("scipy_openblas32")):
        for folder in spec.submodule_search_locations or ():
            yield f"{folder}{_PACKAGED}"
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
    """An opened BLAS that takes 32-bit whole numbers; its products are yet to be checked."""

    name: str
    path: str
    version: str
    functions: dict[str, int]  # cblas name -> address: FUNCTIONS and the two gemv
    set_num_threads: Callable[[int], None]
    get_num_threads: Callable[[], int]

    @classmethod
    def open(cls, path: str) -> "Library":
        """Raises OSError where it can't be loaded, ValueError where it isn't one that is known."""
        handle = _load(path)
        kind = next((k for k in _KINDS if hasattr(handle, k.prefix + k.set_num_threads)), None)
        if kind is None:
            raise ValueError(f"{path} is neither OpenBLAS nor MKL with the usual names")
        functions = {}  # cblas name -> address
        for function in (*FUNCTIONS, "cblas_sgemv", "cblas_dgemv", "cblas_sdot"):
            if not hasattr(handle, kind.prefix + function):
                raise ValueError(f"{path} has no {kind.prefix}{function}")
            functions[function] = _address(getattr(handle, kind.prefix + function))
        if not _takes_32_bits(functions.pop("cblas_sdot")):
            raise ValueError(f"{path} takes 64-bit whole numbers, and MLX passes 32-bit ones")
        return cls(
            kind.name,
            _file_at(functions["cblas_sgemm"]) or path,
            kind.version(handle, kind.prefix),
            functions,
            ctypes.CFUNCTYPE(None, ctypes.c_int)((kind.prefix + kind.set_num_threads, handle)),
            ctypes.CFUNCTYPE(ctypes.c_int)((kind.prefix + kind.get_num_threads, handle)),
        )


def _load(path: str) -> ctypes.CDLL:
    """Open a library for ourselves alone (RTLD_LOCAL).

    OpenBLAS reads, when it is loaded, for how many processor cycles (2 to that power) its idle
    threads spin before they sleep. Its own 26, some 25 ms, takes a core from MLX and from others;
    with 14 decoding was a tenth faster on an idle machine, and with two threads beside a busy
    process half as fast again. With 12 the threads are woken so often that prefill is slower. Only
    for the package: its threads are woken under a lock, older OpenBLAS's aren't.
    """
    if not path.endswith(_PACKAGED) or _SPIN in os.environ:
        return ctypes.CDLL(path)
    os.environ[_SPIN] = "14"
    try:
        return ctypes.CDLL(path)
    finally:
        del os.environ[_SPIN]


def _openblas_version(handle: ctypes.CDLL, prefix: str) -> str:
    """The first word of each: "OpenBLAS 0.3.34 DYNAMIC_ARCH ...", "SkylakeX", its kernels."""
    words = []
    for function in ("openblas_get_config", "openblas_get_corename"):
        if hasattr(handle, prefix + function):
            get = ctypes.CFUNCTYPE(ctypes.c_char_p)((prefix + function, handle))
            text = (get() or b"").decode("ascii", "replace").removeprefix("OpenBLAS ")
            words.append(text.partition(" ")[0])
    return " ".join(words)


def _mkl_version(handle: ctypes.CDLL, prefix: str) -> str:
    """Of "Intel(R) oneAPI Math Kernel Library Version 2026.2-Product ...", what follows Version."""
    text = ctypes.create_string_buffer(200)
    handle.MKL_Get_Version_String(text, len(text))
    return text.value.decode("ascii", "replace").partition("Version ")[2].partition(" ")[0]


class Kind(NamedTuple):
    """How to handle one library's functions; `prefix` stands before the name of each."""

    name: str
    prefix: str
    version: Callable[[ctypes.CDLL, str], str]
    set_num_threads: str
    get_num_threads: str


_OPENBLAS = (_openblas_version, "openblas_set_num_threads", "openblas_get_num_threads")
_KINDS = (
    Kind("openblas", "scipy_", *_OPENBLAS),
    Kind("openblas", "", *_OPENBLAS),
    Kind("mkl", "", _mkl_version, "MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
)


def _takes_32_bits(sdot: int) -> bool:
    """Tell the width of a library's whole numbers by a length that means two things.

    As 32 bits it is 3. As 64 bits it is negative, and for that a dot product is 0 by definition.
    """
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(ctypes.c_float, size, pointer, size, pointer, size)(sdot)
    numbers = (ctypes.c_float * 3)(1, 2, 3)
    at = ctypes.addressof(numbers)
    return call((-1 << 32) | 3, at, 1, at, 1) == 14


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
    "4585c9 7e3e"  #        test r9d, r9d; jle gemm       K: if 0, only gemm clears C
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
    # Never freed: MLX's threads may still compute when the interpreter has cleaned up.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(page))
    return {name: start + offset for name, offset in addresses.items()}


# ------------------------------------------------------ words in memory that lead to functions

_RELOCATIONS = {  # machine -> ELF's number for it, GLOB_DAT, JUMP_SLOT
    "x86_64": (62, 6, 7),
    "aarch64": (183, 1025, 1026),
}
_RELATIVE = {"x86_64": 8, "aarch64": 1027}  # machine -> ELF's number for "load address + number"
_LOAD, _DYNAMIC = 1, 2  # program headers
_STRTAB, _SYMTAB, _RELA, _RELASZ, _PLTRELSZ, _JMPREL = 5, 6, 7, 8, 2, 23  # dynamic section
_FINI_ARRAY, _FINI_ARRAYSZ = 26, 28


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
        number = _RELOCATIONS[machine][0]
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
        """The first bytes of a symbol's name, by its number: enough to tell FUNCTIONS."""
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


def import_slots(data: bytes | mmap.mmap, machine: str) -> dict[str, list[int]]:
    """Where the dynamic linker keeps the addresses of FUNCTIONS that a library imports.

    Raises ValueError where the library is damaged or doesn't import cblas_sgemm.
    """
    elf, (_, *kinds) = Elf.read(data, machine), _RELOCATIONS[machine]
    slots = {}  # cblas name -> addresses, counted from where the library is loaded
    for slot, info, _ in elf.relocations():
        if info & 0xFFFFFFFF in kinds:
            name = elf.name(info >> 32).decode("latin-1")
            if name in FUNCTIONS:
                slots.setdefault(name, []).append(slot)
    if "cblas_sgemm" not in slots:
        raise ValueError("no cblas_sgemm is imported, so there is nothing to replace")
    return slots


def final_slots(data: bytes | mmap.mmap, machine: str) -> dict[str, list[int]]:
    """Where a library keeps what it calls when the process ends, and where its `__dso_handle` is.

    The latter, by which the system tells whose handlers are whose, is the one word that holds its
    own address.
    """
    elf, relative = Elf.read(data, machine), _RELATIVE[machine]
    size = len(elf.table(_FINI_ARRAY, _FINI_ARRAYSZ)) // 8 * 8
    start = elf.dynamic.get(_FINI_ARRAY, 0)
    own = [slot for slot, info, value in elf.relocations() if info == relative and slot == value]
    return {"at the end": list(range(start, start + size, 8)), "handle": own}


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
        if any(place % 8 or _file_at(place) != path for place in slots.places()):
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
            own = _file_at(_address(getattr(libmlx, name)))
            for place in places:
                if (target := _file_at(_word(place))) not in (own, path):
                    raise ValueError(f"MLX already uses {target or 'another BLAS'}")
        return slots

    def places(self) -> list[int]:
        return [place for places in self.addresses.values() for place in places]

    def write(self, functions: dict[str, int]) -> dict[str, int]:
        """Point every slot at its function; return where they pointed before."""
        old = {}
        for name, places in self.addresses.items():
            for place in places:
                old[name] = _word(place)
                _write(place, functions[name])
        return old


def _let_end_and_fork(library: Library) -> None:
    """Have OpenBLAS do nothing when the process ends or forks while MLX's threads compute.

    It would stop its own threads, which hangs if one of MLX's is giving them work, and free the
    buffers of running products. Generation computes one step ahead of its reader, and 7 of 10
    processes that ended so were seen to hang. The system takes back everything anyhow.
    """
    # 1. Put a function that does nothing in the place of its clean-up.
    slots = Slots.of(library.path, final_slots)
    if any(_file_at(_word(place)) != library.path for place in slots.addresses["at the end"]):
        raise ValueError(f"{library.path}: its clean-up isn't where its file says")
    libc = ctypes.CDLL(None)
    nothing = _address(libc.getpid)
    handles = slots.addresses.pop("handle")
    slots.write({"at the end": nothing})
    # 2. Take back its fork handler; enable() sees to the child.
    if len(handles) == 1 and _word(handles[0]) == handles[0]:
        libc.__cxa_finalize(ctypes.c_void_p(handles[0]))


def _word(place: int) -> int:
    return ctypes.c_uint64.from_address(place).value


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
        self._cores, self._most = physical_cores(), num_cores()
        self._looked = (time.monotonic(), busy_seconds())
        if not self._fixed:
            time.sleep(_SECONDS_OF_FIRST_LOOK)

    def is_due(self) -> bool:
        return not self._fixed and time.monotonic() - self._looked[0] >= _SECONDS_BETWEEN_LOOKS

    def fix(self, num_threads: int) -> int:
        """Keep to so many threads from now on."""
        self._fixed = True
        self._set_num_threads(num_threads)
        return self._get_num_threads()

    def adapt(self) -> int:
        """Look, set the number of threads, return it. What the user's environment fixes stays."""
        if not self._fixed:
            before, self._looked = self._looked, (time.monotonic(), busy_seconds())
            seconds, busy = (now - then for now, then in zip(self._looked, before))
            free = int(self._cores - max(0.0, busy) / seconds + 1 - _MOST_OF_A_CORE)
            self._set_num_threads(max(1, min(free, self._most)))
        return self._get_num_threads()


def busy_seconds() -> float:
    """Processor time that others have used, of the cores this process may use, since the start."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in _read("/proc/stat").splitlines():
        cpu, *counts = line.split()
        if cpu in mine:  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user
            user, nice, system, _, _, *interrupts_and_steal = map(int, counts[:8])
            ticks += user + nice + system + sum(interrupts_and_steal)
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def num_cores() -> int:
    """The most threads that are of use: physical cores, within the container's limit."""
    return max(1, int(min(physical_cores(), _container_limit())))


def physical_cores() -> int:
    """Those on which this process may run. Two processors of one core count once."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(siblings.format(cpu)) or cpu for cpu in os.sched_getaffinity(0)})


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
