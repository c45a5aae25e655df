"""a path -> why no file can be put there, before any work is done for it.

Blind spot: writing, which bpe's whole files do.
"""

from __future__ import annotations

from pathlib import Path


def why_no_file(path: Path) -> str | None:
    """What is wrong with a place for a file, if it is plain before anything is done."""
    if path.is_dir():
        return f"{path} is a directory; name a file"
    if not path.parent.is_dir():
        return f"{path.parent} is no directory, so {path.name} can't be put there"
    return None
