"""bpe/lab/auditing.py: brute force agrees over vocabularies of 400; the totals for Qwen3."""

import json
import random
from collections import Counter
from itertools import islice, product

import pytest
from tiny import GLYPH, added_token, json_of, train

import bpe
from bpe.lab import audit
from bpe.lab.auditing import missing_parts, num_rows_of
from bpe.lab.contexts import Kinds, characters_from, characters_to, parts
from bpe.spec import QWEN_PATTERN

CORPUS = (
    "snake_case_name1 snake_case_name2 x10 x10 don't it's 2024-2024\n\t\tthe end\n\t\tthe end\n"
    "ที่ดีที่ดี ทุกวัน 中国中国 人民人民 丰串 😀😁😀😁 café \u212bngstrom \u212bngstrom cafe\u0301 é\n\n"
    "  indented  \n  indented <|x|> <|x|> a quick brown fox jumps over the lazy dog in the garden\n"
    "Every snake that was ever named has learned to walk backwards through a door of glass\n"
) * 3
CONTINUATION = bytes(range(0x80, 0xC0))
NEIGHBOURS = sorted({*CORPUS} | {*"'.!1aB\r/ไ\u0e49\u0301中上严😂é\u3000"})
QWEN_SPLIT = {"type": "Split", "pattern": {"Regex": QWEN_PATTERN}, "behavior": "Isolated",
              "invert": False}  # fmt: skip
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": False}  # fmt: skip


def trained(*, order=None, drop=(), normalizer="NFC", **top):
    """A vocabulary of 400, learned with another regex than the one that then cuts the text."""
    merges = [*train(CORPUS, 143), (GLYPH[10], GLYPH[9])]
    kept = [merge for i, merge in enumerate(merges) if i not in drop]
    if order:
        order.shuffle(kept)
    data = json_of({
        "merges": [list(merge) for merge in merges],
        "pre": {"type": "Sequence", "pretokenizers": [QWEN_SPLIT, BYTE_LEVEL]},
        "model": {"merges": [list(merge) for merge in kept]},
        "top": {"normalizer": {"type": normalizer}} | top,
    })  # fmt: skip
    return bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))


def everything(tokenizer):
    """Texts by brute force: all characters, all short strings, all entries between neighbours."""
    codes = (*range(0xD800), *range(0xE000, 0x11000), *range(0x11000, 0x110000, 997))
    yield from map(chr, codes)
    for length in (2, 3):
        alphabet = NEIGHBOURS if length == 2 else random.Random(0).sample(NEIGHBOURS, 18)
        yield from map("".join, product(alphabet, repeat=length))
    for data in tokenizer.spec.vocab:
        text = data.decode(errors="ignore")
        yield text
        if len(data) > 1:
            for left, right in product(["", *NEIGHBOURS[::2]], ["", "\n", *NEIGHBOURS[1::2]]):
                yield left + text + right
    characters = [chr(c) for c in (*range(0x80, 0xD800), *range(0xE000, 0xFFFF))]
    starting, ending = {}, {}  # some bytes -> characters with them
    for char in characters:
        for cut in range(1, len(char.encode())):
            starting.setdefault(char.encode()[:cut], []).append(char)
            ending.setdefault(char.encode()[cut:], []).append(char)
    for data in tokenizer.spec.vocab:
        middle = data.lstrip(CONTINUATION)
        starts = ending.get(data[: len(data) - len(middle)], [""])[:64]
        whole = middle.decode(errors="ignore")
        stops = starting.get(middle[len(whole.encode()) :], [""])[:64]
        if len(data) > 1 and whole.encode() != data:
            yield from (start + whole + stop for start in starts for stop in stops)


