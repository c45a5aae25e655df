"""generation/speculative.py: drafts change how fast ids come, never which.

The frequency test draws 20,000 times with a fixed seed. With a random seed a right scheme would
miss one of its sixteen bounds of five standard deviations with a probability below 1e-5.
"""

import itertools
import math
import random

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_same_ids, golden

import bpe
from model.config import Config
from model.generation.generate import generate
from model.generation.loop import MAX_DRAFT
from model.generation.sample import make_processors, make_sampler
from model.generation.speculative import ModelDraft, NGramDraft, make_drafter, pass_cost
from model.weights.load import load

CONTEXT = 256  # of every reference model


@pytest.fixture(scope="module", params=ALL)
def any_model(request):
    return load(REFERENCE / request.param), golden(request.param)["ids"]


@pytest.fixture(scope="module")
def m():
    return load(REFERENCE / "llama-llama3rope")


@pytest.fixture(scope="module")
def ids():
    return golden("llama-llama3rope")["ids"]


class Spy:
    """A model that writes down how many ids each pass has."""

    def __init__(self, m):
        self.m, self.config, self.passes = m, m.config, []

    def make_cache(self, **options):
        return self.m.make_cache(**options)

    def parameters(self):
        return self.m.parameters()

    def hidden(self, ids, cache):
        self.passes.append(ids.shape[1])
        return self.m.hidden(ids, cache)

    def head(self, hidden):
        return self.m.head(hidden)


class Oracle:
    """Drafts from ids known beforehand, wrong from a random place on."""

    def __init__(self, ids, seed):
        self.ids, self.draw, self.learnt = list(ids), random.Random(seed), []

    def propose(self, ids, limit):
        length = min(limit, self.draw.randint(0, MAX_DRAFT))
        draft = self.ids[len(ids) : len(ids) + length]
        wrong = self.draw.randint(0, MAX_DRAFT)
        return [one if i < wrong else (one + 1) % 320 for i, one in enumerate(draft)]

    def is_ready(self, ids):
        return self.draw.random() < 0.5

    def learn(self, num_drafted, num_right):
        self.learnt.append((num_drafted, num_right))


# --- the same ids --------------------------------------------------------------------------------


def test_ngram_drafts_give_the_greedy_ids(any_model):
    """Half of the prompt twice, so that there is something to copy, right or wrong."""
    m, ids = any_model
    prompt = ids[:40] * 2 + ids[40:60]
    plain = list(generate(m, prompt, max_tokens=120))
    spy = Spy(m)
    assert_same_ids(generate(spy, prompt, max_tokens=120, draft="ngram"), plain)
    checked = [length for length in spy.passes[1:] if length > 1]
    assert checked, "the case needs drafts"


@pytest.mark.parametrize("seed", range(5))
def test_any_drafts_give_the_greedy_ids(any_model, seed):
    m, ids = any_model
    plain = list(generate(m, ids, max_tokens=50))
    oracle = Oracle(ids + plain, seed)
    assert_same_ids(generate(m, ids, max_tokens=50, draft=oracle), plain)
    assert {drafted == right for drafted, right in oracle.learnt} == {True, False}


def test_what_is_learnt_is_how_the_draft_fared(m, ids):
    plain = list(generate(m, ids, max_tokens=30))
    right = Oracle(ids + plain, 0)
    right.propose = lambda known, limit: right.ids[len(known) : len(known) + min(limit, 7)]
    right.is_ready = lambda known: True
    spy = Spy(m)
    assert_same_ids(generate(spy, ids, max_tokens=30, draft=right), plain)
    assert right.learnt == [(7, 7), (7, 7), (7, 7), (4, 4)]
    assert spy.passes == [100, 8, 8, 8, 5]


def test_a_model_drafts_for_itself(m, ids):
    """Everything is right: drafts grow to their greatest length, if they are said to be cheap."""
    plain, spy = list(generate(m, ids, max_tokens=60)), Spy(m)
    draft = ModelDraft(m, 320, 0.05)
    assert_same_ids(generate(spy, ids, max_tokens=60, draft=draft), plain)
    assert spy.passes == [100, 5, 9, 17, 17, 11]


