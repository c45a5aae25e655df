"""what the laboratory found -> lines for a terminal, in colour where there is any.

Colours only repeat what the text says, so nothing is lost without them. Blind spot: how anything
was found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from bpe.lab.branches import meaning
from bpe.lab.characters import described, shown, width
from bpe.lab.explanation import Boundary, Change, Explanation, Piece, Stretch

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
_BACKGROUNDS = ("30;48;5;153", "30;48;5;223")  # of tokens, in turn: dark letters on pale blue, sand


class Paint:
    """Text in ANSI colours, or as it is."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    @classmethod
    def for_stream(cls, stream: TextIO) -> Paint:
        """In colour on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb says otherwise."""
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(wanted and stream.isatty())

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.enabled and text else text

    def tokens(self, parts: Iterable[str]) -> str:
        """Tokens side by side: on two backgrounds in turn, or with bars between them."""
        if not self.enabled:
            return "│".join(parts)
        return "".join(self(_BACKGROUNDS[i % 2], part) for i, part in enumerate(parts))

    def title(self, text: str) -> str:
        return self(BOLD, text)


def table(
    rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  "
) -> list[str]:
    """Rows with their columns aligned; right: the columns that end in line, as numbers do."""
    num_columns = max(map(len, rows), default=0)
    widths = [max(width(row[i]) for row in rows if i < len(row)) for i in range(num_columns)]
    lines = []
    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            fill = " " * (widths[i] - width(cell))
            cells.append(fill + cell if i in right else cell + fill)
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "token"), count(2000, "token")
    ('1 token', '2,000 tokens')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# --- explain -------------------------------------------------------------------------------------


def explain_lines(e: Explanation, paint: Paint) -> Iterator[str]:
    """All stages of an explanation, in order."""
    num_bytes = len(e.text.encode())
    yield paint.title(
        f"{count(len(e.text), 'character')}, {count(num_bytes, 'byte')} -> "
        f"{count(len(e.ids), 'token')}"
    )
    if not e.text:
        yield "  the text is empty, so there is nothing to encode"
        return
    yield "  " + paint.tokens(shown(token.data) for token in e.tokens)
    yield from _stage(paint, "1 added tokens", _added_rows(e.stretches), "none in the text")
    steps = " + ".join(e.normalizer)
    title = f"2 normalization ({steps})" if steps else "2 normalization"
    nothing = "changes nothing" if steps else "this tokenizer has none"
    yield from _stage(paint, title, map(_change_row, e.changes), nothing)
    yield from _stage(paint, "3 pieces, each with the branch of the regex that matched",
                      _piece_rows(e), "none")  # fmt: skip
    yield ""
    yield paint.title("4 merges of each piece, in order")
    for piece in e.pieces:
        yield from _merge_lines(e, piece, paint)
    rows = [[str(t.id), shown(t.data), t.data.hex(" ").upper()] for t in e.tokens]
    yield ""
    yield paint.title("5 ids, with their bytes")
    yield from table(rows, right=(0,))
    yield ""
    yield paint.title("6 why there is a boundary")
    if not e.boundaries:
        yield "  there is only one token"
    for boundary in e.boundaries:
        yield from boundary_lines(e, boundary, paint, sources=False)


def _stage(paint: Paint, title: str, rows: Iterable[list[str]], nothing: str) -> Iterator[str]:
    yield ""
    yield paint.title(title)
    yield from table(list(rows)) or ["  " + nothing]


def _added_rows(stretches: Sequence[Stretch]) -> Iterator[list[str]]:
    for stretch in stretches:
        if stretch.token:
            kind = "special" if stretch.token.special else "not special"
            row = [f"{stretch.start}-{stretch.stop}", shown(stretch.token.content),
                   f"-> {stretch.token.id}", kind]  # fmt: skip
            swallowed = stretch.stop - stretch.start - len(stretch.token.content)
            if swallowed > 0 and not stretch.token.normalized:
                row.append(f"with {count(swallowed, 'character')} of white space")
            yield row


def _change_row(change: Change) -> list[str]:
    def of(text: str) -> str:
        return " ".join(map(described, text)) or "nothing"

    return [f"{change.start}-{change.stop}", of(change.before), "->", of(change.after)]


def _piece_rows(e: Explanation) -> Iterator[list[str]]:
    for piece in e.pieces:
        cuts = [cut for cut in piece.cuts if any(b is not None for b in cut.branches)]
        if not cuts:
            yield [shown(piece.text), "-", "no regex matched: it stands between matches"]
        for number, cut in enumerate(cuts):
            for branch in dict.fromkeys(b for b in cut.branches if b is not None):
                source = " | ".join(e.patterns[cut.step]) if not branch else (
                    e.patterns[cut.step][branch - 1]
                )  # fmt: skip
                step = f"{cut.step + 1}." if len(e.patterns) > 1 else ""
                yield [
                    shown(piece.text) if not number else "", f"{step}{branch or 'all'}",
                    shown_pattern(source), meaning(source),
                ]  # fmt: skip


def shown_pattern(source: str) -> str:
    """A regex on one line: its own line breaks as escapes."""
    return source.replace("\r", r"\r").replace("\n", r"\n")


def _merge_lines(e: Explanation, piece: Piece, paint: Paint) -> Iterator[str]:
    names = {id: shown(data) for id, data in e.token_bytes.items()}
    ids = " ".join(map(str, piece.ids))
    yield f"  {paint(CYAN, shown(piece.text))} -> {ids}"
    if piece.is_whole:
        yield "      looked up as it stands: this tokenizer doesn't merge pieces that are tokens"
    rows = [
        [str(number), names[m.left], "+", names[m.right], "->", names[m.merged], f"rank {m.rank}"]
        for number, m in enumerate(piece.merges, start=1)
    ]
    yield from table(rows, right=(0, 1), indent="      ")


def boundary_lines(
    e: Explanation, boundary: Boundary, paint: Paint, *, sources: bool = True
) -> Iterator[str]:
    """One boundary: the tokens on both sides, the reason, and the branches' sources."""
    left, right = e.tokens[boundary.index - 1], e.tokens[boundary.index]
    yield (
        f"  {paint(CYAN, shown(left.data))} │ {paint(CYAN, shown(right.data))}"
        f"  {paint(YELLOW, boundary.kind)}"
    )
    yield f"      {boundary.reason}"
    for side, branch in zip(("left", "right"), boundary.branches) if sources else ():
        if branch:
            yield f"      {side}: {shown_pattern(e.patterns[boundary.step][branch - 1])}"
