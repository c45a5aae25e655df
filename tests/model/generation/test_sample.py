"""generation/sample.py on four-entry distributions, by frequency, against the textbook filters, and
against transformers: golden/sampling.jsonl holds what the logits processors that its generate()
puts together (5.24, torch 2.14) make of random logits.

The frequency tests draw 20,000 times with a fixed seed, so they never fail by luck. With a random
seed, a right sampler would miss one of the four bounds of five standard deviations with a
probability below 4 * 5.8e-7 = 2.4e-6.
"""

import json
import math
import random
from collections import Counter

import mlx.core as mx
import pytest
from compare import assert_close
from paths import GOLDEN

from model.generation.sample import (
    History,
    keep_likely,
    make_logprobs,
    make_processors,
    make_sampler,
    process,
)

RECORDED = GOLDEN / "sampling.jsonl"

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


# --- against transformers ------------------------------------------------------------------------


def recorded() -> list[dict]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize("case", recorded(), ids=lambda case: "+".join(case["options"]) or "bias")
def test_processors_and_filters_are_those_of_transformers(case):
    """Values to 1e-4; None stands for an id that is dropped. Their order is in the values."""
    options = dict(case["options"])
    bias = {int(i): b for i, b in case["logit_bias"].items()}
    processors = make_processors(
        repetition_penalty=options.pop("repetition_penalty", 1.0), logit_bias=bias
    )
    temperature = options.pop("temperature", 1.0)
    filters = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | options
    history = History(mx.array(case["ids"][:3]), mx.array(case["ids"][3:]))
    logits = process(processors, history, mx.array([case["logits"]]))
    got = keep_likely(logits / temperature, **filters)[0].tolist()
    expected = [-math.inf if one is None else one for one in case["processed"]]
    assert [one > -math.inf for one in got] == [one > -math.inf for one in expected]
    kept = [i for i, one in enumerate(expected) if one > -math.inf]
    assert_close(mx.array([got[i] for i in kept]), [expected[i] for i in kept], atol=1e-4)


def test_the_recorded_cases_would_notice_another_order():
    """The sampler's own way through a recorded case draws only ids that transformers keeps."""
    case = max(recorded(), key=lambda case: len(case["order"]))
    assert case["order"] == [
        "SequenceBiasLogitsProcessor",
        "RepetitionPenaltyLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "MinPLogitsWarper",
    ]
    late = [c for c in recorded() if set(c["options"]) == {"temperature", "top_p"}]
    noticed = 0
    for case in late:  # top-p before temperature keeps other ids
        logits, options = mx.array([case["logits"]]), case["options"]
        swapped = keep_likely(logits, 0, options["top_p"], 0.0)[0].tolist()
        kept = [one is not None for one in case["processed"]]
        noticed += [one > -math.inf for one in swapped] != kept
        sampler = make_sampler(**options, seed=1)
        drawn = Counter(sampler(mx.broadcast_to(logits, (4000, 16))).tolist())
        assert all(kept[id_] for id_ in drawn)
    assert noticed, "no case tells the two orders apart"


# --- processors ----------------------------------------------------------------------------------

FOUR = [2.0, -1.0, 0.5, 4.0]


def processed(logits=FOUR, prompt=(), generated=(), **options) -> list[float]:
    ids = (mx.array(list(part), dtype=mx.int32) for part in (prompt, generated))
    return process(make_processors(**options), History(*ids), mx.array([logits]))[0].tolist()


@pytest.mark.parametrize(
    ("prompt", "generated", "options", "expected"),
    [
        ((0, 1), (3,), {}, FOUR),
        # Divided where positive, multiplied where negative; the prompt counts, occurrences don't.
        ((0, 1), (), {"repetition_penalty": 2.0}, [1.0, -2.0, 0.5, 4.0]),
        ((1, 1, 1), (3, 3), {"repetition_penalty": 4.0}, [2.0, -4.0, 0.5, 1.0]),
        ((0,), (1,), {"repetition_penalty": 0.5}, [4.0, -0.5, 0.5, 4.0]),
        # Only what was generated counts: once, or as often as it occurs.
        ((0, 2), (1, 3, 3), {"presence_penalty": 1.5}, [2.0, -2.5, 0.5, 2.5]),
        ((0, 2), (1, 3, 3), {"frequency_penalty": 1.5}, [2.0, -2.5, 0.5, 1.0]),
        ((0,), (3, 3), {"presence_penalty": 1, "frequency_penalty": -0.25}, [2.0, -1.0, 0.5, 3.5]),
        ((0, 2), (), {"presence_penalty": 1.0, "frequency_penalty": 1.0}, FOUR),
        ((), (), {"logit_bias": {0: -3, 2: 1.5}}, [-1.0, -1.0, 2.0, 4.0]),
        ((), (), {"logit_bias": {3: -math.inf}}, [2.0, -1.0, 0.5, -math.inf]),
        # The bias comes first, then the repetition penalty, then the subtracted ones.
        ((0,), (), {"logit_bias": {0: -3}, "repetition_penalty": 2.0}, [-2.0, -1.0, 0.5, 4.0]),
        ((), (3,), {"repetition_penalty": 2.0, "presence_penalty": 3.0}, [2.0, -1.0, 0.5, -1.0]),
    ],
)
def test_processors_by_hand(prompt, generated, options, expected):
    assert processed(prompt=prompt, generated=generated, **options) == pytest.approx(expected)


