"""texts -> how often each piece occurs in them, counted by one or more processes.

Training needs no more of a corpus than this table, so counting is a map-reduce: each process counts
the texts that it is given, and the tables are added up. Pieces stand in the order in which they
first appear, however many processes there were. Blind spot: it does not know where texts come from
(corpus.py), nor what is learned from the counts (learn.py).
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from bpe.encoding.processes import Process, receive, send, stop
from bpe.formats.whole import whole_file
from bpe.training import spill
from bpe.training.corpus import Chunk, Files
from bpe.training.opening import opened
from bpe.training.splitting import Cutting, Splitter

SMALL_CORPUS = 1 << 17  # bytes; below this, starting a process takes longer than it saves


class PieceCounter:
    """Counts pieces; marks remember with which chunk each piece came first.

    When a share of memory is given, a table that outgrows it becomes a run in folder (spill.py).
    """

    def __init__(
        self, cutting: Cutting, share: int | None = None, folder: Path | None = None
    ) -> None:
        self.splitter = Splitter(cutting)
        self.counts: Counter[str] = Counter()
        self.marks: list[tuple[int, int]] = []  # number of a chunk, distinct pieces after it
        self._share, self._folder = share, folder
        self._runs: list[Path] = []

    def add(
        self, number: int, texts: Iterable[str], between: Callable[[], object] = lambda: None
    ) -> None:
        """Count the pieces of a chunk's texts. between is called every few milliseconds."""
        update = self.counts.update
        for text in texts:
            for pieces in self.splitter.pieces(text):
                update(pieces)
                between()
        self.counts.pop("", None)
        self.marks.append((number, len(self.counts)))
        if self._share is not None and spill.table_bytes(self.counts) > self._share:
            self._spill()

    def take(self) -> Table:
        """What was counted so far; then begin again at nothing."""
        table = Table(list(self.counts), list(self.counts.values()), self.marks)
        self.counts, self.marks = Counter(), []
        return table

    def flush(self) -> list[Path]:
        """What was counted since the last flush, as runs."""
        self._spill()
        runs, self._runs = self._runs, []
        return runs

    def _spill(self) -> None:
        if self.counts:
            handle, name = tempfile.mkstemp(suffix=".run", dir=self._folder)
            os.close(handle)
            spill.write_run(self.counts, Path(name))
            self._runs.append(Path(name))
            self.counts, self.marks = Counter(), []


@dataclass
class Table:
    """Pieces and their counts, in order of first appearance; marks as in PieceCounter."""

    pieces: list[str]
    counts: list[int]
    marks: list[tuple[int, int]]

    def as_counter(self) -> Counter[str]:
        return Counter(dict(zip(self.pieces, self.counts)))

    def packed(self) -> tuple[bytes, array, list[tuple[int, int]]]:
        """For a pipe: the pieces in UTF-8, which never holds a byte FF, so that it can separate."""
        joined = b"\xff".join([piece.encode() for piece in self.pieces])
        return joined, array("Q", self.counts), self.marks

    @classmethod
    def unpacked(cls, packed: tuple[bytes, array, list[tuple[int, int]]]) -> Table:
        joined, counts, marks = packed
        pieces = [piece.decode() for piece in joined.split(b"\xff")] if counts else []
        return cls(pieces, counts.tolist(), marks)


def add_up(tables: list[Table], counts: Counter[str], *, in_order: bool = False) -> None:
    """Add tables to counts; in_order: new pieces come in the order of their first chunk."""
    if in_order:
        for piece in _by_first_chunk(tables):
            counts.setdefault(piece, 0)
    for table in tables:
        if counts:
            for piece, count in zip(table.pieces, table.counts):
                counts[piece] += count
        else:
            counts.update(dict(zip(table.pieces, table.counts)))


def _by_first_chunk(tables: list[Table]) -> Iterator[str]:
    spans = []
    for table in tables:
        ends = [end for _, end in table.marks]
        for (number, end), start in zip(table.marks, [0, *ends]):
            spans.append((number, table.pieces, start, end))
    for _, pieces, start, end in sorted(spans, key=itemgetter(0)):
        yield from islice(pieces, start, end)


