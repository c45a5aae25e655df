"""corpus -> Tokenizer: train, train_files, train_from_counts, and what they may be asked.

Blind spot: it does not know how pieces are counted and merges learned, nor how a run is kept from
losing its work (run.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from typing import Any

from bpe.formats import tokenizer_json
from bpe.tokenizer import Tokenizer
from bpe.training.base import NORMALIZERS, Base, extended_base, new_base
from bpe.training.corpus import Documents, find_files
from bpe.training.counts import Cutting, Splitter
from bpe.training.learn import MAX_ID, Rules
from bpe.training.run import Corpus, run, run_counting


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
        _splitter(cutting)  # says what is wrong with a pattern
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


def train(
    texts: Iterable[str], vocab_size: int | Sequence[int], **options: Any
) -> Tokenizer | list[Tokenizer]:
    """Learn a byte-level BPE vocabulary from texts, each one document; merges never cross them.

    vocab_size: how many ids there are in the end, the 256 bytes and special tokens included. If
        the corpus has no pair left before that, there are fewer. Several sizes, learned in one
        run, give a list of tokenizers.

    What is learned:
    min_frequency: pairs that occur less often are not merged (default 2).
    special_tokens: control tokens; they take the first ids. cut_special_tokens=False learns from
        their text where the corpus holds it, as Hugging Face's trainer does.
    pattern: how text is split before merging: "qwen" (the default), "gpt2", "gpt4o", "llama3", or
        a regex in tiktoken's syntax (Rust's). normalizer: "nfc" or None (the default).
    max_token_length: in bytes. ties: which of equally frequent pairs goes first, "huggingface" or
        "first-seen"; see bpe.training.learn.Rules for both.
    lines: each line is a document.
    extend: a Tokenizer whose ids and merges are all kept, and more are added.

    How:
    workers: processes that count; None is one a core. limit: bytes of text to read.
    held_out: a share of the corpus, up to 0.5, that is not trained on, to measure compression.
    max_memory: bytes. Rare pieces are left out of learning if it would need more.
    checkpoint: a file that keeps the state once a minute; with resume=True a run goes on from it,
        once it has read again what was read of texts and found it unchanged.
    progress: called with a bpe.training.run.Progress about ten times a second.

    With ties="huggingface" and cut_special_tokens=False the merges are those of Hugging Face's
    BpeTrainer with a ByteLevel alphabet. Raises ValueError or TypeError for what can't be done.
    """
    return _trained(Documents(texts), vocab_size, options)


def train_files(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    vocab_size: int | Sequence[int],
    *,
    field: str = "text",
    errors: str = "strict",
    **options: Any,
) -> Tokenizer | list[Tokenizer]:
    """train on files, directories and glob patterns; a file is one document (lines=True: a line).

    .gz and .zst files are decompressed; in .jsonl files each line holds a document under `field`.
    errors: what to do with bytes that are not UTF-8: "strict" raises ValueError with the place,
    "replace" and "ignore" read on. The other options are those of train.
    """
    return _trained(find_files(paths, field=field, errors=errors), vocab_size, options)


def train_from_counts(
    counts: Mapping[str, int], vocab_size: int | Sequence[int], **options: Any
) -> Tokenizer | list[Tokenizer]:
    """train on pieces that were counted elsewhere: piece -> how often it occurs.

    They must have been split with the same pattern, normalizer and special tokens: see
    split_pieces. With ties="first-seen" their order counts. The other options are those of train.
    """
    return _trained(_checked(counts), vocab_size, options)


def count_pieces(texts: Iterable[str], **options: Any) -> Counter[str]:
    """How often each piece occurs in texts; options of train that say how texts are read.

    Tables of several parts of a corpus may be added up; train_from_counts goes on from there.
    """
    return run_counting(Documents(texts), *split_options((), options))


def split_pieces(text: str, **options: Any) -> list[str]:
    """The pieces of one text, for an engine that counts them itself; options as count_pieces."""
    what, _ = split_options((), options)
    lists = _splitter(what.cutting).pieces(text)
    return [piece for pieces in lists for piece in pieces if piece]


@lru_cache(maxsize=8)
def _splitter(cutting: Cutting) -> Splitter:
    return Splitter(cutting)


def split_options(
    vocab_size: int | Sequence[int], options: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """(what to train, how to run), from the keyword options of train."""
    sizes = (vocab_size,) if _is_one(vocab_size) else tuple(vocab_size)
    what = {name: value for name, value in options.items() if name in _OPTIONS}
    how = {name: value for name, value in options.items() if name not in _OPTIONS}
    specials = what.pop("special_tokens", ())
    if isinstance(specials, str):
        raise ValueError(f"special_tokens is the text {specials!r}; pass a list of texts")
    return Options(sizes, special_tokens=tuple(specials), **what), how


def _checked(counts: Mapping[str, int]) -> Counter[str]:
    for piece, count in counts.items():
        if not isinstance(piece, str) or not piece or type(count) is not int or count < 1:
            raise ValueError(
                f"the counts have {piece!r}: {count!r}; each must be a text and a whole number "
                "above 0"
            )
    return Counter(counts)


def _is_one(vocab_size: int | Sequence[int]) -> bool:
    return isinstance(vocab_size, str) or not isinstance(vocab_size, Iterable)


def _trained(
    corpus: Corpus, vocab_size: int | Sequence[int], options: Mapping[str, Any]
) -> Tokenizer | list[Tokenizer]:
    what, how = split_options(vocab_size, options)
    if not what.vocab_sizes:
        raise ValueError("vocab_size is an empty list; name the size, or several, to learn")
    tokenizers = run(corpus, what, how).tokenizers
    return tokenizers[0] if _is_one(vocab_size) else tokenizers
