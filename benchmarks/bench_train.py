"""a corpus -> seconds to train: bytepair beside Hugging Face's BpeTrainer and others in Rust.

    python -m benchmarks.bench_train [--rounds N] [--scaling] [--memory]

Equality first: the merges are compared, then the seconds. The corpus is 10 MB of CPython's own
library: as documents of 20,000 characters, as one document, and as a file read by line. Hugging
Face uses its own threads (one document keeps it to one), bytepair one process or two. bpeasy breaks
ties in its own way and gigabpe splits as GPT-2 does, so their merges differ; they are shown for
their speed. minbpe's textbook loop is written out here. --scaling trains on 1, 10 and 100 MB;
--memory streams 100 MB and 1 GB. Blind spot: how good a vocabulary is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.bench_encode import text_of
from benchmarks.harness import Figures, machine, median_of, run_rounds, say, table, versions

SIZES = (8000, 32000)
OURS = "bytepair, 2 processes"
DOCUMENT = 20_000  # characters
TEXTBOOK_BYTES, TEXTBOOK_MERGES = 1_000_000, 100


def corpus(num_megabytes: int = 10) -> str:
    """Python source; beyond 10 MB it comes again, with one name in ten spelled anew each time."""
    text = text_of("python", "").encode()[:10_000_000].decode(errors="ignore")
    if num_megabytes <= 10:
        return text.encode()[: num_megabytes * 1_000_000].decode(errors="ignore")
    return "".join(_respelled(text, number) for number in range(num_megabytes // 10))


def _respelled(text: str, number: int) -> str:
    if not number:
        return text
    spelled: dict[str, str] = {}

    def respell(word: re.Match[str]) -> str:
        name = word[0]
        if name not in spelled:
            digest = hashlib.md5(f"{number} {name}".encode()).hexdigest()
            letters = digest.translate(str.maketrans("0123456789", "ghijklmnop"))
            spelled[name] = letters[: len(name)] if digest < "1a" else name
        return spelled[name]

    return re.sub(r"[A-Za-z]{4,}", respell, text)


def documents(text: str, source: str = "documents") -> list[str] | None:
    """The corpus in memory, or None where source is the path of a file."""
    if source == "one":
        return [text]
    if source != "documents":
        return None
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


def figures(seconds: float, merges: list[tuple[str, str]]) -> Figures:
    digest = hashlib.sha256(json.dumps(merges).encode()).hexdigest()
    return {"seconds": seconds, "merges": len(merges), "sha256": digest}


# --- contestants, each called in its own process -----------------------------------------------


def bytepair(size: str, workers: str, source: str) -> Figures:
    """source: documents, one (document), or the path of a file that is read by line."""
    import bpe
    from bpe.formats import to_glyphs

    texts = documents(corpus(), source)
    start = perf_counter()
    if texts is None:
        trained = bpe.train_files(source, int(size), lines=True, workers=int(workers))
    else:
        trained = bpe.train(texts, int(size), workers=int(workers))
    seconds = perf_counter() - start
    glyphs = {id: to_glyphs(token) for token, id in trained.spec.vocab.items()}
    return figures(seconds, [(glyphs[left], glyphs[right]) for left, right in trained.spec.merges])


def hugging_face(size: str, source: str) -> Figures:
    tokenizer, trainer = _hugging_face(int(size))
    texts = documents(corpus(), source)
    start = perf_counter()
    if texts is None:
        tokenizer.train([source], trainer)
    else:
        tokenizer.train_from_iterator(texts, trainer)
    seconds = perf_counter() - start
    return figures(seconds, json.loads(tokenizer.to_str())["model"]["merges"])


def _hugging_face(size: int) -> tuple:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    from bpe.spec import QWEN_PATTERN

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    return tokenizer, trainer


def bpeasy(size: str) -> Figures:
    import bpeasy as library

    from bpe.spec import QWEN_PATTERN

    texts = documents(corpus())
    start = perf_counter()
    vocab = library.train_bpe(iter(texts), QWEN_PATTERN, 128, int(size))
    return {"seconds": perf_counter() - start, "merges": len(vocab) - 256, "sha256": ""}


def gigabpe(size: str, path: str) -> Figures:
    import gigabpe as library

    start = perf_counter()
    _, merges = library.train_bpe([path], int(size), min_frequency=2, pretokenizer="bytelevel")
    return {"seconds": perf_counter() - start, "merges": len(merges), "sha256": ""}


def textbook(_: str) -> Figures:
    """minbpe's loop: count all pairs of all pieces, merge the best one everywhere, begin again."""
    import bpe

    text = corpus().encode()[:TEXTBOOK_BYTES].decode(errors="ignore")
    words = [list(piece.encode()) for piece in bpe.split_pieces(text)]
    merges = []
    start = perf_counter()
    for number in range(TEXTBOOK_MERGES):
        counts: dict[tuple[int, int], int] = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=counts.get)
        merges.append(best)
        words = [_merge(word, best, 256 + number) for word in words]
    return figures(perf_counter() - start, _as_bytes(merges))


