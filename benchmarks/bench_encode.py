"""texts -> MB/s of encode and decode, seconds to load: bytepair beside the Rust tokenizers.

    python -m benchmarks.bench_encode [--rounds N]

All have Qwen3's genuine vocabulary and one thread. Equality first: the ids of every contestant are
compared with ours before its speed counts. `cold` is a fresh tokenizer's first encode of the text,
`warm` the median of the next ones. gigatoken (SIMD, Rust) is the ceiling. Blind spot: models.

English is the language reference that CPython carries, Python source its standard library;
Chinese is drawn from the vocabulary's own Chinese tokens by Zipf's law, with punctuation, since
no such text is at hand on every machine: its pieces are as long as in real text, but rarely come
back. "english+added" is English for a tokenizer with 50,000 random words as added tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import sysconfig
import tempfile
from array import array
from pathlib import Path
from string import ascii_lowercase
from time import perf_counter

from benchmarks.harness import Figures, machine, median_of, run_rounds, say, table, versions

TEXTS = ("english", "python", "chinese")
ADDED = "english+added"
OURS = "bytepair"


def text_of(name: str, tokenizer_path: str) -> str:
    """One of the three texts, the same in every process."""
    if name.startswith("english"):
        from pydoc_data.topics import topics

        return "".join(topics[key] for key in sorted(topics))[:1_000_000]
    if name == "python":
        return _python_source(10_000_000)
    return _chinese(1_000_000, tokenizer_path)


def _python_source(num_bytes: int) -> str:
    parts: list[str] = []
    length = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts or length >= num_bytes:
            continue
        try:
            parts.append(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        length += len(parts[-1])
    return "".join(parts)


def _chinese(num_bytes: int, tokenizer_path: str) -> str:
    import bpe

    vocab = bpe.Tokenizer.from_file(tokenizer_path).spec.vocab
    words = [token.decode(errors="ignore") for token in vocab if len(token) >= 3]
    words = [word for word in words if word and all("\u4e00" <= char <= "\u9fff" for char in word)]
    rng = random.Random(0)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    drawn = rng.choices(words, weights, k=num_bytes // 5)
    marks = rng.choices(["", "", "", "", "", "", "，", "。", "、", "\n"], k=len(drawn))
    text = "".join(word + mark for word, mark in zip(drawn, marks))
    return text.encode()[:num_bytes].decode(errors="ignore")


def with_added_tokens(path: str, folder: Path) -> str:
    """A copy of a tokenizer.json with 50,000 random words as added tokens more."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    vocab, rng = data["model"]["vocab"], random.Random(0)
    words = ("".join(rng.choices(ascii_lowercase, k=rng.randint(4, 10))) for _ in range(60_000))
    words = [word for word in dict.fromkeys(words) if word not in vocab][:50_000]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    first = max(token["id"] for token in data["added_tokens"]) + 1
    data["added_tokens"] += [
        {"id": id, "content": word} | flags for id, word in enumerate(words, start=first)
    ]
    copy = folder / "tokenizer.json"
    copy.write_text(json.dumps(data), encoding="utf-8")
    return str(copy)


def measure(encode, decode, text: str, load_seconds: float) -> Figures:
    """encode: text -> list of ids, not called before; decode: ids -> text."""
    num_megabytes = len(text.encode()) / 1e6
    times = []
    for _ in range(4):
        start = perf_counter()
        ids = encode(text)
        times.append(perf_counter() - start)
    start = perf_counter()
    decoded = decode(ids)
    decode_seconds = perf_counter() - start
    return {
        "cold": num_megabytes / times[0],
        "warm": num_megabytes / statistics.median(times[1:]),
        "decode": num_megabytes / decode_seconds,
        "load": load_seconds,
        "num_ids": len(ids),
        "sha256": hashlib.sha256(array("I", ids).tobytes()).hexdigest(),
        "round_trip": decoded == text,
    }


# --- contestants, each called in its own process -----------------------------------------------


def bytepair(name: str, path: str) -> Figures:
    text = text_of(name, path)
    start = perf_counter()
    import bpe

    tokenizer = bpe.Tokenizer.from_file(path)
    seconds = perf_counter() - start
    return measure(tokenizer.encode, tokenizer.decode, text, seconds)


def hugging_face(name: str, path: str) -> Figures:
    import os

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    text = text_of(name, path)
    start = perf_counter()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    seconds = perf_counter() - start
    return measure(lambda text: tokenizer.encode(text).ids, tokenizer.decode, text, seconds)


