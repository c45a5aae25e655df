"""turns of a conversation <-> messages that fit a context, and a file that keeps them.

A conversation never changes: what adds or takes back a turn gives another one, so that whoever is
interrupted holds either the old one or the new one.

Blind spot: it does not know terminals, nor how an answer is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.files import why_no_file

FORMAT = "bytepair chat 1"
ROLES = ("user", "assistant")

Encode = Callable[[Sequence[Mapping[str, Any]]], list[int]]


@dataclass(frozen=True)
class Conversation:
    """A system message or none, then the user and the assistant by turns."""

    system: str | None = None
    turns: tuple[Mapping[str, str], ...] = ()

    @property
    def messages(self) -> list[Mapping[str, str]]:
        """All of it, as a chat template takes it."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.turns]

    def ask(self, content: str) -> Conversation:
        """With the user's next message."""
        return replace(self, turns=(*self.turns, {"role": "user", "content": content}))

    def answer(self, text: str, reasoning: str = "") -> Conversation:
        """With the assistant's."""
        thought = {"reasoning_content": reasoning} if reasoning else {}
        turn = {"role": "assistant", "content": text, **thought}
        return replace(self, turns=(*self.turns, turn))

    def unanswered(self) -> Conversation:
        """Without the last answer. ValueError where there is no message to answer again."""
        if not self.turns:
            raise ValueError("there is no message to answer again")
        is_answered = self.turns[-1]["role"] == "assistant"
        return replace(self, turns=self.turns[:-1]) if is_answered else self

    def undone(self) -> Conversation:
        """Without the last message and its answer. ValueError where there is none."""
        if not self.turns:
            raise ValueError("there is nothing to take back")
        return replace(self, turns=self.unanswered().turns[:-1])

    def fit(self, encode: Encode, num_tokens: int) -> tuple[Conversation, list[int], int]:
        """-> a conversation whose ids are no more than num_tokens, these ids, and how many of the
        oldest questions were dropped for it with their answers. The last one always stays.
        """
        kept = self
        while len(ids := encode(kept.messages)) > num_tokens and len(kept.turns) > 2:
            kept = replace(kept, turns=kept.turns[2:])
        return kept, ids, (len(self.turns) - len(kept.turns)) // 2

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all. ValueError for a file that is something else."""
        if why := why_no_file(path):
            raise ValueError(why)
        from bpe.formats.whole import is_stream, whole_file

        if path.exists() and not is_stream(path) and not _is_ours(path):
            raise ValueError(f"{path} exists and is no saved conversation; take another name")
        content = {"format": FORMAT, "system": self.system, "messages": self.turns}
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")

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
        system = content.get("system")
        texts = [turn.get("content") for turn in turns]
        texts += [turn.get("reasoning_content", "") for turn in turns]
        if not all(isinstance(text, str) for text in [*texts, system or ""]):
            raise ValueError(f"{path} is damaged: not all of its messages are texts")
        return cls(system, tuple(turns))


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _is_ours(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:  # no JSON
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT
