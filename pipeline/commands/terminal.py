"""lines and chunks -> stdout for answers, stderr for all else, each as the stream can take it.

Blind spot: it does not know what the lines say.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pipeline.chunks import Chunk

ERASE_LINE = "\x1b[K"  # from the cursor to the line's end
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def say(line: str) -> None:
    """A line on stderr, over what "loading ..." may have left there."""
    erase = ERASE_LINE if sys.stderr.isatty() else ""
    print(erase + line, file=sys.stderr, flush=True)


def say_error(error: BaseException | str) -> None:
    """The error as one line."""
    say(f"error: {error if isinstance(error, str) else one_line(error)}")


def one_line(error: BaseException) -> str:
    """An exception's message as one line; the system's own errors as FILE: REASON."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'reading or writing failed'}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory"
    return " ".join(str(error).split()) or type(error).__name__


def takes_styles(stream: TextIO) -> bool:
    """Whether to dim text there: a terminal that can, and no NO_COLOR (no-color.org)."""
    able = stream.isatty() and os.environ.get("TERM") != "dumb"
    return able and not os.environ.get("NO_COLOR")


class AnswerPrinter:
    """Chunks -> text on stdout and reasoning, dimmed, on stderr; each ends with a line break."""

    def __init__(self, *, show_reasoning: bool = True) -> None:
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        self._show_reasoning = show_reasoning
        self._last = ""  # what was written last
        self._is_reasoning = False

    def show(self, chunk: Chunk) -> None:
        """Write what a chunk brings, at once."""
        if chunk.reasoning and self._show_reasoning:
            self._begin_reasoning()
            self._write(sys.stderr, chunk.reasoning)
        if chunk.text:
            self._end_reasoning()
            self._write(sys.stdout, chunk.text)

    def close(self) -> None:
        """End the line, so that the shell's prompt begins its own."""
        self._end_reasoning()
        if self._last and not self._last.endswith("\n"):
            self._write(sys.stdout, "\n")

    def _begin_reasoning(self) -> None:
        if not self._is_reasoning and takes_styles(sys.stderr):
            self._write(sys.stderr, DIM)
        self._is_reasoning = True

    def _end_reasoning(self) -> None:
        if self._is_reasoning:
            self._write(sys.stderr, (PLAIN if takes_styles(sys.stderr) else "") + "\n")
        self._is_reasoning = False

    def _write(self, stream: TextIO, text: str) -> None:
        self._last = text
        stream.write(text)
        stream.flush()


def prefill_progress(num_tokens: int) -> Callable[[int, int], None] | None:
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


# --- streams that are missing or fail ------------------------------------------------------------


def open_missing_streams() -> None:
    """Python has None for a stream that was closed before it began; take the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def flush_or_silence(stream: TextIO) -> None:
    """A stream that can't take its last text would fail once more, with a traceback, at exit."""
    try:
        stream.flush()
    except OSError:
        silence(stream)


def silence(*streams: TextIO) -> None:
    """Let what is still to be written go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream.fileno())
