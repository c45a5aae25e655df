r"""text -> ids, word by word: the cache in front of all others, for text with spaces.

A word is what stands between two spaces: "str(x),". The families' patterns cut in front of every
space that something visible follows, whatever else stands around it, and `str.split` finds these
places several times as fast as a regex finds pieces. Most words come again, so most text is never
looked at more closely. A space that is no such border belongs to the word before it, as "·" here:

    "if x:\n    return x "      becomes      if   x:\n···   return   x·

Blind spot: where else than in front of spaces a text is cut; it asks those who know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from bpe.encoding.pieces import PieceCache
from bpe.encoding.pretokenize import PreTokenizer

MAX_CACHED_WORDS = 200_000  # 25 MB with the words of source code (measured)
LONGEST_CACHED_WORD = 64  # characters
NEW_CHARACTERS = 256  # for each new piece: text with so many is faster without words (measured)
BLOCK_CHARACTERS = 1 << 15  # of text cut into words at once: they then stay in the cores' caches

_BORDER = re.compile(r"(?<=\S) (?=\S)")
_INNER = "\0"  # stands for a space inside a word; a text that has this character goes by pieces
# Where numbers are cut out first, the white space in front of one is cut by itself, all together.
_LAST_OF_RUN_BEFORE_NUMBER = re.compile(r" (?<=[\s\0] )(?![!-/:-~])")


class _NotAWord(Exception):
    """White space that is no plain space follows a space: their border depends on what follows."""


class WordCache(dict[str, tuple[int, ...]]):
    """word -> the ids of a space and the word, found on the first look-up.

    Like PieceCache it is a dict with __missing__, and is emptied when it is full.
    """

    def __init__(
        self,
        pre_tokenizer: PreTokenizer,
        pieces: PieceCache,
        encode_pieces: Callable[[str], Iterable[int]],
    ) -> None:
        """pre_tokenizer: one that cuts_before_words. encode_pieces: any text -> its ids, without
        this cache."""
        first, *others = pre_tokenizer.steps
        self._split = pre_tokenizer.split if others else first.split
        self._has_numbers_first = bool(others)
        self._pieces = pieces
        self._encode_pieces = encode_pieces
        self._num_left_out = 0  # since it was full
        self._is_new = True  # the text of late: its words would be looked up in vain

    def encode(self, text: str) -> list[int]:
        """The ids of a normalized text."""
        first, *blocks = _cut_at_borders(text)
        ids = list(self._encode_pieces(first))
        for block in blocks:
            known = len(self._pieces)
            ids += self._encode_pieces(" " + block) if self._is_new else self._encode_block(block)
            self._is_new = (len(self._pieces) - known) * NEW_CHARACTERS > len(block)
        return ids

    def _encode_block(self, block: str) -> Iterable[int]:
        """The ids of a space and block, which begins visibly and ends before a border."""
        if _INNER not in block:
            words = self._joined(block).split(" ")
            try:
                return list(chain.from_iterable(map(self.__getitem__, words)))
            except _NotAWord:
                pass
        return self._encode_pieces(" " + block)

    def _joined(self, block: str) -> str:
        """block with the spaces replaced that are no borders: all of a run but the last one."""
        if "  " in block:
            pairs = block.replace("  ", _INNER + " ")  # of five: "\0 \0  "
            block = pairs.replace(" " + _INNER, 2 * _INNER).replace("  ", _INNER + " ")
        block = block.replace(" \n", _INNER + "\n")
        if self._has_numbers_first:
            block = _LAST_OF_RUN_BEFORE_NUMBER.sub(_INNER, block)
        return block[:-1] + _INNER if block.endswith(" ") else block

    def __missing__(self, word: str) -> Iterable[int]:
        if not word or word[0].isspace():
            raise _NotAWord
        text = " " + word.replace(_INNER, " ")
        if len(word) > LONGEST_CACHED_WORD:
            return self._encode_pieces(text)
        ids = sum(map(self._pieces.__getitem__, self._split(text)), ())
        if len(self) < MAX_CACHED_WORDS:
            self[word] = ids
        else:
            self._num_left_out += 1
            if self._num_left_out == MAX_CACHED_WORDS:
                self.clear()
                self._num_left_out = 0
        return ids


def _cut_at_borders(text: str) -> Iterator[str]:
    """The first word of text, and the rest in blocks, without the spaces between them."""
    start, border = 0, _BORDER.search(text)
    while border is not None:
        yield text[start : border.start()]
        start = border.end()
        border = _BORDER.search(text, start + BLOCK_CHARACTERS)
    yield text[start:]
