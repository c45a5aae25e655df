r"""a regex as Oniguruma reads it -> the same one in the dialect that all our engines read alike.

Patterns in tokenizer.json are written for Oniguruma in its Ruby syntax. Python's engines read most
of them in the same way, but not ^, $, \w, \b, \h, \z, {1,3}+ or {3}?, and without a word of
warning. Those are written out; what has no equivalent is refused by name. Families' patterns pass
unchanged.

    ^ab{1,2}+     becomes     (?:(?<![\s\S])|(?<=\n)(?=[\s\S]))a(?:b{1,2})+

Blind spot: what the pieces are for. Sources: Oniguruma's doc/RE and doc/SYNTAX.md; each class was
compared with tokenizers 0.23.3 on every code point.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import regex

_WORD_IN_BRACKETS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
_WORD = _WORD_IN_BRACKETS + "²³¹¼-¾"  # outside of brackets, the Latin-1 numbers are words as well
_WORD_BEFORE, _WORD_AFTER = rf"(?<=[{_WORD}])", rf"(?=[{_WORD}])"
_NO_WORD_BEFORE, _NO_WORD_AFTER = rf"(?<![{_WORD}])", rf"(?![{_WORD}])"
_START, _END = r"(?<![\s\S])", r"(?![\s\S])"  # of the text
_ANCHORS = {
    "^": rf"(?:{_START}|(?<=\n)(?=[\s\S]))",  # an empty line at the end does not count
    "$": r"(?![^\n])",
    r"\A": r"\A",
    r"\Z": rf"(?=\n?{_END})",
    r"\z": _END,
    r"\b": f"(?:{_WORD_BEFORE}{_NO_WORD_AFTER}|{_NO_WORD_BEFORE}{_WORD_AFTER})",
    r"\B": f"(?:{_WORD_BEFORE}{_WORD_AFTER}|{_NO_WORD_BEFORE}{_NO_WORD_AFTER})",
}
_PYTHON_ANCHORS = {"^": r"\A", "$": rf"(?=\n?{_END})", r"\A": r"\A", r"\Z": _END}
_CLASSES = {  # an escape -> how it is written on its own, and inside of brackets
    r"\s": (r"\s", r"\s"), r"\S": (r"\S", r"\S"), r"\d": (r"\d", r"\d"), r"\D": (r"\D", r"\D"),
    r"\w": (f"[{_WORD}]", _WORD_IN_BRACKETS), r"\W": (f"[^{_WORD}]", ""),
    r"\h": ("[0-9A-Fa-f]", "0-9A-Fa-f"), r"\H": ("[^0-9A-Fa-f]", ""),
}  # fmt: skip
_CONTROLS = "tnrfvae"
_PROPERTIES = frozenset(
    """L Lu Ll Lt Lm Lo LC M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C
    Cc Cf Letter Number Punctuation Alphabetic Alpha Alnum Digit Upper Lower Uppercase Lowercase
    White_Space Space Blank Cntrl Punct Ideographic Any ASCII Emoji Han Hiragana Katakana Latin
    Greek Cyrillic Arabic Hebrew Thai Hangul Devanagari Common Inherited Bengali Tamil Armenian
    Georgian Ethiopic Khmer Mongolian Tibetan Lao Myanmar Bopomofo""".split()
)  # those that hold the same characters everywhere
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:")
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)", re.S
)
_INTERVAL = re.compile(r"\{(?:(\d+)(,?)(\d*)|,(\d+))\}")
_QUANTIFIER = re.compile(rf"[*+?]|{_INTERVAL.pattern}")
_FOLDED_TOGETHER = ("ss", "st", "ff", "fi", "fl")  # ignoring case, "ss" is a sharp s as well


class _Part(NamedTuple):
    text: str
    least: int  # how many characters it matches at least
    is_anchor: bool = False  # it looks at a place and takes no text


def to_common_syntax(pattern: str) -> str:
    """The pattern in the syntax that Oniguruma, regex and re read alike.

    Raises ValueError that names what has no equivalent.

    >>> to_common_syntax(r"\\p{N}{1,3}|\\h+\\z")
    '\\\\p{N}{1,3}|[0-9A-Fa-f]+(?![\\\\s\\\\S])'
    """
    return _Reader(pattern).read().text


def from_python_syntax(pattern: str) -> str:
    """A pattern that a caller wrote for Python's regex, in the syntax that all read alike."""
    return _Reader(pattern, is_python=True).read().text


def may_match_nothing(pattern: str) -> bool:
    """Whether the pattern may have an empty match; True as well where that is not known."""
    try:
        return _Reader(pattern).read().least == 0
    except ValueError:
        return True


