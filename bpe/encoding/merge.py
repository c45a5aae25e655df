"""ids of single bytes -> ids of tokens: byte-pair merging of one piece.

Two functions with the same answer: `merge_short` is the textbook loop over a list, `merge_long`
keeps a linked list and a queue of ranks and stays n log n for pieces of a million bytes. Both
repeat one rule: of all neighbouring pairs that have a rank, merge the lowest-ranked, leftmost one
(Sennrich et al. 2016, arXiv:1508.07909). Blind spot: they do not know what bytes an id stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

Ranks = dict[tuple[int, int], int]  # (left id, right id) -> rank of the merge; lower goes first

UNRANKED = 1 << 62  # stands for "this pair never merges"; above any rank


def merge_short(ids: list[int], ranks: Ranks, results: Sequence[int]) -> list[int]:
    """Merge ids in place and return them; results[rank] is the id that a merge gives.

    Quadratic, yet the fastest for pieces of ordinary words: min, index and del run in C.

    >>> merge_short([97, 98, 97, 98, 99], {(97, 98): 0, (256, 99): 1}, [256, 257])
    [256, 257]
    """
    rank_of = ranks.get
    pair_ranks = [rank_of(pair, UNRANKED) for pair in zip(ids, ids[1:])]
    while pair_ranks:
        rank = min(pair_ranks)
        if rank == UNRANKED:
            break
        i = pair_ranks.index(rank)
        ids[i] = results[rank]
        del ids[i + 1], pair_ranks[i]
        if i:
            pair_ranks[i - 1] = rank_of((ids[i - 1], ids[i]), UNRANKED)
        if i < len(pair_ranks):
            pair_ranks[i] = rank_of((ids[i], ids[i + 1]), UNRANKED)
    return ids


def merge_long(ids: list[int], ranks: Ranks, results: Sequence[int]) -> list[int]:
    """The same as merge_short in n log n: symbols in a linked list, places of pairs by their rank.

    Places are never removed: one whose pair has changed since is recognised by its rank and left.
    All places of the lowest rank are merged in one go, from left to right, unless a merge makes a
    pair that ranks no higher; then that one is next.

    >>> merge_long([97, 98, 97, 98, 99], {(97, 98): 0, (256, 99): 1}, [256, 257])
    [256, 257]
    """
    n = len(ids)
    rank_of = ranks.get
    symbols: list[int | None] = list(ids)  # None: merged into a symbol on its left
    previous = list(range(-1, n - 1))
    following = list(range(1, n + 1))
    waiting: dict[int, list[int]] = {}  # rank -> places of left halves whose pair had it
    for place, rank in enumerate(map(rank_of, zip(ids, ids[1:]))):
        if rank is not None:
            waiting.setdefault(rank, []).append(place)
    queue = list(waiting)  # the ranks that have places
    heapify(queue)
    while queue:
        rank = heappop(queue)
        merged, places = results[rank], waiting.pop(rank)
        places.sort()
        for number, left in enumerate(places, start=1):
            right = following[left]
            if right >= n or rank_of((symbols[left], symbols[right])) != rank:
                continue
            symbols[left], symbols[right] = merged, None
            before, after = previous[left], following[right]
            following[left] = after
            lowest = UNRANKED  # of the two pairs that the merged symbol is now in
            if after < n:
                previous[after] = left
                if (new := rank_of((merged, symbols[after]))) is not None:
                    lowest = new
                    if new in waiting:
                        waiting[new].append(left)
                    else:
                        waiting[new] = [left]
                        heappush(queue, new)
            if before >= 0 and (new := rank_of((symbols[before], merged))) is not None:
                lowest = min(lowest, new)
                if new in waiting:
                    waiting[new].append(before)
                else:
                    waiting[new] = [before]
                    heappush(queue, new)
            if lowest <= rank:
                if rank not in waiting:
                    heappush(queue, rank)
                waiting[rank] = [*waiting.get(rank, ()), *places[number:]]
                break
    return [symbol for symbol in symbols if symbol is not None]
