"""OpenBLAS's gemm and gemv -> a gemm that gives one row times a matrix to gemv, on x86-64.

Blind spot: which library these are of, and who calls them.
"""

import ctypes
import mmap
import platform
import struct

from model.cpu.addresses import protect

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


def row_shims(functions: dict[str, int]) -> dict[str, int]:
    """Addresses for cblas_sgemm and cblas_dgemm that send one-row products to gemv.

    Empty where they aren't needed, or where the system lets no page run that was written to.
    """
    if platform.machine() != "x86_64":
        return {}
    code, addresses = b"", {}
    for kind in "sd":
        addresses[f"cblas_{kind}gemm"] = len(code)
        gemv, gemm = (functions[f"cblas_{kind}{name}"] for name in ("gemv", "gemm"))
        code += _ROW_SHIM + struct.pack("<QQ", gemv, gemm)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    try:
        protect(start, len(code), mmap.PROT_READ | mmap.PROT_EXEC)
    except OSError:
        return {}
    # Never freed: MLX's threads may still compute when the interpreter has cleaned up.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(page))
    return {name: start + offset for name, offset in addresses.items()}
