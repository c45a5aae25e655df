"""prompt or messages -> a stream of Chunk(text, id, finish_reason): tokenizer and model joined.

    text, messages --tokenizer--> ids --model--> id --Composer--> Chunk

The stream pulls: nothing is computed before it is asked for, and who stops asking stops the model.
Blind spot: it does not know terminals, flags or where models come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import bpe
import model
from model.weights.config_json import config_from_json
from model.weights.files import read_json
from model.weights.gguf import GGUF
from model.weights.gguf_config import config_from_gguf
from pipeline import thinking
from pipeline.chunks import Answer, Chunk, Composer
from pipeline.sampling import Generation, Sampling
from pipeline.statistics import Statistics, timed
from pipeline.stops import StopTexts
from pipeline.thinking import ThinkingSplitter

# Texts of tokens that end an answer, for GGUF files: their metadata names only one of them.
END_TOKENS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>")


@dataclass(frozen=True, repr=False)
class Engine:
    """A tokenizer and a model that belong together, with what their files say about generation.

    Not for several threads at once: a thread of its own for each engine, or a lock around it.
    """

    tokenizer: bpe.Tokenizer
    model: model.Transformer
    stop_ids: frozenset[int]
    sampling: Sampling = field(default_factory=Sampling)  # the model's own defaults
    max_context: int | None = None  # None: all that the model has

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        dtype: str | None = None,
        max_context: int | None = None,
        quantized: bool | None = None,
        force: bool = False,
    ) -> Engine:
        """Read a model directory or a .gguf file. ValueError or OSError says what is wrong.

        max_context: use no more positions than that. The others are model.load's.
        """
        path = Path(path)
        _check_counts(2, max_context=max_context)
        _check_kind(path)
        tokenizer = _load_tokenizer(path)
        generation = Generation.read(path / "generation_config.json")  # before the long part
        transformer = model.load(path, dtype=dtype, quantized=quantized, force=force)
        _check_pair(tokenizer, transformer, path)
        stop_ids = generation.eos_ids | {*transformer.config.eos_token_ids}
        stop_ids |= _named_ends(tokenizer, END_TOKENS if path.is_file() else ())
        return cls(tokenizer, transformer, stop_ids, generation.sampling, max_context)

    def __repr__(self) -> str:
        family, size = self.model.config.model_type, self.tokenizer.vocab_size
        return f"Engine({family}, {size} tokens, context {self.context})"

    @property
    def context(self) -> int:
        """How many ids a prompt and its answer may have together."""
        own = self.model.config.context
        return own if self.max_context is None else min(own, self.max_context)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model's files bring a chat template."""
        return bool(self.tokenizer.spec.chat_templates)

    @property
    def can_switch_thinking(self) -> bool:
        """Whether the chat template reads enable_thinking."""
        return any("enable_thinking" in t for t in self.tokenizer.spec.chat_templates.values())

    def answer(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        system: str | None = None,
        raw: bool = False,
        think: bool | None = None,
        max_tokens: int = 1024,
        sampling: Sampling | None = None,
        **options: Any,
    ) -> Answer:
        """The answer to a text, or to a list of {"role": ..., "content": ...}.

        Iterate over it for Chunks as they are made; its text runs to the end. system: a system
        message before them. raw: continue the text as it stands, without the chat template. think:
        whether the model thinks first, where its template can say so. The others are stream()'s.

        Raises ValueError at the call for what can't be answered.
        """
        if raw:
            if not isinstance(prompt, str) or system is not None or think is not None:
                raise ValueError("raw=True continues a text: no messages, no system=, no think=")
            ids = self.encode_raw(prompt)
        elif self.has_chat_template:
            variables = {} if think is None else {"enable_thinking": think}
            ids = self.encode_chat(_messages(prompt, system), **variables)
        else:
            raise ValueError("this model has no chat template; raw=True continues texts with it")
        options = {"split_thinking": not raw, "sampling": sampling, **options}
        return Answer(self.stream(ids, max_tokens=max_tokens, **options), self.stop_ids)

    def encode_chat(
        self, messages: str | Sequence[Mapping[str, Any]], **variables: Any
    ) -> list[int]:
        """The prompt ids of a conversation, in the model's own format; a text is its one message.

        If the last message is the assistant's, the answer goes on with it. variables are the
        template's, such as enable_thinking.
        """
        messages = _messages(messages)
        last = messages[-1] if isinstance(messages, Sequence) and messages else None
        if isinstance(last, Mapping) and last.get("role") == "assistant":
            variables |= {"continue_final_message": True, "add_generation_prompt": False}
        return self.tokenizer.apply_chat_template(messages, **variables)

    def encode_raw(self, text: str) -> list[int]:
        """The prompt ids of a text to be continued as it stands (with a BOS if the model wants)."""
        return self.tokenizer.encode(text, add_special_tokens=True)

    def session(self, **cache_options: Any) -> model.Session:
        """What stream() reads prompts into, to read of the next one only what is new.

        cache_options: bits, group_size, max_size, keep, as for Transformer.make_cache.
        """
        return model.Session(self.model, **cache_options)

    def stream(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        statistics: Statistics | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
        session: model.Session | None = None,
        stop: Sequence[str] = (),
        split_thinking: bool = False,
        think_budget: int | None = None,
        top_logprobs: int | None = None,
        draft: Any = None,
    ) -> Iterator[Chunk]:
        """Generate after prompt ids: a Chunk for each id, the last one with a finish_reason.

        The texts of all chunks joined are the answer, never with half a character in between. The
        id that stops generation gives no text. sampling: choices that it leaves open are the
        model's own. on_prefill: called with (prompt ids read, all of them). session: where earlier
        prompts were read. stop: texts that end the answer and are no part of it.
        split_thinking: <think> ... </think> becomes the chunks' reasoning, in which stop texts
        don't count. think_budget: the most ids between these tags; when they are spent the
        reasoning is closed for the model, with 0 as soon as it is open, be it by the prompt. That
        implies split_thinking. top_logprobs, draft: as in model.generate.

        Raises ValueError at the call for prompts that cannot be (empty, too long for the context).
        """
        _check_counts(0, max_tokens=max_tokens, think_budget=think_budget)
        _check_counts(0, top_logprobs=top_logprobs)
        if isinstance(ids, str):
            raise ValueError("stream() takes ids, but this is a text; answer() takes texts")
        if think_budget is not None:
            split_thinking, session = True, session or self.session()
        ids, sampling = list(ids), (sampling or Sampling()).or_else(self.sampling)
        if think_budget == 0:
            ids = self.close_thinking(ids)
        run = _Run(
            generate=session.generate if session else partial(model.generate, self.model),
            sampling=sampling,
            options={
                "sampler": sampling.sampler(),
                "processors": sampling.processors(),
                "vocab_size": self.tokenizer.vocab_size,
                "top_logprobs": top_logprobs,
                "draft": draft,
            },
            ids=ids,
            num_left=max(min(max_tokens, self._room_after(ids)), 0),
            composer=self.composer(
                ids, stop=stop, split_thinking=split_thinking, think_budget=think_budget
            ),
            statistics=statistics if statistics is not None else Statistics(),
            closing=self.closing_ids,
        )
        generated = run.start(on_prefill=on_prefill)
        run.statistics.num_prompt_tokens = len(ids)
        run.statistics.num_cached_tokens = session.num_reused if session else 0
        return run.chunks(generated)

    def composer(
        self,
        ids: Sequence[int],
        *,
        stop: Sequence[str] = (),
        split_thinking: bool = False,
        think_budget: int | None = None,
    ) -> Composer:
        """What makes chunks of the ids that follow a prompt."""
        splitter = None
        if split_thinking:
            splitter = ThinkingSplitter(is_thinking=self._opens_thinking(ids))
        text = self.tokenizer.stream(skip_special_tokens=True)
        return Composer(text, StopTexts(stop), splitter, self.stop_ids, think_budget)

    @property
    def closing_ids(self) -> list[int]:
        """What ends the reasoning where the model doesn't."""
        return self.tokenizer.encode(thinking.CUT_SHORT, allowed_special="all")

    def close_thinking(self, ids: Sequence[int]) -> list[int]:
        """The prompt ids, with the reasoning that they may leave open closed."""
        return [*ids, *(self.closing_ids if self._opens_thinking(ids) else ())]

    def collect(self, chunks: Iterable[Chunk]) -> Answer:
        """The whole answer, once it has come."""
        answer = Answer(chunks, self.stop_ids)
        for _ in answer:
            pass
        return answer

    def _room_after(self, ids: Sequence[int]) -> int:
        room = self.context - len(ids)
        if room < 1 and self.context < self.model.config.context:
            raise ValueError(
                f"a prompt of {len(ids)} ids leaves no room in the context of {self.context} that"
                " was asked for; shorten it, or allow more"
            )
        return room  # what the model's own context forbids is the model's to say

    def _opens_thinking(self, ids: Sequence[int]) -> bool:
        """Whether a prompt ends inside the reasoning: by what stands after its last control token,
        which is where the template began the answer."""
        special = self.tokenizer.special_ids
        start = next((i for i in range(len(ids), 0, -1) if ids[i - 1] in special), 0)
        return thinking.is_left_open(self.tokenizer.decode(ids[start:]))


