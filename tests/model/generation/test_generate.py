"""generate.py: the recorded ids, what the cache holds afterwards, where the loop ends."""

import itertools
import math

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_same_ids, golden

from model.config import Config
from model.generation.generate import generate
from model.generation.sample import make_processors, make_sampler
from model.transformer import Transformer
from model.weights.load import load

CONTEXT = 256  # of every reference model


@pytest.fixture(scope="module", params=ALL)
def case(request):
    return load(REFERENCE / request.param), golden(request.param)


@pytest.fixture(scope="module")
def m():
    return load(REFERENCE / "llama-llama3rope")


@pytest.fixture(scope="module")
def expected():
    return golden("llama-llama3rope")


def offsets(cache) -> set[int]:
    return {layer.offset for layer in cache}


@pytest.mark.parametrize("prefill_step_size", [1, 7, 24, 512])
def test_recorded_ids_whatever_the_passes(case, prefill_step_size):
    m, expected = case
    options = {"max_tokens": 12, "prefill_step_size": prefill_step_size}
    assert_same_ids(generate(m, expected["ids"], **options), expected["greedy"])


def test_ids_are_python_ints(m, expected):
    assert [type(i) for i in generate(m, expected["ids"], max_tokens=2)] == [int, int]


def test_any_sequence_of_ids_will_do(m, expected):
    ids = generate(m, mx.array(expected["ids"]).tolist(), max_tokens=3)
    assert_same_ids(ids, expected["greedy"][:3])
    assert_same_ids(generate(m, tuple(expected["ids"]), max_tokens=3), expected["greedy"][:3])


def test_a_seeded_sampler_repeats(m, expected):
    def ids(seed):
        sampler = make_sampler(temperature=1.0, top_k=50, seed=seed)
        return list(generate(m, expected["ids"], max_tokens=20, sampler=sampler))

    assert_same_ids(ids(3), ids(3))
    assert ids(3) != ids(4)


# --- processors and log-probabilities --------------------------------------------------------


def test_processors_see_the_ids_so_far(m, expected):
    seen = []

    def watch(history, logits):
        seen.append((history.prompt, history.generated))
        return logits

    ids = expected["ids"]
    produced = list(generate(m, ids, max_tokens=4, processors=[watch]))
    assert_same_ids(produced, expected["greedy"][:4])
    for number, (prompt, generated) in enumerate(seen):
        assert_same_ids(prompt.tolist(), ids)
        assert_same_ids(generated.tolist(), produced[:number])
    assert len(seen) == 4


def test_a_penalty_is_what_a_slow_loop_makes_of_it(case):
    m, expected = case
    ids, produced = list(expected["ids"]), []
    for _ in range(12):
        logits = m(mx.array([ids + produced]))[0, -1].tolist()
        for one in {*ids, *produced}:
            logits[one] = logits[one] * 1.5 if logits[one] < 0 else logits[one] / 1.5
        for one in produced:
            logits[one] -= 0.2
        produced.append(max(range(len(logits)), key=logits.__getitem__))
    processors = make_processors(repetition_penalty=1.5, frequency_penalty=0.2)
    assert_same_ids(generate(m, ids, max_tokens=12, processors=processors), produced)
    assert produced != expected["greedy"]


def test_processors_see_cached_ids_as_well(m, expected):
    ids, cache, seen = expected["ids"], m.make_cache(), []

    def watch(history, logits):
        seen.append(history.prompt)
        return logits

    m.hidden(mx.array([ids[:60]]), cache)
    options = {"max_tokens": 3, "processors": [watch], "cache": cache}
    list(generate(m, ids[60:], cached_ids=ids[:60], **options))
    for prompt in seen:
        assert_same_ids(prompt.tolist(), ids)


@pytest.mark.parametrize("draft", [None, "ngram"])
def test_tokens_with_logprobs(case, draft):
    m, expected = case
    ids = expected["ids"][:30] * 2
    plain = list(generate(m, ids, max_tokens=40))
    tokens = list(generate(m, ids, max_tokens=40, top_logprobs=3, draft=draft))
    assert_same_ids([token.id for token in tokens], plain)
    logits = m(mx.array([ids + plain]))[0, len(ids) - 1 : -1]
    logprobs = (logits - mx.logsumexp(logits, axis=-1, keepdims=True)).tolist()
    for token, row in zip(tokens, logprobs, strict=True):
        assert token.logprob == pytest.approx(row[token.id], abs=2e-4)
        ranked = sorted(row, reverse=True)[:3]
        assert [p for _, p in token.top] == pytest.approx(ranked, abs=2e-4)
        assert [row[i] for i, _ in token.top] == pytest.approx(ranked, abs=2e-4)
        assert token.top[0] == (token.id, token.logprob)


