"""new keys and values of rows of unequal length -> all that each row's queries may see.

Rows begin at slot 0 whatever their length; what lies behind a row's end is never seen, because a
query sees only slots up to its own position.

Blind spot: it doesn't know which prompt a row belongs to.
"""

from collections.abc import Sequence

import mlx.core as mx

from model.cache import FLOATS, Form, Mask, Parts, causal_mask, grown, write


class BatchKVCache:
    """Keys and values of one layer for rows of unequal length, each from slot 0 on.

    lengths: how many positions each row holds.
    """

    def __init__(self, num_rows: int, form: Form = FLOATS) -> None:
        self.form = form
        self.lengths = [0] * num_rows
        self._keys: Parts | None = None  # each (B, K, capacity, D or what the form makes of it)
        self._values: Parts | None = None  # the same

    @property
    def offset(self) -> int | mx.array:
        """The position of the next token: one number where rows agree, else one for each (B,)."""
        return self.lengths[0] if self._is_even else mx.array(self.lengths)

    def mask(self, num_new: int, window: int | None = None) -> Mask:
        """What each of the next num_new positions sees; see KVCache.mask."""
        if self._is_even:
            return causal_mask(num_new, self.lengths[0], window)
        queries = self.offset[:, None, None, None] + mx.arange(num_new)[:, None]  # (B, 1, L, 1)
        keys = mx.arange(max(self.lengths) + num_new)  # (S,)
        seen = keys <= queries
        return seen if window is None else seen & (keys > queries - window)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append keys and values (B, K, L, D) to their rows; -> (B, K, S, D), S of the longest."""
        start, num_new = self.offset, keys.shape[2]
        self.lengths = [length + num_new for length in self.lengths]
        packed = self.form.pack(keys), self.form.pack(values)
        if isinstance(start, int):
            self._keys = write(self._keys, packed[0], start)
            self._values = write(self._values, packed[1], start)
        else:
            slots = (start[:, None] + mx.arange(num_new))[:, None, :, None]  # (B, 1, L, 1)
            self._keys = self._scatter(self._keys, packed[0], slots)
            self._values = self._scatter(self._values, packed[1], slots)
        return self._read(self._keys), self._read(self._values)

    def trim_rows(self, num_tokens: Sequence[int]) -> None:
        """Forget so many of each row's last positions."""
        if not all(0 <= gone <= n for gone, n in zip(num_tokens, self.lengths, strict=True)):
            raise ValueError(f"can't trim {num_tokens} positions of rows that hold {self.lengths}")
        self.lengths = [n - gone for n, gone in zip(self.lengths, num_tokens)]

    def spread(self, num_tokens: int, num_rows: int) -> "BatchKVCache":
        """Another cache, each row of which holds the first positions of the one row of this."""
        other = BatchKVCache(num_rows, self.form)
        other.lengths = [num_tokens] * num_rows
        other._set([mx.repeat(part, num_rows, axis=0) for part in self.state])
        return other

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep these rows only, in this order."""
        if list(rows) == list(range(len(self.lengths))):
            return
        self.lengths = [self.lengths[row] for row in rows]
        index = mx.array(rows, dtype=mx.int32)
        self._set([part[index] for part in self.state])

    def put_row(self, place: int, other: "BatchKVCache", row: int) -> None:
        """Put a row of another batch in the place of one of this."""
        length = self.lengths[place] = other.lengths[row]
        size = max(length, *self.lengths)
        parts = [grown(part, part, size) for part in self.state]
        for part, new in zip(parts, other.state, strict=True):
            part[place : place + 1, :, :length] = new[row : row + 1, :, :length]
        self._set(parts)

    def add_rows(self, other: "BatchKVCache") -> None:
        """Put all rows of another batch behind those of this."""
        self.lengths = self.lengths + other.lengths
        pairs = zip(self.state, other.state, strict=True)
        size = max(part.shape[2] for part in (*self.state, *other.state))
        self._set([mx.concatenate([grown(each, each, size) for each in pair]) for pair in pairs])

    @property
    def state(self) -> list[mx.array]:
        """The buffers, for mx.eval."""
        return [] if self._keys is None else [*self._keys, *self._values]

    @property
    def _is_even(self) -> bool:
        return len(set(self.lengths)) == 1

    def _set(self, parts: list[mx.array]) -> None:
        half = len(parts) // 2
        self._keys, self._values = tuple(parts[:half]), tuple(parts[half:])

    def _scatter(self, parts: Parts, new: Parts, slots: mx.array) -> Parts:
        """Parts with each row of `new` (B, K, L, ..) in its own slots."""
        written = []
        for part, one in zip(parts, new, strict=True):
            part = grown(part, part, max(self.lengths))
            index = mx.broadcast_to(slots, one.shape)
            written.append(mx.put_along_axis(part, index, one, axis=2))
        return tuple(written)

    def _read(self, parts: Parts) -> mx.array:
        return self.form.unpack(tuple(part[:, :, : max(self.lengths)] for part in parts))