def tiktoken(name: str, path: str) -> Figures:
    import bpe

    text = text_of(name, path)
    spec = bpe.Tokenizer.from_file(path).spec
    start = perf_counter()
    from tiktoken import Encoding

    encoding = Encoding(
        "qwen3",
        pat_str=spec.pre_tokenizer[0].pattern,
        mergeable_ranks=dict(spec.vocab),
        special_tokens={token.content: token.id for token in spec.added_tokens},
    )
    seconds = perf_counter() - start
    return measure(encoding.encode_ordinary, encoding.decode, text, seconds)


def gigatoken(name: str, path: str) -> Figures:
    text = text_of(name, path)
    start = perf_counter()
    import gigatoken as library

    tokenizer = library.Tokenizer(path)
    seconds = perf_counter() - start
    return measure(
        lambda text: list(tokenizer.encode(text)),
        lambda ids: _as_text(tokenizer.decode(ids)),
        text,
        seconds,
    )


def _as_text(decoded: str | bytes) -> str:
    return decoded.decode() if isinstance(decoded, bytes) else decoded


def batch(num_workers: str, path: str) -> Figures:
    """encode_batch on 20 MB of documents, after one small batch that starts the processes."""
    import bpe

    source = text_of("python", path) * 2
    documents = [source[i : i + 20_000] for i in range(0, len(source), 20_000)]
    tokenizer = bpe.Tokenizer.from_file(path)
    tokenizer.encode_batch(documents[:50], workers=int(num_workers))
    start = perf_counter()
    ids = tokenizer.encode_batch(documents, workers=int(num_workers))
    seconds = perf_counter() - start
    return {"batch": len(source.encode()) / 1e6 / seconds, "num_ids": sum(map(len, ids))}


CONTESTANTS = {
    OURS: "bytepair",
    "HF tokenizers": "hugging_face",
    "tiktoken": "tiktoken",
    "gigatoken": "gigatoken",
}


def _check_hard_texts(path: str) -> None:
    """Equality first, also on the hard texts: SystemExit names those that we encode otherwise."""
    import bpe
    from bpe.lab.cases import check

    if mismatches := check(bpe.Tokenizer.from_file(path), "qwen3"):
        names = ", ".join(mismatch.case.name for mismatch in mismatches)
        raise SystemExit(f"these hard texts have other ids than Qwen3's: {names}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokenizer", required=True, help="Qwen3's tokenizer.json")
    options = parser.parse_args()
    _check_hard_texts(options.tokenizer)
    contestants = {
        f"{name}/{text}": (function, text, options.tokenizer)
        for text in TEXTS
        for name, function in CONTESTANTS.items()
    }
    contestants |= {f"batch/{n}": ("batch", str(n), options.tokenizer) for n in (1, 2)}
    with tempfile.TemporaryDirectory() as folder:
        path = with_added_tokens(options.tokenizer, Path(folder))
        for name in (OURS, "HF tokenizers"):
            contestants[f"{name}/{ADDED}"] = (CONTESTANTS[name], ADDED, path)
        results = run_rounds("benchmarks.bench_encode", contestants, options.rounds)
    report(results)


def report(results: dict[str, list[Figures] | str]) -> None:
    """Equality, then the tables; the last line is JSON."""
    record: dict[str, dict[str, float | bool]] = {}
    for text in (*TEXTS, ADDED):
        ours, rows = results[f"{OURS}/{text}"], []
        if isinstance(ours, str):
            raise SystemExit(f"bytepair failed: {ours}")
        for name in CONTESTANTS:
            rounds = results.get(f"{name}/{text}", "it is not measured")
            if isinstance(rounds, str):
                say(f"{name} on {text} is left out: {rounds}")
                continue
            equal = rounds[0]["sha256"] == ours[0]["sha256"]
            record[f"{name}/{text}"] = {"equal_ids": equal}
            cells = [name]
            for key in ("cold", "warm", "decode"):
                speed = median_of(rounds, key)
                record[f"{name}/{text}"][key] = speed
                cells.append(f"{speed:.1f} ({median_of(ours, key) / speed:.2f}x)")
            load = median_of(rounds, "load")
            record[f"{name}/{text}"]["load"] = load
            rows.append([*cells, f"{load:.2f} s", "yes" if equal else "NO"])
        header = [text, "encode cold, MB/s (ours/it)", "encode warm", "decode", "load", "equal ids"]
        print(table(header, rows) + "\n")
    one, two = (results[f"batch/{n}"] for n in (1, 2))
    if not isinstance(one, str) and not isinstance(two, str):
        speeds = [median_of(one, "batch"), median_of(two, "batch")]
        record["batch"] = {"one": speeds[0], "two": speeds[1]}
        print(
            f"encode_batch, 20 MB: {speeds[0]:.1f} MB/s with one process, {speeds[1]:.1f} with two"
        )
    packages = versions("tokenizers", "tiktoken", "gigatoken", "regex")
    print(json.dumps({"suite": "encode", "machine": machine(), "versions": packages, **record}))


if __name__ == "__main__":
    main()
