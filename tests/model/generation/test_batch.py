"""generation/batch.py: rows of a batch get what they would get alone."""

import random

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, assert_same_ids, golden

from model.cache import Quantized
from model.config import Config
from model.generation.batch import Batch, generate_batch
from model.generation.batch_cache import BatchKVCache
from model.generation.generate import generate
from model.generation.sample import make_processors, make_sampler
from model.transformer import Transformer
from model.weights.load import load

LENGTHS = (1, 17, 100, 4, 60, 3)


@pytest.fixture(scope="module", params=ALL)
def case(request):
    m, ids = load(REFERENCE / request.param), golden(request.param)["ids"]
    return m, [(5 * ids)[i : i + length] for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def m():
    return load(REFERENCE / "llama-llama3rope")


@pytest.fixture(scope="module")
def prompts():
    ids = golden("llama-llama3rope")["ids"]
    return [(5 * ids)[i : i + length] for i, length in enumerate(LENGTHS)]


def collect(stream, num_prompts):
    rows = [[] for _ in range(num_prompts)]
    for row, one in stream:
        rows[row].append(one)
    return rows


def assert_rows(stream, expected):
    for actual, wanted in zip(collect(stream, len(expected)), expected, strict=True):
        assert_same_ids(actual, wanted)


# --- logits --------------------------------------------------------------------------------------


def padded(rows):
    width = max(map(len, rows))
    return mx.array([row + [9] * (width - len(row)) for row in rows])


def batch_cache(m, num_rows, **form):
    return [BatchKVCache(num_rows, **form) for _ in range(m.config.num_hidden_layers)]


def feed(m, cache, rows):
    """Logits (row's length, V) of each row of ids, padded on the right."""
    logits = m(padded(rows), cache)
    width = logits.shape[1]
    for layer in cache:
        layer.trim_rows([width - len(row) for row in rows])
    return [logits[i, : len(row)] for i, row in enumerate(rows)]


def test_logits_of_unequal_prompts(case):
    m, prompts = case
    cache = batch_cache(m, len(prompts))
    for row, logits in zip(prompts, feed(m, cache, prompts), strict=True):
        assert_close(logits, m(mx.array([row]))[0], atol=2e-4)
    assert cache[0].lengths == list(LENGTHS)


def test_logits_of_unequal_passes_after_unequal_prompts(case):
    """In passes of any lengths: rows that fall behind, catch up and overtake."""
    m, prompts = case
    draw = random.Random(4)
    rows = [list(row) for row in prompts]
    cache = batch_cache(m, len(rows))
    feed(m, cache, rows)
    for _ in range(5):
        new = [[draw.randrange(320) for _ in range(draw.choice((1, 2, 9)))] for _ in rows]
        for own, row, logits in zip(new, rows, feed(m, cache, new), strict=True):
            row += own
            assert_close(logits, m(mx.array([row]))[0, -len(own) :], atol=2e-4)


# --- generating ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_rows", [1, 4, 8])
@pytest.mark.parametrize("prefill_step_size", [7, 512])
def test_greedy_ids_are_those_alone(case, max_rows, prefill_step_size):
    """With four rows for six prompts, and the context's end in the way of the longest."""
    m, prompts = case
    alone = [list(generate(m, ids, max_tokens=25)) for ids in prompts]
    options = {"max_rows": max_rows, "prefill_step_size": prefill_step_size}
    assert_rows(generate_batch(m, prompts, max_tokens=25, **options), alone)


def test_every_row_has_its_own_length(m, prompts):
    limits = [1, 30, 0, 2, 17, 1]
    alone = [list(generate(m, i, max_tokens=n)) for i, n in zip(prompts, limits)]
    for max_rows in (1, 2, 6):
        stream = generate_batch(m, prompts, max_tokens=limits, max_rows=max_rows)
        assert_rows(stream, alone)


def test_the_contexts_end_is_each_rows_own(m, prompts):
    long = [[5] * 250, prompts[1], [7] * 255]
    alone = [list(generate(m, ids, max_tokens=30)) for ids in long]
    assert [len(ids) for ids in alone] == [6, 30, 1]
    assert_rows(generate_batch(m, long, max_tokens=30), alone)


def test_a_sampler_for_each_prompt_draws_as_it_would_alone(m, prompts):
    def samplers():
        return [make_sampler(temperature=1.0, top_k=50, seed=i) for i in range(len(prompts))]

    pairs = zip(prompts, samplers(), strict=True)
    alone = [list(generate(m, ids, max_tokens=15, sampler=own)) for ids, own in pairs]
    for max_rows in (2, 8):
        stream = generate_batch(m, prompts, max_tokens=15, sampler=samplers(), max_rows=max_rows)
        assert_rows(stream, alone)


def test_samplers_may_be_shared_by_some(m, prompts):
    draws = make_sampler(temperature=0.8, seed=1)
    greedy = make_sampler(temperature=0)
    samplers = [greedy, draws, greedy, draws, greedy, draws]
    rows = collect(generate_batch(m, prompts, max_tokens=15, sampler=samplers), 6)
    for i in (0, 2, 4):
        assert_same_ids(rows[i], generate(m, prompts[i], max_tokens=15))
    for i in (1, 3, 5):
        assert rows[i] != list(generate(m, prompts[i], max_tokens=15))


def test_processors_see_their_own_row(m, prompts):
    def penalties():
        return make_processors(repetition_penalty=1.4, presence_penalty=0.3)

    alone = [list(generate(m, i, max_tokens=20, processors=penalties())) for i in prompts]
    stream = generate_batch(m, prompts, max_tokens=20, processors=penalties(), max_rows=3)
    assert_rows(stream, alone)


def test_logprobs_for_those_who_ask(m, prompts):
    batch, given = Batch(m), [[], [], []]
    for ids, num_top in zip(prompts, (2, None, 4)):
        batch.add(ids, max_tokens=9, top_logprobs=num_top)
    while step := batch.step():
        for key, one in step:
            given[key].append(one)
    for ids, num_top, row in zip(prompts, (2, None, 4), given):
        alone = list(generate(m, ids, max_tokens=9, top_logprobs=num_top))
        if num_top is None:
            assert_same_ids(row, alone)
            continue
        for token, wanted in zip(row, alone, strict=True):
            assert token.id == wanted.id
            assert token.logprob == pytest.approx(wanted.logprob, abs=2e-4)
            ranked = [p for _, p in wanted.top]
            assert [p for _, p in token.top] == pytest.approx(ranked, abs=2e-4)
            assert len(token.top) == num_top


def test_a_processor_that_fails_is_refused_before_it_joins_others(m, prompts):
    batch = Batch(m)
    batch.add(prompts[0], max_tokens=5)
    with pytest.raises(ValueError, match="logit_bias names id 320"):
        batch.add(prompts[1], processors=make_processors(logit_bias={320: 1.0}))
    assert len([batch.step() for _ in range(6)][4]) == 1
    assert batch.step() == []


def test_stop_ids_end_their_row_only(m, prompts):
    def samplers():
        return [make_sampler(temperature=1.0, seed=i) for i in range(len(prompts))]

    pairs = zip(prompts, samplers(), strict=True)
    alone = [list(generate(m, ids, max_tokens=40, sampler=own)) for ids, own in pairs]
    stop = {alone[1][7], alone[4][12]}
    expected = []
    for ids in alone:
        end = next((i + 1 for i, one in enumerate(ids) if one in stop), len(ids))
        expected.append(ids[:end])
    assert len({len(ids) for ids in expected}) > 2
    options = {"max_tokens": 40, "stop_ids": stop, "max_rows": 3, "sampler": samplers()}
    assert_rows(generate_batch(m, prompts, **options), expected)


def test_ids_stay_below_vocab_size(m, prompts):
    prompts = [[one % 50 for one in ids] for ids in prompts]
    alone = [list(generate(m, ids, max_tokens=20, vocab_size=50)) for ids in prompts]
    assert_rows(generate_batch(m, prompts, max_tokens=20, vocab_size=50), alone)


@pytest.fixture
def wide():
    """A model with heads of 32 values, which can be quantized."""
    mx.random.seed(3)
    config = Config(
        model_type="llama",
        vocab_size=50,
        hidden_size=48,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=99,
        rms_norm_eps=1e-6,
    )
    return Transformer(config)


def test_quantized_rows_are_those_of_a_quantized_cache(wide):
    """The values are rounded the same way, row by row."""
    m, rows = wide, [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10]]
    cache = batch_cache(m, 3, form=Quantized(8, 32))
    feed(m, cache, rows)
    for row, logits in zip(rows, feed(m, cache, [[11], [12], [13]]), strict=True):
        own = m.make_cache(bits=8, group_size=32)
        m(mx.array([row]), own)
        assert_close(logits, m(mx.array([[11 + rows.index(row)]]), own)[0], atol=2e-4)


