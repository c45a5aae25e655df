r"""oniguruma.py: each rewritten construct, recorded pieces of the peer, and what is refused."""

import pytest
import regex
from tiny import BYTE_LEVEL, json_of

from bpe import formats
from bpe.encoding.oniguruma import (
    check_common_syntax,
    find_all,
    may_match_nothing,
    to_common_syntax,
)
from bpe.encoding.pretokenize import PreTokenizer
from bpe.formats.gguf_names import _RULE_OF, named
from bpe.spec import PATTERNS, Split


def pieces(pattern, text, behavior="Isolated"):
    split = {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False,
    }  # fmt: skip
    byte_level = BYTE_LEVEL | {"use_regex": False}
    steps = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    spec = formats.read_tokenizer_json(json_of({"pre": steps}))
    return PreTokenizer(spec).split(text)


@pytest.mark.parametrize("pattern", PATTERNS.values())
def test_patterns_of_families_pass_unchanged(pattern):
    assert to_common_syntax(pattern) == pattern
    assert not may_match_nothing(pattern)


@pytest.mark.parametrize("pre", _RULE_OF)
def test_what_gguf_files_name_can_be_saved(pre):
    for step in named(pre).steps:
        if isinstance(step, Split):
            check_common_syntax(step.pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),  # recorded from tokenizers 0.23.3
    [
        ("^", "a\nb\n", ["a\n", "b\n"]),
        ("^a", "a\na", ["a", "\n", "a"]),
        ("a$", "a\na\n", ["a", "\n", "a", "\n"]),
        ("$", "a\nb\n", ["a", "\nb", "\n"]),
        (r"\Z", "a\n", ["a", "\n"]),
        (r"\z", "a\n", ["a\n"]),
        ("a{2}?", "aaa", ["aa", "a"]),
        ("(?:ab){1,2}+", "ababab", ["ababab"]),
        ("a{2}+", "aaaaa", ["aaaa", "a"]),
        ("a{,2}", "aaaa", ["aa", "aa"]),
        ("x{,}", "x{,}xx", ["x{,}", "xx"]),
        (r"\bcat\b", "cat² cat\u200d cat", ["cat² ", "cat", "\u200d ", "cat"]),
        (r"\w", "½\u200d", ["½", "\u200d"]),
        (r"[\w-]", "½a-", ["½", "a", "-"]),
        ("[+--a]", "+,-.a", ["+", ",", "-", ".", "a"]),
        (r"\h+", "x12fg", ["x", "12f", "g"]),
        (r"\x{4e2d}|\u6587", "中文分", ["中", "文", "分"]),
        ("a*", "baac", ["b", "aa", "c"]),
        ("a*?", "baac", ["b", "a", "a", "c"]),
        ("a|", "ba", ["b", "a"]),
        ("^|b", "b\nb", ["b\n", "b"]),
        ("(?=b)", "abab", ["a", "ba", "b"]),
        ("(?<=a|bc)d", "ad bcd", ["a", "d", " bc", "d"]),
        (
            r" ?[^(\s|[.,!?…。，、।۔،])]+",  # BLOOM's
            "Hello, (world)| ok… a",
            ["Hello", ", (", "world", ")|", " ok", "…", " a"],
        ),
        (
            r"[\p{Lu}\p{Lo}&&[^\p{Han}]]*[\p{Ll}\p{Lo}&&[^\p{Han}]]+|[\p{Han}]+",  # in Kimi's
            "ab中文Cd",
            ["ab", "中文", "Cd"],
        ),
        (r"\d(?=(?:\d{3})*\b)", "1234567", ["1", "23", "4", "56", "7"]),
        ("[a-z&&b-d&&[^c]]", "abcdB", ["a", "b", "c", "d", "B"]),
        ("[a[^b-d]]+", "abxcad", ["a", "b", "x", "c", "a", "d"]),
        ("[a[b-]c]+", "xab-cx", ["x", "ab-c", "x"]),
        ("[^a[b&]&c]+", "xa&bcy", ["x", "a&bc", "y"]),
        (r"[\s&&[^\n]]+", "a \t\n b", ["a", " \t", "\n", " ", "b"]),
        (r"[^\s\S]|[^\d\D]", "a 1\n", ["a 1\n"]),
        ("a(?:[^x]|(?:[^y]))", "axayaz", ["ax", "ay", "az"]),
        (r"a(?:[^\n]|[^\]]{1}|b)", "a\na]", ["a\n", "a]"]),
        ("a(?:[^&]|[^-]|[^^])", "a&a-a^", ["a&", "a-", "a^"]),
        ("[[(?:a]b]+|x", "y(?:ab)x", ["y", "(?:ab", ")", "x"]),
    ],
)
def test_pieces_are_the_peers(pattern, text, expected):
    assert pieces(pattern, text) == expected


