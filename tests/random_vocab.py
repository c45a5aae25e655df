"""rng -> small vocabularies of random merges over characters that share their first bytes.

Shared by the tests of derivation.py and borders.py in bpe/encoding. Blind spot: it knows no rule
that those files rely on; the merges come from random texts, in an order as learned or not.
"""

CHARACTERS = "ab éèē中丰串乸😀😁"  # E4 B8 begins four of them, F0 9F 98 two, C3 and C4 three


def random_text(rng, characters=CHARACTERS, longest=12):
    return "".join(rng.choice(characters) for _ in range(rng.randint(0, longest)))


def random_vocab(rng, num_merges, characters=CHARACTERS, *, shuffled):
    """(vocab: bytes -> id, ranks: pair -> rank, results: rank -> id).

    As a trainer does, each merge takes a pair that neighbours in some text, but any such pair, with
    no regard to counts. shuffled puts the merges out of that order: many tokens can't be reached.
    """
    vocab = {bytes([byte]): byte for byte in range(256)}
    texts = [list(random_text(rng, characters).encode()) for _ in range(12)]
    merges, results, token_of = [], [], {id: token for token, id in vocab.items()}
    for _ in range(num_merges):
        pairs = [pair for text in texts for pair in zip(text, text[1:]) if pair not in merges]
        if not pairs:
            break
        pair = rng.choice(pairs)
        token = token_of[pair[0]] + token_of[pair[1]]
        id = vocab.setdefault(token, len(vocab))
        token_of[id] = token
        merges.append(pair)
        results.append(id)
        texts = [merge_pair(text, pair, id) for text in texts]
    order = list(range(len(merges)))
    if shuffled:
        rng.shuffle(order)
    ranks = {merges[i]: rank for rank, i in enumerate(order)}
    return vocab, ranks, [results[i] for i in order]


def merge_pair(ids, pair, id):
    out, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            out.append(id)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out
