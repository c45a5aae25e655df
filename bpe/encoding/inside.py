"""the stages of one tokenizer -> Inside: what each of them says, for whoever explains the ids.

It is for reading: a table that encode uses is handed out as a view that can't be written to, since
other threads may encode meanwhile. Blind spot: what is asked, and why (bpe/lab).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bpe.encoding.added import AddedTokens
from bpe.encoding.pieces import PieceCache
from bpe.encoding.pretokenize import PreTokenizer


@dataclass(frozen=True, eq=False)
class Inside:
    """The stages in the order in which text goes through them."""

    added: AddedTokens
    pre_tokenizer: PreTokenizer
    ids_of_piece: Callable[[str], tuple[int, ...]]
    whole_pieces: Collection[bytes]  # pieces that are looked up as they stand, never merged
    known_bytes: Collection[int]  # those that have a token
    ids_of_bytes: Callable[[bytes], list[int]]  # before any merge
    cut: Callable[[str], list[str]]  # a piece -> its parts that merge by themselves (borders.py)
    merge_bytes: Callable[[bytes], tuple[int, ...]]
    ranks: Mapping[tuple[int, int], int]  # pair -> merge order
    results: Sequence[int]  # rank -> the id that the merge gives
    parts: Mapping[int, tuple[int, int]]  # token -> its halves
    is_reached: Callable[[int], bool]  # whether merging a token's bytes surely gives it

    @classmethod
    def of(cls, added: AddedTokens, pre_tokenizer: PreTokenizer, pieces: PieceCache) -> Inside:
        """The inside of a tokenizer with these stages."""
        return cls(
            added=added,
            pre_tokenizer=pre_tokenizer,
            ids_of_piece=pieces.__getitem__,
            whole_pieces=pieces.whole_pieces.keys(),
            known_bytes=pieces.byte_ids.keys(),
            ids_of_bytes=pieces.ids_of_bytes,
            cut=lambda piece: pieces.borders.cut(piece),  # which are made when first needed
            merge_bytes=pieces.merge_bytes,
            ranks=MappingProxyType(pieces.ranks),
            results=pieces.results,
            parts=MappingProxyType(pieces.derivations.parts),
            is_reached=pieces.derivations.is_reached,
        )
