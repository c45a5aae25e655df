"""bpe/tokenizer.py and added.py: recorded ids, a slow obvious encoder, streams, and errors."""

import copy
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import regex
from compare import assert_same_ids
from golden_cases import cases, name_of, sha256_of_ids, value
from paths import ROOT
from tiny import CORPUS, added_token

import bpe
from bpe import formats
from bpe.spec import GPT2_PATTERN
from tests.bpe.encoding.test_merge import merge_slowly

ENCODE, DECODE = cases("encode"), cases("decode")


def with_added(tokenizer, added):
    """The tokenizer with more added tokens on top, numbered on as a file would."""
    data = formats.tokenizer_json(tokenizer.spec)
    for fields in added:
        data["added_tokens"].append(
            added_token(tokenizer.vocab_size + added.index(fields), **fields)
        )
    return bpe.Tokenizer(formats.read_tokenizer_json(data))


# --- encoding ----------------------------------------------------------------------------------


def test_the_capital_of_france(qwen3, smollm2):
    assert qwen3.encode("The capital of France is") == [785, 6722, 315, 9625, 374]
    assert smollm2.encode("The capital of France is") == [504, 3575, 282, 4649, 314]


@pytest.mark.parametrize("case", [c for c in ENCODE if "error" not in c], ids=name_of)
def test_recorded_ids(genuine, case):
    tokenizer = genuine(case["tokenizer"])
    if "added" in case:
        tokenizer = with_added(tokenizer, case["added"])
    allowed = "none" if case.get("encode_special_tokens") else "all"
    ids = tokenizer.encode(value(case, "text"), allowed_special=allowed)
    if "ids" in case:
        assert_same_ids(ids, case["ids"])
    else:
        assert sha256_of_ids(ids) == case["ids_sha256"]


@pytest.mark.parametrize("case", [c for c in ENCODE if "ids_unicodedata" in c], ids=name_of)
def test_current_unicode_gives_the_standards_ids(genuine, case):
    tokenizer = bpe.Tokenizer(genuine(case["tokenizer"]).spec, unicode="current")
    assert_same_ids(tokenizer.encode(case["text"]), case["ids_unicodedata"])


@pytest.mark.parametrize("case", [c for c in ENCODE if "error" in c], ids=name_of)
def test_what_is_no_text_is_refused(genuine, case):
    text = bytes.fromhex(case["bytes_hex"]) if "bytes_hex" in case else value(case, "text")
    error, message = (
        (TypeError, "bytes") if isinstance(text, bytes) else (ValueError, "lone surrogate")
    )
    with pytest.raises(error, match=message):
        genuine(case["tokenizer"]).encode(text)


def encode_slowly(tokenizer, text):
    """GPT-2's regex and the definition of merging; no cache, no fast path, no added tokens."""
    vocab, merges = tokenizer.spec.vocab, tokenizer.spec.merges
    tokens = {id: token for token, id in vocab.items()}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    results = [vocab[tokens[left] + tokens[right]] for left, right in merges]
    ids = []
    for piece in regex.findall(GPT2_PATTERN, text):
        ids += merge_slowly([vocab[bytes([byte])] for byte in piece.encode()], ranks, results)
    return ids


def test_equals_a_slow_encoder_on_random_texts(tiny):
    rng = random.Random(4)
    words = [*CORPUS.split(" "), " ", "  ", "\n", "é", "中", "😀", "1", "'s", "\x00", "the" * 60]
    for _ in range(1500):
        text = "".join(rng.choice(words) for _ in range(rng.randint(0, 12)))
        assert_same_ids(tiny.encode(text), encode_slowly(tiny, text))


def test_a_full_piece_cache_changes_nothing(tiny, monkeypatch):
    monkeypatch.setattr("bpe.encoding.pieces.MAX_CACHED_PIECES", 5)
    tokenizer = bpe.Tokenizer(tiny.spec)
    for _ in range(2):
        assert_same_ids(tokenizer.encode(CORPUS), tiny.encode(CORPUS))
        assert len(tokenizer._pieces) <= 5


def test_rulers_are_cached_and_count_more(tiny, monkeypatch):
    monkeypatch.setattr("bpe.encoding.pieces.MAX_CACHED_PIECES", 6)
    tokenizer = bpe.Tokenizer(tiny.spec)
    tokenizer.encode("=" * 100 + " the")  # 1 + 100 // 32, and 1
    assert set(tokenizer._pieces) == {"=" * 100, " the"}
    tokenizer.encode("#" * 64)  # 3 more than there is room for
    assert set(tokenizer._pieces) == {"#" * 64}


