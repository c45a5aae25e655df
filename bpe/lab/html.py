"""what the laboratory found -> one self-contained HTML page, without scripts and without a network.

It is well-formed XML as well, follows the reader's light or dark setting, and its policy header
forbids every load. Blind spot: how anything was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from bpe.lab.auditing import REASONS, Audit
from bpe.lab.branches import meaning
from bpe.lab.characters import described, shown
from bpe.lab.comparison import Comparison, Row
from bpe.lab.explanation import Boundary, Explanation, Piece
from bpe.lab.terminal import cost_cells, count, notes, shown_pattern

MOST_ENTRIES = 500  # of one kind on an audit's page; --json has all

_STYLE = """
:root { color-scheme: light dark;
  --page: #fcfcfa; --ink: #1d2129; --dim: #646b78; --line: #dcdfe4; --card: #ffffff;
  --one: #dbe8fb; --two: #fbe8cf; --mark: #b3470a; --link: #1b5fbf; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root {
  --page: #15171c; --ink: #e4e7ec; --dim: #98a1b0; --line: #333944; --card: #1c2027;
  --one: #24406b; --two: #5c4118; --mark: #f0a35e; --link: #82b1ff; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
p { margin: .25rem 0 .75rem; } .dim { color: var(--dim); } .bad { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .75rem 1rem; overflow-x: auto; }
code, .tokens, td.text { font-family: ui-monospace, "Cascadia Mono", Menlo, "DejaVu Sans Mono",
  monospace; font-size: .92em; }
.tokens { line-height: 2.1; } .tokens span { padding: .2em .1em; border-radius: .25em;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.tokens span:nth-child(odd) { background: var(--one); }
.tokens span:nth-child(even) { background: var(--two); }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--dim);
  font-weight: 600; font-size: .85rem; } th, td { padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; }
td.name { overflow-wrap: anywhere; min-width: 6.5rem; }
td.text code { white-space: pre-wrap; }
tr:last-child td { border-bottom: 0; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; } td.text { overflow-wrap: anywhere; }
details { padding: .3rem 0; } details table { width: auto; } details table td { border: 0;
  padding: .1rem 1.25rem .1rem 0; } details .card { margin-top: .5rem; } summary {
  cursor: pointer; }
.kind { color: var(--mark); font-weight: 600; } .bar { background: var(--one); height: .8rem;
  border-radius: .2rem; min-width: 2px; }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, body: Iterable[str]) -> str:
    """A whole page around its body's parts."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml">',
            f'<head><meta charset="utf-8"/><title>{_text(title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>',
            f"<style>{_STYLE}</style></head>\n<body>",
            *body,
            "</body></html>\n",
        ]
    )


def _text(text: str) -> str:
    """Escaped; what XML can't hold becomes its name."""
    return escape(
        "".join(c if c in "\t\n" or c.isprintable() or c == " " else shown(c) for c in text)
    )


def _tokens(parts: Iterable[tuple[str, str]]) -> str:
    """Tokens side by side: (what is seen, what a pointer shows)."""
    spans = (f'<span title="{_text(title)}">{_text(text)}</span>' for text, title in parts)
    return f'<div class="card tokens">{"".join(spans)}</div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kinds: Sequence[str] = ()) -> str:
    """Rows of escaped cells under their heads; kinds: of each column, text, number or prose."""
    classes = [f' class="{kind}"' for kind in (*kinds, *["text"] * (len(head) - len(kinds)))]
    heads = "".join(f"<th{c if 'number' in c else ''}>{h}</th>" for c, h in zip(classes, head))
    lines = [
        "<tr>" + "".join(f"<td{c}>{cell}</td>" for c, cell in zip(classes, row)) + "</tr>"
        for row in rows
    ]
    body = f"<thead><tr>{heads}</tr></thead>\n<tbody>" + "\n".join(lines) + "</tbody>"
    return f'<div class="card"><table>{body}</table></div>'


_ADDED = ("text", "text", "number", "prose")
_WHY = ("text", "prose", "prose")

# --- explain -------------------------------------------------------------------------------------


def explain_page(name: str, explanations: Sequence[Explanation]) -> str:
    """The page of one or more explanations by the tokenizer of this name."""
    body = [f"<h1>How {_text(name)} tokenizes</h1>"]
    for explanation in explanations:
        body += _explanation(explanation)
    return page(f"How {name} tokenizes", body)


