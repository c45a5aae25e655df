"""a text of a corpus -> its pieces, and where a long text may be cut before.

Blind spot: what the pieces are counted for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bpe.encoding.added import AddedTokens
from bpe.encoding.literals import Literals
from bpe.encoding.pretokenize import CHUNK_CHARACTERS, PreTokenizer
from bpe.spec import (
    GPT2_PATTERN,
    GPT4O_PATTERN,
    LLAMA3_PATTERN,
    QWEN_PATTERN,
    AddedToken,
    Lowercase,
    Normalize,
    PrefixSpace,
    Prepend,
    Replace,
    Split,
)

# Where a long text may be cut without changing any piece (the tests try all short texts): before
# white space, unless a newline or mark before it would take it along, and before a line's content.
_AFTER_NEWLINE = r"(?<=\S) |(?<=[A-Za-z])\n|(?<=\n)(?=[ \t]*[^\s/])"
_SAFE_CUTS = {
    GPT2_PATTERN: r"(?<=\S)[ \n]",
    QWEN_PATTERN: _AFTER_NEWLINE,
    LLAMA3_PATTERN: _AFTER_NEWLINE,
    GPT4O_PATTERN: _AFTER_NEWLINE,
}

# The same patterns for texts of which each line is split alone, its newline included: nothing
# matches beyond a newline, and a newline ends its text.
_LINE_FORMS = {
    GPT2_PATTERN: GPT2_PATTERN.replace(
        r"|\s+(?!\S)|\s+", r"|[^\S\n]*\n|[^\S\n]+(?!\S)|[^\S\n]+"
    ),
    **{
        pattern: pattern.replace(r"[\r\n]*", r"\r*\n?")
        .replace(r"[\r\n/]*", r"[\r/]*\n?")
        .replace(r"|\s*[\r\n]+|", r"|[^\S\n]*(?:\n|\r)|")
        for pattern in (QWEN_PATTERN, LLAMA3_PATTERN, GPT4O_PATTERN)
    },
}  # fmt: skip


@dataclass(frozen=True)
class Cutting:
    """How a text becomes pieces: cut out added tokens, normalize, split; perhaps line by line."""

    pre_tokenizer: tuple[Split | PrefixSpace, ...]
    normalizer: tuple[Normalize | Lowercase | Replace | Prepend, ...] = ()
    added_tokens: tuple[AddedToken, ...] = ()
    lines: bool = False
    unicode: str = "huggingface"

    @property
    def pattern(self) -> str | None:
        """The one pattern, if it is one whose ways we know, and no step depends on the context."""
        if any(not isinstance(step, Normalize | Lowercase) for step in self.normalizer):
            return None
        known = [pattern for pattern in _SAFE_CUTS if self.pre_tokenizer == (Split(pattern),)]
        return known[0] if known else None


class Splitter:
    """A Cutting, compiled."""

    def __init__(self, cutting: Cutting) -> None:
        self._lines = cutting.lines
        self._by_line = cutting.lines and cutting.pattern is None
        if cutting.lines and cutting.pattern:
            pre_tokenizer = (Split(_LINE_FORMS[cutting.pattern]),)
            self._pre_tokenizer = _compiled(replace(cutting, pre_tokenizer=pre_tokenizer))
        else:
            self._pre_tokenizer = _compiled(cutting)
        self._added = AddedTokens(cutting.added_tokens, self._pre_tokenizer.normalize)
        self._texts = Literals(self._added.by_text)
        cut = r"(?<=\n)[\s\S]" if cutting.lines else _SAFE_CUTS.get(cutting.pattern)
        self._safe_cut = cut and re.compile(cut)

    def last_cut(self, text: str, start: int = 0) -> int:
        """The last place after start where text may be cut in two and give the same pieces, or 0.

        What follows the text is not known, so an added token may begin near its end.
        """
        if self._safe_cut is None:
            return 0
        end = len(text) - self._texts.longest
        for first in (max(start, end - 128), max(start, end - 4096), start):
            places = [match.start() for match in self._safe_cut.finditer(text, first + 1, end)]
            for place in reversed(places):
                if not self._is_in_added(text, place):
                    return place
        return 0

    def _is_in_added(self, text: str, place: int) -> bool:
        for start in range(max(place - self._texts.longest + 1, 0), place):
            found = self._texts.longest_at(text, start)
            if found and start + len(found) > place:
                return True
        return False

    def pieces(self, text: str) -> Iterator[list[str]]:
        """The pieces of text, a list at a time; an empty one may be among them."""
        split = self._pre_tokenizer.split
        for stretch in self._stretches(text):
            for chunk in self._chunks(stretch):
                yield split(chunk)

    def _stretches(self, text: str) -> Iterator[str]:
        return (stretch for stretch in self._added.cut(text) if isinstance(stretch, str))

    def _chunks(self, text: str) -> Iterator[str]:
        if not self._lines:
            yield from self._pre_tokenizer.chunks(text)
            return
        start = 0
        length = 0 if self._by_line else CHUNK_CHARACTERS
        while len(text) - start > length:
            end = text.find("\n", start + length) + 1
            if not end:
                break
            yield text[start:end]
            start = end
        yield text[start:]


def _compiled(cutting: Cutting) -> PreTokenizer:
    return PreTokenizer(cutting, unicode=cutting.unicode)