def test_frequencies_after_a_bias_and_a_penalty():
    """ids 2 and 0 at even odds: 0.25 gains a factor of two, and 3 is forbidden."""
    bias = {0: math.log(2), 3: -math.inf}
    logits = processed(LOGITS, generated=(1,), logit_bias=bias, presence_penalty=math.log(10))
    sampler = make_sampler(temperature=1.0, seed=11)
    ids = sampler(mx.broadcast_to(mx.array(logits), (DRAWS, 4)))
    found = [(ids == i).sum().item() / DRAWS for i in range(4)]
    assert_drawn(found, [0.5 / 1.01, 0.01 / 1.01, 0.5 / 1.01, 0])


def test_processors_work_in_float32():
    """In bfloat16 256 + 0.5 is 256."""
    add = make_processors(logit_bias={1: 0.5})
    empty = mx.zeros(0, dtype=mx.int32)
    logits = mx.array([[256.0, 256.0]], dtype=mx.bfloat16)
    assert process(add, History(empty, empty), logits).tolist() == [[256.0, 256.5]]


def test_a_bias_outside_the_vocabulary_is_refused_when_it_is_known():
    with pytest.raises(ValueError, match="logit_bias names id 4, but the vocabulary has only 4"):
        processed(logit_bias={0: 1.0, 4: 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0, .* got 0"),
        ({"repetition_penalty": -1.5}, "repetition_penalty .* got -1.5"),
        ({"repetition_penalty": math.nan}, "repetition_penalty .* got nan"),
        ({"presence_penalty": math.inf}, "presence_penalty must be a finite .* got inf"),
        ({"frequency_penalty": math.nan}, "frequency_penalty must be a finite .* got nan"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias is for ids, .* got -1"),
        ({"logit_bias": {"7": 1.0}}, "logit_bias is for ids, .* got '7'"),
        ({"logit_bias": {7: math.inf}}, "logit_bias of id 7 must be finite or -inf, got inf"),
        ({"logit_bias": {7: math.nan}}, "logit_bias of id 7 .* got nan"),
    ],
)
def test_processors_refused_at_the_door(options, message):
    with pytest.raises(ValueError, match=message):
        make_processors(**options)


# --- log-probabilities ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_logprobs_by_hand(dtype):
    logits = mx.array([LOGITS, LOGITS[::-1]]).astype(dtype)
    found = make_logprobs(logits, mx.array([3, 0]), 2)
    atol = 1e-6 if dtype == mx.float32 else 0.02
    assert_close(found.chosen, [math.log(0.15), math.log(0.15)], atol)
    assert found.top_ids.tolist() == [[2, 0], [1, 3]]
    assert_close(found.top, [[math.log(0.5), math.log(0.25)]] * 2, atol)


@pytest.mark.parametrize(("num_top", "width"), [(0, 0), (1, 1), (4, 4), (9, 4)])
def test_as_many_alternatives_as_there_are(num_top, width):
    found = make_logprobs(mx.array([LOGITS]), mx.array([1]), num_top)
    assert found.top_ids.tolist() == [[2, 0, 3, 1][:width]]
    assert found.top.shape == (1, width)


# --- in the lazy graph ---------------------------------------------------------------------------


def test_nothing_is_read_back():
    """mx.vmap refuses whatever looks at a value. It can't trace the draw itself."""
    history = History(mx.array([1, 2]), mx.array([3]))
    processors = make_processors(
        repetition_penalty=1.2, presence_penalty=1.0, frequency_penalty=0.5, logit_bias={1: 2.0}
    )
    for look in (
        lambda logits: keep_likely(logits, 2, 0.9, 0.1),
        lambda logits: process(processors, history, logits),
        lambda logits: make_logprobs(logits, mx.array([3]), 2).top,
        make_sampler(temperature=0),
    ):
        mx.vmap(look)(mx.array([[LOGITS], [FOUR]]))
    with pytest.raises(ValueError, match="Attempting to eval"):
        mx.vmap(lambda logits: logits * logits.max().item())(mx.array([[LOGITS], [FOUR]]))
