"""text -> pieces: normalize, then split by the family's regex, one step after the other.

No merge crosses the border of a piece. The regexes are the files' own (Oniguruma syntax), run by
the `regex` package; for ASCII text they are rewritten, mechanically, for the standard library's
`re`, which is about twice as fast. Blind spot: it does not know the vocabulary, nor added tokens
(added.py).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

import regex

from bpe.spec import Lowercase, Normalize, Prepend, Replace, Spec, Split
from bpe.unicode16 import normalize_unicode9, with_unicode16_classes

ASCII_CLASSES = {  # what is left of each class in ASCII, in the notation of a character class
    "L": "A-Za-z", "Lu": "A-Z", "Ll": "a-z", "Lt": "", "Lm": "", "Lo": "", "M": "", "Mn": "",
    "N": "0-9", "Nd": "0-9", "Nl": "", "No": "", "Han": "", "Hiragana": "", "Katakana": "",
    "P": r"!-#%-*,-/:;?@\[-\]_{}", "S": r"$+<->\^`|~", "Z": " ",
    "d": "0-9", "s": r"\t-\r ", "r": r"\r", "n": r"\n", "t": r"\t", "f": r"\f", "v": r"\v",
}  # fmt: skip

_ATOM = re.compile(r"\\p\{\^?\w+\}|\\[\s\S]|\[\^?|\]|[^\\\[\]]")


def ascii_twin(pattern: str) -> str | None:
    r"""The regex that `re` must run on ASCII text to find what pattern finds, or None if unsure.

    Only \p{..}, \s, \d and \S change; whatever else is spelled the same in both engines stays.

    >>> ascii_twin(r"\p{N}{1,3}|[^\s\p{L}]+|\s+(?!\S)")
    '[0-9]{1,3}|[^\\t-\\r A-Za-z]+|[\\t-\\r ]+(?![^\\t-\\r ])'
    """
    out: list[str] = []
    in_class = False
    for atom in _ATOM.findall(pattern):
        if (atom.startswith("[") and in_class) or "&&" in pattern:
            return None  # nested classes and intersections differ between the engines
        if atom[0] in "[]":
            in_class = atom != "]"
        elif atom[0] == "\\" and atom[1].isalnum():
            name = atom[3:-1] if atom[1] == "p" else atom[1]
            negated = name == "S" and atom[1] != "p"
            members = ASCII_CLASSES.get("s" if negated else name)
            if members is None or (negated and in_class):
                return None
            atom = members if in_class else f"[{'^' * negated}{members}]" if members else "(?!)"
        out.append(atom)
    twin = "".join(out).replace("[^]", r"[\s\S]")
    return None if "[]" in twin else twin


def _compile_twin(pattern: str) -> re.Pattern[str] | None:
    """The compiled ASCII twin; None where `re` lacks the syntax (possessive ++ before 3.11)."""
    twin = ascii_twin(pattern)
    try:
        return None if twin is None else re.compile(twin)
    except re.error:
        return None


def _compile(pattern: str) -> regex.Pattern:
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"the split pattern {pattern!r} is not a valid regex: {error}") from error


class Splitter:
    """One Split step, compiled."""

    def __init__(self, step: Split, old_classes: bool) -> None:
        self.step = step
        self._pattern = _compile(step.pattern)
        self._ascii = _compile_twin(step.pattern)
        self._old_classes = old_classes
        self._findall_suffices = step.behavior == "Isolated" and not self._pattern.groups

    def split(self, text: str) -> list[str]:
        """The pieces of text, in order (an empty match may stand among them as an empty piece)."""
        if text.isascii() and self._ascii is not None:
            pattern, seen = self._ascii, text
        else:
            pattern = self._pattern
            seen = with_unicode16_classes(text) if self._old_classes else text
        if self._findall_suffices and seen is text:
            pieces = pattern.findall(text)
            if sum(map(len, pieces)) == len(text):
                return pieces  # the usual case: the matches leave no gaps
        return [text[start:end] for start, end in self._spans(pattern, seen) if start < end]

    def _spans(self, pattern: re.Pattern | regex.Pattern, text: str) -> Iterable[tuple[int, int]]:
        """Where the pieces are, after the step's behavior."""
        parts: list[tuple[int, int, bool]] = []  # start, end, is a match
        end = 0
        for match in pattern.finditer(text):
            if end < match.start():
                parts.append((end, match.start(), self.step.invert))
            end = match.end()
            parts.append((*match.span(), not self.step.invert))
        if end < len(text):
            parts.append((end, len(text), self.step.invert))
        return BEHAVE[self.step.behavior](parts)