def test_logprobs_are_the_models_own(m, expected):
    """Whatever drew the id: here a bias made sure of it."""
    ids, bias = expected["ids"], make_processors(logit_bias={5: 1000.0})
    (token,) = generate(m, ids, max_tokens=1, processors=bias, top_logprobs=0)
    logits = m(mx.array([ids]))[0, -1]
    assert (token.id, token.top) == (5, ())
    assert token.logprob == pytest.approx((logits[5] - mx.logsumexp(logits)).item(), abs=2e-4)


def test_logprobs_share_the_ids_there_are(m, expected):
    """Ids that only pad the embedding have no share in the probabilities."""
    ids = [one for one in expected["ids"] if one < 50]
    (token,) = generate(m, ids, max_tokens=1, vocab_size=50, top_logprobs=50)
    assert sum(math.exp(p) for _, p in token.top) == pytest.approx(1, abs=1e-4)


# --- one step ahead, and no further ---------------------------------------------------------------


class Spy:
    """A model that writes down the shapes it is asked for."""

    def __init__(self, m):
        self.m, self.config, self.passes, self.heads = m, m.config, [], []

    def make_cache(self):
        return self.m.make_cache()

    def hidden(self, ids, cache):
        self.passes.append(ids.shape)
        return self.m.hidden(ids, cache)

    def head(self, hidden):
        self.heads.append(hidden.shape)
        return self.m.head(hidden)


def test_passes_and_heads(m, expected):
    """100 prompt ids by 40; the head only for one position of the last pass and of each step."""
    spy = Spy(m)
    list(generate(spy, expected["ids"], max_tokens=3, prefill_step_size=40))
    assert spy.passes == [(1, 40), (1, 40), (1, 20), (1, 1), (1, 1)]
    assert spy.heads == [(1, 64)] * 3


def test_one_step_ahead_of_the_reader(m, expected):
    spy = Spy(m)
    stream = generate(spy, expected["ids"], max_tokens=5)
    assert spy.passes == [], "nothing runs before the first id is asked for"
    steps = []
    for _ in stream:
        steps.append(len(spy.passes))
    assert steps == [1, 3, 4, 5, 5], "the first id waits for nothing, the others are a step ahead"


def test_nothing_is_computed_for_no_ids(m, expected):
    spy = Spy(m)
    assert list(generate(spy, expected["ids"], max_tokens=0)) == []
    assert spy.passes == []


def test_on_prefill(m, expected):
    calls = []
    stream = generate(
        m, expected["ids"], prefill_step_size=40, on_prefill=lambda *done: calls.append(done)
    )
    next(stream)
    assert calls == [(40, 100), (80, 100), (100, 100)]


# --- the cache -----------------------------------------------------------------------------------


def test_a_stream_that_ends_leaves_all_but_the_last_id_in_the_cache(m, expected):
    cache = m.make_cache()
    produced = list(generate(m, expected["ids"], max_tokens=5, cache=cache))
    assert offsets(cache) == {100 + 4}
    assert_same_ids(generate(m, produced[-1:], max_tokens=7, cache=cache), expected["greedy"][5:])


@pytest.mark.parametrize(("read", "held"), [(1, 0), (2, 2), (4, 4)])
def test_a_stream_that_is_closed_leaves_all_ids_in_the_cache(m, expected, read, held):
    cache = m.make_cache()
    stream = generate(m, expected["ids"], max_tokens=12, cache=cache)
    produced = list(itertools.islice(stream, read))
    assert_same_ids(produced, expected["greedy"][:read])
    stream.close()
    assert offsets(cache) == {100 + held}
    # Continue elsewhere: from the prompt's last id, after trimming what follows.
    for layer in cache:
        layer.trim(held + 1)
    again = generate(m, expected["ids"][-1:], max_tokens=12, cache=cache)
    assert_same_ids(again, expected["greedy"])


def test_a_prefix_in_the_cache_need_not_be_fed_again(case):
    m, expected = case
    ids, cache = expected["ids"], m.make_cache()
    m.hidden(mx.array([ids[:9]]), cache)
    assert_same_ids(generate(m, ids[9:], max_tokens=12, cache=cache), expected["greedy"])


