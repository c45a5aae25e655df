"""the ids of an answer as they come -> the same ids, counted and timed.

Blind spot: it does not know how the numbers are shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import model


@dataclass
class Statistics:
    """What one answer cost; filled while it is streamed. Times are wall clock."""

    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0  # the one that stops included
    prefill_seconds: float = 0.0  # also the time to the first token
    decode_seconds: float = 0.0
    num_cached_tokens: int = 0  # of the prompt, not read again
    num_reasoning_tokens: int = 0  # of those generated: between <think> and </think>

    @property
    def prefill_tokens_per_second(self) -> float:
        """Of the tokens that had to be read."""
        return _rate(self.num_prompt_tokens - self.num_cached_tokens, self.prefill_seconds)

    @property
    def decode_tokens_per_second(self) -> float:
        """Of the tokens after the first: the first comes out of the prefill."""
        return _rate(self.num_generated_tokens - 1, self.decode_seconds)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 and count > 0 else 0.0


def timed(
    generated: Iterator[int | model.Token], statistics: Statistics
) -> Iterator[int | model.Token]:
    """The same ids; statistics is up to date whenever one is given out."""
    last = time.perf_counter()
    for one in generated:
        now = time.perf_counter()
        if statistics.num_generated_tokens:
            statistics.decode_seconds += now - last
        else:
            statistics.prefill_seconds = now - last
        last = now
        statistics.num_generated_tokens += 1
        yield one
