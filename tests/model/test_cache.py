"""model/cache.py against plain concatenations and slow masks. Every axis has its own size."""

import itertools
import random

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close, assert_same_ids, golden

from model.cache import SPARE, STEP, KVCache, Quantized, RotatingKVCache, make_layers
from model.config import Config
from model.generation.generate import generate
from model.transformer import Transformer
from model.weights.load import load

B, K, D = 2, 3, 5


def pieces(*lengths: int) -> list[tuple[mx.array, mx.array]]:
    """Keys and values (B, K, L, D) for each length, all different."""
    keys = mx.random.split(mx.random.key(7), 2 * len(lengths))
    made = [mx.random.normal((B, K, n, D), key=k) for n, k in zip(lengths * 2, keys, strict=True)]
    return list(zip(made[: len(lengths)], made[len(lengths) :], strict=True))


def together(parts: list[tuple[mx.array, mx.array]]) -> tuple[mx.array, mx.array]:
    return tuple(mx.concatenate(list(side), axis=2) for side in zip(*parts, strict=True))


@pytest.mark.parametrize(
    "lengths",
    [(4,), (4, 1, 1), (STEP - 1, 1, 1), (STEP, 1), (1, STEP + 3, 2 * STEP), (3 * STEP + 1, 1)],
)
def test_update_hands_out_everything_so_far(lengths):
    cache, parts = KVCache(), pieces(*lengths)
    for count, (keys, values) in enumerate(parts, start=1):
        all_keys, all_values = cache.update(keys, values)
        expected_keys, expected_values = together(parts[:count])
        assert_close(all_keys, expected_keys, atol=0)
        assert_close(all_values, expected_values, atol=0)
    assert cache.offset == sum(lengths)


def test_buffers_grow_by_steps():
    cache = KVCache()
    assert cache.state == []
    for keys, values in pieces(STEP - 1, 1, 1):
        cache.update(keys, values)
    assert [buffer.shape for buffer in cache.state] == [(B, K, 2 * STEP, D)] * 2


def test_trimmed_positions_are_written_over():
    cache, (kept, dropped, added) = KVCache(), pieces(4, 3, 2)
    cache.update(*kept)
    cache.update(*dropped)
    cache.trim(3)
    assert cache.offset == 4
    keys, values = cache.update(*added)
    expected_keys, expected_values = together([kept, added])
    assert_close(keys, expected_keys, atol=0)
    assert_close(values, expected_values, atol=0)


@pytest.mark.parametrize("num_tokens", [-1, 5])
def test_trim_refuses_what_is_not_held(num_tokens):
    cache = KVCache()
    cache.update(*pieces(4)[0])
    with pytest.raises(ValueError, match="the cache holds 4"):
        cache.trim(num_tokens)
    assert cache.offset == 4


def test_a_copy_lives_its_own_life():
    cache, (start, one, other) = KVCache(), pieces(4, 2, 3)
    cache.update(*start)
    twin = cache.copy()
    cache.update(*one)
    keys, values = twin.update(*other)
    expected_keys, expected_values = together([start, other])
    assert_close(keys, expected_keys, atol=0)
    assert_close(values, expected_values, atol=0)
    keys, _ = cache.update(*other)
    assert_close(keys, together([start, one, other])[0], atol=0)
    assert (cache.offset, twin.offset) == (9, 7)


def test_copy_of_an_empty_cache():
    assert KVCache().copy().offset == 0


def test_nothing_is_trimmed_from_a_rotating_copy():
    """The twin's ring is its own too."""
    cache = RotatingKVCache(6, 2)
    for start in pieces(*[1] * 30):
        cache.update(*start)
    twin = cache.copy()
    before = [mx.array(part) for part in twin.state]
    cache.update(*pieces(5)[0])
    for part, kept in zip(twin.state, before, strict=True):
        assert_close(part, kept, atol=0)
    assert (cache.offset, twin.offset) == (35, 30)


def test_dtype_is_kept():
    keys, values = pieces(4)[0]
    all_keys, _ = KVCache().update(keys.astype(mx.float16), values.astype(mx.float16))
    assert all_keys.dtype == mx.float16


@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize("num_new", [1, 4])
def test_a_mask_is_the_textbook_rule(num_new, window):
    """MLX's named masks written out: a query sees itself and what is before it in the window."""
    cache = KVCache()
    cache.update(*pieces(5)[0])
    mask = cache.mask(num_new, window)
    seen = [
        [key <= query and (window is None or key > query - window) for key in range(5 + num_new)]
        for query in range(5, 5 + num_new)
    ]
    if isinstance(mask, mx.array):
        assert mask.tolist() == seen
    else:
        assert mask == ("causal" if num_new > 1 else None)
        assert seen == [[key <= 5 + i for key in range(5 + num_new)] for i in range(num_new)]


