"""a model -> tokens per second of prefill and decode: bytepair beside its peers.

    python -m benchmarks.bench_generate [--model smollm2|qwen3-0.6b] [--rounds N] [--tokens 256]
    python -m benchmarks.bench_generate --positions [--model ...] [--rounds N]

All run the same weights. SmolLM2-135M is the packaged GGUF file, which the others get as
safetensors and llama.cpp both as it is (Q4_1) and dequantized to float32. Qwen3-0.6B has that
model's shape and random values. Equality first: the float32 contestants must give the same greedy
ids. The ceiling is our own model's matrix products alone. --positions instead measures how a
token's time grows with its position, and how much of that is attention. On a GPU our own bfloat16
is added, and who would run on the CPU is left out.

Needs the extra `compare`; also llama-cpp-python for llama.cpp and torch for transformers. Who is
not installed is left out and named. Blind spot: text.
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
NUM_DECODED = 64
POSITIONS = (128, 512, 1024, 2048)
OURS, SHORT = "bytepair float32", "bytepair bfloat16"
PEERS = ("mlx-lm bfloat16", "mlx-lm float32")


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
    import mlx.core as mx

    import model
    from model import cpu

    start, n = perf_counter(), int(num_tokens)
    m = model.load(path, dtype=dtype)
    list(model.generate(m, prompt_ids(8), max_tokens=1))
    first = perf_counter() - start
    measured = timed(model.generate(m, prompt_ids(n), max_tokens=NUM_DECODED), n)
    return measured | {
        "load_and_first_seconds": first,
        "peak_bytes": mx.get_peak_memory(),
        "blas": str(cpu.enable()),
        "device": str(mx.default_device()),
        "products_seconds": products_seconds(m, n + NUM_DECODED // 2),
    }


def products_seconds(m, num_positions: int) -> float:
    """Seconds of one decode step's matrix products, done alone on ready inputs: the ceiling.

    Those with weights, and attention's two: queries with num_positions keys, and with as many
    values.
    """
    import mlx.core as mx

    c, dtype = m.config, m.model.norm.weight.dtype
    H, K, D, S = c.num_attention_heads, c.num_key_value_heads, c.head_dim, num_positions
    x, heads, inner = (
        mx.random.normal((1, 1, width), dtype=dtype)
        for width in (c.hidden_size, H * D, c.intermediate_size)
    )
    queries, weights = (mx.random.normal((1, K, H // K, n), dtype=dtype) for n in (D, S))
    held = [mx.random.normal((2, 1, K, S, D), dtype=dtype) for _ in m.model.layers]
    mx.eval(x, heads, inner, queries, weights, held)

    def products():
        for block, (keys, values) in zip(m.model.layers, held, strict=True):
            attention, mlp = block.self_attn, block.mlp
            yield attention._qkv(x, attention.q_proj, attention.k_proj, attention.v_proj)
            yield queries @ keys.swapaxes(-1, -2)
            yield weights @ values
            yield attention.o_proj(heads)
            yield mlp._gate_up(x, mlp.gate_proj, mlp.up_proj)
            yield mlp.down_proj(inner)
        yield m.head(x)

    times = []
    for _ in range(12):
        start = perf_counter()
        mx.eval(list(products()))
        times.append(perf_counter() - start)
    return statistics.median(times[2:])


def at_positions(path: str) -> Figures:
    """Position -> seconds of a token there, and of its attention alone; float32."""
    import mlx.core as mx

    import model

    m = model.load(path, dtype="float32")
    found = {}
    for position in POSITIONS:
        stream = model.generate(m, prompt_ids(position), max_tokens=NUM_DECODED)
        times = [perf_counter() for _ in stream]
        seconds = statistics.median(b - a for a, b in zip(times, times[1:]))
        # Its positions differ by half as much as those of the tokens that were timed.
        found[str(position)] = {
            "seconds": seconds,
            "attention_seconds": attention_seconds(m, position + NUM_DECODED // 2),
        }
        mx.clear_cache()
    return found


def attention_seconds(m, num_positions: int) -> float:
    """Seconds of one decode step's attention, done alone on ready queries, keys and values."""
    import mlx.core as mx

    from model.ops import attend

    c = m.config
    queries = mx.random.normal((1, c.num_attention_heads, 1, c.head_dim))
    shape = (1, c.num_key_value_heads, num_positions, c.head_dim)
    held = [mx.random.normal((2, *shape)) for _ in m.model.layers]  # as much as all layers hold
    mx.eval(queries, held)
    times = []
    for _ in range(12):
        start = perf_counter()
        mx.eval([attend(queries, k, v, scale=c.head_dim**-0.5, mask=None) for k, v in held])
        times.append(perf_counter() - start)
    return statistics.median(times[2:])