def find_all(pattern: re.Pattern[str] | regex.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """The spans of the matches as the peer finds them; only empty ones differ from finditer's.

    Where a match has just ended, an empty one does not count, and the search goes on one character
    later.
    """
    start, last_end = 0, -1
    while start <= len(text) and (match := pattern.search(text, start)):
        if match.end() == match.start() == last_end:
            start += 1
            continue
        yield match.span()
        start = last_end = match.end()


class _Reader:
    """Reads one pattern from left to right; each method returns what it has read."""

    def __init__(self, pattern: str, *, is_python: bool = False) -> None:
        self._pattern = pattern
        self._is_python = is_python
        self._anchors = _PYTHON_ANCHORS if is_python else _ANCHORS
        self._i = 0

    def read(self) -> _Part:
        part = self._alternatives(ignoring_case=False)
        if self._i < len(self._pattern):
            self._refuse("a ) without its (")
        return part

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"the pattern {self._pattern!r} has {what}, which regex engines read differently"
        )

    def _next(self, text: str) -> bool:
        return self._pattern.startswith(text, self._i)

    def _alternatives(self, ignoring_case: bool) -> _Part:
        """Up to the ) that closes the group, or the end."""
        branches = [self._sequence(ignoring_case)]
        while self._next("|"):
            self._i += 1
            branches.append(self._sequence(ignoring_case))
        return _Part(
            "|".join(branch.text for branch in branches), min(branch.least for branch in branches)
        )

    def _sequence(self, ignoring_case: bool) -> _Part:
        parts: list[_Part] = []
        while self._i < len(self._pattern) and not self._next("|") and not self._next(")"):
            parts.append(self._quantified(self._atom(ignoring_case)))
        text = "".join(part.text for part in parts)
        if ignoring_case and any(pair in text.lower() for pair in _FOLDED_TOGETHER):
            self._refuse(f"{text!r} with case ignored")
        return _Part(text, sum(part.least for part in parts))

    def _atom(self, ignoring_case: bool) -> _Part:
        char = self._pattern[self._i]
        if char == "(":
            return self._group(ignoring_case)
        if char == "[":
            return _Part(self._class(ignoring_case), 1)
        if char == "\\":
            return self._escape(ignoring_case)
        if char in "*+?":
            self._refuse(f"{char!r} with nothing before it")
        self._i += 1
        if char in "^$":
            return _Part(self._anchors[char], 0, True)
        if ignoring_case and (not char.isascii() or char in "iI."):
            self._refuse(f"{char!r} with case ignored")
        return _Part("\\" + char if char in "{}]" else char, 1)

    def _group(self, ignoring_case: bool) -> _Part:
        opening = next((group for group in _GROUPS if self._next(group)), "(")
        if opening == "(" and self._next("(?"):
            self._refuse(repr(self._pattern[self._i : self._i + 4]))
        self._i += len(opening)
        part = self._alternatives(ignoring_case or opening == "(?i:")
        if not self._next(")"):
            self._refuse("a ( without its )")
        self._i += 1
        looks = opening in _LOOKS
        return _Part(f"{opening}{part.text})", 0 if looks else part.least, looks)

    def _escape(self, ignoring_case: bool) -> _Part:
        """An escape outside of brackets."""
        escape = self._read_escape()
        if escape in self._anchors:
            return _Part(self._anchors[escape], 0, True)
        if ignoring_case and (escape in _CLASSES or escape[1:].isalnum() or escape[1] in "pPxu"):
            self._refuse(f"{escape} with case ignored")
        if self._is_class(escape):
            return _Part(_CLASSES[escape][0], 1)
        return _Part(self._character_escape(escape), 1)

    def _read_escape(self) -> str:
        match = _ESCAPE.match(self._pattern, self._i)
        if match is None:
            self._refuse("a \\ at its end")
        self._i = match.end()
        return match[0]

    def _character_escape(self, escape: str) -> str:
        r"""\p{..}, the escape of one character, or a refusal."""
        kind, rest = escape[1], escape[2:]
        if kind in "pP":
            if rest.strip("{^}") not in _PROPERTIES:
                self._refuse(f"{escape}, a property")
        elif kind in "xu" and rest:
            code = int(rest.strip("{}"), 16)
            if (
                code > 0x10FFFF
                or 0xD800 <= code < 0xE000
                or (kind == "x" and "{" not in rest and code > 0x7F)
            ):
                self._refuse(escape)
            return regex.escape(chr(code), special_only=False, literal_spaces=True)
        elif kind not in _CONTROLS and (kind.isalnum() or not kind.isascii()):
            self._refuse(escape)
        return {"\\e": "\\x1B", "\\a": "\\x07"}.get(escape, escape)

    def _class(self, ignoring_case: bool) -> str:
        """A class in brackets; "[a-z&&[^x]]" looks ahead for what it leaves out."""
        opening = "[^" if self._next("[^") else "["
        self._i += len(opening)
        if self._next("]"):
            self._refuse("a class that begins with ]")
        items: list[str] = []
        left_out = ""
        while not self._next("]"):
            if self._i >= len(self._pattern):
                self._refuse("a [ without its ]")
            if self._next("[") and not (self._next("[:") or self._is_python):
                items.append(self._inner_class(ignoring_case))
            elif self._next("&&[^") and items and opening == "[" and not self._is_python:
                self._i += len("&&")
                left_out = self._class(ignoring_case)
                if not self._next("]") or not left_out.startswith("[^"):
                    self._refuse("more than one class after &&")
            else:
                items.append(self._class_item(ignoring_case, is_first=not items))
        self._i += 1
        whole = opening + "".join(items) + "]"
        return f"(?:(?![{left_out[2:]}){whole})" if left_out else whole

    def _inner_class(self, ignoring_case: bool) -> str:
        """The members of a class within a class: they are those of the outer one as well."""
        members = self._class(ignoring_case)
        if not members.startswith("[") or members.startswith("[^"):
            self._refuse(f"{members} within a class")
        if members.startswith("[-") or members.endswith("-]"):
            self._refuse("a - at an end of a class within a class")
        return members[1:-1]

    def _class_item(self, ignoring_case: bool, is_first: bool) -> str:
        item, is_range_end = self._class_member(), False
        is_class = item in _CLASSES or item[:2] in ("\\p", "\\P")
        if self._next("-") and not self._next("-]"):
            self._i += 1
            last = self._class_member() if self._i < len(self._pattern) else ""
            if is_class or not last or last in _CLASSES or last[:2] in ("\\p", "\\P"):
                self._refuse(f"the range {item}-{last}")
            item, is_range_end = (
                "-".join("\\-" if end == "-" else end for end in (item, last)),
                True,
            )
        if ignoring_case and (is_class or is_range_end or not item.isascii() or item in "iI"):
            self._refuse(f"{item} in a class with case ignored")
        if item == "-" and not is_first and not self._next("]"):
            self._refuse("a - inside of a class")
        if item in _CLASSES:
            item = _CLASSES[item][1] or self._refuse(f"{item} inside of a class")
        return item

    def _class_member(self) -> str:
        """One character or class escape, as it is written within brackets."""
        char = self._pattern[self._i]
        if char == "[" or self._next("&&"):
            self._refuse("a class within a class")
        if char != "\\":
            self._i += 1
            doubled = char in "|~&" and self._next(char)  # an operator to other engines
            return "\\" + char if doubled else char
        escape = self._read_escape()
        return escape if self._is_class(escape) else self._character_escape(escape)

    def _is_class(self, escape: str) -> bool:
        """Whether it is one of _CLASSES; Python's other classes are not Oniguruma's."""
        return escape in _CLASSES and not (self._is_python and escape[1] in "wWhH")

    def _quantified(self, atom: _Part) -> _Part:
        """The atom with the quantifier that follows it, if one does."""
        start, interval = self._i, _INTERVAL.match(self._pattern, self._i)
        if interval:
            self._i = interval.end()
            low, comma, _, up_to = interval.groups()
            least, shown = int(low or 0), f"{{0,{up_to}}}" if up_to else interval[0]
            part = self._interval_suffix(
                _Part(atom.text + shown, least * atom.least),
                is_fixed=not comma and not up_to and not self._is_python,
            )
        elif self._i < len(self._pattern) and self._pattern[self._i] in "*+?":
            quantifier = self._pattern[self._i]
            self._i += 1
            if self._next("+") or self._next("?"):
                quantifier += self._pattern[self._i]
                self._i += 1
            part = _Part(atom.text + quantifier, atom.least if quantifier[0] == "+" else 0)
        else:
            return atom
        if _QUANTIFIER.match(self._pattern, self._i):
            self._refuse("one quantifier after the other")
        if atom.is_anchor:
            self._refuse(f"{self._pattern[start : self._i]!r} on a place, which takes no text")
        return part

    def _interval_suffix(self, part: _Part, is_fixed: bool) -> _Part:
        """What + and ? do behind {..}: there they are not what they are behind * and +."""
        if self._next("+"):
            self._i += 1
            possessive = self._is_python  # else it repeats what is repeated
            return part._replace(text=f"(?>{part.text})" if possessive else f"(?:{part.text})+")
        if not self._next("?"):
            return part
        self._i += 1
        if is_fixed:  # all or nothing, not lazy
            return _Part(f"(?:{part.text})?", 0)
        return part._replace(text=part.text + "?")
