"""bpe/formats.py: what is read, what is refused by name, and files written and read again."""

import base64
import copy
import json
import random
import struct

import pytest
import regex
from golden_cases import cases, name_of, value
from tiny import CORPUS, added_token, json_of

import bpe
from bpe import formats
from bpe.spec import GPT2_PATTERN, QWEN_PATTERN

CASES = cases("formats")
SUPPORTED = (
    "normalizer_lowercase",
    "normalizer_prepend",
)  # the case leaves it open; ours equals HF
REFUSED = [
    c for c in CASES if not c["recommended"].startswith("load") and c["name"] not in SUPPORTED
]
LOADED = [c for c in CASES if c not in REFUSED]


def load(data, **options):
    return bpe.Tokenizer(formats.read_tokenizer_json(data), **options)


@pytest.mark.parametrize("case", LOADED, ids=name_of)
def test_loads_with_the_right_ids(case):
    tokenizer = load(json_of(case["spec"]))
    assert case["cases"]
    for one in case["cases"]:
        add = one.get("add_special_tokens", True)
        assert (
            tokenizer.encode(one["text"], allowed_special="all", add_special_tokens=add)
            == one["ids"]
        )


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_refused_in_one_sentence(case, tmp_path):
    path = tmp_path / "tokenizer.json"
    text = case["spec"].get("raw_prefix", "") + json.dumps(json_of(case["spec"]))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="tokenizer.json: ") as error:
        bpe.Tokenizer.from_file(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder": None}, "the decoder is null, not ByteLevel"),
        ({"decoder": {"type": "WordPiece"}}, "the decoder is 'WordPiece', not ByteLevel"),
        ({"post_processor": {"type": "BertProcessing"}}, "cls is None, not a token and its id"),
        ({"post_processor": {"type": "Precompiled"}}, "the post_processor 'Precompiled' is none"),
        ({"normalizer": {"type": "Precompiled"}}, "normalizer 'Precompiled'"),
        ({"normalizer": {"type": "NFC", "form": 1}}, "'form' that we do not honour"),
        ({"surprise": 1}, "a field 'surprise' that we do not honour"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre_tokenizer is 'Whitespace' without"),
        ({"model": {"type": "Unigram"}}, "the model is Unigram, not BPE"),
        ({"model": None}, "the model is null, not BPE"),
    ],
)
def test_unsupported_parts_are_named(tiny_json, change, message):
    with pytest.raises(ValueError, match=message):
        load(tiny_json | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"byte_fallback": True}, "byte_fallback"),
        ({"continuing_subword_prefix": "##"}, "continuing_subword_prefix is '##'"),
        ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix is '</w>'"),
        ({"vocab": []}, "has a list as its 'vocab'"),
        ({"vocab": {}}, "not a table of tokens"),
        ({"cache_capacity": 3}, "'cache_capacity' that we do not honour"),
    ],
)
def test_unsupported_model_fields_are_named(tiny_json, change, message):
    with pytest.raises(ValueError, match=message):
        load(tiny_json | {"model": tiny_json["model"] | change})


