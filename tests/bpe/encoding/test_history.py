"""A text's ids are its own: whatever was encoded before, in whatever cache, and in batches.

The definition is written out slowly here: split, take a whole piece where the vocabulary says so,
else merge its bytes. Caches fill up, are emptied and fill again, and the faster ways that come
after some texts (borders, words, wide twins) come early.
"""

import random

import pytest
from assets import FAMILIES
from compare import assert_same_ids
from random_vocab import random_text, random_vocab

import bpe
import bpe.encoding.pieces
import bpe.encoding.pretokenize
import bpe.encoding.words
from bpe.spec import PATTERNS, Spec, Split
from tests.bpe.encoding.test_merge import merge_slowly
from tests.bpe.formats.test_parity import random_text as mixed_text

JAPANESE = "のしない男である"
CJK = [
    chr(code) for code in (*range(0x3041, 0x3097), *range(0x4E00, 0x5200), *range(0xAC00, 0xAC80))
]


def slow_ids(tokenizer, text):
    """The definition, without any cache."""
    spec = tokenizer.spec
    special_ids = {token.id for token in spec.added_tokens if token.special}
    table = tokenizer._pieces
    ids = []
    for piece in tokenizer._pre_tokenizer.split(tokenizer._pre_tokenizer.normalize(text)):
        data = piece.encode()
        whole = spec.vocab.get(data) if spec.ignore_merges else None
        if whole is not None and whole not in special_ids:
            ids.append(whole)
        else:
            bytes_ = [spec.vocab[bytes([byte])] for byte in data]
            ids += merge_slowly(bytes_, table.ranks, table.results)
    return ids


@pytest.fixture
def early(monkeypatch):
    """Small caches, and every faster way after a few texts."""
    monkeypatch.setattr(bpe.encoding.pieces, "MAX_UNCUT_PIECES", 3)
    monkeypatch.setattr(bpe.encoding.pieces, "MAX_CACHED_PIECES", 40)
    monkeypatch.setattr(bpe.encoding.words, "MAX_CACHED_WORDS", 20)
    monkeypatch.setattr(bpe.encoding.words, "NEW_CHARACTERS", 0)
    monkeypatch.setattr(bpe.encoding.words, "BLOCK_CHARACTERS", 24)
    monkeypatch.setattr(bpe.encoding.pretokenize, "CHUNK_CHARACTERS", 64)
    monkeypatch.setattr(bpe.encoding.pretokenize, "RUNS_UNTIL_WIDE", 50)


def random_spec(rng):
    """Merges over few characters, and tokens that no merge gives or that merging misses."""
    vocab, ranks, _ = random_vocab(rng, 40, shuffled=rng.random() < 0.5)
    merges = tuple(sorted(ranks, key=ranks.__getitem__))
    ignore_merges, equal_ranks = rng.choice([(False, False), (True, False), (True, True)])
    for _ in range(8 if ignore_merges else 0):
        vocab.setdefault(
            (rng.choice(["", " "]) + random_text(rng, longest=4)).encode() or b"a", len(vocab)
        )
    return Spec(
        vocab,
        merges,
        (Split(rng.choice([*PATTERNS.values(), r"\s+", "[a-b]"])),),
        ignore_merges=ignore_merges,
        equal_ranks=equal_ranks,
    )


def test_random_vocabularies(early):
    rng = random.Random(3)
    num_whole = 0
    for _ in range(150):
        spec = random_spec(rng)
        used = bpe.Tokenizer(spec)
        texts = [" ".join(random_text(rng) for _ in range(rng.randint(1, 9))) for _ in range(12)]
        expected = [slow_ids(used, text) for text in texts]
        for text, ids in zip(texts, expected):
            assert bpe.Tokenizer(spec).encode(text) == ids, ascii(text)
        for _ in range(3):
            rng.shuffle(order := list(range(len(texts))))
            for i in order:
                assert used.encode(texts[i]) == expected[i], ascii(texts[i])
            assert used.encode_batch(texts, workers=1) == expected
            spans = [[id for id, _, _ in used.encode_with_offsets(text)] for text in texts]
            assert spans == expected
        num_whole += spec.ignore_merges and used._pieces._borders is not None
    assert num_whole > 40  # so often were pieces cut where whole ones are looked up


def family_texts(rng, count):
    for _ in range(count):
        yield rng.choice(["", "x "]) + mixed_text(rng, [" the"])
        yield "".join(rng.choices(CJK, k=rng.randint(2, 12)))


@pytest.mark.parametrize("name", FAMILIES)
def test_families(genuine, name, early):
    spec, rng = genuine(name).spec, random.Random(5)
    used = bpe.Tokenizer(spec)
    texts = [JAPANESE, *family_texts(rng, 150)]
    expected = [slow_ids(used, text) for text in texts]
    for text, ids in list(zip(texts, expected))[:8]:
        assert_same_ids(bpe.Tokenizer(spec).encode(text, added_tokens=False), ids)
    for _ in range(2):
        for text, ids in zip(texts, expected):
            assert_same_ids(used.encode(text, added_tokens=False), ids)
    together, apart = "\n x".join(texts), bpe.Tokenizer(spec)
    assert_same_ids(used.encode(together, added_tokens=False), slow_ids(used, together))
    assert_same_ids(apart.encode(together, added_tokens=False), slow_ids(used, together))


def test_a_part_of_a_piece_is_no_whole_piece(genuine):
    """As the library gives it, before and after pieces are cut where no token reaches across."""
    tokenizer, rng = bpe.Tokenizer(genuine("llama3").spec), random.Random(1)
    ids = [16144, 21105, 103, 16995, 71208, 103195]
    assert tokenizer.encode(JAPANESE) == ids
    for _ in range(bpe.encoding.pieces.MAX_UNCUT_PIECES + 100):
        tokenizer.encode("".join(rng.choices(CJK, k=6)))
    assert tokenizer._pieces._borders is not None
    tokenizer._pieces.clear()
    assert tokenizer.encode(JAPANESE) == ids
    assert tokenizer.encode_batch([JAPANESE, "x" + JAPANESE], workers=2)[0] == ids