def test_a_draft_model_as_large_as_the_model_does_not_pay(m, ids):
    plain, spy = list(generate(m, ids, max_tokens=60)), Spy(m)
    assert_same_ids(generate(spy, ids, max_tokens=60, draft=m), plain)
    lengths = [length for length in spy.passes[1:] if length > 1]
    assert lengths == [5, 9, 17], "with pauses of 8 and 16 ids between them"


def test_another_model_drafts(m, ids):
    """Random weights don't agree: after a few drafts the pauses are long."""
    plain, spy = list(generate(m, ids, max_tokens=120)), Spy(m)
    other = load(REFERENCE / "qwen2-bias")
    assert_same_ids(generate(spy, ids, max_tokens=120, draft=other), plain)
    assert 1 <= sum(length > 1 for length in spy.passes[1:]) <= 6


def test_smollm2_gives_the_same_ids(smollm2_path):
    m, tok = load(smollm2_path), bpe.Tokenizer.from_file(smollm2_path)
    for text, pays in (
        ("one two three four five six seven, one two three four", True),
        ("Jack and Jill went up the hill", False),
    ):
        ids, spy = tok.encode(text), Spy(m)
        plain = list(generate(m, ids, max_tokens=24))
        assert_same_ids(generate(spy, ids, max_tokens=24, draft="ngram"), plain)
        assert (len(spy.passes) < 20) == pays


@pytest.mark.parametrize("max_size", [30, 90])
def test_drafts_in_a_rotating_cache(m, ids, max_size):
    def run(**options):
        cache = m.make_cache(max_size=max_size)
        return list(generate(m, ids, max_tokens=80, cache=cache, **options))

    plain = run()
    for seed in range(3):
        assert_same_ids(run(draft=Oracle(ids + plain, seed)), plain)


def test_processors_see_the_draft_before_them(m, ids):
    """Each place of a draft is judged with the ids that come before that place."""
    options = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "logit_bias": {7: 2.0}}

    def run(**drafts):
        processors = make_processors(**options)
        return list(generate(m, ids, max_tokens=60, processors=processors, **drafts))

    plain = run()
    assert plain != list(generate(m, ids, max_tokens=60))
    for seed in range(5):
        assert_same_ids(run(draft=Oracle(ids + plain, seed)), plain)


# --- a scripted model ----------------------------------------------------------------------------


class Layer:
    def __init__(self):
        self.offset, self.state = 0, []

    @property
    def trimmable(self):
        return self.offset

    def trim(self, num_tokens):
        assert 0 <= num_tokens <= self.offset
        self.offset -= num_tokens


class Chain:
    """A Markov chain: logits depend on the last id alone; `blur` is added in passes over many."""

    def __init__(self, logits, blur=None):
        self.logits, self.blur = mx.array(logits), blur
        sizes = dict.fromkeys(
            ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"), 4
        )
        self.config = Config(
            model_type="llama",
            vocab_size=len(logits),
            num_hidden_layers=1,
            head_dim=2,
            max_position_embeddings=10**6,
            rms_norm_eps=1e-6,
            **sizes,
        )

    def make_cache(self):
        return [Layer()]

    def hidden(self, ids, cache):
        cache[0].offset += ids.shape[1]
        return ids[..., None]

    def head(self, hidden):
        logits = self.logits[hidden[:, 0]]
        return logits + mx.array(self.blur) if self.blur and hidden.shape[0] > 1 else logits


@pytest.mark.parametrize("kind", ["ngram", "random"])
def test_samples_come_from_the_same_distribution(kind):
    p = [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25] * 4, [0.05, 0.05, 0.05, 0.85]]
    chain = Chain([[math.log(one) for one in row] for row in p])
    draw = random.Random(1)
    if kind == "ngram":
        draft = NGramDraft()
        draft.learn = lambda num_drafted, num_right: None  # or it would fall silent
    else:
        draft = Oracle([draw.choice((0, 3, 3)) for _ in range(20_100)], 1)
    sampler = make_sampler(temperature=1.0, seed=7)
    ids = list(generate(chain, [0], max_tokens=20_000, sampler=sampler, draft=draft))
    for before in range(4):
        after = [b for a, b in zip([0, *ids], ids) if a == before]
        for one in range(4):
            bound = 5 * math.sqrt(p[before][one] * (1 - p[before][one]) / len(after))
            assert abs(after.count(one) / len(after) - p[before][one]) <= bound


