"""what the laboratory found -> lines for a terminal, in colour where there is any.

Colours only repeat what the text says, so nothing is lost without them. Blind spot: how anything
was found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from bpe.lab.auditing import REASONS, Audit, Entry
from bpe.lab.branches import meaning
from bpe.lab.cases import Mismatch
from bpe.lab.characters import described, shown, width
from bpe.lab.comparison import Comparison, Cost, Row
from bpe.lab.difference import Difference
from bpe.lab.explanation import Boundary, Change, Explanation, Piece, Stretch

BOLD, RED, GREEN, YELLOW, CYAN = "1", "31", "32", "33", "36"
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


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> count(1, "token"), count(2000, "token")
    ('1 token', '2,000 tokens')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


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


# --- compare and diff ----------------------------------------------------------------------------


def compare_lines(found: Comparison, paint: Paint) -> Iterator[str]:
    """A table of costs by text, one by script, and the texts part by part."""
    ratio = "" if found.sides else ", tokens for each one in English"
    yield paint.title("tokens, tokens a word, bytes a token" + ratio)
    yield from _cost_table(found.names, found.rows, by_script=False)
    if not found.sides:
        yield ""
        yield paint.title("by script")
        yield from _cost_table(found.names, found.by_script, by_script=True)
    for row, sides in zip(found.rows, found.sides):
        num_differing = sum(side.differs for side in sides)
        yield ""
        yield paint.title(
            f"{row.name}: {count(num_differing, 'part')} of {len(sides):,} with other boundaries"
        )
        for side in sides:
            mark = paint(YELLOW, "*") if side.differs else " "
            yield f"{mark} {paint(CYAN, shown(side.text))}"
            for name, ids, tokens in zip(found.names, side.ids, side.tokens):
                yield f"    {name}: {paint.tokens(tokens)}  {' '.join(map(str, ids))}"


def _cost_table(names: Sequence[str], rows: Sequence[Row], *, by_script: bool) -> list[str]:
    has_ratio = any(cost.ratio is not None for row in rows for cost in row.costs)
    num_cells = 4 if has_ratio else 3
    heads = [(name, "a word", "bytes", "ratio")[:num_cells] for name in names]
    lines = [["", "", *(cell for head in heads for cell in head)]]
    for row in rows:
        kind = "" if row.kind in ("language", "text") else row.kind
        head = [row.script, kind] if by_script else [row.name, row.script]
        cells = (cell for cost in row.costs for cell in cost_cells(cost)[:num_cells])
        lines.append([*head, *cells])
    return table(lines, right=range(2, 2 + num_cells * len(names)))


def cost_cells(cost: Cost) -> list[str]:
    """A cost as four numbers; "-" where there is none."""
    per_word = "-" if cost.tokens_per_word is None else f"{cost.tokens_per_word:.2f}"
    ratio = "-" if cost.ratio is None else f"{cost.ratio:.2f}x"
    return [f"{cost.num_tokens:,}", per_word, f"{cost.bytes_per_token:.2f}", ratio]


def diff_lines(names: Sequence[str], found: Sequence[Difference], paint: Paint) -> Iterator[str]:
    """Each differing text with both lists of ids."""
    if not found:
        yield paint(GREEN, "no difference was found")
        return
    yield paint.title(f"{count(len(found), 'difference')} between {names[0]} and {names[1]}")
    for difference in found:
        codes = " ".join(f"U+{ord(char):04X}" for char in difference.text)
        yield f"  {paint(CYAN, shown(difference.text))}  {codes}"
        for name, ids, error in zip(names, difference.ids, difference.errors):
            yield f"      {name}: {error if ids is None else ' '.join(map(str, ids))}"


# --- audit, roundtrip, cases ---------------------------------------------------------------------


def audit_lines(found: Audit, paint: Paint, num_shown: int, names: dict[int, str]) -> Iterator[str]:
    """Totals, examples of each kind, and the faults. names: id -> its token as it is shown."""
    yield paint.title(count(found.num_entries, "entry", "entries"))
    rows = [["reachable by their own text", f"{found.num_alone:,}"]]
    rows += [["added tokens", f"{found.num_added:,}"]] if found.num_added else []
    rows += [[f"not so: {REASONS[reason]} ({reason})", f"{number:,}"]
             for reason, number in found.reasons().items()]  # fmt: skip
    yield from table(rows, right=(1,))
    for reach, title in (("context", "reachable only in context"), ("unreachable", "unreachable")):
        for reason in REASONS:
            entries = [e for e in found.entries if (e.reach, e.reason) == (reach, reason)]
            if entries:
                yield ""
                yield paint.title(f"{title}: {REASONS[reason]}: {len(entries):,}")
                yield from table([_entry_row(entry) for entry in entries[:num_shown]], right=(0,))
                yield from _more(len(entries), num_shown)
    for title, ids in notes(found):
        yield ""
        yield paint.title(f"{title}: {len(ids):,}")
        yield "  " + "  ".join(names.get(id, str(id)) for id in ids[: 4 * num_shown])
        yield from _more(len(ids), 4 * num_shown)
    if found.nested_added:
        yield ""
        yield paint.title("added tokens inside others (the longest that matches wins)")
        yield from table([[shown(a), "in", shown(b)] for a, b in found.nested_added[:num_shown]])
        yield from _more(len(found.nested_added), num_shown)
    yield ""
    faults = found.faults()
    yield paint.title("faults")
    yield from ["  " + paint(RED, fault) for fault in faults] or ["  " + paint(GREEN, "none")]


def notes(found: Audit) -> list[tuple[str, tuple[int, ...]]]:
    """(what it is, ids) for each list of entries that is not empty."""
    lists = [
        ("same text as another entry after normalization",
         tuple(id for ids in found.duplicates.values() for id in ids)),
        ("white space alone", found.white_space),
        ("nothing visible", found.invisible),
        ("made by no merge", found.unmade),
        ("pieces of control tokens", found.fragments),
        ("ids without a token", found.holes),
        ("ids that the file uses and no token has", found.unknown_ids),
    ]  # fmt: skip
    return [(title, ids) for title, ids in lists if ids]


def _entry_row(entry: Entry) -> list[str]:
    row = [str(entry.id), shown(entry.data), entry.detail]
    return [*row, f"in {shown(entry.witness)}"] if entry.witness is not None else row


def _more(number: int, num_shown: int) -> Iterator[str]:
    if number > num_shown:
        yield f"  and {number - num_shown:,} more (--show N, --json)"


def cases_lines(
    mismatches: Sequence[Mismatch], reference: str, num_cases: int, paint: Paint
) -> Iterator[str]:
    """The cases that differ from the reference, with the reason each is hard."""
    yield paint.title(f"{num_cases - len(mismatches)} of {num_cases} hard texts as in {reference}")
    for mismatch in mismatches:
        case = mismatch.case
        yield f"  {paint(CYAN, case.name)}  {shown(case.text)}  ({case.why})"
        yield f"      {reference}: {' '.join(map(str, mismatch.expected))}"
        found = "no ids" if mismatch.ids is None else " ".join(map(str, mismatch.ids))
        yield f"      here: {found}"
