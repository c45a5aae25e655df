"""Many added tokens: the ids of Hugging Face tokenizers, whichever way places are found."""

import json
import random
import unicodedata

import pytest
from compare import assert_same_ids
from tiny import added_token, json_of

import bpe
from bpe import formats
from bpe.encoding import literals
from bpe.spec import QWEN_PATTERN, AddedToken, Split
from bpe.training.splitting import Cutting, Splitter
from tests.bpe.formats.test_random_files import ask

tokenizers = pytest.importorskip("tokenizers")

ALPHABETS = ("ab ", "aB<|>", "abcdefghijkl", " \n\t a", "中文字符 a", "é\u0301e ", "ab\u200dé1_ ")
NORMALIZERS = (None, {"type": "NFC"}, {"type": "Lowercase"}, {"type": "NFD"})


def random_contents(rng, characters, count):
    drawn = {}
    for _ in range(count):
        content = "".join(rng.choices(characters, k=rng.randint(2, 7)))
        normal = unicodedata.normalize("NFC", content.lower())
        drawn.setdefault(normal, content)  # no two are one when normalized
    return list(drawn.values())


def random_file(rng, characters, count):
    tokens = [
        added_token(
            256 + i,
            content,
            special=rng.random() < 0.5,
            **{name: rng.random() < 0.2 for name in ("single_word", "lstrip", "rstrip")},
            normalized=rng.random() < 0.3,
        )
        for i, content in enumerate(random_contents(rng, characters, count))
    ]
    return json_of({"top": {"added_tokens": tokens, "normalizer": rng.choice(NORMALIZERS)}})


def compare(data, texts):
    """Ids of both, with special tokens matched and left alone."""
    theirs = tokenizers.Tokenizer.from_str(json.dumps(data))
    ours = bpe.Tokenizer(formats.read_tokenizer_json(data))
    num_compared = 0
    for text in texts:
        for allowed in ("all", "none"):
            theirs.encode_special_tokens = allowed == "none"
            if expected := ask(theirs.encode, text):
                assert_same_ids(ours.encode(text, allowed_special=allowed), expected.ids)
                num_compared += 1
    return num_compared


@pytest.mark.parametrize("most_beginnings", [10**9, -1])
@pytest.mark.parametrize("characters", ALPHABETS)
def test_ids_of_hugging_face(characters, most_beginnings, monkeypatch):
    monkeypatch.setattr(literals, "MOST_BEGINNINGS", most_beginnings)
    rng = random.Random(characters)
    num_compared = 0
    for count in (3, 10, 40, 200) * 2:
        data = random_file(rng, characters, count)
        contents = [token["content"] for token in data["added_tokens"]]
        parts = [*contents, *characters, *characters, " ", "x"]
        texts = ["".join(rng.choices(parts, k=rng.randint(0, 14))) for _ in range(12)]
        num_compared += compare(data, texts)
    assert num_compared > 120


def test_only_some_special_tokens_among_many():
    tokens = [added_token(256 + i, f"<{i}>", special=True) for i in range(1000)]
    ours = bpe.Tokenizer(formats.read_tokenizer_json(json_of({"top": {"added_tokens": tokens}})))
    ids = ours.encode("<7><77><777>", allowed_special={"<7>", "<777>"})
    assert ids == [256 + 7, *ours.encode("<77>", added_tokens=False), 256 + 777]


def test_training_cuts_no_text_inside_of_one_of_many():
    texts = [f"{i} and {i}" for i in range(1000)]
    tokens = tuple(AddedToken(i, text, special=True) for i, text in enumerate(texts))
    splitter = Splitter(Cutting((Split(QWEN_PATTERN),), added_tokens=tokens))
    inside, text = 0, "We have 12 and 12 and 345 and 345 and some more words " + "x" * 20
    for end in range(len(text) + 1):
        place = splitter.last_cut(text[:end])
        slow = any(text[:place].endswith(t[:i]) and text[place:end].startswith(t[i:])
                   for t in texts for i in range(1, len(t)))  # fmt: skip
        assert not slow
        inside += place > 0
    assert inside > 30
    pieces = [piece for part in splitter.pieces("a 3 and 3 b 4 and 5") for piece in part]
    assert pieces == ["a", " ", " b", " ", "4", " and", " ", "5"]
