"""tokenizer -> Audit: which entries of its vocabulary texts can give, and what else is odd there.

"alone": the tokenizer's own encode gives exactly that id for the entry's text. "context": it gives
it for another text, the witness, which was encoded to make sure. "unreachable": merging the entry's
own bytes doesn't give it, or no UTF-8 text holds them, or the normalizer leaves no such text (three
proofs); or no witness was found among the contexts of contexts.py. Blind spot: what a model has
learned of an entry (pipeline/glitch.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from bpe.encoding.added import WHITE_SPACE
from bpe.lab.characters import is_invisible, shown
from bpe.lab.contexts import Completions, Kinds, Neighbours, parts
from bpe.spec import Lowercase, Normalize
from bpe.tokenizer import Tokenizer

TEXTS_TRIED = 2000  # for one entry, at most
SHORTEST_FRAGMENT = 4  # characters; shorter pieces of control tokens are in ordinary words too

_BRACKETS = frozenset("<>|[]{}｜")  # what control tokens are set off with

REASONS = {  # why an entry's own text doesn't give it -> in words
    "partial UTF-8": "its bytes are no whole characters",
    "normalization": "the normalizer changes its text",
    "regex": "the pre-tokenizer cuts its text",
    "prefix space": "a space is put in front of its text",
    "merges": "other merges shadow it",
    "added token": "an added token is cut out of its text",
    "byte alphabet": "its text is not in the byte alphabet",
}


@dataclass(frozen=True)
class Entry:
    """One entry of the vocabulary that its own text doesn't give."""

    id: int
    data: bytes
    reach: str  # "context" or "unreachable"
    reason: str  # one of REASONS
    detail: str  # what happens to its text
    witness: str | None = None  # a text that gives it in context

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"data": self.data.hex(" "), "shown": shown(self.data)}


