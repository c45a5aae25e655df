"""model/ops.py: the forms for a CPU against MLX's own, and rows that see nothing but one key."""

import math

import mlx.core as mx
import pytest
from compare import assert_close

from model import cpu, ops
from model.cache import causal_mask

SHAPES = [  # B, H, K, L, S, D: each of its own size
    (1, 2, 2, 1, 7, 4),
    (2, 6, 3, 1, 5, 8),
    (2, 6, 2, 5, 9, 4),
    (1, 4, 1, 64, 64, 8),
    (2, 4, 2, 65, 70, 8),
    (1, 3, 3, 200, 331, 16),
]


def operands(B, H, K, L, S, D):
    keys = mx.random.split(mx.random.key(L + S), 3)
    shapes = ((B, H, L, D), (B, K, S, D), (B, K, S, D))
    return [mx.random.normal(shape, key=key) * 2 for shape, key in zip(shapes, keys)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["none", "causal", "window", "rows"])
def test_attention_is_that_of_mlx(shape, kind, monkeypatch):
    q, k, v = operands(*shape)
    B, _, _, L, S, _ = shape
    rows = mx.random.bernoulli(0.5, (B, 1, L, S), key=mx.random.key(1))
    masks = {
        "none": None,
        "causal": "causal",
        "window": causal_mask(L, S - L, 3),
        "rows": rows | (mx.arange(S) == 2),  # each sees at least one
    }
    expected = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=masks[kind])
    monkeypatch.setattr(cpu, "applies", lambda dtype: True)
    assert_close(ops.attend(q, k, v, scale=0.3, mask=masks[kind]), expected, atol=2e-5)


def test_far_scores_do_not_overflow(monkeypatch):
    monkeypatch.setattr(cpu, "applies", lambda dtype: True)
    q, k, v = operands(1, 2, 2, 3, 3, 4)
    q = q * 1e4
    expected = mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask="causal")
    assert_close(ops.attend(q, k, v, scale=1.0, mask="causal"), expected, atol=1e-4)


def test_silu(monkeypatch):
    x = mx.concatenate([mx.linspace(-200, 200, 4001), mx.array([-1e30, 1e30, 0.0])])
    expected = x * mx.sigmoid(x)
    monkeypatch.setattr(cpu, "applies", lambda dtype: True)
    gap = mx.abs(ops.silu(x) - expected) / mx.maximum(1e-3, mx.abs(expected))
    assert gap.max().item() < 2e-6


@pytest.mark.parametrize("shape", [(1, 1, 96), (3, 1, 96), (2, 7, 96), (1, 1, 16, 8), (1, 65, 8)])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_norm(shape, size, monkeypatch):
    x = mx.random.normal(shape, key=mx.random.key(2)) * size
    norm = ops.RMSNorm(shape[-1], 1e-6)
    norm.weight = mx.random.normal(shape[-1:], key=mx.random.key(3))
    monkeypatch.setattr(cpu, "applies", lambda dtype: True)
    rows = [[value * value for value in row] for row in x.reshape(-1, shape[-1]).tolist()]
    roots = mx.array([math.sqrt(math.fsum(row) / len(row) + 1e-6) for row in rows])
    expected = x / roots.reshape(*shape[:-1], 1) * norm.weight
    assert_close(norm(x), expected, atol=2e-6)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_short_types_stay(dtype):
    q, k, v = (x.astype(dtype) for x in operands(1, 2, 1, 3, 4, 8))
    assert ops.attend(q, k, v, scale=0.3, mask="causal").dtype == dtype
    assert ops.silu(q).dtype == dtype
