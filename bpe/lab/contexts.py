r"""a token -> texts that may give it: the characters that its bytes are cut from, and neighbours.

Three facts keep the search short. Merging inside a token's bytes goes on as if they stood alone, so
a token that merging its own bytes doesn't give comes from no text at all. Its left and its right
neighbours act on it independently. And the split regex sees only which of its classes a character
is in, so that one character of each kind stands for all. Blind spot: neighbours further away than
two characters, or than one token that reaches over a character's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, product

import regex

from bpe.encoding.pretokenize import PreTokenizer
from bpe.spec import Split

Merge = Callable[[bytes], Sequence[int]]

MEMBERS = 6  # characters of a kind that are tried where merging decides
SIDE_OPTIONS = 12  # completions of one side that are tried with each of the other side

# Characters that are surely tried: of many scripts and categories, white space of all sizes.
_POOL = (
    *map(chr, range(128)),
    *"\x85\xa0\u1680\u2003\u2009\u2028\u3000\u200d\u200b\ufeff\xad²½Ⅷ٣ʰǅſéßΩЖאبकกあ中가ª",
    *"\u0301\u0e31\u093f\u20dd€¿«—“…😀\U0001f3fd\ue000\u0378",
)

_CLASS = re.compile(r"\\[pP]\{[^}]*\}|\\[sSdDwW]|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_NO_LITERAL = re.compile(r"\(\?\w*[:=!<]*|\\[rntfv]|\{[\d,]*\}|\\(?=[^\w])|[][()|?+*.^$]")


class Kinds:
    """The characters that a pre-tokenizer tells apart: one kind for each way to be in its classes.

    >>> kinds = Kinds([r"\\p{L}+|\\s|'s"])
    >>> kinds.of("é") == kinds.of("中"), kinds.of("s") == kinds.of("t")
    (True, False)
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = list(patterns)
        sources = dict.fromkeys(chain.from_iterable(map(_CLASS.findall, patterns)))
        self._classes = [compiled for source in sources if (compiled := _compile(source))]
        rest = "".join(_CLASS.sub("", pattern) for pattern in patterns)
        self._literals = frozenset(_NO_LITERAL.sub("", rest))
        self._number: dict[tuple, int] = {}
        self._of: dict[str, int] = {}
        self.members: dict[int, list[str]] = {}
        for char in (*_POOL, *map(chr, range(0x80, 0xD800, 61))):
            members = self.members.setdefault(self.of(char), [])
            if len(members) < MEMBERS:
                members.append(char)

    @classmethod
    def of_tokenizer(cls, pre_tokenizer: PreTokenizer) -> Kinds:
        steps = (getattr(step, "step", None) for step in pre_tokenizer.steps)
        return cls(step.pattern for step in steps if isinstance(step, Split))

    def of(self, char: str) -> int:
        """The number of a character's kind."""
        number = self._of.get(char)
        if number is None:
            literal = char if char in self._literals else ""
            key = (literal, *(one.match(char) is not None for one in self._classes))
            number = self._of[char] = self._number.setdefault(key, len(self._number))
        return number

    def shape(self, text: str) -> tuple[int, ...]:
        """The kinds of a text's characters: texts of one shape are cut at the same places."""
        return tuple(map(self.of, text))


def _compile(source: str) -> regex.Pattern | None:
    try:
        return regex.compile(source)
    except regex.error:
        return None


# --- neighbours that keep a whole text in one piece ----------------------------------------------


class Neighbours:
    """What may stand beside a text so that the split leaves it whole."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        self._pre_tokenizer = pre_tokenizer
        self._kinds = Kinds.of_tokenizer(pre_tokenizer)
        self._of_shape: dict[tuple[int, ...], list[tuple[tuple, tuple]]] = {}

    def texts(self, text: str) -> Iterator[str]:
        """Texts around `text` in which it may be whole, shortest neighbours first."""
        shape = self._kinds.shape(text)
        if shape not in self._of_shape:
            self._of_shape[shape] = list(self._keep_whole(text))
        members = self._kinds.members
        for left, right in self._of_shape[shape]:
            for chars in product(*(members[kind] for kind in (*left, *right))):
                before, after = chars[: len(left)], chars[len(left) :]
                yield "".join((*before, text, *after))

    def _keep_whole(self, text: str) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(kinds on the left, kinds on the right) between which some piece holds the text."""
        first = {kind: chars[0] for kind, chars in self._kinds.members.items()}
        none = [()]
        one = [(kind,) for kind in first]
        two = list(product(first, repeat=2))
        for left, right in chain(
            product(none, one), product(one, none), product(one, one),
            product(none, two), product(two, none),
        ):  # fmt: skip
            around = "".join(first[k] for k in left) + text + "".join(first[k] for k in right)
            if self._pre_tokenizer.normalize(around) == around and any(
                text in piece for piece in self._pre_tokenizer.split(around)
            ):
                yield left, right


