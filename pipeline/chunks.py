"""the ids of one answer -> Chunks of text, and an Answer made of them.

    id --tokenizer--> text --thinking--> reasoning | answer --stops--> Chunk

Blind spot: it does not know where ids come from, nor how many may still come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import bpe
import model
from pipeline.stops import StopTexts
from pipeline.thinking import ThinkingSplitter


@dataclass(frozen=True)
class Chunk:
    """A piece of the answer. text may be empty; finish_reason, on the last, is "stop" or "length".

    id is the one that was generated, None where the end of the allowed length only flushes text.
    reasoning is what it adds to the thinking, which is no part of the answer. token: the id with
    its log-probability and the likeliest others, where they were asked for.
    """

    text: str
    id: int | None = None
    finish_reason: str | None = None
    reasoning: str = ""
    token: model.Token | None = None


class Answer:
    """An answer: its Chunks as they come, each time from the first one on, and all of it at once.

    What is asked of all of it (text, reasoning, ids, tokens, finish_reason) first runs the model to
    the end. If that is interrupted, it is the answer so far, and finish_reason is None.
    """

    def __init__(self, chunks: Iterable[Chunk], stop_ids: frozenset[int] = frozenset()) -> None:
        self._coming, self._come = iter(chunks), []
        self._stop_ids = stop_ids

    def __iter__(self) -> Iterator[Chunk]:
        for place in count():
            if place == len(self._come):
                chunk = next(self._coming, None)
                if chunk is None:
                    return
                self._come.append(chunk)
            yield self._come[place]

    def __repr__(self) -> str:
        ends = [chunk.finish_reason for chunk in self._come if chunk.finish_reason]
        so_far = "".join(chunk.text for chunk in self._come)
        return f"Answer({so_far!r}, {ends[0] if ends else 'so far'})"

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self)

    @property
    def reasoning(self) -> str:
        """What was thought before; no part of the text."""
        return "".join(chunk.reasoning for chunk in self)

    @property
    def ids(self) -> list[int]:
        """What text and reasoning were decoded from, so without the id that stopped."""
        return [chunk.id for chunk in self._made()]

    @property
    def tokens(self) -> list[model.Token | None]:
        """For each of the ids its log-probabilities, None where none were asked for."""
        return [chunk.token for chunk in self._made()]

    @property
    def finish_reason(self) -> str | None:
        """Of the last chunk: "stop" or "length"."""
        return [None, *(chunk.finish_reason for chunk in self)][-1]

    def _made(self) -> Iterator[Chunk]:
        for chunk in self:
            is_end = chunk.finish_reason and chunk.id in self._stop_ids
            if chunk.id is not None and not is_end:
                yield chunk


class Composer:
    """The ids of one answer in, a Chunk for each out."""

    def __init__(
        self,
        text: bpe.tokenizer.Stream,
        stops: StopTexts,
        splitter: ThinkingSplitter | None,
        stop_ids: frozenset[int],
        think_budget: int | None = None,
    ) -> None:
        self._text, self._stops, self._splitter = text, stops, splitter
        self._stop_ids = stop_ids
        self._think_budget = think_budget  # the most ids of reasoning
        self.num_reasoning_tokens = 0

    @property
    def is_thinking(self) -> bool:
        """Whether the ids so far end inside the reasoning."""
        return self._splitter is not None and self._splitter.is_thinking

    @property
    def is_budget_spent(self) -> bool:
        """Whether the reasoning is open still and must be closed now."""
        budget = self._think_budget
        return budget is not None and self.is_thinking and self.num_reasoning_tokens >= budget

    def push(self, one: int | model.Token) -> Chunk:
        """The next id; with a finish_reason where it, or a stop text, ends the answer."""
        id, token = (one.id, one) if isinstance(one, model.Token) else (one, None)
        if id in self._stop_ids:
            return self.finish("stop", id, token)
        was_thinking = self.is_thinking
        reasoning, text = self._split(self._text.push(id))
        self.num_reasoning_tokens += was_thinking and self.is_thinking  # not the tags themselves
        text = self._stops.push(text)
        return Chunk(text, id, "stop" if self._stops.is_found else None, reasoning, token)

    def close_thinking(self, closing: Sequence[int]) -> list[Chunk]:
        """The ids that end the reasoning in the model's stead; they are no part of it."""
        num_reasoning_tokens, self._think_budget = self.num_reasoning_tokens, None
        chunks = [self.push(id) for id in closing]
        self.num_reasoning_tokens = num_reasoning_tokens
        return chunks

    def finish(self, reason: str, id: int | None = None, token: model.Token | None = None) -> Chunk:
        """The end: all that was held back."""
        reasoning, text = self._split(self._text.finish())
        if self._splitter:
            last_reasoning, last_text = self._splitter.finish()
            reasoning, text = reasoning + last_reasoning, text + last_text
        text = self._stops.push(text)
        if self._stops.is_found:
            return Chunk(text, id, "stop", reasoning, token)
        return Chunk(text + self._stops.finish(), id, reason, reasoning, token)

    def _split(self, text: str) -> tuple[str, str]:
        return self._splitter.push(text) if self._splitter else ("", text)
