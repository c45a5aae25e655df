"""command line -> suites measured and remembered, or what was remembered as tables and pictures.

    python -m benchmarks [encode train generate speculative batch] [--short | --full] [--rounds N]
    python -m benchmarks report [--readme README.md]

A suite is measured round by round. As soon as it is done, or interrupted, one line of JSON is added
to benchmarks/history.jsonl. Blind spot: what a suite does; it reads the suite's last line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks import report
from benchmarks.harness import say
from benchmarks.history import HISTORY, append, read
from benchmarks.suites import SUITES, Suite, Unavailable, measure

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        say(f"error: {message} (see python -m benchmarks --help)")
        sys.exit(USAGE)


def make_parser() -> argparse.ArgumentParser:
    """The options of python -m benchmarks; its errors leave with exit code 2."""
    parser = _Parser(
        prog="python -m benchmarks",
        description="Measure suites and remember the figures, or report what is remembered.",
        epilog="Without a name all suites are measured. Peers that are not installed are left out "
        'by name: pip install ".[compare]" brings them.',
    )
    add = parser.add_argument
    add("what", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; or report")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="one round of the usual sizes (default)")
    form.add_argument("--full", action="store_true", help="three rounds of all sizes")
    add("--rounds", type=int, metavar="N", help="so many rounds in place of the form's own")
    add("--history", type=Path, default=HISTORY, metavar="FILE", help="default: %(default)s")
    add("--pictures", type=Path, default=HISTORY.parent, metavar="DIR", help="where report draws")
    add("--readme", type=Path, metavar="FILE", help="report: rewrite the marked tables in it")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.what if name not in SUITES and name != "report"]
    if unknown:
        parser.error(f"{unknown[0]!r} is no suite; there are {', '.join(SUITES)}, and report")
    if "report" in options.what and len(options.what) > 1:
        parser.error("report stands alone: it shows all suites that were measured")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, but must be at least 1")
    try:
        if options.what == ["report"]:
            return _report(options)
        return _measure(options)
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept")
        return INTERRUPTED
    except (ValueError, OSError) as error:
        say(f"error: {' '.join(str(error).split())}")
        return FAILED


def _measure(options: argparse.Namespace) -> int:
    """One suite after the other; one that can't run is named, and the others still do."""
    num_failed = 0
    for name in options.what or SUITES:
        suite: Suite = SUITES[name]
        form = "full" if options.full else "short"
        num_rounds = options.rounds or (3 if options.full else 1)
        try:
            for record in measure(name, suite, form, num_rounds):
                append(options.history, record)
        except Unavailable as reason:
            say(f"{name} is left out: {reason}")
            num_failed += not reason.is_expected
    return FAILED if num_failed else 0


def _report(options: argparse.Namespace) -> int:
    records = read(options.history)
    if not records:
        raise ValueError(f"{options.history} holds no records; measure first: python -m benchmarks")
    print(report.as_text(records))
    for path in report.draw(records, options.pictures):
        say(f"wrote {path}")
    if options.readme:
        report.rewrite(options.readme, records)
        say(f"rewrote the marked tables of {options.readme}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
