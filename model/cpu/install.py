"""The BLAS libraries on this machine -> a fast one inside MLX. Linux CPUs only.

`enable` finds one (the package scipy-openblas32, Intel's mkl, the system's OpenBLAS) and points
libmlx's imports (cblas_sgemm, cblas_dgemm, cblas_cgemm) at it; `adapt` sets its threads.

    libraries   which there are, opened          row_shim   one row times a matrix, faster
    slots, elf  where libmlx looks for its BLAS  ending     OpenBLAS's clean-up, left out
    threads     how many it uses                 addresses  words in memory

A slot belongs to libmlx alone, so LAPACK, numpy and the rest of the process keep what they have,
and it doesn't matter who was imported first. Whatever isn't as expected leaves MLX as it was.

Blind spot: it knows nothing of models. Products in bfloat16 and float16 and quantized ones don't
go through BLAS, so nothing here makes them faster.
"""

import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product

import mlx.core as mx

from model.cpu.elf import RELOCATIONS
from model.cpu.ending import let_end_and_fork
from model.cpu.libraries import Library, candidates
from model.cpu.row_shim import row_shims
from model.cpu.slots import Slots
from model.cpu.threads import Pace

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


_lock = threading.Lock()
_report: Report | None = None  # libmlx is patched once per process, so this is per process too
_pace: Pace | None = None


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


def _enable(choice: str) -> tuple[Report, Pace]:
    """The steps of `enable`. Raises with the reason not to take them."""
    # 1. Do this process's products go through BLAS at all?
    if choice == "off":
        raise ValueError(f"switched off by {SWITCH}=off")
    if sys.platform != "linux":
        raise ValueError(f"only MLX's Linux wheels have a slow BLAS, and this is {sys.platform}")
    if platform.machine() not in RELOCATIONS or struct.calcsize("P") != 8:
        raise ValueError(f"not written for {platform.machine()}")
    if mx.default_device().type != mx.cpu:
        raise ValueError(f"MLX computes on {mx.default_device()}")
    # 2. Where does libmlx keep the addresses of its BLAS?
    slots = Slots.of_libmlx()
    # 3. The first library that computes correctly takes its place.
    problems = []
    for path in candidates(choice):
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


def _install(library: Library, slots: Slots) -> str:
    """Point libmlx at the library, and back where it pointed if MLX's products then change."""
    functions, reason = library.functions, "in place of MLX's reference BLAS"
    if library.name == "openblas" and (shims := row_shims(library.functions)):
        functions, reason = functions | shims, f"{reason}; one-row products go to its gemv"
    if not _multiplies(functions["cblas_sgemm"]):
        raise ValueError(f"{library.path} computes wrong products")
    if library.name == "openblas":
        let_end_and_fork(library.path)
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
