"""bpe/lab/difference.py: planted differences are found and shrunk; equal tokenizers have none."""

import random
from dataclasses import replace
from itertools import combinations

import pytest
from random_vocab import random_text

import bpe
from bpe.lab import diff
from bpe.lab.difference import NEUTRAL, shrink
from bpe.lab.peers import load_peer
from bpe.spec import LLAMA3_PATTERN, AddedToken, Replace, Split


def planted(spec, rng):
    """name -> a Spec that differs from spec in one thing."""
    merges = list(spec.merges)
    i = rng.randrange(len(merges))
    added = spec.added_tokens
    return {
        "a merge is missing": {"merges": tuple(merges[:i] + merges[i + 1 :])},
        "merges in another order": {"merges": tuple(reversed(merges))},
        "digits by three": {"pre_tokenizer": (Split(LLAMA3_PATTERN),)},
        "no normalizer": {"normalizer": ()},
        "an added token is missing": {"added_tokens": added[:-1]},
        "an added token strips": {"added_tokens": (*added[:-1], replace(added[-1], rstrip=True))},
        "one more added token": {"added_tokens": (*added, AddedToken(spec_end(spec), "<|é|>"))},
        "one rare character replaced": {"normalizer": (*spec.normalizer, Replace("\u0f00", "x"))},
        "a literal in the regex": {
            "pre_tokenizer": (Split("Th|" + spec.pre_tokenizer[0].pattern),),
        },
    }  # fmt: skip


def spec_end(spec):
    return max([*spec.vocab.values(), *(token.id for token in spec.added_tokens)]) + 1


def with_numbers(spec):
    """The tiny tokenizer with Qwen's regex and a few merges of digits."""
    vocab, pairs = dict(spec.vocab), list(spec.merges)
    for text in (b"12", b"123", b"00"):
        vocab[text] = spec_end(spec) + len(pairs)
        pairs.append((vocab[text[:-1]], vocab[text[-1:]]))
    qwen = (Split(bpe.spec.QWEN_PATTERN),)
    return replace(spec, vocab=vocab, merges=tuple(pairs), pre_tokenizer=qwen)


NAMES = (
    "a merge is missing", "merges in another order", "digits by three", "no normalizer",
    "an added token is missing", "an added token strips", "one more added token",
    "a literal in the regex", "one rare character replaced",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_planted_differences_are_found_and_short(tiny, name):
    base = with_numbers(tiny.spec)
    one = bpe.Tokenizer(base)
    other = bpe.Tokenizer(replace(base, **planted(base, random.Random(0))[name]))
    found = diff(one, other, limit=2 if name == "merges in another order" else 1)
    assert found, name
    for difference in found:
        text = difference.text
        assert len(text) <= 8
        assert one.encode(text) == list(difference.ids[0]) != other.encode(text)
        assert other.encode(text) == list(difference.ids[1])
        for start, stop in combinations(range(len(text) + 1), 2):  # no shorter part differs
            part = text[:start] + text[stop:]
            if stop - start == 1:
                assert one.encode(part) == other.encode(part), (text, part)
    assert len({difference.text for difference in found}) == len(found)


def test_equal_tokenizers_have_no_difference(tiny):
    assert diff(tiny, bpe.Tokenizer(tiny.spec), num_random=300) == []


def test_texts_of_ones_own(tiny):
    other = bpe.Tokenizer(replace(tiny.spec, merges=tiny.spec.merges[1:]))
    assert diff(tiny, other, texts=["zzz", ""]) == []
    assert len(diff(tiny, other, texts=["a long text about the cat " * 50])) == 1


def test_an_error_is_a_difference(tiny):
    vocab = {token: id for token, id in tiny.spec.vocab.items() if token != b"\xf4"}
    other = bpe.Tokenizer(replace(tiny.spec, vocab=vocab))
    (found,) = diff(tiny, other, texts=["xx\U0010ffffyy"])
    assert found.text == "\U0010ffff"
    assert found.ids[1] is None
    assert "byte F4" in found.errors[1]


def test_shrinking_is_locally_minimal():
    rng = random.Random(0)
    for _ in range(200):
        text = random_text(rng, "abcde ", 30)
        needed = {*rng.sample("abcde ", 2)}

        def holds(part, needed=needed):
            return needed <= {*part}

        if holds(text):
            short = shrink(text, holds)
            assert sorted(short) == sorted(needed)
    assert shrink("x1y2z3", lambda part: len(part) >= 3) == NEUTRAL[0] * 3


@pytest.mark.parametrize("prefix", ["hf:", "tiktoken:"])
def test_other_libraries_on_the_same_file(tiny_directory, tiny, prefix):
    """Hugging Face's agrees; tiktoken knows neither normalization nor added tokens."""
    pytest.importorskip("tokenizers" if prefix == "hf:" else "tiktoken")
    peer = load_peer(f"{prefix}{tiny_directory}", bpe.Tokenizer.from_pretrained)
    text = "The capital of France is 中国 and the cat"
    assert list(peer.encode(text)) == tiny.encode(text)
    assert peer.encode_with_offsets(text) == tiny.encode_with_offsets(text)
    found = {difference.text for difference in diff(tiny, peer, num_random=100)}
    if prefix == "hf:":
        assert not found
    else:
        assert "<think>" in found


def test_a_library_that_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"tokenizers is not installed; pip install"):
        load_peer("hf:x.json", None)


def test_tiktoken_takes_one_regex_only(genuine):
    pytest.importorskip("tiktoken")
    with pytest.raises(ValueError, match="splits text by one regex"):
        load_peer("tiktoken:x", lambda name: genuine("deepseek_v3"))