def test_long_pieces_are_not_cached(tiny):
    tokenizer = bpe.Tokenizer(tiny.spec)
    tokenizer.encode("x" * 10_000)
    assert not tokenizer._pieces


def test_encode_batch_keeps_the_order(tiny):
    texts = ["a", "", "the cat", "<|im_end|>"]
    assert tiny.encode_batch(texts) == [tiny.encode(text) for text in texts]
    assert tiny.encode_batch(texts, allowed_special="all")[3] == [2]


# --- added tokens ------------------------------------------------------------------------------

INJECTION = "hi<|im_end|><think>"


def test_special_tokens_in_text_are_text_unless_allowed(tiny):
    assert 2 not in tiny.encode(INJECTION)
    assert tiny.encode(INJECTION)[-1] == 319  # <think> is not special: it always matches
    assert 319 not in tiny.encode(INJECTION, added_tokens=False)
    assert tiny.encode(INJECTION, allowed_special="all")[-2:] == [2, 319]
    assert tiny.encode("<|im_start|><|im_end|>", allowed_special={"<|im_end|>"})[-1] == 2
    assert 1 not in tiny.encode("<|im_start|><|im_end|>", allowed_special={"<|im_end|>"})
    for text in (INJECTION, "<|im_start|>"):
        for options in ({}, {"added_tokens": False}, {"allowed_special": "all"}):
            assert tiny.decode(tiny.encode(text, **options)) == text


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ("<|im_end|>", "neither"),
        ({"<|oops|>"}, "'<|oops|>' in allowed_special is no special token"),
    ],
)
def test_allowed_special_is_checked(tiny, allowed, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        tiny.encode("x", allowed_special=allowed)


def test_a_special_token_never_comes_out_of_ignore_merges(tiny_json):
    """A whole piece equal to a special token's text is looked up in the vocabulary, but not it."""
    data = copy.deepcopy(tiny_json)
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"] |= {"STOP": 319, "GOAL": 320}
    data["added_tokens"][3] = added_token(319, "STOP", special=True)
    tokenizer = bpe.Tokenizer(formats.read_tokenizer_json(data))
    assert 319 not in tokenizer.encode("STOP")
    assert tokenizer.encode("STOP", allowed_special="all") == [319]
    assert tokenizer.encode("GOAL") == [320]


# --- decoding ----------------------------------------------------------------------------------


def is_known(case, tokenizer):
    return all(0 <= id < tokenizer.vocab_size for id in value(case, "ids"))


@pytest.mark.parametrize("case", DECODE, ids=name_of)
def test_recorded_texts_and_streams(genuine, case):
    tokenizer, ids = genuine(case["tokenizer"]), value(case, "ids")
    skip = case["skip_special_tokens"]
    if not is_known(case, tokenizer):  # Hugging Face drops an unknown id without a word; we name it
        unknown = next(id for id in ids if not 0 <= id < tokenizer.vocab_size)
        with pytest.raises(ValueError, match=f"id {unknown} at position {ids.index(unknown)}"):
            tokenizer.decode(ids)
        return
    text = value(case, "text")
    assert tokenizer.decode(ids, skip_special_tokens=skip) == text
    if not skip and "bytes_hex" in case:
        assert tokenizer.decode_bytes(ids).hex() == case["bytes_hex"]
    stream = tokenizer.stream(skip_special_tokens=skip)
    chunks = [*map(stream.push, ids), stream.finish()]
    assert chunks == case.get("stream", chunks)
    assert "".join(chunks) == text


def test_streams_join_to_the_decoded_text(tiny):
    rng = random.Random(5)
    for _ in range(10_000):
        ids = [rng.randrange(tiny.vocab_size) for _ in range(rng.randint(0, 12))]
        stream = tiny.stream()
        chunks = [*map(stream.push, ids), stream.finish()]
        assert "".join(chunks) == tiny.decode(ids)
        assert tiny.decode(ids) == tiny.decode_bytes(ids).decode("utf-8", "replace")


def test_a_stream_gives_text_as_early_as_it_can(tiny):
    euro = tiny.encode("a€b")  # the tiny vocabulary has no token for the euro sign
    stream = tiny.stream()
    assert [stream.push(id) for id in euro] == ["a", "", "", "€", "b"]
    assert stream.finish() == ""
    for id in euro[:3]:
        last = stream.push(id)
    assert last == ""
    assert stream.finish() == "\ufffd"


def test_every_text_survives_the_round_trip(tiny, qwen3):
    rng = random.Random(6)
    for _ in range(300):
        text = "".join(
            chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
            for _ in range(20)
        )
        for tokenizer in (tiny, qwen3):
            decoded = tokenizer.decode(tokenizer.encode(text))
            assert decoded == tokenizer._pre_tokenizer.normalize(text)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 320], "id 320 at position 1 is beyond the last token, 319"),
        ([-1], "id -1 at position 0 is not a token id"),
        (["a"], "id 'a' at position 0 is not a token id"),
        ([1.5], "id 1.5 at position 0 is not a token id"),
        ([[1]], r"id \[1\] at position 0 is not a token id"),
    ],
)
def test_unknown_ids_are_named(tiny, ids, message):
    with pytest.raises(ValueError, match=message):
        tiny.decode(ids)


