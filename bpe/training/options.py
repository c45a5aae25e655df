"""keyword options -> what is to be trained and how, checked before a corpus is read.

And what a run says of itself: its progress and its result. Blind spot: how a run goes (run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from typing import Any

from bpe.formats import tokenizer_json
from bpe.tokenizer import Tokenizer
from bpe.training.base import NORMALIZERS, Base, extended_base, new_base
from bpe.training.learn import MAX_ID, Rules
from bpe.training.splitting import Cutting, Splitter

LEAST_MEMORY = 128 << 20  # below this there is no room for any corpus


@dataclass(frozen=True)
class Options:
    """What is to be trained; see train. What can't be is refused here, before a corpus is read."""

    vocab_sizes: tuple[int, ...]
    min_frequency: int = 2
    special_tokens: tuple[str, ...] = ()
    pattern: str | None = None
    normalizer: str | None = None
    max_token_length: int | None = None
    ties: str = "huggingface"
    cut_special_tokens: bool = True
    lines: bool = False
    extend: Tokenizer | None = None
    base: Base = field(init=False, repr=False)  # what there is before anything is learned
    rules: Rules = field(init=False, repr=False)
    cutting: Cutting = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for size in self.vocab_sizes:
            if type(size) is not int or not 0 < size <= MAX_ID:
                raise ValueError(f"vocab_size {size!r} is not a whole number from 1 to {MAX_ID}")
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f'normalizer={self.normalizer!r} is neither "nfc" nor "none"')
        rules = Rules(self.min_frequency, self.ties, self.max_token_length)
        base = self._make_base()
        added = base.spec.added_tokens if self.cut_special_tokens else ()
        cutting = Cutting(base.spec.pre_tokenizer, base.spec.normalizer, added, self.lines)
        splitter(cutting)  # says what is wrong with a pattern
        for name, value in (("rules", rules), ("base", base), ("cutting", cutting)):
            object.__setattr__(self, name, value)
        self._check_sizes()
        if self.vocab_sizes:
            tokenizer_json(base.spec)  # says what no file could hold

    def _make_base(self) -> Base:
        if self.extend is None:
            return new_base(self.special_tokens, self.pattern or "qwen", self.normalizer)
        if self.pattern is not None or self.normalizer is not None:
            raise ValueError(
                "a tokenizer that is extended says itself how text is split and normalized; pass "
                "no pattern or normalizer with it"
            )
        return extended_base(self.extend.spec, self.special_tokens)

    def _check_sizes(self) -> None:
        have = self.base.next_id
        if self.vocab_sizes and min(self.vocab_sizes) < have:
            what = "ids of the tokenizer to extend" if self.extend else "bytes and special tokens"
            raise ValueError(
                f"vocab_size {min(self.vocab_sizes)} is less than the {have} {what}, which are "
                f"never left out; ask for {have} or more"
            )


_OPTIONS = frozenset(
    "min_frequency special_tokens pattern normalizer max_token_length ties cut_special_tokens "
    "lines extend".split()
)


@dataclass(frozen=True)
class Progress:
    """How far a run is: phase is "counting" (done and total in bytes) or "learning" (in ids).

    A resumed one begins with "checking" (in bytes) that the corpus is still what was read of it.
    """

    phase: str
    done: int
    total: int | None  # None: not known
    seconds: float  # in this phase, in this process


@dataclass(frozen=True)
class How:
    """How a run is done; see train."""

    workers: int | None = None
    limit: int | None = None
    held_out: float = 0.0
    max_memory: int | None = None
    checkpoint: str | PathLike[str] | None = None
    resume: bool = False
    progress: Callable[[Progress], object] | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, not {self.workers}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}; at least 1 byte must be read")
        if not 0 <= self.held_out <= 0.5:
            raise ValueError(f"held_out is {self.held_out}; it is a share from 0 to 0.5")
        if self.max_memory is not None and self.max_memory < LEAST_MEMORY:
            raise ValueError(
                f"max_memory is {self.max_memory} bytes; a run takes {LEAST_MEMORY} before it "
                "holds anything of a corpus"
            )
        if self.resume and self.checkpoint is None:
            raise ValueError("there is nothing to resume from; say which checkpoint")


@dataclass(frozen=True)
class Result:
    """One tokenizer for each vocab_size, in their order, and a summary that JSON can hold."""

    tokenizers: list[Tokenizer]
    summary: dict[str, Any]


@lru_cache(maxsize=8)
def splitter(cutting: Cutting) -> Splitter:
    """A Cutting, compiled once."""
    return Splitter(cutting)


def split_options(
    vocab_size: int | Sequence[int], options: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """(what to train, how to run), from the keyword options of train."""
    sizes = (vocab_size,) if is_one(vocab_size) else tuple(vocab_size)
    what = {name: value for name, value in options.items() if name in _OPTIONS}
    how = {name: value for name, value in options.items() if name not in _OPTIONS}
    specials = what.pop("special_tokens", ())
    if isinstance(specials, str):
        raise ValueError(f"special_tokens is the text {specials!r}; pass a list of texts")
    return Options(sizes, special_tokens=tuple(specials), **what), how


def is_one(vocab_size: int | Sequence[int]) -> bool:
    """Whether one size is asked for, and not several."""
    return isinstance(vocab_size, str) or not isinstance(vocab_size, Iterable)
