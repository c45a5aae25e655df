"""a piece -> its merges one by one, and why none joins two of its tokens.

A list that watches itself takes merge_short's place for the ids. Blind spot: where pieces come
from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bpe.encoding.merge import merge_long, merge_short
from bpe.encoding.pieces import LONGEST_SHORT_PIECE
from bpe.lab.characters import described, shown
from bpe.tokenizer import Tokenizer

Pair = tuple[int, int]


@dataclass(frozen=True)
class Merge:
    """One merge: the symbols number place and place + 1 became `merged`."""

    place: int
    left: int
    right: int
    merged: int
    rank: int


class _Watched(list):
    """A list of ids that writes down each merge that is made in it."""

    def __init__(self, ids: Collection[int]) -> None:
        super().__init__(ids)
        self.merges: list[tuple[int, int, int, int]] = []  # place, left, right, merged

    def __setitem__(self, place: int, merged: int) -> None:
        self.merges.append((place, self[place], self[place + 1], merged))
        super().__setitem__(place, merged)


class _RanksWithout:
    """ranks without one pair, as far as merging asks: as fast as a copy, and none is made."""

    def __init__(self, without: Pair, ranks: Mapping[Pair, int]) -> None:
        rank_of = ranks.get

        def get(pair: Pair, default: int | None = None) -> int | None:
            return default if pair == without else rank_of(pair, default)

        self.get = get


class Merger:
    """The merges of one tokenizer, and what would happen without one of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._inside = inside = tokenizer.inside
        self._vocab = tokenizer.spec.vocab
        self._bytes = tokenizer.spec.token_bytes
        self._ranks, self._results, self._parts = inside.ranks, inside.results, inside.parts
        self._why_of: dict[str, list[tuple[int, dict]]] = {}  # parts met before

    def trace(self, piece: str) -> Iterator[Merge]:
        """The merges of a piece in the order in which merging a piece makes them."""
        watched = _Watched(self._inside.ids_of_bytes(piece.encode()))
        merge_short(watched, self._ranks, self._results)
        for place, left, right, merged in watched.merges:
            yield Merge(place, left, right, merged, self._ranks[left, right])

    def ids_without(self, pair: Pair, data: bytes) -> list[int]:
        """What merging would give for bytes if the vocabulary lacked one of its merges."""
        ids = self._inside.ids_of_bytes(data)
        merge = merge_short if len(data) <= LONGEST_SHORT_PIECE else merge_long
        return merge(ids, _RanksWithout(pair, self._ranks), self._results)

    def why_apart(self, piece: str, ids: Sequence[int]) -> list[dict]:
        """The reason for each boundary between the ids of a piece.

        A piece is looked at part by part (borders.py): nothing merges across their borders, with
        all merges or with fewer.
        """
        reasons: dict[int, dict] = {}  # the boundary's byte in the piece -> its reason
        start = 0
        for part in self._inside.cut(piece):
            if part not in self._why_of:
                self._why_of[part] = list(self._why_apart(part))
            reasons |= {start + end: why for end, why in self._why_of[part]}
            start += len(part.encode())
        ends = list(accumulate(len(self._bytes[id]) for id in ids))[:-1]
        pairs = zip(ids, ids[1:])
        return [reasons.get(end) or self._no_merge(*pair) for end, pair in zip(ends, pairs)]

    def _why_apart(self, part: str) -> Iterator[tuple[int, dict]]:
        data = part.encode()
        rivals = self._rivals(part)
        final = self._inside.merge_bytes(data)
        ends_without = _EndsWithout(self, data)
        end = 0
        for left, right in zip(final, final[1:]):
            end += len(self._bytes[left])
            yield end, self._why(ends_without, end, left, right, rivals.get(end, []))

    def _rivals(self, part: str) -> dict[int, list[tuple[Pair, Pair]]]:
        """A byte of part -> the pairs that could have merged across it: (pair, what came first)."""
        symbols = list(self._inside.ids_of_bytes(part.encode()))
        starts = list(range(len(symbols)))
        rivals: dict[int, list[tuple[Pair, Pair]]] = {}
        for merge in self.trace(part):
            i, pair = merge.place, (merge.left, merge.right)
            for j in (i - 1, i + 1):  # the pairs that this merge takes a half of
                if 0 <= j < len(symbols) - 1 and (symbols[j], symbols[j + 1]) in self._ranks:
                    rival = (symbols[j], symbols[j + 1])
                    rivals.setdefault(starts[j + 1], []).append((rival, pair))
            symbols[i] = merge.merged
            del symbols[i + 1], starts[i + 1]
        return rivals

    def _why(
        self,
        ends_without: _EndsWithout,
        end: int,
        left: int,
        right: int,
        rivals: list[tuple[Pair, Pair]],
    ) -> dict:
        lower = [rival for rival in rivals if self._ranks[rival[1]] < self._ranks[rival[0]]]
        for pair, blocker in lower:
            if end not in ends_without[blocker]:
                return self._blocked(pair, blocker)
        for pair, blocker in rivals:
            if (pair, blocker) not in lower:
                return self._leftmost(pair, blocker)
        return self._no_merge(left, right)

    def ends(self, ids: Sequence[int]) -> set[int]:
        """How many bytes come before the end of each token."""
        return set(accumulate(len(self._bytes[id]) for id in ids))

    def _blocked(self, pair: Pair, blocker: Pair) -> dict:
        rank, first = self._ranks[pair], self._ranks[blocker]
        reason = (
            f"{self._names(pair)} would merge here (rank {rank}), but {self._names(blocker)} ranks "
            f"lower ({first}) and took its half first"
        )
        return {
            "kind": "blocked", "reason": reason, "pair": pair, "pair_rank": rank,
            "blocker": blocker, "blocker_rank": first,
        }  # fmt: skip

    def _leftmost(self, pair: Pair, blocker: Pair) -> dict:
        rank = self._ranks[pair]
        reason = (
            f"{self._names(pair)} merges wherever it can (rank {rank}), leftmost first: its half "
            "here was already taken by "
            + ("the same merge" if pair == blocker else f"{self._names(blocker)} of equal rank")
            + " on the left"
        )
        return {
            "kind": "leftmost", "reason": reason, "pair": pair, "pair_rank": rank,
            "blocker": blocker, "blocker_rank": rank,
        }  # fmt: skip

    def _no_merge(self, left: int, right: int) -> dict:
        reason = f"no merge joins {self._names((left, right))}"
        joined = self._bytes[left] + self._bytes[right]
        if joined in self._vocab:
            reason += f", although {shown(joined)} is a token ({self._vocab[joined]}): "
            parts = self._parts.get(self._vocab[joined])
            reason += f"it is made of {self._names(parts)}" if parts else "no merge makes it"
        elif rest := _cut_character(self._bytes[left], self._bytes[right]):
            reason += f", the bytes of {described(rest)}"
        return {"kind": "no merge", "reason": reason}

    def _names(self, pair: Pair) -> str:
        return " + ".join(shown(self._bytes[id]) for id in pair)


class _EndsWithout(dict[Pair, set[int]]):
    """A merge -> where the tokens of one text would end if the vocabulary lacked that merge."""

    def __init__(self, merger: Merger, data: bytes) -> None:
        self._merger, self._data = merger, data

    def __missing__(self, pair: Pair) -> set[int]:
        self[pair] = ends = self._merger.ends(self._merger.ids_without(pair, self._data))
        return ends


def _cut_character(left: bytes, right: bytes) -> str | None:
    """The character whose bytes are these, half on the left and half on the right, if it is one."""
    try:
        text = (left + right).decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) == 1 else None