@dataclass(frozen=True)
class Audit:
    """What was found; num_alone and num_added entries are in order, the others are in entries."""

    num_entries: int
    num_alone: int
    num_added: int  # entries that are added tokens, matched before the vocabulary is asked
    entries: tuple[Entry, ...]
    duplicates: dict[str, tuple[int, ...]]  # a text -> entries that have it after normalization
    white_space: tuple[int, ...]  # entries that decode to white space alone ...
    invisible: tuple[int, ...]  # ... and to other things that are not drawn
    repeated_merges: tuple[tuple[int, int], ...]
    unmade: tuple[int, ...]  # entries longer than a byte that no merge makes
    nested_added: tuple[tuple[str, str], ...]  # (an added token, one that contains it)
    fragments: tuple[int, ...]  # entries that look like pieces of control tokens
    holes: tuple[int, ...]  # ids below the highest that no token has
    unknown_ids: tuple[int, ...]  # ids that the file itself uses and no token has
    num_rows: int | None  # of the model's embedding, where a config.json says so
    vocab_size: int

    def counts(self) -> dict[str, int]:
        """How many entries there are of each reach and reason: they add up to num_entries."""
        counts = {"alone": self.num_alone, "added token itself": self.num_added}
        counter = Counter(f"{entry.reach}: {entry.reason}" for entry in self.entries)
        return counts | dict(sorted(counter.items()))

    def reasons(self) -> dict[str, int]:
        """How many entries their own text doesn't give, by the reason."""
        counter = Counter(entry.reason for entry in self.entries)
        return {reason: counter[reason] for reason in REASONS if counter[reason]}

    def faults(self) -> list[str]:
        """What whoever ships this vocabulary would want to know, a sentence each.

        Single bytes are no fault: a byte-level vocabulary holds all 256, and UTF-8 doesn't use all.
        """
        lost = Counter(
            entry.reason
            for entry in self.entries
            if entry.reach == "unreachable" and len(entry.data) > 1
        )
        found = [
            f"{number:,} entries can come from no text: {REASONS[reason]}"
            for reason, number in lost.items()
        ]
        found += [
            f"{len(items):,} {what}"
            for items, what in (
                (self.duplicates, "texts belong to several entries after normalization"),
                (self.repeated_merges, "merges are listed twice, and the later rank counts"),
                (self.holes, "ids below the highest have no token"),
                (self.unknown_ids, "ids are used by the file and have no token"),
            )
            if items
        ]
        if self.num_rows is not None and self.num_rows < self.vocab_size:
            found.append(
                f"{self.vocab_size - self.num_rows:,} ids are beyond the {self.num_rows:,} rows of "
                "the model's embedding"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = asdict(self) | {"entries": [entry.to_dict() for entry in self.entries]}
        return plain | {
            "counts": self.counts(), "reasons": self.reasons(), "faults": self.faults(),
        }  # fmt: skip


def audit(tokenizer: Tokenizer, *, num_rows: int | None = None) -> Audit:
    """Look at each entry of the vocabulary. num_rows: of the model's embedding, if known.

    About 3 s for 150,000 entries.
    """
    spec = tokenizer.spec
    added_ids = {token.id for token in spec.added_tokens}
    search = _Search(tokenizer)
    entries: list[Entry] = []
    num_alone = num_added = 0
    for data, id in sorted(spec.vocab.items(), key=lambda item: item[1]):
        if id in added_ids:
            num_added += 1
        elif (entry := search.look(data, id)) is None:
            num_alone += 1
        else:
            entries.append(entry)
    for text, id in spec.dead_tokens.items():
        entries.append(Entry(id, text.encode(), "unreachable", "byte alphabet", ""))
    texts = {id: text for data, id in spec.vocab.items() if (text := _text(data)) is not None}
    blank = [id for id, text in texts.items() if all(map(is_invisible, text))]
    used = {*spec.prefix_ids, *spec.suffix_ids}
    used |= {spec.padding.pad_id} if spec.padding else set()
    known = {*spec.token_bytes, *added_ids}
    return Audit(
        num_entries=len(spec.vocab) + len(spec.dead_tokens),
        num_alone=num_alone,
        num_added=num_added,
        entries=tuple(entries),
        duplicates=_duplicates(tokenizer, texts),
        white_space=tuple(id for id in blank if not texts[id].strip(WHITE_SPACE)),
        invisible=tuple(id for id in blank if texts[id].strip(WHITE_SPACE)),
        repeated_merges=tuple(pair for pair, n in Counter(spec.merges).items() if n > 1),
        unmade=tuple(sorted(_unmade(tokenizer, added_ids))),
        nested_added=tuple(_nested(tokenizer)),
        fragments=tuple(_fragments(tokenizer, texts, added_ids)),
        holes=tuple(id for id in range(tokenizer.vocab_size) if id not in known),
        unknown_ids=tuple(sorted(used - known)),
        num_rows=num_rows,
        vocab_size=tokenizer.vocab_size,
    )


class _Search:
    """How far the entries of one vocabulary can be reached."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._inside = tokenizer.inside
        self._pre_tokenizer = self._inside.pre_tokenizer
        self._pre_tokenizer.require_text("audit")
        self._vocab = tokenizer.spec.vocab
        self._merge = self._inside.merge_bytes
        self._neighbours = Neighbours(self._pre_tokenizer)
        self._kinds = Kinds.of_tokenizer(self._pre_tokenizer)
        # Of the Unicode forms, and of lower case, every substring of a result is one itself
        steps = [step for step, _ in self._pre_tokenizer.normalizer]
        self._is_closed = len(steps) == 1 and isinstance(steps[0], (Normalize, Lowercase))
        self._completions = Completions(
            self._vocab, self._merge, self._vocab.__getitem__, self._kinds, self._is_stable
        )

    def look(self, data: bytes, id: int) -> Entry | None:
        """The entry, or None if its text alone gives it."""
        text = _text(data)
        if text is not None and self._tokenizer.encode(text) == [id]:
            return None
        reason, detail = self._why_not_alone(text, data)
        witness = None
        if self._is_possible(text, data, id, reason):
            witness = self._witness(text, data, id)
        reach = "unreachable" if witness is None else "context"
        return Entry(id, data, reach, reason, detail, witness)

    def _is_stable(self, char: str) -> bool:
        return not self._is_closed or self._pre_tokenizer.normalize(char) == char

    def _why_not_alone(self, text: str | None, data: bytes) -> tuple[str, str]:
        if text is None:
            no_text = "no UTF-8 text has these bytes"
            return "partial UTF-8", no_text if parts(data) is None else ""
        added = self._inside.added
        stretches = added.cut(text, added.special)
        if any(not isinstance(stretch, str) for stretch in stretches):
            return "added token", ""
        normalized = self._pre_tokenizer.normalize(text)
        if normalized != text:
            return "normalization", shown(normalized)
        pieces = self._pre_tokenizer.split(text)
        if "".join(pieces) != text and text in pieces[0]:
            return "prefix space", shown(pieces[0])
        if pieces != [text]:
            return "regex", " │ ".join(map(shown, pieces))
        ids = self._inside.ids_of_piece(text)
        return "merges", " │ ".join(shown(self._tokenizer.id_to_token(i)) for i in ids)

    def _is_possible(self, text: str | None, data: bytes, id: int, reason: str) -> bool:
        """False where a text that gives the entry is proven not to exist."""
        if reason == "normalization" and self._is_closed:
            return False
        if parts(data) is None:
            return False
        if data in self._inside.whole_pieces:
            return True
        return self._inside.is_reached(id) or self._merge(data) == (id,)

    def _witness(self, text: str | None, data: bytes, id: int) -> str | None:
        """A text whose ids hold the entry's."""
        for candidate in islice(self._candidates(text, data), TEXTS_TRIED):
            if id in self._tokenizer.encode(candidate):
                return candidate
        return None

    def _candidates(self, text: str | None, data: bytes) -> Iterator[str]:
        if text is not None:
            yield from self._neighbours.texts(text)
            return
        later: list[str] = []
        for around in self._completions.around(data):
            yield around.decode()
            if len(later) < 12:
                later.append(around.decode())
        for around in later:
            yield from islice(self._neighbours.texts(around), 100)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _duplicates(tokenizer: Tokenizer, texts: dict[int, str]) -> dict[str, tuple[int, ...]]:
    normalize = tokenizer.inside.pre_tokenizer.normalize
    groups: dict[str, list[int]] = {}
    for id, text in texts.items():
        normalized = normalize(text)
        if normalized != text:
            own = tokenizer.spec.vocab.get(normalized.encode())
            groups.setdefault(normalized, [] if own is None else [own]).append(id)
    return {text: tuple(ids) for text, ids in groups.items() if len(ids) > 1}


def _unmade(tokenizer: Tokenizer, added_ids: set[int]) -> Iterable[int]:
    made = {*tokenizer.spec.merged, *added_ids}
    return (id for token, id in tokenizer.spec.vocab.items() if len(token) > 1 and id not in made)


def _nested(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    texts = sorted((t.content for t in tokenizer.spec.added_tokens), key=len)
    order = {text: i for i, text in enumerate(texts)}
    found = {
        (order[outer[start:end]], order[outer])
        for outer in texts
        for end in range(1, len(outer) + 1)
        for start in range(end)
        if outer[start:end] in order and end - start < len(outer)
    }
    yield from ((texts[inner], texts[outer]) for inner, outer in sorted(found))


def _fragments(tokenizer: Tokenizer, texts: dict[int, str], added_ids: set[int]) -> Iterator[int]:
    """Ordinary entries that are pieces of a control token and of little else, longest first.

    They hold its brackets (`<|`), or letters that are no word: a word has its twin with a space in
    front in the vocabulary (" end", but no " endoft").
    """
    specials = "\n".join(t.content for t in tokenizer.spec.added_tokens if t.special)
    found = [
        (id, text)
        for id, text in texts.items()
        if len(text) > 1 and id not in added_ids and "\n" not in text and text in specials
    ]
    for id, text in sorted(found, key=lambda item: (-len(item[1]), item[0])):
        is_word = f" {text}".encode() in tokenizer.spec.vocab
        if _BRACKETS & {*text} or (len(text) >= SHORTEST_FRAGMENT and not is_word):
            yield id


# --- files ---------------------------------------------------------------------------------------


def num_rows_of(path: str | PathLike[str]) -> int | None:
    """The rows of the embedding of the model in this directory (or beside this file), if told."""
    path = Path(path)
    config = (path if path.is_dir() else path.parent) / "config.json"
    try:
        rows = json.loads(config.read_bytes()).get("vocab_size")
    except (OSError, ValueError, AttributeError):  # none there, or not a model's
        return None
    return rows if isinstance(rows, int) else None


def missing_parts(path: str | PathLike[str]) -> list[str]:
    """The merges of a tokenizer.json whose halves or results are not in its vocabulary.

    Such a file can't be loaded, so its merges are looked at as they stand; a sentence for each.
    """
    path = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        model = json.loads(path.read_bytes())["model"]
        vocab, merges = model["vocab"], model["merges"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    found = []
    for number, merge in enumerate(merges):
        halves = merge.split(" ") if isinstance(merge, str) else merge
        missing = [part for part in (*halves, "".join(halves)) if part not in vocab]
        if missing:
            found.append(
                f"merge {number} ({' + '.join(map(repr, halves))}) needs {missing[0]!r}, which is "
                "not in the vocabulary"
            )
    return found
