"""texts -> merges, by the textbook: all pairs are counted again after every merge.

Slow and obvious on purpose, and of nothing that bpe has: what the fast trainer is compared with.
"""

from collections import Counter

from tiny import BYTE_ORDER, GLYPH

RANK = {GLYPH[byte]: rank for rank, byte in enumerate(BYTE_ORDER)}


def train(words, num_merges, min_frequency=1, ties="huggingface"):
    """Merges as pairs of glyph strings. words: the pieces in corpus order, repeats included."""
    words = [[GLYPH[byte] for byte in word.encode()] for word in words]
    ids = dict(RANK)
    merges = []
    while len(merges) < num_merges:
        pairs = Counter(pair for word in words for pair in zip(word, word[1:]))
        if not pairs or max(pairs.values()) < max(min_frequency, 1):
            break
        if ties == "huggingface":
            best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        else:
            best = max(pairs, key=pairs.get)  # the first of equals, as a dict keeps its order
        merges.append(best)
        ids.setdefault(best[0] + best[1], len(ids))
        words = [merge(word, best) for word in words]
    return merges


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def glyph_merges(tokenizer):
    """A tokenizer's merges as pairs of glyph strings."""
    glyphs = {
        id: "".join(GLYPH[byte] for byte in token) for token, id in tokenizer.spec.vocab.items()
    }
    return [(glyphs[left], glyphs[right]) for left, right in tokenizer.spec.merges]
