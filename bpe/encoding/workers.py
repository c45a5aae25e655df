"""many texts -> the ids of each, in order, by several processes.

Blind spot: how one text is encoded, and how processes are started and end (processes.py).
"""

from __future__ import annotations

import os
import pickle
import sys
import weakref
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from queue import SimpleQueue
from typing import Any

from bpe.encoding.processes import Process, receive, send, send_pickled, stop

CHUNK_CHARACTERS = 1 << 18  # of text in one request: some hundredths of a second of work
SMALL_BATCH_CHARACTERS = 1 << 20  # below this, starting processes takes longer than it saves


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that each hold a copy of one tokenizer; they live as long as this object."""

    def __init__(self, num_workers: int, tokenizer: Any) -> None:
        """tokenizer: what has an encode, and can be pickled."""
        hello = pickle.dumps(tokenizer, protocol=pickle.HIGHEST_PROTOCOL)
        self.processes = [Process("bpe.encoding.workers") for _ in range(num_workers)]
        self.close = weakref.finalize(self, stop, self.processes)
        self._idle: SimpleQueue[Process] = SimpleQueue()
        for process in self.processes:
            send_pickled(process.stdin, hello)
            self._idle.put(process)

    def are_ours(self, num_workers: int) -> bool:
        """Whether they are so many, and this process is not a fork of the one that has them."""
        return len(self.processes) == num_workers and self.processes[0].is_ours

    def encode(self, texts: Sequence[str], options: dict[str, Any]) -> list[list[int]]:
        """The ids of each text. What encode raises for a text is raised here."""
        with ThreadPoolExecutor(len(self.processes)) as threads:
            answers = threads.map(lambda chunk: self._ask(chunk, options), chunks_of(texts))
            return [ids for answer in answers for ids in answer]

    def _ask(self, texts: list[str], options: dict[str, Any]) -> list[list[int]]:
        process = self._idle.get()
        try:
            send(process.stdin, (texts, options))
            answer = receive(process.stdout)
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
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may be written between the answers
    try:
        tokenizer = receive(requests)
        while True:
            texts, options = receive(requests)
            try:
                ids = [tokenizer.encode(text, **options) for text in texts]
                answer: Any = [len(one) for one in ids], array("I", chain.from_iterable(ids))
            except (TypeError, ValueError) as error:
                answer = error
            send(answers, answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the caller is gone, or stops
