"""a path -> another one to write to, whose content takes its place once all is written.

So a file appears whole or not at all, and what stood there before is kept until then. A link stays
a link: what it leads to is replaced. What is no regular file (a FIFO, a device, standard output)
gets the content at the end. Blind spot: what is written.
"""

import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OPEN = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")  # others write there as well


@contextmanager
def whole_file(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield the path to write to, which ends in suffix; nothing is left of it if the block raises.

    A file that was there keeps its mode and, as far as we may, its owner. Raises OSError where
    `path` can't be a file.
    """
    if _is_special(path):
        with tempfile.TemporaryDirectory(prefix="bytepair-") as folder:
            yield (whole := Path(folder, f"whole{suffix}"))
            with whole.open("rb") as content, path.open("wb") as place:
                shutil.copyfileobj(content, place)
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target.parent} is no directory, so {target.name} can't be saved in it"
        )
    # A name of this thread's own; the target's may be as long as names can be.
    name = target.name.encode()[:100].decode(errors="ignore")
    own = target.with_name(f".{name}.{os.getpid()}-{threading.get_ident()}{suffix}")
    try:
        yield own
        _keep_mode(target, own)
        own.replace(target)
    finally:
        own.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether there is something at path that is neither a regular file nor a directory."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or str(path).startswith(_OPEN)
    return False


def _keep_mode(target: Path, own: Path) -> None:
    with suppress(FileNotFoundError):
        before = target.stat()
        with suppress(OSError):  # only root may give files away
            os.chown(own, before.st_uid, before.st_gid)
        own.chmod(stat.S_IMODE(before.st_mode))
