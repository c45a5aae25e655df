"""command line -> one of the commands, ended by signals as Ctrl-C ends it.

    prompt --answer--> answer      chat, batch, trace, glitch --> theirs      bpe, model --> theirs

It is both python -m pipeline and the installed command bytepair. Blind spot: what commands do.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from pipeline.commands.hidden import why_hidden
from pipeline.commands.terminal import (
    flush_or_silence,
    open_missing_streams,
    say,
    say_error,
    silence,
)

FAILED, INTERRUPTED, CLOSED_PIPE = 1, 130, 141  # exit codes
COMMANDS = ("chat", "batch", "trace", "glitch")  # files of pipeline/commands
PACKAGES = ("bpe", "model")  # with commands of their own


def main(arguments: Sequence[str] | None = None, prog: str = "python -m pipeline") -> int:
    """Run a command and return its exit code; SystemExit only for --help and usage errors.

    Nothing heavy is imported before the arguments are known to be good. prog: what was typed.
    """
    open_missing_streams()
    try:
        return _dispatch(sys.argv[1:] if arguments is None else [*arguments], prog)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has enough: stop without a word
        silence(sys.stdout, sys.stderr)
        return CLOSED_PIPE


def _dispatch(arguments: list[str], prog: str) -> int:
    if why := why_hidden():
        say_error(why)
        return FAILED
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in PACKAGES:
        return import_module(f"{name}.__main__").main(rest, prog=f"{prog} {name}")
    if name in COMMANDS:
        command = import_module(f"pipeline.commands.{name}")
        return _run(command.run, command.make_parser(f"{prog} {name}").parse_args(rest))
    from pipeline.commands import answer

    return _run(answer.run, answer.make_parser(prog).parse_args(arguments))


def _run(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    try:
        return command(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        say_error(error)
        flush_or_silence(sys.stdout)
        return FAILED


def bytepair() -> int:
    """The installed command."""
    _end_as_ctrl_c_does()
    return main(prog="bytepair")


def _end_as_ctrl_c_does() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):  # by default no `finally` would run: no clean-up
        if signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


if __name__ == "__main__":
    _end_as_ctrl_c_does()
    sys.exit(main())
