"""command line -> ids or text on stdout: python -m bpe encode | decode | count | train.

With lab/cli.py and training/cli.py the only file of bpe that prints. Blind spot: tokenizing itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from bpe.formats.named import GENUINE
from bpe.lab import cli as lab_cli
from bpe.training import cli as train_cli

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

FAILED, USAGE, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141  # exit codes


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(USAGE)


def make_parser(prog: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=prog, description="Text to token ids and back.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    encode = _command(commands, "encode", "print the ids of texts")
    decode = _command(commands, "decode", "print the text of ids")
    count = _command(commands, "count", "count the tokens of texts, as wc counts words")
    for command in (encode, count):
        command.add_argument("text", nargs="*", help="texts; none reads files or stdin")
        command.add_argument(
            "-f", "--file", action="append", default=[], metavar="FILE", help="- is stdin"
        )
        command.add_argument(
            "--allow-special", action="store_true",
            help="let special tokens in the text count as such",
        )  # fmt: skip
    decode.add_argument("ids", nargs="*", help="ids; none reads them from stdin")
    decode.add_argument("--skip-special", action="store_true", help="leave special tokens out")
    lab_cli.add_commands(lambda *about: _command(commands, *about))
    train_help = "learn a vocabulary from a corpus"
    train_cli.add_arguments(
        commands.add_parser("train", help=train_help, description=train_help.capitalize() + ".")
    )
    return parser


def _command(
    commands: argparse._SubParsersAction, name: str, help: str, many: bool = False
) -> _Parser:
    command = commands.add_parser(name, help=help, description=help.capitalize() + ".")
    command.add_argument(
        "-t", "--tokenizer", metavar="T",
        action="append" if many else "store", default=None if many else "qwen3",
        help=f"a file, directory, Hub id or one of {', '.join(GENUINE)} (default: qwen3)",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    return command


def main(arguments: list[str] | None = None, prog: str = "python -m bpe") -> int:
    """Run the command and return its exit code. prog: what was typed."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    options = make_parser(prog).parse_args(arguments)
    if options.command == "train" and (problem := train_cli.check_arguments(options)):
        options.complain(problem)
    commands = {
        "encode": _encode, "decode": _decode, "count": _count, "train": train_cli.train,
    }  # fmt: skip
    try:
        run = commands.get(options.command)
        code = run(options) if run else lab_cli.run(options, load, _texts)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:  # whoever reads our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return FAILED
    except MemoryError:
        print("error: there is not enough memory for this text or vocabulary", file=sys.stderr)
        return FAILED


def _sentence(error: Exception) -> str:
    """What an error says, in one line; the system's own say their file first, and no number."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error)
    return " ".join(text.split())


def load(name: str) -> Tokenizer:
    """The tokenizer that a user names."""
    from bpe.tokenizer import Tokenizer

    return Tokenizer.from_pretrained(name)


def _texts(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(where from, text) for each text: the arguments, then the files; without any, stdin."""
    yield from (("argument", text) for text in options.text)
    files = options.file or ([] if options.text else ["-"])
    for name in files:
        content = _stdin().read() if name == "-" else Path(name).read_bytes()
        try:
            yield name, content.decode("utf-8")
        except UnicodeDecodeError as error:
            where = "stdin" if name == "-" else name
            raise ValueError(f"{where} is not UTF-8 at byte {error.start}") from error


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise ValueError("stdin is closed, so there is nothing to read; pass the text or a file")
    return sys.stdin.buffer


def _encode(options: argparse.Namespace) -> None:
    tokenizer = load(options.tokenizer)
    allowed = "all" if options.allow_special else "none"
    for _, text in _texts(options):
        ids = tokenizer.encode(text, allowed_special=allowed)
        print(json.dumps(ids) if options.json else " ".join(map(str, ids)))


def _decode(options: argparse.Namespace) -> None:
    words = " ".join(options.ids) if options.ids else _stdin().read().decode(errors="replace")
    ids = [_id(word) for word in words.translate(_BETWEEN_IDS).split()]
    text = load(options.tokenizer).decode(ids, skip_special_tokens=options.skip_special)
    if options.json:
        print(json.dumps(text, ensure_ascii=False))
    else:
        sys.stdout.buffer.write(text.encode() + b"\n" * sys.stdout.isatty())


_BETWEEN_IDS = str.maketrans("[],", "   ")  # so that a printed list can be pasted


def _id(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 20):
        raise ValueError(f"{word[:40]!r} is not an id; ids are whole numbers")
    return int(word)


def _count(options: argparse.Namespace) -> None:
    tokenizer = load(options.tokenizer)
    allowed = "all" if options.allow_special else "none"
    counts = [
        {
            "name": name,
            "tokens": len(tokenizer.encode(text, allowed_special=allowed)),
            "characters": len(text),
            "bytes": len(text.encode()),
        }
        for name, text in _texts(options)
    ]
    if options.json:
        print(json.dumps(counts, ensure_ascii=False))
        return
    if len(counts) > 1:
        keys = ("tokens", "characters", "bytes")
        counts.append({"name": "total"} | {key: sum(c[key] for c in counts) for key in keys})
    for c in counts:
        print(f"{c['tokens']:>9} tokens {c['bytes']:>10} bytes  {c['name']}")


if __name__ == "__main__":
    sys.exit(main())
