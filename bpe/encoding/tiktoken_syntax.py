r"""a regex as tiktoken reads it -> the same one in the syntax that all our engines read alike.

A rank file does not hold its pattern; callers copy it from where tiktoken is given it, so it is
written for Rust's regex and fancy-regex. pattern= of training has this syntax as well. What differs
from Oniguruma's, which oniguruma.py reads, is here:

    [\pL--[a-z]]|\p{N}{1,3}+|$   becomes   (?:(?![a-z])[\p{L}])|(?>\p{N}{1,3})|(?![\s\S])

Blind spot: what the pieces are for. Sources: the manuals of regex and fancy-regex; each class was
compared with tiktoken 0.14 on every code point.
"""

from __future__ import annotations

import re

from bpe.encoding.oniguruma import (
    END,
    HEX,
    INTERVAL,
    PROPERTIES,
    SAME_CLASSES,
    WORD_IN_BRACKETS,
    Part,
    Reader,
)
from bpe.spec import PATTERNS, Split

_WORD = WORD_IN_BRACKETS + "\u200c\u200d"  # the two joiners
_BEFORE, _AFTER = rf"(?<=[{_WORD}])", rf"(?=[{_WORD}])"
_NOT_BEFORE, _NOT_AFTER = rf"(?<![{_WORD}])", rf"(?![{_WORD}])"
_ANCHORS = {
    "^": r"\A", "$": END, r"\A": r"\A", r"\Z": rf"(?=\n*{END})", r"\z": END,
    r"\b": f"(?:{_BEFORE}{_NOT_AFTER}|{_NOT_BEFORE}{_AFTER})",
    r"\B": f"(?:{_BEFORE}{_AFTER}|{_NOT_BEFORE}{_NOT_AFTER})",
    r"\<": _NOT_BEFORE + _AFTER, r"\>": _BEFORE + _NOT_AFTER,
}  # fmt: skip
_CLASSES = SAME_CLASSES | {  # an escape -> on its own, and inside of brackets where it can be
    r"\w": (f"[{_WORD}]", _WORD), r"\W": (f"[^{_WORD}]", f"[^{_WORD}]"),
    r"\h": (f"[{HEX}]", HEX), r"\H": (f"[^{HEX}]", f"[^{HEX}]"),
    r"\N": (r"[^\n]", ""), r"\O": (r"[\s\S]", ""),
}  # fmt: skip
_POSIX_CLASSES = {  # of ASCII alone
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\0-\x7f", "blank": "\t ",
    "cntrl": "\0-\x1f\x7f", "digit": "0-9", "graph": r"!-\~", "lower": "a-z", "print": r" -\~",
    "punct": r"!-/:-@\[-`\{-\~", "space": "\t-\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": HEX,
}  # fmt: skip
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_ESCAPE = re.compile(
    r"\\(?:[pP](?:\{[^}]*\}|[A-Z])|[xuU]\{[0-9A-Fa-f]{1,8}\}"
    r"|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)",
    re.S,
)
_PROPERTY = re.compile(
    r"\{?(\^?)(?:(?:script|sc|general_category|gc)[=:])?([\w -]+)\}?", re.IGNORECASE
)
_LOOSE_NAMES = {name.replace("_", "").lower(): name for name in PROPERTIES}


def from_tiktoken_syntax(pattern: str) -> str:
    """The pattern in the common syntax. Raises ValueError that names what has no equivalent."""
    return _TiktokenReader(pattern).read().text


def given_split(pattern: str) -> Split:
    """How a caller says that text is split: a name in PATTERNS, or a regex in tiktoken's syntax."""
    if not isinstance(pattern, str):
        raise ValueError(
            f"pattern is {pattern!r}; it must be a regex or one of {', '.join(PATTERNS)}"
        )
    return Split(PATTERNS.get(pattern) or from_tiktoken_syntax(pattern))


class _TiktokenReader(Reader):
    anchors, classes, escape = _ANCHORS, _CLASSES, _ESCAPE
    interval = re.compile(INTERVAL.pattern.replace(r",(\d+)", r",(\d*)"))  # {,} is any number
    operators, nests_negations = ("&&", "--", "~~"), True

    def _property(self, escape: str) -> str:
        match = _PROPERTY.fullmatch(escape, 2)
        name = match and _LOOSE_NAMES.get(re.sub("[ _-]", "", match[2]).lower())
        if not name:
            self._refuse(f"{escape}, a property")
        return f"{escape[:2]}{{{match[1]}{name}}}"

    def _is_byte(self, escape: str) -> bool:
        return False

    def _first_members(self) -> str:
        """A ], or any number of -, are characters there."""
        first = re.compile(r"\]|-*").match(self._pattern, self._i)[0]
        self._i += len(first)
        return "".join("\\" + char for char in first)

    def _posix_class(self, ignoring_case: bool) -> str:
        match = _POSIX_CLASS.match(self._pattern, self._i)
        if match is None or match[2] not in _POSIX_CLASSES or ignoring_case:
            self._refuse("a class that begins with [:")
        self._i = match.end()
        members = _POSIX_CLASSES[match[2]]
        return f"[^{members}]" if match[1] else members

    def _interval_suffix(self, part: Part, is_fixed: bool) -> Part:
        if self._next("+"):
            self._i += 1
            return part._replace(text=f"(?>{part.text})")
        if not self._next("?"):
            return part
        self._i += 1
        return part if is_fixed else part._replace(text=part.text + "?")
