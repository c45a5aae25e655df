"""prompt or messages -> a stream of Chunk(text, id, finish_reason): tokenizer and model joined.

The stream pulls: nothing is computed before it is asked for, and who stops asking stops the model.
Blind spot: it does not know terminals, flags or where models come from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import bpe
import model
from model.gguf import GGUF

# Texts of tokens that end an answer, for GGUF files: their metadata names only one of them.
END_TOKENS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>")


@dataclass(frozen=True)
class Sampling:
    """How the next id is drawn. temperature 0 is greedy; None means what the model's files say.

    Raises ValueError for a value outside its range.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        self.sampler()

    def or_else(self, defaults: Sampling) -> Sampling:
        """These choices, and the defaults where none was made."""
        return Sampling(**(defaults._made() | self._made()))

    def sampler(self) -> Callable[[Any], Any]:
        """The function logits -> id for these choices; unmade ones are greedy and unlimited."""
        return model.make_sampler(**({"temperature": 0.0} | self._made()))

    def _made(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Chunk:
    """A piece of the answer. text may be empty; finish_reason, on the last, is "stop" or "length".

    id is the one that was generated, None where the end of the allowed length only flushes text.
    """

    text: str
    id: int | None = None
    finish_reason: str | None = None


@dataclass
class Statistics:
    """What one answer cost; filled while it is streamed. Times are wall clock."""

    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0  # the one that stops included
    prefill_seconds: float = 0.0  # also the time to the first token
    decode_seconds: float = 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        return _rate(self.num_prompt_tokens, self.prefill_seconds)

    @property
    def decode_tokens_per_second(self) -> float:
        """Of the tokens after the first: the first comes out of the prefill."""
        return _rate(self.num_generated_tokens - 1, self.decode_seconds)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 and count > 0 else 0.0


@dataclass(frozen=True)
class Engine:
    """A tokenizer and a model that belong together, with what their files say about generation."""

    tokenizer: bpe.Tokenizer
    model: model.Transformer
    stop_ids: frozenset[int]
    sampling: Sampling = Sampling()  # the model's own defaults

    @classmethod
    def load(cls, path: str | Path, *, dtype: str | None = None) -> Engine:
        """Read a model directory or a .gguf file. ValueError or OSError says what is wrong."""
        path = Path(path)
        _check_kind(path)
        tokenizer = _load_tokenizer(path)
        generation = _Generation.read(path / "generation_config.json")  # before the long part
        transformer = model.load(path, dtype=dtype)
        _check_pair(tokenizer, transformer, path)
        stop_ids = generation.eos_ids | {*transformer.config.eos_token_ids}
        stop_ids |= _named_ends(tokenizer, END_TOKENS if path.is_file() else ())
        return cls(tokenizer, transformer, stop_ids, generation.sampling)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model's files bring a chat template."""
        return bool(self.tokenizer.spec.chat_templates)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        """The prompt ids of a conversation, in the model's own format."""
        return self.tokenizer.apply_chat_template(messages, **variables)

    def encode_raw(self, text: str) -> list[int]:
        """The prompt ids of a text to be continued as it stands (with a BOS if the model wants)."""
        return self.tokenizer.encode(text, add_special_tokens=True)

    def stream(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        statistics: Statistics | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Iterator[Chunk]:
        """Generate after prompt ids: a Chunk for each id, the last one with a finish_reason.

        The texts of all chunks joined are the answer, never with half a character in between. The
        id that stops generation gives no text. sampling: choices that it leaves open are the
        model's own. on_prefill: called with (prompt ids read, all of them).

        Raises ValueError at the call for prompts that cannot be (empty, too long for the context).
        """
        generated = model.generate(
            self.model,
            ids,
            max_tokens=max_tokens,
            sampler=(sampling or Sampling()).or_else(self.sampling).sampler(),
            vocab_size=self.tokenizer.vocab_size,
            on_prefill=on_prefill,
        )
        statistics = statistics if statistics is not None else Statistics()
        statistics.num_prompt_tokens = len(ids)
        return self._chunks(_timed(generated, statistics))

    def _chunks(self, generated: Iterator[int]) -> Iterator[Chunk]:
        text = self.tokenizer.stream(skip_special_tokens=True)
        for id in generated:
            if id in self.stop_ids:
                yield Chunk(text.finish(), id, "stop")
                return
            yield Chunk(text.push(id), id)
        yield Chunk(text.finish(), finish_reason="length")


def _timed(generated: Iterator[int], statistics: Statistics) -> Iterator[int]:
    """The same ids; statistics is up to date whenever one is given out."""
    start = time.perf_counter()
    for id in generated:
        now = time.perf_counter()
        if not statistics.num_generated_tokens:
            statistics.prefill_seconds = now - start
        statistics.decode_seconds = now - start - statistics.prefill_seconds
        statistics.num_generated_tokens += 1
        yield id


# --- what Engine.load checks ---------------------------------------------------------------------


def _check_kind(path: Path) -> None:
    """Refuse what is neither a model directory nor a GGUF file, before anything is parsed."""
    if path.is_dir():
        if not (path / "config.json").exists():
            ggufs = sorted(path.glob("*.gguf"))
            hint = f"; to run the GGUF file in it pass {ggufs[0]}" if ggufs else ""
            raise FileNotFoundError(
                f"{path} holds no config.json, so it is no model directory{hint}"
            )
        return
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    if not is_gguf:
        raise ValueError(
            f"{path} is no GGUF file; pass one, or the directory that holds config.json and the "
            "weights"
        )


def _load_tokenizer(path: Path) -> bpe.Tokenizer:
    read = bpe.Tokenizer.from_pretrained if path.is_dir() else bpe.Tokenizer.from_file
    try:
        return read(path)
    except ValueError:
        _check_architecture(path)  # if we don't run the model, that explains more
        raise


def _check_architecture(path: Path) -> None:
    """ValueError where the description asks for a model that we don't run."""
    if path.is_file():
        gguf = GGUF(path)
        model.Config.from_gguf(gguf.metadata, {name: t.shape for name, t in gguf.tensors.items()})
    else:
        model.Config.from_dict(_read_object(path / "config.json"))


def _named_ends(tokenizer: bpe.Tokenizer, names: Sequence[str]) -> frozenset[int]:
    """The ids of the tokenizer's own eos_token and of those names that are control tokens here."""
    own = tokenizer.spec.named_tokens.get("eos_token")
    ids = {tokenizer.token_to_id(name) for name in (own, *names) if name}
    return tokenizer.special_ids & ids


def _check_pair(tokenizer: bpe.Tokenizer, transformer: model.Transformer, path: Path) -> None:
    num_rows = transformer.config.vocab_size
    if tokenizer.vocab_size > num_rows:
        raise ValueError(
            f"{path}: the tokenizer has ids up to {tokenizer.vocab_size - 1} but the model's "
            f"embedding only {num_rows} rows, so they do not belong together"
        )


# --- generation_config.json ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Generation:
    """What generation_config.json says that we honour. Greedy unless it says do_sample."""

    eos_ids: frozenset[int] = frozenset()
    sampling: Sampling = Sampling(temperature=0.0)

    @classmethod
    def read(cls, file: Path) -> _Generation:
        """The file's wishes, none where it doesn't exist; ValueError names what makes no sense."""
        if not file.exists():
            return cls()
        raw = _read_object(file)
        try:
            eos_ids = _eos_ids(raw.get("eos_token_id"))
            if not _typed(raw, "do_sample", bool):
                return cls(eos_ids)
            wanted = Sampling(
                temperature=_typed(raw, "temperature", int, float),
                top_p=_typed(raw, "top_p", int, float),
                top_k=_typed(raw, "top_k", int),
                min_p=_typed(raw, "min_p", int, float),
            )
            return cls(eos_ids, wanted.or_else(Sampling(temperature=1.0)))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error


def _eos_ids(value: Any) -> frozenset[int]:
    """An id, a list of ids, or null."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(id) is int for id in ids):
        raise ValueError(f"eos_token_id must be an id or a list of ids, found {value!r}")
    return frozenset(ids)


def _typed(raw: Mapping[str, Any], name: str, *types: type) -> Any:
    """raw[name] if it has one of the types, None if it is null or absent."""
    value = raw.get(name)
    if value is not None and type(value) not in types:
        raise ValueError(f"{name} must be {types[-1].__name__} or null, found {value!r}")
    return value


def _read_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:  # bad JSON or bad UTF-8
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object, found a {type(content).__name__}")
    return content
