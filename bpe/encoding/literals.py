"""a set of texts -> where they stand in another text: leftmost first, the longest of each.

Where one of them may begin is found at the speed of C: by a small pattern of their first characters
where these are few or rare (`<|im`, `</to`); else word by word, since most words come again, and of
those it is known what may begin in them. There the longest is looked up in a sorted list. So the
time hardly grows with their number. Blind spot: what the texts are for.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator

LONGEST_BEGINNING = 5  # characters: few places in a text have those of some random word
MOST_BEGINNINGS = 256  # in a pattern; with more, words are faster (measured)
COMMON = 16  # beginnings with "<" and the like slow it no more than one as of a word (measured)
CACHED_CHARACTERS = 1 << 23  # of words, each with WORD_CHARACTERS more: some 10 MB
WORD_CHARACTERS = 64
BLOCK_CHARACTERS = 1 << 15  # of text cut into words at once: they then stay in the cores' caches


class Literals:
    """A set of texts, none of them empty, to be searched for."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sorted = sorted(texts)
        self._shorter = _shorter(self._sorted)
        self.longest = max(map(len, self._sorted), default=0)
        beginnings = _beginnings(self._sorted)
        if _cost(beginnings) <= MOST_BEGINNINGS:
            self._search = re.compile("|".join(map(re.escape, sorted(beginnings)))).search
            self._places = self._places_by_pattern if beginnings else lambda text: ()
        else:
            self._words = _Words(self, beginnings)
            self._places = self._places_by_word

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """(start, the literal that stands there); they don't overlap."""
        end = 0
        for start in self._places(text):
            if start >= end and (found := self.longest_at(text, start)):
                end = start + len(found)
                yield start, found

    def longest_at(self, text: str, start: int) -> str | None:
        """The longest of the literals with which text[start:] begins."""
        head = text[start : start + self.longest]
        # What head begins with stands before it in order, and all in between begin with that too.
        i = bisect_right(self._sorted, head)
        found = self._sorted[i - 1] if i else None
        while found and not head.startswith(found):
            found = self._shorter.get(found)
        return found

    def any_begins_with(self, text: str) -> bool:
        """Whether one of the literals begins with text."""
        i = bisect_left(self._sorted, text)
        return i < len(self._sorted) and self._sorted[i].startswith(text)

    def _places_by_pattern(self, text: str) -> Iterator[int]:
        """Where a literal may begin, in order; some of these places are inside of literals."""
        match = self._search(text)
        while match:
            yield match.start()
            match = self._search(text, match.start() + 1)

    def _places_by_word(self, text: str) -> Iterator[int]:
        beginnings, text, space = self._words.beginnings, f" {text} ", 0
        while space < len(text) - 1:
            end = text.find(" ", space + BLOCK_CHARACTERS, -1)
            end = len(text) - 1 if end < 0 else end
            words = text[space + 1 : end].split(" ")
            for word in filter(self._words.__getitem__, words):
                space = text.find(f" {word} ", space)
                for place, length in self._words[word]:
                    start = space + place
                    if text[start : start + length] in beginnings:
                        yield start - 1  # -1 at times: it is left out, as all before end are
                space += len(word) + 1
            space = end


def _shorter(ordered: Iterable[str]) -> dict[str, str]:
    """text -> the longest other one that it begins with, where there is one.

    >>> _shorter(["a", "ab", "abcd", "abd", "b"])
    {'ab': 'a', 'abcd': 'ab', 'abd': 'ab'}
    """
    shorter: dict[str, str] = {}
    nested: list[str] = []  # each begins with the one before
    for text in ordered:
        while nested and not text.startswith(nested[-1]):
            nested.pop()
        if nested:
            shorter[text] = nested[-1]
        nested.append(text)
    return shorter


def _beginnings(texts: Collection[str]) -> set[str]:
    """The first characters of each text: equally many where the first one is the same.

    >>> sorted(_beginnings(["<|start|>", "<s>", "end of text"]))
    ['<s>', '<|s', 'end o']
    """
    by_length = sorted(texts, key=len, reverse=True)
    lengths = {text[0]: min(len(text), LONGEST_BEGINNING) for text in by_length}  # the shortest's
    return {text[: lengths[text[0]]] for text in texts}


def _cost(beginnings: Collection[str]) -> int:
    """How many beginnings with rare characters make as slow a pattern."""
    if len(beginnings) > MOST_BEGINNINGS:
        return len(beginnings)
    return sum(COMMON if text[0].isalnum() or text[0] == " " else 1 for text in beginnings)


class _Words(dict[str, tuple[tuple[int, int], ...]]):
    """word -> where in a space and the word a literal may begin, and the length of its beginning.

    It is a dict with __missing__, and is emptied when it is full.
    """

    def __init__(self, literals: Literals, beginnings: set[str]) -> None:
        self._literals = literals
        self._room = CACHED_CHARACTERS
        self.beginnings = beginnings
        self._lengths = {beginning[0]: len(beginning) for beginning in beginnings}
        # What the next word goes on with is not known here: of "of the" there is "of ".
        ends = {text[: text.index(" ", 1) + 1] for text in beginnings if " " in text[1:]}
        self._beginnings_or_ends = beginnings | ends

    def __missing__(self, word: str) -> tuple[tuple[int, int], ...]:
        text, lengths = f" {word} ", self._lengths
        places = tuple(
            (place, lengths[first])
            for place, first in enumerate(text[:-1])
            if first in lengths
            and text[place : place + lengths[first]] in self._beginnings_or_ends
            and self._may_begin(text, place)
        )
        self._room -= len(word) + WORD_CHARACTERS
        if self._room < 0:
            self.clear()
            self._room = CACHED_CHARACTERS
        self[word] = places
        return places

    def _may_begin(self, text: str, place: int) -> bool:
        goes_on = len(text) - place < self._literals.longest  # into the next word
        return (
            goes_on and self._literals.any_begins_with(text[place:])
        ) or self._literals.longest_at(text, place) is not None
