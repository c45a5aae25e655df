"""two tokenizers that should agree -> the texts on which they don't, each as short as it gets.

Texts are tried from the likeliest to differ on: the named hard cases, the sample of languages, the
added tokens, every token of both vocabularies, every character between neighbours, then random
mixtures of all these. Blind spot: a search proves differences; that it finds none proves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from bpe.lab.sample import SAMPLE

Encode = Callable[[str], Sequence[int]]

NEUTRAL = "a0 .\n"  # what a character that doesn't matter is replaced by, the first that serves
CHARACTERS_AT_ONCE = 64  # of the sweep over Unicode, in one text
HARD = (
    *"\u0301\u0323\u0338\u200d\ufe0f\u00a0\u3000\u2028\u0085\ufeff\u212a\u1fef\u037e\uac00\u1112\u1161",
    *("'s", "'LL", "'ſ", "  ", "\n\n", "\r\n", " \n ", "\t\t", "12345", "٣", "²", "<|", "|>", "😀"),
    *("中国", "ที่", "é", "e\u0301", "ß", "Aa", "aA", "/", "...", " the", "ing", "\U000323af"),
)


class Tokenizing(Protocol):
    """What is compared: its encode is asked for ids."""

    def encode(self, text: str) -> Sequence[int]: ...


@dataclass(frozen=True)
class Difference:
    """A text as short as possible on which two tokenizers give other ids; `found` it came from.

    No character of it can be left out, nor replaced by a plainer one, without making them agree.
    ids are None where encode raises ValueError: then error says why.
    """

    text: str
    found: str
    ids: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    errors: tuple[str | None, str | None] = (None, None)

    def to_dict(self) -> dict:
        return {"text": self.text, "found": self.found, "ids": self.ids, "errors": self.errors}


def diff(
    one: Tokenizing,
    other: Tokenizing,
    *,
    texts: Iterable[str] | None = None,
    num_random: int = 3000,
    seed: int = 0,
    limit: int = 10,
) -> list[Difference]:
    """Texts on which one and other give different ids, each shrunk; [] if none was found.

    texts: the texts to try, instead of a search. num_random, seed: how many random texts the search
    tries at its end, the same for the same seed. limit: how many differences are looked for.
    """
    found: list[Difference] = []
    pair = _Pair(one, other)
    if texts is None:
        texts = _search(one, other, num_random, random.Random(seed))
    for text in texts:
        if any(known.text in text for known in found):  # most likely the same difference again
            text = _without(text, [known.text for known in found])
        if not pair.differ(text):
            continue
        short = shrink(text, pair.differ)
        if all(known.text != short for known in found):
            found.append(pair.difference(short, text))
        if len(found) >= limit:
            break
    return found


def _without(text: str, parts: Iterable[str]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


class _Pair:
    """Two tokenizers, asked for the same text. An error counts as an answer of its own."""

    def __init__(self, one: Tokenizing, other: Tokenizing) -> None:
        self._both = (one, other)

    def differ(self, text: str) -> bool:
        one, other = map(self._answer, self._both, (text, text))
        return one != other

    def difference(self, text: str, found: str) -> Difference:
        ids, errors = zip(*(self._answer(each, text) for each in self._both))
        return Difference(text, found, ids, errors)

    @staticmethod
    def _answer(tokenizer: Tokenizing, text: str) -> tuple[tuple[int, ...] | None, str | None]:
        try:
            return tuple(tokenizer.encode(text)), None
        except ValueError as error:
            return None, str(error)


def shrink(text: str, holds: Callable[[str], bool]) -> str:
    """A shortest text for which `holds` is still true: locally, since no step makes it shorter.

    Ever smaller parts are left out as long as that works (Zeller and Hildebrandt 2002, ddmin), then
    each character is replaced by a plainer one.

    >>> shrink("one two three", lambda text: "t" in text and "w" in text)
    'tw'
    """
    before = None
    while before != text:
        before = text
        text = _shorten(text, holds)
        for i, char in enumerate(text):
            for plain in NEUTRAL.partition(char)[0] if char in NEUTRAL else NEUTRAL:
                candidate = text[:i] + plain + text[i + 1 :]
                if holds(candidate):
                    text = candidate
                    break
    return text


def _shorten(text: str, holds: Callable[[str], bool]) -> str:
    size = len(text) // 2
    while size:
        start = 0
        while start < len(text):
            candidate = text[:start] + text[start + size :]
            if candidate != text and holds(candidate):
                text = candidate
            else:
                start += size
        size = min(size, len(text) + 1) // 2
    return text


# --- where differences are looked for ------------------------------------------------------------


def _search(
    one: Tokenizing, other: Tokenizing, num_random: int, rng: random.Random
) -> Iterator[str]:
    from bpe.lab.cases import CASES

    yield from (case.text for case in CASES)
    yield from (sample.text for sample in SAMPLE)
    added = sorted({text for each in (one, other) for text in _added_texts(each)})
    for text in added:
        yield from (text, f"a{text}a", f" {text} ", f"{text}{text}")
    words = sorted({word for each in (one, other) for word in _words(each)})
    yield from _joined(words)
    yield from _characters()
    yield from words
    for _ in range(num_random):
        yield _mixture(rng, words, added)


def _added_texts(tokenizer: Tokenizing) -> list[str]:
    spec = getattr(tokenizer, "spec", None)
    return [token.content for token in spec.added_tokens] if spec else []


def _words(tokenizer: Tokenizing) -> Iterator[str]:
    """The vocabulary's entries that are text."""
    spec = getattr(tokenizer, "spec", None)
    for token in spec.vocab if spec else ():
        try:
            yield token.decode()
        except UnicodeDecodeError:
            continue


def _characters() -> Iterator[str]:
    """Every character, with letters and with digits beside it, many in one text."""
    codes = (*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200))
    for start in range(0, len(codes), CHARACTERS_AT_ONCE):
        chars = map(chr, codes[start : start + CHARACTERS_AT_ONCE])
        yield " ".join(f"a{char}a 1{char}" for char in chars)


def _joined(words: Sequence[str]) -> Iterator[str]:
    """All words, many in one text, on lines of their own."""
    for start in range(0, len(words), CHARACTERS_AT_ONCE):
        yield "\n".join(words[start : start + CHARACTERS_AT_ONCE])


def _mixture(rng: random.Random, words: Sequence[str], added: Sequence[str]) -> str:
    """A few words, hard characters and texts of added tokens, one after the other."""
    sources = [source for source in (words, HARD, HARD, added) if source]
    return "".join(islice((rng.choice(rng.choice(sources)) for _ in iter(int, 1)), 12))