# --- rotating ------------------------------------------------------------------------------------


class Slow:
    """Every key and value ever fed; what a query doesn't see is masked."""

    def __init__(self, max_size, keep):
        self.max_size, self.keep, self.parts = max_size, keep, []

    def attend(self, q, keys, values):
        self.parts.append((keys, values))
        all_keys, all_values = together(self.parts)
        end = all_keys.shape[2]
        return attend(q, all_keys, all_values, mx.array(self.seen(q.shape[2], end)))

    def seen(self, num_new, end):
        last = self.max_size - self.keep
        return [
            [key <= query and (key < self.keep or query - key < last) for key in range(end)]
            for query in range(end - num_new, end)
        ]

    def trim(self, num_tokens):
        keys, values = together(self.parts)
        end = keys.shape[2] - num_tokens
        self.parts = [(keys[:, :, :end], values[:, :, :end])]


def attend(q, keys, values, mask):
    return mx.fast.scaled_dot_product_attention(q, keys, values, scale=0.5, mask=mask)


def run_both(cache, slow, lengths, seed=0):
    """Feed the same passes to both and compare what their queries get."""
    for number, (keys, values) in enumerate(pieces(*lengths)):
        L = keys.shape[2]
        q = 3 * mx.random.normal((B, 2 * K, L, D), key=mx.random.key(100 * seed + number))
        mask = cache.mask(L)
        got = attend(q, *cache.update(keys, values), mask)
        assert_close(got, slow.attend(q, keys, values), atol=1e-5)


@pytest.mark.parametrize("sizes", [(6, 2), (6, 0), (5, 4), (40, 4), (300, 4)])
@pytest.mark.parametrize(
    "lengths", [[1] * 90, [7] * 13, [70, 1, 1, 1], [3, 90, 1, 2, 17, 18, 1], [23, 24, 30, 1] * 2]
)
def test_rotating_is_a_mask_over_everything(sizes, lengths):
    cache = RotatingKVCache(*sizes)
    run_both(cache, Slow(*sizes), lengths)
    assert cache.offset == sum(lengths)
    assert all(part.shape[2] <= sizes[0] + SPARE for part in cache.state)


@pytest.mark.parametrize("seed", range(12))
def test_rotating_after_trims(seed):
    draw = random.Random(seed)
    sizes = (draw.randrange(3, 30), draw.randrange(3))
    cache, slow = RotatingKVCache(*sizes), Slow(*sizes)
    trimmed = 0
    for turn in range(10):
        run_both(cache, slow, [draw.choice((1, 2, 5, 17, 18, 40))], seed=10 * seed + turn)
        num_tokens = draw.randint(0, min(cache.trimmable, 20))
        trimmed += num_tokens
        cache.trim(num_tokens)
        slow.trim(num_tokens)
    assert trimmed > 20


def test_rotating_trims_what_is_spare_or_everything():
    cache = RotatingKVCache(6, 2)
    cache.update(*pieces(60)[0])
    assert cache.trimmable == SPARE + 1
    with pytest.raises(ValueError, match="before the last 17 of 60 is overwritten; trim all 60"):
        cache.trim(SPARE + 2)
    cache.trim(5)
    assert (cache.offset, cache.trimmable) == (55, SPARE + 1 - 5)
    with pytest.raises(ValueError, match="the cache holds 55"):
        cache.trim(56)
    cache.trim(55)
    assert (cache.offset, cache.trimmable) == (0, 0)
    run_both(cache, Slow(6, 2), [4, 30, 1])


@pytest.mark.parametrize("window", [1, 3, 30])
@pytest.mark.parametrize("num_new", [1, 4, 40])
def test_rotating_with_a_window_sees_what_both_allow(window, num_new):
    cache, slow = RotatingKVCache(8, 2), Slow(8, 2)
    run_both(cache, slow, [12, 1])
    keys, values = pieces(num_new)[0]
    mask = cache.mask(num_new, window)
    q = mx.random.normal((B, K, num_new, D), key=mx.random.key(5))
    got = attend(q, *cache.update(keys, values), mask)
    slow.parts.append((keys, values))
    end = 13 + num_new
    seen = [
        [see and query - key < window for key, see in enumerate(row)]
        for query, row in enumerate(slow.seen(num_new, end), start=13)
    ]
    assert_close(got, attend(q, *together(slow.parts), mx.array(seen)), atol=1e-5)


