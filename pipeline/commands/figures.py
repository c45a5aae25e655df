"""texts, seconds and numbers of bytes -> a few characters for the eye, on a terminal or a page.

Blind spot: it does not know what they are of.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """
    >>> visible("a b\\n\\x1b"), visible("é")
    ('a b\\\\n\\\\x1b', 'é')
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """
    >>> print(quoted('."'))
    ".\\""
    """
    shown = visible(text).replace('"', '\\"')
    return f'"{shown}"'


def milliseconds(seconds: float) -> str:
    """
    >>> milliseconds(0.0523), milliseconds(0.00002), milliseconds(2.5)
    ('52.3 ms', '0.02 ms', '2500 ms')
    """
    value = 1000 * seconds
    return f"{value:.{0 if value >= 100 else 1 if value >= 1 else 2}f} ms"


def size(num_bytes: float) -> str:
    """
    >>> size(24), size(98_362_432), size(2_100_000_000)
    ('24 B', '98.4 MB', '2.10 GB')
    """
    if num_bytes < 1000:
        return f"{num_bytes:.0f} B"
    for unit, name, digits in ((1e9, "GB", 2), (1e6, "MB", 1), (1e3, "kB", 1)):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.{digits}f} {name}"
    raise AssertionError(num_bytes)
