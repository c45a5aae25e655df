"""formats/gguf_names.py: llama.cpp's vocabularies and recorded ids, and Hugging Face's.

The recorded ids are of 46 texts, made with the models' own tokenizers. Beyond them the peer is
built of a file's tokens and merges and the steps that the model's own tokenizer.json has.
"""

import json
import random
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import pytest
from assets import RECORDED, VOCABULARIES, asset, vocabulary
from compare import assert_same_ids
from random_files import long_text, random_text
from tiny import json_of

import bpe
from bpe import formats
from bpe.encoding.pretokenize import PreTokenizer
from bpe.formats.gguf_names import _RULE_OF, _RULES, named
from tests.bpe.formats.test_formats import gguf_bytes

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers  # noqa: E402

SEPARATOR = "\n__ggml_vocab_test__\n"


@lru_cache
def texts(number):
    rng = random.Random(number)
    return [random_text(rng, ["2024", "x\u0301", "l\u2019été"], 14) for _ in range(number)] + [
        long_text(rng) for _ in range(number // 20)
    ]


@pytest.fixture(scope="module")
def recorded():
    return json.loads(asset(RECORDED).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def load():
    loaded = {}

    def load(name):
        if name not in loaded:
            loaded.clear()  # one at a time: they are large
            loaded[name] = bpe.Tokenizer.from_file(asset(vocabulary(name)))
        return loaded[name]

    return load


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_recorded_ids(name, recorded, load):
    """Those of qwen35 were recorded without the normalizer that the model's own file has."""
    tokenizer = load(name)
    if name == "qwen35":
        tokenizer = bpe.Tokenizer(replace(tokenizer.spec, normalizer=()))
    *given, end = recorded[f"ggml-vocab-{name}.gguf.inp"].split(SEPARATOR)
    lines = recorded[f"ggml-vocab-{name}.gguf.out"].removesuffix("\n").split("\n")
    assert len(given) == len(lines) >= 46
    assert end == ""
    for text, line in zip(given, lines):
        assert_same_ids(tokenizer.encode(text), list(map(int, line.split())))
        if tokenizer._pre_tokenizer.normalize(text) == text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def byte_level(*, use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


DIGIT = pre_tokenizers.Digits(individual_digits=True)
OWN_STEPS = {  # name -> what the model's own tokenizer.json has, and its normalizer
    "falcon": (
        [
            pre_tokenizers.Punctuation("contiguous"), byte_level(use_regex=True),
            pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]"),
        ],
        None,
    ),
    "command-r": ([DIGIT, byte_level(use_regex=True)], normalizers.NFC()),
    "starcoder": ([DIGIT, byte_level(use_regex=True)], None),
    "mpt": ([byte_level(use_regex=True)], normalizers.NFC()),
    "deepseek-coder": (
        [
            split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
            split("[一-龥ࠀ-一가-퟿]+"), DIGIT, byte_level(use_regex=False),
        ],
        None,
    ),
}  # fmt: skip


def peer(spec, steps, normalizer):
    """A tokenizer of Hugging Face's with a Spec's tokens and merges."""
    glyphs = {id: formats.to_glyphs(token) for token, id in spec.vocab.items()}
    merges = [(glyphs[left], glyphs[right]) for left, right in spec.merges]
    vocab = {glyph: id for id, glyph in glyphs.items()} | dict(spec.dead_tokens)
    found = tokenizers.Tokenizer(models.BPE(vocab, merges))
    found.pre_tokenizer = pre_tokenizers.Sequence(steps)
    found.decoder = decoders.ByteLevel()
    if normalizer:
        found.normalizer = normalizer
    return found


@pytest.mark.parametrize("name", OWN_STEPS)
def test_ids_are_those_of_the_models_own_steps(name, load):
    ours = load(name)
    theirs = peer(ours.spec, *OWN_STEPS[name])
    lacking = {byte for byte in range(256) if bytes([byte]) not in ours.spec.vocab}
    for text in texts(1000):
        if not lacking & {*text.encode()}:  # such a byte is lost there, and refused by us
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert_same_ids(ours.encode(text, added_tokens=False), expected)
    dead = list(ours.spec.dead_tokens.values())
    assert len(dead) == (1403 if name == "command-r" else 0)
    assert ours.decode(dead) == theirs.decode(dead)


@pytest.mark.parametrize(
    ("name", "family"), [("gpt-2", "gpt2"), ("llama-bpe", "llama3"), ("qwen2", "qwen2_5")]
)
def test_ids_are_those_of_the_genuine_file(name, family, load):
    ours = load(name)
    theirs = tokenizers.Tokenizer.from_file(str(asset(f"{family}/tokenizer.json")))
    theirs.encode_special_tokens = True
    for text in texts(1000):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert_same_ids(ours.encode(text), expected)


@pytest.mark.parametrize(
    ("name", "family"),
    [("qwen2", "qwen3"), ("llama-bpe", "llama3_1"), ("dbrx", "gpt35turbo"), ("gpt-4o", "gpt4o"),
     ("gpt-4o", "gptoss"), ("deepseek-v3", "deepseek_v3"), ("gpt-2", "gpt2")],
)  # fmt: skip
def test_a_name_cuts_as_its_models_file(name, family, genuine):
    file = genuine(family)._pre_tokenizer
    rule = named(name)
    spec = replace(genuine(family).spec, pre_tokenizer=rule.steps, normalizer=rule.normalizer)
    for text in texts(200):
        normalized = file.normalize(text)
        assert PreTokenizer(spec).normalize(text) == normalized
        assert PreTokenizer(spec).split(normalized) == file.split(normalized)
    if family != "gptoss":  # each of its tokens is what its merges give, so it makes no difference
        assert rule.ignore_merges == genuine(family).spec.ignore_merges


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule.names.split()[0])
def test_each_pattern_means_the_same_to_the_peer(rule):
    """A saved file of single bytes and a few pairs gives the same ids there."""
    said = named(rule.names.split()[0])
    pairs = "Ġ a|Ġ 1|1 2|3 4|a b|e Ì|Ċ Ċ|Ġ Ġ|Ġ .|. .|Ġ Ċ|' s|' S|A B|B a|Â ²".split("|")
    spec = formats.read_tokenizer_json(json_of({"merges": pairs}))
    spec = replace(spec, pre_tokenizer=said.steps, normalizer=said.normalizer)
    ours = bpe.Tokenizer(spec)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(formats.tokenizer_json(spec)))
    for text in texts(100):
        assert_same_ids(ours.encode(text), theirs.encode(text).ids)