# --- rows added and removed while others run -----------------------------------------------------


def test_rows_added_and_removed_on_the_way(m, prompts):
    alone = [list(generate(m, ids, max_tokens=30)) for ids in prompts]
    batch, given = Batch(m, max_rows=3), {}

    def steps(number):
        for _ in range(number):
            for key, one in batch.step():
                given.setdefault(key, []).append(one)

    assert batch.step() == []
    first = batch.add(prompts[0], max_tokens=30)
    steps(5)
    second = batch.add(prompts[2], max_tokens=30)
    steps(5)
    more = [batch.add(prompts[i], max_tokens=30) for i in (1, 3, 4)]
    steps(3)
    batch.remove(second)
    batch.remove(more[2])  # it was still waiting
    steps(60)
    assert_same_ids(given[first], alone[0])
    assert_same_ids(given[second], alone[2][:8])
    assert_same_ids(given[more[0]], alone[1])
    assert_same_ids(given[more[1]], alone[3])
    assert more[2] not in given
    assert batch.step() == []
    again = batch.add(prompts[5], max_tokens=30)
    steps(40)
    assert_same_ids(given[again], alone[5])
    batch.remove(again)
    batch.remove(12345)


class Spy:
    """A model that writes down the shapes it is asked for."""

    def __init__(self, m):
        self.m, self.config, self.passes = m, m.config, []

    def make_cache(self):
        return self.m.make_cache()

    def hidden(self, ids, cache):
        self.passes.append(ids.shape)
        return self.m.hidden(ids, cache)

    def head(self, hidden):
        return self.m.head(hidden)