def test_an_empty_match_takes_part_in_joining():
    """Recorded from tokenizers 0.23.3: it is a match of its own, and two in a row never are."""
    assert pieces("x*", "abxc", "MergedWithPrevious") == ["a", "bx", "c"]
    assert pieces("x*", "abxc", "MergedWithNext") == ["a", "b", "xc"]
    assert pieces("a*?", "baab", "Contiguous") == ["b", "a", "a", "b"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("[[:alpha:]]", r"a class such as \[:alpha:\]"),
        ("[^a-z&&[^b]]", r"the negated class \(\?:\(\?!\[b\]\)\[a-z\]\) within another"),
        ("[a-z&&[^b&&[^c]]]", "the negated class"),
        ("[^[^a]]", r"the negated class \[\^a\] within another"),
        ("[a&&]", "a class of nothing"),
        ("[&&a]", "a class of nothing"),
        ("[a-[b]]", "a class in a range"),
        ("[a-&&b]", "a - inside of a class"),
        ("[]a]", "a class that begins with ]"),
        (r"[\W]", r"\\W inside of a class"),
        (r"[\d-a]", "the range"),
        ("[a-b-c]", "a - inside of a class"),
        ("(?m:.)", "'\\(\\?m:'"),
        ("(?i)a", "'\\(\\?i\\)'"),
        ("(?<n>a)", "'\\(\\?<n'"),
        (r"(a)\1", r"\\1"),
        (r"\R", r"\\R"),
        (r"\X", r"\\X"),
        (r"\Gx", r"\\G"),
        (r"\pL", r"\\p"),
        (r"\p{XDigit}", r"\\p\{XDigit\}, a property"),
        (r"\xe9", r"\\xe9"),
        ("(?i:ss)", "'ss' with case ignored"),
        ("(?i:é)", "'é' with case ignored"),
        ("(?i:in)", "'i' with case ignored"),
        ("(?i:[a-k])", "a-k in a class with case ignored"),
        (r"(?i:\p{L})", r"\\p\{L\} with case ignored"),
        ("a**", "one quantifier after the other"),
        ("a{2}{3}", "one quantifier after the other"),
        ("^+", "on a place, which takes no text"),
        ("*a", "with nothing before it"),
        ("a)", r"a \) without its \("),
        ("(a", r"a \( without its \)"),
        ("[a", r"a \[ without its \]"),
        ("a\\", "at its end"),
        ("(" * 9999 + ")" * 9999, "too many groups within groups"),
    ],
)
def test_what_engines_read_differently_is_named(pattern, found):
    with pytest.raises(ValueError, match=found) as error:
        to_common_syntax(pattern)
    assert repr(pattern) in str(error.value)
    assert may_match_nothing(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\w+", "is read differently by Hugging Face tokenizers; what it reads is"),
        ("^a", "is read differently"),
        ("[a-z&&[^b]]", "is read differently"),
        (r"(?i)a", "which regex engines read differently"),
        (r"(?<=(?=a)\w)b", "is read differently"),
        (r"(?<=(?=a)a)b", r"has \(\?= within a lookbehind, which Hugging Face tokenizers refuses"),
        (r"(?<!(a))b", r"has \( within a lookbehind"),
    ],
)
def test_what_no_file_can_hold_is_refused(pattern, message):
    with pytest.raises(ValueError, match=message):
        check_common_syntax(pattern)


@pytest.mark.parametrize(
    "pattern", ["a*", "a?b*", "(?=a)", "a{0,2}", "b|", "(?:a?)+", "^", "a{2}?"]
)
def test_patterns_with_empty_matches_are_known(pattern):
    assert may_match_nothing(pattern)


def test_matches_are_those_of_finditer_where_none_is_empty():
    text = "ab  12 c\n\n"
    for pattern in map(regex.compile, (r"\s+(?!\S)|\s+", r"\w", "zz", "(?<=a)b")):
        assert list(find_all(pattern, text)) == [m.span() for m in pattern.finditer(text)]
