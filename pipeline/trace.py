"""a text and an engine -> Trace: every stage from the text to the next ids, with what each cost.

The prompt is read and continued greedily by the product's own loop; beside it, one decode step is
walked part by part, with a stop after each. Bytes moved are counted, not measured: the weights that
a pass reads, and the keys and values that it reads and writes; activations are small beside them.
Blind spot: how a trace is shown (commands/trace.py, trace_html.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

import model
from bpe.encoding.added import AddedTokens
from bpe.encoding.pretokenize import PreTokenizer
from bpe.spec import AddedToken
from model.weights.memory import kv_bytes_per_token
from pipeline.engine import Engine

EXPERTS = ".experts."  # in the names of stacked weights, of which a token reads a few


@dataclass(frozen=True)
class Shown:
    """A token for the eye. bytes: hexadecimal. text: bytes that are no UTF-8 become \\xNN."""

    id: int
    bytes: str
    text: str
    special: bool


@dataclass(frozen=True)
class Piece:
    """What the tokenizer's regex cuts out of the text; no merge crosses its borders."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A token that may come next, with its probability under the model itself."""

    token: Shown
    probability: float


@dataclass(frozen=True)
class Step:
    """One forward pass. kind: "prefill" reads the prompt, "decode" the id given out before.

    position: of the id that comes out. num_read: ids that go in. top: likeliest first.
    """

    kind: str
    position: int
    num_read: int
    seconds: float
    num_bytes: int
    chosen: Candidate
    top: tuple[Candidate, ...]


@dataclass(frozen=True)
class Stage:
    """What a stage took, and the bytes it moved."""

    name: str
    what: str
    seconds: float
    num_bytes: int

    @property
    def gigabytes_per_second(self) -> float:
        return self.num_bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Trace:
    """The walk of one text. rendered: the chat template's text, None where the model has none.

    is_chat: whether the prompt is the rendered text; else it is the text as it stands. parts: of
    the decode step that reads the first id given out. end: "stop" or "length".
    """

    model: dict[str, Any]
    text: str
    pieces: tuple[Piece, ...]
    rendered: str | None
    is_chat: bool
    prompt: tuple[Shown, ...]
    steps: tuple[Step, ...]
    parts: tuple[Stage, ...]
    stages: tuple[Stage, ...]
    answer: str
    end: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def trace(
    engine: Engine,
    text: str,
    *,
    is_chat: bool = False,
    max_tokens: int = 8,
    num_top: int = 5,
    name: str = "",
    load: Stage | None = None,
) -> Trace:
    """Walk a text through the machine. load: what loading the engine took, if it was timed.

    Raises ValueError for an empty text, a text that does not fit, or is_chat without a template.
    """
    # 1. Text to pieces and ids.
    if not text:
        raise ValueError("the text is empty; give some text to walk through the machine")
    pieces, encode = _timed(lambda: pieces_of(engine, text))
    rendered = _render(engine, text) if engine.has_chat_template else None
    if is_chat and rendered is None:
        raise ValueError("this model has no chat template; leave --chat out")
    messages = [{"role": "user", "content": text}]
    to_ids = (lambda: engine.encode_chat(messages)) if is_chat else lambda: engine.encode_raw(text)
    ids, template = _timed(to_ids)
    # 2. Ids to ids.
    steps, parts = _steps(engine, ids, max_tokens, num_top)
    # 3. Ids to text.
    given = [step.chosen.token.id for step in steps]
    is_stopped = given[-1] in engine.stop_ids
    answer, decode = _timed(lambda: engine.tokenizer.decode(given[: len(given) - is_stopped]))
    num_text, num_answer = len(text.encode()), len(answer.encode())
    how = "the chat template's text to ids" if is_chat else "the text to ids"
    stages = [
        *([load] if load else []),
        Stage("pieces", "the text cut, and each piece merged", encode, num_text),
        Stage("ids", how, template, len((rendered or text if is_chat else text).encode())),
        _sum("prefill", f"one pass over {len(ids)} ids", steps[:1]),
        _sum("decode", f"{len(steps) - 1} passes over one id each", steps[1:]),
        Stage("text", f"{len(given)} ids to text", decode, num_answer),
    ]
    return Trace(
        model=_describe(engine, name),
        text=text,
        pieces=tuple(pieces),
        rendered=rendered,
        is_chat=is_chat,
        prompt=tuple(show(engine, id) for id in ids),
        steps=tuple(steps),
        parts=tuple(parts),
        stages=tuple(stages),
        answer=answer,
        end="stop" if is_stopped else "length",
    )


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = perf_counter()
    result = work()
    return result, perf_counter() - start