class Wrong:
    """Drafts what a blurred pass takes for right, more of it than is asked for."""

    def propose(self, ids, limit):
        return [0, 1] * 6 if ids[-1] == 1 else [1, 0] * 6

    def is_ready(self, ids):
        return True

    def learn(self, num_drafted, num_right):
        pass


@pytest.mark.parametrize("draft", ["ngram", Wrong()])
def test_a_near_tie_is_left_to_a_plain_step(draft):
    """After 1 the ids 2 and 0 are 2e-4 apart, and a pass over many ids would turn them round."""
    logits = [[0, 5, 0], [1.0, 0, 1.0002], [0, 5, 0]]
    prompt, options = [1, 2, 1, 2, 1, 2, 1, 2], {"max_tokens": 30}
    plain = list(generate(Chain(logits), prompt, **options))
    assert plain == [1, 2] * 15
    blurred = Chain(logits, blur=[4e-4, 0, 0])
    cache = blurred.make_cache()
    assert_same_ids(generate(blurred, prompt, cache=cache, draft=draft, **options), plain)
    assert cache[0].offset == len(prompt) + 29


def test_a_drafter_that_drafts_too_much_is_cut(m):
    prompt, draft = [1, 2], Wrong()
    cache = m.make_cache()
    ids = list(generate(m, prompt, max_tokens=6, cache=cache, draft=draft))
    assert_same_ids(ids, generate(m, prompt, max_tokens=6))
    chain = Chain([[0.0, 5, 0], [5, 0, 0], [0, 5, 0]])
    assert list(generate(chain, [1], max_tokens=6, draft=draft)) == [0, 1, 0, 1, 0, 1]


def test_a_long_draft_is_cut_to_what_a_rotating_cache_can_take_back(m, ids):
    class Long(Wrong):
        def propose(self, ids, limit):
            limits.append(limit)
            return [0] * 40

    limits = []
    expected = list(generate(m, ids, max_tokens=50, cache=m.make_cache(max_size=24)))
    cache = m.make_cache(max_size=24)
    assert_same_ids(generate(m, ids, max_tokens=50, cache=cache, draft=Long()), expected)
    assert max(limits) == MAX_DRAFT


# --- what the cache holds, and limits ------------------------------------------------------------


@pytest.mark.parametrize("read", [2, 3, 6, 9])
def test_closing_takes_back_what_the_reader_has_not_got(m, ids, read):
    plain, cache = list(generate(m, ids, max_tokens=30)), m.make_cache()
    oracle = Oracle(ids + plain, 0)
    oracle.propose = lambda known, limit: oracle.ids[len(known) : len(known) + min(limit, 7)]
    stream = generate(m, ids, max_tokens=30, cache=cache, draft=oracle)
    assert_same_ids(itertools.islice(stream, read), plain[:read])
    stream.close()
    assert {layer.offset for layer in cache} <= {100 + read, 100 + read - 1}
    rest = [*ids, *plain[:read]][cache[0].offset :] or None
    if rest is None:
        for layer in cache:
            layer.trim(1)
        rest = plain[read - 1 : read]
    assert_same_ids(generate(m, rest, max_tokens=30 - read, cache=cache), plain[read:])


def test_drafts_end_where_the_ids_end(m):
    """At max_tokens, and at the context's end."""
    prompt = [3, 1, 4, 1, 5, 9] * 30
    for wanted in (1, 2, 3, 9):
        ids = list(generate(m, prompt, max_tokens=wanted, draft="ngram"))
        assert_same_ids(ids, generate(m, prompt, max_tokens=wanted))
    cache = m.make_cache()
    ids = list(generate(m, prompt, max_tokens=999, draft=m, cache=cache))
    assert len(ids) == CONTEXT - len(prompt)
    assert cache[0].offset == CONTEXT - 1


def test_cached_ids_are_drafted_from(m, ids):
    cache, prompt = m.make_cache(), ids[:40] * 2
    m.hidden(mx.array([prompt[:70]]), cache)
    asked = []

    class Watch(NGramDraft):
        def propose(self, known, limit):
            asked.append(list(known))
            return super().propose(known, limit)

    stream = generate(m, prompt[70:], cache=cache, cached_ids=prompt[:70], draft=Watch())
    produced = list(itertools.islice(stream, 4))
    assert asked[0][: len(prompt) + 1] == prompt + produced[:1]


