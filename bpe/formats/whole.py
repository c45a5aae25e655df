"""a path -> another one to write to, whose content takes its place once all is written.

So a file appears whole or not at all, and what stood there before is kept until then. A link stays
a link: what it leads to is replaced. What is no regular file (a FIFO, a device, standard output) is
written to as it is. Blind spot: what is written.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # never replaced: others write there


@contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield the path to write to; nothing is left of it where the block raises.

    "-" is standard output. A file that was there keeps its mode and, as far as we may, its owner.
    """
    if os.fspath(path) in STDOUT:
        with tempfile.TemporaryDirectory(prefix="bytepair-") as folder:
            yield (whole := Path(folder, "stdout"))
            _to_stdout(whole)
        return
    target = Path(os.path.realpath(path))
    if _is_special(target):
        yield target
        return
    temporary = _beside(target)
    try:
        yield temporary
        _keep_mode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | PathLike[str]) -> None:
    """Find out now what would else be found out after the work: OSError says what is wrong."""
    if os.fspath(path) in STDOUT:
        return
    target = Path(os.path.realpath(path))
    if _is_special(target):
        return
    try:
        if target.is_dir():
            raise IsADirectoryError("it is a directory")
        probe = _beside(target)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(
            f"{path} can't be written ({error.strerror or error}), so nothing was read"
        ) from None


def is_stream(path: str | PathLike[str]) -> bool:
    """Whether what is written there is gone: standard output, a FIFO, a device."""
    return os.fspath(path) in STDOUT or _is_special(Path(os.path.realpath(path)))


def _is_special(path: Path) -> bool:
    """Whether there is something at path that is neither a regular file nor a directory."""
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = path.stat().st_mode
        return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return False


def _beside(target: Path) -> Path:
    """A name of this thread's own in the same folder; the target's may be as long as names can."""
    name = target.name.encode()[:100].decode(errors="ignore")
    return target.with_name(f".{name}.{os.getpid()}-{threading.get_ident()}.part")


def _keep_mode(target: Path, temporary: Path) -> None:
    with suppress(FileNotFoundError):
        before = target.stat()
        with suppress(OSError):  # only root may give files away
            os.chown(temporary, before.st_uid, before.st_gid)
        temporary.chmod(stat.S_IMODE(before.st_mode))


def _to_stdout(path: Path) -> None:
    sys.stdout.flush()
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()
