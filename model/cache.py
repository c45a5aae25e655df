"""new keys and values of one layer -> all keys and values so far.

Blind spot: it doesn't know which ids it holds, only how many; whoever reuses a cache remembers
the ids. Every layer has its own cache, and all of one model's caches have the same offset.
"""

import mlx.core as mx

Mask = mx.array | str | None  # bool, (L, S) or (B, 1, L, S): True where a query sees a key

STEP = 256  # positions added at a time; growing by one would copy the whole cache for each token


class KVCache:
    """Keys and values of one attention layer, in buffers that grow by STEP positions.

    offset: how many positions are held, and so the position of the next token.
    """

    def __init__(self) -> None:
        self.offset = 0
        self._keys: mx.array | None = None  # (B, K, capacity, D)
        self._values: mx.array | None = None  # (B, K, capacity, D)

    def mask(self, num_new: int, window: int | None = None) -> Mask:
        """What each of the next num_new positions will see of what update hands out.

        Itself and those before it; with a window only that many of them, itself included.
        """
        return causal_mask(num_new, self.offset, window)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append keys and values (B, K, L, D); -> views (B, K, S, D) of everything held."""
        start, self.offset = self.offset, self.offset + keys.shape[2]
        self._keys = _write(self._keys, keys, start)
        self._values = _write(self._values, values, start)
        return self._keys[:, :, : self.offset], self._values[:, :, : self.offset]

    def trim(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` positions. Raises ValueError if fewer are held."""
        if not 0 <= num_tokens <= self.offset:
            raise ValueError(f"can't trim {num_tokens} positions: the cache holds {self.offset}")
        self.offset -= num_tokens

    def copy(self) -> "KVCache":
        """An independent cache with the same contents; cheap, since MLX copies on write."""
        other = KVCache()
        other.offset = self.offset
        # A new array object each: the slice assignment in _write replaces the object's contents.
        other._keys = None if self._keys is None else self._keys[...]
        other._values = None if self._values is None else self._values[...]
        return other

    @property
    def state(self) -> list[mx.array]:
        """The buffers, for mx.eval."""
        return [] if self._keys is None else [self._keys, self._values]


def causal_mask(num_new: int, num_cached: int, window: int | None = None) -> Mask:
    """The mask of num_new positions after num_cached ones: a name of MLX's where one will do.

    >>> causal_mask(2, 2, window=2).tolist()
    [[False, True, True, False], [False, False, True, True]]
    """
    if window is None or num_cached + num_new <= window:
        return "causal" if num_new > 1 else None  # aligned so that the last sees all S
    queries = mx.arange(num_cached, num_cached + num_new)[:, None]  # (L, 1)
    keys = mx.arange(num_cached + num_new)  # (S,)
    return (keys <= queries) & (keys > queries - window)


def _write(buffer: mx.array | None, new: mx.array, start: int) -> mx.array:
    """buffer (B, K, capacity, D) with `new` at position `start`, grown when it is too short."""
    B, K, L, D = new.shape
    capacity = 0 if buffer is None else buffer.shape[2]
    if start + L > capacity:
        extra = -(-(start + L - capacity) // STEP) * STEP
        room = mx.zeros((B, K, extra, D), new.dtype)
        buffer = room if buffer is None else mx.concatenate([buffer, room], axis=2)
    buffer[:, :, start : start + L] = new
    return buffer