def _merge(ids: list[int], pair: tuple[int, int], id: int) -> list[int]:
    merged = []
    i = 0
    while i < len(ids):
        if ids[i] == pair[0] and i < len(ids) - 1 and ids[i + 1] == pair[1]:
            merged.append(id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _as_bytes(merges: list[tuple[int, int]]) -> list[tuple[str, str]]:
    tokens = {byte: bytes([byte]) for byte in range(256)}
    for number, (left, right) in enumerate(merges):
        tokens[256 + number] = tokens[left] + tokens[right]
    return [(tokens[left].hex(), tokens[right].hex()) for left, right in merges]


def as_textbook(workers: str) -> Figures:
    """What textbook does, by bytepair, with the splitting that textbook does not time."""
    import bpe

    text = corpus().encode()[:TEXTBOOK_BYTES].decode(errors="ignore")
    start = perf_counter()
    trained = bpe.train(
        [text], 256 + TEXTBOOK_MERGES, ties="first-seen", workers=int(workers), min_frequency=1
    )
    seconds = perf_counter() - start
    token = {id: token.hex() for token, id in trained.spec.vocab.items()}
    return figures(seconds, [(token[left], token[right]) for left, right in trained.spec.merges])


def scaling(library: str, num_megabytes: str, size: str) -> Figures:
    import bpe

    texts = documents(corpus(int(num_megabytes)))
    if library == "hugging_face":
        tokenizer, trainer = _hugging_face(int(size))
        start = perf_counter()
        tokenizer.train_from_iterator(texts, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        return figures(perf_counter() - start, [tuple(merge) for merge in merges])
    from bpe.formats import to_glyphs
    from bpe.training.corpus import Documents
    from bpe.training.options import split_options
    from bpe.training.run import run

    start = perf_counter()
    result = run(Documents(texts), *split_options(int(size), {"workers": 2}))
    seconds = perf_counter() - start
    spec = result.tokenizers[0].spec
    glyphs = {id: to_glyphs(token) for token, id in spec.vocab.items()}
    assert isinstance(result.tokenizers[0], bpe.Tokenizer)
    merges = [(glyphs[left], glyphs[right]) for left, right in spec.merges]
    summary = result.summary
    return figures(seconds, merges) | summary["seconds"] | {"pieces": summary["distinct_pieces"]}


def memory(num_megabytes: str) -> Figures:
    """Peak memory on 10 MB of source that comes again and again."""
    import bpe
    from bpe.training.run import peak_memory

    def repeated(texts: list[str], times: int) -> Iterator[str]:
        for _ in range(times):
            yield from texts

    start = perf_counter()
    bpe.train(repeated(documents(corpus()), int(num_megabytes) // 10), 8000, workers=2)
    return {"peak": peak_memory() / 1e6, "seconds": perf_counter() - start}


# --- the tables ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scaling", action="store_true", help="also 1, 10 and 100 MB")
    parser.add_argument("--memory", action="store_true", help="also the peak on 100 MB and 1 GB")
    options = parser.parse_args()
    record: dict[str, dict[str, float | bool | str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "corpus.txt")
        Path(path).write_bytes(corpus().encode())
        _compare(path, options.rounds, record)
    _compare_textbook(record)
    if options.scaling:
        _scale(record)
    if options.memory:
        _remember(record)
    packages = versions("tokenizers", "bpeasy", "gigabpe", "regex")
    print(json.dumps({"suite": "train", "machine": machine(), "versions": packages, **record}))


def _contestants(size: int, path: str) -> dict[str, tuple[str, ...]]:
    return {
        OURS: ("bytepair", str(size), "2", "documents"),
        "bytepair, 1 process": ("bytepair", str(size), "1", "documents"),
        "HF BpeTrainer": ("hugging_face", str(size), "documents"),
        "bytepair, one document, 2 processes": ("bytepair", str(size), "2", "one"),
        "bytepair, one document, 1 process": ("bytepair", str(size), "1", "one"),
        "HF BpeTrainer, one document": ("hugging_face", str(size), "one"),
        "bytepair by line, 2 processes": ("bytepair", str(size), "2", path),
        "bytepair by line, 1 process": ("bytepair", str(size), "1", path),
        "HF BpeTrainer, file": ("hugging_face", str(size), path),
        "bpeasy (other ties)": ("bpeasy", str(size)),
        "gigabpe (other split)": ("gigabpe", str(size), path),
    }


def _compare(path: str, num_rounds: int, record: dict) -> None:
    for size in SIZES:
        results = run_rounds("benchmarks.bench_train", _contestants(size, path), num_rounds)
        rows = []
        for name, rounds in results.items():
            if isinstance(rounds, str):
                say(f"{name} is left out: {rounds}")
                continue
            theirs = results[_rival(name)]
            equal = _are_equal(rounds, theirs) if name.startswith("bytepair") else None
            seconds = median_of(rounds, "seconds")
            ratio = (
                "" if isinstance(theirs, str) else f"{median_of(theirs, 'seconds') / seconds:.2f}x"
            )
            record[f"{name}/{size}"] = {"seconds": seconds, "equal_merges": equal}
            rows.append(
                [name, f"{seconds:.2f}", ratio, {True: "yes", False: "NO", None: ""}[equal]]
            )
        header = [f"10 MB Python, {size:,} ids", "seconds", "HF's / its", "HF's merges"]
        print(table(header, rows) + "\n")


def _rival(name: str) -> str:
    """The contestant that gets the corpus in the same form."""
    if "one document" in name:
        return "HF BpeTrainer, one document"
    return "HF BpeTrainer, file" if "line" in name or "file" in name else "HF BpeTrainer"


def _are_equal(ours: list[Figures], theirs: list[Figures] | str) -> bool | None:
    if isinstance(theirs, str):
        return None
    return {figures["sha256"] for figures in (*ours, *theirs)} == {theirs[0]["sha256"]}


def _compare_textbook(record: dict) -> None:
    results = run_rounds(
        "benchmarks.bench_train",
        {"textbook": ("textbook", ""), OURS: ("as_textbook", "2")},
        1,
    )
    slow, fast = results["textbook"], results[OURS]
    ratio = slow[0]["seconds"] / fast[0]["seconds"]
    equal = slow[0]["sha256"] == fast[0]["sha256"]
    record["textbook"] = {"seconds": slow[0]["seconds"], "ratio": ratio, "equal_merges": equal}
    print(
        f"minbpe's textbook loop, 1 MB, {TEXTBOOK_MERGES} merges: {slow[0]['seconds']:.1f} s, "
        f"bytepair {fast[0]['seconds']:.2f} s, {ratio:.0f}x; merges "
        f"{'equal' if equal else 'DIFFER'}\n"
    )


def _scale(record: dict) -> None:
    rows = []
    for num_megabytes in (1, 10, 100):
        for size in SIZES:
            call = (str(num_megabytes), str(size))
            results = run_rounds(
                "benchmarks.bench_train",
                {
                    OURS: ("scaling", "bytepair", *call),
                    "HF": ("scaling", "hugging_face", *call),
                },
                1,
            )
            [ours], [theirs] = results[OURS], results["HF"]
            ratio = theirs["seconds"] / ours["seconds"]
            record[f"scaling/{num_megabytes}/{size}"] = {**ours, "ratio": ratio}
            rows.append([
                f"{num_megabytes} MB", f"{size:,}", f"{ours['pieces']:,}",
                f"{ours['counting']:.2f}", f"{ours['learning']:.2f}", f"{ours['seconds']:.2f}",
                f"{theirs['seconds']:.2f} ({ratio:.2f}x)",
                "yes" if ours["sha256"] == theirs["sha256"] else "NO",
            ])  # fmt: skip
    header = [
        "corpus", "ids", "distinct pieces", "counting, s", "learning, s", "all, s", "HF, s",
        "HF's merges",
    ]  # fmt: skip
    print(table(header, rows) + "\n")


def _remember(record: dict) -> None:
    results = run_rounds(
        "benchmarks.bench_train", {"100": ("memory", "100"), "1000": ("memory", "1000")}, 1
    )
    rows = []
    for num_megabytes, [peak] in results.items():
        record[f"memory/{num_megabytes}"] = peak
        rows.append([f"{num_megabytes} MB", f"{peak['peak']:.0f} MB", f"{peak['seconds']:.1f}"])
    print(table(["repeated corpus", "peak memory", "seconds"], rows) + "\n")


if __name__ == "__main__":
    main()
