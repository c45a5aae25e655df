"""text -> what decode(encode(text)) loses of it, and where.

What the tokenizer's file declares as normalization is a change, not a loss. The rest is found stage
by stage (explanation.py's walk without its merges): white space that an added token swallows, text
that a pre-tokenizer step drops, spaces that it puts in, bytes without a token. Then the whole text
is encoded and decoded, and must be what the stages say. Blind spot: whether a file is right in what
it declares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bpe.encoding.offsets import align, source_span, split_with_places
from bpe.encoding.pretokenize import PreTokenizer
from bpe.lab.characters import described
from bpe.lab.explanation import Change, changes_of
from bpe.spec import AddedToken
from bpe.tokenizer import Tokenizer

SHOWN_CHARACTERS = 8  # of a long loss


@dataclass(frozen=True)
class Loss:
    """What came back in place of the characters start to stop.

    kind: "swallowed", "dropped", "inserted" or "no token"; "normalized" is declared, so no loss.
    line and column count from 1, columns in characters.
    """

    kind: str
    start: int
    stop: int
    line: int
    column: int
    before: str
    after: str

    @property
    def is_loss(self) -> bool:
        return self.kind != "normalized"

    def to_dict(self) -> dict[str, Any]:
        codes = {"code_points": [f"U+{ord(char):04X}" for char in self.before]}
        return asdict(self) | codes | {"is_loss": self.is_loss}

    def __str__(self) -> str:
        change = f"{_list(self.before)} -> {_list(self.after)}"
        return f"{self.line}:{self.column}: {self.kind}: {change}"


def _list(text: str) -> str:
    if len(text) > SHOWN_CHARACTERS:
        return _list(text[:SHOWN_CHARACTERS]) + f" and {len(text) - SHOWN_CHARACTERS:,} more"
    return ", ".join(map(described, text)) or "nothing"


def roundtrip(
    tokenizer: Tokenizer, text: str, *, allowed_special: str | Collection[str] = "none"
) -> list[Loss]:
    """Each place where decode(encode(text)) is not text, declared normalization included.

    An empty list means that every character comes back. Raises what encode raises, except that
    characters whose bytes have no token are losses.
    """
    where = _Places(text)
    missing = [where.loss("no token", i, i + 1, "") for i in _without_token(tokenizer, text)]
    if missing:
        return missing
    found: list[Loss] = []
    parts: list[str] = []  # what comes back, stretch by stretch
    added = tokenizer.inside.added
    forbidden = added.forbidden(allowed_special)
    for start, stop, token in added.raw.spans(text, forbidden):
        if token:
            found += _swallowed(where, text, start, stop, token)
            parts.append(token.content)
        else:
            returned, losses = _stretch(tokenizer, where, text, (start, stop), forbidden)
            found += losses
            parts.append(returned)
    ids = _encode(tokenizer, text, allowed_special)
    if tokenizer.decode(ids) != "".join(parts):
        raise RuntimeError("decoding gives another text than the stages of encoding foretell")
    return found


def _encode(tokenizer: Tokenizer, text: str, allowed_special: str | Collection[str]) -> list[int]:
    """All ids: a truncation or padding block of the file says nothing about what is lost."""
    spans = tokenizer.encode_with_offsets(text, allowed_special=allowed_special)
    return [id for id, _, _ in spans]


def _swallowed(
    where: _Places, text: str, start: int, stop: int, token: AddedToken
) -> Iterator[Loss]:
    """The white space that a token's lstrip and rstrip flags take away."""
    at = text.index(token.content, start, stop)
    end = at + len(token.content)
    for first, last in ((start, at), (end, stop)):
        if first < last:
            yield where.loss("swallowed", first, last, "")


def _stretch(
    tokenizer: Tokenizer,
    where: _Places,
    text: str,
    span: tuple[int, int],
    forbidden: Collection[AddedToken],
) -> tuple[str, list[Loss]]:
    """(what comes back of a stretch between added tokens, the losses in it)."""
    start, stop = span
    added, pre_tokenizer = tokenizer.inside.added, tokenizer.inside.pre_tokenizer
    normalized, places = align(text[start:stop], pre_tokenizer)
    losses = [
        where.loss("normalized", change.start, change.stop, change.after)
        for change in changes_of(text[start:stop], normalized, places, start)
    ]
    parts: list[str] = []
    for first, last, inner in added.normalized.spans(normalized, forbidden):
        changes = list(
            _of_token(normalized, first, last, inner, pre_tokenizer.normalize)
            if inner else _of_pieces(pre_tokenizer, normalized, first, last)
        )  # fmt: skip
        for kind, change in changes:
            i, j = source_span(places, change.start, change.stop)
            losses.append(where.loss(kind, start + i, start + j, change.after))
        if inner:
            parts.append(inner.content)
        else:
            parts += pre_tokenizer.split(normalized[first:last])
    return "".join(parts), losses


def _of_token(
    normalized: str, first: int, last: int, token: AddedToken, normalize: Any
) -> Iterator[tuple[str, Change]]:
    content = normalize(token.content)
    at = normalized.index(content, first, last)
    end = at + len(content)
    for start, stop in ((first, at), (end, last)):
        if start < stop:
            yield "swallowed", Change(start, stop, normalized[start:stop], "")
    if content != token.content:
        yield "inserted", Change(at, end, content, token.content)


def _of_pieces(
    pre_tokenizer: PreTokenizer, normalized: str, first: int, last: int
) -> Iterator[tuple[str, Change]]:
    """What the pre-tokenizer drops between pieces, and the spaces that it puts in front of them."""
    end = first
    for piece, at, num_inserted in split_with_places(normalized[first:last], pre_tokenizer):
        start = first + at
        if end < start:
            yield "dropped", Change(end, start, normalized[end:start], "")
        if num_inserted:
            yield "inserted", Change(start, start, "", piece[:num_inserted])
        end = start + len(piece) - num_inserted
    if end < last:
        yield "dropped", Change(end, last, normalized[end:last], "")


def _without_token(tokenizer: Tokenizer, text: str) -> Iterator[int]:
    """The places of characters that this vocabulary lacks a byte for."""
    known = tokenizer.inside.known_bytes
    if len(known) == 256:
        return
    lacking = {char for char in set(text) if not known >= {*char.encode()}}
    yield from (i for i, char in enumerate(text) if char in lacking) if lacking else ()


class _Places:
    """A text's lines, to say where in it something is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []

    def loss(self, kind: str, start: int, stop: int, after: str) -> Loss:
        if not self._starts:
            ends = (i + 1 for i, char in enumerate(self._text) if char == "\n")
            self._starts = [0, *ends]
        line = bisect_right(self._starts, start)
        column = start - self._starts[line - 1] + 1
        return Loss(kind, start, stop, line, column, self._text[start:stop], after)
