"""text -> stretches of text, and the added tokens cut out between them.

Matching is leftmost-longest, first on the raw text for tokens with normalized=False, then on each
normalized stretch for the others, as Hugging Face tokenizers does. Blind spot: it does not know
pieces, merges or the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import regex

from bpe.encoding.literals import Literals
from bpe.encoding.unicode16 import with_unicode16_classes
from bpe.spec import AddedToken

# A single_word token does not match beside one of these: Unicode's word characters and joiners.
_WORD = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]")
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)  # the 25 characters of the property White_Space
_SPACE_AFTER = regex.compile(r"\s*")

Stretch = str | AddedToken


class AddedTokens:
    """The added tokens of one tokenizer, to be searched for in two passes."""

    def __init__(
        self,
        tokens: Iterable[AddedToken],
        normalize: Callable[[str], str],
        as_classed: Callable[[str], str] = with_unicode16_classes,
    ) -> None:
        """as_classed maps a character to one that is in the classes it shall be taken to be in.

        Raises ValueError where two tokens are one after normalization, or one is nothing.
        """
        tokens = tuple(tokens)
        self.by_text = {token.content: token for token in tokens}
        self._special_by_text = {token.content: token for token in tokens if token.special}
        self.special = frozenset(self._special_by_text.values())
        self.by_bytes = {token.content.encode(): token for token in tokens}
        self._normalize = normalize
        self.raw = Pass({t.content: t for t in tokens if not t.normalized}, as_classed)
        self.normalized = Pass(_by_normalized_text(tokens, normalize), as_classed)

    def forbidden(self, allowed_special: str | Collection[str]) -> Collection[AddedToken]:
        """The special tokens that stay text where encode is told to allow these."""
        if allowed_special == "all":
            return ()
        if allowed_special == "none":
            return self.special
        if isinstance(allowed_special, str):
            raise ValueError(
                f'allowed_special={allowed_special!r} is neither "all" nor "none"; '
                f"to allow one token pass {{{allowed_special!r}}}"
            )
        allowed = frozenset(allowed_special)
        unknown = allowed - self._special_by_text.keys()
        if unknown:
            raise ValueError(f"{min(unknown)!r} in allowed_special is no special token here")
        return self.special.difference(map(self._special_by_text.get, allowed))

    def cut(self, text: str, forbidden: Collection[AddedToken] = ()) -> Iterator[Stretch]:
        """Yield normalized stretches of text and the added tokens between them.

        The text of a forbidden token stays text; no shorter token is looked for inside it.
        """
        for start, stop, token in self.raw.spans(text, forbidden):
            if token:
                yield token
                continue
            normalized = self._normalize(text[start:stop])
            if normalized and not self.normalized.tokens:  # the usual case, made short
                yield normalized
                continue
            for first, last, inner in self.normalized.spans(normalized, forbidden):
                yield inner or normalized[first:last]

    def cut_at(
        self, places: Iterable[tuple[int, int]], text: str, forbidden: Collection[AddedToken]
    ) -> Iterator[Stretch]:
        """cut, but what stands at one of the places is a token though it is forbidden."""
        found = ((*place, self.by_text[text[slice(*place)]]) for place in places)
        for start, stop, token in self.raw.covering(text, found):
            if token:
                yield token
            else:
                yield from self.cut(text[start:stop], forbidden)


def _by_normalized_text(
    tokens: Iterable[AddedToken], normalize: Callable[[str], str]
) -> dict[str, AddedToken]:
    """The tokens with normalized=True by what is left of their text."""
    found: dict[str, AddedToken] = {}
    for token in tokens:
        if not token.normalized or not token.content:
            continue
        text = normalize(token.content)
        if not text:
            raise ValueError(
                f"normalization leaves nothing of the added token {token.content!r}, so it would "
                "match everywhere"
            )
        if found.setdefault(text, token) is not token:
            raise ValueError(
                f"the added tokens {found[text].content!r} and {token.content!r} are both {text!r} "
                "after normalization, so it is undefined which of them a text holds"
            )
    return found


class Pass:
    """One leftmost-longest search for a set of literal texts."""

    def __init__(self, tokens: dict[str, AddedToken], as_classed: Callable[[str], str]) -> None:
        self.tokens = tokens
        self._as_classed = as_classed
        self._literals = Literals(tokens)

    def spans(
        self, text: str, forbidden: Collection[AddedToken]
    ) -> Iterator[tuple[int, int, AddedToken | None]]:
        """(start, stop, the token that matches there or None), covering the whole text."""
        found = (
            (start, start + len(content), self.tokens[content])
            for start, content in self._literals.find(text)
        )
        return self.covering(text, (one for one in found if one[2] not in forbidden))

    def covering(
        self, text: str, found: Iterable[tuple[int, int, AddedToken]]
    ) -> Iterator[tuple[int, int, AddedToken | None]]:
        """The same for tokens that were found, as far as their flags accept the place."""
        end = 0  # of the last accepted match
        for start, stop, token in found:
            if token.single_word and self._is_in_word(text, start, stop):
                continue
            if token.lstrip:  # white space that the token before has swallowed stays with it
                start = max(end, end + len(text[end:start].rstrip(WHITE_SPACE)))
            if token.rstrip:
                stop = _SPACE_AFTER.match(text, stop).end()
            if stop <= start:  # nothing is left of a token that is white space itself
                continue
            if end < start:
                yield end, start, None
            yield start, stop, token
            end = stop
        if end < len(text):
            yield end, len(text), None

    def _is_in_word(self, text: str, start: int, stop: int) -> bool:
        beside = text[max(start - 1, 0) : start], text[stop : stop + 1]
        return any(_WORD.match(self._as_classed(char)) for char in beside)