def check(tokenizer):
    found = audit(tokenizer)
    reached = {*tokenizer.spec.vocab.values()}
    reached -= {entry.id for entry in found.entries if entry.reach == "unreachable"}
    seen = set()
    for text in everything(tokenizer):
        seen.update(tokenizer.encode(text))
    names = {id: data for data, id in tokenizer.spec.vocab.items()}
    assert not seen - reached, [names[id] for id in seen - reached]
    assert not reached - seen, [names[id] for id in reached - seen]
    alone = {
        id for data, id in tokenizer.spec.vocab.items()
        if tokenizer.encode(data.decode(errors="replace")) == [id]
    }  # fmt: skip
    assert alone == {*names} - {entry.id for entry in found.entries}
    for entry in found.entries:
        if entry.reach == "context":
            assert entry.id in tokenizer.encode(entry.witness)
    assert sum(found.counts().values()) == found.num_entries == len(names) == 400
    return Counter((entry.reach, entry.reason) for entry in found.entries)


def test_brute_force_agrees():
    counts = check(trained())
    assert counts["unreachable", "regex"] > 5
    assert counts["unreachable", "normalization"] > 0
    assert counts["context", "regex"] > 0  # a line break and tabs, when another follows
    assert counts["context", "partial UTF-8"] > 60
    assert counts["unreachable", "partial UTF-8"] >= 13


def test_brute_force_agrees_where_merges_are_out_of_order():
    counts = check(trained(order=random.Random(1), normalizer="NFD"))
    assert counts["unreachable", "merges"] > 0


def test_brute_force_agrees_where_merges_are_missing():
    counts = check(trained(drop=range(30, 60)))
    assert counts["unreachable", "merges"] > 5


def test_qwen3(qwen3):
    """The totals of an independent count, exactly."""
    found = audit(qwen3)
    assert found.num_entries == 151_643
    assert found.num_alone == 148_286
    assert found.reasons() == {"partial UTF-8": 1448, "normalization": 248, "regex": 1661}
    unreachable = [entry for entry in found.entries if entry.reach == "unreachable"]
    bytes_of_no_text = {bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}
    assert {e.data for e in unreachable if "no UTF-8 text" in e.detail} == bytes_of_no_text
    assert len(unreachable) == 248 + 1661 + 13 + 10  # ten begin characters that NFC takes away
    for entry in islice((e for e in found.entries if e.witness), 0, None, 10):
        assert entry.id in qwen3.encode(entry.witness)
    assert len(found.duplicates) == 189
    assert not found.holes
    assert len(found.faults()) == 4


def test_reached_in_context_by_the_regex(genuine):
    """GPT-4o's pattern cuts an apostrophe off, unless it begins a contraction."""
    gpt4o = genuine("gpt4o")
    entries = {entry.data: entry for entry in audit(gpt4o).entries}
    entry = entries[b" I'"]
    assert (entry.reach, entry.reason) == ("context", "regex")
    assert gpt4o.token_to_id(" I'") in gpt4o.encode(entry.witness)
    assert not [e for e in entries.values() if e.reach == "unreachable" and e.reason == "regex"]


def test_what_else_is_odd(tmp_path):
    tokens = [
        added_token(401, "<|end|>", special=True), added_token(402, "<|end|>x", special=True),
        added_token(403, "b c"),
    ]  # fmt: skip
    merges = ["< |", "n d", "e nd", "Ġ end", "d |", "nd |", "b Ġ", "bĠ c", "a e", "ae f", "a e"]
    data = json_of({
        "merges": merges, "top": {"added_tokens": tokens, "padding": {
            "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 500, "pad_type_id": 0, "pad_token": "?"}},
        "extra": ["aef!", "\u0100"[:0] + GLYPH[0xC2] + GLYPH[0xA0]],
        "model": {"vocab": None},
    })  # fmt: skip
    plain = json_of({"merges": merges, "extra": ["aef!", GLYPH[0xC2] + GLYPH[0xA0]]})
    vocab = plain["model"]["vocab"]
    start = len(vocab)
    for number, token in enumerate(data["added_tokens"]):
        token["id"] = start + number
    data["model"]["vocab"] = vocab
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))
    found = audit(tokenizer, num_rows=260)
    name = {id: token for token, id in tokenizer.spec.vocab.items()}
    assert found.nested_added == (("<|end|>", "<|end|>x"),)
    assert [name[id] for id in found.fragments] == [b"nd|", b"<|", b"d|"]
    assert [tuple(name[id] for id in pair) for pair in found.repeated_merges] == [(b"a", b"e")]
    assert {name[id] for id in found.unmade} == {b"aef!", b"\xc2\xa0"}
    assert found.unknown_ids == (500,)
    assert tokenizer.token_to_id(" ") in found.white_space
    assert tokenizer.token_to_id("\u00a0") in found.white_space
    assert tokenizer.token_to_id("\x00") in found.invisible
    added = next(entry for entry in found.entries if entry.data == b"b c")
    assert (added.reach, added.reason) == ("unreachable", "added token")
    text = " ".join(found.faults())
    assert "beyond the 260 rows" in text
    assert "ids are used by the file" in text
    json.dumps(found.to_dict())


