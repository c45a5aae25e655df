"""command line -> trained tokenizer files: python -m bpe train.

The files are the answer; stdout holds the summary if --json asks for it, stderr everything else.
Blind spot: how anything is counted or learned.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe.formats.whole import STDOUT, check_writable, is_stream

if TYPE_CHECKING:
    from bpe.training.options import Progress, Result

GRACE_SECONDS = 0.7  # after Ctrl-C, to reach a moment when the state is whole
LINE_SECONDS = 10.0  # between two lines of progress where there is no terminal

EPILOG = """
examples:
  python -m bpe train corpus/ --vocab-size 8000 -o tokenizer.json
  python -m bpe train 'books/*.txt.gz' -n 4000,8000,32000 --special-token '<|endoftext|>' -o t.json
  python -m bpe train wiki.jsonl --field text -n 32000 -o t.json     (Ctrl-C; then the same
                                                                      command with --resume)
  python -m bpe train part1/ --count-only -o part1.tsv               (on each machine, then)
  python -m bpe train --from-counts part*.tsv -n 32000 -o t.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.set_defaults(complain=parser.error)
    add = parser.add_argument
    add(
        "corpus",
        nargs="*",
        help="files, directories, 'glob*patterns', pipes or - (stdin); .gz, .zst and "
        ".jsonl are read as such",
    )
    add(
        "-n",
        "--vocab-size",
        type=_sizes,
        metavar="N[,N...]",
        help="ids in the end, bytes and special tokens included; several give several files",
    )
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the tokenizer.json to write, - is stdout; several sizes: FILE-N.json, or {size} in "
        "the name",
    )

    what = parser.add_argument_group("what is learned")
    add = what.add_argument
    add(
        "--special-token",
        action="append",
        default=[],
        metavar="TEXT",
        dest="special_tokens",
        help="a control token; they get the first ids, in this order",
    )
    add(
        "--learn-special-text",
        action="store_true",
        help="learn from special tokens in the corpus, as Hugging Face does; else they are cut out",
    )
    add(
        "--pattern",
        metavar="P",
        help="how text is split: qwen (default), gpt2, gpt4o, llama3 or a regex "
        "as tiktoken has them",
    )
    add("--normalizer", choices=("none", "nfc"), help="default: none")
    add(
        "--min-frequency",
        type=int,
        default=2,
        metavar="N",
        help="of a pair that is merged (default: 2)",
    )
    add(
        "--max-token-length",
        type=int,
        metavar="N",
        help="bytes; with --ties huggingface tokens are shorter than N, but two bytes always merge",
    )
    add(
        "--ties",
        default="huggingface",
        choices=("huggingface", "first-seen"),
        help="of equally frequent pairs merge that with the lowest ids, or the first in the corpus",
    )
    add(
        "--extend",
        metavar="T",
        help="a tokenizer whose ids and merges are kept; learned ones follow",
    )

    reading = parser.add_argument_group("how the corpus is read")
    add = reading.add_argument
    add("--lines", action="store_true", help="each line is a document; else a file is one")
    add(
        "--field",
        default="text",
        metavar="NAME",
        help="of the text in .jsonl lines (default: text)",
    )
    add(
        "--errors",
        default="strict",
        choices=("strict", "replace", "ignore"),
        help="what to do with bytes that are not UTF-8 (default: stop)",
    )
    add("--limit", type=_bytes, metavar="SIZE", help="read this much text, such as 500M")
    add(
        "--held-out",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="do not train on this share (0.05), but measure compression on it",
    )
    add(
        "--from-counts", nargs="+", metavar="FILE", help="tables of pieces and counts, not a corpus"
    )
    add("--count-only", action="store_true", help="write such a table to -o and stop")

    running = parser.add_argument_group("running")
    add = running.add_argument
    add("--workers", type=int, metavar="N", help="processes that count (default: one a core)")
    add(
        "--max-memory",
        type=_bytes,
        metavar="SIZE",
        help="such as 2G; rare pieces are left out if need be, and the summary says so",
    )
    add("--checkpoint", type=Path, metavar="FILE", help="default: the output's name + .checkpoint")
    add(
        "--resume",
        action="store_true",
        help="go on where an interrupted run of this command stopped",
    )
    add(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show how far it is (default: on a terminal)",
    )
    add("--json", action="store_true", help="print a summary as JSON")