def mlx_lm(directory: str, num_tokens: str, dtype: str, blas: str = "its own") -> Figures:
    """blas: "ours" gives it the library that model.cpu finds."""
    import mlx.core as mx

    if blas == "ours":
        from model import cpu

        cpu.enable()
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    start, n = perf_counter(), int(num_tokens)
    m, _ = load_model(Path(directory))
    m.set_dtype(getattr(mx, dtype))
    mx.eval(m.parameters())
    load_seconds = perf_counter() - start

    def stream(ids, max_tokens):
        return (id for id, _ in generate_step(mx.array(ids), m, max_tokens=max_tokens))

    list(stream(prompt_ids(8), 2))
    return timed(stream(prompt_ids(n), NUM_DECODED), n) | {"load_seconds": load_seconds}


def transformers(directory: str, num_tokens: str) -> Figures:
    """torch in float32, with as many threads as it takes by itself."""
    import torch
    from transformers import AutoModelForCausalLM

    n = int(num_tokens)
    m = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)

    def stream(ids, max_tokens):
        new, cache = torch.tensor([ids]), None
        for _ in range(max_tokens):
            with torch.inference_mode():
                out = m(new, past_key_values=cache, use_cache=True, logits_to_keep=1)
            new, cache = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
            yield new.item()

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
    weights = dict(tree_flatten(m.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "pt"})
    (directory / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama", "architectures": ["LlamaForCausalLM"],
                "hidden_size": c.hidden_size,
                "num_hidden_layers": c.num_hidden_layers, "intermediate_size": c.intermediate_size,
                "num_attention_heads": c.num_attention_heads, "rms_norm_eps": c.rms_norm_eps,
                "vocab_size": c.vocab_size, "num_key_value_heads": c.num_key_value_heads,
                "max_position_embeddings": c.max_position_embeddings,
                "rope_theta": c.rope.theta, "tie_word_embeddings": c.tie_word_embeddings,
            }
        )
    )  # fmt: skip
    return str(directory)


QWEN3_06B = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
    "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960, "rope_theta": 1000000.0, "rope_scaling": None,
    "tie_word_embeddings": True, "attention_bias": False, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151645,
}  # fmt: skip


