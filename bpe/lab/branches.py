r"""a split regex and one of its matches -> the branch that matched: which of its alternatives.

    's|'t| ?\p{L}+| ?\p{N}+|\s+        " the" is matched by branch 3

The alternatives are tried one by one where the match begins, on the text and in the form that the
splitter itself uses, so that each sees the same neighbours; the first that matches is the branch,
as in every backtracking engine. Blind spot: patterns whose alternatives can't stand alone (they
refer to each other's groups) count as one branch.
"""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from bpe.encoding.pretokenize import Splitter
from bpe.spec import PATTERNS

WHOLE = 0  # stands for the whole pattern, where its alternatives can't be told apart

_CONTRACTION = "'s 't 're 've 'm 'll 'd"
_OTHERS = r" ?[^\s\p{L}\p{N}]+"
_GPT4O = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
MEANINGS = {  # an alternative as it stands in a pattern -> what it is for
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)": "an English contraction, in upper or lower case",
    **dict.fromkeys(_CONTRACTION.split(), "an English contraction"),
    r"[^\r\n\p{L}\p{N}]?\p{L}+": "letters, with one character before them that is none",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+": "letters and marks, with one space or digit before",
    r" ?\p{L}+": "letters, with a space before them",
    r" ?\p{N}+": "numbers, with a space before them",
    r"\p{N}": "one digit",
    r"\p{N}+": "a number",
    r"\p{N}{1,3}": "up to three digits",
    _OTHERS: "punctuation and symbols, with a space before them",
    _OTHERS + r"[\r\n]*": "punctuation and symbols, with a space before and line breaks behind",
    _OTHERS + r"[\r\n/]*": "punctuation and symbols, with a space before and line breaks behind",
    r" ?[\p{P}\p{S}]+[\r\n]*": "punctuation and symbols, a space before, line breaks behind",
    r"\s*[\r\n]+": "white space up to its last line break",
    r"\s+(?!\S)": "white space, without the last if text follows",
    r"\s+": "white space before text",
    "[一-龥぀-ゟ゠-ヿ]+": "Chinese characters and kana",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""": "a mark with ASCII letters behind it",
    **dict(
        zip(
            PATTERNS["gpt4o"].split(_GPT4O + "|")[:2],
            ("a word that ends in lower case", "a word that ends in upper case"),
        )
    ),
}


def alternatives(pattern: str) -> list[str]:
    r"""The alternatives of a pattern: its parts between the | that stand in no group or class.

    >>> alternatives(r"(?i:'s|'t)|[a|b]+|\||\s+(?!\S)")
    ["(?i:'s|'t)", '[a|b]+', '\\|', '\\s+(?!\\S)']
    """
    parts, start, depth, in_class = [], 0, 0, False
    for match in re.finditer(r"\\.|[][()|]", pattern, re.DOTALL):
        char = match[0]
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            parts.append(pattern[start : match.start()])
            start = match.end()
    return [*parts, pattern[start:]]


def meaning(source: str) -> str:
    """What an alternative is for, "" if it is none of the known ones."""
    source = source.replace("\r", r"\r").replace("\n", r"\n")
    return MEANINGS.get(source.removesuffix(_GPT4O), "")


class Branches:
    """The branches of one Split step."""

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self.sources = alternatives(splitter.step.pattern)

    def matches(self, text: str) -> list[tuple[int, int, int]]:
        """(start, stop, number of the branch, from 1 on) of each match that is not empty."""
        pattern, seen, _ = self._splitter.see(text)
        compiled = _compiled(pattern, len(self.sources))
        spans = (match.span() for match in pattern.finditer(seen))
        return [(*span, _branch(compiled, seen, *span)) for span in spans if span[0] < span[1]]

    def source(self, number: int) -> str:
        """A branch as it stands in the pattern."""
        return self.sources[number - 1] if number else self._splitter.step.pattern


@lru_cache(maxsize=64)
def _compiled(pattern: re.Pattern | regex.Pattern, expected: int) -> list:
    """The alternatives of a compiled pattern, each for the same engine; [] if they can't be."""
    parts = alternatives(pattern.pattern)
    engine = re if isinstance(pattern, re.Pattern) else regex
    if len(parts) != expected or re.search(r"\\[1-9]|\(\?(P=|R|&|\d)", pattern.pattern):
        return []
    try:
        return [engine.compile(part, pattern.flags) for part in parts]
    except (re.error, regex.error):
        return []


def _branch(compiled: list, text: str, start: int, stop: int) -> int:
    for number, alternative in enumerate(compiled, start=1):
        if match := alternative.match(text, start):
            return number if match.end() == stop else WHOLE
    return WHOLE