def _explanation(e: Explanation) -> Iterator[str]:
    num_bytes = len(e.text.encode())
    yield (
        f'<p class="dim">{count(len(e.text), "character")}, {count(num_bytes, "byte")}, '
        f"{count(len(e.ids), 'token')}</p>"
    )
    if not e.text:
        yield "<p>The text is empty, so there is nothing to encode.</p>"
        return
    yield _tokens((shown(t.data), f"id {t.id}, bytes {t.data.hex(' ').upper()}") for t in e.tokens)
    yield "<h2>1 Added tokens</h2>"
    rows = [
        (f"{s.start}-{s.stop}", _text(shown(s.token.content)), str(s.token.id),
         "special" if s.token.special else "not special")
        for s in e.stretches if s.token
    ]  # fmt: skip
    yield _table(("place", "token", "id", ""), rows, _ADDED) if rows else "<p>None in the text.</p>"
    steps = f" ({_text(' + '.join(e.normalizer))})" if e.normalizer else ""
    yield f"<h2>2 Normalization{steps}</h2>"
    rows = [
        (f"{c.start}-{c.stop}", _text(_codes(c.before)), _text(_codes(c.after))) for c in e.changes
    ]
    nothing = "It changes nothing." if e.normalizer else "This tokenizer has none."
    yield _table(("place", "from", "to"), rows) if rows else f"<p>{nothing}</p>"
    yield "<h2>3 Pieces, with the branch of the regex that matched</h2>"
    yield _table(("piece", "branch", "pattern", "what it is for"), _piece_rows(e),
                 ("text", "text", "text", "prose"))  # fmt: skip
    yield "<h2>4 Merges of each piece, in order</h2>"
    yield '<div class="card">' + "\n".join(_merges(e, piece) for piece in e.pieces) + "</div>"
    yield "<h2>5 Ids and bytes</h2>"
    rows = [(str(t.id), _text(shown(t.data)), t.data.hex(" ").upper()) for t in e.tokens]
    yield _table(("id", "token", "bytes"), rows, ("number",))
    yield "<h2>6 Why there is a boundary</h2>"
    rows = [_boundary_row(e, boundary) for boundary in e.boundaries]
    yield _table(("between", "", "why"), rows, _WHY) if rows else "<p>There is only one token.</p>"


def _codes(text: str) -> str:
    return ", ".join(map(described, text)) or "nothing"


def _piece_rows(e: Explanation) -> Iterator[tuple[str, ...]]:
    for piece in e.pieces:
        cuts = [cut for cut in piece.cuts if any(b is not None for b in cut.branches)]
        name = _text(shown(piece.text))
        if not cuts:
            yield name, "-", "", "no regex matched: it stands between matches"
        for cut in cuts:
            for branch in dict.fromkeys(b for b in cut.branches if b is not None):
                sources = e.patterns[cut.step]
                source = sources[branch - 1] if branch else " | ".join(sources)
                step = f"{cut.step + 1}." if len(e.patterns) > 1 else ""
                yield (
                    name, f"{step}{branch or 'all'}",
                    f"<code>{_text(shown_pattern(source))}</code>", _text(meaning(source)),
                )  # fmt: skip
                name = ""


def _merges(e: Explanation, piece: Piece) -> str:
    names = {id: _text(shown(data)) for id, data in e.token_bytes.items()}
    ids = " ".join(map(str, piece.ids))
    head = f"<code>{_text(shown(piece.text))}</code> → {ids}"
    if piece.is_whole:
        return f"<p>{head} <span class='dim'>looked up as it stands, not merged</span></p>"
    if not piece.merges:
        return f"<p>{head} <span class='dim'>nothing to merge</span></p>"
    lines = "".join(
        f"<tr><td class='number'>{number}</td><td class='text'>{names[m.left]} + {names[m.right]}"
        f"</td><td class='text'>{names[m.merged]}</td><td class='number'>rank {m.rank}</td></tr>"
        for number, m in enumerate(piece.merges, start=1)
    )
    many = count(len(piece.merges), "merge")
    return (
        f"<details open='open'><summary>{head} <span class='dim'>{many}</span></summary>"
        f"<table><tbody>{lines}</tbody></table></details>"
    )


def _boundary_row(e: Explanation, boundary: Boundary) -> tuple[str, str, str]:
    left, right = (_text(shown(e.tokens[i].data)) for i in (boundary.index - 1, boundary.index))
    kind = f'<span class="kind">{boundary.kind}</span>'
    return f"{left} │ {right}", kind, _text(boundary.reason)


# --- compare -------------------------------------------------------------------------------------


