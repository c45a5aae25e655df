"""encoding/pretokenize.py: every behavior of Split, and pieces that joined are the text."""

import random
from dataclasses import replace
from itertools import product

import pytest

from bpe.encoding.pretokenize import _BORDER, _CUT_BEFORE_WORDS, _NUMBERS, PreTokenizer, Splitter
from bpe.encoding.unicode16 import with_unicode16_classes
from bpe.spec import QWEN_PATTERN, Split
from tests.bpe.encoding.test_twin import PATTERNS, random_text


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


KINDS = ["a", "s", "é", "中", "1", " ", "\n", "\r", "\t", "'", "/", "!", "\u0301", "\u3000", "\x85"]


@pytest.mark.parametrize("numbers", [None, *_NUMBERS])
@pytest.mark.parametrize("split", _CUT_BEFORE_WORDS)
def test_cutting_at_a_border_changes_nothing(tiny, split, numbers):
    steps = (numbers, split) if numbers else (split,)
    pre_tokenizer = PreTokenizer(replace(tiny.spec, pre_tokenizer=steps))
    assert pre_tokenizer.cuts_before_words
    pieces, rng, num_borders = pre_tokenizer.split, random.Random(31), 0
    texts = ["".join(chars) for chars in product(["a", "1", " ", "\n", "!", "/"], repeat=5)]
    texts += ["".join(rng.choices(KINDS, k=rng.randint(2, 9))) for _ in range(8000)]
    for text in texts:
        for border in _BORDER.finditer(text):
            num_borders += 1
            left, right = text[: border.start()], text[border.start() :]
            assert pieces(left) + pieces(right) == pieces(text), ascii(text)
    assert num_borders > 4000


@pytest.mark.parametrize("split", _CUT_BEFORE_WORDS)
def test_these_patterns_leave_no_gaps(split):
    splitter, every = Splitter(split, str), "".join(map(chr, range(0, 0x110000, 7)))
    pattern, seen, _ = splitter.see(every)
    assert sum(map(len, pattern.findall(seen))) == len(every)


def test_a_splitter_widens_once_much_was_replaced(monkeypatch):
    monkeypatch.setattr("bpe.encoding.pretokenize.RUNS_UNTIL_WIDE", 3)
    splitter, text = Splitter(Split(QWEN_PATTERN), with_unicode16_classes), "né né 中文 😀 x"
    before = splitter.see(text)[1]
    pieces = [splitter.split(text) for _ in range(3)]
    assert splitter.see(text)[1] != before  # fewer stand-ins
    assert pieces == [["né", " né", " 中文", " 😀", " x"]] * 3


def test_chunks_joined_are_the_text_and_their_pieces_its_pieces(qwen3, monkeypatch):
    monkeypatch.setattr("bpe.encoding.pretokenize.CHUNK_CHARACTERS", 20)
    rng, pre_tokenizer = random.Random(12), qwen3._pre_tokenizer
    for _ in range(300):
        text = random_text(rng) + " the end\n" + random_text(rng) + " x" * 30
        chunks = list(pre_tokenizer.chunks(text))
        assert "".join(chunks) == text
        assert len(chunks) > 1
        assert [piece for chunk in chunks for piece in pre_tokenizer.split(chunk)] == (
            pre_tokenizer.split(text)
        )