def _sum(name: str, what: str, steps: Sequence[Step]) -> Stage:
    seconds, num_bytes = sum(s.seconds for s in steps), sum(s.num_bytes for s in steps)
    return Stage(name, what, seconds, num_bytes)


# --- text to ids -------------------------------------------------------------------------------


def pieces_of(engine: Engine, text: str) -> list[Piece]:
    """The pieces of a text with the ids of each; an added token in it is a piece of its own."""
    # With offsets, since encode also cuts off and pads where the tokenizer's file says so.
    ids = iter([id for id, _, _ in engine.tokenizer.encode_with_offsets(text)])
    pieces = []
    for piece in _cut(engine, text):
        own, num_left = [], len(piece.encode())
        while num_left > 0:  # merging stays inside of a piece, so its tokens fill it
            own.append(next(ids))
            num_left -= len(engine.tokenizer.id_to_token(own[-1]))
        pieces.append(Piece(piece, tuple(own)))
    return pieces


def _cut(engine: Engine, text: str) -> Iterator[str]:
    spec = engine.tokenizer.spec
    splitter = PreTokenizer(spec)
    added = AddedTokens(spec.added_tokens, splitter.normalize)
    for stretch in added.cut(text, [token for token in spec.added_tokens if token.special]):
        if isinstance(stretch, AddedToken):
            yield stretch.content
        else:
            yield from splitter.split(stretch)