def test_a_failure_within_a_pass_leaves_all_layers_alike(m, expected, monkeypatch):
    """Interrupted in the second layer of the second pass: the first pass stays."""
    cache, update = m.make_cache(), type(m.make_cache()[0]).update

    def interrupted(layer, keys, values):
        if layer is cache[1] and layer.offset == 40:
            raise KeyboardInterrupt
        return update(layer, keys, values)

    monkeypatch.setattr(type(cache[0]), "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(generate(m, expected["ids"], cache=cache, prefill_step_size=40))
    assert offsets(cache) == {40}
    monkeypatch.undo()
    rest = generate(m, expected["ids"][40:], max_tokens=12, cache=cache)
    assert_same_ids(rest, expected["greedy"])


def test_a_failure_that_a_rotating_cache_cannot_take_back_empties_it(m, expected, monkeypatch):
    """Its first layer has turned over; an empty cache is a beginning too."""
    cache, update = m.make_cache(max_size=30), type(m.make_cache(max_size=30)[0]).update

    def interrupted(layer, keys, values):
        if layer is cache[1] and layer.offset == 80:
            raise KeyboardInterrupt
        return update(layer, keys, values)

    monkeypatch.setattr(type(cache[0]), "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(generate(m, [*expected["ids"], *expected["ids"]], cache=cache, prefill_step_size=40))
    assert offsets(cache) == {0}


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="measured on CPUs only")
def test_steps_write_into_the_cache_in_place():
    """Read off the memory: a step that copied the cache would raise the peak."""
    config = Config(
        model_type="qwen3",
        vocab_size=31,
        hidden_size=20,
        intermediate_size=14,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=8192,
        rms_norm_eps=1e-6,
    )
    m, length = Transformer(config), 2 * 2048 - 20  # twenty more fit without growing
    mx.eval(m.parameters())
    before = mx.get_active_memory()
    cache, filler = m.make_cache(), mx.ones((1, 8, length, 64))
    for layer in cache:
        layer.update(filler, filler)
        mx.eval(layer.state)
    del filler
    mx.reset_peak_memory()
    assert len(list(generate(m, [1], max_tokens=12, cache=cache))) == 12
    num_bytes = sum(buffer.nbytes for layer in cache for buffer in layer.state)
    assert mx.get_peak_memory() - before < 1.1 * num_bytes


# --- limits --------------------------------------------------------------------------------------


def test_padding_rows_are_never_given_out(m):
    """vocab_size cuts off the id the model likes best; the best of the others comes instead."""
    ids = [3, 1, 4]
    logits = m(mx.array([ids]))[0, -1]
    best = logits.argmax().item()
    assert best > max(ids), "the case needs a prompt that stays below the limit"
    (chosen,) = generate(m, ids, max_tokens=1, vocab_size=best)
    assert chosen == logits[:best].argmax().item()
    sampler = make_sampler(temperature=5.0, seed=0)
    assert max(generate(m, ids, max_tokens=200, sampler=sampler, vocab_size=180)) < 180


def test_a_vocabulary_larger_than_the_embedding_is_no_limit(m, expected):
    options = {"max_tokens": 3, "vocab_size": 1000}
    assert_same_ids(generate(m, expected["ids"], **options), expected["greedy"][:3])


def test_it_ends_at_the_end_of_the_context(m):
    cache, prompt = m.make_cache(), [1] * (CONTEXT - 3)
    assert len(list(generate(m, prompt, max_tokens=99, cache=cache))) == 3
    assert offsets(cache) == {CONTEXT - 1}


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([5, 320], {}, "id 320 at index 1 of the prompt is outside the vocabulary of 320"),
        ([5, 6, -1], {}, "id -1 at index 2"),
        ([5, 300], {"vocab_size": 300}, "id 300 at index 1 .* of 300 ids"),
        ([1] * CONTEXT, {}, "prompt of 256 ids leaves no room .* of 256 positions"),
        ([1], {"max_tokens": -1}, "max_tokens must be at least 0"),
        ([1], {"prefill_step_size": 0}, "prefill_step_size at least 1"),
        ([1], {"cache": []}, "the cache has 0 layers and the model 3"),
        ([1], {"cached_ids": [4, 320]}, "id 320 at index 1 of the prompt"),
        ([1], {"top_logprobs": -1}, "top_logprobs must be between 0 and the 320 ids"),
        ([1], {"top_logprobs": 300, "vocab_size": 299}, "between 0 and the 299 .* got 300"),
    ],
)
def test_refused_at_the_call(m, ids, options, message):
    with pytest.raises(ValueError, match=message):
        generate(m, ids, **options)


def test_what_is_cached_counts_towards_the_context(m):
    cache = m.make_cache()
    m.hidden(mx.array([[1] * (CONTEXT - 2)]), cache)
    with pytest.raises(ValueError, match="2 ids after 254 cached ones leaves no room"):
        generate(m, [1, 1], cache=cache)
    assert len(list(generate(m, [1], cache=cache))) == 1


def test_every_pass_looks_how_many_threads_are_free(m, expected, monkeypatch):
    looks = []
    monkeypatch.setattr("model.cpu.adapt", lambda: looks.append(1) or 1)
    ids = expected["ids"]
    list(generate(m, ids, max_tokens=5, prefill_step_size=10))
    assert len(looks) == -(-len(ids) // 10) + 4  # prefill passes, then one for each further id