class Helper:
    """Another process that counts. Sending never waits: what the pipe can't take is sent later."""

    def __init__(self, *settings: Any) -> None:
        """settings: what PieceCounter takes."""
        # In a session of its own: Ctrl-C is for the caller; we end with our input
        self._process = Process("bpe.training.counts", start_new_session=True)
        self.close = weakref.finalize(self, stop, [self._process])
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)
        self._unsent = memoryview(b"")
        self.send(settings)

    def send(self, message: Any) -> None:
        """Queue a message; call push until it is gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._unsent = memoryview(bytes(self._unsent) + len(data).to_bytes(8, "little") + data)
        self.push()

    def push(self) -> bool:
        """Write what the pipe takes now; True if nothing is left."""
        try:
            while self._unsent:
                num_written = self._pipe.write(self._unsent)
                if num_written is None:  # the pipe is full
                    return False
                self._unsent = self._unsent[num_written:]
        except BrokenPipeError as error:
            raise RuntimeError("a counting process ended unexpectedly") from error
        except ValueError as error:  # it is closed
            raise RuntimeError("training can't go on in a fork of its process") from error
        return True

    def take(self) -> Table:
        """Wait for what it has counted; it then begins again at nothing."""
        return Table.unpacked(self._ask("take"))

    def flush(self) -> list[Path]:
        """Wait for what it has counted since the last flush, as runs."""
        return self._ask("flush")

    def _ask(self, request: str) -> Any:
        self.send(request)
        os.set_blocking(self._pipe.fileno(), True)
        self.push()
        try:
            answer = receive(self._process.stdout)
        except (OSError, EOFError) as error:
            raise RuntimeError("a counting process ended unexpectedly") from error
        os.set_blocking(self._pipe.fileno(), False)
        return answer


def serve() -> None:
    """The helper: read its settings, then chunks to count, and requests for what it has."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may be written between the answers
    try:
        counter = PieceCounter(*receive(requests))
        while True:
            message = receive(requests)
            if message == "take":
                send(answers, counter.take().packed())
            elif message == "flush":
                send(answers, counter.flush())
            else:
                counter.add(*message)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the caller is gone, or stops


class Counting:
    """Counts chunks with this process and num_workers - 1 helpers, which start when it is worth it.

    in_order: pieces shall come in the order in which they first appear. share, folder: how much
    memory each process may use, and where it puts what is more.
    """

    def __init__(
        self,
        cutting: Cutting,
        num_workers: int,
        *,
        in_order: bool = False,
        share: int | None = None,
        folder: Path | None = None,
        small_corpus: int = SMALL_CORPUS,
    ) -> None:
        self._settings = (cutting, share, folder)
        self._num_workers, self._small_corpus = num_workers, small_corpus
        self._in_order = in_order
        self._own = PieceCounter(*self._settings)
        self._helpers: list[Helper] = []
        self._number = self._num_bytes = 0
        self.table: Counter[str] = Counter()  # what has been counted up to the last add_up
        self.runs: list[Path] = []  # ... or to the last flush

    @property
    def last_cut(self) -> Callable[[str, int], int]:
        return self._own.splitter.last_cut

    def add(self, chunk: Chunk) -> None:
        self._number += 1
        self._num_bytes += chunk.num_bytes
        if self._num_bytes > self._small_corpus and not self._helpers:
            self._helpers = [Helper(*self._settings) for _ in range(self._num_workers - 1)]
        for helper in self._helpers:
            if helper.push():
                helper.send((self._number, chunk.texts))
                return
        self._own.add(self._number, chunk.texts, self._push)

    def _push(self) -> None:
        for helper in self._helpers:
            helper.push()

    def add_up(self) -> Counter[str]:
        """The counts of all chunks so far. More chunks may follow."""
        tables = [self._own.take(), *(helper.take() for helper in self._helpers)]
        add_up(tables, self.table, in_order=self._in_order)
        return self.table

    def flush(self) -> list[Path]:
        """The same as runs in the folder, for when the counts may not fit in memory."""
        for process in (self._own, *self._helpers):
            self.runs += process.flush()
        return self.runs

    def close(self) -> None:
        for helper in self._helpers:
            helper.close()


# --- tables in files -----------------------------------------------------------------------------


def write_counts(counts: Mapping[str, int], path: Path) -> None:
    """Write a table: the line "piece<TAB>count", then one line a piece, as JSON, and its count."""
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write("piece\tcount\n")
        for piece, count in counts.items():
            file.write(f"{json.dumps(piece, ensure_ascii=False)}\t{count}\n")


def read_counts(tables: Files) -> Counter[str]:
    """Add up tables: those of write_counts, or .jsonl with "piece" and "count" in each line.

    Both may be compressed (.gz, .zst). ValueError names the first line that is neither.
    """
    counts: Counter[str] = Counter()
    for table in tables.sources:
        read = _read_entry if table.has_documents else _read_row
        with opened(table.path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip() or (number == 1 and line.rstrip() == b"piece\tcount"):
                    continue
                try:
                    piece, count = read(line.decode())
                    piece.encode()
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise ValueError(
                        f"{table.name}, line {number} is not a piece in JSON and its count: "
                        f"{error!r}"
                    ) from None
                counts[piece] += count
    counts.pop("", None)
    return counts


def _read_row(line: str) -> tuple[str, int]:
    piece, count = line.rsplit("\t", 1)
    return json.loads(piece), _count(int(count))


def _read_entry(line: str) -> tuple[str, int]:
    entry = json.loads(line)
    return entry["piece"], _count(entry["count"])


def _count(count: Any) -> int:
    if type(count) is not int or count < 1:
        raise ValueError(f"{count!r} is not a count")
    return count