def test_two_tokens_with_one_id_are_refused(tiny_json):
    data = copy.deepcopy(tiny_json)
    data["model"]["vocab"]["Ġthe"] = 5
    with pytest.raises(ValueError, match="the same id"):
        load(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b"\xff\xfe{}", "it is not UTF-8 but UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\x1f\x8b\x08", "compressed with gzip"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"version": ' + b"9" * 5000 + b"}", "not valid JSON: .* digits"),
        (b'{"version": "\\ud800"}', r"lone surrogate \(.ud800\)"),
        (b'{"\\uDFFF": 1}', r"lone surrogate \(.udfff\)"),
        (b"[]", "is a list, not an object"),
    ],
)
def test_broken_files(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        bpe.Tokenizer.from_file(path)


def test_a_pair_of_surrogate_escapes_is_a_character(tmp_path, tiny_json):
    path = tmp_path / "tokenizer.json"
    added = [*tiny_json["added_tokens"], added_token(320, "\U0001f600")]
    path.write_text(json.dumps(tiny_json | {"added_tokens": added}), encoding="ascii")
    assert bpe.Tokenizer.from_file(path).encode("\U0001f600") == [320]


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.model.v3", "spiece"])
def test_a_sentencepiece_model_is_named(tmp_path, name):
    """What the official library writes first: a piece, its score and its type."""
    (tmp_path / name).write_bytes(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\2\n\x08\n\1a\x15\0\0\0\0")
    with pytest.raises(ValueError, match="a SentencePiece vocabulary, not byte-level BPE"):
        bpe.Tokenizer.from_file(tmp_path / name)


def test_a_sentencepiece_model_that_is_cut_off_is_named(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    with pytest.raises(ValueError, match="a SentencePiece vocabulary, not byte-level BPE"):
        bpe.Tokenizer.from_file(tmp_path / "tokenizer.model")


def replacing(pattern):
    return {"normalizer": {"type": "Replace", "pattern": pattern, "content": "_"}}


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 11422654\n"


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "model.gguf", "x.tiktoken", "tokenizer.model", "vocab.json", "ranks"]
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LFS_POINTER, "it is a Git LFS pointer, not the file itself; run `git lfs pull`"),
        (b"\x1f\x8b\x08", "compressed with gzip; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\xff\xfeI\0", "UTF-16"),
    ],
)
def test_what_a_file_is_instead(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        bpe.Tokenizer.from_file(tmp_path / name, pattern="gpt2" if "json" not in name else None)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_what_a_file_of_a_directory_is_instead(tiny_directory, tmp_path, name):
    (tmp_path / "tokenizer.json").write_bytes((tiny_directory / "tokenizer.json").read_bytes())
    (tmp_path / name).write_bytes(LFS_POINTER)
    with pytest.raises(ValueError, match=f"{name}: it is a Git LFS pointer"):
        bpe.Tokenizer.from_pretrained(tmp_path)


LONG = "x" * (1 << 20)


@pytest.mark.parametrize(
    "spec",
    [
        {"merges": [f"a {LONG}"]},
        {"merges": [f"a {LONG} a"]},
        {"merges": [["a", LONG]]},
        {"merges": [["a", "b", LONG]]},
        {"top": {"added_tokens": [added_token(999, LONG)]}},
        {"top": {"added_tokens": [added_token(256, LONG), added_token(257, LONG)]}},
        {"top": {"version": LONG}},
        {"top": {LONG: 1}},
        {"top": {"normalizer": {"type": LONG}}},
        {"top": replacing({"Regex": f"({LONG}"})},
        {"top": {"pre_tokenizer": {"type": LONG}}},
        {"top": {"decoder": {"type": LONG}}},
        {"top": {"post_processor": {"type": LONG}}},
        {"top": {"padding": {"strategy": LONG}}},
        {"top": {"truncation": {"strategy": LONG, "max_length": 3}}},
        {
            "top": {
                "added_tokens": [added_token(256 + i, LONG + c, normalized=True) for i, c in
                                 enumerate("aA")],
                "normalizer": {"type": "Lowercase"},
            }
        },
    ],
)  # fmt: skip
def test_messages_are_not_as_long_as_what_they_show(spec, tmp_path):
    data = json_of(spec)
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    for load in (bpe.Tokenizer.from_file, lambda path: bpe.Tokenizer.from_pretrained(path.parent)):
        with pytest.raises(ValueError, match=r": .* \.\.\. ") as error:
            load(tmp_path / "tokenizer.json")
        assert len(str(error.value)) < 900
        assert not error.value.__cause__  # which a traceback would show


def test_a_short_message_is_whole(tmp_path):
    """With both of its ends, however long the path is."""
    (tmp_path / "tokenizer.json").write_text('{"version": "2"}')
    with pytest.raises(ValueError, match="version '2'; 1.0 is the one we read$") as error:
        bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert error.value.__cause__


def template(*names):
    """A TemplateProcessing step that puts tokens behind the text."""
    return {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}},
            *({"SpecialToken": {"id": name, "type_id": 0}} for name in names),
        ],
        "pair": [],
        "special_tokens": {
            name: {"id": name, "ids": [id], "tokens": [name]} for id, name in enumerate(names)
        },
    }


def limits(**changes):
    """A truncation block with changes, and a padding one."""
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 3}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}
    return {
        "truncation": truncation | {k: v for k, v in changes.items() if k in truncation},
        "padding": padding | {k: v for k, v in changes.items() if k not in truncation},
    }


@pytest.mark.parametrize(
    ("top", "message"),
    [
        (limits(max_length=-3), "has -3 as its 'max_length', not one of 0 to 4294967295"),
        (limits(stride=3), "truncation.stride is 3, not below its max_length"),
        (limits(pad_id=1 << 32), "has 4294967296 as its 'pad_id'"),
        (limits(pad_id=10**5000), "has a number of over 64 bits as its 'pad_id'"),
        (limits() | {"padding": {"strategy": {"Fixed": -1}}}, "padding.strategy is"),
        (limits() | {"padding": {"strategy": {"Fixed": 1 << 32}}}, "padding.strategy is"),
        (
            limits() | {"truncation": {"strategy": "Any", "max_length": 1}},
            "strategy is 'Any', which",
        ),
        (limits() | {"post_processor": template("a", "b", "c", "d")}, "alone adds 4 tokens"),
        (
            {"post_processor": template() | {"single": [{"Sequence": {"id": "B", "type_id": 0}}]}},
            "asks for another than A",
        ),
        ({"model": {"vocab_add": {"ab": 1 << 32}}}, "has 4294967296 as an id; 4294967295 is the"),
    ],
)
def test_numbers_and_names_that_mean_nothing(top, message):
    spec = top.pop("model", {})
    with pytest.raises(ValueError, match=message):
        load(json_of(spec | {"top": top}))


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    with pytest.raises(FileNotFoundError, match="holds no tokenizer.json"):
        bpe.Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file or directory .*nowhere"):
        bpe.Tokenizer.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a directory"):
        bpe.Tokenizer.from_file(tmp_path)


