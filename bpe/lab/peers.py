"""a name -> a tokenizer of another library, to stand beside ours: "hf:FILE", "tiktoken:NAME".

They encode as our Tokenizer does by default: texts of special tokens stay text. The libraries come
with the extra `compare`. Blind spot: what the libraries do inside; nothing of ours calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bpe.encoding.alphabet import is_glyphs, to_bytes
from bpe.spec import Spec, Split
from bpe.tokenizer import Tokenizer

PREFIXES = ("hf:", "tiktoken:")


class HuggingFace:
    """The Rust library `tokenizers` on a tokenizer.json."""

    def __init__(self, path: str) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise _missing("tokenizers") from error
        file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        if not file.exists():
            raise FileNotFoundError(f"there is no file {file} for Hugging Face tokenizers to read")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(_untrimmed(file))
        except Exception as error:  # the library has no class of its own for this
            raise ValueError(f"{file}: Hugging Face tokenizers says: {error}") from error
        self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [(id, *span) for id, span in zip(encoding.ids, encoding.offsets)]

    def id_to_token(self, id: int) -> bytes:
        glyphs = self._tokenizer.id_to_token(id)
        return to_bytes(glyphs) if is_glyphs(glyphs) else glyphs.encode()


def _untrimmed(file: Path) -> str:
    """The file with trim_offsets off: trimmed, a token's offsets leave its space out."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r'"trim_offsets"\s*:\s*true', '"trim_offsets": false', text)


class Tiktoken:
    """OpenAI's library `tiktoken`: one of its encodings by name, or a vocabulary that we read."""

    def __init__(self, name: str, load: Callable[[str], Tokenizer]) -> None:
        try:
            import tiktoken
        except ImportError as error:
            raise _missing("tiktoken") from error
        self._id_of: dict[int, int] | None = None  # its rank -> the id in the file
        self._rank_of: dict[int, int] | None = None  # and back
        if name in tiktoken.list_encoding_names():
            self._encoding = tiktoken.get_encoding(name)
        else:
            ranks, pattern, self._id_of = _as_ranks(load(name).spec)
            self._encoding = tiktoken.Encoding(
                name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
            )
            self._rank_of = {id: rank for rank, id in self._id_of.items()}

    def encode(self, text: str) -> list[int]:
        ids = self._encoding.encode_ordinary(text)
        return ids if self._id_of is None else [self._id_of[rank] for rank in ids]

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        ranks = self._encoding.encode_ordinary(text)
        owner = [i for i, char in enumerate(text) for _ in char.encode()]
        spans, end = [], 0
        for rank in ranks:
            start, end = end, end + len(self._encoding.decode_single_token_bytes(rank))
            id = rank if self._id_of is None else self._id_of[rank]
            spans.append((id, owner[start], owner[end - 1] + 1))
        return spans

    def id_to_token(self, id: int) -> bytes:
        if self._rank_of is not None:
            id = self._rank_of[id]
        return self._encoding.decode_single_token_bytes(id)


def _as_ranks(spec: Spec) -> tuple[dict[bytes, int], str, dict[int, int]]:
    """What tiktoken wants: bytes -> rank, a regex; and rank -> id. Bytes first, then merges."""
    steps = spec.pre_tokenizer
    if len(steps) != 1 or not isinstance(steps[0], Split):
        raise ValueError(
            "tiktoken splits text by one regex, and this tokenizer does it in several steps"
        )
    single = [bytes([byte]) for byte in range(256) if bytes([byte]) in spec.vocab]
    order = dict.fromkeys([*single, *(spec.token_bytes[id] for id in spec.merged)])
    ranks = {token: rank for rank, token in enumerate(order)}
    return ranks, steps[0].pattern, {rank: spec.vocab[token] for token, rank in ranks.items()}


def _missing(name: str) -> ValueError:
    return ValueError(
        f'the library {name} is not installed; pip install "bytepair[compare]" brings it'
    )


def load_peer(name: str, load: Callable[[str], Tokenizer]) -> Tokenizer | HuggingFace | Tiktoken:
    """What a user names: hf:FILE, tiktoken:NAME-OR-FILE, or (load) one of our own."""
    if name.startswith("hf:"):
        return HuggingFace(name.removeprefix("hf:"))
    if name.startswith("tiktoken:"):
        return Tiktoken(name.removeprefix("tiktoken:"), load)
    return load(name)
