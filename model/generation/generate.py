"""prompt ids -> a stream of ids: chunked prefill, then always one step ahead of the reader.

The only loop. While the reader handles one id, the step that follows it is already being computed;
only the first id is given out at once. Where a drafter has a guess, one pass checks all of it in
place of the step ahead: every id given out was drawn from the model's own logits after the ids
before it, so a wrong guess costs time and changes nothing.

Blind spot: it knows no text and no stop ids. Whoever reads stops by not asking further.

Source: checking drafts in one pass, Leviathan et al., arXiv:2211.17192; the drafts here are
certain of each id, and then their rejection scheme is to draw and to compare.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import mlx.core as mx

from model import cpu
from model.arguments import check_layers, check_model, functions, id_list, shown, whole_number
from model.cache import KVCache
from model.generation.sample import (
    History,
    Logprobs,
    Processor,
    Sampler,
    greedy,
    make_logprobs,
    process,
)
from model.generation.speculative import MAX_DRAFT, Drafter, make_drafter
from model.transformer import Transformer

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


@overload
def generate(
    m: Transformer,
    ids: Sequence[int],
    *,
    max_tokens: int = 256,
    sampler: Sampler | None = None,
    processors: Sequence[Processor] = (),
    cache: list[KVCache] | None = None,
    cached_ids: Sequence[int] = (),
    draft: "str | Transformer | Drafter | None" = None,
    prefill_step_size: int = 512,
    vocab_size: int | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
    top_logprobs: None = None,
) -> Iterator[int]: ...


@overload
def generate(
    m: Transformer, ids: Sequence[int], *, top_logprobs: int, **options: Any
) -> Iterator[Token]: ...


def generate(
    m: Transformer,
    ids: Sequence[int],
    *,
    max_tokens: int = 256,
    sampler: Sampler | None = None,
    processors: Sequence[Processor] = (),
    cache: list[KVCache] | None = None,
    cached_ids: Sequence[int] = (),
    draft: "str | Transformer | Drafter | None" = None,
    prefill_step_size: int = 512,
    vocab_size: int | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
    top_logprobs: int | None = None,
) -> Iterator[int] | Iterator[Token]:
    """-> the ids that follow `ids`, at most `max_tokens`, ending at the model's context.

    sampler: logits (B, V) -> ids (B,); greedy where None. processors: change the logits before,
    see make_processors. cache: `ids` follow what it holds. It is extended in place; whenever the
    stream stands still it holds a beginning of prompt + ids given out, `cache[0].offset` long: all
    of it, or, after the first id and where the stream ended by itself, all but the last id.
    cached_ids: what the cache holds, for processors and drafts, which otherwise see `ids` only.
    draft: "ngram" to guess that earlier text repeats, or a smaller model with the same vocabulary.
    Greedy ids are the same without; samples come from the same distribution, but by other draws.
    While a draft's ids are given out, the cache is ahead of the reader until the stream ends or is
    closed. prefill_step_size: prompt ids per forward pass, which bounds memory. vocab_size: ids
    from there on only pad the embedding and are neither accepted nor given out. on_prefill: called
    with (prompt ids done, all prompt ids) after each pass. top_logprobs: give out Tokens, ids with
    their log-probabilities and so many alternatives (0 for none), in place of ids.

    Raises ValueError, at the call, for an empty prompt, an id outside the vocabulary, or a prompt
    that leaves no room in the context, and TypeError for a text in the place of ids and the like.
    """
    check_model(m)
    ids, cached_ids = id_list(ids), id_list(cached_ids, "cached_ids")
    cache = m.make_cache() if cache is None else cache
    num_valid = num_ids(m, vocab_size)
    _check_cache(m, cache)
    check_ids([*cached_ids, *ids] if ids else ids, num_valid)
    check_numbers(max_tokens, prefill_step_size, top_logprobs, num_valid)
    num_left = min(max_tokens, room_after(m, ids, cache[0].offset))
    drafter = make_drafter(draft, m, num_valid)
    run = _Run(
        m=m,
        cache=cache,
        sampler=checked_sampler(sampler),
        processors=functions("processors", processors),
        num_valid=num_valid,
        num_top=top_logprobs,
        ids=[*cached_ids, *ids],
        num_held=cache[0].offset + len(ids),
        num_left=num_left,
    )

    def first() -> _Drawn:
        done = on_prefill or _ignore
        drawn = run.plain(_prefill(m, ids, cache, prefill_step_size, done))
        drawn.wait()
        done(len(ids), len(ids))
        return drawn

    return _stream(run, first, drafter) if max_tokens else iter(())


def _stream(
    run: "_Run", first: "Callable[[], _Drawn]", drafter: Drafter
) -> Iterator[int] | Iterator[Token]:
    """Each round gives out the id of a plain step, or those of a draft that prove right."""
    try:
        # The first id goes out before the next step begins: people wait for it most, and where
        # the device is the CPU that step would hold it up.
        yield from run.give(first().read())
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
class _Run:
    """One generation: what it works with, and how far it has come."""

    m: Transformer
    cache: list[KVCache]
    sampler: Sampler
    processors: list[Processor]
    num_valid: int
    num_top: int | None
    ids: list[int]  # of the prompt and given out
    num_held: int  # positions that these take in the cache
    num_left: int  # ids to give out still

    def __post_init__(self) -> None:
        nothing = mx.zeros(0, dtype=mx.int32)
        self._history = History(mx.array(self.ids, dtype=mx.int32), nothing)

    def plain(self, new: mx.array) -> "_Drawn":
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

    def _draw(self, new: mx.array, draft: Sequence[int]) -> "_Drawn":
        """new (1, L) -> an id after each of the last 1 + len(draft), enqueued but not awaited."""
        cpu.adapt()
        hidden = self.m.hidden(new, self.cache)[0, -1 - len(draft) :]  # (n, width)
        logits = self.m.head(hidden)[:, : self.num_valid]  # the head for no other positions
        processed = self._process(logits, draft) if self.processors else logits
        ids = self.sampler(processed)  # (n,)
        logprobs = None if self.num_top is None else make_logprobs(logits, ids, self.num_top)
        sure = _is_sure(processed, TIE[logits.dtype]) if draft and self.sampler is greedy else None
        drawn = _Drawn(ids, logprobs, sure)
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


class _Drawn(NamedTuple):
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


def _prefill(
    m: Transformer,
    ids: list[int],
    cache: list[KVCache],
    step_size: int,
    on_prefill: Callable[[int, int], None],
) -> mx.array:
    """Feed all of the prompt but its last pass; -> the ids of that one (1, L)."""
    *chunks, last = (ids[start : start + step_size] for start in range(0, len(ids), step_size))
    for number, chunk in enumerate(chunks, start=1):
        cpu.adapt()
        m.hidden(mx.array([chunk]), cache)
        mx.eval([layer.state for layer in cache])  # all that this pass is for
        on_prefill(number * step_size, len(ids))
    return mx.array([last])


def _check_cache(m: Transformer, cache: list[KVCache]) -> None:
    check_layers(cache)
    if len(cache) != m.config.num_hidden_layers:
        raise ValueError(
            f"the cache has {len(cache)} layers and the model {m.config.num_hidden_layers};"
            " pass one from this model's make_cache()"
        )


def num_ids(m: Transformer, vocab_size: int | None) -> int:
    """How many ids there are, where the embedding may have rows that only pad it."""
    rows = m.config.vocab_size
    return rows if vocab_size is None else min(whole_number("vocab_size", vocab_size), rows)


def checked_sampler(sampler: Sampler | None) -> Sampler:
    if sampler is not None and not callable(sampler):
        raise TypeError(f"the sampler must be a function, see make_sampler; got {shown(sampler)}")
    return sampler or greedy


def check_ids(ids: list[int], num_valid: int) -> None:
    """Refuse an empty prompt and ids outside the vocabulary."""
    if not ids:
        raise ValueError("the prompt is empty: generation needs at least one id to start from")
    for index, one in enumerate(ids):
        if not 0 <= one < num_valid:
            raise ValueError(
                f"id {one} at index {index} of the prompt is outside the vocabulary of"
                f" {num_valid} ids; was it encoded by another model's tokenizer?"
            )


def check_numbers(
    max_tokens: int, prefill_step_size: int, top_logprobs: int | None, num_valid: int
) -> None:
    """Refuse numbers that make no sense."""
    whole_number("max_tokens", max_tokens)
    whole_number("prefill_step_size", prefill_step_size)
    if top_logprobs is not None:
        whole_number("top_logprobs", top_logprobs)
    if max_tokens < 0 or prefill_step_size < 1:
        raise ValueError(
            f"max_tokens must be at least 0 and prefill_step_size at least 1, got {max_tokens} and"
            f" {prefill_step_size}"
        )
    if not 0 <= (top_logprobs or 0) <= num_valid:
        raise ValueError(
            f"top_logprobs must be between 0 and the {num_valid} ids there are, got {top_logprobs}"
        )


def room_after(m: Transformer, ids: list[int], num_cached: int) -> int:
    """How many ids fit between the prompt and the context's end; at least one, or ValueError."""
    context = m.config.context
    room = context - num_cached - len(ids)
    if room < 1:
        cached = f" after {num_cached} cached ones" if num_cached else ""
        raise ValueError(
            f"a prompt of {len(ids)} ids{cached} leaves no room in the model's context of"
            f" {context} positions; shorten it"
        )
    return room


def _ignore(*_: object) -> None:
    pass
