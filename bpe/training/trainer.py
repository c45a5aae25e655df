"""corpus -> Tokenizer: train, train_files and train_from_counts, and the counting alone.

Blind spot: it does not know how pieces are counted and merges learned, nor how a run is kept from
losing its work (run.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from bpe.tokenizer import Tokenizer
from bpe.training.corpus import Documents, find_files
from bpe.training.options import is_one, split_options, splitter
from bpe.training.run import Corpus, run, run_counting


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
    progress: called with a bpe.training.options.Progress about ten times a second.

    With ties="huggingface" and cut_special_tokens=False the merges are those of Hugging Face's
    BpeTrainer with a ByteLevel alphabet. Raises ValueError or TypeError for what can't be done.
    """
    return _trained(_documents(texts), vocab_size, options)


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
    return run_counting(_documents(texts), *split_options((), options))


def split_pieces(text: str, **options: Any) -> list[str]:
    """The pieces of one text, for an engine that counts them itself; options as count_pieces."""
    what, _ = split_options((), options)
    lists = splitter(what.cutting).pieces(text)
    return [piece for pieces in lists for piece in pieces if piece]


def _documents(texts: Iterable[str]) -> Documents:
    if isinstance(texts, str | bytes):  # else each letter would be a document
        raise TypeError("texts is one text; pass [text], or a list or generator of documents")
    return Documents(texts)


def _checked(counts: Mapping[str, int]) -> Counter[str]:
    for piece, count in counts.items():
        if not isinstance(piece, str) or not piece or type(count) is not int or count < 1:
            raise ValueError(
                f"the counts have {piece!r}: {count!r}; each must be a text and a whole number "
                "above 0"
            )
    return Counter(counts)


def _trained(
    corpus: Corpus, vocab_size: int | Sequence[int], options: Mapping[str, Any]
) -> Tokenizer | list[Tokenizer]:
    what, how = split_options(vocab_size, options)
    if not what.vocab_sizes:
        raise ValueError("vocab_size is an empty list; name the size, or several, to learn")
    tokenizers = run(corpus, what, how).tokenizers
    return tokenizers[0] if is_one(vocab_size) else tokenizers
