"""a module that has a function serve -> a process that runs it, and messages to and from it.

Each process is a fresh interpreter that reads pickled messages from its standard input and writes
answers to its standard output. So it needs no fork (which breaks programs with threads), does not
run the caller's main module again, and ends by itself when its owner is gone: its input is then at
its end. A process that its owner forks is not the owner: it closes its copies of the pipes at once,
or they would keep the input from ending. Blind spot: what the messages say.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any, BinaryIO

_SERVE = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"

_lock = threading.RLock()  # a fork waits for it, so that it finds each process in _started
_started: weakref.WeakSet[Process] = weakref.WeakSet()


class Process(subprocess.Popen[bytes]):
    """A fresh interpreter that runs module.serve(). Its pipes have no buffers: a fork copies none.

    Whoever starts it hands it to stop when it is done.
    """

    def __init__(self, module: str, **options: Any) -> None:
        """options: what Popen takes."""
        path = [os.path.abspath(folder) for folder in sys.path]
        code = _SERVE.format(path=path, module=module)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        with _lock:
            super().__init__([sys.executable, "-c", code], **pipes, **options)
            self.owner = os.getpid()
            _started.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether this process started it, and was not forked from the one that did."""
        return self.owner == os.getpid()


def stop(processes: Iterable[Process]) -> None:
    """End those that this process started."""
    for process in processes:
        if process.is_ours:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stdin.close()


def _leave_to_owner() -> None:
    """Here, in a forked process, close the pipes of the one it was forked from."""
    try:
        for process in _started:
            process.returncode = process.returncode or 0  # no child of ours: don't wait for it
            process.stdout.close()
            process.stdin.close()
        _started.clear()
    finally:
        _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_leave_to_owner
    )


def send(pipe: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    send_pickled(pipe, data)


def send_pickled(pipe: BinaryIO, data: bytes) -> None:
    """The same with what is pickled already."""
    for part in (len(data).to_bytes(8, "little"), data):
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[pipe.write(unsent) :]
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """The next message. Only our own processes are at the other end, so unpickling is safe."""
    length = int.from_bytes(_read_exactly(pipe, 8), "little")
    return pickle.loads(_read_exactly(pipe, length))


def _read_exactly(pipe: BinaryIO, num_bytes: int) -> bytearray:
    data = bytearray(num_bytes)
    missing = memoryview(data)
    while missing:
        num_read = pipe.readinto(missing)
        if not num_read:
            raise EOFError
        missing = missing[num_read:]
    return data
