"""command line -> the answer on stdout, everything about the answer on stderr.

The only file that prints. Nothing heavy is imported before the arguments are known to be good.
Blind spot: it does not know how text is made; it asks Engine for chunks.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from pipeline.engine import Chunk, Engine, Statistics
    from pipeline.source import Source

FAILED, USAGE, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141  # exit codes
DTYPES = ("float32", "bfloat16", "float16")
ERASE_LINE = "\x1b[K"  # from the cursor to the line's end


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        _say(f"error: {message} (see python -m pipeline --help)")
        sys.exit(USAGE)


def make_parser() -> argparse.ArgumentParser:
    """The options of python -m pipeline; its errors leave with exit code 2."""
    parser = _Parser(
        prog="python -m pipeline",
        description="Answer or continue a prompt with a local language model.",
        epilog="The answer goes to stdout, progress and statistics to stderr. Where temperature, "
        "top-p and top-k are not given, the model's generation_config.json decides.",
    )
    add = parser.add_argument
    add("prompt", nargs="?", help="what to answer; - or nothing reads it from a pipe")
    add("--model", metavar="MODEL", help="directory, .gguf file or Hub id (default: Qwen3-0.6B)")
    add("--raw", action="store_true", help="continue the text as it stands: no chat template")
    add("--max-tokens", type=_integer(1), default=1024, metavar="N", help="default: 1024")
    add("--temp", type=_number(0), metavar="T", help="temperature; 0 takes the likeliest token")
    add("--top-p", type=_number(0, 1, open_below=True), metavar="P", help="nucleus sampling")
    add("--top-k", type=_integer(0), metavar="K", help="draw from the K likeliest; 0 is all")
    add("--seed", type=_integer(0, 2**64 - 1), metavar="S", help="same seed, same answer")
    add("--dtype", choices=DTYPES, help="of the weights (default: float32 on CPUs, else theirs)")
    add("--verbose", action="store_true", help="say more about the model and the machine")
    return parser


def _number(low: float, high: float = math.inf, *, open_below: bool = False) -> Callable:
    """An argparse type: a finite number within bounds."""
    what = f"a number {'above' if open_below else 'from'} {low:g}"
    what += f" up to {high:g}" if high < math.inf else " up"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        too_low = value <= low if open_below else value < low
        if too_low or not value <= high or math.isinf(value):  # NaN is not <= anything
            raise argparse.ArgumentTypeError(f"it is {text!r}, but must be {what}")
        return value

    return parse


def _integer(low: int, high: float = math.inf) -> Callable:
    """An argparse type: a whole number within bounds."""
    what = f"a whole number from {low} up" + (f" to {high}" if high < math.inf else "")

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"it is {text!r}, but must be {what}")
        return value

    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; SystemExit only for --help and usage errors."""
    _open_missing_streams()
    try:
        return _run(make_parser().parse_args(arguments))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has enough: stop without a word
        _silence(sys.stdout, sys.stderr)
        return CLOSED_PIPE


def _run(options: argparse.Namespace) -> int:
    try:
        prompt = _read_prompt(options.prompt)
        if not prompt.strip():
            _say("error: the prompt is empty; give some text to answer or continue")
            return USAGE
        _generate(prompt, options)
        return 0
    except BrokenPipeError:
        raise
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        _say(f"error: {_one_line(error)}")
        _flush_or_silence(sys.stdout)
        return FAILED


def _generate(prompt: str, options: argparse.Namespace) -> None:
    """Find the model, load it, stream its answer, say what it cost."""
    from pipeline import source

    engine = _load(source.find(options.model, notify=_say), options.dtype)

    from pipeline.engine import Sampling, Statistics

    ids = _encode(engine, prompt, raw=options.raw)
    statistics = Statistics()
    chunks = engine.stream(
        ids,
        max_tokens=options.max_tokens,
        sampling=Sampling(options.temp, options.top_p, options.top_k, seed=options.seed),
        statistics=statistics,
        on_prefill=_prefill_progress(len(ids)),
    )
    if _print_stream(chunks) == "length":
        _say(_why_it_ended(statistics, options.max_tokens))
    _say(_summary(statistics))
    if options.verbose:
        _say(_details(engine))


def _read_prompt(prompt: str | None) -> str:
    """The argument, or what a pipe holds. ValueError if it isn't UTF-8."""
    if prompt not in (None, "-"):
        if not _is_unicode(prompt):
            raise ValueError("the prompt is not UTF-8")
        return prompt
    if prompt is None and sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin is not UTF-8 at byte {error.start}") from error


