"""bpe/pretokenize.py: the ASCII twin against its regex, and every behavior of Split."""

import random

import pytest
import regex

from bpe.pretokenize import PreTokenizer, Splitter, ascii_twin
from bpe.spec import GPT2_PATTERN, LLAMA3_PATTERN, QWEN_PATTERN, Split

GPT4O_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_PATTERNS = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
PATTERNS = [GPT2_PATTERN, QWEN_PATTERN, LLAMA3_PATTERN, GPT4O_PATTERN, *DEEPSEEK_PATTERNS]
ASCII = "".join(map(chr, range(128)))


def random_ascii(rng, length):
    words = (
        "don't",
        "'S",
        "HTTPServer",
        " x",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "12345",
        "a/b",
        "\x1c",
        "\x85"[:0],
    )
    return "".join(rng.choice([rng.choice(ASCII), rng.choice(words)]) for _ in range(length))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ascii_twin_finds_the_same_pieces(pattern):
    twin = Splitter(Split(pattern), old_classes=True)
    assert twin._ascii is not None
    rng = random.Random(2)
    texts = [*ASCII, *(a + b for a in ASCII for b in ASCII)]
    texts += [random_ascii(rng, rng.randint(1, 40)) for _ in range(5000)]
    for text in texts:
        expected = [match.span() for match in regex.finditer(pattern, text) if match[0]]
        assert [m.span() for m in twin._ascii.finditer(text) if m[0]] == expected, repr(text)


@pytest.mark.parametrize(
    "pattern", [r"[a-z&&[^b]]+", r"[[:alpha:]]+", r"\p{Greek}+", r"[\S]", r"\w+", r"\X"]
)
def test_no_twin_where_the_engines_may_differ(pattern):
    assert ascii_twin(pattern) is None


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
    assert Splitter(Split("-", behavior, invert), old_classes=True).split("-ab--cd-") == expected


def test_an_unknown_behavior_is_refused():
    with pytest.raises(ValueError, match="MergedWithAll"):
        Split("-", "MergedWithAll")


def test_a_broken_pattern_is_refused():
    with pytest.raises(ValueError, match="not a valid regex"):
        Splitter(Split("(["), old_classes=True)


def test_unicode_choice_is_checked(tiny):
    with pytest.raises(ValueError, match="neither"):
        PreTokenizer(tiny.spec, unicode="9")


def test_pieces_joined_are_the_text():
    rng = random.Random(3)
    splitters = [Splitter(Split(pattern), old_classes=True) for pattern in PATTERNS]
    for _ in range(2000):
        text = "".join(
            rng.choice(["é", "中", "\u0301", "\u3000", "😀", "\U000323b0", random_ascii(rng, 2)])
            for _ in range(rng.randint(1, 12))
        )
        for splitter in splitters:
            assert "".join(splitter.split(text)) == text
