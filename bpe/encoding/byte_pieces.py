"""pieces that are cut once more in the byte alphabet -> ids, each found once.

Falcon's pre-tokenizer goes on behind its ByteLevel step: it cuts at the bytes that are written as
digits, also within a character. Which parts a piece has depends on nothing around it, so they are
found when the piece is new. Blind spot: where pieces come from.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from bpe.encoding.alphabet import to_bytes
from bpe.encoding.pieces import PieceCache
from bpe.spec import Spec


class BytePieceCache(PieceCache):
    """piece -> its ids, as PieceCache, but no merge crosses the border of a part."""

    def __init__(self, spec: Spec, split_bytes: Callable[[str], list[str]]) -> None:
        """split_bytes: piece -> its parts in the byte alphabet."""
        super().__init__(spec)
        self._split_bytes = split_bytes

    def _ids_of(self, piece: str) -> tuple[int, ...]:
        parts = map(to_bytes, self._split_bytes(piece))
        return tuple(chain.from_iterable(map(self._ids_of_part, parts)))

    def _ids_of_part(self, data: bytes) -> tuple[int, ...]:
        whole = self.whole_pieces.get(data)
        return self._merged(data) if whole is None else (whole,)
