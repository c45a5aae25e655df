"""rank files -> Spec: tiktoken's tables, and vocab.json with merges.txt.

These formats hold tokens and their order, and nothing about how text is split or which tokens are
special. That is for the caller to say; guessing it would give ids that are almost right. Blind
spot: what the missing parts were when a model was trained.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bpe.encoding.tiktoken_syntax import given_split
from bpe.formats.text import read_text
from bpe.formats.tokenizer_json import read_merges, token_fields
from bpe.spec import MAX_ID, PATTERNS, AddedToken, Normalize, Spec


def read_tiktoken(
    path: Path,
    pattern: str | None,
    special_tokens: Mapping[str, int] | None,
    normalizer: str | None,
) -> Spec:
    """The Spec of a rank table: lines of a base64 token and its rank, which is its id.

    Its rule is to merge the neighbours whose joined bytes have the lowest rank. So every way to
    cut a token into two tokens is a merge, and all merges of one token share its rank. A piece that
    is a token is that token, though merges may not give it.
    """
    vocab = _read_ranks(path)
    by_rank = sorted(vocab.items(), key=lambda item: item[1])
    return Spec(
        vocab=vocab,
        merges=tuple(pair for token, _ in by_rank for pair in _ways_to_cut(token, vocab)),
        equal_ranks=True,
        ignore_merges=True,
        **_given(path, pattern, special_tokens, normalizer),
    )


def read_vocab_and_merges(
    vocab: Mapping[str, int],
    path: Path,
    pattern: str | None,
    special_tokens: Mapping[str, int] | None,
    normalizer: str | None,
) -> Spec:
    """The Spec of a parsed vocab.json and the merges.txt beside it (GPT-2's own format)."""
    merges_path = _merges_beside(path)
    if not merges_path.exists():
        raise FileNotFoundError(
            f"{path} is a vocabulary, but there is no {merges_path.name} beside it"
        )
    lines = [line.rstrip("\r") for line in read_text(merges_path).split("\n") if line.strip()]
    given = _given(path, pattern, special_tokens, normalizer)
    specials = {token.content for token in given["added_tokens"]}
    return Spec(
        **token_fields(
            {token: id for token, id in vocab.items() if token not in specials},
            read_merges(lines, vocab),
        ),
        **given,
    )


_MERGES_OF = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}  # ends of names


def is_vocabulary(path: Path) -> bool:
    """Whether a file is named as those are that have their merges beside them."""
    return path.name.endswith(tuple(_MERGES_OF))


def _merges_beside(path: Path) -> Path:
    for name, merges_name in _MERGES_OF.items():
        if path.name.endswith(name):
            return path.with_name(path.name.removesuffix(name) + merges_name)
    pairs = " or ".join(f"{name} beside {merges_name}" for name, merges_name in _MERGES_OF.items())
    raise ValueError(f"it is a vocabulary without merges; name the two files {pairs}")


def _given(
    path: Path,
    pattern: str | None,
    special_tokens: Mapping[str, int] | None,
    normalizer: str | None,
) -> dict[str, Any]:
    """What the caller says, as fields of a Spec; the pattern must be said."""
    if pattern is None:
        raise ValueError(
            f"{path.name} does not say how text is split; pass pattern= with a regex or one of "
            f"{', '.join(PATTERNS)}"
        )
    tokens = (special_tokens or {}).items()
    for content, id in tokens:
        if not isinstance(content, str) or type(id) is not int:
            raise ValueError(
                f"special_tokens has {content!r}: {id!r}; each must be a text and its id"
            )
    return {
        "pre_tokenizer": (given_split(pattern),),
        "normalizer": () if normalizer in (None, "none") else (Normalize(normalizer.upper()),),
        "added_tokens": tuple(AddedToken(id, content, special=True) for content, id in tokens),
    }


_EMPTY = b"="  # a token of no bytes: Whisper's tables end with one, so that its id is taken
_RANK_LINE = re.compile(rb"\s*[A-Za-z0-9+/]*={0,2}[ \t]+-?\d+[ \t]*(?:\r?\n|\Z)")


def is_rank_table(head: bytes) -> bool:
    """Whether a file that begins so is one of tiktoken's, whatever its name."""
    return _RANK_LINE.match(head) is not None


def _read_ranks(path: Path) -> dict[bytes, int]:
    vocab: dict[bytes, int] = {}  # token -> rank
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            bytes_of_token = b"" if token == _EMPTY else base64.b64decode(token, validate=True)
            vocab[bytes_of_token] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(f"line {number} is not a base64 token and its rank") from error
        if not rank.isdigit() or vocab[bytes_of_token] > MAX_ID:
            raise ValueError(
                f"line {number} has the rank {rank.decode('ascii', 'replace')}, which is not one "
                f"of 0 to {MAX_ID}"
            )
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens have the same rank")
    return vocab


def _ways_to_cut(token: bytes, vocab: Mapping[bytes, int]) -> Iterator[tuple[int, int]]:
    for i in range(1, len(token)):
        left, right = vocab.get(token[:i]), vocab.get(token[i:])
        if left is not None and right is not None:
            yield left, right
