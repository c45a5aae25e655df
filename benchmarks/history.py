"""records <-> benchmarks/history.jsonl; two records -> what got slower by more than the noise.

A record is one suite measured once: figures by path, each with its value in every round. Only
figures of the same machine are compared. Blind spot: how anything is measured or shown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parent / "history.jsonl"

Record = dict[str, Any]  # suite, form, commit, date, machine, versions, figures

SAME = ("system", "processor", "cores", "gpu")  # what makes two machines the same
LEAST_NOISE = 0.05  # share; rounds that happen to agree do not show how much runs differ
MORE_IS_BETTER = {
    "prefill_tokens_per_second", "decode_tokens_per_second", "cold", "warm", "decode", "one", "two",
    "alone", "together", "drafted_tokens_per_second", "plain_tokens_per_second",
}  # fmt: skip
LESS_IS_BETTER = {"seconds", "counting", "learning", "load", "peak"}
PEERS = (
    "mlx-lm", "transformers", "llama.cpp", "HF", "tiktoken", "gigatoken", "bpeasy", "gigabpe",
    "textbook",
)  # fmt: skip


def append(file: Path, record: Record) -> None:
    """Add one line and see that it reaches the disk."""
    # A line that a crash cut off must not swallow this one.
    is_cut_off = file.exists() and not file.read_bytes().endswith(b"\n") and file.stat().st_size
    with file.open("a", encoding="utf-8") as out:
        out.write("\n" * bool(is_cut_off) + json.dumps(record) + "\n")
        out.flush()
        os.fsync(out.fileno())


def read(file: Path) -> list[Record]:
    """All records, oldest first; none where there is no file.

    Raises ValueError for a line that is no record.
    """
    if not file.exists():
        return []
    lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            _check(record)
        except ValueError as error:
            raise ValueError(
                f"line {number} of {file} is no record ({error}); remove it"
            ) from error
        records.append(record)
    return records


def _check(record: Any) -> None:
    wanted = {"suite", "form", "commit", "date", "machine", "versions", "figures"}
    missing = wanted - set(record) if isinstance(record, dict) else wanted
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")


def machine_of(record: Record) -> tuple:
    """What must be equal for two records to be comparable."""
    return tuple(record["machine"].get(key) for key in SAME)


def latest(records: list[Record], suite: str, machine: tuple) -> list[Record]:
    """The records of a suite on a machine, newest first."""
    found = [r for r in records if r["suite"] == suite and machine_of(r) == machine]
    return found[::-1]


def value_of(record: Record, path: str) -> float | None:
    """The median over rounds, or None if it was not measured."""
    values = _measured(record, path)
    return statistics.median(values) if values else None


def least_of(record: Record, path: str) -> float | None:
    """The least over rounds: what a count of equal ids, or whether all were equal, comes to."""
    return min(_measured(record, path), default=None)


def _measured(record: Record, path: str) -> list[float]:
    return [value for value in record["figures"].get(path, ()) if value is not None]


def spread_of(values: list[float]) -> float:
    """The range over rounds as a share of the median.

    >>> spread_of([90.0, 100.0, 110.0])
    0.2
    """
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


@dataclass(frozen=True)
class Change:
    """A figure now and before. ratio: how many times as good it is now."""

    path: str
    before: float
    after: float
    ratio: float
    noise: float  # share by which it may differ without meaning anything

    @property
    def is_slower(self) -> bool:
        return self.ratio < 1 - self.noise

    @property
    def is_faster(self) -> bool:
        return self.ratio > 1 / (1 - self.noise)

    @property
    def is_peer(self) -> bool:
        """Of another library: it says how the machine felt, not how we did."""
        return any(part.startswith(PEERS) for part in self.path.split("/"))


def compare(after: Record, before: Record) -> list[Change]:
    """Each speed that both records hold."""
    changes = []
    for path, values in after["figures"].items():
        kind = path.rsplit("/", 1)[-1]
        old = before["figures"].get(path)
        if not old or kind not in MORE_IS_BETTER | LESS_IS_BETTER:
            continue
        now_, then = statistics.median(values), statistics.median(old)
        if not now_ or not then:
            continue
        ratio = now_ / then if kind in MORE_IS_BETTER else then / now_
        noise = max(spread_of(values), spread_of(old), LEAST_NOISE)
        changes.append(Change(path, then, now_, ratio, noise))
    return changes


# --- what a record says about its making ---------------------------------------------------------


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit_of(directory: Path) -> str | None:
    """The commit that is checked out, with "+" if files differ from it; None outside of git."""
    try:
        head = _git(directory, "rev-parse", "--short=10", "HEAD")
        # The history itself changes with every record, and the pictures with every report.
        files = (".", ":!benchmarks/*.jsonl", ":!benchmarks/*.svg")
        status = _git(directory, "status", "--porcelain", "--untracked-files=no", "--", *files)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + "+" * bool(status)


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
