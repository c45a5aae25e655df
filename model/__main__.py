"""command line -> files and figures: python -m model info | quantize | convert.

The only file of model that prints: results on stdout, progress and errors on stderr. Blind spot:
how any of it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from model.weights.convert import Written
    from model.weights.info import Info

FAILED, USAGE, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141  # exit codes
DTYPES = ("float32", "bfloat16", "float16")
MODES = ("affine", "mxfp4", "nvfp4", "mxfp8")


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(USAGE)


def make_parser(prog: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=prog, description="Look at models and convert their files.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser(
        "info",
        help="say what a model is and what running it takes",
        description="Say what a model is and what running it takes, from headers alone.",
    )
    info.add_argument(
        "path", type=_name, metavar="PATH", help="a directory, .gguf or .safetensors file"
    )
    info.add_argument(
        "--context", type=_positive, metavar="N", help="positions to count memory for"
    )
    info.add_argument("--dtype", choices=DTYPES, help="to load as (default: as load chooses)")
    info.add_argument("--json", action="store_true", help="print JSON, all sizes in bytes")
    quantize = _writer(commands, "quantize", "write a quantized copy, for mlx-lm as well")
    quantize.add_argument(
        "--bits", type=_positive, metavar="B", help="of a weight (default: 4; 8 in mxfp8)"
    )
    quantize.add_argument(
        "--group-size",
        type=_positive,
        metavar="G",
        help="weights that share a scale (default: 64; 16 in nvfp4, 32 in mxfp4 and mxfp8)",
    )
    quantize.add_argument("--mode", choices=MODES, default="affine", help="default: affine")
    _writer(commands, "convert", "write PyTorch, Meta or .npz weights as safetensors")
    return parser


def _writer(commands: argparse._SubParsersAction, name: str, help: str) -> _Parser:
    command = commands.add_parser(name, help=help, description=help.capitalize() + ".")
    command.add_argument(
        "source", type=_name, metavar="SRC", help="a model's directory or its weights file"
    )
    command.add_argument("folder", type=_name, metavar="DST", help="the directory to write")
    command.add_argument("--dtype", choices=DTYPES, help="of float weights (default: as they are)")
    command.add_argument(
        "--force", action="store_true", help="replace a model in DST; go on with too little memory"
    )
    return command


def _name(text: str) -> str:
    if not text:  # an unset shell variable, which Python would take for the current directory
        raise argparse.ArgumentTypeError("it is empty, but must name a file or directory")
    return text


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"it is {text!r}, but must be a whole number above 0")
    return int(text)


def main(arguments: list[str] | None = None, prog: str = "python -m model") -> int:
    """Run the command and return its exit code. prog: what was typed."""
    options = make_parser(prog).parse_args(arguments)
    try:
        {"info": _info, "quantize": _quantize, "convert": _convert}[options.command](options)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # whoever reads our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        _say("interrupted; nothing was written")
        return INTERRUPTED
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        _say(f"error: {_one_line(error)}")
        return FAILED


def _one_line(error: BaseException) -> str:
    """An exception's message as one line; the system's own errors as FILE: REASON."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'reading or writing failed'}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _say(line: str) -> None:
    erase = "\r\x1b[K" if sys.stderr.isatty() else ""  # of the last progress line
    print(erase + line, file=sys.stderr, flush=True)


# --- info ----------------------------------------------------------------------------------------


def _info(options: argparse.Namespace) -> None:
    from model.weights.info import inspect

    found = inspect(options.path, context=options.context, dtype=options.dtype)
    if options.json:
        print(json.dumps(found.as_dict(), indent=2))
        return
    for name, text in _lines(found):
        print(f"{name:<14} {text}")


def _lines(found: Info) -> Iterator[tuple[str, str]]:
    from model.weights.memory import gigabytes

    stored = ", ".join(f"{name} {gigabytes(size)}" for name, size in found.formats.items())
    yield "path", found.path
    yield "architecture", found.architecture or "not described"
    yield "parameters", f"{found.parameters:,}"
    yield "files", f"{gigabytes(found.file_bytes)}, {found.format} ({stored})"
    yield "bits a weight", f"{found.bits_per_weight:.2f}"
    if found.quantization:
        yield "quantization", found.quantization
    if found.layers is None:
        return
    yield "layers", f"{found.layers}, width {found.hidden_size}, vocabulary {found.vocab_size:,}"
    yield "attention", f"{found.heads} heads of {found.head_dim}, {found.kv_heads} for keys"
    if found.experts:
        yield "experts", found.experts
    if found.sliding_window:
        yield "window", f"{found.sliding_window:,} positions"
    yield "context", f"{found.max_context:,} positions"
    yield "KV cache", f"{found.kv_bytes_per_token:,} bytes a token in {found.dtype}"
    yield (
        "memory",
        (
            f"{gigabytes(found.needed_bytes)} for a context of {found.context:,}: weights in"
            f" {found.dtype} {gigabytes(found.weight_bytes)}, KV cache {gigabytes(found.kv_bytes)}"
        ),
    )
    yield "this machine", _verdict(found)


def _verdict(found: Info) -> str:
    from model.weights.memory import gigabytes

    if found.available_bytes is None:
        return "its free memory is unknown"
    there = f"{gigabytes(found.available_bytes)} available"
    return f"it fits ({there})" if found.fits else f"it does NOT fit ({there})"


# --- quantize and convert ------------------------------------------------------------------------


def _quantize(options: argparse.Namespace) -> None:
    from model.weights.convert import quantize

    chosen = {"bits": options.bits, "group_size": options.group_size, "mode": options.mode}
    _print_written(_write(quantize, options, **chosen))


def _convert(options: argparse.Namespace) -> None:
    from model.weights.convert import convert

    _print_written(_write(convert, options))


def _write(run: Callable[..., Written], options: argparse.Namespace, **chosen: object) -> Written:
    def show(name: str) -> None:
        print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)

    report = {"report": show} if sys.stderr.isatty() else {}
    try:
        return run(
            options.source,
            options.folder,
            dtype=options.dtype,
            force=options.force,
            **report,
            **chosen,
        )
    finally:
        if report:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print_written(written: Written) -> None:
    from model.weights.memory import gigabytes

    size, before = gigabytes(written.num_bytes), gigabytes(written.num_bytes_before)
    bits = f"{written.bits_per_weight:.2f} bits a weight"
    print(f"{written.folder}: {size} of weights (from {before}), {bits}")


if __name__ == "__main__":
    sys.exit(main())