def _sizes(text: str) -> list[int]:
    words = text.replace("_", "").split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no number, nor several with commas between")
    return list(dict.fromkeys(map(int, words)))


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 800K, 500M or 1.5G")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))


def check_arguments(options: argparse.Namespace) -> str | None:
    """What is wrong with the arguments taken together, or None."""
    if options.output is None:
        return "-o FILE is missing: where shall the result go?"
    if not options.corpus and not options.from_counts:
        return "there is no corpus: name files or directories, or - for stdin"
    if options.corpus and options.from_counts:
        return "--from-counts goes without a corpus: the tables are the corpus"
    if options.count_only and options.from_counts:
        return "--count-only and --from-counts exclude each other"
    if is_stream(options.output):
        if len(options.vocab_size or ()) > 1:
            return "several sizes need a file each; name one with -o"
        if options.json and str(options.output) in STDOUT:
            return "--json prints to stdout as well; name a file with -o"
    if not options.count_only and not options.vocab_size:
        return "--vocab-size N is missing: how many ids shall there be?"
    return None


def train(options: argparse.Namespace) -> None:
    """Run the command; raises ValueError, OSError or KeyboardInterrupt."""
    from bpe.training.counts import write_counts

    outputs = _outputs(options)
    for path in outputs.values():
        check_writable(path)
    checkpoint = _checkpoint(options)
    if checkpoint:
        check_writable(checkpoint)
    if checkpoint and checkpoint.resolve() in [path.resolve() for path in outputs.values()]:
        raise ValueError(f"{checkpoint} can't be both the output and the checkpoint; name another")
    reporter = Reporter(_shows_progress(options))
    try:
        with _interruptible(reporter):
            corpus, what, how = _job(options, outputs.values())
            how |= {"checkpoint": checkpoint, "resume": options.resume, "progress": reporter}
            if options.resume and checkpoint and not checkpoint.exists():
                say(f"there is no {checkpoint} to resume from, so this begins anew")
            if options.count_only:
                _count(corpus, what, how, lambda counts: write_counts(counts, options.output))
            else:
                _train(corpus, what, how, outputs, options)
    except KeyboardInterrupt:
        reporter.clear()
        if checkpoint and checkpoint.exists():
            say(f"interrupted; the same command with --resume goes on from {checkpoint}")
        else:
            say("interrupted before there was anything to save")
        raise
    if checkpoint:
        checkpoint.unlink(missing_ok=True)


def _checkpoint(options: argparse.Namespace) -> Path | None:
    """Beside the output; a stream has nothing beside it."""
    if options.checkpoint or is_stream(options.output):
        return options.checkpoint
    return options.output.with_name(options.output.name + ".checkpoint")


def _job(options: argparse.Namespace, outputs: Iterable[Path]) -> tuple[Any, Any, dict[str, Any]]:
    """(corpus, trainer.Options, how to run)."""
    from bpe.tokenizer import Tokenizer
    from bpe.training.corpus import find_files
    from bpe.training.counts import read_counts
    from bpe.training.options import split_options

    extend = Tokenizer.from_pretrained(options.extend) if options.extend else None
    what, how = split_options(
        options.vocab_size or (),
        {
            "min_frequency": options.min_frequency, "special_tokens": options.special_tokens,
            "pattern": options.pattern, "normalizer": options.normalizer, "ties": options.ties,
            "max_token_length": options.max_token_length, "lines": options.lines,
            "cut_special_tokens": not options.learn_special_text, "extend": extend,
            "workers": options.workers, "limit": options.limit, "held_out": options.held_out,
            "max_memory": options.max_memory,
        },
    )  # fmt: skip
    files = find_files(
        options.from_counts or options.corpus, field=options.field, errors=options.errors
    )
    files.check_apart(outputs)
    if files.skipped:
        say(f"left out {len(files.skipped)} files that are not text, such as {files.skipped[0]}")
    return read_counts(files) if options.from_counts else files, what, how


def _count(corpus: Any, what: Any, how: dict[str, Any], write: Any) -> None:
    from bpe.training.run import run_counting

    counts = run_counting(corpus, what, how)
    how["progress"].clear()
    if not counts:
        raise ValueError("the corpus holds no text, so there is nothing to count")
    if what.ties == "huggingface":  # else the order of first appearance must stay
        counts = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
    write(counts)
    say(f"counted {sum(counts.values()):,} pieces, {len(counts):,} of them distinct")


