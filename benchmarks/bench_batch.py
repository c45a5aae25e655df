"""SmolLM2-135M -> tokens per second of eight prompts together and one by one.

    python -m benchmarks.bench_batch [--rounds N] [--rows 8] [--tokens 48]

Equality first: every prompt must get the ids that it gets alone. The prompts are of unequal
lengths, and the time includes reading them. Both run in turn in one process, since nothing but the
batch differs. Blind spot: other libraries.
"""

from __future__ import annotations

import argparse
import json
import statistics
from time import perf_counter

from benchmarks.bench_generate import prompt_ids
from benchmarks.harness import Figures, machine, run_alone, say, table, versions


def prompts(num_rows: int) -> list[list[int]]:
    """Made-up prompts of 8 to 8 * num_rows ids, each with another beginning."""
    return [prompt_ids(8 * num_rows + row)[-8 * (row + 1) :] for row in range(num_rows)]


def measure(num_rows: str, num_tokens: str, num_rounds: str) -> Figures:
    """Seconds of all prompts, together and one by one."""
    import model
    from pipeline import source

    m, rows, limit = model.load(source.packaged_model(say)), prompts(int(num_rows)), int(num_tokens)
    list(model.generate(m, [1, 2, 3], max_tokens=3))
    seconds = {"alone": [], "together": []}
    for _ in range(int(num_rounds)):
        start = perf_counter()
        alone = [list(model.generate(m, ids, max_tokens=limit)) for ids in rows]
        seconds["alone"].append(perf_counter() - start)
        start, together = perf_counter(), [[] for _ in rows]
        for row, one in model.generate_batch(m, rows, max_tokens=limit, max_rows=len(rows)):
            together[row].append(one)
        seconds["together"].append(perf_counter() - start)
    count = sum(map(len, alone))
    rates = {name: count / statistics.median(times) for name, times in seconds.items()}
    return rates | {"equal": sum(a == b for a, b in zip(alone, together))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48, help="of each prompt (default: 48)")
    options = parser.parse_args()
    arguments = (str(options.rows), str(options.tokens), str(options.rounds))
    figures = run_alone("benchmarks.bench_batch", "measure", *arguments)
    if isinstance(figures, str):
        raise SystemExit(figures)
    ratio = figures["together"] / figures["alone"]
    rows = [
        ["one by one", f"{figures['alone']:.1f}", ""],
        [f"{options.rows} together", f"{figures['together']:.1f}", f"{ratio:.2f}x"],
    ]
    print(table(["", "tokens/s", "ratio"], rows))
    print(f"\nequal ids: {figures['equal']} of {options.rows} prompts")
    record = {"suite": "batch", "machine": machine(), "versions": versions("mlx")}
    print(json.dumps(record | figures | {"ratio": ratio}))


if __name__ == "__main__":
    main()
