"""formats/steps.py: the pre_tokenizer's steps against Hugging Face tokenizers, in any order."""

import json

import pytest
import regex
from tiny import BYTE_LEVEL, json_of

import bpe
from bpe import formats
from bpe.encoding.pretokenize import PreTokenizer
from bpe.formats.steps import read_pre_tokenizer
from bpe.lab import audit, explain, roundtrip
from bpe.spec import BEHAVIORS, ByteAlphabet, Split

tokenizers = pytest.importorskip("tokenizers")

# Every character but most of the uniform ones: of ideographs, syllables and what is unassigned.
EVERY = "".join(
    chr(code)
    for code in range(0x110000)
    if not 0xD800 <= code <= 0xDFFF
    and (code % 97 == 0 or not regex.match(r"[\p{Han}\p{Hangul}\p{Cn}\p{Co}]", chr(code)))
)
NO_SPLIT = BYTE_LEVEL | {"use_regex": False}
FALCON = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    BYTE_LEVEL,
    {"type": "Digits", "individual_digits": False},
    {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
     "invert": False},
]  # fmt: skip


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def pieces_of_the_peer(steps, text):
    data = json_of({"pre": sequence(*steps)})
    split = tokenizers.Tokenizer.from_str(json.dumps(data)).pre_tokenizer.pre_tokenize_str
    return [piece for piece, _ in split(text)]


def our_pieces(steps, text):
    """In the byte alphabet, as the peer's."""
    spec = formats.read_tokenizer_json(json_of({"pre": sequence(*steps)}))
    pre_tokenizer = PreTokenizer(spec)
    pieces = pre_tokenizer.split(text)
    return [part for piece in pieces for part in pre_tokenizer.split_bytes(piece)]


CLASSES = [
    {"type": "Punctuation"},
    {"type": "Digits", "individual_digits": True},
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
]


@pytest.mark.parametrize("step", CLASSES, ids=lambda step: step["type"])
def test_each_character_is_of_the_peers_class(step):
    steps, text = [step, NO_SPLIT], "a".join(EVERY)
    assert our_pieces(steps, text) == pieces_of_the_peer(steps, text)


TEXTS = (
    "Hello, world! 12345 x",
    "a²b³c¹ ½ é è 中文 日本 1234567 ٣٤٥",  # E4 B8 AD is read as ä, a cedilla and a soft hyphen
    "  !!?? 'tis  \n\n ... ``$$ ~x~ 3.14 ",
    "".join(map(chr, range(0x80, 0x180))),
)


@pytest.mark.parametrize(
    "step",
    [
        *({"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS),
        {"type": "Digits", "individual_digits": False},
        {"type": "BertPreTokenizer"},
        *CLASSES,
    ],
    ids=lambda step: "-".join(map(str, step.values())),
)
def test_named_steps_cut_as_the_peer(step):
    for text in TEXTS:
        assert our_pieces([step, NO_SPLIT], text) == pieces_of_the_peer([step, NO_SPLIT], text)


@pytest.mark.parametrize("text", TEXTS)
def test_steps_behind_byte_level_see_the_byte_alphabet(text):
    assert our_pieces(FALCON, text) == pieces_of_the_peer(FALCON, text)
    behind = [BYTE_LEVEL, {"type": "Punctuation", "behavior": "MergedWithNext"}]
    assert our_pieces(behind, text) == pieces_of_the_peer(behind, text)


def test_a_character_may_be_cut():
    """Recorded from tokenizers 0.23.3: the byte B2 of U+00B2 is written as a digit."""
    data = json_of({"pre": sequence(*FALCON), "merges": ["Â ²", "Ã ©"]})
    tokenizer = bpe.Tokenizer(formats.read_tokenizer_json(data))
    assert tokenizer.encode("²é") == [126, 110, 257]
    assert tokenizer.decode([126, 110, 257]) == "²é"
    assert tokenizer.encode_with_offsets("x²é") == [
        (87, 0, 1), (126, 1, 2), (110, 1, 2), (257, 2, 3),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.encode("x\ud800")


def test_sequences_in_sequences():
    inner = sequence({"type": "Digits", "individual_digits": True})
    steps = [inner, sequence(sequence(BYTE_LEVEL))]
    assert our_pieces(steps, TEXTS[1]) == pieces_of_the_peer(steps, TEXTS[1])


def test_byte_level_at_the_end_needs_no_step_of_its_own():
    steps = read_pre_tokenizer(sequence({"type": "WhitespaceSplit"}, NO_SPLIT))
    assert steps == (Split(r"\s", "Removed"),)
    assert ByteAlphabet() in read_pre_tokenizer(sequence(*FALCON))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([BYTE_LEVEL, BYTE_LEVEL], "whose second ByteLevel step would write"),
        ([{"type": "UnicodeScripts"}, BYTE_LEVEL], "'UnicodeScripts' is none that we have; those"),
        ([{"type": "Metaspace"}, BYTE_LEVEL], "'Metaspace' is none that we have"),
        ([], "without a ByteLevel step"),
    ],
)
def test_what_is_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        read_pre_tokenizer(sequence(*steps))


def test_what_takes_pieces_for_text_says_so():
    tokenizer = bpe.Tokenizer(formats.read_tokenizer_json(json_of({"pre": sequence(*FALCON)})))
    for look in (
        lambda: explain(tokenizer, "a"),
        lambda: audit(tokenizer),
        lambda: bpe.train(["a"], 300, extend=tokenizer),
    ):
        with pytest.raises(ValueError, match="goes on cutting behind its ByteLevel step"):
            look()
    assert roundtrip(tokenizer, "x²é 12 ") == []
