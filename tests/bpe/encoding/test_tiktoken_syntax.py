r"""tiktoken_syntax.py: pieces and classes recorded from tiktoken 0.14, and what is refused.

tiktoken gives tokens, not pieces: its pieces were recorded with ranks that hold every part of the
text, so that each piece is one token.
"""

import base64
import hashlib

import pytest
import regex

import bpe
from bpe.encoding.oniguruma import check_common_syntax, to_common_syntax
from bpe.encoding.pretokenize import PreTokenizer
from bpe.encoding.tiktoken_syntax import from_tiktoken_syntax
from bpe.encoding.unicode16 import with_unicode16_classes
from bpe.spec import PATTERNS

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = (
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
)
GENUINE = {  # as tiktoken and Kimi-K2's own code hand them to it
    "r50k": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "kimi_k2": (
        rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
TEXTS = (
    "I'LL don't\n\n  12345  x \n ",
    "中文Abc的 fooBarカタカナ々1²  \r\n\t",
    "Ⅷ’s --&&~~ naïve\u0301 \u200d\u00a0\u00a0a \n  ",
)
EVERY = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "r50k",
            [
                ["I", "'", "LL", " don", "'t", "\n\n ", " 12345", " ", " x", " \n "],
                ["中文Abc的", " fooBarカタカナ々", "1²", "  \r\n\t"],
                "Ⅷ|’|s| --&&~~| naïve|\u0301| \u200d|\xa0|\xa0|a| \n  ".split("|"),
            ],
        ),
        (
            "cl100k",
            [
                ["I", "'LL", " don", "'t", "\n\n", " ", " ", "123", "45", " ", " x", " \n "],
                ["中文Abc的", " fooBarカタカナ々", "1²", "  \r\n\t"],
                ["Ⅷ", "’s", " --&&~~", " naïve", "\u0301", " \u200d", "\xa0", "\xa0a", " \n  "],
            ],
        ),
        (
            "kimi_k2",
            [
                ["I'LL", " don't", "\n\n", " ", " ", "123", "45", " ", " x", " \n", " "],
                ["中文", "Abc", "的", " foo", "Barカタカナ", "々", "1²", "  \r\n", "\t"],
                ["Ⅷ", "’s", " --&&~~", " naïve\u0301", " \u200d", "\xa0", "\xa0a", " \n", "  "],
            ],
        ),
    ],
)
def test_genuine_patterns_split_as_in_tiktoken(tmp_path, name, expected):
    path = tmp_path / "x.tiktoken"
    lines = [base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)]
    path.write_bytes(b"".join(lines))
    tokenizer = bpe.Tokenizer.from_file(path, pattern=GENUINE[name])
    for text, pieces in zip(TEXTS, expected):
        assert PreTokenizer(tokenizer.spec).split(text) == pieces
        assert bpe.split_pieces(text, pattern=GENUINE[name]) == pieces
        assert bpe.count_pieces([text], pattern=GENUINE[name]).keys() == set(pieces)


PIECES = [  # pattern, text, the matches
    ("a$", "a\na\n", []),
    ("^a", "a\na", ["a"]),
    (r"a\Z", "a\na\n\n", ["a"]),
    (r"a\z", "a\na", ["a"]),
    ("a{,2}b?", "aaaab", ["aa", "aab"]),
    ("ba{,}", "baaa{,}", ["baaa"]),
    ("a{2}?", "aaa", ["aa"]),
    ("a{1,3}+a", "aaaaa", ["aaaa"]),
    ("a{1,3}+a", "aaa", []),
    (r"\p{N}{1,3}+", "12345", ["123", "45"]),
    ("[a[bc]]+", "abcd", ["abc"]),
    ("[a-c--b]+", "abc", ["a", "c"]),
    ("[a-c~~b-d]+", "abcd", ["a", "d"]),
    ("[+--a]+", "+,-.a", ["+"]),
    ("[--/]+", "-./", ["-", "/"]),
    ("[]a]+", "]a[", ["]a"]),
    ("[]--a]+", "]a-", ["]"]),
    ("[a-c&&b-d&&c]+", "abcd", ["c"]),
    ("[a-d--b&&b-c]+", "abcd", ["c"]),
    ("[^a&&b]+", "abc", ["abc"]),
    ("[a&&^]|[a-c&&^b]", "ab^", ["b"]),
    ("[a-z&&^-b]+", "abc^", ["ab"]),
    ("[^[^a]]", "ab", ["a"]),
    ("[[^x]&[^y]&]+", "a&b", ["a&b"]),
    (r"[\w&&[^\d]]+", "a1b", ["a", "b"]),
    (r"[a\W]+", "a b", ["a "]),
    (r"[^\W]+", "a b½\u200d", ["a", "b", "\u200d"]),
    (r"\N+", "ab\nc", ["ab", "c"]),
    (r"\O+", "ab\nc", ["ab\nc"]),
    (r"\e|\a|[\x{1b}]", "\x1b\a\x1b", ["\x1b", "\a", "\x1b"]),
    (r"\<a|b\>", "a ca b", ["a", "b"]),
    (r"\bcat\b", "cat² cat\u200d cat", ["cat", "cat"]),
    (r"\xe9|\u4e2d|\u{6587}|\U0001F600", "é中文😀", ["é", "中", "文", "😀"]),
    (r"\p{greek}+|\p{Script=Han}+|\p{gc:lu}|\p{White-space}", "αβ中文A ", ["αβ", "中文", "A", " "]),
    (r"\pL+|\p{^L}", "a1", ["a", "1"]),
    (r"\PL+", "a12b", ["12"]),
    ("[[:alpha:]]+", "aéb", ["a", "b"]),
    ("[[:^alpha:]-]+", "aé1-", ["é1-"]),
    ("[:alpha:]+", "alp:", ["alp:"]),
    (r"\h+|[\h]", "x1fg", ["1f"]),
    ("(?>a|ab)c", "abc ac", ["ac"]),
    ("(?<=a+)b", "aab b", ["b"]),
    (r"(?<=\ba)b", "ab cab", ["b"]),
    ("(?i:k[sd]?)", "K\u212aſx", ["K", "\u212aſ"]),
    ("[a||b]+", "a|b", ["a|b"]),
    ("a{|}]", "a{}]", ["a{", "}]"]),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), PIECES)
