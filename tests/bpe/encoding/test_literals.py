"""encoding/literals.py against a search that tries every text at every place."""

import random

import pytest

from bpe.encoding import literals
from bpe.encoding.literals import Literals


def slow_find(texts, text):
    """The definition: at the first place where any stands, the longest; then on behind it."""
    found, start = [], 0
    while start < len(text):
        here = [one for one in texts if text.startswith(one, start)]
        if here:
            found.append((start, max(here, key=len)))
            start += len(found[-1][1])
        else:
            start += 1
    return found


@pytest.fixture(params=["pattern", "words"])
def way(request, monkeypatch):
    """Both ways to find places, whatever the number of texts."""
    most = 10**9 if request.param == "pattern" else -1
    monkeypatch.setattr(literals, "MOST_BEGINNINGS", most)
    return request.param


ALPHABETS = ("ab", "ab ", " ", "a< |", "ab \n", "中文字 x", "\0\u3000 \ud800a", "abcdefgh ")


def random_texts(rng, characters, most):
    words = ["".join(rng.choices(characters, k=rng.randint(1, 3))) for _ in range(5)]
    drawn = ("".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(rng.randint(1, most)))
    return {text[: rng.randint(1, 12)] for text in drawn}


@pytest.mark.parametrize("characters", ALPHABETS)
def test_random_texts(way, characters, monkeypatch):
    monkeypatch.setattr(literals, "BLOCK_CHARACTERS", 9)
    monkeypatch.setattr(literals, "CACHED_CHARACTERS", 200)
    rng = random.Random(repr(characters))
    for _ in range(200):
        texts = random_texts(rng, characters, 12)
        search = Literals(texts)
        for _ in range(6):
            parts = [*texts, *(text[:-1] for text in texts), *characters]
            text = "".join(rng.choices(parts, k=rng.randint(0, 12)))
            assert list(search.find(text)) == slow_find(texts, text), (texts, text)


def test_nothing_to_search_for():
    assert list(Literals([]).find("any text")) == []


def test_place_in_text(way):
    """Where the first word has no space in front of it, and where a literal is cut off."""
    search = Literals(["b", " a", "a b", "b "])
    assert list(search.find("ab")) == [(1, "b")]
    assert list(search.find("a a bb")) == [(1, " a"), (4, "b"), (5, "b")]
    assert list(search.find("a b a ")) == [(0, "a b"), (3, " a")]


@pytest.mark.parametrize("special", ["<|x_{}|>", "word{}", "字{}", " {}"])
def test_many(special):
    texts = [special.format(i) for i in range(5000)]
    search = Literals(texts)
    text = "the word4999 <|x_12|>3字77字 4998<|x_|> 49999 word<|x_4999|>"
    assert list(search.find(text)) == slow_find(texts, text)
    assert "".join(found for _, found in search.find("".join(texts))) == "".join(texts)


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        (["a" * i for i in range(2, 3000)], "ab" * 20_000),  # one in the other, none in the text
        (["a" * i + "b" for i in range(1, 3000)], "a" * 20_000),
        ([f"<|x_{i}|>" for i in range(20_000)], "<|x_" * 20_000),
        ([f"the {i}" for i in range(20_000)], "the " * 20_000),
        ([f"w{i}" for i in range(20_000)], "w" * 100_000),  # one word
        (["a" * 5000 + "b"] + [f"{i}x" for i in range(2000)], "a" * 20_000),
    ],
)  # fmt: skip
def test_near_matches_take_no_time(texts, text):
    """Each takes a fraction of a second; minutes, if every literal were tried at every place."""
    assert list(Literals(texts).find(text)) == []