# --- characters that a token's bytes are cut from ------------------------------------------------

_CHARACTER = (
    rb"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
_BEGIN = (  # the first bytes of a character that goes on
    rb"(?:[\xc2-\xdf]|\xe0[\xa0-\xbf]?|\xed[\x80-\x9f]?|[\xe1-\xec\xee\xef][\x80-\xbf]?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2}|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)"
)
_PARTS = re.compile(
    rb"(?P<end>[\x80-\xbf]{0,3})(?P<middle>" + _CHARACTER + rb"*)(?P<begin>" + _BEGIN + rb")?",
    re.DOTALL,
)


def parts(token: bytes) -> tuple[bytes, bytes] | None:
    """(the last bytes of a character that token begins with, the first ones that it ends with).

    None where no UTF-8 text can hold the token's bytes.

    >>> parts("中a".encode()[1:] + b"\\xe4"), parts(b"\\xff")
    ((b'\\xb8\\xad', b'\\xe4'), None)
    """
    match = _PARTS.fullmatch(token)
    return match and (match["end"], match["begin"] or b"")


def characters_from(begin: bytes) -> range:
    """The code points whose UTF-8 begins with these bytes (at least a whole lead byte)."""
    lead = begin[0]
    length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    value = lead & (0x7F >> length)
    for byte in begin[1:]:
        value = value << 6 | byte & 0x3F
    shift = 6 * (length - len(begin))
    low, high = value << shift, (value + 1 << shift) - 1
    low = max(low, (0, 0, 0x80, 0x800, 0x10000)[length])
    high = min(high, 0xD7FF if begin[:1] == b"\xed" else 0x10FFFF)
    return range(low, high + 1)


def characters_to(end: bytes) -> Iterator[int]:
    """The code points whose UTF-8 ends with these bytes, and has others before them."""
    value = 0
    for byte in end:
        value = value << 6 | byte & 0x3F
    step = 64 ** len(end)
    for first, last, length in ((0x80, 0x7FF, 2), (0x800, 0xFFFF, 3), (0x10000, 0x10FFFF, 4)):
        if length > len(end):
            start = first + (value - first) % step
            yield from (c for c in range(start, last + 1, step) if not 0xD800 <= c < 0xE000)


class Completions:
    """The bytes that can stand beside a token of partial characters so that it survives merging."""

    def __init__(
        self,
        vocab: Iterable[bytes],
        merge: Merge,
        id_of: Callable[[bytes], int],
        kinds: Kinds,
        is_stable: Callable[[str], bool],
    ) -> None:
        """merge: bytes -> ids; is_stable: whether the normalizer leaves a character as it is."""
        self._merge, self._id_of, self._kinds, self._is_stable = merge, id_of, kinds, is_stable
        partial = [(token, parts(token)) for token in vocab if not _is_text(token)]
        self._by_end = _grouped((halves[0], token) for token, halves in partial if halves)
        self._by_begin = _grouped((halves[1], token) for token, halves in partial if halves)

    def around(self, token: bytes) -> Iterator[bytes]:
        """Texts, as bytes, of whole characters that hold the token's bytes and may give it."""
        halves = parts(token)
        if halves is None:
            return
        end, begin = halves
        if end == token:  # it lies inside a single character, or is its end
            yield from self._inside(token)
            return
        lefts = list(islice(self._lefts(token, end), SIDE_OPTIONS)) if end else [b""]
        rights = list(islice(self._rights(token, begin), SIDE_OPTIONS)) if begin else [b""]
        for left, right in product(lefts, rights):
            yield left + token + right

    def _inside(self, token: bytes) -> Iterator[bytes]:
        seen: dict[tuple, int] = {}
        for code in _holding(token):
            data = chr(code).encode()
            for at in range(1, len(data) - len(token) + 1):
                if not data.startswith(token, at):
                    continue
                left, right = data[:at], data[at + len(token) :]
                keeps = self._keeps_right(token, right) if right else True
                if keeps and self._keeps_left(token, left) and self._is_new(chr(code), seen):
                    yield data
        for before in self._longer_before(token):
            yield from self._before_inside(before, token)

    def _longer_before(self, token: bytes) -> Iterator[bytes]:
        for begin, tokens in self._by_begin.items():
            if begin:
                yield from (before for before in tokens if before != begin)

    def _before_inside(self, before: bytes, token: bytes) -> Iterator[bytes]:
        """before ends in the first bytes of a character in which token goes on."""
        end, begin = parts(before)
        joined = _PARTS.fullmatch(begin + token)
        if joined is None or joined["end"] or not self._keeps_left(token, before):
            return
        rights = [b""]
        if joined["begin"]:
            rights = islice(self._rights(token, begin + token), 4)
        lefts = islice(self._lefts(before, end), 4) if end else [b""]
        for left, right in product(lefts, rights):
            yield left + before + token + right

    def _rights(self, token: bytes, begin: bytes, depth: int = 2) -> Iterator[bytes]:
        """What may follow `begin`, with which token ends: the rest of a character, or more."""
        seen: dict[tuple, int] = {}
        for code in characters_from(begin):
            rest = chr(code).encode()[len(begin) :]
            if self._keeps_right(token, rest) and self._is_new(chr(code), seen):
                yield rest
        for end, tokens in self._by_end.items() if depth else ():
            if not end or not _is_text(begin + end):
                continue
            for after in tokens:
                if after != end and self._keeps_right(token, after):
                    further = parts(after)[1]
                    for rest in self._further(self._rights, after, further, depth):
                        if self._keeps_right(token, after + rest):
                            yield after + rest

    def _lefts(self, token: bytes, end: bytes, depth: int = 2) -> Iterator[bytes]:
        """What may precede `end`, with which token begins."""
        seen: dict[tuple, int] = {}
        for code in characters_to(end):
            rest = chr(code).encode()[: -len(end)]
            if self._keeps_left(token, rest) and self._is_new(chr(code), seen):
                yield rest
        for begin, tokens in self._by_begin.items() if depth else ():
            if not begin or not _is_text(begin + end):
                continue
            for before in tokens:
                if before != begin and self._keeps_left(token, before):
                    further = parts(before)[0]
                    for rest in self._further(self._lefts, before, further, depth):
                        if self._keeps_left(token, rest + before):
                            yield rest + before

    @staticmethod
    def _further(
        search: Callable[..., Iterator[bytes]], token: bytes, partial: bytes, depth: int
    ) -> Iterable[bytes]:
        """Two ways to go on from a neighbour that itself ends (or begins) inside a character."""
        return islice(search(token, partial, depth - 1), 2) if partial else (b"",)

    def _keeps_right(self, token: bytes, rest: bytes) -> bool:
        return self._merge(token + rest)[0] == self._id_of(token)

    def _keeps_left(self, token: bytes, rest: bytes) -> bool:
        return self._merge(rest + token)[-1] == self._id_of(token)

    def _is_new(self, char: str, seen: dict[tuple, int]) -> bool:
        """Whether few characters of this kind have been offered yet, and it can stand in a text."""
        if not self._is_stable(char):
            return False
        key = (self._kinds.of(char), len(char.encode()))
        seen[key] = seen.get(key, 0) + 1
        return seen[key] <= MEMBERS or not seen[key] & (seen[key] - 1)  # then ever more rarely


@lru_cache(maxsize=256)
def _holding(token: bytes) -> tuple[int, ...]:
    """The code points in whose UTF-8 the continuation bytes of token stand."""
    codes = list(characters_to(token))
    for length, leads in ((3, range(0xE0, 0xF0)), (4, range(0xF0, 0xF5))):
        for lead in leads:
            for middle in range(1, length - len(token)):
                if middle == 1:
                    begin = bytes([lead]) + token
                    if _PARTS.fullmatch(begin) and len(begin) < length:
                        codes += characters_from(begin)
                else:
                    for second in range(0x80, 0xC0):
                        begin = bytes([lead, second]) + token
                        if _PARTS.fullmatch(begin) and len(begin) < length:
                            codes += characters_from(begin)
    return tuple(codes)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _grouped(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
