"""logits -> ids: temperature, top-k, top-p, min-p, with its own seed.

Every filter is a threshold on the scaled logits, so the filters compose by taking the highest,
and ids that tie with the last one kept are kept too. Nothing is read back: the closure only adds
to MLX's lazy graph.

Blind spot: it doesn't know what the ids mean nor which came before.

Sources: top-p, Holtzman et al., arXiv:1904.09751; min-p, Nguyen et al., arXiv:2407.01082; the
order of the filters is that of transformers' generate.
"""

import math
import os
from collections.abc import Callable

import mlx.core as mx

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
        return _greedy
    key = mx.random.key(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def sample(logits: mx.array) -> mx.array:
        nonlocal key
        key, now = mx.random.split(key)
        logits = logits.astype(mx.float32) / temperature  # (B, V)
        kept = keep_likely(logits, top_k, top_p, min_p)
        return mx.random.categorical(kept, key=now)

    return sample


def _greedy(logits: mx.array) -> mx.array:
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


def _check(temperature: float, top_k: int, top_p: float, min_p: float, seed: int | None) -> None:
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
