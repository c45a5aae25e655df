"""encoding/twin.py: the twin against the regex it stands for, on the patterns of all families."""

import random

import pytest
import regex

from bpe.encoding.twin import NoTwin, Twin
from bpe.encoding.unicode16 import with_unicode16_classes
from bpe.spec import PATTERNS as NAMED_PATTERNS
from bpe.spec import QWEN_PATTERN

DEEPSEEK_PATTERNS = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
PATTERNS = [*NAMED_PATTERNS.values(), *DEEPSEEK_PATTERNS]
ODD = [
    r"[\S]+|\D",
    r"\P{Lu}+x?|é[a-z]|[à-ü]+",
    r"(?=\p{Han}).|[\p{Greek}ſ]+|\d+",
    r"(?i:k)\s|[\x20-]",
]
ODD = [*ODD[:3], r"(?i:k|s\.)\s"]

ASCII = "".join(map(chr, range(128)))
WORDS = [
    "don't",
    "'S",
    "'\u017fx",
    "\u212a",
    "HTTPServer",
    " x",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "12345",
    "a/b",
]
BEYOND = [
    "é",
    "É",
    "ǅ",
    "ʰ",
    "中",
    "ぁ\u3040",
    "\u0301",
    "²",
    "\u3000",
    "\x85",
    "\u200d",
    "😀",
    "\U000323b0",
    "\u0378",
    "ü",
]


def random_text(rng, words=(*WORDS, *BEYOND)):
    """Words, ASCII, characters that matter to some pattern, and now and then any character."""
    pick = [lambda: rng.choice(words), lambda: rng.choice(ASCII), lambda: rng.choice(words)]
    pick.append(lambda: chr(rng.choice([rng.randrange(0x3000), rng.randrange(0x10000, 0x20000)])))
    return "".join(rng.choice(pick)() for _ in range(rng.randint(1, 30)))


def spans(pattern, text):
    return [match.span() for match in pattern.finditer(text) if match[0]]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("pattern", [*PATTERNS, *ODD])
def test_finds_what_the_pattern_finds(pattern, wide):
    twin = Twin(pattern, with_unicode16_classes, wide=wide)
    original, rng = regex.compile(pattern), random.Random(2)
    texts = [
        *ASCII,
        *(a + b for a in ASCII for b in ASCII),
        *(a + b for a in BEYOND for b in BEYOND),
    ]
    texts += [random_text(rng) for _ in range(5000)]
    for text in texts:
        found, seen, _ = twin.see(text)
        assert len(seen) == len(text)
        assert spans(found, seen) == spans(original, with_unicode16_classes(text)), ascii(text)


def test_ascii_text_is_seen_as_it_is():
    text = "".join(["a", "b 1"])
    assert Twin(QWEN_PATTERN, str).see(text)[1] is text


@pytest.mark.parametrize("wide", [False, True])
def test_every_character_is_classed_right(wide):
    """All characters at once: what one class and one twin see of each of them."""
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    for source in (r"\p{L}", r"\p{N}", r"\s", r"[\p{Ll}\p{M}]"):
        found, seen, _ = Twin(source, str, wide=wide).see(text)
        assert spans(found, seen) == spans(regex.compile(source), text)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^b]]+",
        "[[:alpha:]]+",
        r"\w+",
        r"\X",
        r"\bx",
        "(?<=a)b",
        "(?P<n>a)",
        "(?i)a",
        "[]a]",
        "[a--b]",
        "(?i:[ab])",
        "(?i:é)",
        r"(?i:\s)",
        "[a",
        "(",
        r"\p{Nonsense}",
        "a)",
        "a))",
        "a**",
    ],
)
def test_no_twin_where_the_engines_may_differ(pattern):
    with pytest.raises(NoTwin):
        Twin(pattern, str)
