"""prompt ids -> a stream of ids: chunked prefill, then always one step ahead of the reader.

The only loop. While the reader handles one id, the step that follows it is already being computed;
only the first id is given out at once.

Blind spot: it knows no text and no stop ids. Whoever reads stops by not asking further.
"""

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from model import blas
from model.cache import KVCache
from model.sample import Sampler, make_sampler
from model.transformer import Transformer


def generate(
    m: Transformer,
    ids: Sequence[int],
    *,
    max_tokens: int = 256,
    sampler: Sampler | None = None,
    cache: list[KVCache] | None = None,
    prefill_step_size: int = 512,
    vocab_size: int | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Iterator[int]:
    """-> the ids that follow `ids`, at most `max_tokens`, ending at the model's context.

    sampler: logits (1, V) -> ids (1,); greedy where None. cache: `ids` follow what it holds. It
    is extended in place; whenever the stream stands still it holds a beginning of prompt + ids
    given out, `cache[0].offset` long: all of it, or, after the first id and where the stream
    ended by itself, all but the last id. prefill_step_size: prompt ids per forward pass, which
    bounds memory. vocab_size: ids from there on only pad the embedding and are neither accepted
    nor given out. on_prefill: called with (prompt ids done, all prompt ids) after each pass.

    Raises ValueError, at the call, for an empty prompt, an id outside the vocabulary, or a prompt
    that leaves no room in the context.
    """
    ids = list(ids)
    cache = m.make_cache() if cache is None else cache
    num_valid = m.config.vocab_size if vocab_size is None else min(vocab_size, m.config.vocab_size)
    _check_cache(m, cache)
    _check_ids(ids, num_valid)
    room = _room(m, ids, cache[0].offset)
    if max_tokens < 0 or prefill_step_size < 1:
        raise ValueError(
            f"max_tokens must be at least 0 and prefill_step_size at least 1, got {max_tokens} and"
            f" {prefill_step_size}"
        )
    sampler = sampler or make_sampler(temperature=0)
    on_prefill = on_prefill or _ignore

    def step(new: mx.array) -> mx.array:
        """new (1, L) -> the next id (1,), enqueued but not awaited."""
        blas.adapt()
        last = m.hidden(new, cache)[:, -1]  # (1, width): the head is needed for one position
        following = sampler(m.head(last)[:, :num_valid])
        mx.async_eval(following)
        return following

    def stream() -> Iterator[int]:
        try:
            last = _prefill(m, ids, cache, prefill_step_size, on_prefill)
            current = step(last)  # (1,)
            mx.eval(current)
            on_prefill(len(ids), len(ids))
            num_steps = min(max_tokens, room) - 1
            # The first id goes out before the next step begins: people wait for it most, and
            # where the device is the CPU that step would hold it up.
            yield current.item()
            following = step(current[None]) if num_steps else None
            for remaining in range(num_steps - 1, -1, -1):
                current = following
                following = step(current[None]) if remaining else None
                yield current.item()
        finally:
            _align(cache)

    return stream() if max_tokens else iter(())


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
        blas.adapt()
        m.hidden(mx.array([chunk]), cache)
        mx.eval([layer.state for layer in cache])  # all that this pass is for
        on_prefill(number * step_size, len(ids))
    return mx.array([last])


def _align(cache: list[KVCache]) -> None:
    """After an interruption in the middle of a pass, forget what only some layers hold."""
    held = min(layer.offset for layer in cache)
    for layer in cache:
        layer.trim(layer.offset - held)


def _check_cache(m: Transformer, cache: list[KVCache]) -> None:
    if len(cache) != m.config.num_hidden_layers:
        raise ValueError(
            f"the cache has {len(cache)} layers and the model {m.config.num_hidden_layers};"
            " pass one from this model's make_cache()"
        )


def _check_ids(ids: list[int], num_valid: int) -> None:
    if not ids:
        raise ValueError("the prompt is empty: generation needs at least one id to start from")
    for index, one in enumerate(ids):
        if not 0 <= one < num_valid:
            raise ValueError(
                f"id {one} at index {index} of the prompt is outside the vocabulary of"
                f" {num_valid} ids; was it encoded by another model's tokenizer?"
            )


def _room(m: Transformer, ids: list[int], num_cached: int) -> int:
    """How many ids fit between the prompt and the context's end."""
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
