"""Training: the merges of Hugging Face's trainer and of the textbook, and what can be asked."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from paths import GOLDEN
from slow_trainer import glyph_merges
from slow_trainer import train as slow_train
from tiny import GLYPH

import bpe
from bpe.spec import PATTERNS, Split
from bpe.training.learn import Learner, Rules
from bpe.training.options import split_options

CASES = [json.loads(line) for line in (GOLDEN / "train.jsonl").read_text().splitlines()]
REFUSED = {  # name of a case -> what we say instead
    "vocab_below_alphabet": "less than the 256 bytes",  # HF trains nothing, silently
    "surrogate_in_corpus": "document 1 holds the lone surrogate U\\+D800",
    "file_not_utf8": "is not UTF-8 at byte 5",
}
ALPHABETS = [
    "ab", "a", "abc ", "abcdefgh  \n", "aé你 ~1\n\r", "'s 'llſ \t\u3000x", "😀a你好 э",
    "(){}[];\n /r", "-=_ab", "The cat sat on the mat. \n", "мир река 12", "ａＡ\u0301e\u0323",
]  # fmt: skip


def options_of(case):
    options = {name: case[name] for name in ("min_frequency", "special_tokens")}
    if "normalizer" in case:
        options["normalizer"] = case["normalizer"].lower()
    if "max_token_length" in case:
        options["max_token_length"] = case["max_token_length"]
    return options | {"cut_special_tokens": False}


def train_case(case, folder):
    """Documents as such; a file's text from a file, by line, as Hugging Face reads it."""
    if "file_text" in case or "file_hex" in case:
        data = bytes.fromhex(case["file_hex"]) if "file_hex" in case else case["file_text"].encode()
        (folder / "corpus.txt").write_bytes(data)
        return bpe.train_files(
            folder / "corpus.txt", case["vocab_size"], lines=True, **options_of(case)
        )
    corpus = case["corpus"] if "corpus" in case else eval(case["make"])
    return bpe.train(corpus, case["vocab_size"], **options_of(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_recorded_merges(case, tmp_path):
    if case["name"] in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[case["name"]]):
            train_case(case, tmp_path)
        return
    tokenizer = train_case(case, tmp_path)
    assert glyph_merges(tokenizer) == [tuple(merge) for merge in case["merges"]]
    assert tokenizer.vocab_size == case["n_vocab"]
    bytes_of = {glyph: byte for byte, glyph in GLYPH.items()}
    for glyphs, id in case.get("ids_of", {}).items():
        if all(glyph in bytes_of for glyph in glyphs):
            assert tokenizer.token_to_id(bytes(bytes_of[glyph] for glyph in glyphs)) == id


def random_corpus(seed):
    rng = random.Random(seed)
    alphabet = rng.choice(ALPHABETS)
    lengths = rng.choices([3, 10, 60, 300], k=rng.randint(1, 8))
    return rng, ["".join(rng.choices(alphabet, k=length)) for length in lengths]


def hf_trained(corpus, vocab_size, *, pattern="qwen", normalizer=None, files=(), **options):
    tokenizers = pytest.importorskip("tokenizers")
    parts = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = parts.Sequence([
        parts.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated"),
        parts.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    if normalizer:
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=parts.ByteLevel.alphabet(), show_progress=False,
        **{name: value for name, value in options.items() if value is not None},
    )  # fmt: skip
    if files:
        tokenizer.train(list(map(str, files)), trainer)
    else:
        tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def hf_merges(trained):
    return [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_corpora_as_hugging_face(first):
    for seed in range(first, first + 40):
        rng, corpus = random_corpus(seed)
        options = {
            "min_frequency": rng.choice([0, 1, 2, 3]),
            "special_tokens": rng.choice([[], [], ["<s>", "ab"], ["a", "abab", "aa"]]),
            "max_token_length": rng.choice([None, None, 2, 3, 5]),
            "pattern": rng.choice(list(PATTERNS)),
            "normalizer": rng.choice([None, "nfc"]),
        }
        size = 256 + len(options["special_tokens"]) + rng.choice([5, 30, 200, 1000])
        expected = hf_merges(hf_trained(corpus, size, **options))
        trained = bpe.train(corpus, size, cut_special_tokens=False, **options)
        assert glyph_merges(trained) == expected, (seed, size, options)


def test_lines_as_hugging_face_reads_files(tmp_path):
    path = tmp_path / "corpus.txt"
    for seed in range(60):
        rng, corpus = random_corpus(seed)
        path.write_bytes("\n".join(corpus).encode())
        options = {"min_frequency": 1, "pattern": rng.choice(list(PATTERNS))}
        expected = hf_merges(hf_trained(None, 400, files=[path], **options))
        assert glyph_merges(bpe.train_files(path, 400, lines=True, **options)) == expected, seed


@pytest.mark.parametrize("ties", ["huggingface", "first-seen"])
def test_random_corpora_by_the_textbook(ties):
    for seed in range(80):
        _, corpus = random_corpus(seed)
        words = [piece for text in corpus for piece in bpe.split_pieces(text)]
        for min_frequency in (0, 2):
            trained = bpe.train(corpus, 320, min_frequency=min_frequency, ties=ties)
            expected = slow_train(words, 64, min_frequency, ties)
            assert glyph_merges(trained) == expected, (seed, min_frequency)


def test_first_seen_may_differ():
    """(b, a) comes first in the text, (a, b) has the lower ids."""
    assert glyph_merges(bpe.train(["bab"], 257, min_frequency=1, ties="first-seen")) == [("b", "a")]
    assert glyph_merges(bpe.train(["bab"], 257, min_frequency=1)) == [("a", "b")]


def test_max_token_length_of_first_seen_is_plain():
    corpus = ["abcdabcdabcd abcd"]
    tokenizer = bpe.train(corpus, 280, max_token_length=3, ties="first-seen")
    assert max(map(len, tokenizer.spec.vocab)) == 3
    tokenizer = bpe.train(corpus, 280, max_token_length=1, ties="first-seen")
    assert tokenizer.spec.merges == ()


def test_a_merge_may_make_a_symbol_that_words_hold_already():
    """A vocabulary that takes whole pieces without merging (Llama 3) has "ab" before a merge has.

    Once (a, b) is merged, (ab, c) occurs 4 + 3 times, so it goes before (d, e) with 6.
    """
    tokens = {id: bytes([id]) for id in range(256)} | {256: b"ab"}
    words, weights = [chr(256) + "c", "abc", "ab", "de"], [4, 3, 9, 6]
    learner = Learner(words, weights, tokens, Rules(), reserved={}, next_id=257)
    assert learner.learn(259)
    assert learner.merges == [(97, 98), (256, 99), (100, 101)]
    assert learner.num_tokens() == 4 + 3 + 9 + 6


def test_counts_do_not_wrap():
    counts = {"ab": 1 << 31, "cd": (1 << 63) + 5, "ef": 1 << 40}
    tokenizer = bpe.train_from_counts(counts, 258)
    assert glyph_merges(tokenizer) == [("c", "d"), ("e", "f")]


def test_several_sizes_equal_their_own_runs(corpus):
    sizes = [300, 256, 420, 258, 5000]
    together = bpe.train(corpus, sizes, special_tokens=[])
    for size, tokenizer in zip(sizes, together):
        assert tokenizer.spec == bpe.train(corpus, size).spec
    assert [t.vocab_size for t in together[:4]] == sizes[:4]
    assert together[4].vocab_size < 5000


def test_special_tokens_are_cut_out():
    corpus = ["low<|end|>low <|end|>lower<|end|>", "<|end|>low"]
    specials = ["<|end|>", "<pad>"]
    trained = bpe.train(corpus, 300, min_frequency=1, special_tokens=specials)
    parts = ["low", "low ", "lower", "low"]
    assert glyph_merges(trained) == glyph_merges(bpe.train(parts, 298, min_frequency=1))
    assert trained.encode("low<|end|>", allowed_special="all")[-1] == 0
    assert trained.token_to_id("<pad>") == 1
    assert trained.special_ids == {0, 1}
    learned = bpe.train(
        corpus, 300, min_frequency=1, special_tokens=specials, cut_special_tokens=False
    )
    assert ("en", "d") in glyph_merges(learned)
    assert ("en", "d") not in glyph_merges(trained)


def test_longer_special_tokens_go_first():
    corpus = ["xx<|a|><|a|>b<|a|>xx"]
    trained = bpe.train(corpus, 300, min_frequency=1, special_tokens=["<|a|>", "<|a|>b"])
    assert glyph_merges(trained) == [("x", "x")]


# --- the files -----------------------------------------------------------------------------------

TEXTS = ["low newer <|end|> low", "  x\n\n\n y's 123 ", "é e\u0301 你好 😀", "lower\tnewest widest"]


@pytest.fixture(scope="module")
def corpus():
    """English, code and other scripts, about 60 kB."""
    rng = random.Random(5)
    words = "the of low newest widest герон мир 你好 水车 été naïve 12 7 () == \n\n".split(" ")
    source = Path(__file__).read_text()
    return [source, *("".join(f" {rng.choice(words)}" for _ in range(400)) for _ in range(12))]


@pytest.mark.parametrize("pattern", list(PATTERNS))
def test_hugging_face_loads_the_file_with_equal_ids(pattern, corpus, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    trained = bpe.train(
        corpus, 900, pattern=pattern, normalizer="nfc", special_tokens=["<|end|>", "a"]
    )
    trained.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = bpe.Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert again.spec == replace(trained.spec, vocab=again.spec.vocab)
    assert again.spec.vocab == dict(trained.spec.vocab) | {b"<|end|>": 0}
    for text in [*TEXTS, *corpus]:
        ids = theirs.encode(text).ids
        assert trained.encode(text, allowed_special="all") == ids
        assert theirs.decode(ids, skip_special_tokens=False) == trained.decode(ids)
    assert theirs.get_vocab_size() == trained.vocab_size == 900


def test_the_file_is_hugging_faces_own(corpus):
    """Not only the merges: ids of all tokens are those of a file that their trainer made."""
    specials = ["<s>", "</s>"]
    theirs = hf_trained(corpus, 700, min_frequency=2, special_tokens=specials)
    ours = bpe.train(corpus, 700, special_tokens=specials, cut_special_tokens=False)
    vocab = {"".join(GLYPH[byte] for byte in t): id for t, id in ours.spec.vocab.items()}
    assert vocab | {"<s>": 0, "</s>": 1} == theirs.get_vocab()


# --- extending -----------------------------------------------------------------------------------


def test_extending_keeps_every_id_and_merge(corpus, tmp_path):
    old = bpe.train(corpus[:1], 600, special_tokens=["<|end|>"], normalizer="nfc")
    new = bpe.train(corpus[1:], 640, extend=old, special_tokens=["<|new|>"])
    assert new.spec.merges[: len(old.spec.merges)] == old.spec.merges
    assert old.spec.vocab.items() <= new.spec.vocab.items()
    assert new.vocab_size == 640
    assert new.token_to_id("<|end|>") == 0
    assert new.token_to_id("<|new|>") == 600
    new.save(tmp_path / "tokenizer.json")
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*TEXTS, *corpus]:
        assert new.encode(text, allowed_special="all") == theirs.encode(text).ids


def test_extending_by_the_corpus_it_came_from_goes_on(corpus):
    """Then the further merges are those that one longer run would have found."""
    whole = bpe.train(corpus, 700)
    assert bpe.train(corpus, 700, extend=bpe.train(corpus, 500)).spec == whole.spec


def test_extending_learns_from_texts_as_the_old_tokenizer_encodes_them(corpus):
    """The textbook, begun with the ids of the old tokenizer."""
    old = bpe.train(corpus[:1], 400)
    words = [piece for text in corpus[1:4] for piece in bpe.split_pieces(text)]
    words = [old.encode(word) for word in words]
    new = bpe.train(corpus[1:4], 420, extend=old)
    for number, (left, right) in enumerate(new.spec.merges[len(old.spec.merges) :]):
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        assert (left, right) == min(pairs, key=lambda pair: (-pairs[pair], pair))
        words = [_merged(word, (left, right), 400 + number) for word in words]


def _merged(word, pair, id):
    out, i = [], 0
    while i < len(word):
        is_pair = tuple(word[i : i + 2]) == pair
        out.append(id if is_pair else word[i])
        i += 2 if is_pair else 1
    return out


def test_extending_a_genuine_vocabulary(qwen3, corpus, tmp_path):
    new = bpe.train(corpus, qwen3.vocab_size + 50, extend=qwen3, min_frequency=2)
    assert new.vocab_size == qwen3.vocab_size + 50
    assert [new.token_to_id(t.content) for t in qwen3.spec.added_tokens] == [
        t.id for t in qwen3.spec.added_tokens
    ]
    tokenizers = pytest.importorskip("tokenizers")
    new.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = corpus[0] + corpus[3] + "<|im_end|> <think>"
    assert new.encode(text, allowed_special="all") == theirs.encode(text).ids
    assert max(new.encode(corpus[3])) >= qwen3.vocab_size


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 256, "special_tokens": ["<s>"]}, "less than the 257 bytes and special"),
        ({"vocab_size": 0}, "0 is not a whole number"),
        ({"vocab_size": []}, "vocab_size is an empty list; name the size, or several, to learn"),
        ({"vocab_size": None}, "vocab_size None is not a whole number"),
        ({"vocab_size": 300.0}, "vocab_size 300.0 is not a whole number"),
        ({"vocab_size": "300"}, "vocab_size '300' is not a whole number"),
        ({"vocab_size": True}, "vocab_size True is not a whole number"),
        ({"vocab_size": [300, "400"]}, "'400' is not a whole number"),
        ({"vocab_size": 2_000_000}, "is not a whole number from 1 to 1114110"),
        ({"min_frequency": -1}, "below 0"),
        ({"max_token_length": 0}, "at least 1 byte"),
        ({"ties": "random"}, "'random' is neither of 'huggingface', 'first-seen'"),
        ({"normalizer": "nfkc"}, "neither"),
        ({"pattern": "("}, r"has a \( without its \)"),
        ({"pattern": "[b-a]"}, "not a valid regex"),
        ({"pattern": "(?i)a"}, r"has '\(\?i\)', which regex engines read differently"),
        ({"pattern": r"(?<=\ba)b"}, "within a lookbehind, which Hugging Face tokenizers refuses"),
        ({"pattern": 3}, "pattern is 3; it must be a regex or one of gpt2, qwen"),
        ({"special_tokens": "<s>"}, "pass a list"),
        ({"special_tokens": [""]}, "is no special token"),
        ({"special_tokens": ["Ġ"]}, "how a tokenizer.json writes the bytes 20"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"limit": 0}, "limit is 0"),
        ({"held_out": 0.9}, "from 0 to 0.5"),
        ({"max_memory": 1000}, "max_memory is 1000 bytes"),
        ({"resume": True}, "nothing to resume from"),
        ({"max_memory": 1 << 30, "ties": "first-seen"}, "leave one of the two out"),
    ],
)
def test_bad_options_are_refused_before_reading(options, message):
    def unread():
        raise AssertionError("the corpus was read")
        yield

    options = dict(options)
    with pytest.raises(ValueError, match=message):
        bpe.train(unread(), options.pop("vocab_size", 300), **options)