def test_only_one_step_may_add_tokens(tiny_json):
    """The peer takes what the first one added for a second text, or panics."""
    byte_level = tiny_json["decoder"]
    one = {"type": "Sequence", "processors": [byte_level, template("a", "b"), byte_level]}
    two = {"type": "Sequence", "processors": [template("a"), byte_level, template("b")]}
    assert load(tiny_json | {"post_processor": one}).spec.suffix_ids == (0, 1)
    with pytest.raises(ValueError, match="TemplateProcessing, ByteLevel, TemplateProcessing, of"):
        load(tiny_json | {"post_processor": two})


def ends(kind, **flags):
    return {"post_processor": {"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 9000]} | flags}


FLAGS = {"trim_offsets": True, "add_prefix_space": False}


@pytest.mark.parametrize(
    ("top", "trims"),
    [
        (ends("BertProcessing"), ()),
        (ends("RobertaProcessing", **FLAGS), (False,)),
        (ends("RobertaProcessing", **FLAGS | {"trim_offsets": False}), ()),
        (ends("RobertaProcessing", trim_offsets=True), ()),  # the peer takes it for Bert's
    ],
)
def test_roberta_and_bert_put_tokens_at_both_ends(top, trims):
    """Ids that are no token's are given as well, as the peer gives them."""
    tokenizer = load(json_of({"top": top}))
    assert tokenizer.encode("a", add_special_tokens=True) == [9000, 64, 2]
    assert tokenizer.spec.trim_offsets == trims


@pytest.mark.parametrize(
    ("pair", "shown"), [(["a"], r"\['a'\]"), (["a", True], "True"), (["a", 1 << 32], "4294967296")]
)
def test_ends_without_an_id_are_refused(pair, shown):
    with pytest.raises(ValueError, match=f"sep is .*{shown}.*, not a token and its id"):
        load(json_of({"top": ends("BertProcessing", sep=pair)}))


@pytest.mark.parametrize(
    ("post_processor", "expected"),  # recorded from tokenizers 0.23.3
    [
        (FLAGS, [(1, 2), (2, 3), (4, 4), (5, 6), (7, 7)]),
        (FLAGS | {"add_prefix_space": True}, [(0, 2), (2, 3), (4, 4), (5, 6), (7, 7)]),
        (FLAGS | {"trim_offsets": False}, [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]),
    ],
)
def test_places_without_spaces(post_processor, expected):
    post_processor = {"type": "ByteLevel", "use_regex": True} | post_processor
    spec = {"merges": ["Ġ a", "Ġ b"], "top": {"post_processor": post_processor}}
    tokenizer = load(json_of(spec))
    assert tokenizer.encode(" ab  b ") == [256, 65, 220, 257, 220]
    assert [(start, end) for _, start, end in tokenizer.encode_with_offsets(" ab  b ")] == expected


def test_white_space_that_an_added_token_swallowed_is_trimmed_as_well():
    """Recorded from tokenizers 0.23.3."""
    token = added_token(256, "<m>", lstrip=True, rstrip=True)
    post_processor = {"type": "ByteLevel", "use_regex": True} | FLAGS
    top = {"added_tokens": [token], "post_processor": post_processor}
    assert load(json_of({"top": top})).encode_with_offsets("a \t<m>  b") == [
        (64, 0, 1), (256, 3, 6), (65, 8, 9),
    ]  # fmt: skip


DEAD = {"😀": 300, "é中": 301, "😀a": 302}  # as Command-R's vocabulary has them


def test_tokens_in_no_byte_alphabet_keep_their_ids():
    """Recorded from tokenizers 0.23.3, which finds them in no text and decodes them to theirs."""
    tokenizer = load(json_of({"vocab_add": DEAD, "merges": [["a", "b"], ["😀", "a"]]}))
    assert tokenizer.encode("😀é中ab") == [
        172, 253, 246, 222, 127, 102, 160, 116, 255, 256,
    ]  # fmt: skip
    assert tokenizer.decode([300, 301, 65]) == "😀é中b"
    assert tokenizer.token_to_id("😀") == 300
    assert tokenizer.id_to_token(301) == "é中".encode()
    assert tokenizer.vocab_size == 303
    assert tokenizer.spec.merges == ((64, 65),)
    again = load(json.loads(json.dumps(formats.tokenizer_json(tokenizer.spec))))
    assert again.spec.dead_tokens == DEAD
    longer = bpe.train(["xyxyxy"], 304, extend=tokenizer)
    assert longer.token_to_id("xy") == 303


def test_a_dead_token_may_be_an_added_one():
    top = {"added_tokens": [added_token(300, "😀")]}
    tokenizer = load(json_of({"vocab_add": DEAD, "top": top}))
    assert tokenizer.encode("a😀") == [64, 300]
    assert "😀" not in tokenizer.spec.dead_tokens


@pytest.mark.parametrize(
    ("content", "id", "spec", "message"),
    [
        ("č", 201, {}, "given to the added token 'č' and to the vocabulary's b'\\\\r'"),
        ("<a>", 257, {"vocab_add": {"ab": 257}}, "and to the vocabulary's b'ab'"),
    ],
)
def test_an_id_of_two_tokens_is_refused(content, id, spec, message):
    with pytest.raises(ValueError, match=message):
        load(json_of(spec | {"top": {"added_tokens": [added_token(id, content)]}}))


def test_added_tokens_that_normalization_makes_one_are_refused():
    """Which of them the peer finds changes from one load to the next."""
    tokens = [added_token(256 + i, c, normalized=True) for i, c in enumerate(("the", "THE"))]
    top = {"added_tokens": tokens, "normalizer": {"type": "Lowercase"}}
    with pytest.raises(ValueError, match="'the' and 'THE' are both 'the' after normalization"):
        load(json_of({"top": top}))


def flagged(content, **flags):
    tokens = [added_token(256, content, **flags), added_token(257, "<s>", rstrip=True)]
    return load(json_of({"top": {"added_tokens": tokens}}))


@pytest.mark.parametrize(
    ("flags", "text", "expected"),  # recorded from tokenizers 0.23.3
    [
        ({"rstrip": True}, "a \t b", [64, 256, 256, 65]),
        ({"lstrip": True}, "a \t b", [64, 256, 256, 65]),
        ({"lstrip": True, "rstrip": True}, "a \t b", [64, 256, 65]),
        ({"lstrip": True, "rstrip": True}, "<s> \t b", [257, 65]),
        ({"lstrip": True}, "a <s> ", [64, 256, 257]),
        ({}, "<s>  b", [257, 256, 256, 65]),
    ],
)
def test_a_token_of_white_space_that_another_has_swallowed(flags, text, expected):
    assert flagged(" ", **flags).encode(text) == expected


def test_a_token_that_normalization_empties_is_refused():
    """tokenizers 0.23.3 matches it everywhere and so cuts the text at every character."""
    replace = {"type": "Replace", "pattern": {"String": "x"}, "content": ""}
    tokens = [added_token(87, "x", normalized=True)]
    with pytest.raises(ValueError, match="normalization leaves nothing of the added token 'x'"):
        load(json_of({"top": {"added_tokens": tokens, "normalizer": replace}}))


def test_words_are_those_of_unicode_16():
    """Recorded from tokenizers 0.23.3: U+1DF90 is a letter since Unicode 18 only."""
    tokenizer = flagged("ab", single_word=True)
    for beside, is_word in (("\U0001df90", False), ("\u200d", True), ("²", False), ("é", True)):
        assert (256 in tokenizer.encode(beside + "ab")) is not is_word
        assert (256 in tokenizer.encode("ab" + beside)) is not is_word


def test_replace_sees_classes_of_unicode_16():
    """Recorded from tokenizers 0.23.3."""
    tokenizer = load(json_of({"top": replacing({"Regex": r"\p{L}"})}))
    assert tokenizer.decode(tokenizer.encode("a\U0001df90b")) == "_\U0001df90_"


def test_lower_case_does_not_depend_on_python():
    """Recorded from tokenizers 0.23.3: U+10D50 has a lower case since Unicode 16."""
    tokenizer = load(json_of({"top": {"normalizer": {"type": "Lowercase"}}}))
    assert tokenizer.decode(tokenizer.encode("\U00010d50X")) == "\U00010d70x"


@pytest.mark.parametrize("pattern", [{"Regex": "x*"}, {"Regex": "^"}, {"String": ""}])
def test_replacing_nothing_is_refused(pattern):
    """The peer puts in one text or two, or panics."""
    with pytest.raises(ValueError, match="may match nothing"):
        load(json_of({"top": replacing(pattern)}))


def test_saving_writes_a_pattern_as_the_peer_reads_it(tmp_path):
    """{1,3}+ is possessive to tiktoken, and a repetition to Oniguruma."""
    (tmp_path / "x.tiktoken").write_bytes(
        b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    )
    tokenizer = bpe.Tokenizer.from_file(tmp_path / "x.tiktoken", pattern=r"\p{N}{1,3}+|\s+$")
    assert formats.tokenizer_json(tokenizer.spec)["pre_tokenizer"]["pretokenizers"][0][
        "pattern"
    ] == {"Regex": r"(?>\p{N}{1,3})|\s+(?![\s\S])"}
    tokenizer.save(tmp_path / "tokenizer.json")
    again = bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert again._pre_tokenizer.split("12345 \n") == ["123", "45", " \n"]


def test_a_piece_that_is_a_tiktoken_token_is_that_token(tmp_path):
    """Recorded from tiktoken 0.14, with a token that no two tokens make."""
    tokens = [*(bytes([b]) for b in range(256)), "\u212a".encode()]
    (tmp_path / "x.tiktoken").write_bytes(
        b"".join(base64.b64encode(token) + b" %d\n" % id for id, token in enumerate(tokens))
    )
    tokenizer = bpe.Tokenizer.from_file(tmp_path / "x.tiktoken", pattern="gpt2")
    assert tokenizer.encode("\u212a") == [256]
    assert tokenizer.encode("\u212a" * 2) == [0xE2, 0x84, 0xAA] * 2


JUNK = (None, True, -1, 1.5, "junk", [], ["a"], [1], [[]], {}, {"a": 1}, {"type": "Sequence"})


def spoiled(data):
    """data with one value after the other replaced by each piece of junk, or left out."""
    for key in data if isinstance(data, dict) else range(len(data)):
        for junk in JUNK:
            copied = copy.copy(data)
            copied[key] = junk
            yield copied
        copied = copy.copy(data)
        del copied[key]
        yield copied
        if isinstance(data[key], (dict, list)):
            for inner in spoiled(data[key]):
                copied = copy.copy(data)
                copied[key] = inner
                yield copied


def small_but_complete():
    """Every kind of block, and few enough entries to spoil each."""
    data = json_of({"merges": ["a b"]})
    split = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    item, text = (
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    )
    template = {
        "type": "TemplateProcessing", "single": [item, text], "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}},
    }  # fmt: skip
    replace = {"type": "Replace", "pattern": {"String": "q"}, "content": "k"}
    return data | {
        "added_tokens": [added_token(257, "<s>", special=True)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, replace]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, digits, data["decoder"]]},
        "post_processor": {"type": "Sequence", "processors": [template]},
        "decoder": {"type": "Sequence", "decoders": [data["decoder"]]},
        "truncation": {
            "direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 3}, "direction": "Left", "pad_to_multiple_of": 2, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "!",
        },
    }  # fmt: skip


