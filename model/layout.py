"""loaded weights -> the same weights where a CPU's products are fastest: by columns, and joined.

A decode step reads every weight once, for one row of activations. OpenBLAS multiplies a row by a
tall matrix faster where the matrix lies by columns, and one product by several matrices side by
side costs less than one by each. Names, shapes and values stay as they are: what modules hold are
transposed and sliced views. Measured on SmolLM2, float32: 18 -> 28 tokens/s together with the
rotation that all layers share (rope.py). Elsewhere (another device, type or BLAS) nothing is moved.

Blind spot: it doesn't know what the matrices are for.
"""

import mlx.core as mx
from mlx import nn

from model import blas


def is_worthwhile(dtype: mx.Dtype) -> bool:
    """Whether weights of this type are multiplied by a BLAS that model/blas.py chose."""
    on_cpu = mx.default_device().type == mx.cpu
    return on_cpu and dtype == mx.float32 and blas.enable().name is not None


def by_columns(weight: mx.array) -> mx.array:
    """weight (out, in), stored by columns if it is at least as tall as it is wide."""
    if weight.ndim != 2 or weight.shape[0] < weight.shape[1]:
        return weight
    return mx.contiguous(weight.T).T


def lay_by_columns(one: nn.Module) -> None:
    """by_columns for the weight of a linear map, unless it is quantized."""
    if type(one) is nn.Linear:
        one.weight = by_columns(one.weight)
        mx.eval(one.weight)


class Joined:
    """x -> the answers of several linear maps; one product once they are joined."""

    def __init__(self) -> None:
        self._parts: list[mx.array] = []  # the views that the maps hold; none: not joined

    def join(self, *maps: nn.Linear) -> None:
        """Lay the weights of maps side by side, and give each map a view of its own."""
        biases = [one.bias for one in maps if "bias" in one]
        if any(type(one) is not nn.Linear for one in maps) or len(biases) not in (0, len(maps)):
            return  # some are quantized, or of different kinds
        weight = by_columns(mx.concatenate([one.weight for one in maps]))  # (sum of outs, in)
        bias = mx.concatenate(biases) if biases else None
        ends = [sum(one.weight.shape[0] for one in maps[: n + 1]) for n in range(len(maps))]
        views = mx.split(weight, ends[:-1])
        mx.eval(weight, views, [] if bias is None else bias)
        for one, view in zip(maps, views, strict=True):
            one.weight = view
        self._weight, self._bias = weight.T, bias  # (in, sum of outs), (sum of outs,)
        self._parts, self._ends = views, ends[:-1]

    def is_joined(self, *maps: nn.Module) -> bool:
        """Whether maps still hold the weights that were joined."""
        return bool(self._parts) and all(
            one.weight is part for one, part in zip(maps, self._parts, strict=True)
        )

    def __call__(self, x: mx.array, *maps: nn.Module) -> list[mx.array]:
        """x (..., in) -> one (..., out) for each of maps."""
        if not self.is_joined(*maps):
            return [one(x) for one in maps]
        out = x @ self._weight if self._bias is None else mx.addmm(self._bias, x, self._weight)
        return mx.split(out, self._ends, axis=-1)
