"""bpe/lab/explanation.py: replayed by hand it gives the ids; without a named merge no boundary."""

import json
import random
from dataclasses import replace
from itertools import accumulate

import pytest
import regex
from golden_cases import cases, value
from random_vocab import CHARACTERS, random_text, random_vocab
from tiny import added_token, json_of

import bpe
from bpe.lab import explain
from bpe.lab.branches import Branches, alternatives
from bpe.lab.characters import is_invisible, shown
from bpe.lab.explanation import LONGEST_TEXT
from bpe.spec import PATTERNS, PrefixSpace, Spec, Split
from tests.bpe.encoding.test_merge import merge_slowly

FAMILIES = ("qwen3", "llama3", "gpt4o", "deepseek_v3", "gpt2")
TEXT = (
    "I'll re\u0301sume\u0301 <think> it: 1234 don't\n\n  \U0001f468\u200d\U0001f469 ที่ lower中国人民"
)


def tokenizer_of(rng, *, shuffled, characters=CHARACTERS, **fields):
    vocab, ranks, _ = random_vocab(rng, 40, characters, shuffled=shuffled)
    merges = tuple(sorted(ranks, key=ranks.get))
    pattern = (Split(rng.choice([*PATTERNS.values(), r"[\s\S]+"])),)
    return bpe.Tokenizer(Spec(vocab, merges, fields.pop("pre_tokenizer", pattern), **fields))


def replayed(plain):
    """The ids from the printed merges alone: each replaces two symbols by one."""
    ids = []
    for stretch in plain["stretches"]:
        if stretch["token"]:
            ids.append(next(t["id"] for t in plain["tokens"] if t["start"] == stretch["start"]))
        for piece in stretch["pieces"]:
            symbols = list(piece["byte_ids"])
            for merge in piece["merges"]:
                i = merge["place"]
                assert symbols[i : i + 2] == [merge["left"], merge["right"]]
                symbols[i : i + 2] = [merge["merged"]]
            ids += piece["ids"] if piece["is_whole"] else symbols
    return ids


def test_printed_merges_rebuild_the_ids():
    rng = random.Random(0)
    num_merges = 0
    for _ in range(150):
        tokenizer = tokenizer_of(rng, shuffled=rng.random() < 0.5)
        for _ in range(5):
            text = random_text(rng, longest=40)
            plain = json.loads(json.dumps(explain(tokenizer, text).to_dict()))
            assert replayed(plain) == tokenizer.encode(text) == plain["ids"]
            num_merges += sum(len(p["merges"]) for s in plain["stretches"] for p in s["pieces"])
    assert num_merges > 2000


@pytest.mark.parametrize("name", FAMILIES)
def test_genuine_merges_rebuild_the_ids(genuine, name):
    tokenizer = genuine(name)
    texts = [TEXT, *(value(c, "text") for c in cases("encode") if "text" in c and "error" not in c)]
    for text in texts:
        if len(text) <= 200:
            explanation = explain(tokenizer, text, allowed_special="all")
            assert list(explanation.ids) == tokenizer.encode(text, allowed_special="all")
            assert replayed(explanation.to_dict()) == list(explanation.ids)
            assert "".join(s.text for s in explanation.stretches) == "".join(
                stretch if isinstance(stretch, str) else text[s.start : s.stop]
                for stretch, s in zip(tokenizer.inside.added.cut(text), explanation.stretches)
            )


def ends(tokenizer, ids):
    return list(accumulate(len(tokenizer.id_to_token(id)) for id in ids))


def test_without_the_blocking_merge_there_is_no_boundary():
    """A tokenizer that lacks the merge is made anew and encodes the same text."""
    rng = random.Random(1)
    kinds = dict.fromkeys(("split", "no merge", "blocked", "leftmost"), 0)
    for _ in range(150):
        characters = rng.choice(["ab ", CHARACTERS])
        tokenizer = tokenizer_of(rng, characters=characters, shuffled=rng.random() < 0.7)
        text = random_text(rng, characters, longest=30)
        explanation = explain(tokenizer, text)
        places = ends(tokenizer, explanation.ids)
        for boundary in explanation.boundaries:
            kinds[boundary.kind] += 1
            if boundary.kind != "blocked":
                continue
            assert boundary.blocker_rank < boundary.pair_rank
            merges = tuple(m for m in tokenizer.spec.merges if m != boundary.blocker)
            without = bpe.Tokenizer(replace(tokenizer.spec, merges=merges))
            place = places[boundary.index - 1]
            assert place not in ends(without, without.encode(text)), (text, boundary)
    assert min(kinds.values()) > 20, kinds


