"""text -> pieces: normalize, then split by the family's regex, one step after the other.

No merge crosses the border of a piece. The regexes are the files' own, in the common syntax; the
`regex` package reads it, and twin.py makes a faster form for the standard library's `re`. Blind
spot: it does not know the vocabulary, nor added tokens (added.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, chain
from math import inf

import regex

from bpe.encoding.alphabet import to_glyphs
from bpe.encoding.oniguruma import find_all, may_match_nothing
from bpe.encoding.twin import NoTwin, Twin
from bpe.encoding.unicode16 import lowercase, normalize, normalize_unicode9, with_unicode16_classes
from bpe.spec import (
    NUMERIC,
    PATTERNS,
    ByteAlphabet,
    Lowercase,
    Normalize,
    PrefixSpace,
    Prepend,
    Replace,
    Spec,
    Split,
    Step,
)

CHUNK_CHARACTERS = 1 << 15  # of text split at once: its pieces then stay in the processor's cache
RUNS_UNTIL_WIDE = 30_000  # of characters beyond ASCII, which take as long as making a wide twin

# These patterns match every character and cut in front of a single space, and behind a single
# newline, that something visible follows, and none of them looks back. So a text may be cut there
# first, also where a step before has cut out numbers. (The tests try all short texts.)
_CUT_BEFORE_WORDS = frozenset(map(Split, PATTERNS.values()))
_NUMBERS = frozenset(map(Split, (r"\p{N}", r"\p{N}+", r"\p{N}{1,3}", NUMERIC, f"{NUMERIC}+")))
_BORDER = re.compile(r"(?<=\S)(?= \S)|(?<=\S\n)(?=[^\s/])")


class Splitter:
    """One Split step, compiled: as its twin where there is one, else as it stands."""

    def __init__(self, step: Split, as_classed: Callable[[str], str]) -> None:
        self.step = step
        as_classed = _sparing(step.pattern, as_classed)
        may_be_empty = may_match_nothing(step.pattern)
        self._find = find_all if may_be_empty else _find
        self._is_simple = step.behavior == "Isolated" and not may_be_empty
        self._leaves_no_gaps = step in _CUT_BEFORE_WORDS
        self._as_classed = as_classed
        self._runs_until_wide = RUNS_UNTIL_WIDE
        try:
            self.see = Twin(step.pattern, as_classed).see
        except NoTwin:
            pattern = _compile(step.pattern)
            self.see = lambda text: (pattern, as_classed(text), [(0, len(text))])
            self._runs_until_wide = inf

    def split(self, text: str) -> list[str]:
        """The pieces of text, in order."""
        pattern, seen, replaced = self.see(text)
        if replaced:
            self._count(replaced)
        if self._leaves_no_gaps or (self._is_simple and not pattern.groups):
            pieces = pattern.findall(seen)
            if self._leaves_no_gaps or sum(map(len, pieces)) == len(text):
                return _restore(pieces, text, replaced) if replaced else pieces
        return [text[start:end] for start, end in self._spans(pattern, seen)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the pieces of text are: (start, end) of each."""
        return self._spans(*self.see(text)[:2])

    def _count(self, replaced: list[tuple[int, int]]) -> None:
        self._runs_until_wide -= len(replaced)
        if self._runs_until_wide < 0:
            self._runs_until_wide = inf
            self.see = Twin(self.step.pattern, self._as_classed, wide=True).see

    def _spans(self, pattern: re.Pattern | regex.Pattern, text: str) -> list[tuple[int, int]]:
        parts: list[tuple[int, int, bool]] = []  # start, end, is a match
        end = 0
        for start, stop in self._find(pattern, text):
            if end < start:
                parts.append((end, start, self.step.invert))
            end = stop
            parts.append((start, stop, not self.step.invert))
        if end < len(text):
            parts.append((end, len(text), self.step.invert))
        spans = BEHAVE[self.step.behavior](parts)
        return [(start, end) for start, end in spans if start < end]


def _sparing(pattern: str, as_classed: Callable[[str], str]) -> Callable[[str], str]:
    """as_classed, but each character that the pattern names stands for itself."""
    named = frozenset(char for char in pattern if as_classed(char) != char)

    def spare(text: str) -> str:
        classed = as_classed(text)
        if classed is text:
            return text
        return "".join(old if old in named else new for old, new in zip(text, classed))

    return spare if named else as_classed


def _find(pattern: re.Pattern | regex.Pattern, text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in pattern.finditer(text))


def _compile(pattern: str) -> regex.Pattern:
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"the pattern {pattern!r} is not a valid regex: {error}") from error


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


def _restore(pieces: list[str], text: str, replaced: list[tuple[int, int]]) -> list[str]:
    """Put the text's own characters into the pieces where stand-ins are."""
    ends = list(accumulate(map(len, pieces)))
    if len(pieces) < 8 * len(replaced):  # most of them have some
        return list(map(text.__getitem__, map(slice, chain((0,), ends), ends)))
    for start, stop in replaced:
        i = bisect_right(ends, start)
        begin = ends[i - 1] if i else 0
        while begin < stop:
            pieces[i] = text[begin : ends[i]]
            begin = ends[i]
            i += 1
    return pieces


