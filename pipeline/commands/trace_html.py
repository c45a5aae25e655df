"""a Trace -> a page that needs nothing but itself: no script, no network, light and dark.

Blind spot: it measures nothing and knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pipeline.commands.figures import milliseconds, size, visible
from pipeline.trace import Candidate, Shown, Stage, Step, Trace

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --soft: #59636e;
  --line: #d1d9e0; --card: #f6f8fa; --bar: #0b62c4; --control: #8b1a4a;
  --a: #dbeafe; --b: #fde8c8; --c: #d6f2dd; --d: #eadcfb; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1;
  --line: #30363d; --card: #161b22; --bar: #58a6ff; --control: #ff9dbf;
  --a: #12315c; --b: #5a3a0c; --c: #0f4a26; --d: #3f2a63; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; font-weight: 600; }
p { margin: .2rem 0 .8rem; } .soft { color: var(--soft); }
code, pre, .chip, .code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  font-size: .9rem; }
.chip { display: inline-block; padding: .1rem .35rem; margin: 0 .1rem .3rem 0; border-radius: .3rem;
  white-space: pre-wrap; overflow-wrap: anywhere; vertical-align: top; }
.chip small { display: block; color: var(--ink); font-size: .75rem; }
.k0 { background: var(--a); } .k1 { background: var(--b); }
.k2 { background: var(--c); } .k3 { background: var(--d); }
.control { color: var(--control); font-weight: 600; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; } .number { text-align: right; white-space: nowrap; }
.steps { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.step { background: var(--card); border: 1px solid var(--line); border-radius: .4rem;
  padding: .8rem; min-width: 0; }
.candidate { display: grid; grid-template-columns: 6.5rem 1fr 3.6rem; gap: .5rem;
  align-items: center; }
td.note { min-width: 12rem; }
.candidate.chosen { font-weight: 700; }
.candidate .code { overflow-wrap: anywhere; white-space: pre-wrap; }
.track { background: var(--line); border-radius: .2rem; height: .6rem; }
.fill { background: var(--bar); border-radius: .2rem; height: .6rem; }
"""


def page(walked: Trace) -> str:
    """The whole walk as one HTML document."""
    sections = (_head, _pieces, _template, _prompt, _steps, _parts, _stages)
    body = "\n".join(section(walked) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(_short(walked.text))}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _head(walked: Trace) -> str:
    m = walked.model
    about = (
        f"{m['name']}: {m['layers']} layers, {m['heads']} query and {m['kv_heads']} key/value "
        f"heads, width {m['hidden_size']}, {m['vocab_size']:,} ids, {size(m['weight_bytes'])} of "
        f"{m['dtype']} weights on the {m['device']}"
    )
    return (
        f"<h1>A text on its way through the machine</h1>\n<p class=soft>{escape(about)}</p>\n"
        f"<pre>{escape(_lines(walked.text))}<b>{escape(_lines(walked.answer))}</b></pre>"
    )


def _pieces(walked: Trace) -> str:
    chips = "".join(
        f'<span class="chip k{number % 4}">{_text(piece.text)}'
        f"<small>{' '.join(map(str, piece.ids))}</small></span>"
        for number, piece in enumerate(walked.pieces)
    )
    return _section(
        "1. Text to pieces",
        "The tokenizer's regex cuts the text. No merge crosses a border, so each piece becomes ids "
        "by itself.",
        f"<div>{chips}</div>",
    )


def _template(walked: Trace) -> str:
    if walked.rendered is None:
        return _section("2. The chat template", "This model has none.", "")
    used = "It is the prompt." if walked.is_chat else "Not used here: --chat uses it."
    what = f"What a chat puts around the text. {used}"
    return _section("2. The chat template", what, f"<pre>{escape(_lines(walked.rendered))}</pre>")


