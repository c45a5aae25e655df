"""new keys and values of one layer -> all keys and values that its queries may see.

    KVCache          everything so far, in buffers that grow
    RotatingKVCache  the first `keep` positions and the last ones, never more than a maximum

Both hold floats, or rows of quantized groups that are dequantized when they are handed out:
measured on a CPU, that takes as long as multiplying with the quantized form for one query and a
quarter of the time for 64.

Blind spot: it doesn't know which ids it holds, only how many; whoever reuses a cache remembers
the ids. Every layer has its own cache, and all of one model's caches have the same offset.

Source: the kept first positions are the attention sinks of Xiao et al., arXiv:2309.17453, here
without moving the others' positions.
"""

from dataclasses import dataclass

import mlx.core as mx

from model.arguments import whole_number
from model.config import Config

Mask = mx.array | str | None  # bool, (L, S) or (B, 1, L, S): True where a query sees a key
Parts = tuple[mx.array, ...]  # one array of floats, or packed values, scales and biases

STEP = 256  # positions added at a time; growing by one would copy the whole cache for each token
SPARE = 16  # positions that a rotating cache holds beyond its size, so that as many can be trimmed
KEEP = 4  # sinks: the fewest with which the paper sees no loss
BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)


def make_layers(
    config: Config,
    *,
    max_size: int | None = None,
    keep: int = KEEP,
    bits: int | None = None,
    group_size: int = 64,
) -> list["KVCache"]:
    """-> an empty cache for each layer of a model.

    max_size: each position sees at most so many, the first `keep` and the last ones, and only
    those (and SPARE more) take memory; None for all. bits: 4 or 8 to hold quantized values, a
    scale and a bias for each `group_size` of them; None for those that the model computes.
    Raises ValueError for a size or form that can't be.
    """
    if max_size is not None:
        _check_sizes(max_size, keep)
    if bits is not None:
        _check_form(bits, group_size, config.head_dim)
    form = FLOATS if bits is None else Quantized(bits, group_size)
    if max_size is None:
        return [KVCache(form) for _ in range(config.num_hidden_layers)]
    return [RotatingKVCache(max_size, keep, form) for _ in range(config.num_hidden_layers)]


# --- what is held ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Floats:
    """Values as they come."""

    def pack(self, values: mx.array) -> Parts:
        return (values,)

    def unpack(self, parts: Parts) -> mx.array:
        return parts[0]


@dataclass(frozen=True)
class Quantized:
    """MLX's affine form: `group_size` values along D share a scale and a bias."""

    bits: int
    group_size: int

    def pack(self, values: mx.array) -> Parts:
        return tuple(mx.quantize(values, group_size=self.group_size, bits=self.bits))

    def unpack(self, parts: Parts) -> mx.array:
        return mx.dequantize(*parts, group_size=self.group_size, bits=self.bits)


Form = Floats | Quantized
FLOATS = Floats()


