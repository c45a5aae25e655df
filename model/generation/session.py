"""one prompt after another -> their ids, reading of each prompt only what is new.

    session = Session(m)
    session.generate(ids)              reads all of ids
    session.generate(ids + more)       reads more, and what the cache lacks of the last answer

Blind spot: it keeps one line of ids. Who has several conversations has a session for each, or a
fork() of one that has read what they share.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from model.arguments import check_model, id_list
from model.cache import KVCache
from model.generation.cache_file import load_cache, options_of, save_cache
from model.generation.generate import generate
from model.generation.loop import Token
from model.transformer import Transformer


class Session:
    """A model, its cache and the ids that it holds.

    num_reused: how many ids of the last prompt weren't read again.
    """

    def __init__(self, m: Transformer, **cache_options: Any) -> None:
        """cache_options: max_size, keep, bits, group_size, as for m.make_cache()."""
        check_model(m)
        self.m = m
        self.num_reused = 0
        self._cache: list[KVCache] = m.make_cache(**cache_options)
        self._ids: list[int] = []  # of the last prompt and its answer; the cache holds a beginning
        self._stream: Iterator | None = None

    @property
    def ids(self) -> list[int]:
        """What the cache holds."""
        return self._ids[: min(layer.offset for layer in self._cache)]

    @property
    def cache_options(self) -> dict[str, int | None]:
        """How the cache was made, of bits, group_size, max_size and keep what isn't the default."""
        return options_of(self._cache[0])

    @overload
    def generate(
        self, ids: Sequence[int], *, top_logprobs: None = None, **options: Any
    ) -> Iterator[int]: ...

    @overload
    def generate(
        self, ids: Sequence[int], *, top_logprobs: int, **options: Any
    ) -> Iterator[Token]: ...

    def generate(self, ids: Sequence[int], **options: Any) -> Iterator[int] | Iterator[Token]:
        """generate() with the whole prompt; what it shares with the ids held isn't read again.

        It ends a stream that is still open. A rotating cache that has dropped positions can't go
        back to an earlier one, and then starts anew.
        """
        ids = id_list(ids)
        self._close()
        self._rewind(ids)
        self.num_reused = num_held = self._cache[0].offset
        stream = generate(
            self.m, ids[num_held:], cache=self._cache, cached_ids=ids[:num_held], **options
        )
        self._ids = ids
        self._stream = self._record(stream)
        return self._stream

    def fork(self) -> "Session":
        """Another session with the same contents, which goes its own way."""
        self._close()
        other = Session.__new__(Session)
        other.m, other.num_reused, other._stream = self.m, 0, None
        other._cache, other._ids = [layer.copy() for layer in self._cache], list(self._ids)
        return other

    def save(self, path: str | Path) -> None:
        """Write the cache and its ids to a .safetensors file. Raises ValueError if it is empty."""
        self._close()
        self._cut(len(self.ids))
        save_cache(path, self._cache, self._ids, self.m)

    @classmethod
    def load(cls, path: str | Path, m: Transformer) -> "Session":
        """Go on where save() left off. Raises ValueError if another model had computed it."""
        session = cls(m)
        session._cache, session._ids = load_cache(path, m)
        return session

    def _rewind(self, ids: list[int]) -> None:
        """Trim the cache to what it shares with ids; one of them must be left to read."""
        held = self.ids
        pairs = zip(held, ids[:-1])
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(held), len(ids) - 1))
        self._cut(max(shared, 0))

    def _cut(self, num_held: int) -> None:
        """Trim each layer to so many positions, or to none where one can't go back so far.

        They need not agree before: an interruption may have come between two of them.
        """
        if any(layer.offset - num_held > layer.trimmable for layer in self._cache):
            num_held = 0
        for layer in self._cache:
            layer.trim(layer.offset - num_held)
        self._ids = self._ids[:num_held]

    def _record(self, stream: Iterator) -> Iterator:
        try:
            for one in stream:
                self._ids.append(one.id if isinstance(one, Token) else one)
                yield one
        finally:
            stream.close()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