def test_spoiled_files_load_or_are_refused_in_one_sentence():
    data = small_but_complete()
    load(data)
    vocab = data["model"].pop("vocab")
    outcomes = []
    for spoil in [
        *spoiled(data),
        *({**data, "model": {**data["model"], "vocab": j}} for j in JUNK),
    ]:
        if isinstance(spoil.get("model"), dict):
            spoil["model"] = {"vocab": vocab} | spoil["model"]
        try:
            load(spoil).encode("ab 12 x")
            outcomes.append("loaded")
        except ValueError as error:
            outcomes.append(str(error))
    assert not any("\n" in outcome for outcome in outcomes)
    assert 100 < outcomes.count("loaded") < len(outcomes) - 100


@pytest.mark.parametrize("junk", [-1, "1", 1.5, True, None, [1]])
def test_ids_that_are_none(tiny_json, junk):
    data = copy.deepcopy(tiny_json)
    data["model"]["vocab"]["a"] = junk
    with pytest.raises(ValueError, match="not a table of tokens and their ids"):
        load(data)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[]", "it is not an object"),
        ("{", "not valid JSON"),
        ('{"chat_template": 1}', "neither a text nor a list"),
        ('{"chat_template": ["a"]}', "without a name and a template"),
        ('{"eos_token": 1}', "eos_token is 1, which is no token"),
        ('{"eos_token": {"a": 1}}', "eos_token is {'a': 1}, which is no token"),
    ],
)
def test_broken_tokenizer_configs(tiny_directory, tmp_path, config, message):
    (tmp_path / "tokenizer.json").write_bytes((tiny_directory / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(ValueError, match="tokenizer_config.json: .*" + message):
        bpe.Tokenizer.from_pretrained(tmp_path)


# --- saving ------------------------------------------------------------------------------------


def test_saved_file_gives_the_same_tokenizer(tiny, tmp_path):
    path = tmp_path / "tokenizer.json"
    tiny.save(path)
    again = bpe.Tokenizer.from_file(path)
    text = CORPUS + "naïve <think> <|im_end|> \u1112\u1161\u11ab \x00"
    for allowed in ("none", "all"):
        assert again.encode(text, allowed_special=allowed) == tiny.encode(
            text, allowed_special=allowed
        )
    assert again.spec.vocab == tiny.spec.vocab
    assert again.spec.merges == tiny.spec.merges
    assert again.spec.added_tokens == tiny.spec.added_tokens
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("case", LOADED, ids=name_of)
def test_saving_keeps_every_supported_feature(case, tmp_path):
    tokenizer = load(json_of(case["spec"]))
    tokenizer.save(tmp_path / "tokenizer.json")
    again = bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    for one in case["cases"]:
        add = one.get("add_special_tokens", True)
        ids = again.encode(value(one, "text"), allowed_special="all", add_special_tokens=add)
        assert ids == one["ids"]


def test_saving_ids_that_are_no_token():
    """tokenizers 0.23.3 loads the saved file and gives these ids."""
    names = {"x": [9000], "<9000>": [256]}
    items = [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]
    step = template() | {
        "single": [*items, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {
            name: {"id": name, "ids": ids, "tokens": [name]} for name, ids in names.items()
        },
    }
    tokens = [added_token(256, "<9000>")]
    tokenizer = load(json_of({"top": {"post_processor": step, "added_tokens": tokens}}))
    again = load(json.loads(json.dumps(formats.tokenizer_json(tokenizer.spec))))
    assert again.encode("a", add_special_tokens=True) == [9000, 256, 64]


@pytest.mark.parametrize("strategy", ["BatchLongest", {"Fixed": 0}, {"Fixed": 5}])
def test_saving_keeps_the_padding(strategy):
    padding = limits()["padding"] | {"strategy": strategy}
    spec = load(json_of({"top": {"padding": padding}})).spec
    assert formats.tokenizer_json(spec)["padding"]["strategy"] == strategy


def test_a_failed_save_keeps_the_old_file(tiny, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")
    monkeypatch.setattr(
        formats.write.Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        tiny.save(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


# --- rank files --------------------------------------------------------------------------------


def write_tiktoken(path, tokens):
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")


def encode_by_rank(tokens, text, pattern):
    """tiktoken's rule to the letter: a piece that is a token is that token; else join the leftmost
    neighbours with the lowest joined rank."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    ids = []
    for piece in regex.findall(pattern, text):
        parts = [bytes([byte]) for byte in piece.encode()]
        if piece.encode() in ranks:
            parts = [piece.encode()]
        while True:
            joins = [
                (ranks[a + b], i)
                for i, (a, b) in enumerate(zip(parts, parts[1:]))
                if a + b in ranks
            ]
            if not joins:
                break
            i = min(joins)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        ids += [ranks[part] for part in parts]
    return ids


def test_tiktoken_files_follow_tiktokens_rule(tmp_path):
    rng = random.Random(10)
    path = tmp_path / "ranks.tiktoken"
    for _ in range(60):
        tokens = [bytes([byte]) for byte in range(256)]
        while len(tokens) < 256 + 14:  # mostly of a and b, so that many tokens overlap
            known = [b"a", b"b", *tokens[256:]]
            token = rng.choice(known) + rng.choice(known)
            if token not in tokens:
                tokens.append(token)
        write_tiktoken(path, tokens)
        tokenizer = bpe.Tokenizer.from_file(path, pattern="gpt2", special_tokens={"<s>": 270})
        for _ in range(60):
            text = "".join(rng.choice("aabb ") for _ in range(rng.randint(0, 20)))
            assert tokenizer.encode(text) == encode_by_rank(tokens, text, GPT2_PATTERN)
    assert tokenizer.encode("<s>", allowed_special="all") == [270]


def test_vocab_and_merges_files(tiny, tiny_json, tmp_path):
    vocab = tiny_json["model"]["vocab"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    merges = "#version: 0.2\n" + "\n".join(tiny_json["model"]["merges"]) + "\n"
    (tmp_path / "merges.txt").write_text(merges)
    specials = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    tokenizer = bpe.Tokenizer.from_file(
        tmp_path / "vocab.json", pattern="gpt2", special_tokens=specials, normalizer="nfc"
    )
    text = CORPUS + "e\u0301<|im_end|>"
    for allowed in ("none", "all"):
        assert tokenizer.encode(text, allowed_special=allowed) == tiny.encode(
            text, allowed_special=allowed
        )
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match="no merges.txt beside it"):
        bpe.Tokenizer.from_file(tmp_path / "vocab.json", pattern="gpt2")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("YQ== 0\n", {}, "does not say how text is split; pass pattern="),
        ("YQ== 0\n!! 1\n", {"pattern": "gpt2"}, "line 2 is not a base64 token"),
        ("YQ== 0\nYg==\n", {"pattern": "gpt2"}, "line 2 is not a base64 token"),
        ("YQ== 0\nYg== 0\n", {"pattern": "gpt2"}, "the same rank"),
        ("YQ== 0\nYg== -5\n", {"pattern": "gpt2"}, "line 2 has the rank -5, which is not one of 0"),
        ("YQ== 4294967296\n", {"pattern": "gpt2"}, "line 1 has the rank 4294967296"),
        ("YQ== +1\n", {"pattern": "gpt2"}, r"line 1 has the rank \+1, which"),
        ("YQ== 1_0\n", {"pattern": "gpt2"}, "line 1 has the rank 1_0, which"),
        ("YQ== 0\n", {"pattern": "gpt2", "special_tokens": {"<s>": "1"}}, "has '<s>': '1'; each"),
        ("YQ== 0\n", {"pattern": "gpt2", "special_tokens": {3: 1}}, "special_tokens has 3: 1"),
        ("YQ== 0\n", {"pattern": "gpt2", "special_tokens": {"<s>": True}}, "has '<s>': True"),
        ("YQ== 0\n", {"pattern": "gpt2", "normalizer": "nfx"}, "normalizer 'NFX' is none of"),
        ("YQ== 0\n", {"pattern": "(?i)a"}, r"has '\(\?i\)', which regex engines read diff"),
        ("YQ== 0\n", {"pattern": "gpt2"}, "no token for"),
    ],
)
def test_broken_tiktoken_files(tmp_path, content, options, message):
    path = tmp_path / "ranks.tiktoken"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        bpe.Tokenizer.from_file(path, **options)


BYTES = [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize("name", ["tokenizer.model", "tiktoken.model", "ranks", "cl100k.bpe"])
def test_a_rank_table_is_known_by_what_it_holds(tmp_path, name):
    write_tiktoken(tmp_path / name, [*BYTES, b"ab"])
    tokenizer = bpe.Tokenizer.from_file(tmp_path / name, pattern="gpt2")
    assert tokenizer.encode("abb") == [256, 98]
    with pytest.raises(ValueError, match=f"{name} does not say how text is split; pass pattern="):
        bpe.Tokenizer.from_file(tmp_path / name)
    message = (
        f"no tokenizer.json, .*its {name} does not say how text is split: pass it to .*pattern="
    )
    with pytest.raises(FileNotFoundError, match=message):
        bpe.Tokenizer.from_pretrained(tmp_path)


def test_a_rank_table_may_begin_with_its_token_of_no_bytes(tmp_path):
    """As Whisper's multilingual.tiktoken ends; recorded from tiktoken 0.14 with its rule "gpt2"."""
    path = tmp_path / "multilingual"
    write_tiktoken(path, [*BYTES, b"ab"])
    path.write_text("= 257\r\n" + path.read_text())
    tokenizer = bpe.Tokenizer.from_file(path, pattern="gpt2", special_tokens={"<s>": 258})
    assert tokenizer.encode("abb<s>", allowed_special="all") == [256, 98, 258]
    assert tokenizer.decode([98, 257, 98]) == "bb"
    assert tokenizer.vocab_size == 259
    tokenizer.save(tmp_path / "tokenizer.json")
    again = bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert again.encode("abb<s>", allowed_special="all") == [256, 98, 258]
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode("abb<s>").ids == [256, 98, 258]
    assert theirs.decode([98, 257, 98]) == "bb"


@pytest.mark.parametrize("id", [-1, 1 << 32])
def test_ids_of_special_tokens_are_ids(tmp_path, id):
    write_tiktoken(tmp_path / "x.tiktoken", BYTES)
    with pytest.raises(ValueError, match=f"has the id {id}, which is not one of 0 to 4294967295"):
        bpe.Tokenizer.from_file(
            tmp_path / "x.tiktoken", pattern="gpt2", special_tokens={"<s>": id, "<p>": 256}
        )


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("vocab.json", "merges.txt"), ""),
        (("encoder.json", "vocab.bpe"), ""),
        (("vocab.json", "merges.txt"), "small-"),
    ],
)
def test_names_of_a_vocabulary_and_its_merges(tiny, tiny_json, tmp_path, names, prefix):
    vocabulary, merges = (tmp_path / (prefix + name) for name in names)
    vocabulary.write_text(json.dumps(tiny_json["model"]["vocab"]))
    lines = ["#version: 0.2", *tiny_json["model"]["merges"], ""]
    merges.write_bytes("\r\n".join(lines).encode())
    tokenizer = bpe.Tokenizer.from_file(vocabulary, pattern="gpt2", normalizer="nfc")
    assert tokenizer.encode(CORPUS) == tiny.encode(CORPUS)
    with pytest.raises(ValueError, match="holds merges; name the vocabulary beside it"):
        bpe.Tokenizer.from_file(merges, pattern="gpt2")
    with pytest.raises(FileNotFoundError, match=f"its {vocabulary.name} does not say how text is"):
        bpe.Tokenizer.from_pretrained(tmp_path)
    merges.write_bytes(LFS_POINTER)
    with pytest.raises(ValueError, match=f"{vocabulary.name}: {merges.name}: it is a Git LFS"):
        bpe.Tokenizer.from_file(vocabulary, pattern="gpt2")
    merges.unlink()
    with pytest.raises(FileNotFoundError, match=f"there is no {merges.name} beside it"):
        bpe.Tokenizer.from_file(vocabulary, pattern="gpt2")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "tokens.json",
            {},
            "a vocabulary without merges; name the two files vocab.json beside merg",
        ),
        ("vocab.json", {"ab": -1}, "a token has the id -1, which is not one of 0"),
        ("vocab.json", {"ab": 1 << 32}, "a token has the id 4294967296"),
        ("vocab.json", {"ab": 65}, "two tokens of the vocabulary have the same id"),
    ],
)
def test_vocabularies_that_are_none(tmp_path, tiny_json, name, change, message):
    vocab = tiny_json["model"]["vocab"]
    (tmp_path / name).write_text(json.dumps(vocab | change))
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(ValueError, match=message):
        bpe.Tokenizer.from_file(tmp_path / name, pattern="gpt2")


