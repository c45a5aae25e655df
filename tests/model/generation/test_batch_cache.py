"""generation/batch_cache.py: rows that come and go against a list for each, and their masks."""

import random

import mlx.core as mx
import pytest
from compare import assert_close

from model.generation.batch_cache import BatchKVCache


class Obvious:
    """Each row a list of its own (keys, values), both (K, length, D)."""

    def __init__(self):
        self.rows = []

    def check(self, cache, keys, values):
        for row, own in enumerate(self.rows):
            for got, wanted in zip((keys, values), own, strict=True):
                assert_close(got[row, :, : wanted.shape[1]], wanted, atol=0)
        assert cache.lengths == [row[0].shape[1] for row in self.rows]


def fresh(num_rows, number, length):
    key = mx.random.key(number)
    return mx.random.normal((2, num_rows, 3, length, 5), key=key)


@pytest.mark.parametrize("seed", range(8))
def test_rows_come_and_go(seed):
    """At random: appended to, trimmed, dropped, put in each other's places, added."""
    draw, obvious, cache = random.Random(seed), Obvious(), BatchKVCache(2)
    keys, values = fresh(2, 1000, 4)
    cache.update(keys, values)
    obvious.rows = [(keys[i], values[i]) for i in range(2)]
    for turn in range(25):
        num_rows = len(obvious.rows)
        action = draw.choice(("trim", "keep", "put", "add"))
        if action == "trim":
            gone = [draw.randint(0, min(3, n - 1)) for n in cache.lengths]
            cache.trim_rows(gone)
            rows = zip(obvious.rows, gone, cache.lengths, strict=True)
            obvious.rows = [(k[:, :n], v[:, :n]) for (k, v), _, n in rows]
        elif action == "keep":
            kept = draw.sample(range(num_rows), draw.randint(1, num_rows))
            cache.keep_rows(kept)
            obvious.rows = [obvious.rows[i] for i in kept]
        else:
            other = BatchKVCache(2)
            length = draw.choice((1, 7, 300))
            keys, values = fresh(2, 100 * seed + turn, length)
            other.update(keys, values)
            other.trim_rows([0, min(2, length - 1)])
            length = other.lengths[1]
            if action == "put":
                place = draw.randrange(num_rows)
                cache.put_row(place, other, 1)
                obvious.rows[place] = (keys[1, :, :length], values[1, :, :length])
            else:
                cache.add_rows(other)
                obvious.rows += [
                    (k[:, :n], v[:, :n]) for k, v, n in zip(keys, values, other.lengths)
                ]
        num_rows = len(obvious.rows)
        keys, values = fresh(num_rows, 5000 + turn, draw.choice((1, 1, 3)))
        held = cache.update(keys, values)
        obvious.rows = [
            tuple(mx.concatenate([old, new], axis=1) for old, new in zip(row, own))
            for row, own in zip(obvious.rows, zip(keys, values), strict=True)
        ]
        obvious.check(cache, *held)


def test_trim_refuses_what_a_row_does_not_hold():
    cache = BatchKVCache(2)
    cache.update(*fresh(2, 0, 4))
    cache.trim_rows([0, 2])
    with pytest.raises(
        ValueError, match=r"can't trim \[0, 3\] positions of rows that hold \[4, 2\]"
    ):
        cache.trim_rows([0, 3])


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("num_new", [1, 3])
def test_a_mask_for_each_row(window, num_new):
    cache = BatchKVCache(3)
    cache.update(*fresh(3, 0, 6))
    cache.trim_rows([0, 2, 6])
    mask = cache.mask(num_new, window).tolist()
    for row, length in enumerate((6, 4, 0)):
        for i in range(num_new):
            query = length + i
            first = 0 if window is None else max(0, query - window + 1)
            assert [s for s, see in enumerate(mask[row][0][i]) if see] == [*range(first, query + 1)]