@pytest.mark.parametrize("sizes", [(4, 4), (0, 0), (3, -1)])
def test_rotating_refuses_sizes_without_room(sizes):
    with pytest.raises(ValueError, match=f"max_size {sizes[0]} .* no room"):
        RotatingKVCache(*sizes)


# --- quantized -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "share"), [(8, 9 / 32), (4, 5 / 32)])
@pytest.mark.parametrize("rotating", [False, True])
def test_quantized_is_near_and_small(bits, share, rotating):
    """A value is off by at most a step of its group; a scale and a bias make 1 bit a value more."""
    form = Quantized(bits, 64)
    exact = RotatingKVCache(300, 4) if rotating else KVCache()
    cache = RotatingKVCache(300, 4, form) if rotating else KVCache(form)
    for number, length in enumerate((100, 1, 1, 150)):
        keys, values = mx.random.normal((2, B, K, length, 64), key=mx.random.key(number))
        got, wanted = cache.update(keys, values), exact.update(keys, values)
    for side in (0, 1):
        groups = wanted[side]
        spread = groups.max(axis=-1, keepdims=True) - groups.min(axis=-1, keepdims=True)
        off = mx.abs(got[side] - groups) / spread * (2**bits - 1)
        assert 0.2 < off.max().item() < 1.01
    assert cache.nbytes == exact.nbytes * share


def heads_of_64(**changes) -> Transformer:
    mx.random.seed(1)
    sizes = {"hidden_size": 48, "intermediate_size": 40, "head_dim": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    rest = {"vocab_size": 50, "max_position_embeddings": 99, "rms_norm_eps": 1e-6}
    return Transformer(Config(model_type="llama", **(sizes | heads | rest | changes)))


@pytest.mark.parametrize(("bits", "bound"), [(8, 0.008), (4, 0.15)])
def test_logits_through_a_quantized_cache(bits, bound):
    m, ids = heads_of_64(), mx.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])
    cache, exact = m.make_cache(bits=bits, group_size=32), m(ids)
    logits = mx.concatenate([m(ids[:, i : i + 2], cache) for i in range(0, 10, 2)], axis=1)
    gap = mx.abs(logits - exact).max().item() / mx.abs(exact).max().item()
    assert 0 < gap < bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "4 or 8 bits, not 3"),
        ({"bits": 8, "group_size": 16}, r"group_size must be one of \(32, 64, 128\), got 16"),
        ({"bits": 8, "group_size": 128}, "groups of 128 don't divide .* heads of 64 values; pass"),
        ({"max_size": 4}, "max_size 4 that keeps the first 4 positions has no room"),
    ],
)
def test_refused_at_the_door(options, message):
    with pytest.raises(ValueError, match=message):
        heads_of_64().make_cache(**options)


def test_heads_that_no_group_divides():
    config = load(REFERENCE / "qwen2-bias").config
    with pytest.raises(ValueError, match="heads of 16 values; hold it in floats"):
        make_layers(config, bits=8, group_size=32)


# --- in a model ----------------------------------------------------------------------------------


def test_a_rotating_cache_that_never_turns_changes_nothing():
    m, expected = load(REFERENCE / "qwen3-tied"), golden("qwen3-tied")
    cache = m.make_cache(max_size=150)
    assert_same_ids(generate(m, expected["ids"], max_tokens=12, cache=cache), expected["greedy"])


@pytest.mark.parametrize("chunk", [1, 9, 100])
def test_logits_through_a_rotating_cache_whatever_the_passes(chunk):
    """One layer's positions depend on what the one below saw, so all layers must drop alike."""
    m, ids = load(REFERENCE / "llama-llama3rope"), golden("llama-llama3rope")["ids"]
    cache = m.make_cache(max_size=20, keep=3)
    passes = [m(mx.array([part]), cache)[0] for part in split(ids, chunk)]
    full = m.make_cache()
    for layer in full:  # the slow version: everything is held, and masked
        layer.mask = lambda num_new, window=None: mx.array(Slow(20, 3).seen(num_new, len(ids)))
    assert_close(mx.concatenate(passes), m(mx.array([ids]), full)[0], atol=2e-4)


def split(ids, chunk):
    return [ids[i : i + chunk] for i in range(0, len(ids), chunk)]


def test_generating_far_beyond_a_rotating_cache():
    m = load(REFERENCE / "qwen3-tied")
    cache = m.make_cache(max_size=16, keep=2)
    ids = list(itertools.islice(generate(m, [5, 6, 7], max_tokens=80, cache=cache), 80))
    assert len(ids) == 80
    assert {layer.offset for layer in cache} == {82}
    assert all(part.shape[2] == 16 + SPARE for layer in cache for part in layer.state)
