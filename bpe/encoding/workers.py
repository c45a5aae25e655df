"""many texts -> the ids of each, in order, by several processes.

Each worker is a fresh interpreter that reads pickled requests from its standard input and writes
answers to its standard output. So it needs no fork (which breaks programs with threads), does not
run the caller's main module again, and ends by itself when the caller is gone: its input is then at
its end. Blind spot: how one text is encoded.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from queue import SimpleQueue
from typing import Any, BinaryIO

CHUNK_CHARACTERS = 1 << 18  # of text in one request: some hundredths of a second of work
SMALL_BATCH_CHARACTERS = 1 << 20  # below this, starting processes takes longer than it saves

_SERVE = "import sys; sys.path[:] = {path!r}; from bpe.encoding.workers import serve; serve()"


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that each hold a copy of one tokenizer; they live as long as this object."""

    def __init__(self, num_workers: int, spec: Any, unicode: str) -> None:
        hello = pickle.dumps((spec, unicode), protocol=pickle.HIGHEST_PROTOCOL)
        self.processes = [_start(hello) for _ in range(num_workers)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self.processes:
            self._idle.put(process)
        self.close = weakref.finalize(self, _stop, self.processes)

    def encode(self, texts: Sequence[str], options: dict[str, Any]) -> list[list[int]]:
        """The ids of each text. What encode raises for a text is raised here."""
        with ThreadPoolExecutor(len(self.processes)) as threads:
            answers = threads.map(lambda chunk: self._ask(chunk, options), chunks_of(texts))
            return [ids for answer in answers for ids in answer]

    def _ask(self, texts: list[str], options: dict[str, Any]) -> list[list[int]]:
        process = self._idle.get()
        try:
            _send(process.stdin, (texts, options))
            answer = _receive(process.stdout)
        except (OSError, EOFError) as error:
            raise RuntimeError("an encoding process ended unexpectedly") from error
        finally:
            self._idle.put(process)
        if isinstance(answer, Exception):
            raise answer
        lengths, flat = answer
        ends = list(accumulate(lengths, initial=0))
        return [flat[start:end].tolist() for start, end in zip(ends, ends[1:])]


def chunks_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """texts in lists of about CHUNK_CHARACTERS; a longer text is alone."""
    chunk: list[str] = []
    length = 0
    for text in texts:
        chunk.append(text)
        length += len(text) + 1 if isinstance(text, str) else 1
        if length >= CHUNK_CHARACTERS:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def serve() -> None:
    """The worker: read a tokenizer, then texts, until the input ends."""
    from bpe.tokenizer import Tokenizer

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may be written between the answers
    try:
        spec, unicode = _receive(requests)
        tokenizer = Tokenizer(spec, unicode=unicode)
        while True:
            texts, options = _receive(requests)
            try:
                ids = [tokenizer.encode(text, **options) for text in texts]
                answer: Any = [len(one) for one in ids], array("I", chain.from_iterable(ids))
            except (TypeError, ValueError) as error:
                answer = error
            _send(answers, answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the caller is gone, or stops


def _start(hello: bytes) -> subprocess.Popen[bytes]:
    path = [os.path.abspath(folder) for folder in sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE.format(path=path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdin.write(len(hello).to_bytes(8, "little") + hello)
    process.stdin.flush()
    return process


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what it still buffers is for nobody
            process.stdin.close()


def _send(pipe: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> Any:
    """The next message. Only our own processes are at the other end, so unpickling is safe."""
    length = int.from_bytes(_read_exactly(pipe, 8), "little")
    return pickle.loads(_read_exactly(pipe, length))


def _read_exactly(pipe: BinaryIO, num_bytes: int) -> bytes:
    data = pipe.read(num_bytes)
    if len(data) < num_bytes:
        raise EOFError
    return data
