"""text in pieces -> the same text up to the first stop text, however the pieces are cut.

Blind spot: it does not know ids. What it holds back is only what may still begin a stop text.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """push() pieces until is_found, then nothing more; finish() gives what was held back.

    Of several stop texts the one that is complete first counts, and of those that end together
    the longest: so the outcome doesn't depend on where pieces begin and end.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop text."""
        if isinstance(stops, str) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError(f"stop texts must be a list of texts, none of them empty: {stops!r}")
        self._stops = tuple(stops)
        self._held = ""
        self.is_found = False

    def push(self, piece: str) -> str:
        """What surely comes before any stop text."""
        text = self._held + piece
        spans = [(text.find(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if spans:
            end, length = min(spans)
            self._held, self.is_found = "", True
            return text[: end + length]
        kept = len(text) - self._num_doubtful(text)
        self._held = text[kept:]
        return text[:kept]

    def finish(self) -> str:
        """What was held back in vain."""
        held, self._held = self._held, ""
        return held

    def _num_doubtful(self, text: str) -> int:
        """The length of the longest end of text that a stop text begins with."""
        longest = max(map(len, self._stops), default=1) - 1
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(s.startswith(text[-n:]) for s in self._stops)), 0)
