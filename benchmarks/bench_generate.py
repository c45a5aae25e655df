"""SmolLM2-135M -> tokens per second of prefill and decode: bytepair beside mlx-lm and llama.cpp.

    python -m benchmarks.bench_generate [--rounds N] [--tokens 256]

All run the same weights: the packaged GGUF file, which mlx-lm gets as safetensors and llama.cpp
both as it is (Q4_1) and dequantized to float32. Equality first: the float32 contestants must give
the same greedy ids. The ceiling is our own model's matrix products alone. Needs the extra
`compare`, and llama-cpp-python for llama.cpp; who is not installed is left out and named. Blind
spot: text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.harness import Figures, machine, median_of, run_rounds, say, table, versions

PROMPT_ID_STEP = 7919  # a prime: the prompt's ids wander over the vocabulary
NUM_DECODED = 48
OURS, PEER = "bytepair float32", "mlx-lm bfloat16"


def prompt_ids(num_tokens: int) -> list[int]:
    """The same made-up prompt for everybody; what it says does not change the work."""
    return [100 + i * PROMPT_ID_STEP % 40_000 for i in range(num_tokens)]


def figures(prefill: float, decode: list[float], ids: list[int], num_tokens: int) -> Figures:
    """prefill: seconds to the first id; decode: seconds of each later one."""
    return {
        "prefill_tokens_per_second": num_tokens / prefill,
        "decode_tokens_per_second": 1 / statistics.median(decode),
        "ids": ids,
    }


def timed(stream, num_tokens: int) -> Figures:
    """Time a stream of ids from the moment its first is asked for."""
    start, times, ids = perf_counter(), [], []
    for id in stream:
        times.append(perf_counter())
        ids.append(int(id))
    return figures(times[0] - start, [b - a for a, b in zip(times, times[1:])], ids, num_tokens)


# --- contestants, each called in its own process -----------------------------------------------


def bytepair(path: str, num_tokens: str, dtype: str) -> Figures:
    import model

    m, n = model.load(path, dtype=dtype), int(num_tokens)
    list(model.generate(m, prompt_ids(8), max_tokens=2))
    measured = timed(model.generate(m, prompt_ids(n), max_tokens=NUM_DECODED), n)
    from model import blas

    return measured | {"blas": str(blas.enable()), "products_seconds": products_seconds(m)}


def products_seconds(m) -> float:
    """Seconds of one decode step's matrix products, done alone on ready inputs: the ceiling."""
    import mlx.core as mx
    from mlx import nn

    layers = [layer for _, layer in m.named_modules() if isinstance(layer, nn.Linear)]
    inputs = {layer.weight.shape[1]: None for layer in layers}
    inputs |= {
        size: mx.random.normal((1, 1, size), dtype=m.model.norm.weight.dtype) for size in inputs
    }
    mx.eval(list(inputs.values()))
    last = mx.random.normal((1, 1, m.config.hidden_size), dtype=m.model.norm.weight.dtype)
    head = [] if hasattr(m, "lm_head") else [m.model.embed_tokens.as_linear]
    times = []
    for _ in range(12):
        start = perf_counter()
        mx.eval([layer(inputs[layer.weight.shape[1]]) for layer in layers], [h(last) for h in head])
        times.append(perf_counter() - start)
    return statistics.median(times[2:])


def mlx_lm(directory: str, num_tokens: str, dtype: str) -> Figures:
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    m, _ = load_model(Path(directory))
    m.set_dtype(getattr(mx, dtype))
    mx.eval(m.parameters())
    n = int(num_tokens)

    def stream(ids, max_tokens):
        return (id for id, _ in generate_step(mx.array(ids), m, max_tokens=max_tokens))

    list(stream(prompt_ids(8), 2))
    return timed(stream(prompt_ids(n), NUM_DECODED), n)


def llama_cpp(path: str, num_tokens: str) -> Figures:
    from llama_cpp import Llama

    n = int(num_tokens)
    m = Llama(path, n_ctx=n + NUM_DECODED + 8, n_batch=512, verbose=False)

    def stream(ids, max_tokens):
        generator = m.generate(ids, temp=0.0, repeat_penalty=1.0, reset=True)
        return (id for _, id in zip(range(max_tokens), generator))

    list(stream(prompt_ids(8), 2))
    return timed(stream(prompt_ids(n), NUM_DECODED), n)


