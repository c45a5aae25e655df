"""texts and several tokenizers -> Comparison: what each costs, and where their boundaries lie.

A tokenizer here is anything that encode_with_offsets fits: ours, or a peer (peers.py). Blind spot:
which tokenizer is better; a vocabulary is made for a mix of languages that nobody sees here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import regex

from bpe.lab.characters import shown
from bpe.lab.sample import SAMPLE, Sample

REFERENCE = "English"  # what the other languages of the sample are compared with

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:['’\-.][\p{L}\p{M}\p{N}]+)*")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_SCRIPTS = (
    "Latin Cyrillic Greek Armenian Georgian Hebrew Arabic Devanagari Bengali Tamil Telugu Thai Lao "
    "Khmer Myanmar Ethiopic Hangul Hiragana Katakana Han"
).split()


class Encoder(Protocol):
    """What is compared: text -> (id, start, stop) of each token, in characters of the text."""

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]: ...

    def id_to_token(self, id: int) -> bytes: ...


@dataclass(frozen=True)
class Cost:
    """What one tokenizer makes of one text. ratio: tokens for each of the same text in English."""

    num_tokens: int
    tokens_per_word: float | None  # None where no spaces part words
    bytes_per_token: float
    ratio: float | None = None


@dataclass(frozen=True)
class Row:
    """One text with its costs, in the order of the tokenizers."""

    name: str
    script: str
    kind: str
    num_bytes: int
    num_words: int | None
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class Side:
    """A part of a text that all tokenizers begin and end a token at, and the tokens of each."""

    start: int
    stop: int
    text: str
    ids: tuple[tuple[int, ...], ...]  # of each tokenizer
    tokens: tuple[tuple[str, ...], ...]  # the same tokens, as they are shown

    @property
    def differs(self) -> bool:
        """Whether the boundaries inside it differ."""
        return len(set(self.tokens)) > 1


@dataclass(frozen=True)
class Comparison:
    """Rows of costs; by_script sums them; sides show the texts that were given, part by part."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    by_script: tuple[Row, ...]
    sides: tuple[tuple[Side, ...], ...]  # of each text; empty for the built-in sample

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    tokenizers: Mapping[str, Encoder], texts: Mapping[str, str] | None = None
) -> Comparison:
    """What each tokenizer makes of texts (name -> text), or of the built-in sample.

    Raises ValueError for no tokenizers, and what their encode raises.
    """
    if not tokenizers:
        raise ValueError("there is no tokenizer to compare; pass at least one")
    samples = list(SAMPLE)
    if texts is not None:
        samples = [_sample_of(name, text) for name, text in texts.items()]
    spans = [[each.encode_with_offsets(s.text) for each in tokenizers.values()] for s in samples]
    counts = [[len(found) for found in of_text] for of_text in spans]
    rows = [_row(sample, numbers) for sample, numbers in zip(samples, counts)]
    reference = next((row for row in rows if row.name == REFERENCE and texts is None), None)
    if reference:
        rows = [_with_ratio(row, reference) for row in rows]
    sides = ()
    if texts is not None:
        names = [each.id_to_token for each in tokenizers.values()]
        sides = tuple(_sides(s.text, of_text, names) for s, of_text in zip(samples, spans))
    return Comparison(tuple(tokenizers), tuple(rows), tuple(_by_script(samples, rows)), sides)


def _sample_of(name: str, text: str) -> Sample:
    letters = regex.findall(r"\p{L}", text[:100_000])
    num_unspaced = sum(_UNSPACED.match(letter) is not None for letter in letters)
    return Sample(name, script_of(text), text, "text", num_unspaced * 2 < max(1, len(letters)))


def script_of(text: str) -> str:
    """The script of most letters of a text ("-" without letters).

    >>> script_of("Привет, world, друзья"), script_of("123")
    ('Cyrillic', '-')
    """
    beginning = text[:100_000]
    counts = {name: len(regex.findall(rf"\p{{{name}}}", beginning)) for name in _SCRIPTS}
    best = max(counts, key=counts.__getitem__)
    if counts[best]:
        return best
    return "other" if regex.search(r"\p{L}", beginning) else "-"


def _row(sample: Sample, counts: Sequence[int]) -> Row:
    num_bytes = len(sample.text.encode())
    num_words = len(_WORD.findall(sample.text)) if sample.has_spaces else None
    costs = tuple(_cost(number, num_bytes, num_words) for number in counts)
    return Row(sample.name, sample.script, sample.kind, num_bytes, num_words, costs)


def _cost(num_tokens: int, num_bytes: int, num_words: int | None) -> Cost:
    per_word = num_tokens / num_words if num_words else None
    return Cost(num_tokens, per_word, num_bytes / num_tokens if num_tokens else 0.0)


def _with_ratio(row: Row, reference: Row) -> Row:
    if row.kind != "language":
        return row
    costs = tuple(
        Cost(c.num_tokens, c.tokens_per_word, c.bytes_per_token, c.num_tokens / r.num_tokens)
        for c, r in zip(row.costs, reference.costs)
    )
    return Row(row.name, row.script, row.kind, row.num_bytes, row.num_words, costs)


def _by_script(samples: Sequence[Sample], rows: Sequence[Row]) -> list[Row]:
    """One row a script: the sums, and the mean ratio of its languages."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.script, row.kind), []).append(row)
    found = []
    for (script, kind), members in groups.items():
        num_bytes = sum(row.num_bytes for row in members)
        spaced = [row.num_words for row in members]
        num_words = None if None in spaced else sum(spaced)
        costs = []
        for of_tokenizer in zip(*(row.costs for row in members)):
            cost = _cost(sum(c.num_tokens for c in of_tokenizer), num_bytes, num_words)
            ratios = [c.ratio for c in of_tokenizer if c.ratio is not None]
            mean = sum(ratios) / len(ratios) if ratios else None
            costs.append(Cost(cost.num_tokens, cost.tokens_per_word, cost.bytes_per_token, mean))
        names = ", ".join(row.name for row in members)
        found.append(Row(names, script, kind, num_bytes, num_words, tuple(costs)))
    return found


def _sides(
    text: str,
    spans: Sequence[Sequence[tuple[int, int, int]]],
    names: Sequence[Callable[[int], bytes]],
) -> tuple[Side, ...]:
    """The text cut where every tokenizer has a boundary between two characters."""
    common = set.intersection(*(_boundaries(of_tokenizer, len(text)) for of_tokenizer in spans))
    borders = sorted(common | {0, len(text)})
    at = [0] * len(spans)  # of each tokenizer: the next token
    sides = []
    for start, stop in zip(borders, borders[1:]):
        ids = []
        for number, of_tokenizer in enumerate(spans):
            first = at[number]
            while at[number] < len(of_tokenizer) and (
                of_tokenizer[at[number]][1] < stop or stop == len(text)
            ):
                at[number] += 1
            ids.append(tuple(id for id, _, _ in of_tokenizer[first : at[number]]))
        tokens = (tuple(shown(name(id)) for id in of) for name, of in zip(names, ids))
        sides.append(Side(start, stop, text[start:stop], tuple(ids), tuple(tokens)))
    return tuple(sides)


def _boundaries(spans: Sequence[tuple[int, int, int]], length: int) -> set[int]:
    """The places that no token reaches across."""
    inside = set()
    for _, start, stop in spans:
        inside.update(range(start + 1, stop))
    return {start for _, start, _ in spans} - inside | {length}
