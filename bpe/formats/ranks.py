"""rank files -> Spec: .tiktoken, and vocab.json with merges.txt.

These formats hold tokens and their order, and nothing about how text is split or which tokens are
special. That is for the caller to say; guessing it would give ids that are almost right. Blind
spot: what the missing parts were when a model was trained.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bpe.formats.alphabet import bytes_vocab
from bpe.formats.tokenizer_json import read_merges
from bpe.spec import PATTERNS, AddedToken, Normalize, Spec
from bpe.tiktoken_syntax import given_split


def read_tiktoken(
    path: Path,
    pattern: str | None,
    special_tokens: Mapping[str, int] | None,
    normalizer: str | None,
) -> Spec:
    """The Spec of a .tiktoken file: lines of a base64 token and its rank, which is its id.

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
    merges_path = path.with_name(path.name.replace("vocab.json", "merges.txt"))
    if not merges_path.exists():
        raise FileNotFoundError(
            f"{path} is a vocabulary, but there is no {merges_path.name} beside it"
        )
    try:
        lines = merges_path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{merges_path.name} is not UTF-8 at byte {error.start}") from error
    given = _given(path, pattern, special_tokens, normalizer)
    specials = {token.content for token in given["added_tokens"]}
    return Spec(
        vocab=bytes_vocab({token: id for token, id in vocab.items() if token not in specials}),
        merges=read_merges([line for line in lines if line.strip()], vocab),
        **given,
    )


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
    return {
        "pre_tokenizer": (given_split(pattern),),
        "normalizer": (Normalize(normalizer.upper()),) if normalizer else (),
        "added_tokens": tuple(AddedToken(id, content, special=True) for content, id in tokens),
    }


def _read_ranks(path: Path) -> dict[bytes, int]:
    vocab: dict[bytes, int] = {}  # token -> rank
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            vocab[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(f"line {number} is not a base64 token and its rank") from error
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens have the same rank")
    return vocab


def _ways_to_cut(token: bytes, vocab: Mapping[bytes, int]) -> Iterator[tuple[int, int]]:
    for i in range(1, len(token)):
        left, right = vocab.get(token[:i]), vocab.get(token[i:])
        if left is not None and right is not None:
            yield left, right
