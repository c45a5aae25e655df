"""records of answers as they are done -> a stream or a file, in the order of the prompts.

Those for a file go to OUT.part at once, in whatever order they are done; when all are there they
become OUT. So a run that was interrupted goes on from OUT.part, and OUT is never half a file.

Blind spot: it does not know how answers come about.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.commands.batch_requests import Request, digest

HEADER = b'{"batch": '  # how a file of answers so far begins


class InOrder:
    """Records -> a stream, each as soon as all before it are out. It can't be gone on with."""

    def __init__(self, path: Path | None) -> None:
        """path: a FIFO or device; None or "-" is stdout."""
        from bpe.formats.whole import STDOUT

        is_stdout = path is None or os.fspath(path) in STDOUT
        self._file = sys.stdout if is_stdout else path.open("w")
        self._file.reconfigure(encoding="utf-8")
        self.done: dict[int, str] = {}  # line number -> digest
        self._records: dict[int, dict[str, Any] | None] = {}
        self._numbers: deque[int] = deque()  # of the lines that aren't out

    def begin(self, numbers: list[int]) -> None:
        """The lines that will be put, in their order."""
        self._numbers.extend(numbers)

    def put(self, request: Request, record: dict[str, Any] | None) -> None:
        self._records[request.number] = record
        while self._numbers and self._numbers[0] in self._records:
            self._write_next()

    def finish(self, numbers: list[int]) -> None:
        pass

    def close(self) -> None:
        """Also those that were done when an interruption came before their turn."""
        while self._numbers:
            self._write_next()
        if self._file is not sys.stdout:
            self._file.close()

    def _write_next(self) -> None:
        record = self._records.get(self._numbers[0])
        if record:
            self._file.write(_line(record).decode())
        self._numbers.popleft()  # only now that it is on its way
        self._file.flush()


class Journal:
    """Records -> OUT.part in the order of completion, at the end OUT in the order of the lines."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        """Raises ValueError where OUT.part is of a run with other options, or in use."""
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._file = self._part.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(
                f"another run is writing to {self._part}; wait for it to end, or stop it"
            ) from None
        header = {"batch": digest(json.dumps(_settings(options)).encode())}
        self._records = self._read(header)
        self.done = {number: record["digest"] for number, record in self._records.items()}

    def begin(self, numbers: list[int]) -> None:
        pass

    def put(self, request: Request, record: dict[str, Any] | None) -> None:
        """Write a record so that an interruption doesn't lose it."""
        if record:
            self._records[request.number] = {"digest": request.digest} | record
            self._append(self._records[request.number])

    def finish(self, numbers: list[int]) -> None:
        """Make OUT of the records, in the order of the lines."""
        kept = [self._records[number] for number in numbers if number in self._records]
        records = [{n: v for n, v in record.items() if n != "digest"} for record in kept]
        from bpe.formats.whole import whole_file

        with whole_file(self._path) as temporary:
            temporary.write_bytes(b"".join(map(_line, records)))
        self._part.unlink()

    def close(self) -> None:
        self._file.close()

    def _read(self, header: dict[str, str]) -> dict[int, dict[str, Any]]:
        """The records there; the end of a line that was cut short is dropped from the file."""
        self._file.seek(0)
        content = self._file.read()
        if not (content.startswith(HEADER) or HEADER.startswith(content)):
            raise ValueError(self._foreign())
        whole = content.rpartition(b"\n")
        try:
            found = [json.loads(line) for line in whole[0].split(b"\n") if line]
            records = {record["line"]: record for record in found[1:] if record["digest"]}
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(self._foreign()) from error
        self._file.truncate(len(whole[0]) + len(whole[1]))
        if not found:
            self._append(header)
        elif found[0] != header:
            raise ValueError(
                f"{self._part} was begun by a run with other options; repeat those to go on with "
                "it, or remove it to begin anew"
            )
        return records

    def _foreign(self) -> str:
        return (
            f"{self._part} is damaged, or no file of this command, whose answers so far would be "
            "there; remove it, or pass another file with -o"
        )

    def _append(self, record: Mapping[str, Any]) -> None:
        self._file.write(_line(record))
        self._file.flush()


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Those options that answers depend on."""
    apart = ("prompts", "output", "rows", "quiet", "verbose", "force")
    return {name: value for name, value in sorted(vars(options).items()) if name not in apart}