def test_matches_are_tiktokens(pattern, text, expected):
    common = from_tiktoken_syntax(pattern)
    assert [m[0] for m in regex.finditer(common, text) if m[0]] == expected
    assert to_common_syntax(common) == common


@pytest.mark.parametrize(
    ("one", "num_members", "digest"),  # of all its members in order
    [
        (r"\w", 144667, "b4858236c6573ed8"),
        (r"\s", 25, "c15308e40d85febd"),
        (r"\d", 760, "a9e3198e0dc8d6a6"),
        (r"\h", 22, "4fb0115e6ea0cf1b"),
        (r"\pL", 141028, "8192a1dcc0cae66e"),
        (r"\p{Lu}", 1858, "acae6325af0e16b8"),
        (r"\p{M}", 2501, "f2e91f17799b5a98"),
        (r"\p{Han}", 99030, "9110b35f37e566ec"),
        (r"\p{sc=Greek}", 518, "ed20e1e3bc12172e"),
        (r"\p{alphabetic}", 142759, "e4ed8c9cffb788b1"),
        ("[[:punct:]]", 32, "49f951942e099623"),
        (r"[\w--\p{L}]", 3639, "7ed546a2729e77c0"),
        (r"[\p{L}&&[^\p{Han}]]", 42343, "241ad6d4e5d52234"),
        (r"[\pN~~\d]", 1151, "4513d8780ebb524b"),
        ("(?i:k)", 3, "51cbd81459c1a6b1"),
        (".", 1112063, "d07ad6e917ced6b0"),
    ],
)
def test_classes_have_tiktokens_members(one, num_members, digest):
    """Of every code point there is."""
    found = regex.finditer(from_tiktoken_syntax(one), with_unicode16_classes(EVERY))
    members = "".join(EVERY[match.start()] for match in found)
    assert len(members) == num_members
    assert hashlib.sha256(members.encode()).hexdigest().startswith(digest)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("(?i)a", r"'\(\?i\)'"),
        ("(?x: a )", r"'\(\?x:'"),
        ("(?s:.)", r"'\(\?s:'"),
        ("(?m:^a)", r"'\(\?m:'"),
        ("(?U)a+", r"'\(\?U\)'"),
        ("(?#c)a", r"'\(\?#c'"),
        ("(?<n>a)", r"'\(\?<n'"),
        (r"(a)\1", r"\\1"),
        (r"\R", r"\\R"),
        (r"a\Kb", r"\\K"),
        (r"\Ga", r"\\G"),
        (r"[\b]", r"\\b"),
        (r"[\N]", r"\\N inside of a class"),
        (r"\p{L&}", r"\\p\{L&\}, a property"),
        (r"\p{scx=Han}", r"\\p\{scx=Han\}, a property"),
        (r"\x{d800}", r"\\x\{d800\}"),
        ("[a-c-e]", "a - inside of a class"),
        ("[a&&]", "a class of nothing"),
        ("[[:foo:]]", r"a class that begins with \[:"),
        ("a**", "one quantifier after the other"),
        ("a{2}{3}", "one quantifier after the other"),
        ("(?=a)+", "on a place, which takes no text"),
        ("(?i:é)", "'é' with case ignored"),
    ],
)
def test_what_is_not_read_is_named(pattern, found):
    with pytest.raises(ValueError, match=found) as error:
        bpe.split_pieces("a", pattern=pattern)
    assert repr(pattern) in str(error.value)


def can_be_saved(pattern):
    try:
        check_common_syntax(from_tiktoken_syntax(pattern))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("pattern", [*GENUINE.values(), *(pattern for pattern, _, _ in PIECES)])
def test_the_saved_file_splits_as_training_did(pattern, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    texts = [*TEXTS, *(text for _, text, _ in PIECES)]
    if not can_be_saved(pattern):
        with pytest.raises(ValueError, match="within a lookbehind, which Hugging Face"):
            bpe.train(texts, 300, pattern=pattern)
        return
    bpe.train(texts, 300, pattern=pattern).save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    byte_level = tokenizers.decoders.ByteLevel()
    for text in texts:
        split = [byte_level.decode([p]) for p, _ in theirs.pre_tokenizer.pre_tokenize_str(text)]
        assert split == bpe.split_pieces(text, pattern=pattern)


def test_a_character_in_two_parts_of_a_class_is_not_tried_twice():
    """Else a search that fails would take 2 ** 60 steps."""
    common = from_tiktoken_syntax(r"[\W[\PL--a]]+$")
    assert list(regex.finditer(common, "-" * 60 + "a", timeout=10)) == []


@pytest.mark.parametrize("pattern", PATTERNS.values())
def test_patterns_of_families_pass_unchanged(pattern):
    assert from_tiktoken_syntax(pattern) == pattern
