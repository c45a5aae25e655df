"""a line of prompts.jsonl -> a checked Request, or what is wrong with the line in one sentence.

Blind spot: it does not know how a request is answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.commands.options import is_unicode

CHOICES = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty")


@dataclass(frozen=True)
class Request:
    """A line of the input, checked. number: of the line, from 1. digest: of its text."""

    number: int
    digest: str
    messages: list[Mapping[str, Any]]
    id: Any = None
    max_tokens: int | None = None
    think_budget: int | None = None
    stop: list[str] = field(default_factory=list)
    choices: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, number: int, line: bytes) -> Request:
        """Raises ValueError with what is wrong with the line."""
        content = json.loads(_decoded(line))
        content = {"prompt": content} if isinstance(content, str) else content
        if not isinstance(content, dict):
            raise ValueError(f"it is a JSON {type(content).__name__}, not an object or a text")
        if not is_unicode(json.dumps(content, ensure_ascii=False)):
            raise ValueError("it holds a lone surrogate, which is half a character")
        stop = content.get("stop") or []
        if not isinstance(stop, str | list):
            raise ValueError(f"stop must be a text or a list of texts, found {stop!r}")
        return cls(
            number=number,
            digest=digest(line),
            messages=_messages(content),
            id=content.get("id"),
            max_tokens=_whole_number(content, "max_tokens", 1),
            think_budget=_whole_number(content, "think_budget", 0),
            stop=[stop] if isinstance(stop, str) else stop,
            choices=_choices(content),
        )


def _messages(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "messages" in content:
        messages = content["messages"]
        if not (isinstance(messages, list) and messages) or not all(
            isinstance(message, dict) for message in messages
        ):
            raise ValueError('messages must be a non-empty list of {"role": ..., "content": ...}')
        return messages
    prompt, system = content.get("prompt"), content.get("system")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError('it has neither "messages" nor a "prompt" with some text')
    if not isinstance(system, str | None):
        raise ValueError(f"system must be a text, found {system!r}")
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": prompt}]


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from error


def _choices(content: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: content[name] for name in CHOICES if content.get(name) is not None}
    for name, value in found.items():
        if type(value) not in (int, float):
            raise ValueError(f"{name} must be a number, found {value!r}")
    return found


def _whole_number(content: Mapping[str, Any], name: str, low: int) -> int | None:
    value = content.get(name)
    if value is not None and (type(value) is not int or value < low):
        raise ValueError(f"{name} must be a whole number from {low} up, found {value!r}")
    return value


def digest(line: bytes) -> str:
    """What tells a line from another one."""
    return hashlib.sha256(line.strip()).hexdigest()[:16]
