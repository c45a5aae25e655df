"""encoding/borders.py: the parts of a piece, merged one by one, against merging the whole piece."""

import random

from random_vocab import CHARACTERS, random_text, random_vocab

from bpe.encoding.borders import Borders
from tests.bpe.encoding.test_merge import merge_slowly


def test_parts_merge_by_themselves():
    rng = random.Random(0)
    num_cuts = num_kept = 0
    for _ in range(500):
        vocab, ranks, results = random_vocab(rng, 40, shuffled=rng.random() < 0.5)
        borders = Borders(vocab)
        for _ in range(10):
            piece = random_text(rng)
            parts = borders.cut(piece)
            assert "".join(parts) == piece
            ids = [id for part in parts for id in merge_slowly(part.encode(), ranks, results)]
            assert ids == merge_slowly(piece.encode(), ranks, results), (piece, parts, ranks)
            num_cuts += len(parts) - 1
            num_kept += max(0, len(piece) - len(parts))
    assert num_cuts > 3000
    assert num_kept > 3000


def test_a_cut_is_made_wherever_no_token_reaches_across():
    vocab = {bytes([byte]): byte for byte in range(256)} | {"中国".encode(): 256}
    assert Borders(vocab).cut("中国中中国国") == ["中国", "中", "中国", "国"]
    assert Borders(vocab).cut("ab国") == ["ab", "国"]  # ASCII is taken to be joined


def test_tokens_of_parts_of_characters():
    """A token that ends in a character's first bytes joins every character that begins so."""
    first_of = "丰".encode()[:2]
    vocab = {bytes([byte]): byte for byte in range(256)}
    assert Borders(vocab | {"é".encode() + first_of: 256}).cut("é丰é中é😀丰") == [
        "é丰", "é中", "é", "😀", "丰",
    ]  # fmt: skip
    assert Borders(vocab | {"é".encode()[1:] + b"a": 256}).cut("éaéb") == ["éa", "é", "b"]
    assert set(CHARACTERS) >= set("é丰中😀")


def test_chinese_falls_into_words_that_come_again(qwen3):
    borders = Borders(qwen3.spec.vocab)
    assert len(borders.cut("今天天气很好我们去公园散步")) >= 6
    assert borders.cut("中国") == ["中国"]
