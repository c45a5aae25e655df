"""model/rope.py against each paper's formula, written out anew in plain Python."""

import cmath
import math

import mlx.core as mx
import pytest
from compare import assert_close

from model.rope import Rope, Rotary, frequencies, yarn_attention_factor


def wavelengths(theta: float, dims: int) -> list[float]:
    return [2 * math.pi * theta ** (2 * i / dims) for i in range(dims // 2)]


def llama3_by_wavelength(wave: float, factor, low, high, context) -> float:
    """Meta's form: three cases by wavelength."""
    frequency = 2 * math.pi / wave
    if wave < context / high:
        return frequency
    if wave > context / low:
        return frequency / factor
    smooth = (context / wave - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency


def yarn_by_index(i: int, theta, dims, factor, context, fast=32, slow=1) -> float:
    """The paper's form: the share of extrapolation falls from 1 to 0 over the indices."""
    low = math.floor(dims * math.log(context / (fast * 2 * math.pi)) / (2 * math.log(theta)))
    high = math.ceil(dims * math.log(context / (slow * 2 * math.pi)) / (2 * math.log(theta)))
    low, high = max(low, 0), min(high, dims - 1)
    interpolated = min(1, max(0, (i - low) / (high - low)))
    frequency = theta ** (-2 * i / dims)
    return interpolated * frequency / factor + (1 - interpolated) * frequency


def test_plain():
    expected = [1, 1e6 ** (-1 / 3), 1e6 ** (-2 / 3)]
    assert frequencies(Rope(theta=1e6), 6) == pytest.approx(expected, rel=1e-12)


def test_linear_divides_every_frequency():
    plain = frequencies(Rope(theta=500.0), 8)
    slow = frequencies(Rope(theta=500.0, type="linear", factor=4.0), 8)
    assert slow == pytest.approx([f / 4 for f in plain], rel=1e-12)


def test_llama3():
    rope = Rope(theta=500000.0, type="llama3", factor=8.0, original_context=8192)
    expected = [llama3_by_wavelength(w, 8, 1, 4, 8192) for w in wavelengths(500000.0, 128)]
    assert frequencies(rope, 128) == pytest.approx(expected, rel=1e-12)
    plain = frequencies(Rope(theta=500000.0), 128)
    ratios = {round(f / g, 6) for f, g in zip(plain, expected, strict=True)}
    assert {1, 8} < ratios, "the case must reach all three bands"


# The ramp lies before the first index, within, and beyond the last of 64.
@pytest.mark.parametrize(("theta", "context"), [(1e6, 64), (1e6, 32768), (100.0, 32768)])
def test_yarn(theta, context):
    rope = Rope(theta=theta, type="yarn", factor=4.0, original_context=context)
    expected = [yarn_by_index(i, theta, 128, 4, context) for i in range(64)]
    assert frequencies(rope, 128) == pytest.approx(expected, rel=1e-12)


def test_yarn_untruncated_ramp_starts_between_indices():
    rope = Rope(theta=1e6, type="yarn", factor=4.0, original_context=4096, truncate=False)
    low = 128 * math.log(4096 / (32 * 2 * math.pi)) / (2 * math.log(1e6))
    high = 128 * math.log(4096 / (2 * math.pi)) / (2 * math.log(1e6))
    i = math.ceil(low)
    assert i != low
    share = (i - low) / (high - low)
    expected = (share / 4 + 1 - share) * 1e6 ** (-2 * i / 128)
    assert frequencies(rope, 128)[i] == pytest.approx(expected, rel=1e-12)


def test_yarn_attention_factor():
    assert yarn_attention_factor(4.0) == pytest.approx(1.1386294361)  # 0.1 ln 4 + 1
    assert yarn_attention_factor(0.5) == 1.0


def test_divisors_are_one_per_frequency():
    assert frequencies(Rope(theta=100.0, divisors=(1.0, 5.0)), 4) == pytest.approx([1, 0.02])
    with pytest.raises(ValueError, match="2 rope divisors for 3"):
        frequencies(Rope(divisors=(1.0, 5.0)), 6)


@pytest.mark.parametrize(
    ("form", "offset", "L"),
    [("by_angles", offset, 4) for offset in (0, 5, mx.array([5, 0]))]
    + [("by_kernel", offset, 4) for offset in (0, 5, mx.array([5, 0]))]
    + [("by_matrix", offset, 1) for offset in (0, 5, 200)],
    ids=str,
)
def test_rotation_is_a_complex_product(form, offset, L):
    """Pair (x[i], x[i + D/2]) turns by position times frequency, as a complex number."""
    B, H, D = 2, 3, 6
    x = mx.random.normal((B, H, L, D), key=mx.random.key(1))
    rope = Rope(theta=100.0, type="linear", factor=2.0)
    thetas = [100.0 ** (-2 * i / D) / 2 for i in range(D // 2)]

    def turned(vector: list[float], position: int) -> list[float]:
        pairs = [complex(vector[i], vector[i + D // 2]) for i in range(D // 2)]
        pairs = [z * cmath.exp(1j * position * t) for z, t in zip(pairs, thetas, strict=True)]
        return [z.real for z in pairs] + [z.imag for z in pairs]

    offsets = [offset] * B if isinstance(offset, int) else offset.tolist()
    expected = [
        [[turned(head[t], first + t) for t in range(L)] for head in heads]
        for heads, first in zip(x.tolist(), offsets, strict=True)
    ]
    rotary = Rotary(rope, D)
    arguments = (offset, L) if form == "by_angles" else (offset,)
    rotate = getattr(rotary, f"_{form}")(*arguments)
    assert_close(rotate(x), expected, atol=1e-5)
    assert_close(rotary.at(offset, L)(x), expected, atol=1e-5)
    assert rotate(x.astype(mx.bfloat16)).dtype == mx.bfloat16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "longrope"}, "rope type 'longrope' is not supported"),
        ({"theta": 0.0}, "theta must be above 0"),
        ({"divisors": (1.0, 0.0)}, "divisors must be above 0"),
        ({"type": "linear", "factor": -1.0}, "factor must be above 0"),
        ({"type": "linear", "factor": 1e-320}, "factor must be above 0, found 1e-320"),
        ({"type": "yarn", "factor": 2.0}, "needs original_max_position_embeddings"),
        (
            {
                "type": "llama3",
                "factor": 8.0,
                "original_context": 64,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
            },
            "low_freq_factor < high_freq_factor",
        ),
    ],
)
def test_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Rope(**settings)
