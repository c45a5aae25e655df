"""characters and bytes -> what a reader sees: invisible ones by name, partial ones as bytes.

Blind spot: it does not know tokens; what it shows is for eyes, not for a machine to read back.
"""

from __future__ import annotations

import re
import unicodedata

SHORT_NAMES = {  # the names by which people call them
    "\t": "TAB", "\n": "LF", "\v": "VT", "\f": "FF", "\r": "CR", "\x1b": "ESC", "\x7f": "DEL",
    "\0": "NUL", "\x85": "NEL", "\xa0": "NBSP", "\xad": "SHY", "\u034f": "CGJ", "\u061c": "ALM",
    "\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\u200e": "LRM", "\u200f": "RLM",
    "\u2028": "LINE SEPARATOR", "\u2029": "PARAGRAPH SEPARATOR", "\u202a": "LRE", "\u202b": "RLE",
    "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO", "\u202f": "NNBSP", "\u2060": "WJ",
    "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI",
    "\u3000": "IDEOGRAPHIC SPACE", "\ufeff": "BOM", "\ufffd": "REPLACEMENT CHARACTER",
}  # fmt: skip

SPACE = "␣"  # U+0020, which would not be seen at the edge of a token

# Letters and marks that are drawn as nothing, though no category says so.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5\u034f") | {
    *map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0xE0100, 0xE01F0)),
    *map(chr, range(0x180B, 0x1810)),
}  # fmt: skip
# Accents for any letter: composed or not, they look the same, so they are named.
_ACCENTS = ((0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F))

_UTF8 = re.compile(  # one character, or a run of bytes that make none
    rb"(?P<char>[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})|[\x80-\xff]",
    re.DOTALL,
)


def name_of(char: str) -> str:
    """A character's name, the short one where it has one.

    >>> name_of("\u200d"), name_of("é"), name_of("\x01")
    ('ZWJ', 'LATIN SMALL LETTER E WITH ACUTE', 'U+0001')
    """
    return SHORT_NAMES.get(char) or unicodedata.name(char, f"U+{ord(char):04X}")


def described(char: str) -> str:
    """Code point and name: "U+00A0 NBSP"."""
    code, name = f"U+{ord(char):04X}", name_of(char)
    return code if name == code else f"{code} {name}"


def is_invisible(char: str) -> bool:
    """Whether nothing is drawn for a character: spaces, controls, joiners, fillers, selectors."""
    return char == " " or char in _BLANK or unicodedata.category(char)[0] in "ZC"


def shown(text: str | bytes) -> str:
    """text with nothing hidden: ␣ for a space, ⟨ZWJ⟩ by name, <E4 B8> for bytes of no character.

    >>> shown(" the"), shown("a\u200db"), shown("中".encode()[:2])
    ('␣the', 'a⟨ZWJ⟩b', '<E4 B8>')
    """
    if isinstance(text, str):
        return "".join(_shown_character(char, i == 0) for i, char in enumerate(text))
    parts: list[str] = []
    for is_partial, run in _runs(text):
        parts.append(f"<{run.hex(' ').upper()}>" if is_partial else shown(run.decode()))
    return "".join(parts)


def _runs(data: bytes) -> list[tuple[bool, bytes]]:
    """data in runs of whole characters and of bytes that make none: (is it partial, the run)."""
    runs: list[tuple[bool, bytes]] = []
    for match in _UTF8.finditer(data):
        is_partial = match["char"] is None
        if runs and runs[-1][0] == is_partial:
            runs[-1] = (is_partial, runs[-1][1] + match[0])
        else:
            runs.append((is_partial, match[0]))
    return runs


def _shown_character(char: str, is_first: bool) -> str:
    if char == " ":
        return SPACE
    if char.isascii() and char.isprintable():
        return char
    if is_invisible(char) or char == "\ufffd":
        return f"⟨{name_of(char)}⟩"
    if unicodedata.category(char)[0] == "M" and (is_first or _is_accent(char)):
        return f"⟨{name_of(char)}⟩"  # a first mark has nothing to be drawn on
    return char


def _is_accent(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _ACCENTS)


def width(text: str) -> int:
    """How many columns of a terminal text takes.

    >>> width("ab"), width("中"), width("e\u0301")
    (2, 2, 1)
    """
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else
        2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )  # fmt: skip
