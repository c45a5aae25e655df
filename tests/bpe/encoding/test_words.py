"""encoding/words.py: word by word come the ids that the pieces of the whole text have."""

import random
from itertools import product

import pytest

import bpe.encoding.words
from tests.bpe.encoding.test_twin import random_text

KINDS = ["a", "1", "!", " ", "\n", "\t", "\0", "\u3000"]


def by_pieces(tokenizer, text):
    """The definition: the whole text is split, and each piece has its ids."""
    pieces = tokenizer._pre_tokenizer.split(text)
    return [id for piece in pieces for id in tokenizer._pieces[piece]]


def outcome(encode, *arguments):
    """The ids, or the error: SmolLM2's vocabulary lacks some control characters."""
    try:
        return encode(*arguments)
    except ValueError as error:
        return str(error)


@pytest.fixture(params=["qwen3", "llama3", "gpt4o", "gpt2", "smollm2"])
def tokenizer(request, genuine):
    if request.param == "smollm2":  # cuts out digits first
        return request.getfixturevalue("smollm2")
    return genuine(request.param)


@pytest.fixture
def words(tokenizer, monkeypatch):
    """An empty cache that takes short blocks word by word, however new they are."""
    monkeypatch.setattr(bpe.encoding.words, "BLOCK_CHARACTERS", 12)
    monkeypatch.setattr(bpe.encoding.words, "NEW_CHARACTERS", 0)
    cache = bpe.encoding.words.WordCache(
        tokenizer._pre_tokenizer, tokenizer._pieces, tokenizer._encode_pieces
    )
    cache._is_new = False
    return cache


def test_all_short_texts(tokenizer, words):
    texts = ("b " + "".join(chars) for chars in product(KINDS, repeat=5))
    for text in random.Random(7).sample(list(texts), 12_000):
        assert words.encode(text) == by_pieces(tokenizer, text), ascii(text)
    assert len(words) > 500


def test_random_texts(tokenizer, words):
    rng = random.Random(8)
    gaps = [" "] * 9 + ["  ", "     ", " \n", "\n    ", "\n\n", "  1", "", " \t", "\r\n", "\0"]
    for _ in range(1500):
        parts = (random_text(rng) + rng.choice(gaps) for _ in range(rng.randint(1, 6)))
        text = "".join(parts)
        assert outcome(words.encode, text) == outcome(by_pieces, tokenizer, text), ascii(text)


def test_the_cache_is_bounded_and_emptied_only_when_its_words_are_of_no_use(words, monkeypatch):
    monkeypatch.setattr(bpe.encoding.words, "MAX_CACHED_WORDS", 8)
    text = "".join(f" w{chr(97 + i)}" for i in range(10))
    words.encode("x" + text)
    kept = set(words)
    assert len(kept) == 8
    words.encode("x" + text)  # what comes again and again is found, two words are left out
    assert set(words) == kept
    words.encode("x" + text.replace("w", "v"))
    assert 0 < len(words) <= 8
    assert not kept & set(words)


def test_long_words_are_not_cached(words, tokenizer):
    text = "x " + "ab" * 100 + " y"
    assert words.encode(text) == by_pieces(tokenizer, text)
    assert set(words) == {"y"}


def test_words_are_cached_once_text_brings_few_new_pieces(genuine):
    tokenizer = bpe.Tokenizer(genuine("qwen3").spec)
    text = "The capital of France is Paris, a city on the Seine. " * 3
    first = tokenizer.encode(text)
    assert not tokenizer._words
    assert tokenizer.encode(text) == first
    assert not tokenizer._words  # it was new when it was met before
    assert tokenizer.encode(text) == first
    assert "capital" in tokenizer._words


def test_a_lone_surrogate_is_named(genuine):
    with pytest.raises(ValueError, match="character 6 of the text is a lone surrogate"):
        genuine("qwen3").encode("a b c \ud800 d")