@pytest.mark.parametrize(
    ("pre", "told", "prefix"),
    [
        ("llama-bpe", None, (1,)),
        ("llama-bpe", False, ()),
        ("qwen2", None, ()),
        ("qwen2", True, (1,)),
    ],
)
def test_a_name_says_whether_a_bos_is_added(pre, told, prefix, tmp_path, tiny_json):
    """As in llama.cpp, unless the file says so itself."""
    tokens = sorted(tiny_json["model"]["vocab"], key=tiny_json["model"]["vocab"].get)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, "<mask>"],
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3) + [3],
        "tokenizer.ggml.merges": tiny_json["model"]["merges"],
        "tokenizer.ggml.bos_token_id": 1,
    } | ({} if told is None else {"tokenizer.ggml.add_bos_token": told})
    (tmp_path / "x.gguf").write_bytes(gguf_bytes(metadata))
    assert bpe.Tokenizer.from_file(tmp_path / "x.gguf").spec.prefix_ids == prefix
    (tmp_path / "x.gguf").write_bytes(gguf_bytes(metadata | {"tokenizer.ggml.pre": "roberta-bpe"}))
    masked = bpe.Tokenizer.from_file(tmp_path / "x.gguf").encode("a <mask>", allowed_special="all")
    assert len(masked) == 2  # the space is the mask's


def test_no_name_is_listed_twice():
    names = list(chain.from_iterable(rule.names.split() for rule in _RULES))
    assert len(names) == len(_RULE_OF) == 87
