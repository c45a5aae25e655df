"""piece -> parts of it that merge by themselves: no token reaches across their borders.

Two characters that stand side by side in no token are never merged, so a piece may be cut between
them. Text without spaces falls apart into words of one or two characters this way; unlike its
pieces, which are whole clauses, they come again. Two ASCII characters are taken to be neighbours:
almost all are. Blind spot: it knows the tokens, not the merges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import add

# The characters of a token, of which the first and the last may be incomplete.
_CHARACTERS = re.compile(rb"[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*|[\x80-\xbf]+")


class Borders:
    """The pairs of characters that stand side by side in the tokens of one vocabulary."""

    def __init__(self, vocab: Iterable[bytes]) -> None:
        self._neighbours: set[str] = set()  # two characters
        # Where one of two neighbours is incomplete: the left one's bytes -> the right one's
        self._fragments: dict[bytes, set[bytes]] = {}
        self._continuations = _Continuations(self._fragments)
        for token in vocab:
            if not token.isascii():
                self._add(token)

    def _add(self, token: bytes) -> None:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            characters = _CHARACTERS.findall(token)
            for left, right in zip(characters, characters[1:]):
                try:
                    self._neighbours.add(left.decode() + right.decode())
                except UnicodeDecodeError:
                    self._fragments.setdefault(left, set()).add(right)
        else:
            self._neighbours.update(map(add, text, text[1:]))

    def cut(self, piece: str) -> list[str]:
        """The parts of a piece; joined they are the piece."""
        are_neighbours = map(self._neighbours.__contains__, map(add, piece, piece[1:]))
        continuations = self._continuations
        parts, start = [], 0
        for i, joined in enumerate(are_neighbours, start=1):
            if not joined:
                left, right = piece[i - 1], piece[i]
                begins = continuations[left]
                if (begins and right.encode().startswith(begins)) or (left + right).isascii():
                    continue
                parts.append(piece[start:i])
                start = i
        parts.append(piece[start:])
        return parts


class _Continuations(dict[str, tuple[bytes, ...]]):
    """character -> how a character may begin with which a token goes on from its end."""

    def __init__(self, fragments: dict[bytes, set[bytes]]) -> None:
        self._fragments = fragments

    def __missing__(self, char: str) -> tuple[bytes, ...]:
        data = char.encode()
        ends = (data[i:] for i in range(len(data)))
        self[char] = begins = tuple(b for end in ends for b in self._fragments.get(end, ()))
        return begins
