"""cpu/layout.py: the same names, values and logits, whichever way the weights lie."""

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, golden
from mlx import nn
from mlx.utils import tree_flatten

from model.cpu import layout
from model.cpu.layout import BLOCK, Joined, laid_out
from model.weights.load import load


def loader(monkeypatch, is_moved):
    def load_so(name):
        with monkeypatch.context() as patch:
            patch.setattr(layout, "is_worthwhile", lambda dtype: is_moved)
            return load(REFERENCE / name, "float32")

    return load_so


@pytest.fixture
def as_they_lie(monkeypatch):
    """Load without moving a weight."""
    return loader(monkeypatch, False)


@pytest.fixture
def moved(monkeypatch):
    """Load with every weight moved, also where this machine would not gain by it."""
    return loader(monkeypatch, True)


@pytest.mark.parametrize("name", ALL)
def test_moving_changes_neither_names_nor_values_nor_logits(name, moved, as_they_lie):
    plain, other = as_they_lie(name), moved(name)
    expected = dict(tree_flatten(plain.parameters()))
    found = dict(tree_flatten(other.parameters()))
    assert list(found) == list(expected)
    for path, array in expected.items():
        assert mx.array_equal(found[path], array), path
    ids = mx.array([golden(name)["ids"]])
    assert_close(other(ids), plain(ids), atol=2e-5)


def strides(array):
    """Of a matrix, in elements, as the buffer protocol tells them."""
    view = memoryview(array)
    return tuple(stride // view.itemsize for stride in view.strides)


def test_tall_matrices_lie_by_columns(moved):
    m = moved("qwen3-tied")
    block, config = m.model.layers[0], m.config
    width, inner = config.hidden_size, config.intermediate_size
    assert strides(m.model.embed_tokens.weight) == (1, config.vocab_size)
    assert strides(block.mlp.gate_proj.weight) == (1, 2 * inner)  # a view of both
    assert strides(block.mlp.down_proj.weight) == (inner, 1)  # wider than tall
    assert width < inner


def test_a_square_one_is_tall_enough():
    assert strides(laid_out(mx.zeros((8, 8)), dtype=mx.float32)) == (1, 8)
    assert strides(laid_out(mx.zeros((7, 8)), dtype=mx.float32)) == (8, 1)


@pytest.mark.parametrize("rows", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_rows_are_turned_block_by_block(rows, dtype):
    upper, lower = (mx.random.normal((n, 5)).astype(dtype) for n in (rows, 3))
    found = laid_out(upper, lower, dtype=mx.float32)
    assert found.dtype == mx.float32
    assert found.tolist() == [*upper.tolist(), *lower.tolist()]


def test_views_take_no_memory_of_their_own():
    maps = [nn.Linear(256, 512, bias=False), nn.Linear(256, 256, bias=False)]
    mx.eval([one.parameters() for one in maps])
    before = mx.get_active_memory()
    joined = Joined()
    joined.join(*maps, dtype=mx.float32)
    mx.eval([one.parameters() for one in maps])
    mx.synchronize()  # until then the old weights may still be held
    assert mx.get_active_memory() - before < 0.1 * 768 * 256 * 4
    assert len(joined(mx.zeros((1, 256)), *maps)) == 2


@pytest.mark.parametrize("bias", [True, False])
def test_joined_maps_answer_as_they_do_alone(bias):
    maps = [nn.Linear(6, out, bias=bias) for out in (4, 3, 5)]
    x = mx.random.normal((2, 7, 6), key=mx.random.key(1))
    expected = [one(x) for one in maps]
    joined = Joined()
    joined.join(*maps, dtype=mx.float32)
    for answer, wanted in zip(joined(x, *maps), expected, strict=True):
        assert_close(answer, wanted, atol=1e-6)


def test_a_weight_that_is_replaced_counts(moved):
    """As when a loaded model is quantized or changed in place."""
    m = moved("qwen3-tied")
    ids = mx.array([golden("qwen3-tied")["ids"]])
    before = m(ids)
    attention = m.model.layers[0].self_attn
    attention.k_proj.weight = mx.zeros_like(attention.k_proj.weight)
    assert mx.abs(m(ids) - before).max().item() > 1e-3
    attention.k_proj = nn.QuantizedLinear.from_linear(attention.q_proj, group_size=32, bits=8)
    m.model.layers[0].self_attn.k_proj = attention.k_proj
    assert not attention._qkv.is_joined(attention.q_proj, attention.k_proj, attention.v_proj)


def test_mixed_biases_are_not_joined():
    maps = [nn.Linear(6, 4, bias=True), nn.Linear(6, 4, bias=False)]
    joined = Joined()
    joined.join(*maps, dtype=mx.float32)
    assert not joined.is_joined(*maps)
