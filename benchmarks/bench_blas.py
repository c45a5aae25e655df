"""The BLAS libraries on this machine -> speed of MLX's products with each: model/cpu measured.

    python -m benchmarks.bench_blas [--seconds 0.15]

Each library and number of threads has a process of its own, first with the machine to itself, then
beside a neighbour that keeps one core busy. Equality first: products of whole numbers must be what
MLX's own BLAS gives. The ceiling of a one-row product is the memory's read speed; of 256 rows, the
best library. The last column says how many cores other processes used meanwhile: idle rows with
much more than 0 there are spoilt.

Blind spot: it measures products with nothing between them; what a token costs is bench_generate's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter

from benchmarks.harness import Figures, machine, run_alone, say, table, versions
from model import cpu
from model.cpu.threads import busy_seconds, num_cores

LIBRARIES = {  # value of BYTEPAIR_BLAS -> what it stands for
    "off": "MLX's own",
    "openblas": "scipy-openblas32",
    "system": "system OpenBLAS",
    "mkl": "mkl",
}
SHAPES = {  # (outputs, inputs) of a weight -> whose
    (576, 576): "SmolLM2 q, o",
    (1536, 576): "SmolLM2 gate, up",
    (576, 1536): "SmolLM2 down",
    (49152, 576): "SmolLM2 head",
    (2048, 1024): "Qwen3 q",
    (3072, 1024): "Qwen3 gate, up",
    (1024, 3072): "Qwen3 down",
    (151936, 1024): "Qwen3 head",
}
BESIDE_NEIGHBOUR = ((1536, 576), (49152, 576), (3072, 1024))
LARGEST_PREFILL = 49152 * 576  # a larger head is only ever given one row
LARGEST_FOR_OWN = 576 * 576  # at 2 GFLOP/s the others would take minutes
BYTES_BEYOND_CACHE = 128 << 20
ROW, PREFILL = 1, 256


# --- contestants, each called in its own process -------------------------------------------------


def products(library: str, threads: str, seconds: str, beside_neighbour: str = "") -> Figures:
    """Time every product with one library. threads: a number, or "adapt"."""
    import mlx.core as mx

    # 1. The library, and the number of threads that the user's environment would fix.
    os.environ[cpu.SWITCH] = library
    if threads != "adapt":
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = threads
    expected = whole_number_products()
    report = cpu.enable()
    if (report.name is None) != (library == "off"):
        raise SystemExit(report.reason)
    # 2. Equality.
    for actual, wanted in zip(whole_number_products(), expected, strict=True):
        assert mx.array_equal(actual, wanted), f"{report} computes wrong products"
    # 3. Every shape, with the weight stored by output and by input.
    pool = mx.ones(max(rows * columns for rows, columns in SHAPES))
    start, others = monotonic(), busy_seconds()
    timings = []
    for rows in (ROW, PREFILL):
        for outputs, inputs in BESIDE_NEIGHBOUR if beside_neighbour else SHAPES:
            if rows == PREFILL and outputs * inputs > LARGEST_PREFILL:
                continue
            if rows == PREFILL and library == "off" and outputs * inputs > LARGEST_FOR_OWN:
                continue
            for by in ("outputs", "inputs"):
                cpu.adapt()
                taken = seconds_of(pool, rows, outputs, inputs, by, float(seconds))
                timings.append([rows, outputs, inputs, by, taken])
    return {
        "version": report.version,
        "threads": threads if threads == "adapt" else str(report.num_threads or 1),
        "timings": timings,
        "others_cores": (busy_seconds() - others) / (monotonic() - start),
    }


def whole_number_products() -> list:
    """Exact in float32, whatever the order of summation."""
    import mlx.core as mx

    weight = (mx.arange(700 * 576) % 7 - 3).astype(mx.float32).reshape(700, 576)
    x = (mx.arange(33 * 576) % 5 - 2).astype(mx.float32).reshape(33, 576)
    results = [x @ weight.T, x[:1] @ weight.T, x @ mx.contiguous(weight.T)]
    mx.eval(results)
    return results


def seconds_of(pool, rows: int, outputs: int, inputs: int, by: str, seconds: float) -> float:
    """Median seconds of x (rows, inputs) times a weight that isn't in the cache."""
    import mlx.core as mx

    # 1. Weights side by side in memory, more than a cache holds, each stored one way or the other.
    size = outputs * inputs
    count = max(1, min(pool.size, BYTES_BEYOND_CACHE // 4) // size)
    shape = (outputs, inputs) if by == "outputs" else (inputs, outputs)
    weights = [pool[i * size : (i + 1) * size].reshape(shape) for i in range(count)]
    if by == "outputs":
        weights = [weight.T for weight in weights]
    x = mx.ones((rows, inputs))
    mx.eval(x, weights)
    if rows > 1:
        weights = weights[:4]
    # 2. One warm-up, then as many rounds as fit.
    times, start = [], perf_counter()
    while len(times) < 4 or perf_counter() - start < seconds:
        before = perf_counter()
        mx.eval([x @ weight for weight in weights])
        times.append((perf_counter() - before) / len(weights))
    return statistics.median(times[1:])


def read_memory() -> float:
    """Bytes per second at which one process reads memory: C's memchr looks for what isn't there."""
    block = b"\1" * (2 * BYTES_BEYOND_CACHE)
    times = []
    for _ in range(9):
        start = perf_counter()
        block.find(b"\2")
        times.append(perf_counter() - start)
    return len(block) / statistics.median(times)


# --- the comparison ------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.15, help="per product (default 0.15)")
    seconds = str(parser.parse_args().seconds)
    cores = num_cores()
    readers = {n: read_speed(n) for n in sorted({1, cores})}  # processes -> bytes per second
    results, absent = measure(cores, seconds)
    speeds = ", ".join(f"{speed / 1e9:.1f} GB/s by {n}" for n, speed in readers.items())
    print(f"Memory is read at {speeds} (processes).")
    for name, reason in absent.items():
        print(f"Absent: {name}: {reason}")
    for neighbours in (0, 1):
        beside = f"{neighbours} busy neighbours" if neighbours != 1 else "1 busy neighbour"
        chosen = [result for result in results if result["neighbours"] == neighbours]
        print(f"\nOne row, GB/s of weight, stored by output (x @ W.T) / by input (x @ V), {beside}")
        print(speed_table(chosen, ROW, lambda rows, size: 4e-9 * size))
        print(f"\n{PREFILL} rows, GFLOP/s, the same, {beside}")
        print(speed_table(chosen, PREFILL, lambda rows, size: 2e-9 * rows * size))
    print(
        json.dumps(
            {
                "machine": machine(),
                "versions": versions("mlx", "scipy-openblas32", "mkl"),
                "read_bytes_per_second": readers,
                "absent": absent,
                "results": results,
            }
        )
    )


def measure(cores: int, seconds: str) -> tuple[list[Figures], dict[str, str]]:
    """-> figures of all that run, and of the others who and why."""
    results, absent = [], {}
    for neighbours in (0, 1):
        for library, name in LIBRARIES.items():
            counts = ["1"] if library == "off" else [*map(str, sorted({1, cores})), "adapt"]
            for threads in counts:
                if name in absent:
                    continue
                say(f"{name}, threads {threads}, busy neighbours {neighbours}")
                figures = beside(neighbours, library, threads, seconds)
                if isinstance(figures, str):
                    absent[name] = figures
                else:
                    results.append({"library": name, "neighbours": neighbours} | figures)
    return results, absent


def beside(neighbours: int, *arguments: str) -> Figures | str:
    """products(*arguments) in a process of its own, next to processes that never rest."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
    try:
        mark = ["beside"] if neighbours else []
        return run_alone("benchmarks.bench_blas", "products", *arguments, *mark)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def read_speed(processes: int) -> float:
    """Bytes per second that so many processes read together."""
    with ThreadPoolExecutor(processes) as pool:
        call = ("benchmarks.bench_blas", "read_memory")
        return sum(pool.map(lambda _: run_alone(*call), range(processes)))


def speed_table(results: list[Figures], rows: int, work) -> str:
    """work: (rows, size of the weight) -> what is done in one product, in the table's unit."""
    shapes = [s for s in SHAPES if any(t[:3] == [rows, *s] for r in results for t in r["timings"])]
    header = [f"{outputs} x {inputs}" for outputs, inputs in shapes]
    lines = []
    for result in results:
        taken = {tuple(timing[:4]): timing[4] for timing in result["timings"]}
        cells = []
        for outputs, inputs in shapes:
            both = [taken.get((rows, outputs, inputs, by)) for by in ("outputs", "inputs")]
            done = work(rows, outputs * inputs)
            cells.append(" / ".join(f"{done / t:.1f}" if t else "-" for t in both))
        others = f"{result['others_cores']:.2f}"
        lines.append([result["library"], result["threads"], *cells, others])
    return table(["library", "threads", *header, "others"], lines)


if __name__ == "__main__":
    main()
