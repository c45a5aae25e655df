"""a prompt in a cache, a drafter -> a stream of ids, always one step ahead of the reader.

The only loop. While the reader handles one id, the step that follows it is already being computed;
only the first id is given out at once. Where a drafter has a guess, one pass checks all of it in
place of the step ahead: every id given out was drawn from the model's own logits after the ids
before it, so a wrong guess costs time and changes nothing.

Blind spot: where guesses come from, and what generate() refuses.

Source: checking drafts in one pass, Leviathan et al., arXiv:2211.17192; the drafts here are
certain of each id, and then their rejection scheme is to draw and to compare.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import mlx.core as mx

from model import cpu
from model.cache import SPARE, KVCache
from model.generation.sample import (
    History,
    Logprobs,
    Processor,
    Sampler,
    greedy,
    make_logprobs,
    process,
)
from model.transformer import Transformer

MAX_DRAFT = SPARE  # as many ids as a rotating cache can take back

# Two logits nearer than this may change places between a pass over one id and one over many. In
# float32 gaps were seen to change by 3e-5; of the others it is two steps of their last place.
TIE = {mx.float32: 1e-3, mx.float16: 0.03, mx.bfloat16: 0.25}


class Token(NamedTuple):
    """An id given out with natural logarithms of probabilities under the model itself.

    top: the likeliest ids at this place with theirs, likeliest first.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Drafter(Protocol):
    """What the loop asks. It is told all ids, of the prompt and given out, every time."""

    def propose(self, ids: Sequence[int], limit: int) -> list[int]:
        """At most `limit` ids that may follow; none where a plain step is the better bet."""

    def is_ready(self, ids: Sequence[int]) -> bool:
        """Whether propose() would probably draft after one more id: don't step ahead then."""

    def learn(self, num_drafted: int, num_right: int) -> None:
        """How the last draft fared."""