@dataclass
class _Run:
    """One answer on its way: what it is made with, and how far it has come."""

    generate: Callable[..., Iterator[int | model.Token]]
    sampling: Sampling
    options: Mapping[str, Any]  # for generate
    ids: list[int]  # of the prompt and given out
    num_left: int  # ids to give out still
    composer: Composer
    statistics: Statistics
    closing: list[int]  # what closes the reasoning

    def start(self, **options: Any) -> Iterator[int | model.Token]:
        """The ids that follow those so far, nothing computed yet."""
        options = {**self.options, **options}
        generated = self.generate(self.ids, max_tokens=self.num_left, **options)
        return timed(generated, self.statistics)

    def chunks(self, generated: Iterator[int | model.Token]) -> Iterator[Chunk]:
        """A chunk for each id, up to one with a finish_reason."""
        for one in generated:
            chunk = self._note(self.composer.push(one))
            self.statistics.num_reasoning_tokens = self.composer.num_reasoning_tokens
            yield chunk
            if chunk.finish_reason:
                return
            if self.composer.is_budget_spent:
                yield from self._close_thinking()
                return
        yield self.composer.finish("length")

    def _note(self, chunk: Chunk) -> Chunk:
        self.ids.append(chunk.id)
        self.num_left -= 1
        return chunk

    def _close_thinking(self) -> Iterator[Chunk]:
        """Write the end of the reasoning for the model, and go on as if it were its own."""
        yield from map(self._note, self.composer.close_thinking(self.closing))
        if self.num_left < 1:
            yield self.composer.finish("length")
            return
        sampler = self.sampling.another().sampler()  # whatever was drawn ahead of the last id
        yield from self.chunks(self.start(sampler=sampler))


# --- what is asked for ---------------------------------------------------------------------------


def _messages(prompt: Any, system: str | None = None) -> Any:
    """A text as the one message that it is, after the system's."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if system is None:
        return messages
    if any(isinstance(one, Mapping) and one.get("role") == "system" for one in messages):
        raise ValueError("the messages have a system message already; leave system= out")
    return [{"role": "system", "content": system}, *messages]


def _check_counts(low: int, **counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, Integral) or value < low):
            raise ValueError(f"{name} must be a whole number from {low} up, found {value!r}")


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
        config_from_gguf(gguf.metadata, {name: t.shape for name, t in gguf.tensors.items()})
    else:
        config_from_json(read_json(path / "config.json"))


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
