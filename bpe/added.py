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
_SPACE_BEFORE = regex.compile(r"\s*\Z")
_SPACE_AFTER = regex.compile(r"\s*")

Stretch = str | AddedToken


class AddedTokens:
    """The added tokens of one tokenizer, compiled to one regex per pass."""

    def __init__(self, tokens: Iterable[AddedToken], normalize: Callable[[str], str]) -> None:
        tokens = tuple(tokens)
        self.texts = [token.content for token in tokens]
        self.by_bytes = {token.content.encode(): token for token in tokens}
        self._normalize = normalize
        self._raw = _Pass({t.content: t for t in tokens if not t.normalized})
        self._normalized = _Pass({normalize(t.content): t for t in tokens if t.normalized})

    def cut(self, text: str, forbidden: Collection[AddedToken] = ()) -> Iterator[Stretch]:
        """Yield normalized stretches of text and the added tokens between them.

        The text of a forbidden token stays text; no shorter token is looked for inside it.
        """
        for raw in self._raw.cut(text, forbidden):
            if isinstance(raw, AddedToken):
                yield raw
            else:
                yield from self._normalized.cut(self._normalize(raw), forbidden)


class _Pass:
    """One leftmost-longest search for a set of literal texts."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self._tokens = tokens
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = regex.compile("|".join(map(regex.escape, longest_first)))

    def cut(self, text: str, forbidden: Collection[AddedToken]) -> Iterator[Stretch]:
        end = 0  # of the last accepted match
        for match in self._pattern.finditer(text) if self._tokens else ():
            token = self._tokens[match[0]]
            if token in forbidden or (token.single_word and _is_in_word(text, *match.span())):
                continue
            start, stop = match.span()
            if token.lstrip:  # white space that the token before has swallowed stays with it
                start = max(end, _SPACE_BEFORE.search(text, end, start).start())
            if token.rstrip:
                stop = _SPACE_AFTER.match(text, stop).end()
            if end < start:
                yield text[end:start]
            yield token
            end = stop
        if end < len(text):
            yield text[end:]


def _is_in_word(text: str, start: int, stop: int) -> bool:
    return bool(
        (start and _WORD_BEFORE.match(text, start - 1, start)) or _WORD_AFTER.match(text, stop)
    )
