"""special tokens, or a tokenizer to extend -> the vocabulary that training begins with.

A new one has the ids of Hugging Face's BpeTrainer: special tokens in their order, then the 256
bytes in the order of their printable forms, then what is learned. Blind spot: it does not know the
corpus, nor how merges are found.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bpe.encoding.alphabet import ALPHABET, is_glyphs, to_bytes
from bpe.encoding.pieces import PieceCache
from bpe.encoding.tiktoken_syntax import given_split
from bpe.spec import AddedToken, ByteAlphabet, Normalize, Spec
from bpe.training.learn import Learner, Rules

GLYPH_ORDER = tuple(sorted(range(256), key=lambda byte: ALPHABET[byte]))
NORMALIZERS = {None: (), "none": (), "nfc": (Normalize("NFC"),)}


@dataclass(frozen=True)
class Base:
    """A Spec, and how pieces and merges are read and written in its ids."""

    spec: Spec

    @cached_property
    def next_id(self) -> int:
        return 1 + max(*self.spec.token_bytes, *(t.id for t in self.spec.added_tokens), 0)

    @cached_property
    def reserved(self) -> Mapping[bytes, int]:
        """Tokens that a merge may make though they have an id: bytes -> id.

        As in the file, where an added token and a merged one are the same if they are written so.
        """
        added = {
            to_bytes(token.content): token.id
            for token in self.spec.added_tokens
            if is_glyphs(token.content)
        }
        return added | dict(self.spec.vocab)

    def words(self, pieces: Sequence[str]) -> list[str]:
        """Each piece as its symbols, one character chr(id) for each."""
        if self.spec.merges:
            cache = PieceCache(self.spec)
            return ["".join(map(chr, cache[piece])) for piece in pieces]
        table = "".join(
            chr(self.spec.vocab.get(bytes([byte]), self.next_id)) for byte in range(256)
        )
        if not pieces:
            return []
        joined = b"\xff".join([piece.encode() for piece in pieces])  # FF is in no UTF-8
        return codecs.charmap_decode(joined, "strict", table)[0].split(table[0xFF])

    def learner(
        self,
        words: list[str],
        weights: list[int],
        rules: Rules,
        merges: Sequence[tuple[int, int]] = (),
    ) -> Learner:
        """A Learner of more merges, on words that have `merges` behind them."""
        return Learner(
            words, weights, {id: token for token, id in self.spec.vocab.items()}, rules,
            reserved=self.reserved, next_id=self.next_id, merges=merges,
        )  # fmt: skip

    def with_merges(self, learner: Learner, num_merges: int) -> Spec:
        """The Spec after the first num_merges that were learned."""
        merges = learner.merges[:num_merges]
        tokens, ids = learner.tokens, learner.ids
        made = [tokens[left] + tokens[right] for left, right in merges]
        vocab = dict(self.spec.vocab) | dict(zip(made, map(ids.__getitem__, made)))
        return replace(self.spec, vocab=vocab, merges=(*self.spec.merges, *merges))


def new_base(special_tokens: Iterable[str], pattern: str, normalizer: str | None) -> Base:
    """Bytes and special tokens only. pattern: a name in PATTERNS or a regex."""
    specials = {content: id for id, content in enumerate(dict.fromkeys(special_tokens))}
    for content in specials:
        check_special(content)
    vocab: dict[bytes, int] = {}
    next_id = len(specials)
    for byte in GLYPH_ORDER:
        id = specials.get(ALPHABET[byte])
        vocab[bytes([byte])] = next_id if id is None else id
        next_id += id is None
    added = [AddedToken(id, content, special=True) for content, id in specials.items()]
    spec = Spec(
        vocab=vocab,
        merges=(),
        pre_tokenizer=(given_split(pattern),),
        normalizer=NORMALIZERS[normalizer],
        added_tokens=tuple(added),
    )
    return Base(spec)


def extended_base(spec: Spec, special_tokens: Iterable[str]) -> Base:
    """An existing vocabulary; special tokens that it lacks take the next ids."""
    if ByteAlphabet() in spec.pre_tokenizer:
        raise ValueError(
            "training takes pieces for text, but this tokenizer's pre_tokenizer goes on cutting "
            "behind its ByteLevel step, as Falcon's does, and so within characters"
        )
    known = {token.content for token in spec.added_tokens}
    new = [content for content in dict.fromkeys(special_tokens) if content not in known]
    for content in new:
        check_special(content)
    first = Base(spec).next_id
    added = [AddedToken(id, content, special=True) for id, content in enumerate(new, start=first)]
    return Base(replace(spec, added_tokens=(*spec.added_tokens, *added)))


def check_special(content: str) -> None:
    """Refuse a special token that the file could not tell from a merged one."""
    if not isinstance(content, str) or not content:
        raise ValueError(f"{content!r} is no special token; it must be a text of 1 or more letters")
    if not content.isascii() and is_glyphs(content) and _is_in_text(to_bytes(content)):
        raise ValueError(
            f"the special token {content!r} is also how a tokenizer.json writes the bytes "
            f"{to_bytes(content).hex(' ').upper()}, so the two could not be told apart; choose "
            "another text"
        )


def _is_in_text(token: bytes) -> bool:
    """Could these bytes stand in UTF-8, characters at both ends perhaps cut?"""
    begun = next((i for i, byte in enumerate(token) if not 0x80 <= byte < 0xC0), len(token))
    try:
        codecs.getincrementaldecoder("utf-8")().decode(token[begun:])
    except UnicodeDecodeError:
        return False
    return begun < 4