def test_a_pattern_goes_not_with_extend(corpus):
    old = bpe.train(corpus[:1], 300)
    with pytest.raises(ValueError, match="says itself how text is split"):
        bpe.train(corpus, 400, extend=old, pattern="gpt2")
    with pytest.raises(ValueError, match="less than the 300 ids of the tokenizer to extend"):
        bpe.train(corpus, 299, extend=old)


def test_unknown_options_and_documents_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'vocabulary'"):
        bpe.train(["ab"], 300, vocabulary=3)
    with pytest.raises(TypeError, match="document 2 is bytes, not str"):
        bpe.train(["ab", b"ab"], 300)


@pytest.mark.parametrize("counts", [{"": 1}, {"a": 0}, {"a": 1.5}, {"a": True}, {1: 1}])
def test_bad_counts_are_refused(counts):
    with pytest.raises(ValueError, match="each must be a text and a whole number"):
        bpe.train_from_counts(counts, 300)


def test_rules_in_numbers():
    assert Rules(max_token_length=4).allows(b"ab", b"c")
    assert not Rules(max_token_length=4).allows(b"ab", b"cd")
    assert Rules(max_token_length=1).allows(b"a", b"b")
    assert not Rules(max_token_length=1, ties="first-seen").allows(b"a", b"b")


