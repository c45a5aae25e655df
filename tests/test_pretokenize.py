"""bpe/pretokenize.py: every behavior of Split, and pieces that joined are the text."""

import random

import pytest
from test_twin import PATTERNS, random_text

from bpe.pretokenize import PreTokenizer, Splitter
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