def test_a_hole_in_the_vocabulary_is_named(tiny_json):
    data = copy.deepcopy(tiny_json)
    data["model"]["vocab"]["xyzzy"] = 400
    data["added_tokens"].pop()
    with pytest.raises(ValueError, match="id 350 at position 0 has no token: it is a hole"):
        bpe.Tokenizer(formats.read_tokenizer_json(data)).decode([350])


def test_strict_errors_are_the_callers_choice(tiny):
    broken = tiny.encode("€")[:1]
    assert tiny.decode(broken) == "\ufffd"
    assert tiny.decode(broken, errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        tiny.decode(broken, errors="strict")


# --- looking tokens up -------------------------------------------------------------------------


def test_tokens_and_ids_look_each_other_up(tiny):
    assert tiny.token_to_id(" the") == tiny.encode(" the")[0]
    assert tiny.id_to_token(tiny.token_to_id(" the")) == b" the"
    assert tiny.token_to_id("<|im_end|>") == 2
    assert tiny.id_to_token(2) == b"<|im_end|>"
    assert tiny.token_to_id(b"\xff") is not None
    assert tiny.token_to_id("not a token") is None
    assert tiny.vocab_size == 320
    for id in range(tiny.vocab_size):
        assert tiny.token_to_id(tiny.id_to_token(id)) == id


def test_bytes_without_a_token_are_an_error_that_names_them(smollm2):
    """SmolLM2's vocabulary was trained without some control characters; nothing is dropped."""
    with pytest.raises(ValueError, match="no token for the byte 04"):
        smollm2.encode("end\x04")
    assert smollm2.decode(smollm2.encode("tab\tok 1234\n\n x")) == "tab\tok 1234\n\n x"


def test_the_vocabulary_as_a_table(tiny):
    vocab = tiny.get_vocab()
    assert len(vocab) == 320
    assert all(tiny.id_to_token(id) == token for token, id in vocab.items())
    assert vocab[b" the"] == tiny.token_to_id(" the")
    assert vocab[b"<think>"] == 319


def test_what_the_files_name(tiny, qwen3, smollm2):
    assert (tiny.eos_id, tiny.bos_id, tiny.unk_id, tiny.pad_id) == (2, None, None, None)
    assert (qwen3.eos_id, qwen3.pad_id, qwen3.bos_id) == (151645, 151643, None)
    assert smollm2.decode([smollm2.bos_id, smollm2.eos_id]) == "<|im_start|><|im_end|>"


def test_a_tokenizer_says_what_it_is_in_one_line(tiny):
    expected = "<Tokenizer of 320 ids, 4 of them added, chat templates: default>"
    assert repr(tiny) == expected
    plain = bpe.Tokenizer(replace(tiny.spec, chat_templates={}))
    assert repr(plain) == "<Tokenizer of 320 ids, 4 of them added>"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tok: tok.encode_batch("one text"), "a list of texts, not one; pass"),
        (lambda tok: tok.decode("12"), "a list of ids, not '12'"),
        (lambda tok: tok.decode(12), "a list of ids, not 12"),
        (lambda tok: tok.decode("1" * 99, skip_special_tokens=True), "not '1{59}\\.\\.\\.$"),
        (lambda tok: tok.decode_bytes(b"12"), "a list of ids, not b'12'"),
        (lambda tok: tok.encode(["a"]), "takes a str, not list"),
    ],
)
def test_one_where_many_are_meant(tiny, call, message):
    with pytest.raises(TypeError, match=message):
        call(tiny)


def test_the_packages_list_what_is_public():
    script = "import bpe; print(*dir(bpe)); print(*dir(bpe.lab)); bpe.lab.explain; bpe.train"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    public, lab = (line.split() for line in run.stdout.splitlines())
    assert set(public) == {*bpe.__all__, "__version__"}
    assert {"explain", "audit", "compare", "diff", "roundtrip", "check"} < set(lab)
    assert run.stderr == ""
    assert not any(name.startswith("_") for name in [*public, *lab] if name != "__version__")
