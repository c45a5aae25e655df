"""command line -> a trace as text or JSON on stdout, or as a page in a file.

    python -m pipeline trace "The capital of France is" [--chat] [--json] [--html FILE]

Blind spot: what happens in the machine (trace.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pipeline.commands.figures import milliseconds, quoted, size, visible
from pipeline.commands.options import DTYPES, USAGE, Parser, integer, new_file
from pipeline.commands.terminal import say

if TYPE_CHECKING:
    from pipeline.trace import Candidate, Stage, Trace

BAR = 20  # characters that stand for a probability of 1
WIDTH = 96


def make_parser(prog: str = "python -m pipeline trace") -> Parser:
    """The options of python -m pipeline trace; its errors leave with exit code 2."""
    parser = Parser(
        prog=prog,
        description="Walk a text through the machine: pieces, ids, the template, each step's "
        "likeliest tokens, time and bytes.",
        epilog="Without --chat the text is continued as it stands. Each step takes the likeliest "
        "token.",
    )
    add = parser.add_argument
    add("text", help="what to walk through; - reads it from stdin")
    add("--model", metavar="MODEL", help="directory, .gguf file or Hub id (default: Qwen3-0.6B)")
    add("--chat", action="store_true", help="put the text into the model's chat template")
    add("--max-tokens", type=integer(1), default=8, metavar="N", help="steps (default: 8)")
    add("--top", type=integer(1), default=5, metavar="N", help="candidates a step (default: 5)")
    add("--dtype", choices=DTYPES, help="of the weights")
    add("--json", action="store_true", help="print one JSON object")
    add("--html", type=new_file, metavar="FILE", help="write a page that needs nothing but itself")
    return parser


def run(options: argparse.Namespace) -> int:
    """Trace and show; -> the exit code. What fails is raised."""
    text = _read(options.text)
    if not text:
        say("error: the text is empty; give some text to walk through the machine")
        return USAGE
    _show(_trace(text, options), options)
    return 0


def _read(text: str) -> str:
    """The argument, or stdin for -. ValueError if it isn't UTF-8."""
    data = sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8 at byte {error.start}") from error


def _trace(text: str, options: argparse.Namespace) -> Trace:
    from pipeline import source

    found = source.find(options.model, notify=say)

    from pipeline.engine import Engine
    from pipeline.trace import Stage, trace

    start = perf_counter()
    engine = Engine.load(found.path, dtype=options.dtype)
    seconds = perf_counter() - start
    load = Stage("load", "files to weights and tables", seconds, _num_bytes(found.path))
    return trace(
        engine,
        text,
        is_chat=options.chat,
        max_tokens=options.max_tokens,
        num_top=options.top,
        name=found.name,
        load=load,
    )


def _num_bytes(path: Path) -> int:
    """Of a file, or of the files that are read in a directory."""
    files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.json")]
    return sum(file.stat().st_size for file in files)


def _show(walked: Trace, options: argparse.Namespace) -> None:
    if options.html:
        from bpe.formats.whole import whole_file
        from pipeline.commands.trace_html import page

        with whole_file(options.html) as temporary:
            temporary.write_text(page(walked), encoding="utf-8")
        say(f"wrote {options.html}")
    if options.json:
        print(json.dumps(walked.as_dict(), ensure_ascii=False))
    elif not options.html:
        sys.stdout.buffer.write(("\n".join(as_lines(walked)) + "\n").encode())


# --- the terminal --------------------------------------------------------------------------------


def as_lines(walked: Trace) -> Iterator[str]:
    """The walk as lines for a terminal; nothing in it can move the cursor."""
    yield from _about_text(walked)
    yield from _about_steps(walked)
    yield from _about_cost(walked)


def _about_text(walked: Trace) -> Iterator[str]:
    yield f"1  Text to pieces: {_plural(len(walked.pieces), 'piece')}; no merge crosses a border"
    yield from _wrapped(f"[{visible(piece.text)}]" for piece in walked.pieces)
    yield ""
    if walked.rendered is None:
        yield "2  The chat template: this model has none"
    else:
        used = "it is the prompt" if walked.is_chat else "not used here; --chat uses it"
        yield f"2  The chat template around the text ({used})"
        for line in walked.rendered.split("\n"):
            yield f"   | {visible(line)}"
    yield ""
    yield f"3  The prompt: {_plural(len(walked.prompt), 'id')} and the bytes they stand for"
    for token in walked.prompt:
        mark = "  (control token)" if token.special else ""
        yield f"   {token.id:>7}  {token.bytes:<24}  {quoted(token.text)}{mark}"
    yield ""


def _about_steps(walked: Trace) -> Iterator[str]:
    yield f"4  Step by step: {_plural(len(walked.steps), 'pass')}, the likeliest token each time"
    for step in walked.steps:
        yield (
            f"   {step.kind}, {_plural(step.num_read, 'id')} in -> position {step.position}: "
            f"{quoted(step.chosen.token.text)}  ({milliseconds(step.seconds)}, "
            f"{size(step.num_bytes)})"
        )
        for candidate in step.top:
            yield _candidate_line(candidate)
    end = "the model ended it" if walked.end == "stop" else "more with --max-tokens"
    yield f"   The text so far, {end}: {quoted(walked.answer)}"
    yield ""


def _candidate_line(candidate: Candidate) -> str:
    bar = "#" * round(BAR * candidate.probability)
    return f"     {candidate.probability:7.2%}  {bar:<{BAR}}  {quoted(candidate.token.text)}"


def _about_cost(walked: Trace) -> Iterator[str]:
    yield "5  Inside one decode step, with a stop after each part"
    yield from map(_stage_line, walked.parts)
    yield ""
    m = walked.model
    yield (
        f"6  Time and bytes moved ({m['name']}: {m['layers']} layers, {m['dtype']} weights of "
        f"{size(m['weight_bytes'])}, {m['device']})"
    )
    yield from map(_stage_line, walked.stages)


def _stage_line(stage: Stage) -> str:
    speed = f"{stage.gigabytes_per_second:6.2f} GB/s" if stage.num_bytes >= 1e5 else ""
    return (
        f"   {stage.name:<10}{milliseconds(stage.seconds):>12}{size(stage.num_bytes):>10}"
        f"{speed:>13}  {stage.what}"
    )


def _wrapped(words: Iterator[str]) -> Iterator[str]:
    """Words side by side, never cut."""
    line = "  "
    for word in words:
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            yield line
            line = "  "
        line += f" {word}"
    yield line


def _plural(count: int, noun: str) -> str:
    """
    >>> _plural(1, "id"), _plural(2, "pass")
    ('1 id', '2 passes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"
