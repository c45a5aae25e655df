"""model/sample.py on four-entry distributions, by frequency, and against the textbook filters.

The frequency tests draw 20,000 times with a fixed seed, so they never fail by luck. With a random
seed, a right sampler would miss one of the four bounds of five standard deviations with a
probability below 4 * 5.8e-7 = 2.4e-6.
"""

import math
import random

import mlx.core as mx
import pytest

from model.sample import keep_likely, make_sampler

DRAWS = 20_000
P = (0.5, 0.25, 0.15, 0.1)  # of ids 2, 0, 3, 1
LOGITS = [math.log(p) + 3 for p in (0.25, 0.1, 0.5, 0.15)]


def frequencies(**options) -> list[float]:
    """How often each of the four ids is drawn: one batch, one row per draw."""
    sampler = make_sampler(**{"temperature": 1.0, "seed": 11} | options)
    ids = sampler(mx.broadcast_to(mx.array(LOGITS), (DRAWS, 4)))
    assert ids.shape == (DRAWS,)
    return [(ids == i).sum().item() / DRAWS for i in range(4)]


def assert_drawn(actual: list[float], expected: list[float]) -> None:
    for id_, (found, p) in enumerate(zip(actual, expected, strict=True)):
        bound = 5 * math.sqrt(p * (1 - p) / DRAWS)
        assert abs(found - p) <= bound, f"id {id_}: {found}, expected {p} within {bound:.4f}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.25, 0.1, 0.5, 0.15]),
        ({"top_k": 4}, [0.25, 0.1, 0.5, 0.15]),
        ({"top_k": 9}, [0.25, 0.1, 0.5, 0.15]),
        ({"top_k": 2}, [1 / 3, 0, 2 / 3, 0]),
        ({"top_k": 1}, [0, 0, 1, 0]),
        ({"top_p": 0.8}, [0.25 / 0.9, 0, 0.5 / 0.9, 0.15 / 0.9]),
        ({"top_p": 0.6}, [1 / 3, 0, 2 / 3, 0]),
        ({"top_p": 0.4}, [0, 0, 1, 0]),
        ({"top_p": 1e-9}, [0, 0, 1, 0]),
        ({"min_p": 0.25}, [0.25 / 0.9, 0, 0.5 / 0.9, 0.15 / 0.9]),
        ({"min_p": 0.4}, [1 / 3, 0, 2 / 3, 0]),
        ({"min_p": 1.0}, [0, 0, 1, 0]),
        # Temperature comes first: at 0.5 the odds are squared, 0.0625 : 0.01 : 0.25 : 0.0225.
        ({"temperature": 0.5}, [p / 0.345 for p in (0.0625, 0.01, 0.25, 0.0225)]),
        ({"temperature": 0.5, "top_p": 0.7}, [0, 0, 1, 0]),
        # Top-p after top-k: of 2/3 and 1/3 the first alone reaches 0.6.
        ({"top_k": 2, "top_p": 0.6}, [0, 0, 1, 0]),
    ],
)
def test_frequencies(options, expected):
    assert_drawn(frequencies(**options), expected)


def test_every_row_has_its_own_distribution():
    logits = mx.array([[9.0, 0, 0, 0, 0], [0, 0, 9.0, 8.9, 0], [0, 0, 0, 0, 9.0]])
    for options in ({"top_k": 1}, {"top_p": 0.2}, {"min_p": 1.0}, {"temperature": 0}):
        ids = make_sampler(**{"temperature": 1.0, "seed": 0} | options)(logits)
        assert ids.tolist() == [0, 2, 4], options


@pytest.mark.parametrize("temperature", [0, 1e-300])
def test_greedy_is_argmax_whatever_else_is_asked(temperature):
    sampler = make_sampler(temperature=temperature, top_k=3, top_p=0.5, min_p=0.1, seed=4)
    logits = mx.random.normal((7, 53), key=mx.random.key(0))
    assert sampler(logits).tolist() == mx.argmax(logits, axis=-1).tolist()


