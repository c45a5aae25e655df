"""many prompts -> one stream of (row, id): rows of unequal length share each step.

    Batch            rows come and go: add(), step(), remove()
    generate_batch   a list of prompts through a Batch

A step over several rows reads the weights once, so that eight rows take little longer than one.
What prompts have in common at their beginning, such as a system message, is read once for all of
them.

Blind spot: it knows no text. Whoever reads says when a row is done, or which ids end it.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import mlx.core as mx

from model import cpu
from model.arguments import check_model, functions, id_list, shown, whole_number
from model.cache import make_layers
from model.generation.batch_cache import BatchKVCache
from model.generation.generate import check_ids, check_numbers, checked_sampler, num_ids, room_after
from model.generation.loop import Token
from model.generation.sample import History, Logprobs, Processor, Sampler, make_logprobs, process
from model.transformer import Transformer

ROWS = 8  # in a batch where nothing else is asked
PASS = 16  # padding ids that take as long as another pass: 60 ms and 4 ms an id on two x86 cores
SHARED = 2 * PASS  # first ids in common that are worth a pass of their own


def generate_batch(
    m: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | Sequence[int] = 256,
    sampler: Sampler | Sequence[Sampler] | None = None,
    processors: Sequence[Processor] = (),
    stop_ids: Collection[int] = (),
    max_rows: int = ROWS,
    prefill_step_size: int = 512,
    vocab_size: int | None = None,
) -> Iterator[tuple[int, int]]:
    """-> (index of the prompt, id), as they come; an index's ids are in order.

    At most max_rows prompts run at a time; the others take the places of those that are done.
    max_tokens, sampler: one for all, or one for each prompt. A sampler with a seed that is shared
    draws differently when the rows differ; one for each prompt draws as it would alone. stop_ids:
    a row ends with the first of them, which is given out. The rest is as in generate().

    Raises ValueError, at the call, for what generate() would refuse.
    """
    if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be a list of lists of ids, got {shown(prompts)}")
    prompts, stop_ids = list(prompts), {*id_list(stop_ids, "stop_ids")}
    batch = Batch(m, max_rows=max_rows, prefill_step_size=prefill_step_size, vocab_size=vocab_size)
    limits = _one_each(max_tokens, len(prompts), "max_tokens")
    samplers = _one_each(sampler, len(prompts), "samplers")
    for ids, limit, own in zip(prompts, limits, samplers):
        batch.add(ids, max_tokens=limit, sampler=own, processors=processors)

    def stream() -> Iterator[tuple[int, int]]:
        while given := batch.step():
            for row, one in given:
                if one in stop_ids:
                    batch.remove(row)
                yield row, one

    return stream()


def _one_each(value: object, num_prompts: int, name: str) -> list:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * num_prompts
    if len(value) != num_prompts:
        raise ValueError(f"there are {len(value)} {name} for {num_prompts} prompts")
    return list(value)


# --- rows that come and go -----------------------------------------------------------------------


@dataclass
class _Row:
    """A prompt on its way. key: what its owner knows it by.

    drawn: its next id (), not given out yet and perhaps not computed yet.
    """

    key: int
    ids: list[int]
    num_left: int
    sampler: Sampler
    processors: list[Processor]
    num_top: int | None
    history: History
    drawn: mx.array | None = None
    logprobs: Logprobs | None = None  # of drawn, where num_top is a number

    def note(self, one: mx.array, logprobs: Logprobs | None, place: int) -> None:
        """Take the id drawn for this row, at `place` in its batch."""
        self.drawn = one
        if self.num_top is not None:
            chosen, top_ids, top = (array[place] for array in logprobs)
            self.logprobs = Logprobs(chosen, top_ids[: self.num_top], top[: self.num_top])
        if self.processors:
            prompt, generated = self.history
            generated = mx.concatenate([generated, one[None].astype(mx.int32)])
            self.history = History(prompt, generated)


class Batch:
    """Prompts that are answered together; more can be added at any time.

    The first step after add() reads the prompt. Like generate(), each step leaves the next one
    enqueued, so that a removed row may have been computed once more, in vain.
    """

    def __init__(
        self,
        m: Transformer,
        *,
        max_rows: int = ROWS,
        prefill_step_size: int = 512,
        vocab_size: int | None = None,
        bits: int | None = None,
        group_size: int = 64,
    ) -> None:
        """max_rows: rows that run at a time. bits, group_size: as for make_cache()."""
        check_model(m)
        whole_number("max_rows", max_rows)
        whole_number("prefill_step_size", prefill_step_size)
        if max_rows < 1 or prefill_step_size < 1:
            raise ValueError(
                f"max_rows and prefill_step_size must be at least 1, got {max_rows} and"
                f" {prefill_step_size}"
            )
        self._m, self._max_rows, self._step_size = m, max_rows, prefill_step_size
        self._num_valid = num_ids(m, vocab_size)
        self._form = make_layers(m.config, bits=bits, group_size=group_size)[0].form
        self._keys = count()
        self._waiting: deque[_Row] = deque()
        self._rows: list[_Row] = []
        self._cache: list[BatchKVCache] = []
        self._prefix: list[int] = []  # ids that prompts began with ...
        self._prefix_cache: list[BatchKVCache] = []  # ... and a row that has read them

    def add(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 256,
        sampler: Sampler | None = None,
        processors: Sequence[Processor] = (),
        top_logprobs: int | None = None,
    ) -> int:
        """Queue a prompt; -> the key by which step() and remove() know it.

        The arguments are those of generate(), and so are the errors.
        """
        ids, processors = id_list(ids), functions("processors", processors)
        check_ids(ids, self._num_valid)
        check_numbers(max_tokens, self._step_size, top_logprobs, self._num_valid)
        num_left = min(max_tokens, room_after(self._m, ids, 0))
        history = History(mx.array(ids, dtype=mx.int32), mx.zeros(0, dtype=mx.int32))
        # Tried here, so that one that fails doesn't take the other rows down with it.
        process(processors, history, mx.zeros((1, self._num_valid)))
        row = _Row(
            key=next(self._keys),
            ids=ids,
            num_left=num_left,
            sampler=checked_sampler(sampler),
            processors=processors,
            num_top=top_logprobs,
            history=history,
        )
        if num_left:
            self._waiting.append(row)
        return row.key

    def remove(self, key: int) -> None:
        """Stop a row, wherever it is; nothing happens if it has ended."""
        self._waiting = deque(row for row in self._waiting if row.key != key)
        for row in self._rows:
            if row.key == key:
                row.num_left = 0

    def step(self) -> list[tuple[int, int | Token]]:
        """-> (key, next id) of every row that runs; [] when nothing is left to do.

        A Token in place of the id where the row asked for log-probabilities.
        """
        self._replace_ended()
        rows = self._rows
        drawn = [row.drawn for row in rows]
        logprobs = [row.logprobs for row in rows]
        for row in rows:
            row.num_left -= 1
        if any(row.num_left for row in rows):
            new = mx.stack(drawn)[:, None]  # (B, 1)
            self._draw(self._m.hidden(new, self._cache)[:, -1], rows)
        return [
            (row.key, _read(one, own)) for row, one, own in zip(rows, drawn, logprobs, strict=True)
        ]

    def _draw(self, hidden: mx.array, rows: list[_Row]) -> None:
        """hidden (B, width) of each row's last position: draw each row's next id, enqueued."""
        cpu.adapt()
        logits = self._m.head(hidden)[:, : self._num_valid]  # (B, V)
        ids = _sample(_process(logits, rows), [row.sampler for row in rows])  # (B,)
        num_top = [row.num_top for row in rows if row.num_top is not None]
        logprobs = make_logprobs(logits, ids, max(num_top)) if num_top else None
        for place, row in enumerate(rows):
            row.note(ids[place], logprobs, place)
        mx.async_eval([row.drawn for row in rows], [row.logprobs for row in rows if row.logprobs])

    def _replace_ended(self) -> None:
        """Put waiting rows in the places of those that ended, or close the gaps."""
        places = [i for i, row in enumerate(self._rows) if not row.num_left]
        num_free = self._max_rows - len(self._rows) + len(places)
        new = [self._waiting.popleft() for _ in range(min(num_free, len(self._waiting)))]
        for group in _groups(new):
            cache = self._prefill(group)
            here, places = places[: len(group)], places[len(group) :]
            self._insert(group, cache, here)
        if places:
            kept = [i for i in range(len(self._rows)) if i not in places]
            self._rows = [self._rows[i] for i in kept]
            for layer in self._cache:
                layer.keep_rows(kept)

    def _insert(self, group: list[_Row], cache: list[BatchKVCache], places: list[int]) -> None:
        """Rows with their caches: into the places there are, the others behind."""
        for own, place in enumerate(places):
            self._rows[place] = group[own]
            for layer, other in zip(self._cache, cache):
                layer.put_row(place, other, own)
        rest = range(len(places), len(group))
        if not rest:
            return
        for other in cache:
            other.keep_rows(rest)
        if self._rows:
            for layer, other in zip(self._cache, cache):
                layer.add_rows(other)
        else:
            self._cache = cache
        self._rows = self._rows + group[len(places) :]

    def _prefill(self, rows: list[_Row]) -> list[BatchKVCache]:
        """Read prompts together, padded on the right, and draw their first ids; -> their caches."""
        lengths = [len(row.ids) for row in rows]
        width = max(lengths)
        padded = mx.array([row.ids + [0] * (width - len(row.ids)) for row in rows])
        num_shared = self._share(rows)
        cache = self._fresh(len(rows))
        if num_shared:
            cache = [layer.spread(num_shared, len(rows)) for layer in self._prefix_cache]
        lasts = [None] * len(rows)  # (width,) of each row's last position
        columns = max(1, self._step_size // len(rows))
        for start in range(num_shared, width, columns):
            cpu.adapt()
            hidden = self._m.hidden(padded[:, start : start + columns], cache)
            for i, length in enumerate(lengths):
                if start < length <= start + columns:
                    lasts[i] = hidden[i, length - 1 - start]
            mx.eval([layer.state for layer in cache], [one for one in lasts if one is not None])
        for layer in cache:
            layer.trim_rows([width - length for length in lengths])
        self._draw(mx.stack(lasts), rows)
        return cache

    def _share(self, rows: list[_Row]) -> int:
        """-> how many first ids of these rows the prefix holds. Where they have more in common, and
        with the rows that wait as well, that becomes the prefix first.
        """
        own = [row.ids for row in rows]
        known = [*own, *(row.ids for row in self._waiting)]
        room = min(map(len, own)) - 1  # one id must be left to read
        wanted = min(_num_common(known), room) if len(known) > 1 else 0
        held = min(_num_common([self._prefix, *own]), room)
        if wanted >= held + SHARED:
            self._prefix, self._prefix_cache, held = known[0][:wanted], self._fresh(1), wanted
            for start in range(0, wanted, self._step_size):
                cpu.adapt()
                new = self._prefix[start : start + self._step_size]
                self._m.hidden(mx.array([new]), self._prefix_cache)
                mx.eval([layer.state for layer in self._prefix_cache])
        return held

    def _fresh(self, num_rows: int) -> list[BatchKVCache]:
        return [BatchKVCache(num_rows, self._form) for _ in range(self._m.config.num_hidden_layers)]


def _num_common(rows: list[list[int]]) -> int:
    """How many first ids all rows have in common.

    >>> _num_common([[5, 6, 7], [5, 6, 8, 9], [5, 6]])
    2
    """
    low, high = min(rows), max(rows)  # by their first difference: all others lie between
    pairs = enumerate(zip(low, high))
    return next((i for i, (a, b) in pairs if a != b), min(len(low), len(high)))


def _process(logits: mx.array, rows: list[_Row]) -> mx.array:
    """logits (B, V) after each row's own processors."""
    if not any(row.processors for row in rows):
        return logits
    pairs = zip(rows, mx.split(logits, len(rows)))
    return mx.concatenate([process(row.processors, row.history, own) for row, own in pairs])


def _read(one: mx.array, logprobs: Logprobs | None) -> int | Token:
    if logprobs is None:
        return one.item()
    chosen, top_ids, top = (array.tolist() for array in logprobs)
    return Token(one.item(), chosen, tuple(zip(top_ids, top)))


def _groups(rows: list[_Row]) -> list[list[_Row]]:
    """Rows of about the same length together, while padding costs less than a pass of their own."""
    groups: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        padding = (len(row.ids) - len(groups[-1][-1].ids)) * len(groups[-1]) if groups else 0
        if groups and padding <= PASS:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _sample(logits: mx.array, samplers: list[Sampler]) -> mx.array:
    """logits (B, V) -> ids (B,): each sampler called once, with all of its rows."""
    if all(sampler is samplers[0] for sampler in samplers):
        return samplers[0](logits)
    ids = [None] * len(samplers)
    for sampler in dict.fromkeys(samplers):
        own = [i for i, other in enumerate(samplers) if other is sampler]
        for i, one in zip(own, sampler(logits[mx.array(own)])):
            ids[i] = one
    return mx.stack(ids)
