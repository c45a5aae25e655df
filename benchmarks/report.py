"""records -> the README's tables, what got slower, pictures, and a README with fresh tables.

A table in a README stands between two marks and is replaced as a whole:

    <!-- bench:generate -->
    | ... |
    <!-- /bench -->

The figures are the newest ones of this machine, or of the one that was measured last. Blind spot:
how anything is measured.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import plot
from benchmarks.harness import machine, table
from benchmarks.history import (
    SAME,
    Change,
    Record,
    compare,
    latest,
    least_of,
    machine_of,
    value_of,
)
from bpe.formats.whole import whole_file

OURS = {"generate": "bytepair float32", "encode": "bytepair", "train": "bytepair, 2 processes"}
GENERATORS = (
    "bytepair float32", "bytepair bfloat16", "mlx-lm bfloat16", "mlx-lm float32",
    "mlx-lm float32, our BLAS", "transformers float32", "llama.cpp Q4_1", "llama.cpp float32",
)  # fmt: skip
CEILING = "our matrix products alone"
ENCODERS = ("bytepair", "HF tokenizers", "tiktoken", "gigatoken")
TEXTS = ("english", "python", "chinese")
TRAINERS = (  # in groups of one input each, which begin with ours
    ("bytepair, 2 processes", "bytepair, 1 process", "HF BpeTrainer", "bpeasy (other ties)",
     "gigabpe (other split)"),
    ("bytepair, one document, 2 processes", "bytepair, one document, 1 process",
     "HF BpeTrainer, one document"),
    ("bytepair by line, 2 processes", "bytepair by line, 1 process", "HF BpeTrainer, file"),
)  # fmt: skip
TRAIN_SIZES = (8000, 32000)
NUM_DECODED = 48  # ids that bench_generate compared before it recorded how many
PROMPT = 256  # tokens, in the table of generation

BLOCK = re.compile(r"(<!-- bench:([\w.-]+) -->\n)(.*?)(<!-- /bench -->)", re.DOTALL)


# --- tables: records of one suite, newest first -> Markdown, or None without figures ------------


def generate_table(records: list[Record]) -> str | None:
    keys = [f"{kind}_tokens_per_second" for kind in ("prefill", "decode")]
    rows = []
    for name in GENERATORS:
        values = [_value(records, f"{PROMPT}/{name}/{key}") for key in keys]
        if None in values:
            continue
        ours = [_value(records, f"{PROMPT}/{OURS['generate']}/{key}") for key in keys]
        is_ours = name == OURS["generate"]
        cells = [_speed(value, None if is_ours else own) for value, own in zip(values, ours)]
        rows.append([name, *cells, "" if is_ours else _equal_ids(records, name)])
    ceiling = _value(records, f"{PROMPT}/products_tokens_per_second")
    if rows and ceiling is not None:
        decode = _value(records, f"{PROMPT}/{OURS['generate']}/{keys[1]}")
        rows.append([CEILING, "", _speed(ceiling, decode), ""])
    header = ["", f"prefill {PROMPT}, tokens/s", "decode, tokens/s", "equal greedy ids"]
    return table(header, rows) if rows else None


def _equal_ids(records: list[Record], name: str) -> str:
    path = f"{PROMPT}/{name}/equal_ids"
    record = next(each for each in records if path in each["figures"])
    compared = value_of(record, f"{PROMPT}/num_decoded") or NUM_DECODED
    return f"{least_of(record, path):.0f} of {compared:.0f}"


def encode_table(records: list[Record]) -> str | None:
    columns = [(text, kind) for text in TEXTS for kind in ("cold", "warm")]
    rows = []
    for name in ENCODERS:
        cells = []
        for text, kind in columns:
            value = _value(records, f"{name}/{text}/{kind}")
            own = _value(records, f"{OURS['encode']}/{text}/{kind}")
            cells.append(
                "-" if value is None else _speed(value, None if name == ENCODERS[0] else own)
            )
        if set(cells) != {"-"}:
            rows.append([name, *cells])
    header = ["encode, MB/s", *(f"{text.capitalize()} {kind}" for text, kind in columns)]
    return table(header, rows) if rows else None


def train_table(records: list[Record]) -> str | None:
    rows = []
    for name, ours in ((name, group[0]) for group in TRAINERS for name in group):
        seconds = [_value(records, f"{name}/{size}/seconds") for size in TRAIN_SIZES]
        if None in seconds:
            continue
        own = [_value(records, f"{ours}/{size}/seconds") for size in TRAIN_SIZES]
        cells = [_seconds(s, None if name == ours else o) for s, o in zip(seconds, own)]
        equal = [_least(records, f"{name}/{size}/equal_merges") for size in TRAIN_SIZES]
        rows.append([name, *cells, _yes_no(equal)])
    header = ["10 MB Python", *(f"{size:,} ids, s" for size in TRAIN_SIZES), "HF's merges"]
    return table(header, rows) if rows else None


def batch_table(records: list[Record]) -> str | None:
    alone, together = (_value(records, kind) for kind in ("alone", "together"))
    if alone is None or together is None:
        return None
    equal = f"{_least(records, 'equal'):.0f} of 8"
    rows = [["one by one", f"{alone:.1f}", ""]]
    rows.append(["together", f"{together:.1f} ({together / alone:.2f}x)", equal])
    return table(["8 prompts", "tokens/s", "equal answers"], rows)


def speculative_table(records: list[Record]) -> str | None:
    kinds = {"copying": "text to copy", "others": "nothing to copy"}
    values = {name: _value(records, f"medians/{kind}") for kind, name in kinds.items()}
    if None in values.values():
        return None
    paths = [path for path in records[0]["figures"] if path.endswith("/equal")]
    equal = sum(_least(records, path) == 1 for path in paths)
    rows = [[name, f"{value:.2f}x"] for name, value in values.items()]
    rows.append(["equal ids", f"{equal} of {len(paths)}"])
    return table(["n-gram drafts", "decode, with / without"], rows)


TABLES: dict[str, Callable[[list[Record]], str | None]] = {
    "generate": generate_table,
    "generate-qwen3-0.6b": generate_table,
    "encode": encode_table,
    "train": train_table,
    "batch": batch_table,
    "speculative": speculative_table,
}


def _value(records: list[Record], path: str) -> float | None:
    """The newest record that holds the figure decides."""
    return next((v for v in (value_of(r, path) for r in records) if v is not None), None)


def _least(records: list[Record], path: str) -> float | None:
    return next((v for v in (least_of(r, path) for r in records) if v is not None), None)


def _speed(value: float, ours: float | None) -> str:
    """More is better; behind it our speed divided by theirs."""
    shown = f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return shown if ours is None else f"{shown} ({_ratio(ours / value)})"


def _seconds(value: float, ours: float | None) -> str:
    return f"{value:.2f}" if ours is None else f"{value:.2f} ({_ratio(value / ours)})"


def _ratio(value: float) -> str:
    """
    >>> _ratio(22.43), _ratio(0.912), _ratio(1)
    ('22.4x', '0.91x', '1.0x')
    """
    return f"{value:.1f}x" if value >= 1 else f"{value:.2f}x"


def _yes_no(equal: list[float | None]) -> str:
    """
    >>> _yes_no([True, True]), _yes_no([True, False]), _yes_no([None, None])
    ('yes', 'NO', '')
    """
    if None in equal:
        return ""
    return "yes" if all(equal) else "NO"


# --- the report ----------------------------------------------------------------------------------


def as_text(records: list[Record]) -> str:
    """All tables, and under each what changed since the record before it."""
    here = chosen_machine(records)
    system, processor, cores, gpu = here
    parts = [f"On {system}, {gpu or processor}, {cores} cores:"]
    for suite, render in TABLES.items():
        found = latest(records, suite, here)
        shown = render(found) if found else None
        if shown is None:
            missing = "no figures for its table" if found else "not measured"
            parts.append(f"{suite}: {missing} on this machine")
            continue
        parts += [f"{_title(found[0])}\n\n{shown}\n\n{changes_of(found)}"]
    return "\n\n".join(parts)


def chosen_machine(records: list[Record]) -> tuple:
    """This one if it has records, else the one that was measured last."""
    this = tuple(machine().get(key) for key in SAME)
    known = [machine_of(record) for record in records]
    return this if this in known else known[-1]


def _title(record: Record) -> str:
    values = record["figures"].values()
    rounds = max(len(each) for each in values)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    commit = record["commit"] or "unknown"
    return (
        f"{record['suite']} ({record['form']}, {_plural(rounds, 'round')}, {record['date']}, "
        f"commit {commit}; {versions})"
    )


def changes_of(found: list[Record]) -> str:
    """found: records of one suite and machine, newest first -> lines on what got slower or not."""
    after = found[0]
    before = next((old for old in found[1:] if compare(after, old)), None)
    if before is None:
        return "There is no earlier record of this machine to compare with."
    all_changes = compare(after, before)
    ours = [change for change in all_changes if not change.is_peer]
    peers = [change.ratio for change in all_changes if change.is_peer]
    lines = [f"Since {before['date']} (commit {before['commit'] or 'unknown'}):"]
    lines += [f"  slower: {_change_line(c)}" for c in ours if c.is_slower]
    lines += [f"  faster: {_change_line(c)}" for c in ours if c.is_faster]
    if len(lines) == 1:
        lines.append(f"  nothing changed by more than the noise ({_plural(len(ours), 'figure')})")
    if peers:
        lines.append(
            f"  the peers, which say how the machine felt: {statistics.median(peers):.2f}x"
        )
    return "\n".join(lines)


def _change_line(change: Change) -> str:
    return (
        f"{change.path} {change.before:.4g} -> {change.after:.4g} "
        f"({change.ratio:.2f}x, noise {change.noise:.0%})"
    )


def _plural(count: int, noun: str) -> str:
    """
    >>> _plural(1, "round"), _plural(3, "round")
    ('1 round', '3 rounds')
    """
    return f"{count} {noun}" + "s" * (count != 1)


# --- the README ----------------------------------------------------------------------------------


def rewrite(readme: Path, records: list[Record]) -> None:
    """Put fresh tables between the marks. Raises ValueError for a mark that names no table.

    A table without figures stays as it is.
    """
    here = chosen_machine(records)

    def fresh(match: re.Match[str]) -> str:
        opening, name, old, closing = match.groups()
        if name not in TABLES:
            raise ValueError(f"{readme} marks a table {name!r}; there are {', '.join(TABLES)}")
        found = latest(records, name, here)
        shown = TABLES[name](found) if found else None
        return opening + (old if shown is None else shown + "\n") + closing

    text = BLOCK.sub(fresh, readme.read_text(encoding="utf-8"))
    with whole_file(readme) as temporary:
        temporary.write_text(text, encoding="utf-8")


def marked(text: str) -> Iterator[tuple[str, str]]:
    """(name, table) of each marked block of a text."""
    for match in BLOCK.finditer(text):
        yield match[2], match[3].rstrip("\n")


# --- the pictures --------------------------------------------------------------------------------


def draw(records: list[Record], directory: Path) -> list[Path]:
    """Write each picture that there are figures for; -> their paths."""
    here = chosen_machine(records)
    written = []
    for name, picture in PICTURES.items():
        svg = picture([r for r in records if machine_of(r) == here])
        if svg is None:
            continue
        path = directory / f"{name}.svg"
        with whole_file(path) as temporary:
            temporary.write_text(svg, encoding="utf-8")
        written.append(path)
    return written


def _speed_against_length(records: list[Record], kind: str) -> dict[str, list[plot.Point]]:
    """Of each contestant (prompt tokens, tokens/s, lowest, highest)."""
    found = [r for r in records if r["suite"] == "generate"][::-1]
    paths = {path for record in found for path in record["figures"]}
    lengths = sorted({int(first) for path in paths if (first := path.split("/")[0]).isdigit()})
    series = {}
    for name in GENERATORS:
        points = []
        for length in lengths:
            path = f"{length}/{name}/{kind}_tokens_per_second"
            record = next((r for r in found if path in r["figures"]), None)
            if record:
                values = record["figures"][path]
                points.append(
                    plot.Point(length, statistics.median(values), min(values), max(values))
                )
        if points:
            series[name] = points
    return series


def prefill_picture(records: list[Record]) -> str | None:
    series = _speed_against_length(records, "prefill")
    title, x = "Prefill: SmolLM2-135M, tokens/s", "prompt, tokens"
    return plot.lines(title, x, series, log_x=True, log_y=True) if series else None


def decode_picture(records: list[Record]) -> str | None:
    series = _speed_against_length(records, "decode")
    title, x = "Decode: SmolLM2-135M, tokens/s", "position, tokens"
    return plot.lines(title, x, series, log_x=True) if series else None


def encode_picture(records: list[Record]) -> str | None:
    found = [r for r in records if r["suite"] == "encode"][::-1]
    groups = {
        f"{text.capitalize()}, {kind}": {
            name: value
            for name in ENCODERS
            if (value := _value(found, f"{name}/{text}/{kind}")) is not None
        }
        for text in TEXTS
        for kind in ("cold", "warm")
    }
    groups = {name: bars for name, bars in groups.items() if bars}
    return plot.bars("Encode: Qwen3's vocabulary, one thread, MB/s", groups) if groups else None


def train_picture(records: list[Record]) -> str | None:
    """Seconds against size; without the sizes of the full form, of the one corpus."""
    found = [r for r in records if r["suite"] == "train"][::-1]
    series: dict[str, list[plot.Point]] = {}
    for size in TRAIN_SIZES:
        for megabytes in (1, 10, 100):
            ours = _value(found, f"scaling/{megabytes}/{size}/seconds")
            ratio = _value(found, f"scaling/{megabytes}/{size}/ratio")
            if ours is None or ratio is None:
                continue
            for name, value in (("bytepair", ours), ("HF", ours * ratio)):
                point = plot.Point(megabytes, value, value, value)
                series.setdefault(f"{name}, {size:,} ids", []).append(point)
    title, x = "Train: Python source, two processes, seconds", "corpus, MB"
    return plot.lines(title, x, series, log_x=True, log_y=True) if series else None


def history_picture(records: list[Record]) -> str | None:
    """Our main figures over the records, each divided by its first one."""
    series = {}
    for name, (suite, path) in MAIN_FIGURES.items():
        values = [(r, value_of(r, path)) for r in records if r["suite"] == suite]
        values = [(r["figures"][path], value) for r, value in values if value]
        if len(values) < 2:
            continue
        first = values[0][1]
        series[name] = [
            plot.Point(number, value / first, min(rounds) / first, max(rounds) / first)
            for number, (rounds, value) in enumerate(values, start=1)
        ]
    title, x = "Our speed over the records, the first is 1", "record of the suite"
    return plot.lines(title, x, series) if series else None


MAIN_FIGURES = {
    "prefill": ("generate", f"{PROMPT}/bytepair float32/prefill_tokens_per_second"),
    "decode": ("generate", f"{PROMPT}/bytepair float32/decode_tokens_per_second"),
    "encode English, warm": ("encode", "bytepair/english/warm"),
    "encode Python, cold": ("encode", "bytepair/python/cold"),
    "batch of 8": ("batch", "together"),
}

PICTURES: dict[str, Callable[[list[Record]], str | None]] = {
    "prefill": prefill_picture,
    "decode": decode_picture,
    "encode": encode_picture,
    "train": train_picture,
    "history": history_picture,
}