def test_no_merge_means_that_no_single_merge_is_in_the_way():
    """By brute force: whichever merge is taken away, the boundary stays, or it is no rival's."""
    rng = random.Random(2)
    checked = 0
    for _ in range(60):
        tokenizer = tokenizer_of(rng, shuffled=True, pre_tokenizer=(Split(r"[\s\S]+"),))
        inside = tokenizer.inside
        text = random_text(rng, longest=14)
        data = text.encode()
        explanation = explain(tokenizer, text)
        for boundary, end in zip(explanation.boundaries, ends(tokenizer, explanation.ids)):
            if boundary.kind != "no merge":
                continue
            left, right = (explanation.ids[boundary.index - 1], explanation.ids[boundary.index])
            assert (left, right) not in inside.ranks
            for merge in explanation.pieces[0].merges:
                ranks = {p: r for p, r in inside.ranks.items() if p != (merge.left, merge.right)}
                ids = merge_slowly(data, ranks, inside.results)
                if end not in ends(tokenizer, ids):  # then it freed a pair, but took no half of it
                    assert not touches(tokenizer, explanation.pieces[0], merge, end, inside.ranks)
            checked += 1
    assert checked > 50


def touches(tokenizer, piece, wanted, end, ranks):
    """Whether this merge took a half of a ranked pair across the byte `end` of the piece."""
    symbols = list(piece.byte_ids)
    for merge in piece.merges:
        i = merge.place
        if (merge.left, merge.right) == (wanted.left, wanted.right):
            stops = ends(tokenizer, symbols)
            for j in (i - 1, i + 1):
                pair = tuple(symbols[j : j + 2]) if j >= 0 else ()
                if pair in ranks and stops[j] == end and ranks[pair] > wanted.rank:
                    return True
        symbols[i : i + 2] = [merge.merged]
    return False


def test_the_reasons_by_name(qwen3):
    """Each boundary of a text in Qwen3, with what is known of its regex and merges."""
    explanation = explain(qwen3, "I'll re\u0301sume\u0301 12<think>aaa")
    found = {
        (shown(explanation.tokens[b.index - 1].data), shown(explanation.tokens[b.index].data)): b
        for b in explanation.boundaries
    }
    assert found["I", "'ll"].branches == (2, 1)
    assert found["1", "2"].branches == (3, 3)
    assert found["2", "<think>"].kind == found["<think>", "aaa"].kind == "added token"
    blocked = found["␣ré", "sum"]
    ranks = qwen3.inside.ranks
    as_ids = [tuple(map(qwen3.token_to_id, pair)) for pair in (("é", "s"), ("s", "um"))]
    assert (blocked.kind, blocked.pair, blocked.blocker) == ("blocked", *as_ids)
    assert (blocked.pair_rank, blocked.blocker_rank) == tuple(map(ranks.get, as_ids))
    assert explanation.boundary_at(1) is explanation.boundaries[0]


def test_the_step_that_cut(genuine):
    """DeepSeek's three steps: digits, Chinese, the rest; each boundary has the first that cuts."""
    explanation = explain(genuine("deepseek_v3"), "123456中a b")
    found = {shown(explanation.tokens[b.index].data): b for b in explanation.boundaries}
    assert {token: b.step for token, b in found.items()} == {"456": 0, "中": 0, "a": 1, "␣b": 2}
    assert found["456"].branches == (1, 1)
    assert found["中"].branches == (1, None)


def test_normalization_and_places(qwen3):
    explanation = explain(qwen3, "a re\u0301sume\u0301\u037ex")
    assert [(c.start, c.stop, c.before, c.after) for c in explanation.changes] == [
        (3, 5, "e\u0301", "é"), (8, 10, "e\u0301", "é"), (10, 11, "\u037e", ";"),
    ]  # fmt: skip
    assert [(t.id, t.start, t.stop) for t in explanation.tokens] == qwen3.encode_with_offsets(
        explanation.text
    )


def test_dropped_and_inserted_text():
    steps = [
        {"type": "Split", "pattern": {"Regex": "-+"}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
    ]
    drop_x = {"type": "Replace", "pattern": {"String": "x"}, "content": ""}
    data = json_of({
        "merges": ["a b"], "pre": {"type": "Sequence", "pretokenizers": steps},
        "top": {"normalizer": drop_x},
    })  # fmt: skip
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))
    explanation = explain(tokenizer, "axb--ab")
    assert [(p.text, p.start, p.stop, p.num_inserted) for p in explanation.pieces] == [
        (" ab", 0, 3, 1), (" ab", 5, 7, 1),
    ]  # fmt: skip
    assert [(c.start, c.stop, c.after) for c in explanation.changes] == [(1, 2, "")]
    assert "drops what stands between" in explanation.boundaries[1].reason
    assert tokenizer.spec.pre_tokenizer[-1] == PrefixSpace()


