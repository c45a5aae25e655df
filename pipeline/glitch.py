"""a model and its tokenizer -> tokens that the model has hardly been trained on, the surest first.

Rows of an embedding that training never touched stay where initialization and weight decay put
them, close to each other. Some ids are known to be such: rows beyond the vocabulary, holes in it,
and the bytes that UTF-8 doesn't use. A token whose rows look like theirs is a candidate (Land and
Bartolo 2024, arXiv:2405.05417). The model is then asked to repeat it. Blind spot: why a token is
rare; bpe's audit knows which ones no text can give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import mlx.core as mx

from pipeline.engine import Engine
from pipeline.sampling import Sampling

UNUSED_BYTES = (0xC0, 0xC1, *range(0xF5, 0x100))  # in no UTF-8 text
EXAMPLES = ("apple", " river", "7", "Hello")  # repeated in the prompt before the token's turn
EXTRA_TOKENS = 4  # that an answer may take more than the token itself


@dataclass(frozen=True)
class Candidate:
    """A token and how it looks.

    score: near 0 for rows like those of unused ids, about 1 for most. norm: of the input embedding;
    distance: of the output row to the mean of the known-unused ids (None where none is known: then
    score is the norm over the median norm). repeated: whether the model said it back; None before
    it was asked.
    """

    id: int
    token: bytes
    score: float
    norm: float
    distance: float | None
    repeated: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"token": self.token.hex(" ")}


def unused_ids(engine: Engine) -> list[int]:
    """The ids that training can't have seen: no token, or a byte that no text has."""
    tokenizer = engine.tokenizer
    num_rows = engine.model.config.vocab_size
    known = {*tokenizer.spec.token_bytes, *(t.id for t in tokenizer.spec.added_tokens)}
    of_bytes = (tokenizer.spec.vocab.get(bytes([byte])) for byte in UNUSED_BYTES)
    return sorted({*range(num_rows)} - known | {id for id in of_bytes if id is not None})


def find(engine: Engine, *, limit: int = 50) -> list[Candidate]:
    """The `limit` tokens whose rows look most like those of known-unused ids, the surest first.

    ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, but at least one candidate must be asked for")
    unused = unused_ids(engine)
    inputs, outputs = _matrices(engine)
    norms = mx.linalg.norm(inputs, axis=1)  # (V,)
    if unused:
        mean = outputs[mx.array(unused)].mean(axis=0)
        distances = mx.linalg.norm(outputs - mean, axis=1)  # (V,)
        gaps = mx.abs(norms - norms[mx.array(unused)].mean())
        scores = (distances / _median(distances) + gaps / _median(gaps)) / 2
    else:
        distances, scores = None, norms / _median(norms)
    skipped = {*unused}
    order = [id for id in mx.argsort(scores).tolist() if id not in skipped][:limit]
    values = (scores.tolist(), norms.tolist(), distances.tolist() if unused else None)
    return [
        Candidate(
            id, engine.tokenizer.id_to_token(id), values[0][id], values[1][id],
            values[2][id] if values[2] else None,
        )
        for id in order
    ]  # fmt: skip


def _matrices(engine: Engine) -> tuple[mx.array, mx.array]:
    """(input embedding, output rows), both (V, width) in float32; the same where they are tied."""
    inputs = _rows(engine.model.model.embed_tokens)
    head = getattr(engine.model, "lm_head", None)
    return inputs, inputs if head is None else _rows(head)


def _rows(layer: Any) -> mx.array:
    weight = layer.weight
    if "scales" in layer:  # quantized
        weight = mx.dequantize(
            weight, layer.scales, layer.get("biases"), group_size=layer.group_size, bits=layer.bits
        )
    return weight.astype(mx.float32)


def _median(values: mx.array) -> mx.array:
    """The middle one, at least the smallest positive float: something that can be divided by."""
    return mx.maximum(mx.sort(values)[values.size // 2], 1e-30)


def check(engine: Engine, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Each candidate with `repeated` set: the model is shown four repetitions, then the token."""
    for candidate in candidates:
        ids = repetition_prompt(engine, candidate.id)
        text, said = "", []
        for chunk in engine.stream(ids, max_tokens=1 + EXTRA_TOKENS, sampling=Sampling(0.0)):
            text += chunk.text
            said += [] if chunk.id is None else [chunk.id]
        expected = candidate.token.decode(errors="replace")
        is_whole = "\ufffd" not in expected
        repeated = said[:1] == [candidate.id] or (is_whole and text.startswith(expected))
        yield replace(candidate, repeated=repeated)


def repetition_prompt(engine: Engine, id: int) -> list[int]:
    """Ids of a text that repeats examples and then asks for the token, put in as its id."""
    encode = engine.tokenizer.encode
    examples = "".join(f'Repeat: "{text}" -> "{text}"\n' for text in EXAMPLES)
    return [*engine.encode_raw(f'{examples}Repeat: "'), id, *encode('" -> "')]