def test_train_is_the_function():
    import bpe.training.trainer

    assert bpe.train is bpe.training.trainer.train
    assert split_options(300, {})[0].min_frequency == 2


@pytest.mark.parametrize("how", ["train", "train_files", "train_from_counts", "command"])
def test_what_no_file_can_hold_is_refused_before_reading(how, tmp_path, monkeypatch, capsys):
    """And where nothing is saved, it may be counted."""
    from bpe.__main__ import main

    split = Split(r"\w+|\W+")  # which Oniguruma takes for other words
    old = bpe.Tokenizer(replace(bpe.train(["ab"], 300).spec, pre_tokenizer=(split,)))
    assert bpe.split_pieces("a-b", extend=old) == ["a", "-", "b"]
    monkeypatch.setattr("bpe.training.run.run", None)
    monkeypatch.setattr("bpe.training.trainer.run", None)
    if how == "command":
        monkeypatch.setattr(bpe.Tokenizer, "from_pretrained", lambda name: old)
        corpus, output = tmp_path / "corpus.txt", tmp_path / "t.json"
        corpus.write_text("ab")
        assert main(["train", str(corpus), "-n", "400", "-o", str(output), "--extend", "x"]) == 1
        assert "is read differently by Hugging Face tokenizers" in capsys.readouterr().err
        return
    corpus = {"train": ["ab"], "train_files": [], "train_from_counts": {"ab": 1}}[how]
    with pytest.raises(ValueError, match="is read differently by Hugging Face tokenizers"):
        getattr(bpe, how)(corpus, 400, extend=old)


def test_one_text_is_no_list_of_texts():
    """Else each letter would be a document, and no merge would be learned without a word."""
    for call in (lambda: bpe.train("one long text", 300), lambda: bpe.count_pieces("a text")):
        with pytest.raises(TypeError, match=r"texts is one text; pass \[text\]"):
            call()
