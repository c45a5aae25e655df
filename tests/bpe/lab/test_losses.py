"""bpe/lab/losses.py: planted losses are found where they are; genuine tokenizers lose nothing."""

import random

import pytest
from golden_cases import cases
from tiny import GLYPH, added_token, json_of

import bpe
from bpe.lab import roundtrip
from bpe.lab.cases import CASES
from bpe.lab.sample import SAMPLE


def tokenizer_of(*, pre=None, **top):
    spec = {"merges": ["a b"], "top": top} | ({"pre": pre} if pre else {})
    return bpe.Tokenizer(bpe.formats.read_tokenizer_json(json_of(spec)))


def found(tokenizer, text, **options):
    losses = roundtrip(tokenizer, text, **options)
    return [(x.kind, x.line, x.column, x.before, x.after) for x in losses]


@pytest.mark.parametrize("name", ["llama3", "gpt4o", "deepseek_v3", "gpt2"])
def test_genuine_tokenizers_lose_nothing(genuine, name):
    texts = [case.text for case in CASES] + [sample.text for sample in SAMPLE]
    texts += [case["text"] for case in cases("encode") if "text" in case and "error" not in case]
    for text in texts:
        assert roundtrip(genuine(name), text) == []
        assert genuine(name).decode(genuine(name).encode(text)) == text


def test_declared_normalization_is_no_loss(qwen3):
    text = "ok\nre\u0301sume\u0301\n\n\u212b"
    losses = roundtrip(qwen3, text)
    assert [(x.line, x.column, x.before, x.after) for x in losses] == [
        (2, 2, "e\u0301", "é"), (2, 7, "e\u0301", "é"), (4, 1, "\u212b", "å".upper()),
    ]  # fmt: skip
    assert not any(loss.is_loss for loss in losses)
    assert str(losses[0]).startswith("2:2: normalized: U+0065 LATIN SMALL LETTER E, U+0301")


def test_white_space_that_added_tokens_swallow():
    tokens = [added_token(257, "<x>", lstrip=True, rstrip=True, special=True)]
    tokenizer = tokenizer_of(added_tokens=tokens)
    text = "a\n <x>\u3000b <x>"
    assert found(tokenizer, text) == []
    assert found(tokenizer, text, allowed_special="all") == [
        ("swallowed", 1, 2, "\n ", ""), ("swallowed", 2, 5, "\u3000", ""),
        ("swallowed", 2, 7, " ", ""),
    ]  # fmt: skip


def test_dropped_and_inserted_text():
    steps = [
        {"type": "Split", "pattern": {"Regex": "-+"}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
    ]
    tokenizer = tokenizer_of(pre={"type": "Sequence", "pretokenizers": steps})
    assert found(tokenizer, "ab\n--x-") == [
        ("inserted", 1, 1, "", " "), ("dropped", 2, 1, "--", ""), ("inserted", 2, 3, "", " "),
        ("dropped", 2, 4, "-", ""),
    ]  # fmt: skip


def test_a_character_without_its_bytes():
    data = json_of({"merges": [], "vocab_del": [GLYPH[0xF4]]})
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))
    assert found(tokenizer, "a\nb\U0010ffff") == [("no token", 2, 2, "\U0010ffff", "")]
    assert found(tokenizer, "a\nb") == []


def test_every_loss_undone_gives_the_text_back():
    """Random texts in a tokenizer that loses in every way: with the losses put back, it's equal."""
    rng = random.Random(0)
    steps = [
        {"type": "Split", "pattern": {"Regex": "[-é]"}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    ]
    tokens = [added_token(257, "<x>", lstrip=True), added_token(258, "<é>", rstrip=True,
                                                                normalized=True)]  # fmt: skip
    tokenizer = tokenizer_of(
        pre={"type": "Sequence", "pretokenizers": steps}, added_tokens=tokens,
        normalizer={"type": "NFC"},
    )  # fmt: skip
    num_losses = 0
    for _ in range(300):
        text = "".join(rng.choice(["a", " ", "-", "é", "o\u0301", "<x>", "<e\u0301>", "\n"])
                       for _ in range(12))  # fmt: skip
        losses = sorted(roundtrip(tokenizer, text), key=lambda loss: (loss.start, loss.stop))
        returned, end = "", 0
        for loss in losses:
            returned += text[end : loss.start] + loss.after
            end = loss.stop
        returned += text[end:]
        assert returned == tokenizer.decode(tokenizer.encode(text)), (text, losses)
        num_losses += len(losses)
    assert num_losses > 500
