r"""token ids -> how merging comes to them: proofs that spare most of the merging itself.

Merging goes by rank, so the bytes on both sides of a border know nothing of each other until a pair
across that border ranks lower than what still waits inside. Which symbols ever stand at the border,
and until which rank, the two tokens' own derivations tell: those on the right edge of the left
tree, and on the left edge of the right one.

          lower             Does anything merge across "low|er" before (low, er) does?
         /     \            At the right edge of low stand  w, then low;
       low     er           at the left edge of er stand  e, then er.
      /   \    / \          So (w, e), (low, e) or (w, er) might, if ranked low enough.
     lo    w  e   r

If nothing does, merging the bytes of both gives both, and then the token of both. So a token is
known to be reached without merging its bytes. Blind spot: what it can't prove may still be true
(another derivation of the token); then the caller merges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bpe.encoding.merge import UNRANKED, Ranks


class Derivations:
    """What the merges of one vocabulary say about its tokens."""

    def __init__(
        self,
        vocab: Mapping[bytes, int],
        merges: Sequence[tuple[int, int]],
        merged: Sequence[int],
        ranks: Ranks,
    ) -> None:
        """merged: the id that each of merges gives."""
        self._ranks = ranks
        self.parts = dict(zip(reversed(merged), reversed(merges)))  # token -> its first merge
        self.born = _Born(self.parts, ranks)
        self._is_reached = {id: True for token, id in vocab.items() if len(token) == 1}

    def is_reached(self, token: int) -> bool:
        """Whether merging the bytes of token surely gives token. It is proven once.

        Recursive: as deep as the token has bytes, at most.
        """
        known = self._is_reached.get(token)
        if known is None:
            known = self._is_reached[token] = self._prove(token)
        return known

    def _prove(self, token: int) -> bool:
        rank = self.born[token]
        if rank < 0:
            return False
        left, right = self.parts[token]
        return (
            self.born[left] < rank > self.born[right]
            and self.is_reached(left)
            and self.is_reached(right)
            and self.stay_apart(left, right, rank)
        )

    def stay_apart(self, left: int, right: int, end: int = UNRANKED) -> bool:
        """Whether no merge joins inner parts of two reached tokens before the rank `end`.

        The pair (left, right) itself is not looked at. Of two pairs with equal rank the left one
        merges first: hence < for the left end and <= for the right one, and a left symbol that is
        born at the rank at which a right one ends still meets it.
        """
        born, parts, rank_of = self.born, self.parts, self._ranks.get
        left_end = right_end = end  # the ranks at which left and right merge into another token
        left_born, right_born = born[left], born[right]
        while left_born >= 0 or right_born >= 0:
            if left_born > right_born:
                left_end, left = left_born, parts[left][1]
                left_born = born[left]
            else:
                right_end, right = right_born, parts[right][0]
                right_born = born[right]
            rank = rank_of((left, right))
            if rank is not None and rank < left_end and rank <= right_end:
                return False
        return True


class _Born(dict[int, int]):
    """token -> the rank of the merge that makes it; -1 for those that no merge makes."""

    def __init__(self, parts: Mapping[int, tuple[int, int]], ranks: Ranks) -> None:
        self._parts, self._ranks = parts, ranks

    def __missing__(self, token: int) -> int:
        self[token] = rank = self._ranks[self._parts[token]] if token in self._parts else -1
        return rank
