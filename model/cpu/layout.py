"""loaded weights -> the same weights where a CPU's products are fastest: by columns, and joined.

A decode step reads every weight once, for one row of activations. OpenBLAS multiplies a row by a
tall matrix faster where the matrix lies by columns, and one product by several matrices side by
side costs less than one by each. Names, shapes and values stay as they are: what modules hold are
transposed and sliced views. Measured on SmolLM2, float32: 18 -> 28 tokens/s together with the
rotation that all layers share (rope.py).

Nothing here waits: a weight that load.py has not read yet is read, turned and converted in one
go, while others are. Elsewhere (another device, type or BLAS) nothing is moved.

Blind spot: it doesn't know what the matrices are for.
"""

from operator import is_

import mlx.core as mx
from mlx import nn

from model import cpu

BLOCK = 32  # rows turned at a time; 16 and 32 took half as long as 8 and 64, a fifth of all


def is_worthwhile(dtype: mx.Dtype) -> bool:
    """Whether weights of this type are multiplied by a BLAS that install.py chose."""
    return cpu.applies(dtype) and cpu.enable().name is not None


def laid_out(*weights: mx.array, dtype: mx.Dtype) -> mx.array:
    """weights (out, in) below each other (sum of outs, in), in that type.

    By columns if that is at least as tall as it is wide. Then rows are turned BLOCK at a time, so
    that those being read stay in the nearest cache, and before they are converted to a longer type.
    """
    if sum(one.shape[0] for one in weights) < weights[0].shape[1]:
        return mx.concatenate(weights).astype(dtype)
    rows = [one[i : i + BLOCK].T for one in weights for i in range(0, one.shape[0], BLOCK)]
    # contiguous: a single block is not copied by joining it to nothing.
    return mx.contiguous(mx.concatenate(rows, axis=1)).astype(dtype).T


def lay_out(one: nn.Module, dtype: mx.Dtype) -> None:
    """Lay out the matrix of a linear map or an embedding, unless it is quantized."""
    if type(one) in (nn.Linear, nn.Embedding):
        one.weight = laid_out(one.weight, dtype=dtype)
        mx.async_eval(one.weight)


class Joined:
    """x -> the answers of several linear maps; one product once they are joined."""

    def __init__(self) -> None:
        self._parts: list[mx.array] = []  # the views that the maps hold; none: not joined

    def join(self, *maps: nn.Linear, dtype: mx.Dtype) -> None:
        """Lay the weights of maps side by side, and give each map a view of its own."""
        biases = [one.bias for one in maps if "bias" in one]
        if any(type(one) is not nn.Linear for one in maps) or len(biases) not in (0, len(maps)):
            return  # some are quantized, or of different kinds
        sizes = [one.weight.shape[0] for one in maps]
        self._ends = [sum(sizes[: n + 1]) for n in range(len(sizes) - 1)]
        weight = laid_out(*(one.weight for one in maps), dtype=dtype)  # (sum of outs, in)
        self._weight, self._parts = weight.T, mx.split(weight, self._ends)
        self._bias = mx.concatenate(biases).astype(dtype) if biases else None
        for one, view in zip(maps, self._parts, strict=True):
            one.weight = view
        mx.async_eval(self._weight, self._parts, self._bias)

    def is_joined(self, *maps: nn.Module) -> bool:
        """Whether maps still hold the weights that were joined."""
        return bool(self._parts) and all(map(is_, (one["weight"] for one in maps), self._parts))

    def __call__(self, x: mx.array, *maps: nn.Module) -> list[mx.array]:
        """x (..., in) -> one (..., out) for each of maps."""
        if not self.is_joined(*maps):
            return [one(x) for one in maps]
        out = x @ self._weight if self._bias is None else mx.addmm(self._bias, x, self._weight)
        return mx.split(out, self._ends, axis=-1)
