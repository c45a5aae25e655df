"""the state of a run <-> a file, from which a later run goes on as if it had not been interrupted.

A line of JSON, then the tables as bytes. The file appears whole or not at all, and a CRC tells
whether it still is. It is read by no unpickling, so a strange one can do no harm. Blind spot: it
does not know what the state is for.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bpe.formats.whole import whole_file

_KIND = "bytepair training checkpoint"
FORMAT = f"{_KIND} 2"
_BETWEEN_WORDS = "\U0010ffff"  # no symbol: see learn.MAX_ID


@dataclass(frozen=True)
class State:
    """Where a run stands.

    words: pieces while phase is "counting", symbols while it is "learning"; weights: their counts.
    numbers: what else the run must know, as JSON. plan: what was to be done; a run goes on only if
    its own plan is the same.
    """

    plan: Mapping[str, Any]
    phase: str
    words: list[str]
    weights: list[int]
    numbers: Mapping[str, Any]
    merges: list[tuple[int, int]] = field(default_factory=list)


def check_replaceable(path: Path) -> None:
    """ValueError if writing a checkpoint would cost a file that is none."""
    if not path.exists():
        return
    begin = f'{{"format": "{_KIND}'.encode()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(begin)) in (begin, b""):
                return
    raise ValueError(
        f"{path} is there and is no checkpoint, so none is written in its place; name another file"
    )


def write_checkpoint(path: Path, state: State) -> None:
    """Replace the file by one with this state."""
    words = _BETWEEN_WORDS.join(state.words).encode("utf-8", "surrogatepass")
    weights = ",".join(map(str, state.weights)).encode()
    merges = ",".join([f"{left} {right}" for left, right in state.merges]).encode()
    body = words + weights + merges
    head = {
        "format": FORMAT, "plan": state.plan, "phase": state.phase, "numbers": state.numbers,
        "lengths": [len(words), len(weights), len(merges)], "crc": zlib.crc32(body),
    }  # fmt: skip
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + body)
        file.flush()
        os.fsync(file.fileno())


def read_checkpoint(path: Path, plan: Mapping[str, Any]) -> State | None:
    """The state in the file, None if there is no file; ValueError if it can't be gone on with."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        head, body = _read_head(path, file.readline()), file.read()
    for name, value in plan.items():
        before, now = head["plan"].get(name), json.loads(json.dumps(value))
        if before != now:
            raise ValueError(
                f"{path} is of a run with another {name} ({_difference(before, now)}), so it can't "
                "go on; start without resuming, or as that run was started"
            )
    ends = [sum(head["lengths"][:n]) for n in range(4)]
    if len(body) != ends[3] or zlib.crc32(body) != head["crc"]:
        raise ValueError(f"{path} is damaged, so it can't be gone on with; start without resuming")
    words, weights, merges = (body[start:end] for start, end in zip(ends, ends[1:]))
    return State(
        plan=plan,
        phase=head["phase"],
        words=words.decode("utf-8", "surrogatepass").split(_BETWEEN_WORDS) if weights else [],
        weights=list(map(int, weights.split(b","))) if weights else [],
        numbers=head["numbers"],
        merges=[tuple(map(int, m.split())) for m in merges.split(b",")] if merges else [],
    )


def _difference(before: Any, now: Any) -> str:
    """Of long lists only where they first differ."""
    if isinstance(before, list) and isinstance(now, list):
        before, now = next(pair for pair in zip_longest(before, now) if pair[0] != pair[1])
    return ", now ".join(
        text if len(text) <= 200 else f"{text[:200]}..." for text in map(repr, (before, now))
    )


def _read_head(path: Path, line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(
            f"{path} is no checkpoint of this version, so it can't be gone on with; start without "
            "resuming"
        )
    return head
