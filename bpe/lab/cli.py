"""command line -> the laboratory's findings: python -m bpe explain | compare | diff | audit | ...

Each command prints for a terminal, or JSON, or writes one HTML page. Blind spot: how anything is
found; __main__.py prints its errors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

Load = Callable[[str], "Tokenizer"]
Texts = Callable[[argparse.Namespace], Iterator[tuple[str, str]]]
AddCommand = Callable[[str, str], argparse.ArgumentParser]

FOUND = 1  # the exit code when differences, losses or (--strict) faults were found


def add_commands(add: AddCommand) -> None:
    """The laboratory's subcommands; add(name, help) makes one with --tokenizer and --json."""
    command = add("explain", "show every stage from a text to its ids, and why it is cut there")
    _add_texts(command)
    _add_html(command)
    command.add_argument(
        "--at", type=int, metavar="N", help="only the boundary nearest to character N (from 0 on)"
    )


def _add_texts(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="*", help="texts; none reads files or stdin")
    command.add_argument("-f", "--file", action="append", default=[], metavar="FILE")
    command.add_argument(
        "--allow-special", action="store_true", help="let special tokens in the text count as such"
    )


def _add_html(command: argparse.ArgumentParser) -> None:
    command.add_argument("--html", metavar="FILE", help="write one self-contained HTML page")


def run(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    """Run the command that options name and return its exit code.

    load: what a user names -> Tokenizer; texts: options -> (where from, text) of each text.
    """
    return _RUN[options.command](options, load, texts)


def _explain(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.explanation import explain
    from bpe.lab.terminal import Paint, boundary_lines, explain_lines

    tokenizer = load(options.tokenizer)
    allowed = "all" if options.allow_special else "none"
    paint = Paint.for_stream(sys.stdout)
    for number, (_, text) in enumerate(texts(options)):
        explanation = explain(tokenizer, text, allowed_special=allowed)
        if options.json:
            _print_json(explanation.to_dict())
            continue
        _print([""] if number else [])
        if options.at is None:
            _print(explain_lines(explanation, paint))
        elif boundary := explanation.boundary_at(options.at):
            _print(boundary_lines(explanation, boundary, paint))
        else:
            _print(["there is no boundary: the text is not more than one token"])
    return 0


_RUN: dict[str, Callable[[argparse.Namespace, Load, Texts], int]] = {"explain": _explain}


# --- output --------------------------------------------------------------------------------------


def _print(lines: Iterable[str]) -> None:
    """Print lines; what the terminal's encoding can't show appears escaped, not as a traceback."""
    if sys.stdout.encoding.lower().replace("-", "") != "utf8":
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        print(line)


def _print_json(data: Any) -> None:
    print(json.dumps(data))
