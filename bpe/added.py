"""text -> stretches of text, and the added tokens cut out between them.

Matching is leftmost-longest, first on the raw text for tokens with normalized=False, then on each
normalized stretch for the others, as Hugging Face tokenizers does. Blind spot: it does not know
pieces, merges or the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import regex

from bpe.spec import AddedToken

# A single_word token does not match beside one of these: Unicode's word characters and joiners.
_WORD_BEFORE = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]\Z")
_WORD_AFTER = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]")
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)  # the 25 characters of the property White_Space
_SPACE_AFTER = regex.compile(r"\s*")

Stretch = str | AddedToken


class AddedTokens:
    """The added tokens of one tokenizer, compiled to one regex per pass."""

    def __init__(self, tokens: Iterable[AddedToken], normalize: Callable[[str], str]) -> None:
        tokens = tuple(tokens)
        self.texts = [token.content for token in tokens]
        self.by_bytes = {token.content.encode(): token for token in tokens}
        self._normalize = normalize
        self.raw = Pass({t.content: t for t in tokens if not t.normalized})
        self.normalized = Pass({normalize(t.content): t for t in tokens if t.normalized})

    def cut(self, text: str, forbidden: Collection[AddedToken] = ()) -> Iterator[Stretch]:
        """Yield normalized stretches of text and the added tokens between them.

        The text of a forbidden token stays text; no shorter token is looked for inside it.
        """
        for start, stop, token in self.raw.spans(text, forbidden):
            if token:
                yield token
                continue
            normalized = self._normalize(text[start:stop])
            for first, last, inner in self.normalized.spans(normalized, forbidden):
                yield inner or normalized[first:last]


class Pass:
    """One leftmost-longest search for a set of literal texts."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self._tokens = tokens
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = regex.compile("|".join(map(regex.escape, longest_first)))

    def spans(
        self, text: str, forbidden: Collection[AddedToken]
    ) -> Iterator[tuple[int, int, AddedToken | None]]:
        """(start, stop, the token that matches there or None), covering the whole text."""
        end = 0  # of the last accepted match
        for match in self._pattern.finditer(text) if self._tokens else ():
            token = self._tokens[match[0]]
            if token in forbidden or (token.single_word and _is_in_word(text, *match.span())):
                continue
            start, stop = match.span()
            if token.lstrip:  # white space that the token before has swallowed stays with it
                start = end + len(text[end:start].rstrip(_WHITE_SPACE))
            if token.rstrip:
                stop = _SPACE_AFTER.match(text, stop).end()
            if end < start:
                yield end, start, None
            yield start, stop, token
            end = stop
        if end < len(text):
            yield end, len(text), None


def _is_in_word(text: str, start: int, stop: int) -> bool:
    return bool(
        (start and _WORD_BEFORE.match(text, start - 1, start)) or _WORD_AFTER.match(text, stop)
    )