def test_prompts_of_about_one_length_are_read_together(m, prompts):
    spy, ids = Spy(m), prompts[2]
    rows = [ids[:10], ids[1:81], ids[2:11], ids[3:93], ids[4:15]]  # nothing in common
    list(generate_batch(spy, rows, max_tokens=3))
    assert spy.passes == [(3, 11), (2, 90), (5, 1), (5, 1)]


def test_freed_places_are_filled_at_once(m, prompts):
    spy = Spy(m)
    stream = generate_batch(
        spy, [ids[:3] for ids in prompts[1:5]], max_tokens=[2, 9, 4, 4], max_rows=2
    )
    assert len(collect(stream, 4)[1]) == 9
    steps = [rows for rows, length in spy.passes if length == 1]
    assert max(steps) == 2
    assert steps.count(2) >= 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 0}, "max_rows and prefill_step_size must be at least 1, got 0"),
        ({"max_tokens": -1}, "max_tokens must be at least 0"),
        ({"max_tokens": [1, 2]}, "there are 2 max_tokens for 6 prompts"),
        ({"sampler": []}, "there are 0 samplers for 6 prompts"),
        ({"vocab_size": 3}, "outside the vocabulary of 3 ids"),
    ],
)
def test_refused_at_the_call(m, prompts, options, message):
    with pytest.raises(ValueError, match=message):
        generate_batch(m, prompts, **options)


@pytest.mark.parametrize(("ids", "message"), [([], "empty"), ([1] * 256, "leaves no room")])
def test_prompts_refused_at_the_call(m, prompts, ids, message):
    with pytest.raises(ValueError, match=message):
        generate_batch(m, [prompts[0], ids])


# --- what prompts have in common -----------------------------------------------------------------


def num_fed(spy):
    """Ids that a model was fed, those that only pad included."""
    return sum(rows * length for rows, length in spy.passes)


