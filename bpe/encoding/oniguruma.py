r"""a regex as Oniguruma reads it -> the same one in a syntax that all our engines read alike.

Patterns in tokenizer.json are written for Oniguruma in its Ruby syntax. Python's engines read most
of them in the same way, but not ^, $, \w, \b, \h, \z, {1,3}+, {3}? or [a-z&&[^b]], and without a
word of warning. Those are written out; what has no equivalent is refused by name. Families'
patterns pass unchanged, and so does what comes out.

    ^ab{1,2}+     becomes     (?:(?<![\s\S])|(?<=\n)(?=[\s\S]))a(?:b{1,2})+

Blind spot: what the pieces are for. Sources: Oniguruma's doc/RE and doc/SYNTAX.md; each class was
compared with tokenizers 0.23.3 on every code point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import regex

START, END = r"(?<![\s\S])", r"(?![\s\S])"  # of the text
WORD_IN_BRACKETS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
_WORD = WORD_IN_BRACKETS + "²³¹¼-¾"  # outside of brackets, the Latin-1 numbers are words as well
_WORD_BEFORE, _WORD_AFTER = rf"(?<=[{_WORD}])", rf"(?=[{_WORD}])"
_NO_WORD_BEFORE, _NO_WORD_AFTER = rf"(?<![{_WORD}])", rf"(?![{_WORD}])"
HEX = "0-9A-Fa-f"
_ANCHORS = {
    "^": rf"(?:{START}|(?<=\n)(?=[\s\S]))",  # an empty line at the end does not count
    "$": r"(?![^\n])",
    r"\A": r"\A",
    r"\Z": rf"(?=\n?{END})",
    r"\z": END,
    r"\b": f"(?:{_WORD_BEFORE}{_NO_WORD_AFTER}|{_NO_WORD_BEFORE}{_WORD_AFTER})",
    r"\B": f"(?:{_WORD_BEFORE}{_WORD_AFTER}|{_NO_WORD_BEFORE}{_NO_WORD_AFTER})",
}
SAME_CLASSES = {escape: (escape, escape) for escape in (r"\s", r"\S", r"\d", r"\D")}
_CLASSES = SAME_CLASSES | {  # an escape -> on its own, and inside of brackets where it can be
    r"\w": (f"[{_WORD}]", WORD_IN_BRACKETS), r"\W": (f"[^{_WORD}]", ""),
    r"\h": (f"[{HEX}]", HEX), r"\H": (f"[^{HEX}]", ""),
}  # fmt: skip
_CONTROLS = "tnrfvae"
PROPERTIES = frozenset(
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
INTERVAL = re.compile(r"\{(?:(\d+)(,?)(\d*)|,(\d+))\}")
_QUANTIFIER = re.compile(rf"[*+?]|{INTERVAL.pattern}")
_ONE_CLASS, _OPPOSITE = re.compile(r"\\[sSdDpP]"), re.compile(r"\\(?:[SDP]|p\{\^)")
_ALL_BUT_ONE = re.compile(r"\A([(?:>]*)\[\^(\\[^pPsSdD]|[^]\\])\]([)1{}]*)\Z", re.S)
_FOLDED_TOGETHER = ("ss", "st", "ff", "fi", "fl")  # ignoring case, "ss" is a sharp s as well


class Part(NamedTuple):
    text: str
    least: int  # how many characters it matches at least
    is_anchor: bool = False  # it looks at a place and takes no text


def to_common_syntax(pattern: str) -> str:
    """A pattern in Oniguruma's syntax, in the one that Oniguruma, regex and re read alike.

    Raises ValueError that names what has no equivalent. What comes out passes unchanged.

    >>> to_common_syntax(r"\\p{N}{1,3}|\\h+\\z")
    '\\\\p{N}{1,3}|[0-9A-Fa-f]+(?![\\\\s\\\\S])'
    """
    return Reader(pattern).read().text


def check_common_syntax(pattern: str) -> None:
    """Raises ValueError if Oniguruma reads the pattern in another way than we do, or refuses it."""
    reader = Reader(pattern)
    if (common := reader.read().text) != pattern:
        raise ValueError(
            f"the pattern {pattern!r} is read differently by Hugging Face tokenizers; what it "
            f"reads is {common!r} here"
        )
    if reader.misplaced:
        raise ValueError(
            f"the pattern {pattern!r} has {reader.misplaced} within a lookbehind, which Hugging "
            "Face tokenizers refuses"
        )


def may_match_nothing(pattern: str) -> bool:
    """Whether the pattern may have an empty match; True as well where that is not known."""
    try:
        return Reader(pattern).read().least == 0
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


class Reader:
    """Reads one pattern from left to right; each method returns what it has read.

    Another syntax is one that says what is different in it (tiktoken_syntax.py).
    """

    anchors, classes = _ANCHORS, _CLASSES
    escape, interval = _ESCAPE, INTERVAL
    operators: tuple[str, ...] = ("&&",)  # between the classes of a class
    nests_negations = False  # Oniguruma has faults there

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._i = 0
        self._lookbehinds: list[str] = []  # those that are open
        self._num_classes = 0  # that are open
        self.misplaced = ""  # a group where Oniguruma takes none, within a lookbehind

    def read(self) -> Part:
        try:
            part = self._alternatives(ignoring_case=False)
        except RecursionError:
            self._refuse("too many groups within groups")
        if self._i < len(self._pattern):
            self._refuse("a ) without its (")
        return part

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"the pattern {self._pattern!r} has {what}, which regex engines read differently"
        )

    def _next(self, text: str) -> bool:
        return self._pattern.startswith(text, self._i)

    def _alternatives(self, ignoring_case: bool) -> Part:
        """Up to the ) that closes the group, or the end."""
        branches = [self._sequence(ignoring_case)]
        while self._next("|"):
            self._i += 1
            branches.append(self._sequence(ignoring_case))
        text = _either([branch.text for branch in branches])
        return Part(text, min(branch.least for branch in branches))

    def _sequence(self, ignoring_case: bool) -> Part:
        parts: list[Part] = []
        while self._i < len(self._pattern) and not self._next("|") and not self._next(")"):
            parts.append(self._quantified(self._atom(ignoring_case)))
        text = "".join(part.text for part in parts)
        if ignoring_case and any(pair in text.lower() for pair in _FOLDED_TOGETHER):
            self._refuse(f"{text!r} with case ignored")
        return Part(text, sum(part.least for part in parts))

    def _atom(self, ignoring_case: bool) -> Part:
        char = self._pattern[self._i]
        if char == "(":
            return self._group(ignoring_case)
        if char == "[":
            return Part(self._class(ignoring_case), 1)
        if char == "\\":
            return self._escape(ignoring_case)
        if char in "*+?":
            self._refuse(f"{char!r} with nothing before it")
        self._i += 1
        if char in "^$":
            return Part(self.anchors[char], 0, True)
        if ignoring_case and (not char.isascii() or char in "iI."):
            self._refuse(f"{char!r} with case ignored")
        return Part("\\" + char if char in "{}]" else char, 1)

    def _group(self, ignoring_case: bool) -> Part:
        opening = next((group for group in _GROUPS if self._next(group)), "(")
        if opening == "(" and self._next("(?"):
            self._refuse(repr(self._pattern[self._i : self._i + 4]))
        if self._lookbehinds and (
            opening in ("(?=", "(?!") or (opening == "(" and "(?<!" in self._lookbehinds)
        ):
            self.misplaced = opening
        self._i += len(opening)
        looks_back = [opening] if opening.startswith("(?<") else []
        self._lookbehinds += looks_back
        part = self._alternatives(ignoring_case or opening == "(?i:")
        del self._lookbehinds[len(self._lookbehinds) - len(looks_back) :]
        if not self._next(")"):
            self._refuse("a ( without its )")
        self._i += 1
        looks = opening in _LOOKS
        return Part(f"{opening}{part.text})", 0 if looks else part.least, looks)

    def _escape(self, ignoring_case: bool) -> Part:
        """An escape outside of brackets."""
        escape = self._read_escape()
        if escape in self.anchors:
            return Part(self.anchors[escape], 0, True)
        if ignoring_case and (
            escape in self.classes or escape[1:].isalnum() or escape[1] in "pPxuU"
        ):
            self._refuse(f"{escape} with case ignored")
        if escape in self.classes:
            return Part(self.classes[escape][0], 1)
        return Part(self._character_escape(escape), 1)

    def _read_escape(self) -> str:
        match = self.escape.match(self._pattern, self._i)
        if match is None:
            self._refuse("a \\ at its end")
        self._i = match.end()
        return match[0]

    def _character_escape(self, escape: str) -> str:
        r"""\p{..}, the escape of one character, or a refusal."""
        kind, rest = escape[1], escape[2:]
        if kind in "pP" and rest:
            return self._property(escape)
        if kind in "xuU" and rest:
            return self._code_point(escape)
        if kind not in _CONTROLS and (kind.isalnum() or not kind.isascii()):
            self._refuse(escape)
        return {"\\e": "\\\x1b", "\\a": "\\\x07"}.get(escape, escape)

    def _property(self, escape: str) -> str:
        if escape[2:].strip("{^}") not in PROPERTIES:
            self._refuse(f"{escape}, a property")
        return escape

    def _code_point(self, escape: str) -> str:
        r"""The character of \x41, \x{4e2d} or \u4e2d."""
        code = int(escape[2:].strip("{}"), 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._refuse(escape)
        if self._is_byte(escape) and code > 0x7F:
            self._refuse(escape)
        char = chr(code)
        is_plain = char.isalnum() or char in "_ " or not char.isascii()
        return char if is_plain else "\\" + char

    def _is_byte(self, escape: str) -> bool:
        return escape[1] == "x" and escape[2] != "{"

    def _class(self, ignoring_case: bool) -> str:
        """A class in brackets, as a pattern of one character: "[..]", "[^..]" or a group."""
        is_negated = self._next("[^")
        self._i += 2 if is_negated else 1
        self._num_classes += 1
        whole = self._union(ignoring_case, self._first_members())
        while operator := self._operator():
            self._i += len(operator)
            whole = _COMBINED[operator](whole, self._union(ignoring_case))
        self._i += 1
        self._num_classes -= 1
        if is_negated and not (_is_bare(whole) or self.nests_negations):
            self._refuse(f"the negated class {whole} within another")
        return _complement(whole) if is_negated else whole

    def _operator(self) -> str | None:
        return next(filter(self._next, self.operators), None)

    def _first_members(self) -> str:
        """What stands first and means something else there."""
        if self._next("]"):
            self._refuse("a class that begins with ]")
        return ""

    def _union(self, ignoring_case: bool, members: str = "") -> str:
        """All that stands side by side in a class, up to its end or an operator."""
        others: list[str] = []
        while not self._next("]") and not self._operator():
            if self._i >= len(self._pattern):
                self._refuse("a [ without its ]")
            if self._next("["):
                item = self._inner_class(ignoring_case)
            else:
                item = self._class_item(ignoring_case, is_first=not members)
            if not _is_bare(item):
                others.append(item)
            elif item[0] in "&|~-" and members.endswith(item[0]):  # two are an operator somewhere
                members += "\\" + item
            else:
                members += item
        parts = [f"[{members}]", *others] if members else others
        if not parts:
            self._refuse("a class of nothing")
        # Atomic: a character that is in two of them must not be tried twice.
        return parts[0] if len(parts) == 1 else f"(?>{_either(parts)})"

    def _inner_class(self, ignoring_case: bool) -> str:
        """A class within a class; if it has bare members, these."""
        if self._next("[:"):
            return self._posix_class(ignoring_case)
        inner = self._class(ignoring_case)
        return inner[1:-1] if _is_bare(inner) else inner

    def _posix_class(self, ignoring_case: bool) -> str:
        self._refuse("a class such as [:alpha:]")

    def _class_item(self, ignoring_case: bool, is_first: bool) -> str:
        item, is_range = self._class_member(), False
        is_class = self._is_class(item)
        if self._next("-&&"):
            self._refuse("a - inside of a class")
        if self._next("-") and not self._next("-]") and not self._operator():
            self._i += 1
            last = self._class_member() if self._i < len(self._pattern) else ""
            if is_class or not last or self._is_class(last):
                self._refuse(f"the range {item}-{last}")
            item, is_range = "-".join("\\-" if end == "-" else end for end in (item, last)), True
        if ignoring_case and (is_class or is_range or not item.isascii() or item in "iI"):
            self._refuse(f"{item} in a class with case ignored")
        if item == "-" and not is_first and not self._next("]"):
            self._refuse("a - inside of a class")
        if item in "-(" and self._num_classes > 1:  # it may come to stand elsewhere
            return "\\" + item
        if item in self.classes:
            return self.classes[item][1] or self._refuse(f"{item} inside of a class")
        return "\\" + item if item[0] == "^" and is_first else item

    def _is_class(self, member: str) -> bool:
        return member in self.classes or member[:2] in ("\\p", "\\P")

    def _class_member(self) -> str:
        """One character or class escape, as it is written within brackets."""
        char = self._pattern[self._i]
        if char == "[":
            self._refuse("a class in a range")
        if char == "\\":
            escape = self._read_escape()
            return escape if escape in self.classes else self._character_escape(escape)
        self._i += 1
        return char

    def _quantified(self, atom: Part) -> Part:
        """The atom with the quantifier that follows it, if one does."""
        start, interval = self._i, self.interval.match(self._pattern, self._i)
        if interval:
            self._i = interval.end()
            low, comma, _, up_to = interval.groups()
            least = int(low or 0)
            shown = interval[0] if up_to is None else f"{{0,{up_to}}}"
            part = self._interval_suffix(
                Part(atom.text + shown, least * atom.least), is_fixed=bool(low) and not comma
            )
        elif self._i < len(self._pattern) and self._pattern[self._i] in "*+?":
            quantifier = self._pattern[self._i]
            self._i += 1
            if self._next("+") or self._next("?"):
                quantifier += self._pattern[self._i]
                self._i += 1
            part = Part(atom.text + quantifier, atom.least if quantifier[0] == "+" else 0)
        else:
            return atom
        if _QUANTIFIER.match(self._pattern, self._i):
            self._refuse("one quantifier after the other")
        if atom.is_anchor:
            self._refuse(f"{self._pattern[start : self._i]!r} on a place, which takes no text")
        return part

    def _interval_suffix(self, part: Part, is_fixed: bool) -> Part:
        """What + and ? do behind {..}: there they are not what they are behind * and +."""
        if self._next("+"):  # it repeats what is repeated
            self._i += 1
            return part._replace(text=f"(?:{part.text})+")
        if not self._next("?"):
            return part
        self._i += 1
        if is_fixed:  # all or nothing, not lazy
            return Part(f"(?:{part.text})?", 0)
        return part._replace(text=part.text + "?")


def _either(branches: list[str]) -> str:
    """The branches side by side; regex takes [^x]|[^y] for [^xy], but leaves [^xx]|[^yy] alone."""
    if sum(map(bool, map(_ALL_BUT_ONE.match, branches))) > 1:
        branches = [_ALL_BUT_ONE.sub(_twice, branch) for branch in branches]
    return "|".join(branches)


def _twice(match: re.Match[str]) -> str:
    before, char, after = match.groups()
    again = "\\" + char if char in "&|~-^" else char
    return f"{before}[^{char}{again}]{after}"


def _is_bare(one: str) -> bool:
    """Whether it is the members of a class, or these in brackets: neither negated nor a group."""
    return not one.startswith(("[^", "(?:", "(?>"))


def _complement(one: str) -> str:
    if one.startswith("[^"):
        return "[" + one[2:]
    # regex takes [^\s\S] for any character, and so all that has a class and its opposite.
    is_simple = _is_bare(one) and not (_OPPOSITE.search(one) and len(_ONE_CLASS.findall(one)) > 1)
    return "[^" + one[1:] if is_simple else rf"(?:(?!{one})[\s\S])"


def _without(one: str, other: str) -> str:
    return f"(?:(?!{other}){one})"


def _shared(one: str, other: str) -> str:
    return f"(?:(?={other}){one})" if _is_bare(other) else _without(one, _complement(other))


_COMBINED: dict[str, Callable[[str, str], str]] = {
    "&&": _shared,
    "--": _without,
    "~~": lambda one, other: f"(?:{_without(one, other)}|{_without(other, one)})",
}
