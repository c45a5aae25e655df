"""text -> ids, each with the place in the text that it came from.

The walk is encode's own (the same cutting, normalizing, splitting and merging) with positions
carried along. A place is a span of characters of the text as given, before normalization: the
smallest one that holds every character of which the token has a byte. Blind spot: what the ids are
for.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from bpe.encoding.added import WHITE_SPACE, AddedTokens
from bpe.encoding.pretokenize import PreTokenizer, Splitter
from bpe.encoding.unicode16 import normalize, normalize_unicode9
from bpe.spec import AddedToken, Normalize, Prepend, Replace

Span = tuple[int, int]  # first character, and the one after the last
_SPACE = WHITE_SPACE + "\u0120"  # the latter is the printable form of U+0020


def encode_with_offsets(
    text: str,
    added: AddedTokens,
    forbidden: Collection[AddedToken],
    pre_tokenizer: PreTokenizer,
    ids_of: Mapping[str, tuple[int, ...]],
    token_bytes: Mapping[int, bytes],
    trims: Sequence[bool] = (),
) -> Iterator[tuple[int, int, int]]:
    """(id, start, stop) for each id of text. ids_of: piece -> ids; token_bytes: id -> bytes.

    An added token's span holds the white space that its flags swallow. What a normalizer or a
    prefix space put in has an empty span where it was put. trims: see Spec.trim_offsets.
    """
    spans = _spans(text, added, forbidden, pre_tokenizer, ids_of, token_bytes)
    for number, (id, start, stop, matched) in enumerate(spans):
        for spares_first in trims:
            spares = spares_first and (number == 0 or start == 0)
            spaces = _spaces_at_ends(token_bytes[id] if matched is None else matched)
            start, stop = _trim(start, stop, spaces, spares)
        yield id, start, stop


def _spaces_at_ends(token: str | bytes) -> tuple[int, int]:
    """How many spaces a token begins and ends with; one of spaces alone does both with all."""
    space = _SPACE if isinstance(token, str) else b" "
    return len(token) - len(token.lstrip(space)), len(token) - len(token.rstrip(space))


def _trim(start: int, stop: int, spaces: tuple[int, int], spares_one: bool) -> Span:
    """The span without its spaces, as Hugging Face's ByteLevel counts them.

    They are the token's, be they in the text or put in, so that a letter may be lost as well.
    """
    leading, trailing = spaces
    if leading == 1 and spares_one:  # it may have been put in; of several, none was
        leading = 0
    start = min(start + leading, stop)
    return start, max(stop - trailing, start) if stop >= trailing else stop


def _spans(
    text: str,
    added: AddedTokens,
    forbidden: Collection[AddedToken],
    pre_tokenizer: PreTokenizer,
    ids_of: Mapping[str, tuple[int, ...]],
    token_bytes: Mapping[int, bytes],
) -> Iterator[tuple[int, int, int, str | None]]:
    """(id, start, stop, the text that an added token matched)."""
    for start, stop, token in added.raw.spans(text, forbidden):
        if token:
            yield token.id, start, stop, text[start:stop]
            continue
        normalized, places = align(text[start:stop], pre_tokenizer)
        for first, last, inner in added.normalized.spans(normalized, forbidden):
            if inner:
                found = [(inner.id, first, last)]
            else:
                found = _pieces(normalized[first:last], first, pre_tokenizer, ids_of, token_bytes)
            for id, i, j in found:
                begin, end = source_span(places, i, j)
                yield id, start + begin, start + end, normalized[first:last] if inner else None


def _pieces(
    text: str,
    first: int,
    pre_tokenizer: PreTokenizer,
    ids_of: Mapping[str, tuple[int, ...]],
    token_bytes: Mapping[int, bytes],
) -> Iterator[tuple[int, int, int]]:
    """(id, start, stop) in a normalized text whose first character counts as number `first`."""
    for piece, start, num_inserted in split_with_places(text, pre_tokenizer):
        shift = first + start - num_inserted
        owner = None  # byte -> its character
        if not piece.isascii():
            owner = [i for i, char in enumerate(piece) for _ in char.encode()]
        ids = iter(ids_of[piece])
        for end, last in pre_tokenizer.byte_spans(piece):
            while end < last:  # merging stays inside, so tokens fill it
                id = next(ids)
                begin, end = end, end + len(token_bytes[id])
                i, j = (begin, end) if owner is None else (owner[begin], owner[end - 1] + 1)
                yield id, max(i, num_inserted) + shift, max(j, num_inserted) + shift


def split_with_places(text: str, pre_tokenizer: PreTokenizer) -> list[tuple[str, int, int]]:
    """(piece, where it starts in text, how many characters in front were inserted)."""
    placed = [(text, 0, 0)] if text else []
    for step in pre_tokenizer.steps:
        if isinstance(step, Splitter):
            placed = [
                (piece[i:j], start + max(0, i - num_inserted), max(0, num_inserted - i))
                for piece, start, num_inserted in placed
                for i, j in step.spans(piece)
            ]
        else:
            longer = [(step.split(piece)[0], piece, start, n) for piece, start, n in placed]
            placed = [(new, start, n + len(new) - len(old)) for new, old, start, n in longer]
    return placed


def source_span(places: list[Span] | None, i: int, j: int) -> Span:
    """The span of the text as given for characters i to j of the normalized one."""
    if places is None:
        return i, j
    if i < j:
        return places[i][0], max(stop for _, stop in places[i:j])
    return (places[i][0],) * 2 if i < len(places) else (places[-1][1],) * 2


def align(text: str, pre_tokenizer: PreTokenizer) -> tuple[str, list[Span] | None]:
    """The normalized text, and for each of its characters the span it came from (None: its own)."""
    places: list[Span] | None = None
    for step, run in pre_tokenizer.normalizer:
        if run(text) == text:
            continue
        if isinstance(step, Prepend):
            parts = [(step.content, (0, 0)), *((c, (i, i + 1)) for i, c in enumerate(text))]
        elif isinstance(step, Replace):
            parts = list(_replaced(text, step.content, run.spans(text)))
        elif isinstance(step, Normalize):
            parts = list(_normalized(text, step.form, run, pre_tokenizer.old_tables))
        else:  # each character by itself
            parts = [(run(char), (i, i + 1)) for i, char in enumerate(text)]
        text = "".join(new for new, _ in parts)
        places = [source_span(places, *span) for new, span in parts for _ in new]
    return text, places


def _replaced(text: str, content: str, spans: list[Span]) -> Iterator[tuple[str, Span]]:
    end = 0
    for start, stop in spans:
        yield from ((text[i], (i, i + 1)) for i in range(end, start))
        yield content, (start, stop)
        end = stop
    yield from ((text[i], (i, i + 1)) for i in range(end, len(text)))


def _normalized(
    text: str, form: str, run: Callable[[str], str], old_tables: bool
) -> Iterator[tuple[str, Span]]:
    """(character, where it came from) for each character of run(text).

    A character is made of the parts that it decomposes into, and each part of the text makes one
    character. Equal parts stand in the order of the text.
    """
    decomposing = form.replace("C", "D")
    run_form = normalize_unicode9 if old_tables else normalize
    decompose = lru_cache(lambda char: run_form(decomposing, char))
    for start, stop in clusters(text, run):
        places: dict[str, deque[int]] = defaultdict(deque)  # part -> where it still is to be had
        for i in range(start, stop):
            for part in decompose(text[i]):
                places[part].append(i)
        for char in run(text[start:stop]):
            found = [places[part].popleft() for part in decompose(char)]
            yield char, (min(found), max(found) + 1)


def clusters(text: str, normalize: Callable[[str], str]) -> Iterator[Span]:
    """The spans that normalization treats alone: a character with what may join or reorder with it.

    >>> list(clusters("e\u0301x", lambda text: unicodedata.normalize("NFC", text)))
    [(0, 2), (2, 3)]
    """
    start = 0
    for i in range(1, len(text)):
        if text[i].isascii() or (
            not unicodedata.combining(text[i])
            and normalize(text[start : i + 1]) == normalize(text[start:i]) + normalize(text[i])
        ):
            yield start, i
            start = i
    if text:
        yield start, len(text)