def _prompt(walked: Trace) -> str:
    rows = (
        [str(number), str(token.id), token.bytes, _token(token)]
        for number, token in enumerate(walked.prompt)
    )
    return _section(
        "3. The prompt: ids and their bytes",
        "Ids are all that the model sees. Control tokens are set apart.",
        _table(["position", "id", "bytes", "text"], rows, numbers=(0, 1), code=(2, 3)),
    )


def _steps(walked: Trace) -> str:
    end = "The model ended the text." if walked.end == "stop" else "It would go on."
    steps = "\n".join(map(_step, walked.steps))
    return _section(
        "4. Step by step",
        "The first pass reads the prompt at once; each later one reads the id that was given out. "
        f"The likeliest token is taken. {end}",
        f"<div class=steps>\n{steps}\n</div>",
    )


def _step(step: Step) -> str:
    what = "1 id" if step.num_read == 1 else f"{step.num_read} ids"
    return (
        f"<section class=step><h3>{step.kind}: {what} in, position {step.position} out</h3>\n"
        f"<p class=soft>{milliseconds(step.seconds)}, {size(step.num_bytes)} moved</p>\n"
        f"{''.join(_candidate(each, each == step.chosen) for each in step.top)}</section>"
    )


def _candidate(candidate: Candidate, is_chosen: bool) -> str:
    share = candidate.probability
    kind = "candidate chosen" if is_chosen else "candidate"
    return (
        f'<div class="{kind}"><span class=code>{_token(candidate.token)}</span>'
        f'<div class=track><div class=fill style="width:{share:.1%}"></div></div>'
        f"<span class=number>{share:.1%}</span></div>\n"
    )


def _parts(walked: Trace) -> str:
    return _section(
        "5. Inside one decode step",
        "The step that reads the first id given out, with a stop after each part.",
        _stage_table(walked.parts),
    )


def _stages(walked: Trace) -> str:
    return _section(
        "6. Time and bytes moved",
        "Bytes are counted, not measured: the weights that a pass reads, keys and values.",
        _stage_table(walked.stages),
    )


def _stage_table(stages: Iterable[Stage]) -> str:
    rows = (
        [
            escape(stage.name),
            milliseconds(stage.seconds),
            size(stage.num_bytes),
            f"{stage.gigabytes_per_second:.2f} GB/s" if stage.num_bytes >= 1e5 else "",
            escape(stage.what),
        ]
        for stage in stages
    )
    return _table(
        ["stage", "time", "bytes", "speed", "what it does"], rows, numbers=(1, 2, 3), notes=(4,)
    )


# --- pieces of HTML ------------------------------------------------------------------------------


def _section(title: str, what: str, inside: str) -> str:
    return f"<section><h2>{title}</h2>\n<p class=soft>{what}</p>\n{inside}</section>"


def _table(
    header: list[str],
    rows: Iterable[list[str]],
    *,
    numbers: tuple[int, ...] = (),
    code: tuple[int, ...] = (),
    notes: tuple[int, ...] = (),
) -> str:
    """Cells are HTML. numbers, code, notes: the columns that are set as such."""
    kinds = [""] * len(header)
    for kind, columns in (("number", numbers), ("code", code), ("note", notes)):
        for column in columns:
            kinds[column] = kind
    heads = "".join(f'<th class="{kind}">{cell}</th>' for kind, cell in zip(kinds, header))
    lines = [
        "<tr>" + "".join(f'<td class="{kind}">{c}</td>' for kind, c in zip(kinds, row)) + "</tr>"
        for row in rows
    ]
    inside = "\n".join([f"<tr>{heads}</tr>", *lines])
    return f"<div class=wide><table>\n{inside}\n</table></div>"


def _token(token: Shown) -> str:
    text = _text(token.text)
    return f"<span class=control>{text}</span>" if token.special else text


def _text(text: str) -> str:
    """Spaces are shown as open boxes: most tokens begin with one."""
    return escape(visible(text)).replace(" ", "&#x2423;")


def _lines(text: str) -> str:
    """The text with its line breaks; what else does not print is escaped."""
    return "\n".join(map(visible, text.split("\n")))


def _short(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= 60 else shown[:59] + "…"