def compare_page(found: Comparison) -> str:
    """Costs of each text and script, and the texts part by part."""
    title = "Tokenizers compared: " + ", ".join(found.names)
    body = [f"<h1>{_text(title)}</h1>"]
    legend = "tokens, tokens a word, bytes a token, tokens for each one in English"
    body.append(f'<p class="dim">{legend}</p>')
    body += [_costs(found.names, found.rows, ("text", "script"), lambda r: (r.name, r.script))]
    if not found.sides:
        body.append("<h2>By script</h2>")
        head = ("script", "texts")
        body += [_costs(found.names, found.by_script, head, lambda r: (r.script, r.name))]
    for row, sides in zip(found.rows, found.sides):
        num_differing = sum(side.differs for side in sides)
        differing = f"{count(num_differing, 'part')} of {len(sides):,} with other boundaries"
        body.append(f"<h2>{_text(row.name)}</h2><p class='dim'>{differing}</p>")
        for number, name in enumerate(found.names):
            body.append(f"<p>{_text(name)}</p>")
            parts = []
            for side in sides:
                mark = "; the others cut otherwise" if side.differs else ""
                pairs = zip(side.tokens[number], side.ids[number])
                parts += [(token, f"id {id}{mark}") for token, id in pairs]
            body.append(_tokens(parts))
    return page(title, body)


def _costs(names: Sequence[str], rows: Sequence[Row], head: Sequence[str], of_row) -> str:
    most = max((cost.ratio or 0 for row in rows for cost in row.costs), default=0) or 1
    heads = [*head]
    for name in names:
        heads += [_text(name), "a word", "bytes", "ratio", ""]
    lines = []
    for row in rows:
        cells = [_text(cell) for cell in of_row(row)]
        for cost in row.costs:
            share = (cost.ratio or 0) / most * 6
            cells += [*cost_cells(cost), f'<div class="bar" style="width:{share:.2f}rem"></div>'
                      if cost.ratio else ""]  # fmt: skip
        lines.append(cells)
    kinds = ["name", "name", *["number", "number", "number", "number", "text"] * len(names)]
    return _table(heads, lines, kinds)


# --- audit ---------------------------------------------------------------------------------------


def audit_page(name: str, found: Audit, names: dict[int, str]) -> str:
    """Totals, faults and every entry that its own text doesn't give, up to MOST_ENTRIES of a kind.

    names: id -> its token as it is shown.
    """
    title = f"The vocabulary of {name}"
    many = count(found.num_entries, "entry", "entries")
    body = [f"<h1>{_text(title)}</h1>", f'<p class="dim">{many}</p>']
    rows = [("reachable by their own text", f"{found.num_alone:,}"),
            ("added tokens", f"{found.num_added:,}")]  # fmt: skip
    rows += [(f"not so: {_text(REASONS[r])}", f"{n:,}") for r, n in found.reasons().items()]
    body.append(_table(("entries", ""), rows, ("prose", "number")))
    body.append("<h2>Faults</h2>")
    faults = [f'<p class="bad">{_text(fault)}</p>' for fault in found.faults()]
    body += faults or ["<p>None.</p>"]
    for reach, words in (("unreachable", "Unreachable"), ("context", "Only in context")):
        for reason in REASONS:
            entries = [e for e in found.entries if (e.reach, e.reason) == (reach, reason)]
            if entries:
                rows = [
                    (str(e.id), _text(shown(e.data)), _text(e.detail),
                     _text(shown(e.witness)) if e.witness is not None else "")
                    for e in entries[:MOST_ENTRIES]
                ]  # fmt: skip
                body.append(
                    f"<h2>{words}: {_text(REASONS[reason])}</h2><details><summary>"
                    f"{count(len(entries), 'entry', 'entries')}{_cut(len(entries))}</summary>"
                )
                body.append(_table(("id", "token", "what happens", "witness"), rows, ("number",)))
                body.append("</details>")
    for words, ids in notes(found):
        parts = [(names.get(id, "(no token)"), f"id {id}") for id in ids[:MOST_ENTRIES]]
        head = f"<summary>{count(len(ids), 'id')}{_cut(len(ids))}</summary>"
        body.append(
            f"<h2>{_text(words.capitalize())}</h2><details>{head}{_tokens(parts)}</details>"
        )
    if found.nested_added:
        body.append("<h2>Added tokens inside others</h2>")
        rows = [(_text(shown(a)), _text(shown(b))) for a, b in found.nested_added[:MOST_ENTRIES]]
        body.append(_table(("token", "is in"), rows))
    return page(title, body)


def _cut(number: int) -> str:
    return f", of which {MOST_ENTRIES:,} are shown" if number > MOST_ENTRIES else ""