def test_a_complete_file_takes_no_pattern(tiny_directory):
    with pytest.raises(ValueError, match="the file itself says how text is split"):
        bpe.Tokenizer.from_file(tiny_directory / "tokenizer.json", pattern="gpt2")


# --- GGUF --------------------------------------------------------------------------------------

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + gguf_string(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(gguf_string, value))
    return struct.pack(f"<IIQ{len(value)}I", ARRAY, UINT32, len(value), *value)


def gguf_bytes(metadata, version=3):
    entries = b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(metadata)) + entries


@pytest.fixture
def tiny_metadata(tiny_json):
    """The tiny tokenizer as GGUF metadata, with padding rows at the end."""
    tokens = sorted(tiny_json["model"]["vocab"], key=tiny_json["model"]["vocab"].get)
    return {
        "general.architecture": "qwen3",
        "qwen3.some.number": 0.5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*tokens, "<think>", "[PAD320]", "[PAD321]"],
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3) + [4, 5, 5],
        "tokenizer.ggml.merges": tiny_json["model"]["merges"],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "tokenizer.chat_template.tool_use": "tools",
    }


def read_gguf(tmp_path, metadata, **options):
    path = tmp_path / "model.weights.gguf"
    path.write_bytes(gguf_bytes(metadata, **options))
    return bpe.Tokenizer.from_file(path)


