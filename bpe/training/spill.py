"""piece counts that don't fit -> sorted runs on disk -> the most frequent pieces that do fit.

Counting stays exact: when a table grows beyond its share of the memory it is written out, sorted,
and the runs are added up at the end, a piece at a time. Only learning needs all pieces at once;
what does not fit then are the rarest ones. Blind spot: it does not know what is learned from the
counts, so it can't tell whether the lost ones would have changed anything.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

ENTRY_BYTES = 130  # of a Counter's entry: its slot while the table doubles, and the count
LEARNING_BYTES = 260  # of a word while merges are learned, without its symbols (measured)
SYMBOL_BYTES = 30  # of each symbol of a word: its entries in the lists of words (measured)


def table_bytes(counts: Mapping[str, int]) -> int:
    """About how much memory a table takes, from its newest pieces."""
    newest = list(islice(reversed(counts), 1000))
    size = sum(map(sys.getsizeof, newest)) / len(newest) if newest else 0
    return int(len(counts) * (ENTRY_BYTES + size))


def learning_bytes(piece: str) -> int:
    """About how much memory a piece takes while merges are learned."""
    return LEARNING_BYTES + SYMBOL_BYTES * len(piece.encode())


def write_run(counts: Mapping[str, int], path: Path) -> None:
    """Write a table sorted by piece. The escapes keep each entry on a line of its own."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for piece in sorted(counts):
            file.write(f"{_escape(piece)}\t{counts[piece]}\n")


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            piece, _, count = line.rpartition("\t")
            yield _unescape(piece), int(count)


def _escape(piece: str) -> str:
    return piece.replace("\\", "\\\\").replace("\n", "\\n")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


def added_up(runs: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """All pieces of sorted runs with their whole counts, in sorted order."""
    entries = heapq.merge(*map(_read_run, runs))
    for piece, group in groupby(entries, key=itemgetter(0)):
        yield piece, sum(count for _, count in group)


@dataclass(frozen=True)
class Kept:
    """The pieces that fit, and what was left out: distinct pieces, and how often they occurred."""

    counts: Counter[str]
    num_lost: int = 0
    lost_occurrences: int = 0


def most_frequent(runs: list[Path], num_bytes: int) -> Kept:
    """The most frequent pieces that learning can hold in num_bytes, from two passes over the runs.

    Of pieces that are equally frequent all are kept or none, so that no order decides. Pieces of a
    single byte have no pair and are not held against the memory.
    """
    sizes: Counter[int] = Counter()  # count -> memory that its pieces would take
    for piece, count in added_up(runs):
        sizes[count] += learning_bytes(piece)
    lowest, left = 0, num_bytes
    for count in sorted(sizes, reverse=True):
        left -= sizes[count]
        if left < 0:
            lowest = count + 1
            break
    kept: Counter[str] = Counter()
    num_lost = lost_occurrences = 0
    for piece, count in added_up(runs):
        if count >= lowest or len(piece.encode()) == 1:
            kept[piece] = count
        else:
            num_lost += 1
            lost_occurrences += count
    return Kept(kept, num_lost, lost_occurrences)
