r"""a split regex -> its twin: the same matches from the standard library's `re`, but faster.

What slows a regex down are Unicode classes, so the twin has none. Each character beyond ASCII is
replaced by a stand-in, one for all the characters that no class of the pattern tells apart, and
each class is written as the short list of its ASCII members and stand-ins:

    \p{L}+| ?\p{N}     on "né 1²"      becomes      [A-Za-z\x81]+| ?[0-9\x82]     on "n\x81 1\x82"

Replaced one for one, the text has its matches at the same places. A wide twin lists the members up
to U+FFFF instead. It takes long to make and is several times as fast where most characters are
beyond ASCII. Blind spot: what the matches are used for. Where a pattern has syntax that the two
engines may read differently there is no twin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from threading import Lock

import regex

_GROUPS = ("(?i:", "(?:", "(?=", "(?!")  # the groups that both engines read alike
_CLASS_ESCAPES = "pPsSdD"
_CONTROL_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_FOLDS = {"s": "\u017f", "k": "\u212a"}  # what ignoring case adds to an ASCII letter and its twin

# The characters that stand for themselves, in runs without gaps, and the first of the stand-ins.
# That one is a member of every class and in no text: it keeps the others from being written "[]".
_ASCII = (range(0x80),), "\x80"
_WIDE = (range(0xD800), range(0xE000, 0x10000)), "\ud800"  # no text holds a lone surrogate


class NoTwin(ValueError):
    """The pattern has syntax that is not surely the same in both engines."""


class Twin:
    r"""The twin of one pattern. It grows: a new kind of character gets its stand-in when it comes.

    as_classed maps a character to one that is in the classes it shall be taken to be in.

    >>> Twin(r"\p{N}{1,3}|[^\s\p{L}]+", as_classed=str).see("x1")[0].pattern
    '[0-9\x80]{1,3}|[^\\t-\\r \x80A-Za-z\x80]+'
    """

    def __init__(
        self, pattern: str, as_classed: Callable[[str], str], *, wide: bool = False
    ) -> None:
        """Raises NoTwin, also for a pattern that is wrong altogether."""
        self._as_classed = as_classed
        self._runs, self._never = _WIDE if wide else _ASCII
        self._plain = [as_classed("".join(map(chr, run))) for run in self._runs]
        self._beyond = re.compile(r"[^\x00-\uffff]+" if wide else r"[^\x00-\x7f]+")
        self._classes: list[regex.Pattern] = []  # each class of the pattern, matching one character
        self._members: list[str] = []  # of each class, escaped
        self._parts = list(self._translate(pattern))  # verbatim text, and numbers of classes
        self._stand_ins: dict[tuple[bool, ...], str] = {}  # in which classes -> stand-in
        self._table = _StandIns(self._find_stand_in)
        self._lock = Lock()
        self._compile()

    def see(self, text: str) -> tuple[re.Pattern[str], str, list[tuple[int, int]]]:
        """(the regex to run, the text to run it on, where that has stand-ins: runs of them)."""
        if text.isascii():
            return self._pattern, text, []
        replaced: list[tuple[int, int]] = []

        def replace(run: re.Match[str]) -> str:
            replaced.append(run.span())
            return run[0].translate(self._table)

        seen = self._beyond.sub(replace, text)  # before self._pattern is read: it may grow
        return self._pattern, seen, replaced

    def _compile(self) -> None:
        parts = (part if isinstance(part, str) else self._members[part] for part in self._parts)
        try:
            self._pattern = re.compile("".join(parts))
        except re.error as error:  # possessive quantifiers before Python 3.11
            raise NoTwin(str(error)) from error

    def _find_stand_in(self, code: int) -> str:
        char = self._as_classed(chr(code))
        key = tuple(one.match(char) is not None for one in self._classes)
        with self._lock:
            if key not in self._stand_ins:
                self._stand_ins[key] = stand_in = chr(ord(self._never) + 1 + len(self._stand_ins))
                for number, is_member in enumerate(key):
                    self._members[number] += stand_in * is_member
                self._compile()
            return self._stand_ins[key]

    # --- reading the pattern -------------------------------------------------------------------

    def _translate(self, pattern: str) -> Iterator[str | int]:
        """The parts of the twin, one construct of the pattern after the other."""
        ignoring_case: list[bool] = [False]  # for each group that is open
        i = 0
        while i < len(pattern):
            if pattern[i] == "(":
                group = next((g for g in _GROUPS if pattern.startswith(g, i)), "(")
                if group == "(" and pattern.startswith("(?", i):
                    raise NoTwin(pattern[i : i + 4])
                ignoring_case.append(ignoring_case[-1] or group == "(?i:")
                yield group.replace("i", "")
                i += len(group)
            elif pattern[i] == ")":
                if len(ignoring_case) == 1:
                    raise NoTwin("a ) without its (")
                ignoring_case.pop()
                yield pattern[i]
                i += 1
            elif pattern[i] == "[":
                if ignoring_case[-1]:
                    raise NoTwin("a class within (?i:")
                i = yield from self._translate_class(pattern, i)
            else:
                atom = _atom_at(pattern, i)
                yield from self._translate_atom(atom, ignoring_case[-1])
                i += len(atom)

    def _translate_atom(self, atom: str, ignoring_case: bool) -> Iterator[str | int]:
        """What stands outside of brackets: a character, a class escape or an operator."""
        if _is_class(atom):
            if ignoring_case:
                raise NoTwin(f"{atom} within (?i:")
            yield from ("[", self._class(atom), "]")
        elif not atom.isascii():
            if ignoring_case:
                raise NoTwin(f"{atom} within (?i:")
            yield from ("[", self._class(f"[{atom}]"), "]")
        elif ignoring_case and atom.isalpha():
            both = atom.lower() + atom.upper() + _FOLDS.get(atom.lower(), "")
            yield from ("[", self._class(f"[{both}]"), "]")
        else:
            _character(atom)
            yield atom

    def _translate_class(self, pattern: str, i: int) -> Iterator[str | int]:
        """A class in brackets, from pattern[i] on; returns the index behind it."""
        opening = "[^" if pattern.startswith("[^", i) else "["
        yield opening
        i += len(opening)
        if pattern[i : i + 1] == "]":
            raise NoTwin("a class that begins with ]")
        while pattern[i : i + 1] != "]":
            atom = _atom_at(pattern, i)
            if atom == "[" or pattern[i : i + 2] in ("&&", "--", "~~", "||"):
                raise NoTwin(pattern[i : i + 2])
            i += len(atom)
            if pattern[i : i + 1] == "-" and pattern[i + 1 : i + 2] != "]":
                last = _atom_at(pattern, i + 1)
                i += 1 + len(last)
                first, last = _character(atom), _character(last)
                if (first + last).isascii():
                    yield f"{_escaped(first)}-{_escaped(last)}"
                else:
                    yield self._class(f"[{regex.escape(first)}-{regex.escape(last)}]")
            elif _is_class(atom):
                yield self._class(atom)
            elif atom.isascii():
                yield _escaped(_character(atom))
            else:
                yield self._class(f"[{atom}]")
        yield "]"
        return i + 1

    def _class(self, source: str) -> int:
        """The number of a class, with its ASCII members listed when it is first met."""
        for number, one in enumerate(self._classes):
            if one.pattern == source:
                return number
        try:
            self._classes.append(regex.compile(source))
            several = regex.compile(f"(?:{source})+")
        except regex.error as error:
            raise NoTwin(str(error)) from error
        members = (
            _as_range(run[match.start()], run[match.end() - 1])
            for run, classed in zip(self._runs, self._plain)
            for match in several.finditer(classed)
        )
        self._members.append("".join(members) + self._never)
        return len(self._classes) - 1


class _StandIns(dict[int, str]):
    """A table for str.translate: code point -> stand-in, found on the first look-up."""

    def __init__(self, find: Callable[[int], str]) -> None:
        self._find = find

    def __missing__(self, code: int) -> str:
        self[code] = stand_in = self._find(code)
        return stand_in


def _atom_at(pattern: str, i: int) -> str:
    r"""The character or escape at pattern[i]: "a", "\n", "\p{L}"."""
    match = re.compile(r"\\[pP]\{\^?\w+\}|\\[\s\S]|[\s\S]").match(pattern, i)
    if match is None:
        raise NoTwin("an end in the middle")
    return match[0]


def _is_class(atom: str) -> bool:
    return len(atom) > 1 and atom[1] in _CLASS_ESCAPES


def _character(atom: str) -> str:
    """The one character that an atom stands for; NoTwin for escapes like \\b that are none."""
    if len(atom) == 1:
        return atom
    if atom[1] in _CONTROL_ESCAPES:
        return _CONTROL_ESCAPES[atom[1]]
    if atom[1].isalnum() or not atom.isascii():
        raise NoTwin(atom)
    return atom[1]


def _as_range(first: int, last: int) -> str:
    """A run of code points in the notation of a character class."""
    return _escaped(chr(first)) + (f"-{_escaped(chr(last))}" if first < last else "")


def _escaped(char: str) -> str:
    """A character as it is written within brackets."""
    if char.isalnum() or char in " _" or not char.isascii():
        return char
    return "\\" + char if char.isprintable() else repr(char)[1:-1]
