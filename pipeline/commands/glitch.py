"""python -m pipeline glitch MODEL -> a table of under-trained tokens on stdout.

Blind spot: how they are found (glitch.py).
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from bpe.lab.characters import shown
from pipeline.commands.options import DTYPES, Parser, integer
from pipeline.commands.terminal import say

if TYPE_CHECKING:
    from pipeline.glitch import Candidate


def make_parser(prog: str = "python -m pipeline glitch") -> Parser:
    """The options of python -m pipeline glitch; errors leave with exit code 2."""
    parser = Parser(
        prog=prog,
        description="Tokens that a model has hardly been trained on: its embedding's rows for them "
        "look like those of ids that are known to be unused.",
    )
    add = parser.add_argument
    add("model", nargs="?", help="directory, .gguf file or Hub id (default: Qwen3-0.6B)")
    add("--top", type=integer(1), default=50, metavar="N", help="candidates (default: 50)")
    add("--check", type=integer(0), default=0, metavar="N",
        help="let the model repeat the first N of them (default: none)")  # fmt: skip
    add("--dtype", choices=DTYPES, help="of the weights (default: float32 on CPUs)")
    add("--json", action="store_true", help="print JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    """Find and print; -> the exit code. What fails is raised."""
    from pipeline import glitch, source
    from pipeline.engine import Engine

    engine = Engine.load(source.find(options.model, notify=say).path, dtype=options.dtype)
    candidates = glitch.find(engine, limit=options.top)
    checked = [*glitch.check(engine, candidates[: options.check]), *candidates[options.check :]]
    num_unused = len(glitch.unused_ids(engine))
    if options.json:
        found = [candidate.to_dict() for candidate in checked]
        print(json.dumps({"num_unused_ids": num_unused, "candidates": found}))
        return 0
    known = f"{num_unused} unused ids are known" if num_unused else "no unused id is known"
    print(f"{known}; {len(checked)} tokens look most like that, the surest first")
    print("   score     norm  distance  repeated      id  token")
    for candidate in checked:
        print(_line(candidate))
    return 0


def _line(c: Candidate) -> str:
    distance = "-" if c.distance is None else f"{c.distance:.4f}"
    repeated = {None: "-", True: "yes", False: "no"}[c.repeated]
    return (
        f"{c.score:>8.4f} {c.norm:>8.4f} {distance:>9}  {repeated:>8} {c.id:>7}  {shown(c.token)}"
    )
