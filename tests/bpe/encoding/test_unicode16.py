"""encoding/unicode16.py: every code point's class and NFC against recorded tables and values."""

import json
import random
import unicodedata

import pytest
import regex
from paths import GOLDEN

from bpe.encoding.unicode16 import (
    NFC_BARRIER,
    lowercase,
    normalize,
    normalize_unicode9,
    parse_ranges,
    with_unicode16_classes,
)

TABLES = json.loads((GOLDEN / "hf_classes.json").read_text())
EVERY_CHARACTER = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
CLASSES = ("L", "N", "M", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo")


def code_points(ranges):
    return {code for first, last in ranges for code in range(first, last + 1)} - {
        *range(0xD800, 0xE000)
    }


@pytest.fixture(scope="module")
def shown():
    """Every character as the regex is shown it."""
    text = with_unicode16_classes(EVERY_CHARACTER)
    assert len(text) == len(EVERY_CHARACTER)
    return text


@pytest.mark.parametrize("name", [*CLASSES, "White_Space"])
def test_classes_are_those_of_unicode_16(shown, name):
    pattern = regex.compile(r"\s" if name == "White_Space" else rf"\p{{{name}}}")
    found = {ord(EVERY_CHARACTER[match.start()]) for match in pattern.finditer(shown)}
    assert found == code_points(TABLES[name])


def test_text_without_newer_characters_is_the_same_object():
    text = "naïve 中文 \u0378 \ue000 😀"
    assert with_unicode16_classes(text) is text


def test_a_character_of_unicode_17_is_shown_as_unassigned():
    assert with_unicode16_classes("x\U000323b0y") in ("x\ue000y", "x\U000323b0y")
    assert not regex.search(r"\p{L}", with_unicode16_classes("\U000323b0"))


def test_nfc_barrier_is_the_recorded_one():
    barrier = {code for r in parse_ranges(NFC_BARRIER) for code in r}
    assert barrier == code_points(TABLES["nfc_barrier"])


def test_nfc_equals_the_standard_without_barrier_characters():
    rng = random.Random(1)
    barrier = code_points(TABLES["nfc_barrier"])
    marks = [
        chr(c) for first, last in TABLES["M"] for c in range(first, last + 1) if c not in barrier
    ]
    old_marks = [mark for mark in marks if unicodedata.combining(mark)]
    for _ in range(5000):
        text = "".join(
            rng.choice(["e", "a\u0323", rng.choice(old_marks), "가", "ᄀ"]) for _ in range(8)
        )
        assert normalize_unicode9("NFC", text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize(
    ("text", "expected"),  # recorded from tokenizers 0.23.3: it takes the newer mark for a starter
    [
        ("a\u07f3\u07fdb", "a\u07f3\u07fdb"),
        ("x\u0301\u0323\u1df9\u0316", "x\u0323\u0301\u1df9\u0316"),
    ],
)
def test_nfc_does_not_cross_a_barrier(text, expected):
    assert normalize_unicode9("NFC", text) == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),  # recorded from tokenizers 0.23.3
    [
        ("NFKC", "\u32ff\ufb01\u0301", "\u32fff\u00ed"),
        ("NFKD", "\ua7f2\u00e9", "\ua7f2e\u0301"),
        ("NFD", "\U00011938\u0301\u0316", "\U00011938\u0316\u0301"),
        ("NFKC", "\U0001fbf5\u00b2\U0001f16c", "\U0001fbf52\U0001f16c"),
        ("NFKD", "\u2460\U00010783\uab69\u3300", "1\U00010783\uab69\u30a2\u30cf\u309a\u30fc\u30c8"),
    ],
)
def test_decompositions_since_unicode_9_are_not_known(form, text, expected):
    assert normalize_unicode9(form, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),  # recorded from tokenizers 0.23.3
    [
        ("ΑΣ\u0130", "ασi\u0307"),
        ("\u2c2f\ua7c0\ua7cb\ua7dc", "\u2c5f\ua7c1\u0264\u019b"),
        ("\U00010570\U00010594\U00010d65\U00016ea0", "\U00010597\U000105bb\U00010d85\U00016ebb"),
    ],
)
def test_lower_case_is_that_of_unicode_17(text, expected):
    assert lowercase(text) == expected


def test_lower_case_is_that_of_every_python_where_that_has_one():
    assert all(lowercase(char) == char.lower() for char in EVERY_CHARACTER if char.lower() != char)


def test_long_runs_of_marks_are_sorted_as_the_standard_does():
    rng = random.Random(13)
    marks = "\u0301\u0316\u0323\u0345\u0308\u0344\u0f73\u034f\u20dd\u302a\u3099\u093c\u07fd"
    for _ in range(400):
        run = "".join(rng.choice(marks) for _ in range(rng.choice([3, 63, 64, 65, 300])))
        text = rng.choice(["", "a", "か", "x\u0301", "क"]) + run + rng.choice(["", "b", "e\u0301"])
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            assert normalize(form, text) == unicodedata.normalize(form, text)


def test_runs_of_marks_are_not_quadratic():
    """At this size the standard library takes minutes. One acute composes with the e."""
    normalized = normalize_unicode9("NFC", "e" + "\u0301\u0316" * 250_000)
    expected = "é" + "\u0316" * 250_000 + "\u0301" * 249_999
    assert (normalized == expected) is True