def _render(engine: Engine, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    return engine.tokenizer.apply_chat_template(messages, tokenize=False)


def show(engine: Engine, id: int) -> Shown:
    """An id with its bytes and its text."""
    data = engine.tokenizer.id_to_token(id)
    text = data.decode("utf-8", errors="backslashreplace")
    return Shown(id, data.hex(" "), text, id in engine.tokenizer.special_ids)


# --- ids to ids --------------------------------------------------------------------------------


def _steps(
    engine: Engine, ids: list[int], max_tokens: int, num_top: int
) -> tuple[list[Step], list[Stage]]:
    """The passes of the product's own loop, and one decode step in parts."""
    m, cache = engine.model, engine.model.make_cache()
    steps, parts, new = [], [], ids
    for _ in range(min(max_tokens, max(1, m.config.context - len(ids)))):
        # A stream for each id: in one for all, each step would hide behind the one before.
        stream = model.generate(
            m, new, max_tokens=1, cache=cache, top_logprobs=num_top,
            vocab_size=engine.tokenizer.vocab_size, prefill_step_size=len(ids),
        )  # fmt: skip
        num_cached = cache[0].offset
        token, seconds = _timed(lambda stream=stream: next(stream))
        top = tuple(Candidate(show(engine, id), math.exp(p)) for id, p in token.top)
        steps.append(
            Step(
                kind="decode" if steps else "prefill",
                position=num_cached + len(new),
                num_read=len(new),
                seconds=seconds,
                num_bytes=pass_bytes(m, len(new), num_cached),
                chosen=Candidate(show(engine, token.id), math.exp(token.logprob)),
                top=top,
            )
        )
        if not parts:
            _, parts = walk(m, token.id, [layer.copy() for layer in cache])
        if token.id in engine.stop_ids:
            break
        new = [token.id]
    return steps, parts


def walk(m: model.Transformer, id: int, cache: list) -> tuple[mx.array, list[Stage]]:
    """m(id) with a stop after each part -> logits (1, 1, V), and what each kind of part took."""
    start, clock = cache[0].offset, _Clock()
    rotate = m.model.rotary.at(start, 1)
    x = clock.time("embedding", m.model.embed_tokens(mx.array([[id]])))
    for block, layer in zip(m.model.layers, cache, strict=True):
        mask = layer.mask(1, block.window)
        attended = block.self_attn(block.input_layernorm(x), mask, layer, rotate)
        x = clock.time("attention", x + attended)
        x = clock.time("MLP", x + block.mlp(block.post_attention_layernorm(x)))
    logits = clock.time("head", m.head(m.model.norm(x)))
    num_layers, width = len(cache), m.config.hidden_size
    what = {
        "embedding": f"a row of {width} numbers for the id",
        "attention": f"in {num_layers} layers: look back at {start + 1} positions",
        "MLP": f"in {num_layers} layers: work on this position alone",
        "head": f"a score for each of {m.config.vocab_size} ids",
    }
    sizes = dict.fromkeys(what, 0)
    for name, size in read_bytes(m, 1):
        sizes[_part_of(name)] += size
    sizes["attention"] += _kv_bytes(m, 1, start)
    return logits, [Stage(n, what[n], clock.seconds[n], sizes[n]) for n in what]


class _Clock:
    """Adds up seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def time(self, name: str, x: mx.array) -> mx.array:
        """Compute x, and count the time since the last call as name's."""
        mx.eval(x)
        now = perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now
        return x


def _part_of(name: str) -> str:
    """
    >>> [_part_of(n) for n in ("model.layers.0.mlp.up_proj.weight", "lm_head.weight", "rows")]
    ['MLP', 'head', 'embedding']
    """
    for key, part in (
        ("self_attn", "attention"),
        ("input_layernorm", "attention"),
        ("mlp", "MLP"),
        ("post_attention_layernorm", "MLP"),
        ("rows", "embedding"),
    ):
        if key in name:
            return part
    return "head"


def pass_bytes(m: model.Transformer, num_new: int, num_cached: int) -> int:
    """Bytes that a forward pass over num_new ids moves after num_cached ones."""
    weights = sum(size for _, size in read_bytes(m, num_new))
    return weights + _kv_bytes(m, num_new, num_cached)


def read_bytes(m: model.Transformer, num_new: int) -> Iterator[tuple[str, int]]:
    """(name, bytes read) of each weight in a pass over num_new ids.

    The embedding gives one row an id ("rows"); a tied one is read whole as the head. Of stacked
    experts so many are read as the ids choose, if no two choose the same.
    """
    config = m.config
    for name, weight in _weights(m):
        if name.startswith("model.embed_tokens"):
            yield "rows", weight.nbytes * num_new // config.vocab_size
            if not config.tie_word_embeddings:
                continue
        if EXPERTS in name:
            num_read = min(config.num_experts, num_new * config.num_experts_per_tok)
            yield name, weight.nbytes * num_read // config.num_experts
        else:
            yield name, weight.nbytes


def _weights(m: model.Transformer) -> Iterable[tuple[str, mx.array]]:
    return tree_flatten(m.parameters())


def _kv_bytes(m: model.Transformer, num_new: int, num_cached: int) -> int:
    """Keys and values: the new ones are written, then all are read."""
    per_token = kv_bytes_per_token(m.config, m.model.norm.weight.dtype)
    return per_token * (num_new + num_cached + num_new)


def _describe(engine: Engine, name: str) -> dict[str, Any]:
    m, config = engine.model, engine.model.config
    weights = [weight for _, weight in _weights(m)]
    return {
        "name": name,
        "type": config.model_type,
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "vocab_size": config.vocab_size,
        "context": config.context,
        "weight_bytes": sum(weight.nbytes for weight in weights),
        "dtype": str(m.model.norm.weight.dtype).removeprefix("mlx.core."),
        "device": str(mx.default_device()).removeprefix("Device(").split(",")[0],
    }
