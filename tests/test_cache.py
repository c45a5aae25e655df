"""model/cache.py against a plain concatenation. Every axis has its own size."""

import mlx.core as mx
import pytest
from compare import assert_close

from model.cache import STEP, KVCache

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
