"""turns of a conversation <-> messages that fit a context, and a file that keeps them.

Blind spot: it does not know terminals, nor how an answer is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "bytepair chat 1"
ROLES = ("user", "assistant")

Encode = Callable[[Sequence[Mapping[str, Any]]], list[int]]


@dataclass
class Conversation:
    """A system message or none, then the user and the assistant by turns."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    @property
    def messages(self) -> list[dict[str, str]]:
        """All of it, as a chat template takes it."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.turns]

    def ask(self, content: str) -> None:
        """The user's next message."""
        self.turns.append({"role": "user", "content": content})

    def answer(self, text: str, reasoning: str = "") -> None:
        """The assistant's."""
        thought = {"reasoning_content": reasoning} if reasoning else {}
        self.turns.append({"role": "assistant", "content": text, **thought})

    def drop_answer(self) -> bool:
        """Take back the last answer; whether there is a message to answer again."""
        if self.turns and self.turns[-1]["role"] == "assistant":
            self.turns.pop()
        return bool(self.turns)

    def undo(self) -> bool:
        """Take back the last message and its answer; whether there was one."""
        found = self.drop_answer()
        if found:
            self.turns.pop()
        return found

    def fit(self, encode: Encode, num_tokens: int) -> tuple[list[int], int]:
        """-> the ids of the conversation, and how many of its oldest questions were dropped with
        their answers so that the ids are no more than num_tokens. The last one always stays.
        """
        num_dropped = 0
        while len(ids := encode(self.messages)) > num_tokens and len(self.turns) > 2:
            del self.turns[:2]
            num_dropped += 1
        return ids, num_dropped

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all. ValueError for a file that is something else."""
        if path.exists() and not _is_ours(path):
            raise ValueError(f"{path} exists and is no saved conversation; take another name")
        content = {"format": FORMAT, "system": self.system, "messages": self.turns}
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read what save() wrote. ValueError says what else it is."""
        if not _is_ours(path):
            raise ValueError(f"{path} is no saved conversation; /save writes one")
        content = json.loads(path.read_bytes())
        turns = content.get("messages")
        roles = [turn.get("role") for turn in turns] if _is_list_of_objects(turns) else None
        if roles is None or roles != [ROLES[i % 2] for i in range(len(roles))]:
            raise ValueError(f"{path} is damaged: its messages aren't the user's and assistant's")
        return cls(content.get("system"), turns)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _is_ours(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:  # no JSON
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT
