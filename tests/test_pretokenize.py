"""bpe/pretokenize.py: every behavior of Split, and pieces that joined are the text."""

import random
from dataclasses import replace
from itertools import product

import pytest
from test_twin import PATTERNS, random_text

from bpe.pretokenize import _CUT_BEFORE_SPACE, _NUMBERS, PreTokenizer, Splitter
from bpe.spec import Split
from bpe.unicode16 import with_unicode16_classes


@pytest.mark.parametrize(
    ("behavior", "invert", "expected"),  # recorded from tokenizers 0.23.3 on "-ab--cd-"
    [
        ("Isolated", False, ["-", "ab", "-", "-", "cd", "-"]),
        ("Removed", False, ["ab", "cd"]),
        ("Removed", True, ["-", "-", "-", "-"]),
        ("Contiguous", False, ["-", "ab", "--", "cd", "-"]),
        ("MergedWithPrevious", False, ["-", "ab-", "-", "cd-"]),
        ("MergedWithPrevious", True, ["-ab", "-", "-cd", "-"]),
        ("MergedWithNext", False, ["-ab", "-", "-cd", "-"]),
        ("MergedWithNext", True, ["-", "ab-", "-", "cd-"]),
    ],
)
def test_split_behaviors(behavior, invert, expected):
    splitter = Splitter(Split("-", behavior, invert), with_unicode16_classes)
    assert splitter.split("-ab--cd-") == expected


def test_an_unknown_behavior_is_refused():
    with pytest.raises(ValueError, match="MergedWithAll"):
        Split("-", "MergedWithAll")


def test_a_broken_pattern_is_refused():
    with pytest.raises(ValueError, match="not a valid regex"):
        Splitter(Split("(["), with_unicode16_classes)


def test_unicode_choice_is_checked(tiny):
    with pytest.raises(ValueError, match="neither"):
        PreTokenizer(tiny.spec, unicode="9")


def test_pieces_joined_are_the_text():
    rng = random.Random(3)
    splitters = [Splitter(Split(pattern), with_unicode16_classes) for pattern in PATTERNS]
    for _ in range(2000):
        text = random_text(rng)
        for splitter in splitters:
            assert "".join(splitter.split(text)) == text


ALPHABET = ["a", "Z", "s", "é", "中", "1", " ", "\n", "\r", "\t", "'", "/", "!", "\u0301", "\u3000"]


@pytest.mark.parametrize("numbers", [None, *_NUMBERS])
@pytest.mark.parametrize("pattern", sorted(_CUT_BEFORE_SPACE))
def test_cutting_between_a_letter_and_a_space_changes_nothing(tiny, pattern, numbers):
    steps = (*([Split(numbers)] if numbers else []), Split(pattern))
    pre_tokenizer = PreTokenizer(replace(tiny.spec, pre_tokenizer=steps))
    assert pre_tokenizer._cuts_before_space
    split = pre_tokenizer.split
    left = ["".join(chars) for n in range(4) for chars in product(ALPHABET, repeat=n)]
    right = [a + b for a in ALPHABET for b in ("", "a", " ", "\n", "'", "1")]
    rights = {space + text: split(space + text) for space in " \n" for text in right}
    for before in left[:16] + left[16::17]:  # all of one character, some of more
        for letter in "as":
            first = split(before + letter)
            for after, last in rights.items():
                assert split(before + letter + after) == first + last


def test_chunks_joined_are_the_text_and_their_pieces_its_pieces(qwen3, monkeypatch):
    monkeypatch.setattr("bpe.pretokenize.CHUNK_CHARACTERS", 20)
    rng, pre_tokenizer = random.Random(12), qwen3._pre_tokenizer
    for _ in range(300):
        text = random_text(rng) + " the end\n" + random_text(rng) + " x" * 30
        chunks = list(pre_tokenizer.chunks(text))
        assert "".join(chunks) == text
        assert len(chunks) > 1
        assert [piece for chunk in chunks for piece in pre_tokenizer.split(chunk)] == (
            pre_tokenizer.split(text)
        )
