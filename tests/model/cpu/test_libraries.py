"""cpu/libraries.py: what is no BLAS that MLX can call, and the environment while one is loaded."""

import ctypes
import os

import pytest
from linux_cpu import with_library

from model.cpu import libraries
from model.cpu.addresses import address_of


@with_library
@pytest.mark.parametrize("before", [None, "20"])
def test_environment_is_put_back(monkeypatch, before):
    monkeypatch.delenv(libraries._SPIN, raising=False)
    if before:
        monkeypatch.setenv(libraries._SPIN, before)
    libraries.Library.open(next(libraries.candidates("openblas")))
    assert os.environ.get(libraries._SPIN) == before


@with_library
def test_a_library_without_a_function(monkeypatch):
    monkeypatch.setattr(libraries, "FUNCTIONS", (*libraries.FUNCTIONS, "cblas_qgemm"))
    with pytest.raises(ValueError, match="has no scipy_cblas_qgemm"):
        libraries.Library.open(next(libraries.candidates("openblas")))


def test_width_of_whole_numbers():
    """Stand-ins for cblas_sdot that read their length as 32 and as 64 bits."""
    for size, is_right in ((ctypes.c_int32, True), (ctypes.c_int64, False)):

        def dot(n, x, incx, y, incy):
            return sum(x[i] * y[i] for i in range(n))  # nothing for a negative n

        array = ctypes.POINTER(ctypes.c_float)
        function = ctypes.CFUNCTYPE(ctypes.c_float, size, array, size, array, size)(dot)
        assert libraries._takes_32_bits(address_of(function)) is is_right