def stream(
    run: "Run",
    drafter: Drafter,
    *,
    step_size: int = 512,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Iterator[int] | Iterator[Token]:
    """Each round gives out the id of a plain step, or those of a draft that prove right.

    step_size, on_prefill: as generate() has them.
    """
    try:
        # The first id goes out before the next step begins: people wait for it most, and where
        # the device is the CPU that step would hold it up.
        yield from run.give(run.first(step_size, on_prefill).read())
        ahead, is_tied = None, False
        while run.num_left:
            draft = []
            if ahead is None and not is_tied:
                limit = min(run.num_left - 1, MAX_DRAFT)
                draft = drafter.propose(run.ids, limit)[:limit]
            if draft:
                given, num_right, is_tied = run.check(draft)
                drafter.learn(len(draft), num_right)
                yield from run.give(given)
                continue
            current, ahead, is_tied = ahead or run.plain(run.last()), None, False
            if run.num_left > 1 and not drafter.is_ready(run.ids):
                ahead = run.plain(current.ids[None])
            yield from run.give(current.read())
    finally:
        run.align()


@dataclass
class Run:
    """One generation: what it works with, and how far it has come."""

    m: Transformer
    cache: list[KVCache]
    prompt: list[int]  # to be read, after what the cache holds
    num_valid: int  # ids there are
    num_left: int  # ids to give out still
    cached_ids: Sequence[int] = ()
    sampler: Sampler = greedy
    processors: Sequence[Processor] = ()
    num_top: int | None = None

    def __post_init__(self) -> None:
        self.ids = [*self.cached_ids, *self.prompt]  # and later those given out
        self.num_held = self.cache[0].offset + len(self.prompt)  # positions of these in the cache
        nothing = mx.zeros(0, dtype=mx.int32)
        self._history = History(mx.array(self.ids, dtype=mx.int32), nothing)

    def first(self, step_size: int, on_prefill: Callable[[int, int], None] | None) -> "Drawn":
        """Read the prompt, so many ids a pass; -> the id after its last, computed."""
        done, num_ids = on_prefill or _ignore, len(self.prompt)
        chunks = [self.prompt[start : start + step_size] for start in range(0, num_ids, step_size)]
        for number, chunk in enumerate(chunks[:-1], start=1):
            cpu.adapt()
            self.m.hidden(mx.array([chunk]), self.cache)
            mx.eval([layer.state for layer in self.cache])  # all that this pass is for
            done(number * step_size, num_ids)
        drawn = self.plain(mx.array([chunks[-1]]))
        drawn.wait()
        done(num_ids, num_ids)
        return drawn

    def plain(self, new: mx.array) -> "Drawn":
        """new (1, L) -> the id after its last, enqueued but not awaited."""
        drawn = self._draw(new, ())
        self._note(drawn.ids)
        return drawn

    def check(self, draft: list[int]) -> tuple[list, int, bool]:
        """-> what to give out: the ids of the draft that are right and the one that follows them;
        how many are right; whether the last place was too close to call, so that nothing follows.
        """
        drawn = self._draw(mx.array([[self.ids[-1], *draft]]), draft)
        read, sure = drawn.read(), drawn.read_sure()
        ids = drawn.ids.tolist()
        num_right, last = 0, len(draft)
        while num_right < last and sure[num_right] and ids[num_right] == draft[num_right]:
            num_right += 1
        is_tied = not sure[num_right]
        # The last id given out isn't in the cache: where nothing follows, that is one more.
        for layer in self.cache:
            layer.trim(len(draft) - num_right + is_tied)
        given = read[: num_right + (not is_tied)]
        self._note(mx.array(ids[: len(given)], dtype=mx.int32))
        return given, num_right, is_tied

    def give(self, read: list) -> Iterator:
        """Give out ids or Tokens, and count them before they are out."""
        for one in read:
            self.ids.append(one if self.num_top is None else one.id)
            self.num_held += 1
            self.num_left -= 1
            yield one

    def last(self) -> mx.array:
        """The last id given out (1, 1)."""
        return mx.array([self.ids[-1:]])

    def align(self) -> None:
        """Forget what only some layers hold, after an interruption in the middle of a pass, and
        what the reader hasn't got."""
        held = min(layer.offset for layer in self.cache)
        held = min(held, self.num_held)
        if any(layer.offset - held > layer.trimmable for layer in self.cache):
            held = 0
        for layer in self.cache:
            layer.trim(layer.offset - held)

    def _draw(self, new: mx.array, draft: Sequence[int]) -> "Drawn":
        """new (1, L) -> an id after each of the last 1 + len(draft), enqueued but not awaited."""
        cpu.adapt()
        hidden = self.m.hidden(new, self.cache)[0, -1 - len(draft) :]  # (n, width)
        logits = self.m.head(hidden)[:, : self.num_valid]  # the head for no other positions
        processed = self._process(logits, draft) if self.processors else logits
        ids = self.sampler(processed)  # (n,)
        logprobs = None if self.num_top is None else make_logprobs(logits, ids, self.num_top)
        sure = _is_sure(processed, TIE[logits.dtype]) if draft and self.sampler is greedy else None
        drawn = Drawn(ids, logprobs, sure)
        mx.async_eval(*drawn.arrays())
        return drawn

    def _process(self, logits: mx.array, draft: Sequence[int]) -> mx.array:
        """Each row after the ids that come before its place."""
        prompt, generated = self._history
        rows = []
        for row in range(len(draft) + 1):
            before = mx.array(draft[:row], dtype=mx.int32)
            history = History(prompt, mx.concatenate([generated, before]))
            rows.append(process(self.processors, history, logits[row : row + 1]))
        return mx.concatenate(rows)

    def _note(self, ids: mx.array) -> None:
        if self.processors:
            prompt, generated = self._history
            self._history = History(prompt, mx.concatenate([generated, ids.astype(mx.int32)]))


class Drawn(NamedTuple):
    """The outcome of one pass: an id for each of n places, not computed yet."""

    ids: mx.array  # (n,)
    logprobs: Logprobs | None
    sure: (
        mx.array | None
    )  # (n,) whether no other id is nearly as likely; None where it is no matter

    def arrays(self) -> list[mx.array]:
        return [one for one in (self.ids, *(self.logprobs or ()), self.sure) if one is not None]

    def wait(self) -> None:
        mx.eval(self.arrays())

    def read(self) -> list[int] | list[Token]:
        ids = self.ids.tolist()
        if self.logprobs is None:
            return ids
        chosen, top_ids, top = (array.tolist() for array in self.logprobs)
        tops = [tuple(zip(*pair)) for pair in zip(top_ids, top)]
        return [Token(*fields) for fields in zip(ids, chosen, tops)]

    def read_sure(self) -> list[bool]:
        return [True] * self.ids.size if self.sure is None else self.sure.tolist()


def _is_sure(logits: mx.array, tie: float) -> mx.array:
    """Whether rounding can't make another id the likeliest (n,)."""
    near = logits >= logits.max(axis=-1, keepdims=True) - tie
    return near.sum(axis=-1) == 1


def _ignore(*_: object) -> None:
    pass
