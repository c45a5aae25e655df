"""pieces -> ids, each found once: the cache that makes pure Python fast.

A piece that is missing is looked for where it costs least: it is a token whose merges are known to
give it (derivation.py); or its parts have been met before (borders.py); or its bytes are merged
(merge.py). Blind spot: where pieces come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from bpe.encoding.borders import Borders
from bpe.encoding.derivation import Derivations
from bpe.encoding.merge import merge_long, merge_short
from bpe.spec import Spec

LONGEST_SHORT_PIECE = 128  # bytes; from about 100 on, merge_long is faster (measured)
MAX_CACHED_PIECES = 200_000  # 32 MB with pieces of ordinary words (measured); long ones count more
LONGEST_CACHED_PIECE = 256  # characters: rulers of "=" or "#" come again in texts and code
MAX_UNCUT_PIECES = 2000  # without a cut, before Borders is built, which takes 40 ms


class _Cache(dict[str, tuple[int, ...]]):
    """text -> its ids, found on the first look-up.

    A dict with __missing__, so that a hit costs one C look-up and no Python frame. When it is
    full it is emptied: text comes back to its common pieces at once, and nothing has to keep
    their age.
    """

    def __init__(self, find: Callable[[str], tuple[int, ...]]) -> None:
        self._find = find
        self._room = MAX_CACHED_PIECES

    def __missing__(self, text: str) -> tuple[int, ...]:
        ids = self._find(text)
        if len(text) <= LONGEST_CACHED_PIECE:
            self._room -= 1 + len(text) // 32
            if self._room < 0:
                self.clear()
                self._room = MAX_CACHED_PIECES
            self[text] = ids
        return ids


class PieceCache(_Cache):
    """piece -> its ids."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(self._ids_of)
        self.whole_pieces: Mapping[bytes, int] = {}  # pieces that are never merged
        self._parts: _Cache = self  # a part of a piece -> its ids
        if spec.ignore_merges:  # but a control token never comes out of plain text
            special_ids = {token.id for token in spec.added_tokens if token.special}
            self.whole_pieces = {t: id for t, id in spec.vocab.items() if id not in special_ids}
            # A part is no piece: it is merged
            self._parts = _Cache(lambda part: self._merged(part.encode()))
        single_bytes = (bytes([byte]) for byte in range(256))
        self.byte_ids = {
            token[0]: spec.vocab[token] for token in single_bytes if token in spec.vocab
        }
        if spec.equal_ranks:
            rank_of = {id: rank for rank, id in enumerate(dict.fromkeys(spec.merged))}
            self.ranks = {pair: rank_of[id] for pair, id in zip(spec.merges, spec.merged)}
            self.results = tuple(rank_of)
        else:
            self.ranks = dict(zip(spec.merges, range(len(spec.merges))))
            self.results = spec.merged
        self._vocab = spec.vocab
        self.derivations = Derivations(spec.vocab, spec.merges, spec.merged, self.ranks)
        self._borders: Borders | None = None  # found when there is text to cut
        self._num_uncut = 0

    def _ids_of(self, piece: str) -> tuple[int, ...]:
        data = piece.encode()
        token = self._vocab.get(data)
        if token is not None and (data in self.whole_pieces or self._is_reached(data, token)):
            return (token,)
        if len(data) - len(piece) >= 4:  # at least two characters that are not ASCII
            parts = self._cut(piece)
            if len(parts) > 1:
                return tuple(chain.from_iterable(map(self._parts.__getitem__, parts)))
        return self.merge_bytes(data)

    def _merged(self, data: bytes) -> tuple[int, ...]:
        """What merge_bytes gives, found sooner where it is known to be one token."""
        token = self._vocab.get(data)
        if token is not None and self._is_reached(data, token):
            return (token,)
        return self.merge_bytes(data)

    def merge_bytes(self, data: bytes) -> tuple[int, ...]:
        """The ids that merging gives for bytes, whether or not they are a token."""
        merge = merge_short if len(data) <= LONGEST_SHORT_PIECE else merge_long
        return tuple(merge(self.ids_of_bytes(data), self.ranks, self.results))

    def _is_reached(self, data: bytes, token: int) -> bool:
        """Whether merging the bytes of a token surely gives it."""
        return len(data) <= LONGEST_SHORT_PIECE and self.derivations.is_reached(token)

    def _cut(self, piece: str) -> list[str]:
        if self._borders is None:
            self._num_uncut += 1
            if self._num_uncut <= MAX_UNCUT_PIECES:
                return [piece]
        return self.borders.cut(piece)

    @property
    def borders(self) -> Borders:
        """Where a piece may be cut; found when first asked for."""
        if self._borders is None:
            self._borders = Borders(self._vocab)
        return self._borders

    def ids_of_bytes(self, data: bytes) -> list[int]:
        """The id of each byte. ValueError for one that has none."""
        try:
            return [self.byte_ids[byte] for byte in data]
        except KeyError as error:
            raise ValueError(
                f"this vocabulary has no token for the byte {error.args[0]:02X}, which the text "
                f"needs in {data[:40].decode(errors='replace')!r}"
            ) from None