class KVCache:
    """Keys and values of one attention layer, in buffers that grow by STEP positions.

    offset: how many positions were fed and not trimmed, and so the position of the next token.
    """

    def __init__(self, form: Form = FLOATS) -> None:
        self.offset = 0
        self.form = form
        self._keys: Parts | None = None  # each (B, K, capacity, D or what the form makes of it)
        self._values: Parts | None = None  # the same

    def mask(self, num_new: int, window: int | None = None) -> Mask:
        """What each of the next num_new positions will see of what update hands out.

        Itself and those before it; with a window only that many of them, itself included.
        """
        return causal_mask(num_new, self.offset, window)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append keys and values (B, K, L, D); -> views (B, K, S, D) of everything held."""
        self._keys = write(self._keys, self.form.pack(keys), self.offset)
        self._values = write(self._values, self.form.pack(values), self.offset)
        self.offset += keys.shape[2]  # last: a Ctrl-C before leaves what is held as it was
        return self._read(self._keys, self.offset), self._read(self._values, self.offset)

    @property
    def trimmable(self) -> int:
        """How many of the last positions can be taken back; all positions always can."""
        return self.offset

    def trim(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` positions. Raises ValueError if that can't be done."""
        if not 0 <= num_tokens <= self.offset:
            raise ValueError(f"can't trim {num_tokens} positions: the cache holds {self.offset}")
        self.offset -= num_tokens

    def copy(self) -> "KVCache":
        """An independent cache with the same contents; cheap, since MLX copies on write."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        # A new array object each: the slice assignment in write replaces the object's contents.
        other._keys = None if self._keys is None else tuple(part[...] for part in self._keys)
        other._values = None if self._values is None else tuple(part[...] for part in self._values)
        return other

    @property
    def state(self) -> list[mx.array]:
        """The buffers, for mx.eval."""
        return [] if self._keys is None else [*self._keys, *self._values]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buffers take."""
        return sum(part.nbytes for part in self.state)

    def to_file(self) -> tuple[dict[str, mx.array], dict[str, int]]:
        """-> the arrays to save, cut to what is held, and the counters that say how to read them.

        The form and the sizes aren't among them: restore() needs a cache made with the same.
        """
        names = [f"{side}.{i}" for side in ("keys", "values") for i in range(len(self.state) // 2)]
        held = [part[:, :, : self.num_slots] for part in self.state]
        return dict(zip(names, held, strict=True)), {"offset": self.offset}

    def restore(self, arrays: dict[str, mx.array], counters: dict[str, int]) -> None:
        """Take what to_file gave."""
        vars(self).update(counters)
        sides = [[arrays[n] for n in sorted(arrays) if n.startswith(s)] for s in ("key", "val")]
        self._keys, self._values = (tuple(side) or None for side in sides)

    @property
    def num_slots(self) -> int:
        """How many positions of the buffers hold something."""
        return self.offset

    def _read(self, parts: Parts, stop: int) -> mx.array:
        return self.form.unpack(tuple(part[:, :, :stop] for part in parts))


class RotatingKVCache(KVCache):
    """The first `keep` positions, and a ring of the last ones in place of all the others.

    A query sees itself and max_size - 1 more: the first `keep` positions and the last before it.
    Keys keep the positions they were rotated by. The ring is SPARE positions longer than what is
    seen, so that short passes write into it in place and can be trimmed again.
    """

    def __init__(self, max_size: int, keep: int = KEEP, form: Form = FLOATS) -> None:
        super().__init__(form)
        _check_sizes(max_size, keep)
        self.max_size, self.keep = max_size, keep
        self._end = 0  # the position after the last one written since the cache was empty

    def mask(self, num_new: int, window: int | None = None) -> Mask:
        """What each of the next num_new positions will see of what update hands out."""
        end = self.offset + num_new
        if end <= min(self.max_size, window or end):
            return causal_mask(num_new, self.offset)
        queries = mx.arange(self.offset, end)[:, None]  # (L, 1)
        keys = self._positions(num_new)  # (S,)
        seen = (keys < self.keep) | (keys > queries - (self.max_size - self.keep))
        seen = seen & (keys <= queries)
        return seen if window is None else seen & (keys > queries - window)

    def update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Take keys and values (B, K, L, D); -> those in the slots that `mask` speaks of."""
        num_new, num_before = keys.shape[2], self.num_slots
        packed = self.form.pack(keys), self.form.pack(values)
        if self._is_in_place(num_new):
            self._put(*packed, num_new)
            stop = self.offset if self._end <= self._capacity else self._capacity
            return self._read(self._keys, stop), self._read(self._values, stop)
        # The pass would overwrite what its own first queries see, so they get a longer copy.
        sides = zip((self._keys, self._values), packed, strict=True)
        seen = [_append(held, new, num_before) for held, new in sides]
        self._put(*packed, num_new)
        return self.form.unpack(seen[0]), self.form.unpack(seen[1])

    @property
    def trimmable(self) -> int:
        """How many of the last positions can be taken back; all positions always can."""
        if self._end <= self._capacity:
            return self.offset
        return self.offset - (self._end - SPARE - 1)

    def trim(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` positions. Raises ValueError if that can't be done."""
        if self.trimmable < num_tokens < self.offset:
            raise ValueError(
                f"can't trim {num_tokens} positions: what stood before the last {self.trimmable}"
                f" of {self.offset} is overwritten; trim all {self.offset} to start anew"
            )
        super().trim(num_tokens)
        if self.offset == 0 or self._end <= self._capacity:
            self._end = self.offset

    def to_file(self) -> tuple[dict[str, mx.array], dict[str, int]]:
        """-> the arrays to save, and the counters that say how to read them."""
        arrays, counters = super().to_file()
        return arrays, counters | {"_end": self._end}

    @property
    def _capacity(self) -> int:
        return self.max_size + SPARE

    @property
    def num_slots(self) -> int:
        return min(self._end, self._capacity)

    def _is_in_place(self, num_new: int) -> bool:
        return num_new <= SPARE + 1 or self.offset + num_new <= self._capacity

    def _positions(self, num_new: int) -> mx.array:
        """The position of the key in each slot (S,) that update will hand out."""
        end = self.offset + num_new
        if self._is_in_place(num_new):
            return self._slot_positions(max(self._end, end))
        held = self._slot_positions(self._end)
        held = mx.where(held < self.offset, held, end)  # trimmed: behind every query
        return mx.concatenate([held, mx.arange(self.offset, end)])

    def _slot_positions(self, end: int) -> mx.array:
        """The last position below `end` that falls into each slot (S,)."""
        if end <= self._capacity:
            return mx.arange(end)
        ring = self._capacity - self.keep
        slots = mx.arange(self.keep, self._capacity)
        last = end - 1 - (end - 1 - slots) % ring
        return mx.concatenate([mx.arange(self.keep), last])

    def _put(self, keys: Parts, values: Parts, num_new: int) -> None:
        start, self.offset = self.offset, self.offset + num_new
        self._end = max(self._end, self.offset)
        for begin, stop, slot in self._stretches(start, self.offset):
            cut = slice(begin - start, stop - start)
            new_keys = tuple(part[:, :, cut] for part in keys)
            new_values = tuple(part[:, :, cut] for part in values)
            self._keys = write(self._keys, new_keys, slot, self._capacity)
            self._values = write(self._values, new_values, slot, self._capacity)

    def _stretches(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(first position, position after the last, slot) of what is kept of start..end."""
        ring = self._capacity - self.keep
        found = [(start, min(end, self.keep), start)] if start < self.keep else []
        first = max(start, self.keep, end - ring)
        while first < end:
            slot = self.keep + (first - self.keep) % ring
            stop = min(end, first + self._capacity - slot)
            found.append((first, stop, slot))
            first = stop
        return found


# --- masks and buffers -------------------------------------------------------------------------


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


def write(buffers: Parts | None, new: Parts, start: int, limit: int | None = None) -> Parts:
    """buffers (B, K, capacity, ..) with `new` at position `start`, grown where too short.

    limit: the capacity that they never exceed.
    """
    buffers = buffers or (None,) * len(new)
    return tuple(_write(b, n, start, limit) for b, n in zip(buffers, new, strict=True))


def _write(buffer: mx.array | None, new: mx.array, start: int, limit: int | None) -> mx.array:
    buffer = grown(buffer, new, start + new.shape[2], limit)
    buffer[:, :, start : start + new.shape[2]] = new
    return buffer


def grown(buffer: mx.array | None, like: mx.array, size: int, limit: int | None = None) -> mx.array:
    """The buffer with room for `size` positions of the kind of `like`."""
    B, K, _, D = like.shape
    capacity = 0 if buffer is None else buffer.shape[2]
    if size <= capacity:
        return buffer
    extra = -(-(size - capacity) // STEP) * STEP
    if limit is not None:
        extra = min(extra, limit - capacity)
    room = mx.zeros((B, K, extra, D), like.dtype)
    return room if buffer is None else mx.concatenate([buffer, room], axis=2)


def _append(held: Parts | None, new: Parts, num_held: int) -> Parts:
    if held is None:
        return new
    pairs = zip(held, new, strict=True)
    return tuple(mx.concatenate([h[:, :, :num_held], n], axis=2) for h, n in pairs)


# --- what is asked for -------------------------------------------------------------------------


def _check_sizes(max_size: int, keep: int) -> None:
    whole_number("max_size", max_size)
    whole_number("keep", keep)
    if keep < 0 or max_size <= keep:
        raise ValueError(
            f"a cache of max_size {max_size} that keeps the first {keep} positions has no room for"
            " the last ones; max_size must be above keep, and keep at least 0"
        )


def _check_form(bits: int, group_size: int, head_dim: int) -> None:
    if bits not in BITS:
        raise ValueError(f"a cache can be held in 4 or 8 bits, not {bits!r}; None for floats")
    if group_size not in GROUP_SIZES:
        raise ValueError(f"group_size must be one of {GROUP_SIZES}, got {group_size!r}")
    if head_dim % group_size:
        fitting = [size for size in GROUP_SIZES if head_dim % size == 0]
        hint = f"pass group_size={fitting[-1]}" if fitting else "hold it in floats, bits=None"
        raise ValueError(
            f"groups of {group_size} don't divide this model's heads of {head_dim} values; {hint}"
        )