# --- the drafters alone --------------------------------------------------------------------------


def test_ngram_copies_what_followed():
    draft = NGramDraft()
    assert draft.propose([1, 2, 3, 4, 5], 9) == [], "nothing repeats"
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5]
    assert draft.propose(ids, 9) == [6, 7, 8, 1]
    assert draft.propose(ids, 2) == [6, 7]
    assert draft.propose(ids, 0) == []
    assert draft.is_ready(ids)
    assert NGramDraft().propose([2, 3, 4, 5, 6, 9, 2, 3, 4, 5], 9) == [], "four are too few"


def test_ngram_prefers_the_latest_occurrence():
    ids = [1, 2, 3, 4, 5, 7, 1, 2, 3, 4, 5, 8, 9, 1, 2, 3, 4, 5]
    assert NGramDraft().propose(ids, 2) == [8, 9]


def test_ngram_drafts_grow_while_they_are_right():
    draft, ids = NGramDraft(), list(range(100)) * 2
    lengths = []
    for _ in range(4):
        lengths.append(len(draft.propose(ids, 99)))
        draft.learn(lengths[-1], lengths[-1])
    assert lengths == [4, 8, 16, MAX_DRAFT]
    draft.learn(16, 5)
    assert len(draft.propose(ids, 99)) == 6


def test_ngram_trusts_longer_matches_only_after_drafts_that_do_not_pay():
    draft = NGramDraft()
    needed = []
    for num_right in (0, 0, 4, 4, 4, 0, 0, 0, 0, 0):
        draft.learn(4, num_right)
        needed.append(draft.needed)
    assert needed == [10, 20, 18, 16, 14, 28, 56, 64, 64, 64]
    ids = list(range(50)) * 2
    assert draft.propose(ids, 9) == [], "a match of 50 is too short now"
    assert not draft.is_ready(ids)


def test_text_that_only_seems_to_repeat_is_soon_left_alone():
    """Phrases of five ids come back, each time with another end: few passes are lost on it."""
    draw, draft = random.Random(0), NGramDraft()
    phrases = [[draw.randrange(1000) for _ in range(5)] for _ in range(20)]
    text = [one for _ in range(150) for one in (*draw.choice(phrases), draw.randrange(1000))]
    cost, place = 0.0, 10
    while place < len(text):
        guess = draft.propose(text[:place], 99)
        pairs = zip(guess, text[place:])
        right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(guess))
        cost += pass_cost(1 + len(guess))
        if guess:
            draft.learn(len(guess), right)
        place += 1 + right if guess else 1
    assert cost < len(text) / 0.98


def test_a_draft_model_forgets_what_was_rejected(m, ids):
    """After any part of its draft was right, it goes on as if it had read all ids at once."""
    draft, known = ModelDraft(m, 320, 0.1), list(ids[:40])
    for num_right in (2, 0, 4, 1):
        drafted = draft.propose(known, 4)
        assert_same_ids(drafted, generate(m, known, max_tokens=len(drafted)))
        known += [*drafted[:num_right], (drafted[num_right - 1] + 1) % 320]
        draft.learn(len(drafted), 4)


def test_a_draft_model_that_lacks_ids_is_refused():
    small = Chain([[0.0] * 4] * 4)
    with pytest.raises(ValueError, match="has only 4 of the 7 ids"):
        ModelDraft(small, 7, 0.1)


def test_a_draft_model_stops_at_its_own_context(m, ids):
    short = load(REFERENCE / "llama-llama3rope")
    drafter = ModelDraft(short, 320, 0.1)
    assert drafter.propose([1] * (CONTEXT + 1), 5) == []
    assert len(drafter.propose([1] * (CONTEXT - 2), 5)) == 2


@pytest.mark.parametrize("draft", ["n-gram", "", "model"])
def test_unknown_drafts_are_refused_at_the_call(m, ids, draft):
    with pytest.raises(ValueError, match='draft must be "ngram"'):
        generate(m, ids, draft=draft)


def test_a_drafter_of_ones_own_is_taken_as_it_is(m):
    oracle = Oracle([], 0)
    assert make_drafter(oracle, m, 320) is oracle
