"""encoding/offsets.py: spans against a count of bytes over the whole text, and hand-made cases."""

import functools
import random
import unicodedata

import pytest
from tiny import added_token, json_of

import bpe
from bpe import formats
from bpe.encoding.offsets import align
from tests.bpe.encoding.test_twin import random_text


def spans_by_counting(tokenizer, text, ids):
    """For texts that normalization leaves alone: the bytes of the tokens joined are the text's."""
    owner = [i for i, char in enumerate(text) for _ in char.encode()]
    spans, start = [], 0
    for id in ids:
        stop = start + len(tokenizer.id_to_token(id))
        spans.append((id, owner[start], owner[stop - 1] + 1))
        start = stop
    assert start == len(owner)
    return spans


@pytest.mark.parametrize("allowed", ["none", "all"])
def test_equals_counting_bytes(tiny, allowed):
    rng = random.Random(8)
    extra = ["<|im_end|>", "<think>", "<|im_", "the capital", "中文"]
    for _ in range(2000):
        text = random_text(rng) + rng.choice(extra) + random_text(rng)
        text = tiny._pre_tokenizer.normalize(text)
        ids = tiny.encode(text, allowed_special=allowed)
        spans = tiny.encode_with_offsets(text, allowed_special=allowed)
        assert spans == spans_by_counting(tiny, text, ids)


def test_the_ids_are_those_of_encode(tiny, qwen3):
    rng = random.Random(9)
    for _ in range(500):
        text = random_text(rng) + "e\u0301<think>\u1112\u1161\u11ab"
        for tokenizer in (tiny, qwen3):
            for options in ({}, {"allowed_special": "all"}, {"added_tokens": False}):
                spans = tokenizer.encode_with_offsets(text, **options)
                assert [id for id, _, _ in spans] == tokenizer.encode(text, **options)
                assert all(0 <= start <= end <= len(text) for _, start, end in spans)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cafe\u0301 x", ["ca", "fe\u0301", " x"]),
        ("\u1112\u1161\u11abx", ["\u1112\u1161\u11ab", "x"]),
        ("a\u0323\u0301<think>e\u0301", ["a\u0323", "\u0301", "<think>", "e\u0301"]),
        ("a\u0301\u0323x", ["a\u0301\u0323", "\u0301", "x"]),  # the dot below is set first
        ("no change", ["no", " change"]),
        ("", []),
    ],
)
def test_spans_are_in_the_text_as_given(qwen3, text, expected):
    spans = [text[start:end] for _, start, end in qwen3.encode_with_offsets(text)]
    merged = [span for i, span in enumerate(spans) if i == 0 or span != spans[i - 1]]
    assert merged == expected


def with_spec(spec, **top):
    return bpe.Tokenizer(formats.read_tokenizer_json(json_of(spec) | top))


def test_what_is_put_in_has_an_empty_span():
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    prefixed = with_spec({"pre": byte_level})
    assert [(s, e) for _, s, e in prefixed.encode_with_offsets("ab c")] == [
        (0, 0), (0, 1), (1, 2), (2, 3), (3, 4),
    ]  # fmt: skip
    prepended = with_spec({}, normalizer={"type": "Prepend", "prepend": "+"})
    assert [(s, e) for _, s, e in prepended.encode_with_offsets("ab")] == [(0, 0), (0, 1), (1, 2)]


def test_replace_and_lowercase_keep_places():
    replace = {"type": "Replace", "pattern": {"String": "--"}, "content": "=="}
    steps = {"type": "Sequence", "normalizers": [replace, {"type": "Lowercase"}]}
    tokenizer = with_spec({}, normalizer=steps)
    spans = tokenizer.encode_with_offsets("A--\u0130")
    assert tokenizer.decode([id for id, _, _ in spans]) == "a==i\u0307"
    assert [(s, e) for _, s, e in spans] == [(0, 1), (1, 3), (1, 3), (3, 4), (3, 4), (3, 4)]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),  # in the text as given, for each character of the new one
    [
        ("Lowercase", "A\u0301\u0130", [(0, 1), (1, 2), (2, 3), (2, 3)]),
        ("NFD", "e\u0301\u00e9", [(0, 1), (1, 2), (2, 3), (2, 3)]),
        ("NFD", "a\u0301\u0323", [(0, 1), (2, 3), (1, 2)]),
        ("NFC", "a\u0301\u0323", [(0, 3), (1, 2)]),
        ("NFKC", "\ufb01\u1112\u1161\u11ab", [(0, 1), (0, 1), (1, 4)]),
        ("NFC", "a\u0301\u0301", [(0, 2), (2, 3)]),
    ],
)
def test_each_normalized_character_has_the_smallest_span(kind, text, expected):
    tokenizer = with_spec({}, normalizer={"type": kind})
    assert align(text, tokenizer._pre_tokenizer)[1] == expected


def test_every_character_of_a_normalized_text_keeps_its_parts():
    """Independent of how it is found: decomposed, a span's text holds its character's parts."""
    rng = random.Random(31)
    for kind in ("NFC", "NFD", "NFKC", "NFKD"):
        pre_tokenizer = with_spec({}, normalizer={"type": kind})._pre_tokenizer
        decompose = functools.partial(unicodedata.normalize, kind.replace("C", "D"))
        for _ in range(1000):
            text = "".join(
                rng.choices("ae\u00e9\ufb01\u0301\u0323\u0308가\u1100\u1161\u11ab ", k=6)
            )
            normalized, places = align(text, pre_tokenizer)
            taken = []
            for char, (start, end) in zip(normalized, places or [(i, i + 1) for i in range(6)]):
                parts = decompose(text[start:end])
                assert set(decompose(char)) <= set(parts)
                taken += range(start, end)
            assert set(taken) == set(range(len(text)))


def test_swallowed_white_space_belongs_to_the_added_token(tiny_json):
    added = added_token(320, "<L>", lstrip=True, rstrip=True)
    data = tiny_json | {"added_tokens": [*tiny_json["added_tokens"], added]}
    tokenizer = bpe.Tokenizer(formats.read_tokenizer_json(data))
    assert (320, 1, 7) in tokenizer.encode_with_offsets("x  <L> y")


def test_bad_texts_are_refused(tiny):
    with pytest.raises(TypeError, match="not bytes"):
        tiny.encode_with_offsets(b"x")
    with pytest.raises(ValueError, match="lone surrogate"):
        tiny.encode_with_offsets("x\ud800")