# --- the same weights for everybody ------------------------------------------------------------


def as_directory(gguf: Path, directory: Path) -> str:
    """Our loaded weights as a safetensors directory for mlx-lm."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    import model

    m = model.load(gguf, dtype="float32")
    c = m.config
    mx.save_safetensors(str(directory / "model.safetensors"), dict(tree_flatten(m.parameters())))
    (directory / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": c.hidden_size,
                "num_hidden_layers": c.num_hidden_layers, "intermediate_size": c.intermediate_size,
                "num_attention_heads": c.num_attention_heads, "rms_norm_eps": c.rms_norm_eps,
                "vocab_size": c.vocab_size, "num_key_value_heads": c.num_key_value_heads,
                "max_position_embeddings": c.max_position_embeddings,
                "rope_theta": c.rope.theta, "tie_word_embeddings": c.tie_word_embeddings,
            }
        )
    )  # fmt: skip
    return str(directory)


def as_float32_gguf(gguf: Path, path: Path) -> str | None:
    """The file dequantized by llama.cpp itself, or None where it is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = 0, True  # 0: all float32
    import ctypes

    failed = llama_cpp.llama_model_quantize(
        str(gguf).encode(), str(path).encode(), ctypes.byref(parameters)
    )
    return None if failed else str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256, help="prompt length (default: 256)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        contestants = make_contestants(Path(folder), str(options.tokens))
        results = run_rounds("benchmarks.bench_generate", contestants, options.rounds)
    report(results, options.tokens)


def make_contestants(folder: Path, num_tokens: str) -> dict[str, tuple[str, ...]]:
    from pipeline import source

    gguf = source.packaged_model(say)
    directory = as_directory(gguf, folder)
    contestants = {
        OURS: ("bytepair", str(gguf), num_tokens, "float32"),
        PEER: ("mlx_lm", directory, num_tokens, "bfloat16"),
        "mlx-lm float32": ("mlx_lm", directory, num_tokens, "float32"),
        "llama.cpp Q4_1": ("llama_cpp", str(gguf), num_tokens),
    }
    float32 = as_float32_gguf(gguf, folder / "float32.gguf")
    if float32:
        contestants["llama.cpp float32"] = ("llama_cpp", float32, num_tokens)
    return contestants


def report(results: dict[str, list[Figures] | str], num_tokens: int) -> None:
    """Equality, the table, the ceiling; the last line is JSON."""
    rows, record = [], {}
    ours = results[OURS]
    for name, rounds in results.items():
        if isinstance(rounds, str):
            say(f"{name} is left out: {rounds}")
            continue
        same = equal_beginning(ours[0]["ids"], rounds[0]["ids"])
        keys = ("prefill_tokens_per_second", "decode_tokens_per_second")
        speeds = [median_of(rounds, key) for key in keys]
        ratios = [median_of(ours, key) / speed for key, speed in zip(keys, speeds)]
        record[name] = dict(zip(keys, speeds)) | {"equal_ids": same}
        rows.append(
            [
                name,
                *(f"{s:.1f} ({r:.2f}x)" for s, r in zip(speeds, ratios)),
                f"{same} of {NUM_DECODED}",
            ]
        )
    header = [
        "",
        f"prefill {num_tokens}, tokens/s (ours/it)",
        "decode, tokens/s (ours/it)",
        "equal ids",
    ]
    print(table(header, rows))
    products = median_of(ours, "products_seconds")
    share = products * median_of(ours, "decode_tokens_per_second")
    print(f"\nmatrix products alone: {1 / products:.1f} tokens/s; {share:.0%} of our decode time")
    print(f"BLAS: {ours[0]['blas']}")
    packages = versions("mlx", "mlx-lm", "llama-cpp-python", "scipy-openblas32")
    record |= {"products_tokens_per_second": 1 / products, "blas": ours[0]["blas"]}
    print(json.dumps({"suite": "generate", "machine": machine(), "versions": packages, **record}))


def equal_beginning(a: list[int], b: list[int]) -> int:
    """How many ids from the start are the same."""
    pairs = zip(a, b)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


if __name__ == "__main__":
    main()
