"""what callers and generation_config.json wish -> Sampling: how the next id is drawn.

Blind spot: drawing itself, which is the model's (model/generation/sample.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any

import model
from model.weights.files import read_json


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
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        for name, value in self._made().items():
            if not isinstance(value, Real):
                raise ValueError(f"{name} must be a number, found {value!r}")
        self.sampler()
        self.processors()

    def or_else(self, defaults: Sampling) -> Sampling:
        """These choices, and the defaults where none was made."""
        return Sampling(**(defaults._made() | self._made()))

    def another(self, number: int = 1) -> Sampling:
        """The same for another text: with a seed, draws of its own."""
        return self if self.seed is None else replace(self, seed=(self.seed + number) % 2**64)

    def sampler(self) -> Callable[[Any], Any]:
        """The function logits -> id for these choices; unmade ones are greedy and unlimited."""
        choices = {"temperature": 0.0} | self._made()
        choices.pop("repetition_penalty", None)
        return model.make_sampler(**choices)

    def processors(self) -> list[Callable[..., Any]]:
        """What changes the logits before the sampler: the penalty, where there is one."""
        penalty = 1.0 if self.repetition_penalty is None else self.repetition_penalty
        return model.make_processors(repetition_penalty=penalty)

    def _made(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Generation:
    """What generation_config.json says that we honour. Greedy unless it says do_sample."""

    eos_ids: frozenset[int] = frozenset()
    sampling: Sampling = Sampling(temperature=0.0)

    @classmethod
    def read(cls, file: Path) -> Generation:
        """The file's wishes, none where it doesn't exist; ValueError names what makes no sense."""
        if not file.exists():
            return cls()
        raw = read_json(file)
        try:
            eos_ids = _eos_ids(raw.get("eos_token_id"))
            penalty = Sampling(repetition_penalty=_typed(raw, "repetition_penalty", int, float))
            if not _typed(raw, "do_sample", bool):
                return cls(eos_ids, penalty.or_else(Sampling(temperature=0.0)))
            wanted = Sampling(
                temperature=_typed(raw, "temperature", int, float),
                top_p=_typed(raw, "top_p", int, float),
                top_k=_typed(raw, "top_k", int),
                min_p=_typed(raw, "min_p", int, float),
            )
            return cls(eos_ids, penalty.or_else(wanted).or_else(Sampling(temperature=1.0)))
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
