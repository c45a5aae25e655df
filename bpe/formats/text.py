"""a path -> its text; or, in one sentence, what is wrong with the file or what it is instead.

Blind spot: what the text means.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

LONGEST_MESSAGE = 800  # characters; files hold tokens of any length, and messages show them

_OTHER_FILES = (  # what a file begins with -> what it then is
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, not the file itself; run `git lfs pull` in its directory",
    ),
    (b"\xff\xfe", "not UTF-8 but UTF-16; save it as plain UTF-8"),
    (b"\xfe\xff", "not UTF-8 but UTF-16; save it as plain UTF-8"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
)


@contextmanager
def errors_of(path: str | PathLike[str]) -> Iterator[None]:
    """Inside, a ValueError says which file it is about, and is not as long as what it shows."""
    try:
        yield
    except ValueError as error:
        message = f"{path}: {error}"
        whole = error if len(message) <= LONGEST_MESSAGE else None  # else a traceback shows it all
        raise ValueError(shortened(message)) from whole


def shortened(text: str, length: int = LONGEST_MESSAGE) -> str:
    """text without its middle where it is too long: the ends of a sentence say what it is about.

    >>> shortened("the token 'aaaaaaaaaaaaaaaaaaaaaaaaaaa' is empty", 30)
    "the token 'aaaa ... ' is empty"
    """
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 5]} ... {text[len(text) - end :]}"


def read_bytes(path: Path, num_bytes: int = -1) -> bytes:
    """What a file begins with, or all of it; ValueError where it is of another kind."""
    with path.open("rb") as file:
        data = file.read(num_bytes)
    if found := next((kind for start, kind in _OTHER_FILES if data.startswith(start)), None):
        raise ValueError(f"it is {found}")
    return data


def read_text(path: Path) -> str:
    """A file's text. ValueError names a file that has none, as it is often one beside another."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 at byte {error.start}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
