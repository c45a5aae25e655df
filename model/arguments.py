"""what callers pass -> ids, numbers and functions, or one sentence about what was passed instead.

Python's own words for a text in the place of ids, or "8" in that of 8, name neither argument nor
way out, and come late. Blind spot: which values make sense is known where they are used.
"""

import os
from collections.abc import Callable, Iterable
from numbers import Real
from operator import index
from pathlib import Path
from reprlib import repr as shortened
from typing import Any


def shown(value: object) -> str:
    """A value in a few characters, on one line.

    >>> shown("8"), shown([1] * 100)
    ("'8'", '[1, 1, 1, 1, 1, 1, ...]')
    """
    return " ".join(shortened(value).split())


def id_list(ids: Iterable[int], name: str = "the prompt") -> list[int]:
    """The ids as a list. Raises TypeError for a text, and for what is no whole number in it."""
    hint = "ids, which are whole numbers; a tokenizer's encode() makes them of a text"
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise TypeError(f"{name} must be a list of {hint}; got {shown(ids)}")
    ids = list(ids)
    try:
        return [index(one) for one in ids]
    except (TypeError, ValueError):  # ValueError: an mx.array of several
        where, bad = next((i, one) for i, one in enumerate(ids) if not _is_whole(one))
        raise TypeError(f"{name} must hold {hint}; got {shown(bad)} at index {where}") from None


def whole_number(name: str, value: Any) -> int:
    """Raises TypeError for anything else, such as "8", 8.0 and True."""
    if isinstance(value, bool) or not _is_whole(value):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    return index(value)


def number(name: str, value: Any) -> float:
    """Raises TypeError for anything else, such as "0.5" and True."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    return value


def functions(name: str, values: Iterable[Callable]) -> list[Callable]:
    """The functions as a list. Raises TypeError for a single one, and for what is none."""
    made = list(values) if isinstance(values, Iterable) else [None]
    if not all(map(callable, made)):
        raise TypeError(f"{name} must be a list of functions, see make_{name}; got {shown(values)}")
    return made


def check_model(m: Any, name: str = "the model") -> None:
    """Raises TypeError unless it is as much of a Transformer as generating takes."""
    if not callable(getattr(m, "make_cache", None)):
        raise TypeError(f"{name} must be what model.load() returns, got {shown(m)}")


def check_layers(cache: Any) -> None:
    """Raises TypeError unless it is a list."""
    if not isinstance(cache, (list, tuple)):
        raise TypeError(f"the cache must be a list, see the model's make_cache; got {shown(cache)}")


def file_path(path: Any) -> Path:
    """Raises TypeError for what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a path must be a str or a Path, got {shown(path)}")
    return Path(path)


def _is_whole(value: Any) -> bool:
    try:
        index(value)
    except (TypeError, ValueError):
        return False
    return True
