"""logits -> ids: biases and penalties, then temperature, top-k, top-p, min-p, with its own seed.

    history, logits --processors--> logits --sampler--> ids

A processor looks at the ids so far, a sampler doesn't. Every filter of the sampler is a threshold
on the scaled logits, so the filters compose by taking the highest, and ids that tie with the last
one kept are kept too. Nothing is read back: the closures only add to MLX's lazy graph.

Blind spot: it doesn't know what the ids mean.

Sources: top-p, Holtzman et al., arXiv:1904.09751; min-p, Nguyen et al., arXiv:2407.01082;
repetition penalty, Keskar et al., arXiv:1909.05858; presence and frequency penalties and logit
bias as OpenAI's API documents them; the order is that of transformers' generate.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import mlx.core as mx

from model.arguments import number, shown

GREEDY_BELOW = 1e-5  # a lower temperature leaves the likeliest id alone, and overflows float32

_SMALLEST = 2.0**-126  # the smallest normal float32

Sampler = Callable[[mx.array], mx.array]  # logits (B, V) -> ids (B,)


def make_sampler(
    *,
    temperature: float = 0.6,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
) -> Sampler:
    """-> a closure: logits (B, V) -> ids (B,).

    temperature: 0 (or below 1e-5) is argmax, and the other options then change nothing. top_k:
    keep the k most likely ids, 0 for all. top_p: keep the fewest most likely ids whose
    probabilities reach top_p. min_p: drop ids less likely than min_p times the likeliest. seed:
    the same seed gives the same draws; None takes one from the system.
    Raises ValueError for a value outside its range.
    """
    _check(temperature, top_k, top_p, min_p, seed)
    if temperature < GREEDY_BELOW:
        return greedy
    key = mx.random.key(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def sample(logits: mx.array) -> mx.array:
        nonlocal key
        key, now = mx.random.split(key)
        logits = logits.astype(mx.float32) / temperature  # (B, V)
        kept = keep_likely(logits, top_k, top_p, min_p)
        return mx.random.categorical(kept, key=now)

    return sample


def greedy(logits: mx.array) -> mx.array:
    """The likeliest id of each row, the first of those that tie."""
    return mx.argmax(logits, axis=-1)


def keep_likely(logits: mx.array, top_k: int, top_p: float, min_p: float) -> mx.array:
    """logits (B, V) with -inf for every id that a filter drops."""
    V = logits.shape[-1]
    best = logits  # the candidates that may have to be sorted; few of them after top-k
    if 0 < top_k < V:
        best = mx.topk(logits, top_k, axis=-1)  # (B, k), in no order
        logits = _drop_below(logits, best.min(axis=-1, keepdims=True))
    if top_p < 1:
        logits = _drop_below(logits, _top_p_threshold(logits, best, top_p))
    if min_p > 0:
        logits = _drop_below(logits, logits.max(axis=-1, keepdims=True) + math.log(min_p))
    return logits


def _top_p_threshold(logits: mx.array, best: mx.array, top_p: float) -> mx.array:
    """The lowest logit kept (B, 1): ids more likely than it don't reach top_p together."""
    ranked = -mx.sort(-best, axis=-1)  # (B, k), likeliest first
    probabilities = mx.exp(ranked - mx.logsumexp(logits, axis=-1, keepdims=True))
    before = mx.cumsum(probabilities, axis=-1, inclusive=False)
    top_p = max(top_p, _SMALLEST)  # or it becomes 0 in float32, and not even the likeliest is kept
    return mx.where(before < top_p, ranked, mx.inf).min(axis=-1, keepdims=True)


def _drop_below(logits: mx.array, threshold: mx.array) -> mx.array:
    return mx.where(logits < threshold, -mx.inf, logits)


# --- processors --------------------------------------------------------------------------------


class History(NamedTuple):
    """The ids so far, as arrays of int32 that may not be computed yet."""

    prompt: mx.array  # (P,)
    generated: mx.array  # (G,)

    @property
    def ids(self) -> mx.array:
        """Both (P + G,)."""
        return mx.concatenate([self.prompt, self.generated])


Processor = Callable[[History, mx.array], mx.array]  # logits (1, V) -> logits (1, V)


def make_processors(
    *,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
) -> list[Processor]:
    """-> what changes the logits before the sampler sees them, in the order of application.

    logit_bias: id -> what to add to its logit; -inf forbids it. repetition_penalty: divides the
    positive logits of ids in the prompt or generated, and multiplies the negative ones; 1 is off.
    presence_penalty, frequency_penalty: subtracted from the logits of ids already generated, once
    and once per occurrence; the prompt doesn't count; 0 is off.
    Raises ValueError for a value outside its range.
    """
    _check_penalties(repetition_penalty, presence_penalty, frequency_penalty)
    processors = []
    if logit_bias:
        processors.append(_add_bias(logit_bias))
    if repetition_penalty != 1:
        processors.append(_penalize_repetition(repetition_penalty))
    if presence_penalty or frequency_penalty:
        processors.append(_penalize_generated(presence_penalty, frequency_penalty))
    return processors


