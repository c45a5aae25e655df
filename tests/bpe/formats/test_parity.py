"""bpe against Hugging Face tokenizers itself, on random texts: some hundreds, or 20,000 at night.

BYTEPAIR_NIGHTLY=1 asks for the long form. Needs the package tokenizers and the genuine files.
"""

import os
import random

import pytest
from assets import FAMILIES, asset
from compare import assert_same_ids

tokenizers = pytest.importorskip("tokenizers")

NUM_TEXTS = 20_000 if os.environ.get("BYTEPAIR_NIGHTLY") else 400
EVERY = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
BLOCKS = [EVERY[start : start + 128] for start in range(0, 0x20000, 128)]  # where letters live
SPACES = [
    "  ",
    " \n",
    "\r\n",
    "\t",
    "\u3000",
    "\x85",
    "\u2028",
    "\u00a0",
    "\x1c",
    " " * 9,
    "\n\n\n",
]
MARKS = [chr(c) for c in (*range(0x300, 0x370), 0x7FD, 0x8D3, 0x1DF9, 0xEBA, 0x3099, 0x20D0)]
WORDS = (
    "the The HTTP don't 'S '\u017fx 1234 3.14 // /\n }\n\n ... == _x".split(" ")
    + "中文 日本語 한국어 עברית नमस्ते สวัสดี مرحبا 😀 👩\u200d👧".split(" ")
    + "🏴\U000e0067 e\u0301 \u1112\u1161\u11ab ﬁ Å \u212a \u037e ǅa ªº".split(" ")
)


def look_alikes(tokens):
    """Texts of added tokens, whole, cut, doubled and with a mark on them."""
    for token in tokens:
        yield from (token, token[:-1], token[1:], token + token)
        yield from (token + "\u0338", token[0] + "\u0338" + token[1:])


def random_text(rng, specials):
    block = rng.choice(BLOCKS)
    pick = [
        lambda: rng.choice(WORDS),
        lambda: rng.choice(WORDS),
        lambda: rng.choice(SPACES),
        lambda: rng.choice(MARKS),
        lambda: rng.choice(specials),
        lambda: "".join(rng.choices(block, k=3)),
        lambda: rng.choice(EVERY),
        lambda: " " + rng.choice(WORDS),
    ]
    return "".join(rng.choice(pick)() for _ in range(rng.randint(1, 14)))


@pytest.mark.parametrize("name", FAMILIES)
def test_same_ids_as_the_library(genuine, name):
    ours = genuine(name)
    theirs = tokenizers.Tokenizer.from_file(str(asset(f"{name}/tokenizer.json")))
    specials = list(look_alikes([token.content for token in ours.spec.added_tokens][:40])) or [
        "<s>"
    ]
    rng = random.Random(11)
    for _ in range(NUM_TEXTS):
        text = random_text(rng, specials)
        for allowed, encode_specials in (("all", False), ("none", True)):
            theirs.encode_special_tokens = encode_specials
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert_same_ids(ours.encode(text, allowed_special=allowed), expected)
        assert ours.encode(text, allowed_special="all", add_special_tokens=True) == _with(
            theirs, text
        )
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=False)


def _with(theirs, text):
    theirs.encode_special_tokens = False
    return theirs.encode(text, add_special_tokens=True).ids