def test_a_seed_repeats_and_leaves_the_global_generator_alone():
    logits = mx.zeros((1, 1000))

    def draws(seed):
        sampler = make_sampler(temperature=1.0, seed=seed)
        return [sampler(logits).item() for _ in range(20)]

    mx.random.seed(5)
    untouched = mx.random.uniform(shape=(3,)).tolist()
    mx.random.seed(5)
    first = draws(1)
    assert mx.random.uniform(shape=(3,)).tolist() == untouched
    mx.random.seed(6)
    assert draws(1) == first
    assert draws(2) != first
    assert draws(None) != draws(None)
    assert len(set(first)) > 10, "the key moves on"


# --- the filters against the textbook ------------------------------------------------------------


def textbook(logits: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """The ids kept, one filter after another, each on the renormalised rest."""

    def odds(ids):
        total = math.fsum(math.exp(logits[i]) for i in ids)
        return {i: math.exp(logits[i]) / total for i in ids}

    kept = set(range(len(logits)))
    if top_k:
        kth = sorted(logits)[-min(top_k, len(logits))]
        kept = {i for i in kept if logits[i] >= kth}
    p = odds(kept)
    kept = {i for i in kept if math.fsum(q for q in p.values() if q > p[i]) < top_p}
    p = odds(kept)
    return {i for i in kept if p[i] >= min_p * max(p.values())}


@pytest.mark.parametrize("seed", range(20))
def test_filters_keep_what_the_textbook_keeps(seed):
    draw = random.Random(seed)
    rows = [[draw.gauss(0, 2) for _ in range(41)] for _ in range(3)]
    options = draw.choice((0, 3, 17)), draw.uniform(0.3, 0.99), draw.choice((0, 0.05, 0.3))
    kept = keep_likely(mx.array(rows), *options).tolist()
    for row, values in zip(rows, kept, strict=True):
        assert {i for i, v in enumerate(values) if v > -math.inf} == textbook(row, *options)


@pytest.mark.parametrize("top_p", [1e-320, 1e-45, 1e-9])
def test_the_smallest_top_p_keeps_the_likeliest(top_p):
    kept = keep_likely(mx.array([LOGITS]), 0, top_p, 0.0)[0].tolist()
    assert [i for i, logit in enumerate(kept) if logit > -math.inf] == [2]


def test_ties_with_the_last_one_kept_are_kept():
    logits = mx.array([[1.0, 3.0, 1.0, 2.0, 1.0]])

    def kept(top_k, top_p):
        values = keep_likely(logits, top_k, top_p, 0.0).tolist()[0]
        return [i for i, v in enumerate(values) if v > -math.inf]

    assert kept(2, 1.0) == [1, 3]
    assert kept(3, 1.0) == [0, 1, 2, 3, 4]
    assert kept(3, 0.999) == [0, 1, 2, 3, 4]
    assert kept(0, 0.95) == [0, 1, 2, 3, 4]
    assert kept(3, 0.7) == [1, 3]


def test_short_types_are_scaled_in_float32():
    logits = mx.array([[5.0, 4.0, -100.0]], dtype=mx.bfloat16)
    sampler = make_sampler(temperature=0.7, top_p=0.5, seed=0)
    assert sampler(logits).tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be 0 .* got -0.1"),
        ({"temperature": math.nan}, "temperature .* got nan"),
        ({"temperature": math.inf}, "temperature .* got inf"),
        ({"top_k": -1}, "top_k .* got -1"),
        ({"top_k": 2.5}, "top_k must be a whole number"),
        ({"top_p": 0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "top_p .* at most 1"),
        ({"top_p": math.nan}, "top_p .* got nan"),
        ({"min_p": -0.1}, "min_p must be between"),
        ({"min_p": 1.5}, "min_p .* got 1.5"),
        ({"min_p": math.nan}, "min_p .* got nan"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 2**64}, "seed must be a whole number"),
    ],
)
def test_refused_at_the_door(options, message):
    with pytest.raises(ValueError, match=message):
        make_sampler(**options)
