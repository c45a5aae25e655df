"""derivation.py: what it proves against merging the bytes, on random and genuine merges."""

import random

import pytest
from random_vocab import CHARACTERS, random_vocab

from bpe.encoding.derivation import Derivations
from tests.bpe.encoding.test_merge import merge_slowly


def derivations_of(vocab, ranks, results):
    merges = sorted(ranks, key=ranks.get)
    return Derivations(vocab, merges, [results[ranks[pair]] for pair in merges], ranks)


def test_reached_tokens_are_what_merging_gives():
    rng = random.Random(0)
    num_reached = num_unreached = 0
    for number in range(600):
        characters = ("ab", "a", CHARACTERS)[number % 3]
        vocab, ranks, results = random_vocab(rng, 40, characters, shuffled=rng.random() < 0.5)
        derivations = derivations_of(vocab, ranks, results)
        for data, token in vocab.items():
            is_reached = merge_slowly(data, ranks, results) == [token]
            if derivations.is_reached(token):
                assert is_reached, (data, ranks)
                num_reached += len(data) > 1
            else:
                num_unreached += not is_reached
    assert num_reached > 3000
    assert num_unreached > 1000


def test_every_token_that_was_learned_is_proven():
    """In the order of learning, with one merge a token, all are reached, and no proof may fail."""
    rng = random.Random(1)
    num_proven = 0
    for _ in range(400):
        vocab, ranks, results = random_vocab(rng, 40, shuffled=False)
        if len(set(results)) < len(results):
            continue
        derivations = derivations_of(vocab, ranks, results)
        for data, token in vocab.items():
            assert merge_slowly(data, ranks, results) == [token], (data, ranks)
            assert derivations.is_reached(token), (data, ranks)
            num_proven += len(data) > 1
    assert num_proven > 3000


def test_equal_ranks():
    """As in .tiktoken files: merges that give one token share its rank; the leftmost goes first."""
    rng = random.Random(2)
    for _ in range(300):
        characters = rng.choice(["ab", CHARACTERS])
        vocab, ranks, results = random_vocab(rng, 40, characters, shuffled=rng.random() < 0.5)
        rank_of = {id: rank for rank, id in enumerate(dict.fromkeys(results))}
        equal = {pair: rank_of[results[rank]] for pair, rank in ranks.items()}
        merges = sorted(ranks, key=ranks.get)
        merged = [results[ranks[pair]] for pair in merges]
        derivations = Derivations(vocab, merges, merged, equal)
        for data, token in vocab.items():
            if derivations.is_reached(token):
                assert merge_slowly(data, equal, list(rank_of)) == [token], (data, equal)


@pytest.mark.parametrize(
    ("length", "expected"), [(2, True), (3, False), (4, True), (5, False), (8, True)]
)
def test_a_run_pairs_from_the_left(length, expected):
    """a a a a: (a, a) goes first, so aaa = (a, aa) is never reached, and aa|aa stays apart."""
    vocab = {bytes([byte]): byte for byte in range(256)}
    vocab |= {b"a" * n: 254 + n for n in (2, 3, 4, 5, 8)}
    merges = [(97, 97), (97, 256), (256, 256), (258, 97), (258, 258)]  # aaa as a + aa
    merged = [256, 257, 258, 259, 262]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    slow = merge_slowly(b"a" * length, ranks, merged)
    token = vocab[b"a" * length]
    expected = expected or slow == [token]
    assert Derivations(vocab, merges, merged, ranks).is_reached(token) == expected


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_genuine_tokens(genuine, name):
    """Each of a thousand tokens, against merging its bytes."""
    pieces = genuine(name)._pieces
    for data, token in random.Random(3).sample(sorted(genuine(name).spec.vocab.items()), 1000):
        merged = merge_slowly(pieces.ids_of_bytes(data), pieces.ranks, pieces.results)
        assert pieces.derivations.is_reached(token) == (merged == [token]), data
