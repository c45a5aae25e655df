"""Rope (how a checkpoint turns positions into angles) -> a function that rotates queries and keys.

Blind spot: it knows nothing of attention. It hands out frequencies in radians per position, in
plain Python floats, and one closure that applies them.

Sources: RoPE, Su et al., arXiv:2104.09864. Linear interpolation, Chen et al., arXiv:2306.15595.
YaRN, Peng et al., arXiv:2309.00071. The llama3 ramp comes from Meta's Llama 3.1 release.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from model import cpu

TYPES = ("default", "linear", "llama3", "yarn")
_SMALLEST = 1e-30  # dividing by less leaves float32


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary settings, validated once.

    type: one of TYPES. theta: the base of the geometric series of frequencies. factor: how many
    times longer the context was made. original_context: positions before that (llama3, yarn).
    divisors: one per frequency, GGUF's form of llama3 (`rope_freqs.weight`); () for none.
    """

    theta: float = 10000.0
    type: str = "default"
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(
                f"rope type {self.type!r} is not supported, and another one would rotate every"
                f" position wrongly; supported: {', '.join(TYPES)}"
            )
        for name in ("theta", "factor", "attention_factor", "beta_fast", "beta_slow"):
            if not _SMALLEST <= getattr(self, name) < math.inf:
                raise ValueError(f"rope {name} must be above 0, found {getattr(self, name)!r}")
        if any(not _SMALLEST <= d < math.inf for d in self.divisors):
            raise ValueError(f"rope divisors must be above 0, found {self.divisors}")
        if self.type in ("llama3", "yarn") and self.original_context <= 0:
            raise ValueError(f"rope type {self.type!r} needs original_max_position_embeddings")
        if self.type == "yarn" and not self.theta > 1:
            raise ValueError(f"rope type 'yarn' needs a theta above 1, found {self.theta!r}")
        if self.type == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError("rope type 'llama3' needs 0 < low_freq_factor < high_freq_factor")


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """How much sharper YaRN makes attention (section 3.4: sqrt(1/t) = 0.1 ln(s) + 1).

    >>> yarn_attention_factor(1.0)
    1.0
    """
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def frequencies(rope: Rope, dims: int) -> list[float]:
    """Radians per position for each of the dims / 2 rotated pairs.

    >>> frequencies(Rope(theta=100.0), 4)
    [1.0, 0.1]
    """
    plain = [rope.theta ** (-2 * i / dims) for i in range(dims // 2)]
    if rope.divisors:
        if len(rope.divisors) != len(plain):
            raise ValueError(f"{len(rope.divisors)} rope divisors for {len(plain)} frequencies")
        plain = [f / divisor for f, divisor in zip(plain, rope.divisors, strict=True)]
    return _SCALINGS[rope.type](rope, dims, plain)


def _default(rope: Rope, dims: int, plain: list[float]) -> list[float]:
    return plain


def _linear(rope: Rope, dims: int, plain: list[float]) -> list[float]:
    return [f / rope.factor for f in plain]


def _llama3(rope: Rope, dims: int, plain: list[float]) -> list[float]:
    """Short waves stay, long waves are stretched, those in between are blended by turns made."""

    def scaled(f: float) -> float:
        turns = rope.original_context * f / (2 * math.pi)  # within the original context
        keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        return _blend(f / rope.factor, f, keep)

    return [scaled(f) for f in plain]


def _yarn(rope: Rope, dims: int, plain: list[float]) -> list[float]:
    """Like llama3, but the ramp is linear in the pair's index (section 3.2, "NTK-by-parts")."""

    def pair_with(turns: float) -> float:  # index of the pair that makes so many turns
        wavelength = rope.original_context / turns
        return dims * math.log(wavelength / (2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_with(rope.beta_fast), pair_with(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    width = (high - low) or 0.001  # an empty ramp would divide by zero
    return [_blend(f, f / rope.factor, (i - low) / width) for i, f in enumerate(plain)]


def _blend(start: float, end: float, weight: float) -> float:
    """start at weight <= 0, end at weight >= 1, a straight line between."""
    weight = min(max(weight, 0.0), 1.0)
    return (1 - weight) * start + weight * end


_SCALINGS = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn}


Rotate = Callable[[mx.array], mx.array]  # x (B, heads, L, D) -> the same, each position turned


class Rotary:
    """The rotation of one model's queries and keys; all layers share it.

    Pairs are (x[i], x[i + D/2]), as in every checkpoint in the Hub's format.
    """

    def __init__(self, rope: Rope, dims: int) -> None:
        self._dims = dims
        self._frequencies = mx.array(frequencies(rope, dims))  # (D/2,)

    def at(self, offset: int | mx.array, length: int) -> Rotate:
        """The rotation of `length` positions from `offset` on: one offset, or one a row (B,)."""
        if not cpu.applies():
            return self._by_kernel(offset)
        if length == 1 and isinstance(offset, int):
            return self._by_matrix(offset)
        return self._by_angles(offset, length)

    def _by_kernel(self, offset: int | mx.array) -> Rotate:
        # It divides positions by its `freqs`, so it gets the reciprocals.
        options = {"traditional": False, "base": None, "scale": 1.0, "freqs": 1 / self._frequencies}
        return lambda x: mx.fast.rope(x, self._dims, offset=offset, **options)

    def _by_matrix(self, offset: int) -> Rotate:
        """One position's rotation is one (D, D) matrix, and its product one operation for six."""
        angles = float(offset) * self._frequencies  # (D/2,)
        cos, sin = mx.diag(mx.cos(angles)), mx.diag(mx.sin(angles))
        halves = [mx.concatenate(pair, axis=1) for pair in ((cos, sin), (-sin, cos))]
        matrix = mx.concatenate(halves)  # (D, D), for rows from the left
        return lambda x: (x.astype(mx.float32) @ matrix).astype(x.dtype)

    def _by_angles(self, offset: int | mx.array, length: int) -> Rotate:
        """Where there is no kernel, mx.fast.rope would find the same sines in every layer again."""
        positions = mx.expand_dims(mx.array(offset), -1) + mx.arange(length)  # (L,) or (B, L)
        angles = positions[..., None].astype(mx.float32) * self._frequencies  # (..., L, D/2)
        if angles.ndim == 3:
            angles = angles[:, None]  # (B, 1, L, D/2)
        cos, sin = mx.cos(angles), mx.sin(angles)
        cos = mx.concatenate([cos, cos], axis=-1)
        sin = mx.concatenate([-sin, sin], axis=-1)

        def rotate(x: mx.array) -> mx.array:
            swapped = mx.roll(x, self._dims // 2, axis=-1)  # the halves of D change places
            return (x * cos + swapped * sin).astype(x.dtype)

        return rotate