def _train(
    corpus: Any, what: Any, how: dict[str, Any], outputs: dict[int, Path], options: Any
) -> None:
    from bpe.training.run import run

    result = run(corpus, what, how)
    how["progress"].clear()
    if not result.summary["pieces"]:
        raise ValueError("the corpus holds no text, so there is nothing to learn from")
    start = time.monotonic()
    for tokenizer, path in zip(result.tokenizers, outputs.values()):
        tokenizer.save(path)
    result.summary["seconds"]["saving"] = time.monotonic() - start
    result.summary["files"] = list(map(str, outputs.values()))
    _report(result, what.min_frequency, outputs)
    if options.json:
        print(json.dumps(result.summary, ensure_ascii=False))


def _report(result: Result, min_frequency: int, outputs: dict[int, Path]) -> None:
    summary = result.summary
    for vocabulary, tokenizer in zip(summary["vocabularies"], result.tokenizers):
        path = outputs[vocabulary["vocab_size"]]
        ratio = vocabulary["bytes_per_token"]
        held = vocabulary["held_out_bytes_per_token"]
        say(
            f"{path}: {tokenizer.vocab_size:,} ids"
            + (f", {ratio:.2f} bytes a token" if ratio else "")
            + (f" ({held:.2f} on what was held out)" if held else "")
        )
        if not vocabulary["complete"]:
            say(
                f"that is less than {vocabulary['vocab_size']:,}: no pair is left that occurs "
                f"{max(min_frequency, 1)} times and may merge"
            )
    if summary["approximate"]:
        say(
            f"approximate: {summary['left_out_pieces']:,} of {summary['distinct_pieces']:,} "
            "distinct pieces, the rarest, were left out to stay within --max-memory"
        )


def _outputs(options: argparse.Namespace) -> dict[int, Path]:
    """Size -> its file."""
    path, sizes = options.output, options.vocab_size or [0]
    if options.count_only:
        return {0: path}
    if "{size}" in path.name:
        return {size: path.with_name(path.name.replace("{size}", str(size))) for size in sizes}
    if len(sizes) == 1:
        return {sizes[0]: path}
    return {size: path.with_name(f"{path.stem}-{size}{path.suffix}") for size in sizes}


# --- progress and interrupts ----------------------------------------------------------------------


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _shows_progress(options: argparse.Namespace) -> bool:
    return sys.stderr.isatty() if options.progress is None else options.progress


class Reporter:
    """Writes progress to stderr; once `stop` is set, it ends the run where that loses nothing."""

    def __init__(self, is_shown: bool) -> None:
        self.stop = False
        self._is_shown, self._is_terminal = is_shown, sys.stderr.isatty()
        self._written = -LINE_SECONDS

    def __call__(self, progress: Progress) -> None:
        if self.stop:
            raise KeyboardInterrupt
        if not self._is_shown:
            return
        if self._is_terminal:
            print(f"\r\x1b[K{describe(progress)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._written >= LINE_SECONDS:
            self._written = time.monotonic()
            say(describe(progress))

    def clear(self) -> None:
        if self._is_shown and self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def describe(progress: Progress) -> str:
    """One line: how much is done, how fast it goes, how long it will take."""
    rate = progress.done / progress.seconds if progress.seconds else 0.0
    if progress.phase == "learning":
        line = f"learning: {progress.done:,} of {progress.total:,} ids, {rate:,.0f}/s"
    else:
        done, speed = f"{progress.done / 1e6:,.1f}", f"{rate / 1e6:.1f} MB/s"
        total = f" of {progress.total / 1e6:,.1f}" if progress.total else ""
        line = f"{progress.phase}: {done}{total} MB, {speed}"
    if progress.total and rate:
        left = max(progress.total - progress.done, 0) / rate
        line += f", {left // 60:.0f}:{left % 60:02.0f} left"
    return line


@contextmanager
def _interruptible(reporter: Reporter) -> Iterator[None]:
    """Ctrl-C asks the reporter to stop; if it isn't called soon, the run is broken off."""

    def interrupt(*_: Any) -> None:
        reporter.stop = True
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def break_off(*_: Any) -> None:
        raise KeyboardInterrupt

    handled = {signal.SIGINT: interrupt}
    if hasattr(signal, "SIGALRM"):
        handled[signal.SIGALRM] = break_off
    try:
        before = {number: signal.signal(number, handler) for number, handler in handled.items()}
    except ValueError:  # not in the main thread, which no signal interrupts then
        before = {}
    try:
        yield
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
