"""a block of work -> the same, without the search for garbage.

For work that makes very many objects and keeps them all: looking for cycles among them is in vain,
and its time grows with their number. Blind spot: what the work is.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause the cycle collector, unless it was off already."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