def _is_unicode(argument: str) -> bool:
    """Python has a lone surrogate for each byte of an argument that isn't UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _load(found: Source, dtype: str | None) -> Engine:
    start = time.perf_counter()
    if sys.stderr.isatty():
        print(f"loading {found.name} ...", end="\r", file=sys.stderr, flush=True)
    from pipeline.engine import Engine

    engine = Engine.load(found.path, dtype=dtype)
    _say(f"{found.name}, loaded in {time.perf_counter() - start:.1f} s")
    return engine


def _encode(engine: Engine, prompt: str, *, raw: bool) -> list[int]:
    if raw:
        return engine.encode_raw(prompt)
    if not engine.has_chat_template:
        _say("this model has no chat template, so the prompt is continued as with --raw")
        return engine.encode_raw(prompt)
    return engine.encode_chat([{"role": "user", "content": prompt}])


def _prefill_progress(num_tokens: int) -> Callable[[int, int], None] | None:
    """A bar for prompts that take more than one pass; none where nobody watches."""
    if num_tokens < 1024 or not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    bar = tqdm(total=num_tokens, unit="tok", desc="reading the prompt", leave=False, mininterval=0)

    def show(done: int, total: int) -> None:
        bar.update(done - bar.n)
        if done == total:
            bar.close()

    return show


def _print_stream(chunks: Iterator[Chunk]) -> str | None:
    """Write each chunk's text as it comes, then a newline; returns the finish_reason."""
    out, reason, text = sys.stdout, None, ""
    out.reconfigure(encoding="utf-8")
    try:
        for chunk in chunks:
            reason = chunk.finish_reason
            if chunk.text:
                text = chunk.text
                out.write(text)
                out.flush()
    finally:  # also after Ctrl-C, so that the shell's prompt begins its own line
        if text and not text.endswith("\n"):
            out.write("\n")
            out.flush()
    return reason


# --- lines about the answer ----------------------------------------------------------------------


def _summary(statistics: Statistics) -> str:
    s = statistics
    return (
        f"prompt {s.num_prompt_tokens} tokens, {s.prefill_tokens_per_second:.1f} tokens/s | "
        f"generated {s.num_generated_tokens} tokens, {s.decode_tokens_per_second:.1f} tokens/s | "
        f"first token after {s.prefill_seconds:.2f} s | peak memory {_peak_gigabytes():.2f} GB"
    )


def _why_it_ended(statistics: Statistics, max_tokens: int) -> str:
    if statistics.num_generated_tokens < max_tokens:
        return "stopped where the model's context ends"
    return f"stopped after {max_tokens} tokens; --max-tokens allows more"


def _peak_gigabytes() -> float:
    """The most memory the process has held so far, the GPU's included where there is one."""
    import mlx.core as mx

    on_gpu = mx.default_device().type != mx.DeviceType.cpu
    return max(_peak_resident_bytes(), mx.get_peak_memory() if on_gpu else 0) / 1e9


def _peak_resident_bytes() -> int:
    """Of this program. Linux's ru_maxrss also counts what its parent held before exec."""
    import resource

    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # no Linux
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _details(engine: Engine) -> str:
    import mlx.core as mx

    from model import blas

    config = engine.model.config
    dtype = str(engine.model.model.embed_tokens.weight.dtype).removeprefix("mlx.core.")
    return (
        f"{config.model_type}, {config.num_hidden_layers} layers, context {config.context} | "
        f"{dtype} on {mx.default_device()} | BLAS: {blas.enable()}"
    )


# --- streams -------------------------------------------------------------------------------------


def _say(line: str) -> None:
    erase = ERASE_LINE if sys.stderr.isatty() else ""  # of what "loading ..." left
    print(erase + line, file=sys.stderr, flush=True)


def _one_line(error: BaseException) -> str:
    """An exception's message as one line; the system's own errors as FILE: REASON."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'reading or writing failed'}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory"
    return " ".join(str(error).split()) or type(error).__name__


def _open_missing_streams() -> None:
    """Python has None for a stream that was closed before it began; take the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _flush_or_silence(stream: TextIO) -> None:
    """A stream that can't take its last text would fail once more, with a traceback, at exit."""
    try:
        stream.flush()
    except OSError:
        _silence(stream)


def _silence(*streams: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream.fileno())