def _contiguous(parts: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    return _join(parts, lambda before, here: before == here)


def _merged_with_previous(parts: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    return _join(parts, lambda before, here: here and not before)


def _merged_with_next(parts: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Read from the end: a match joins the piece after it unless that piece begins with a match."""
    mirrored = [(-end, -start, is_match) for start, end, is_match in reversed(parts)]
    return [(-end, -start) for start, end in reversed(_merged_with_previous(mirrored))]


def _join(
    parts: list[tuple[int, int, bool]], joins: Callable[[bool, bool], bool]
) -> list[tuple[int, int]]:
    """Spans, where a part joins the span before it if joins(kind of the part before, its kind)."""
    spans: list[tuple[int, int]] = []
    before = None
    for start, end, is_match in parts:
        if before is not None and joins(before, is_match):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        before = is_match
    return spans


BEHAVE: dict[str, Callable[[list[tuple[int, int, bool]]], list[tuple[int, int]]]] = {
    "Isolated": lambda parts: [(start, end) for start, end, _ in parts],
    "Removed": lambda parts: [(start, end) for start, end, is_match in parts if not is_match],
    "Contiguous": _contiguous,
    "MergedWithPrevious": _merged_with_previous,
    "MergedWithNext": _merged_with_next,
}


class PreTokenizer:
    """The normalizer and pre_tokenizer steps of a Spec, compiled once."""

    def __init__(self, spec: Spec, *, unicode: str = "huggingface") -> None:
        if unicode not in ("huggingface", "current"):
            raise ValueError(f'unicode={unicode!r} is neither "huggingface" nor "current"')
        self._old_tables = unicode == "huggingface"
        self._normalizer = [self._compile_normalizer(step) for step in spec.normalizer]
        self._steps = [
            Splitter(step, self._old_tables).split if isinstance(step, Split) else _prefix_space
            for step in spec.pre_tokenizer
        ]

    def normalize(self, text: str) -> str:
        """text after all normalizer steps; ASCII text passes the Unicode forms untouched."""
        for step in self._normalizer:
            text = step(text)
        return text

    def split(self, text: str) -> list[str]:
        """The pieces of a normalized text; joined they are the text, unless a step drops some."""
        if not text:
            return []
        first, *others = self._steps or [lambda whole: [whole]]
        pieces = first(text)
        for step in others:  # each step sees one piece alone: its lookahead ends at the border
            pieces = [part for piece in pieces for part in step(piece)]
        return pieces

    def _compile_normalizer(
        self, step: Normalize | Lowercase | Replace | Prepend
    ) -> Callable[[str], str]:
        if isinstance(step, Normalize):
            run = normalize_unicode9 if self._old_tables else unicodedata.normalize
            return lambda text: text if text.isascii() else run(step.form, text)
        if isinstance(step, Lowercase):
            return lambda text: "".join(map(str.lower, text))
        if isinstance(step, Prepend):
            return lambda text: step.content + text if text else text
        pattern = _compile(step.pattern)
        return lambda text: pattern.sub(lambda _: step.content, text)


def _prefix_space(piece: str) -> list[str]:
    return [piece if piece.startswith(" ") else " " + piece]
