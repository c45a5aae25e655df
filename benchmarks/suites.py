"""a suite's name and form -> records: its bench module run round by round, each in a process tree.

A bench module prints its tables and, last, one line of JSON. Each round runs it anew with one round
of its own, so that the figures of every round are known and with them the noise. Blind spot: what
is measured; figures are numbers with a path.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import machine, say
from benchmarks.history import Record, commit_of, now

ROOT = Path(__file__).parent.parent
NOT_FIGURES = {"suite", "model", "machine", "versions"}

Run = Callable[[str, tuple[str, ...]], dict[str, Any]]  # module, arguments -> its last line


class Unavailable(Exception):
    """Why a suite can't run here. is_expected: nothing is broken, something just isn't there."""

    def __init__(self, reason: str, *, is_expected: bool) -> None:
        super().__init__(reason)
        self.is_expected = is_expected


@dataclass(frozen=True)
class Suite:
    """A bench module, and for each form its runs: prefix of the figures' paths -> arguments."""

    module: str
    short: dict[str, tuple[str, ...]]
    full: dict[str, tuple[str, ...]]
    needs_tokenizer: bool = False


SUITES = {
    "encode": Suite("benchmarks.bench_encode", {"": ()}, {"": ()}, needs_tokenizer=True),
    "train": Suite("benchmarks.bench_train", {"": ()}, {"": ("--scaling", "--memory")}),
    "generate": Suite(
        "benchmarks.bench_generate",
        {"256/": ("--tokens", "256")},
        {f"{n}/": ("--tokens", str(n)) for n in (32, 128, 256, 512)}
        | {"positions/": ("--positions",)},
    ),
    "generate-qwen3-0.6b": Suite(
        "benchmarks.bench_generate",
        {"256/": ("--model", "qwen3-0.6b", "--tokens", "256")},
        {
            "256/": ("--model", "qwen3-0.6b", "--tokens", "256"),
            "positions/": ("--model", "qwen3-0.6b", "--positions"),
        },
    ),
    "speculative": Suite("benchmarks.bench_speculative", {"": ("--tokens", "48")}, {"": ()}),
    "batch": Suite("benchmarks.bench_batch", {"": ()}, {"": ()}),
}


def measure(
    name: str, suite: Suite, form: str, num_rounds: int, run: Run | None = None
) -> Iterator[Record]:
    """Yield one record, also where Ctrl-C or a failure comes between: with what was measured.

    Raises Unavailable if the module, or what it needs, is not there.
    """
    run = run or run_module
    if importlib.util.find_spec(suite.module) is None:
        raise Unavailable(f"there is no {suite.module} here", is_expected=True)
    extra = ("--rounds", "1")
    if suite.needs_tokenizer:
        extra += ("--tokenizer", str(qwen3_tokenizer()))
    rounds = _Rounds()
    try:
        for number in range(num_rounds):
            for prefix, arguments in getattr(suite, form).items():
                say(f"{name}, round {number + 1} of {num_rounds} {' '.join(arguments)}")
                rounds.add(prefix, run(suite.module, arguments + extra))
    finally:
        if rounds.figures:
            yield rounds.record(name, form)


class _Rounds:
    """The last lines of a bench module's runs, put together."""

    def __init__(self) -> None:
        self.commit = commit_of(ROOT)  # when it began; the files may change meanwhile
        self.figures: dict[str, list] = {}  # path -> its value in each round
        self.versions: dict[str, str] = {}

    def add(self, prefix: str, last_line: dict[str, Any]) -> None:
        self.versions |= last_line["versions"]
        figures = {key: value for key, value in last_line.items() if key not in NOT_FIGURES}
        for path, value in flatten(figures):
            self.figures.setdefault(prefix + path, []).append(value)

    def record(self, name: str, form: str) -> Record:
        return {
            "suite": name,
            "form": form,
            "commit": self.commit,
            "date": now(),
            "machine": machine(),
            "versions": self.versions,
            "figures": self.figures,
        }


def flatten(figures: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """
    >>> list(flatten({"a": {"b": 1.5, "c": True}, "d": "x"}))
    [('a/b', 1.5), ('a/c', True), ('d', 'x')]
    """
    for key, value in figures.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value


def run_module(module: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """The last line of `python -m module arguments` as JSON; its progress goes to our stderr.

    Raises Unavailable with the last thing it said if it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    last = ""
    try:
        for line in process.stderr:  # stdout is short: it never fills the pipe meanwhile
            last = line.strip() or last
            sys.stderr.write(line)
        lines = process.stdout.read().splitlines()
    finally:
        process.terminate()  # does nothing to one that has ended
        code = process.wait()
    if code:
        raise Unavailable(f"{module} failed: {last or f'exit code {code}'}", is_expected=False)
    print("\n".join(lines[:-1]), flush=True)
    return json.loads(lines[-1])


def qwen3_tokenizer() -> Path:
    """Qwen3's tokenizer.json: the tests' copy in the user's cache, or the Hub's."""
    from bpe.formats import hub
    from pipeline import source

    kept = source.cache_directory() / "tests" / "qwen3" / "tokenizer.json"
    if kept.exists():
        return kept
    try:
        return Path(hub.fetch("Qwen/Qwen3-0.6B", "tokenizer.json"))
    except (OSError, ValueError, RuntimeError) as error:
        raise Unavailable(
            f"Qwen3's tokenizer.json can't be had ({' '.join(str(error).split())})",
            is_expected=True,
        ) from error