def process(processors: Sequence[Processor], history: History, logits: mx.array) -> mx.array:
    """logits (1, V) after all processors, in float32."""
    logits = logits.astype(mx.float32)
    for processor in processors:
        logits = processor(history, logits)
    return logits


def _add_bias(logit_bias: Mapping[int, float]) -> Processor:
    if not isinstance(logit_bias, Mapping):
        raise TypeError(f"logit_bias must be a dict, id -> bias, got {shown(logit_bias)}")
    for one, bias in logit_bias.items():
        number(f"logit_bias of id {one}", bias)
        if isinstance(one, bool) or not isinstance(one, int) or one < 0:
            raise ValueError(f"logit_bias is for ids, whole numbers from 0 on, got {one!r}")
        if not (math.isfinite(bias) or bias == -math.inf):
            raise ValueError(f"logit_bias of id {one} must be finite or -inf, got {bias!r}")
    highest, ids = max(logit_bias), mx.array(list(logit_bias))
    biases = mx.array(list(logit_bias.values()), dtype=mx.float32)

    def add(history: History, logits: mx.array) -> mx.array:
        V = logits.shape[-1]
        if highest >= V:
            raise ValueError(f"logit_bias names id {highest}, but the vocabulary has only {V} ids")
        return logits.at[:, ids].add(biases)

    return add


def _penalize_repetition(penalty: float) -> Processor:
    def penalize(history: History, logits: mx.array) -> mx.array:
        seen = _counts(history.ids, logits) > 0  # (V,)
        return mx.where(
            seen, mx.where(logits < 0, logits * penalty, logits * (1 / penalty)), logits
        )

    return penalize


def _penalize_generated(presence: float, frequency: float) -> Processor:
    def penalize(history: History, logits: mx.array) -> mx.array:
        counts = _counts(history.generated, logits)  # (V,)
        return logits - frequency * counts - presence * (counts > 0)

    return penalize


def _counts(ids: mx.array, logits: mx.array) -> mx.array:
    """How often each id of the vocabulary occurs (V,)."""
    return mx.zeros(logits.shape[-1]).at[ids].add(1)


# --- log-probabilities -------------------------------------------------------------------------


class Logprobs(NamedTuple):
    """Natural logarithms of probabilities under the model itself: before biases and filters."""

    chosen: mx.array  # (B,)
    top_ids: mx.array  # (B, k), likeliest first
    top: mx.array  # (B, k)


def make_logprobs(logits: mx.array, ids: mx.array, num_top: int) -> Logprobs:
    """logits (B, V), the ids drawn (B,) -> their log-probabilities and the num_top likeliest."""
    logits = logits.astype(mx.float32)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)  # (B, V)
    chosen = mx.take_along_axis(logprobs, ids[:, None], axis=-1)[:, 0]
    num_top = min(num_top, logits.shape[-1])
    top_ids = mx.argpartition(-logprobs, max(num_top - 1, 0), axis=-1)[:, :num_top]
    top = mx.take_along_axis(logprobs, top_ids, axis=-1)
    order = mx.argsort(-top, axis=-1)
    return Logprobs(chosen, *(mx.take_along_axis(a, order, axis=-1) for a in (top_ids, top)))


# --- what is asked for -------------------------------------------------------------------------


def _check_penalties(repetition: float, presence: float, frequency: float) -> None:
    penalties = {"repetition": repetition, "presence": presence, "frequency": frequency}
    for name, value in penalties.items():
        number(f"{name}_penalty", value)
    if not (math.isfinite(repetition) and repetition > 0):
        raise ValueError(f"repetition_penalty must be above 0, 1 for none, got {repetition!r}")
    for name, value in (("presence", presence), ("frequency", frequency)):
        if not math.isfinite(value):
            raise ValueError(f"{name}_penalty must be a finite number, 0 for none, got {value!r}")


def _check(temperature: float, top_k: int, top_p: float, min_p: float, seed: int | None) -> None:
    for name, value in {"temperature": temperature, "top_p": top_p, "min_p": min_p}.items():
        number(name, value)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be 0 (greedy) or above, got {temperature!r}")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise ValueError(f"top_k must be a whole number, 0 for no limit, got {top_k!r}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1 (no limit), got {top_p!r}")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p must be between 0 (no limit) and 1, got {min_p!r}")
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**64):
        raise ValueError(f"seed must be a whole number below 2**64, or None, got {seed!r}")
