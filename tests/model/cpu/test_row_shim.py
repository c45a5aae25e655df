"""cpu/row_shim.py: gemm by way of gemv against sums term by term, in every order and with gaps."""

import ctypes
import random
from itertools import product

import pytest
from linux_cpu import on_x86, with_library

from model.cpu.libraries import Library, candidates
from model.cpu.row_shim import row_shims


def at(matrix: list, is_transposed: bool, row: int, column: int, ld: int, order: int) -> float:
    if is_transposed:
        row, column = column, row
    return matrix[row * ld + column if order == 101 else column * ld + row]


@with_library
@on_x86
@pytest.mark.parametrize("order", [101, 102])  # by rows, by columns
@pytest.mark.parametrize("transposes", list(product([111, 112], repeat=2)))
@pytest.mark.parametrize(("M", "N", "K"), [(1, 5, 3), (1, 3, 0), (1, 1, 4), (2, 5, 3), (0, 2, 3)])
@pytest.mark.parametrize("alpha_beta", [(1, 0), (2, 3)])
def test_shim_is_gemm(order, transposes, M, N, K, alpha_beta):
    (path, *_), chance = candidates("openblas"), random.Random(M * N + K)
    library = Library.open(path)
    shims, (alpha, beta) = row_shims(library.functions), alpha_beta
    if not shims:
        pytest.skip("this system lets no page run that was written to")
    a, b, c = ([chance.randrange(-4, 5) for _ in range(100)] for _ in "abc")
    ld_a, ld_b, ld_c = 6, 7, 8  # at least each size, so rows have gaps
    expected = list(c)
    for i, j in product(range(M), range(N)):
        place = i * ld_c + j if order == 101 else j * ld_c + i
        terms = (
            at(a, transposes[0] == 112, i, k, ld_a, order)
            * at(b, transposes[1] == 112, k, j, ld_b, order)
            for k in range(K)
        )
        expected[place] = alpha * sum(terms) + beta * c[place]
    size, pointer = ctypes.c_int, ctypes.c_void_p
    for name, number in (("cblas_sgemm", ctypes.c_float), ("cblas_dgemm", ctypes.c_double)):
        arrays = [(number * 100)(*values) for values in (a, b, c)]
        start = [ctypes.addressof(array) for array in arrays]
        call = ctypes.CFUNCTYPE(
            None, *[size] * 6, number, pointer, size, pointer, size, number, pointer, size
        )(shims[name])
        call(
            *(order, *transposes, M, N, K),
            *(alpha, start[0], ld_a, start[1], ld_b, beta, start[2], ld_c),
        )
        assert list(arrays[2]) == expected, name
