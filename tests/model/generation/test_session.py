"""generation/session.py: the ids of a fresh generate(), with fewer ids read."""

import itertools

import pytest
from compare import ALL, REFERENCE, assert_same_ids, golden

from model.generation.generate import generate
from model.generation.session import Session
from model.weights.load import load


class Spy:
    """A model that counts the ids it is fed."""

    def __init__(self, m):
        self.m, self.config, self.num_fed = m, m.config, 0

    def make_cache(self, **options):
        return self.m.make_cache(**options)

    def parameters(self):
        return self.m.parameters()

    def hidden(self, ids, cache):
        self.num_fed += ids.shape[1]
        return self.m.hidden(ids, cache)

    def head(self, hidden):
        return self.m.head(hidden)


@pytest.fixture(scope="module")
def m():
    return load(REFERENCE / "llama-llama3rope")


@pytest.fixture(scope="module")
def ids():
    return golden("llama-llama3rope")["ids"]


def read_by(session, ids, **options):
    """What a session says, and how many ids it fed for it before the first came out."""
    before = session.m.num_fed
    stream = session.generate(ids, **options)
    first = list(itertools.islice(stream, 1))
    num_read = session.m.num_fed - before
    return first + list(stream), num_read


@pytest.mark.parametrize("name", ALL)
def test_a_shared_prefix_is_read_once(name):
    m, ids = load(REFERENCE / name), 5 * golden(name)["ids"]
    session = Session(Spy(m))
    for prompt, num_read in [
        (ids[:50], 50),
        (ids[:90], 40),  # it goes on
        ([*ids[:60], 5, 6, 7], 3),  # it turns off
        ([*ids[:60], 5, 6, 7], 1),  # the same again: one id must be read
        (ids[:60], 1),  # a beginning
        ([9, 8, 7], 3),  # nothing is shared
    ]:
        answer, found = read_by(session, prompt, max_tokens=8)
        assert found == num_read
        assert session.num_reused == len(prompt) - num_read
        assert_same_ids(answer, generate(m, prompt, max_tokens=8))


def test_an_answer_is_part_of_what_is_held(m, ids):
    """The next turn of a conversation: its last id was given out and not read."""
    session = Session(Spy(m))
    answer, _ = read_by(session, ids[:50], max_tokens=8)
    assert_same_ids(session.ids, ids[:50] + answer[:-1])
    prompt = ids[:50] + answer + [4, 4, 4]
    again, num_read = read_by(session, prompt, max_tokens=8)
    assert num_read == 1 + 3
    assert_same_ids(again, generate(m, prompt, max_tokens=8))


@pytest.mark.parametrize("read", [0, 1, 3])
@pytest.mark.parametrize("draft", [None, "ngram"])
def test_a_stream_left_open_is_ended(m, ids, read, draft):
    session, prompt = Session(Spy(m)), ids[:30] * 2
    stream = session.generate(prompt, max_tokens=60, draft=draft)
    left = list(itertools.islice(stream, read))
    for more in ([], [1, 2, 3]):
        answer, num_read = read_by(session, prompt + left + more, max_tokens=20)
        assert num_read <= (2 if read else 60) + len(more)
        assert_same_ids(answer, generate(m, prompt + left + more, max_tokens=20))
    assert list(stream) == []


def test_processors_see_the_whole_prompt(m, ids):
    session, seen = Session(Spy(m)), []

    def watch(history, logits):
        seen.append(history.prompt)
        return logits

    read_by(session, ids[:60], max_tokens=2)
    _, num_read = read_by(session, ids, max_tokens=2, processors=[watch])
    assert num_read == 40
    for prompt in seen:
        assert_same_ids(prompt.tolist(), ids)


def test_tokens_are_recorded_too(m, ids):
    session = Session(Spy(m))
    answer = [token.id for token in session.generate(ids[:50], max_tokens=5, top_logprobs=1)]
    assert_same_ids(session.ids, ids[:50] + answer[:-1])


def test_a_rotating_cache_goes_on_but_not_back(m, ids):
    session, size = Session(Spy(m), max_size=30), {"max_size": 30}

    def alone(prompt):
        return list(generate(m, prompt, max_tokens=8, cache=m.make_cache(**size)))

    for prompt, num_read in [
        (ids[:60], 60),
        (ids[:90], 30),
        (ids[:85], 1),  # within the positions to spare
        (ids[:40], 40),
    ]:
        answer, found = read_by(session, prompt, max_tokens=8)
        assert found == num_read
        assert_same_ids(answer, alone(prompt))


def test_forks_go_their_own_ways(m, ids):
    root = Session(Spy(m))
    read_by(root, ids[:50], max_tokens=1)
    prompts = [(fork, [*ids[:50], n]) for n, fork in enumerate([root.fork(), root.fork(), root])]
    for _ in range(2):
        for fork, prompt in prompts:
            prompt.append(7)
            answer, num_read = read_by(fork, prompt, max_tokens=8)
            assert num_read == 2
            assert_same_ids(answer, generate(m, prompt, max_tokens=8))
            prompt.extend(answer)


def test_a_session_survives_a_file(m, ids, tmp_path):
    session = Session(Spy(m), max_size=90)
    answer, _ = read_by(session, ids[:50], max_tokens=8)
    session.save(tmp_path / "one")
    loaded = Session.load(tmp_path / "one", Spy(m))
    assert_same_ids(loaded.ids, session.ids)
    prompt = ids[:50] + answer + [1]
    again, num_read = read_by(loaded, prompt, max_tokens=8)
    assert num_read == 2
    assert_same_ids(again, generate(m, prompt, max_tokens=8))


@pytest.mark.parametrize("prompt", [[], [1000], [5, 6, -1]])
def test_a_refused_prompt_leaves_the_session_usable(m, ids, prompt):
    session = Session(Spy(m))
    read_by(session, ids[:50], max_tokens=8)
    with pytest.raises(ValueError, match="prompt"):
        session.generate(prompt)
    assert_same_ids(read_by(session, ids, max_tokens=8)[0], generate(m, ids, max_tokens=8))


@pytest.mark.parametrize("after", [0, 1])
def test_an_interruption_between_two_layers_is_made_good(m, ids, tmp_path, monkeypatch, after):
    session = Session(m)
    list(session.generate(ids[:50], max_tokens=4))
    trim = type(session._cache[0]).trim

    def trim_and_stop(layer, num_tokens):
        trim(layer, num_tokens)
        if layer is session._cache[after]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(session._cache[0]), "trim", trim_and_stop)
        with pytest.raises(KeyboardInterrupt):
            session.generate(ids[:20])
    session.save(tmp_path / "one")
    assert_same_ids(Session.load(tmp_path / "one", m).ids, ids[:20][:-1])
    assert_same_ids(session.generate(ids, max_tokens=8), generate(m, ids, max_tokens=8))
