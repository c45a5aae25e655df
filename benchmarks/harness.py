"""measurements -> medians and ratios: what every benchmark here shares.

Each contestant runs in a process of its own, one after the other, in several rounds, so that a slow
moment of the machine hits all of them. A contestant is a function of a bench module, called by
name in the child; what it returns comes back as JSON. Blind spot: it does not know what is
measured.
"""

from __future__ import annotations

import importlib
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

Figures = dict[str, Any]  # what one contestant measured in one round


def run_alone(module: str, contestant: str, *arguments: str) -> Figures | str:
    """Call module.contestant(*arguments) in a fresh process; its figures, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.harness", module, contestant, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        return lines[-1][:200]
    return json.loads(run.stdout.splitlines()[-1])


def run_rounds(
    module: str, contestants: dict[str, tuple[str, ...]], num_rounds: int
) -> dict[str, list[Figures] | str]:
    """Rounds of all contestants (name -> function and arguments), each alone, in turn."""
    results: dict[str, list[Figures] | str] = {name: [] for name in contestants}
    for number in range(num_rounds):
        for name, call in contestants.items():
            if isinstance(results[name], str):
                continue
            say(f"round {number + 1} of {num_rounds}: {name}")
            figures = run_alone(module, *call)
            if isinstance(figures, str):
                results[name] = figures
            else:
                results[name].append(figures)
    return results


def median_of(rounds: list[Figures], key: str) -> float:
    """The median over rounds of one figure."""
    return statistics.median(figures[key] for figures in rounds)


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median wall-clock time of work() after one warm-up."""
    from time import perf_counter

    work()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return statistics.median(times)


def machine() -> dict[str, Any]:
    """What the figures depend on and the reader can't see."""
    import os

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **_gpu(),
    }


def _gpu() -> dict[str, str]:
    """Its name, where MLX computes on one."""
    try:
        import mlx.core as mx
    except ImportError:
        return {}
    if mx.default_device().type != mx.gpu:
        return {}
    return {"gpu": str(mx.device_info().get("device_name", "a GPU"))}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor()


def versions(*packages: str) -> dict[str, str]:
    """Installed versions; packages that are missing are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with aligned columns.

    >>> print(table(["a", "b"], [["1", "22"]]))
    | a | b  |
    | - | -- |
    | 1 | 22 |
    """
    lines = [header, ["-"] * len(header), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines[1] = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in lines
    )


def say(line: str) -> None:
    """Progress goes to stderr; stdout holds the table and, last, the JSON."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    bench, function, *rest = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(bench), function)(*rest)))