def test_a_piece_that_is_looked_up_whole(genuine):
    """Llama 3 has tokens that merging can't reach, only the look-up of a whole piece."""
    llama3 = genuine("llama3")
    inside = llama3.inside
    token = next(
        data.decode()
        for data, id in llama3.spec.vocab.items()
        if data.isalpha() and not inside.is_reached(id)
        and merge_slowly(inside.ids_of_bytes(data), inside.ranks, inside.results) != [id]
    )  # fmt: skip
    explanation = explain(llama3, token)
    assert explanation.pieces[0].is_whole
    assert explanation.pieces[0].merges == ()
    assert len(explanation.ids) == 1


def test_added_tokens_in_normalized_text_and_their_options():
    tokens = [added_token(257, "<é>", normalized=True), added_token(258, "<s>", special=True)]
    data = json_of({"merges": ["a b"], "top": {"added_tokens": tokens, "normalizer": {
        "type": "NFC"}}})  # fmt: skip
    tokenizer = bpe.Tokenizer(bpe.formats.read_tokenizer_json(data))
    text = "x<e\u0301>e\u0301<s>"
    for options in ({}, {"allowed_special": "all"}, {"added_tokens": False}):
        explanation = explain(tokenizer, text, **options)
        assert list(explanation.ids) == tokenizer.encode(text, **options)
        assert replayed(explanation.to_dict()) == list(explanation.ids)
    stretches = explain(tokenizer, text, allowed_special="all").stretches
    assert [(s.text, s.start, s.stop) for s in stretches] == [
        ("x", 0, 1), ("<é>", 1, 5), ("é", 5, 7), ("<s>", 7, 10),
    ]  # fmt: skip


def test_branches_against_the_whole_pattern():
    """For each match, by the slow rule: the first alternative that matches there, in `regex`."""
    rng = random.Random(3)
    characters = "aB1 '\n\r\t.é中ſ\u0301\u3000/"
    seen = set()
    for pattern in PATTERNS.values():
        splitter = bpe.encoding.pretokenize.PreTokenizer(
            Spec({bytes([b]): b for b in range(256)}, (), (Split(pattern),))
        ).steps[0]
        branches = Branches(splitter)
        for _ in range(300):
            text = "".join(rng.choice(characters) for _ in range(10)) + rng.choice(["'s", "'LL"])
            for start, stop, branch in branches.matches(text):
                found = next(
                    number
                    for number, part in enumerate(branches.sources, start=1)
                    if (match := regex.match(part, text, pos=start)) and match.end() == stop
                )
                assert branch == found, (text, start, pattern)
                seen.add((pattern, branch))
    assert len(seen) > 20


def test_patterns_that_cannot_be_told_apart():
    assert alternatives("a(b|c)|[|]|d") == ["a(b|c)", "[|]", "d"]
    spec = Spec({bytes([b]): b for b in range(256)}, (), (Split(r"(a)\1|b"),))
    explanation = explain(bpe.Tokenizer(spec), "aab")
    assert [piece.cuts[0].branches for piece in explanation.pieces] == [(0,), (0,)]


def test_characters_as_they_are_shown():
    assert shown(" a\u00a0\ufeff\u202e\n") == "␣a⟨NBSP⟩⟨BOM⟩⟨RLO⟩⟨LF⟩"
    assert shown("e\u0301") == "e⟨COMBINING ACUTE ACCENT⟩"
    assert shown("ที") == "ที"
    assert shown("ที"[1:]) == "⟨THAI CHARACTER SARA II⟩"
    assert shown("😀".encode()[:3] + b"a" + b"\xff") == "<F0 9F 98>a<FF>"
    for code in range(0, 0x110000, 17):
        if not 0xD800 <= code < 0xE000:
            assert shown(chr(code).encode()) == shown(chr(code))
    assert is_invisible("\u3164")
    assert not is_invisible("中")


def test_limits(tiny):
    with pytest.raises(ValueError, match=r"10,001 characters.*at most 10,000; pass the part"):
        explain(tiny, "a" * (LONGEST_TEXT + 1))
    with pytest.raises(ValueError, match="lone surrogate"):
        explain(tiny, "\ud800")
    assert explain(tiny, "").boundaries == ()
    assert explain(tiny, "").boundary_at(0) is None
    assert set(CHARACTERS) >= set("é中")
