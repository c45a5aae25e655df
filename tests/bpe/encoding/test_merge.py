"""merge.py: both merge functions against a loop that looks at every pair after every merge."""

import random

import pytest

from bpe.encoding.merge import merge_long, merge_short


def merge_slowly(ids, ranks, results):
    """The definition: find the lowest rank, merge its leftmost pair, begin again."""
    ids = list(ids)
    while True:
        ranked = [(ranks[pair], i) for i, pair in enumerate(zip(ids, ids[1:])) if pair in ranks]
        if not ranked:
            return ids
        rank, i = min(ranked)
        ids[i : i + 2] = [results[rank]]


def random_merges(random, num_symbols, num_merges):
    """Merges between any ids, in any order: a later merge may well rank before its own parts."""
    made, ranks, results = list(range(num_symbols)), {}, []
    for _ in range(num_merges):
        pair = (random.choice(made), random.choice(made))
        if pair not in ranks:
            ranks[pair] = len(results)
            results.append(random.choice([len(made), random.choice(made)]))  # some share an id
            made.append(len(made))
    order = list(range(len(results)))
    random.shuffle(order)
    return {pair: order[r] for pair, r in ranks.items()}, [
        results[order.index(r)] for r in range(len(order))
    ]


@pytest.mark.parametrize("merge", [merge_short, merge_long])
def test_equals_the_definition(merge):
    rng = random.Random(0)
    for _ in range(3000):
        num_symbols = rng.randint(1, 4)
        ranks, results = random_merges(rng, num_symbols, rng.randint(0, 12))
        ids = [rng.randrange(num_symbols) for _ in range(rng.randint(0, 30))]
        assert merge(list(ids), ranks, results) == merge_slowly(ids, ranks, results)


@pytest.mark.parametrize("merge", [merge_short, merge_long])
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([0], [0]),
        ([], []),
        ([0] * 2, [1]),
        ([0] * 3, [1, 0]),
        ([0] * 5, [2, 0]),
        ([0] * 7, [2, 1, 0]),
    ],
)
def test_a_run_merges_from_the_left(merge, ids, expected):
    assert merge(ids, {(0, 0): 0, (1, 1): 1}, [1, 2]) == expected


def test_long_pieces_are_not_quadratic():
    """Counted, not timed: the heap looks up a bounded number of pairs per symbol."""

    class Counting(dict):
        lookups = 0

        def get(self, *args):
            Counting.lookups += 1
            return super().get(*args)

    n = 20_000
    ranks = Counting({(0, 0): 0, (1, 1): 1, (2, 2): 2})
    assert len(merge_long([0] * n, ranks, [1, 2, 3])) == n / 8
    assert Counting.lookups < 5 * n