class PrefixSpacer:
    """One PrefixSpace step."""

    def split(self, text: str) -> list[str]:
        """text as one piece, with a space in front unless it begins with one."""
        return [text if text.startswith(" ") else " " + text]


class PreTokenizer:
    """The normalizer and pre_tokenizer steps of a Spec, compiled once."""

    def __init__(self, spec: Spec, *, unicode: str = "huggingface") -> None:
        if unicode not in ("huggingface", "current"):
            raise ValueError(f'unicode={unicode!r} is neither "huggingface" nor "current"')
        self.old_tables = old_tables = unicode == "huggingface"
        self.as_classed = with_unicode16_classes if old_tables else str
        self.normalizer = [
            (step, _compile_normalizer(step, old_tables)) for step in spec.normalizer
        ]
        steps, self.cuts_bytes = spec.pre_tokenizer, ByteAlphabet() in spec.pre_tokenizer
        border = steps.index(ByteAlphabet()) if self.cuts_bytes else len(steps)
        self.steps = [self._compile(step) for step in steps[:border]]
        self._steps_on_glyphs = [self._compile(step) for step in steps[border + 1 :]]

        *first, last = spec.pre_tokenizer or (PrefixSpace(),)
        # Whether " x" is cut off from whatever stands in front of it: words.py builds on that.
        self.cuts_before_words = last in _CUT_BEFORE_WORDS and _NUMBERS.issuperset(first)

    def require_text(self, what: str) -> None:
        """ValueError where merges stay within parts of a piece, which `what` can't deal with."""
        if self.cuts_bytes:
            raise ValueError(
                f"{what} takes pieces for text, but this tokenizer's pre_tokenizer goes on cutting "
                "behind its ByteLevel step, as Falcon's does, and so within characters"
            )

    def _compile(self, step: Step) -> Splitter | PrefixSpacer:
        return Splitter(step, self.as_classed) if isinstance(step, Split) else PrefixSpacer()

    def normalize(self, text: str) -> str:
        """text after all normalizer steps; ASCII text passes the Unicode forms untouched."""
        for _, run in self.normalizer:
            text = run(text)
        return text

    def chunks(self, text: str) -> Iterator[str]:
        """text in parts that may be split one by one: their pieces are those of the whole text."""
        start = 0
        while self.cuts_before_words and len(text) - start > CHUNK_CHARACTERS:
            cut = _BORDER.search(text, start + CHUNK_CHARACTERS)
            if cut is None:
                break
            yield text[start : cut.start()]
            start = cut.start()
        yield text[start:]

    def split(self, text: str) -> list[str]:
        """The pieces of a normalized text; joined they are the text, unless a step drops some.

        Where it cuts_bytes these are cut further: see byte_spans.
        """
        return _run(self.steps, [text]) if text else []

    def split_bytes(self, piece: str) -> list[str]:
        """The parts of a piece behind the byte alphabet, and written in it."""
        return _run(self._steps_on_glyphs, [to_glyphs(piece.encode())])

    def byte_spans(self, piece: str) -> list[tuple[int, int]]:
        """The first byte of each of these parts, and the one after its last."""
        glyphs = to_glyphs(piece.encode())
        spans = [(0, len(glyphs))]
        for step in self._steps_on_glyphs:
            spans = [
                (start + i, start + j)
                for start, stop in spans
                for i, j in step.spans(glyphs[start:stop])
            ]
        return spans


def _run(steps: list[Splitter | PrefixSpacer], pieces: list[str]) -> list[str]:
    for step in steps:  # each step sees one piece alone: its lookahead ends at the border
        if len(pieces) == 1:
            pieces = step.split(pieces[0])
        else:
            pieces = [part for piece in pieces for part in step.split(piece)]
    return pieces


def _compile_normalizer(
    step: Normalize | Lowercase | Replace | Prepend, old_tables: bool
) -> Callable[[str], str]:
    if isinstance(step, Normalize):
        run = normalize_unicode9 if old_tables else normalize
        return lambda text: text if text.isascii() else run(step.form, text)
    if isinstance(step, Lowercase):
        return lowercase if old_tables else lambda text: "".join(map(str.lower, text))
    if isinstance(step, Prepend):
        return lambda text: step.content + text if text else text
    return Replacer(step, with_unicode16_classes if old_tables else str)


class Replacer:
    """One Replace step, compiled; it is called as a function."""

    def __init__(self, step: Replace, as_classed: Callable[[str], str]) -> None:
        self._pattern = _compile(step.pattern)
        self._content = step.content
        self._as_classed = as_classed

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the matches are: (start, end) of each."""
        return list(_find(self._pattern, self._as_classed(text)))

    def __call__(self, text: str) -> str:
        spans = self.spans(text)
        if not spans:
            return text
        starts, ends = zip(*spans)
        kept = map(text.__getitem__, map(slice, (0, *ends), (*starts, len(text))))
        return self._content.join(kept)