def as_random_qwen3(directory: Path) -> str:
    """A directory with Qwen3-0.6B's shape in bfloat16, with values of a usual spread."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from model.transformer import Transformer
    from model.weights.config_json import config_from_json

    m = Transformer(config_from_json(QWEN3_06B))
    weights = {}
    for number, (name, array) in enumerate(tree_flatten(m.parameters())):
        value = mx.random.normal(array.shape, key=mx.random.key(number)) * 0.02
        weights[name] = (value + 1 if array.ndim == 1 else value).astype(mx.bfloat16)
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(QWEN3_06B))
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
    parser.add_argument("--model", choices=list(MODELS), default="smollm2")
    parser.add_argument("--tokens", type=int, default=256, help="prompt length (default: 256)")
    parser.add_argument("--positions", action="store_true", help="how a token's time grows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        find, contestants_of = MODELS[options.model]
        path = find(Path(folder))
        if options.positions:
            contestants = {OURS: ("at_positions", path)}
        else:
            contestants = contestants_of(path, Path(folder), str(options.tokens))
        results = run_rounds("benchmarks.bench_generate", contestants, options.rounds)
    if isinstance(results[OURS], str):
        raise SystemExit(results[OURS])
    if options.positions:
        record = report_positions(results[OURS])
    else:
        record = report(results, options.tokens)
    suite = {"suite": "generate", "model": options.model, "machine": machine()}
    print(json.dumps(suite | {"versions": versions(*PACKAGES)} | record))


PACKAGES = ("mlx", "mlx-lm", "torch", "transformers", "llama-cpp-python", "scipy-openblas32")


def on_gpu() -> bool:
    import mlx.core as mx

    return mx.default_device().type == mx.gpu


def ours(path: str, num_tokens: str) -> dict[str, tuple[str, ...]]:
    """On a CPU float32 only: MLX multiplies the shorter types slowly there."""
    dtypes = {OURS: "float32"} | ({SHORT: "bfloat16"} if on_gpu() else {})
    return {name: ("bytepair", path, num_tokens, dtype) for name, dtype in dtypes.items()}


def peers(directory: str, num_tokens: str) -> dict[str, tuple[str, ...]]:
    """Those that read a safetensors directory."""
    found = {name: ("mlx_lm", directory, num_tokens, name.split()[1]) for name in PEERS}
    if on_gpu():
        return found
    return found | {
        "mlx-lm float32, our BLAS": ("mlx_lm", directory, num_tokens, "float32", "ours"),
        "transformers float32": ("transformers", directory, num_tokens),
    }


def packaged(folder: Path) -> str:
    from pipeline import source

    return str(source.packaged_model(say))


def of_gguf(path: str, folder: Path, num_tokens: str) -> dict[str, tuple[str, ...]]:
    """The others get what we read from it, llama.cpp also the file itself."""
    contestants = ours(path, num_tokens) | peers(as_directory(Path(path), folder), num_tokens)
    if on_gpu():
        return contestants
    contestants["llama.cpp Q4_1"] = ("llama_cpp", path, num_tokens)
    float32 = as_float32_gguf(Path(path), folder / "float32.gguf")
    if float32:
        contestants["llama.cpp float32"] = ("llama_cpp", float32, num_tokens)
    return contestants


def of_directory(path: str, folder: Path, num_tokens: str) -> dict[str, tuple[str, ...]]:
    return ours(path, num_tokens) | peers(path, num_tokens)


MODELS = {  # name -> how its weights are found or made, and who reads them
    "smollm2": (packaged, of_gguf),
    "qwen3-0.6b": (as_random_qwen3, of_directory),
}


# --- what was measured -------------------------------------------------------------------------


def report(results: dict[str, list[Figures] | str], num_tokens: int) -> dict:
    """Print equality, speeds, ceiling and loading; -> the same for the record."""
    rows, record = [], {"num_decoded": NUM_DECODED}
    own = results[OURS]
    keys = ("prefill_tokens_per_second", "decode_tokens_per_second")
    for name, rounds in results.items():
        if isinstance(rounds, str):
            say(f"{name} is left out: {rounds}")
            continue
        same = min(equal_beginning(a["ids"], b["ids"]) for a, b in zip(own, rounds))
        speeds = [median_of(rounds, key) for key in keys]
        ratios = [median_of(own, key) / speed for key, speed in zip(keys, speeds)]
        record[name] = dict(zip(keys, speeds)) | {"equal_ids": same}
        cells = [f"{speed:.1f} ({ratio:.2f}x)" for speed, ratio in zip(speeds, ratios)]
        rows.append([name, *cells, f"{same} of {NUM_DECODED}"])
    speeds = [f"{kind}, tokens/s (ours/it)" for kind in (f"prefill {num_tokens}", "decode")]
    print(table(["", *speeds, "equal ids"], rows))
    products = median_of(own, "products_seconds")
    share = products * median_of(own, keys[1])
    print(f"\nmatrix products alone: {1 / products:.1f} tokens/s; {share:.0%} of our decode time")
    first, peak = median_of(own, "load_and_first_seconds"), median_of(own, "peak_bytes")
    print(f"load and first token: {first:.2f} s, peak memory {peak / 1e9:.2f} GB")
    for name in PEERS:
        if not isinstance(results[name], str):
            seconds = record[name]["load_seconds"] = median_of(results[name], "load_seconds")
            print(f"{name} loads in {seconds:.2f} s ({first / seconds:.2f}x)")
    print(f"device: {own[0]['device']}; BLAS: {own[0]['blas']}")
    record |= {"products_tokens_per_second": 1 / products, "blas": own[0]["blas"]}
    return record | {"load_and_first_seconds": first, "peak_bytes": peak}


def report_positions(rounds: list[Figures]) -> dict:
    """Print each position's time, and what grows that isn't attention; -> both for the record."""
    keys = ("seconds", "attention_seconds")
    found = {
        position: {key: statistics.median(each[position][key] for each in rounds) for key in keys}
        for position in map(str, POSITIONS)
    }
    first = found[str(POSITIONS[0])]
    rows = []
    for position, one in found.items():
        more, attention = (one[key] - first[key] for key in keys)
        one["rest_grows_by"] = (more - attention) / first["seconds"]
        cells = [f"{one[key] * 1e3:.1f}" for key in keys]
        rows.append([position, *cells, f"{one['rest_grows_by']:.1%}"])
    print(table(["position", "a token, ms", "its attention alone, ms", "the rest grows by"], rows))
    return found


def equal_beginning(a: list[int], b: list[int]) -> int:
    """How many ids from the start are the same."""
    pairs = zip(a, b)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


if __name__ == "__main__":
    main()
