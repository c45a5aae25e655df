"""a path -> a temporary one beside it, which takes its place once all is written.

So a file appears whole or not at all, and what stood there before is kept until then. Blind spot:
what is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path to write to; nothing is left of it where the block raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
