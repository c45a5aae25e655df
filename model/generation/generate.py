"""prompt ids -> a stream of ids: what is asked for, checked at the call, and then the loop.

Blind spot: it knows no text and no stop ids. Whoever reads stops by not asking further.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from model.arguments import check_layers, check_model, functions, id_list, shown, whole_number
from model.cache import KVCache
from model.generation.loop import Drafter, Run, Token, stream
from model.generation.sample import Processor, Sampler, greedy
from model.generation.speculative import make_drafter
from model.transformer import Transformer


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
    draft: str | Transformer | Drafter | None = None,
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
    draft: str | Transformer | Drafter | None = None,
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
    run = Run(
        m=m,
        cache=cache,
        prompt=ids,
        num_valid=num_valid,
        num_left=num_left,
        cached_ids=cached_ids,
        sampler=checked_sampler(sampler),
        processors=functions("processors", processors),
        num_top=top_logprobs,
    )
    come = stream(run, drafter, step_size=prefill_step_size, on_prefill=on_prefill)
    return come if max_tokens else iter(())


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