def test_prefix_spaces_hide_entries_at_the_start():
    pre = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True}
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(json_of({"merges": ["a b"],
                                                                       "pre": pre})))  # fmt: skip
    entry = next(e for e in audit(tokenizer).entries if e.data == b"ab")
    assert (entry.reach, entry.reason) == ("context", "prefix space")


def test_a_look_up_of_whole_pieces_reaches_what_no_merge_makes():
    pre = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True}
    data = json_of({"merges": ["b c"], "pre": pre, "extra": ["ab"],
                    "model": {"ignore_merges": True}})  # fmt: skip
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))
    entry = next(e for e in audit(tokenizer).entries if e.data == b"ab")
    assert (entry.reach, entry.reason) == ("context", "prefix space")
    assert entry.id in tokenizer.encode(entry.witness)


def test_files(tmp_path):
    data = json_of({"merges": ["a b"]})
    data["model"]["merges"] = ["a b", "ab c", ["x", "yz"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    assert [message.split(" needs ")[1] for message in missing_parts(tmp_path)] == [
        "'abc', which is not in the vocabulary", "'yz', which is not in the vocabulary",
    ]  # fmt: skip
    assert num_rows_of(tmp_path) is None
    (tmp_path / "config.json").write_text('{"vocab_size": 320}')
    assert num_rows_of(tmp_path) == num_rows_of(tmp_path / "tokenizer.json") == 320


@pytest.mark.parametrize("begin", [b"\xc3", b"\xe0", b"\xed", b"\xed\x9f", b"\xf0\x9f", b"\xf4"])
def test_characters_of_bytes(begin):
    expected = [c for c in range(0x110000)
                if not 0xD800 <= c < 0xE000 and chr(c).encode().startswith(begin)]  # fmt: skip
    assert list(characters_from(begin)) == expected
    end = chr(expected[-1]).encode()[-2:] if len(chr(expected[0]).encode()) > 2 else b"\xbf"
    assert list(characters_to(end)) == [
        c for c in range(0x80, 0x110000)
        if not 0xD800 <= c < 0xE000 and chr(c).encode().endswith(end) and chr(c).encode() != end
    ]  # fmt: skip


def test_bytes_that_no_text_has():
    for data in (b"\xff", b"\xe0\x80", b"\xed\xa0", b"\xf4\x90", b"\x80\x80\x80\x80", b"a\xe4a"):
        assert parts(data) is None
    assert parts(b"\x80\x80\x80") == (b"\x80\x80\x80", b"")
    assert Kinds([r"\p{L}"]).shape("aé1") == Kinds([r"\p{L}"]).shape("zß.")


def test_tokens_in_no_byte_alphabet_come_from_no_text():
    data = json_of({"vocab_add": {"😀": 256, "é中": 257}})
    found = audit(bpe.Tokenizer(bpe.formats.read_tokenizer_json(data)))
    entries = [entry for entry in found.entries if entry.reason == "byte alphabet"]
    assert [(entry.id, entry.data.decode()) for entry in entries] == [(256, "😀"), (257, "é中")]
    assert found.num_entries == 258 == sum(found.counts().values())
    assert found.holes == ()
    assert "2 entries can come from no text: its text is not in the byte alphabet" in (
        found.faults()
    )
