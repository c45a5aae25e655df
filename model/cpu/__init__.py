"""MLX on a Linux CPU -> the same results, many times as fast.

Why it exists: MLX's wheel for Linux CPUs links the reference BLAS, 40 times slower than OpenBLAS,
and its CPU kernels are slow where many small operations or exponentials are asked for.
What it touches: the words in libmlx's own memory that lead to its BLAS, OpenBLAS's clean-up at the
end of the process, how many threads that library uses (install.py and what it imports), and where
a model's weights lie (layout.py). Nothing on disk, and of other libraries nothing.
How it fails safe: whatever isn't as expected leaves MLX as it was, the products of a library are
checked before it is trusted and again through MLX, and BYTEPAIR_BLAS=off leaves out all of it.
When to delete it: once `python -m benchmarks.bench_blas` shows MLX's own BLAS as fast as the others
on Linux; all but layout.py and `applies` then, and these once they gain nothing on a CPU.

Call `enable`, `adapt` and `applies` through this module: `from model import cpu; cpu.applies()`.

Blind spot: it does not know models.
"""

import mlx.core as mx

from model.cpu.install import SWITCH, Report, adapt, enable

__all__ = ["SWITCH", "Report", "adapt", "applies", "enable"]


def applies(dtype: mx.Dtype | None = None) -> bool:
    """Whether a CPU's own forms are used, of numbers of that type: the one place that decides.

    Powers for exponentials and weights laid out are for float32, one rotation for all layers is for
    every type (None). Who puts a function here that says no gets what a GPU runs.
    """
    return (dtype is None or dtype == mx.float32) and mx.default_device().type == mx.cpu