def alone(m, prompts, num_tokens, **form):
    return [
        list(generate(m, ids, max_tokens=num_tokens, cache=m.make_cache(**form))) for ids in prompts
    ]


def answers(batch, prompts, num_tokens):
    keys = [batch.add(ids, max_tokens=num_tokens) for ids in prompts]
    rows = {key: [] for key in keys}
    while given := batch.step():
        for key, one in given:
            rows[key].append(one)
    return [rows[key] for key in keys]


@pytest.mark.parametrize("max_rows", [1, 2, 8])
@pytest.mark.parametrize("step_size", [32, 512])
def test_a_common_beginning_is_read_once(case, max_rows, step_size):
    m, (_, rest, _, short, longer, _) = case
    common = [7 * n % 320 for n in range(50)]
    rests = [rest, short, longer[:20], rest[::-1], [7], short[:1]]
    prompts = [common + own for own in rests]
    spy = Spy(m)
    found = answers(Batch(spy, max_rows=max_rows, prefill_step_size=step_size), prompts, 6)
    for actual, wanted in zip(found, alone(m, prompts, 6), strict=True):
        assert_same_ids(actual, wanted)
    num_padding = 8 * 20 if max_rows > 1 else 0
    num_decoded = len(prompts) * 6
    assert num_fed(spy) <= 50 + sum(map(len, rests)) + num_padding + num_decoded < 6 * 50 + 200


def test_each_common_beginning_in_its_turn(m):
    """Rows that share much, little or nothing, one that is a beginning of others, and the same."""
    ids = golden("llama-llama3rope")["ids"]
    a, b = ids[:40], ids[40:90]
    prompts = [
        [*a, 5], [*a, 6, 7], a, [*b, 8], [*b, *a], [9], b, b, [*a, *b, 4], [*a, *b, 3], a + b,
        [*a, 11], [*a, 12, 13], [*a, 14],
    ]  # fmt: skip
    expected = alone(m, prompts, 5)
    for max_rows in (1, 2, 3, 8):
        found = answers(Batch(m, max_rows=max_rows), prompts, 5)
        for actual, wanted in zip(found, expected, strict=True):
            assert_same_ids(actual, wanted)


def test_prompts_that_come_later_use_what_is_read(m):
    ids = golden("llama-llama3rope")["ids"]
    spy = Spy(m)
    batch = Batch(spy, max_rows=2)
    prompts = [[*ids[:60], own] for own in (4, 5, 6, 7)]
    expected = alone(m, prompts, 3)
    for turn, num_read in ((slice(0, 2), 60 + 2), (slice(2, 4), 2), (slice(0, 1), 1)):
        before = num_fed(spy)
        found = answers(batch, prompts[turn], 3)
        for actual, wanted in zip(found, expected[turn], strict=True):
            assert_same_ids(actual, wanted)
        assert num_fed(spy) - before == num_read + 2 * len(found)  # two of three are fed


def test_a_beginning_of_what_is_read_is_enough(m):
    ids = golden("llama-llama3rope")["ids"]
    batch = Batch(m)
    answers(batch, [[*ids[:90], own] for own in (4, 5)], 1)
    prompts = [[*ids[:40], own, 6] for own in (4, 5)]
    spy = batch._m = Spy(m)
    for actual, wanted in zip(answers(batch, prompts, 5), alone(m, prompts, 5), strict=True):
        assert_same_ids(actual, wanted)
    assert spy.passes[0] == (2, 2)


def test_a_common_beginning_in_quantized_form(wide):
    m, form = wide, {"bits": 8, "group_size": 32}
    prompts = [[*range(1, 41), *own] for own in ([5], [*range(20)], [6, 7])]
    found = answers(Batch(m, max_rows=2, **form), prompts, 4)
    for actual, wanted in zip(found, alone(m, prompts, 4, **form), strict=True):
        assert_same_ids(actual, wanted)


def test_few_common_ids_are_not_worth_a_pass(m):
    spy = Spy(m)
    answers(Batch(spy), [[*range(3, 30), own] for own in (4, 5)], 1)
    assert num_fed(spy) == 2 * 28
