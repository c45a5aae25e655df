"""a choice -> the BLAS libraries on this machine, and each opened, if it takes what MLX passes.

Blind spot: it doesn't multiply with them; install.py checks their products.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from model.cpu.addresses import address_of, file_at
from model.cpu.slots import FUNCTIONS

_PACKAGED = "/lib/libscipy_openblas.so"  # in the package scipy_openblas32
_SPIN = "OPENBLAS_THREAD_TIMEOUT"


def candidates(choice: str) -> Iterator[str]:
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
            functions[function] = address_of(getattr(handle, kind.prefix + function))
        if not _takes_32_bits(functions.pop("cblas_sdot")):
            raise ValueError(f"{path} takes 64-bit whole numbers, and MLX passes 32-bit ones")
        return cls(
            kind.name,
            file_at(functions["cblas_sgemm"]) or path,
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
