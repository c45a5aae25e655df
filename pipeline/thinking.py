"""an answer's text in pieces -> (reasoning, answer) in pieces, divided at <think> and </think>.

Only an answer that begins with <think>, or whose prompt ended inside it, has reasoning; later
tags are text. The line breaks around the tags belong to neither part.

Blind spot: it does not know whether the model was asked to think.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"
CUT_SHORT = f"\n{CLOSE}\n\n"  # what ends the reasoning when its budget is spent


def is_left_open(text: str) -> bool:
    """Whether text ends inside <think> ... </think>.

    >>> is_left_open("assistant\\n<think>\\n"), is_left_open("<think>\\n\\n</think>\\n\\n")
    (True, False)
    """
    return text.rfind(OPEN) > text.rfind(CLOSE)


class ThinkingSplitter:
    """push() pieces, then finish(); each gives (reasoning, answer), often one of them empty."""

    def __init__(self, *, is_thinking: bool = False) -> None:
        """is_thinking: the prompt has opened the reasoning already."""
        self._part = self._reasoning if is_thinking else self._beginning
        self._held = ""
        self._is_blank = True  # nothing but white space in this part so far

    @property
    def is_thinking(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        return self._part == self._reasoning

    def push(self, piece: str) -> tuple[str, str]:
        """What the piece adds to the reasoning and to the answer."""
        text, self._held = self._held + piece, ""
        return self._part(text) if text else ("", "")

    def finish(self) -> tuple[str, str]:
        """What was held back: an unfinished tag was text after all."""
        held, self._held = self._held, ""
        return (self._clean(held.rstrip()), "") if self.is_thinking else ("", held)

    def _beginning(self, text: str) -> tuple[str, str]:
        """As long as the answer may still begin with <think>."""
        stripped = text.lstrip()
        if stripped.startswith(OPEN):
            self._part = self._reasoning
            return self.push(stripped[len(OPEN) :])
        if OPEN.startswith(stripped):
            self._held = text
            return "", ""
        self._part = self._answer
        return "", text

    def _reasoning(self, text: str) -> tuple[str, str]:
        before, tag, after = text.partition(CLOSE)
        if tag:
            self._part = self._after_tag
            answer = self.push(after)[1]
            return self._clean(before.rstrip()), answer
        kept = len(text) - _num_tag(text)
        kept = len(text[:kept].rstrip())
        self._held = text[kept:]
        return self._clean(text[:kept]), ""

    def _clean(self, text: str) -> str:
        """Reasoning without the line breaks that follow <think>."""
        text = text.lstrip() if self._is_blank else text
        self._is_blank = self._is_blank and not text
        return text

    def _after_tag(self, text: str) -> tuple[str, str]:
        text = text.lstrip()
        if text:
            self._part = self._answer
        return "", text

    def _answer(self, text: str) -> tuple[str, str]:
        return "", text


def _num_tag(text: str) -> int:
    """How many of the last characters may begin </think>."""
    lengths = range(min(len(CLOSE) - 1, len(text)), 0, -1)
    return next((n for n in lengths if CLOSE.startswith(text[-n:])), 0)