def test_gguf_metadata_gives_the_same_tokenizer(tiny, tiny_metadata, tiny_json, tmp_path):
    from_gguf = read_gguf(tmp_path, tiny_metadata)
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = tiny_json["decoder"] | {"use_regex": False}
    same = load(
        tiny_json | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}}
    )
    for text in (CORPUS, "e\u0301 <think><|im_end|> 1234 \r\n\n x"):
        assert from_gguf.encode(text) == same.encode(text)
        assert from_gguf.encode(text, allowed_special="all") == same.encode(
            text, allowed_special="all"
        )
    assert from_gguf.encode("a", add_special_tokens=True)[0] == 1
    assert from_gguf.vocab_size == 320
    assert from_gguf.special_ids == {0, 1, 2}
    assert dict(from_gguf.spec.named_tokens) == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
    }
    assert set(from_gguf.spec.chat_templates) == {"default", "tool_use"}


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("smollm", ["x", " ", "1", "2", "3", "4", "'s", "\n", "\n", "y", " ++"]),
        ("gpt-2", ["x", " 1234", "'s", "\n", "\n", "y", " ++"]),
        ("llama-bpe", ["x", " ", "123", "4", "'s", "\n\n", "y", " ++"]),
        ("qwen2", ["x", " ", "1", "2", "3", "4", "'s", "\n\n", "y", " ++"]),
        ("default", ["x", " ", "123", "4", "'", "s", "\n", "\n", "y", " ", "++"]),
    ],
)
def test_gguf_pre_tokenizers(tiny_metadata, tmp_path, pre, expected):
    tokenizer = read_gguf(tmp_path, tiny_metadata | {"tokenizer.ggml.pre": pre})
    assert tokenizer._pre_tokenizer.split("x 1234's\n\ny ++") == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "model is 'llama'; only 'gpt2'"),
        ({"tokenizer.ggml.pre": "gpt-9"}, "pre is 'gpt-9'; we know a.x-4.0, afmoe, "),
        ({"tokenizer.ggml.pre": "gemma4"}, "'gemma4', whose tokens are of characters, not of byt"),
        ({"tokenizer.ggml.merges": ["a qq"]}, "not in the vocabulary"),
        ({"tokenizer.ggml.merges": 1}, "merges is no list of texts"),
        ({"tokenizer.ggml.tokens": [1]}, "tokens is no list of texts"),
        ({"tokenizer.ggml.token_type": [1]}, "one type a token"),
        ({"tokenizer.ggml.bos_token_id": "a"}, "there is no bos token"),
    ],
)
def test_gguf_refusals(tiny_metadata, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read_gguf(tmp_path, tiny_metadata | change)


def test_gguf_version_1_is_refused(tiny_metadata, tmp_path):
    with pytest.raises(ValueError, match="GGUF version 1"):
        read_gguf(tmp_path, tiny_metadata, version=1)


def test_gguf_cut_off_anywhere_is_refused(tiny_metadata, tmp_path):
    whole = gguf_bytes(tiny_metadata)
    path = tmp_path / "cut.gguf"
    for length in [4, 10, 23, 24, 31, 40, *range(50, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut off"):
            bpe.Tokenizer.from_file(path)


def test_gguf_without_a_tokenizer(tmp_path):
    with pytest.raises(ValueError, match="tokenizer.ggml.model is None"):
        read_gguf(tmp_path, {"general.architecture": "qwen3"})


# --- the directory -----------------------------------------------------------------------------


def test_chat_template_file_wins_over_the_config(tiny_directory, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_directory / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text("from the file")
    tokenizer = bpe.Tokenizer.from_pretrained(tmp_path)
    assert (
        tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
        == "from the file"
    )


def test_several_named_templates(tiny_directory, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((tiny_directory / "tokenizer.json").read_bytes())
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with tools"},
    ]
    config = {"chat_template": named, "bos_token": {"content": "<|im_start|>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = bpe.Tokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": ""}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "plain"
    assert tokenizer.apply_chat_template(messages, [{"name": "f"}], tokenize=False) == "with tools"
    assert (
        tokenizer.apply_chat_template(messages, template="tool_use", tokenize=False) == "with tools"
    )
    assert tokenizer.spec.named_tokens["bos_token"] == "<|im_start|>"


def test_texts_that_are_not_utf_8_are_named(tiny_metadata, tiny_json, tmp_path):
    (tmp_path / "x.gguf").write_bytes(gguf_bytes(tiny_metadata).replace(b"gpt2", b"gp\xff2"))
    with pytest.raises(ValueError, match="a text that is not UTF-8 at byte"):
        bpe.Tokenizer.from_file(tmp_path / "x.gguf")
    (tmp_path / "vocab.json").write_text(json.dumps(tiny_json["model"]["vocab"]))
    (tmp_path / "merges.txt").write_bytes(b"a b\xff\n")
    with pytest.raises(ValueError, match="merges.txt is not UTF-8 at byte 3"):
        bpe.Tokenizer.from_file(tmp_path / "vocab.json", pattern="gpt2")
    (tmp_path / "tokenizer.json").write_text(json.dumps(tiny_json))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="chat_template.jinja is not UTF-8 at byte 0"):
        bpe.Tokenizer.from_pretrained(tmp_path)
