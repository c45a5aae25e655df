"""text -> Explanation: every stage that gave its ids, and why there is a boundary between two.

It is a replay, not a second implementation: the stages are the Tokenizer's own objects, run on the
text once more while their steps are written down. What it says must give the ids that encode gives,
or it raises. Blind spot: how an explanation is shown (terminal.py, html.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass

from bpe.encoding.added import AddedTokens
from bpe.encoding.offsets import Span, align, source_span
from bpe.encoding.pretokenize import Splitter
from bpe.lab.branches import Branches, meaning
from bpe.lab.characters import shown
from bpe.lab.merges import Merge, Merger, Pair
from bpe.spec import AddedToken
from bpe.tokenizer import Tokenizer

LONGEST_TEXT = 10_000  # characters; an explanation is about a line for each


@dataclass(frozen=True)
class Token:
    """An id with its bytes, and the characters of the text as given that it comes from."""

    id: int
    data: bytes
    start: int
    stop: int
    added: bool = False


@dataclass(frozen=True)
class Change:
    """What a normalizer made of the characters start to stop of the text as given."""

    start: int
    stop: int
    before: str
    after: str


@dataclass(frozen=True)
class Cut:
    """How one pre-tokenizer step came to a piece: the branches that matched in it, in order.

    A branch is numbered from 1 on; 0 is the whole pattern, None a stretch between two matches.
    """

    step: int
    branches: tuple[int | None, ...]


@dataclass(frozen=True)
class Piece:
    """A piece of the text and how its bytes became ids.

    is_whole: it was looked up as it stands (ignore_merges), so nothing was merged.
    """

    text: str
    start: int
    stop: int
    num_inserted: int  # characters in front that no text stands for: prefix spaces
    cuts: tuple[Cut, ...]
    is_whole: bool
    byte_ids: tuple[int, ...]
    merges: tuple[Merge, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Stretch:
    """Text between added tokens, normalized, with its pieces; or (token is set) an added token."""

    start: int
    stop: int
    text: str
    pieces: tuple[Piece, ...] = ()
    token: AddedToken | None = None


@dataclass(frozen=True)
class Boundary:
    """Why token number `index` is not one with the token before it.

    kind: "added token"; "split", by the pre-tokenizer step `step` whose branches matched on the
    left and on the right; "no merge"; "blocked": the pair `pair` would have merged across, but the
    lower-ranked merge `blocker` took one of its halves first, and without that merge there is no
    boundary here; "leftmost": that was the same merge (or one of equal rank) further to the left.
    """

    index: int
    place: int  # in the text as given: where the right token begins
    kind: str
    reason: str
    step: int | None = None
    branches: tuple[int | None, int | None] = (None, None)
    pair: Pair | None = None
    pair_rank: int | None = None
    blocker: Pair | None = None
    blocker_rank: int | None = None


@dataclass(frozen=True)
class Explanation:
    """A text, its ids, and every stage between; see the classes of the fields."""

    text: str
    ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    changes: tuple[Change, ...]
    stretches: tuple[Stretch, ...]
    boundaries: tuple[Boundary, ...]
    normalizer: tuple[str, ...]  # the names of its steps
    patterns: tuple[tuple[str, ...], ...]  # of each pre-tokenizer step, its branches
    token_bytes: dict[int, bytes]  # of every id that is named above

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, in order."""
        return [piece for stretch in self.stretches for piece in stretch.pieces]

    def boundary_at(self, place: int) -> Boundary | None:
        """The boundary nearest to a character of the text; None where there is but one token."""
        return min(self.boundaries, key=lambda b: abs(b.place - place), default=None)

    def to_dict(self) -> dict:
        """Plain data for JSON: bytes in hexadecimal, an added token as its text."""
        plain = asdict(self)
        plain["tokens"] = [
            {"id": t.id, "bytes": t.data.hex(" "), "shown": shown(t.data), "start": t.start,
             "stop": t.stop, "added": t.added}
            for t in self.tokens
        ]  # fmt: skip
        for stretch in plain["stretches"]:
            stretch["token"] = stretch["token"] and stretch["token"]["content"]
        plain["token_bytes"] = {str(id): data.hex(" ") for id, data in self.token_bytes.items()}
        return plain


def explain(
    tokenizer: Tokenizer,
    text: str,
    *,
    allowed_special: str | Collection[str] = "none",
    added_tokens: bool = True,
) -> Explanation:
    """Every stage of tokenizer.encode(text, ...), which takes the same options.

    Raises ValueError for a text of more than LONGEST_TEXT characters, and what encode raises.
    """
    if isinstance(text, str) and len(text) > LONGEST_TEXT:
        raise ValueError(
            f"the text has {len(text):,} characters, and explain shows every step of at most "
            f"{LONGEST_TEXT:,}; pass the part in question (compare and roundtrip take any length)"
        )
    options = {"allowed_special": allowed_special, "added_tokens": added_tokens}
    spans = tokenizer.encode_with_offsets(text, **options)
    replay = _Replay(tokenizer)
    forbidden = tokenizer.inside.added.forbidden(allowed_special)
    stretches, changes = replay.run(text, forbidden, added_tokens)
    tokens = tuple(_tokens(tokenizer, stretches, spans))
    explanation = Explanation(
        text=text,
        ids=tuple(token.id for token in tokens),
        tokens=tokens,
        changes=tuple(changes),
        stretches=tuple(stretches),
        boundaries=tuple(replay.boundaries(stretches, tokens)),
        normalizer=tuple(replay.names_of_steps()),
        patterns=tuple(tuple(step.sources) if step else ("",) for step in replay.branches),
        token_bytes=replay.token_bytes(stretches),
    )
    found, wanted = list(explanation.ids), [id for id, _, _ in spans]
    assert found == wanted, f"the replay gives {found}, encode gives {wanted}"
    return explanation


def _tokens(
    tokenizer: Tokenizer, stretches: list[Stretch], spans: list[tuple[int, int, int]]
) -> Iterator[Token]:
    places = iter(spans)
    for stretch in stretches:
        ids = [stretch.token.id] if stretch.token else [i for p in stretch.pieces for i in p.ids]
        for id, (_, start, stop) in zip(ids, places):
            yield Token(id, tokenizer.id_to_token(id), start, stop, stretch.token is not None)


class _Replay:
    """The stages of one tokenizer, run with their steps written down."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._inside = tokenizer.inside
        self._pre_tokenizer = self._inside.pre_tokenizer
        self._pre_tokenizer.require_text("explain")
        self._merger = Merger(tokenizer)
        self.branches = [
            Branches(step) if isinstance(step, Splitter) else None
            for step in self._pre_tokenizer.steps
        ]

    def names_of_steps(self) -> Iterator[str]:
        """The names of the normalizer's steps."""
        for step, _ in self._pre_tokenizer.normalizer:
            yield getattr(step, "form", None) or type(step).__name__

    def run(
        self, text: str, forbidden: Collection[AddedToken], added_tokens: bool
    ) -> tuple[list[Stretch], list[Change]]:
        """What encode_with_offsets (offsets.py) does, with everything in between kept."""
        added = self._inside.added
        if not added_tokens:
            added = AddedTokens((), self._pre_tokenizer.normalize)
        stretches: list[Stretch] = []
        changes: list[Change] = []
        for start, stop, token in added.raw.spans(text, forbidden):
            if token:
                stretches.append(Stretch(start, stop, text[start:stop], token=token))
                continue
            normalized, places = align(text[start:stop], self._pre_tokenizer)
            changes += changes_of(text[start:stop], normalized, places, start)
            for first, last, inner in added.normalized.spans(normalized, forbidden):
                begin, end = (start + i for i in source_span(places, first, last))
                part = normalized[first:last]
                pieces = () if inner else tuple(self._split(part, first, places, start))
                stretches.append(Stretch(begin, end, part, pieces, inner))
        return stretches, changes

    def _split(
        self, text: str, first: int, places: list[Span] | None, shift: int
    ) -> Iterator[Piece]:
        """The pieces of a normalized text, step by step; first: its place in the stretch."""
        placed: list[tuple[str, int, int, tuple[Cut, ...]]] = [(text, 0, 0, ())] if text else []
        for number, step in enumerate(self._pre_tokenizer.steps):
            placed = [new for old in placed for new in self._step(number, step, *old)]
        for piece, start, num_inserted, cuts in placed:
            begin = first + start
            end = begin + len(piece) - num_inserted
            begin, end = (shift + i for i in source_span(places, begin, end))
            yield self._piece(piece, begin, end, num_inserted, cuts)

    def _step(
        self, number: int, step: Splitter, piece: str, start: int, inserted: int, cuts: tuple
    ) -> Iterator[tuple[str, int, int, tuple[Cut, ...]]]:
        branches = self.branches[number]
        if branches is None:
            longer = step.split(piece)[0]
            yield longer, start, inserted + len(longer) - len(piece), cuts
            return
        matches = branches.matches(piece)
        for i, j in step.spans(piece):
            cut = Cut(number, tuple(_branches_within(matches, i, j)))
            yield piece[i:j], start + max(0, i - inserted), max(0, inserted - i), (*cuts, cut)

    def _piece(self, text: str, start: int, stop: int, inserted: int, cuts: tuple) -> Piece:
        data = text.encode()
        byte_ids = tuple(self._inside.ids_of_bytes(data))
        ids = self._inside.ids_of_piece(text)
        is_whole = data in self._inside.whole_pieces
        merges = () if is_whole else tuple(self._merger.trace(text))
        assert is_whole or len(ids) == len(byte_ids) - len(merges), f"{text!r} merges otherwise"
        return Piece(text, start, stop, inserted, cuts, is_whole, byte_ids, merges, ids)

    def boundaries(self, stretches: list[Stretch], tokens: tuple[Token, ...]) -> Iterator[Boundary]:
        """The reason for each boundary, from the tokens' stretches and pieces on."""
        owners: list[tuple[Stretch, Piece | None, int]] = []  # of each token, and which of theirs
        for stretch in stretches:
            if stretch.token:
                owners.append((stretch, None, 0))
            for piece in stretch.pieces:
                owners += [(stretch, piece, i) for i in range(len(piece.ids))]
        within: dict[int, list[dict]] = {}  # id() of a piece -> of each boundary inside
        for index in range(1, len(owners)):
            (left_stretch, left, _), (stretch, piece, i) = owners[index - 1 : index + 1]
            if left_stretch is not stretch:
                why = _why_added(left_stretch, stretch)
            elif left is not piece:
                why = self._why_split(left, piece)
            else:
                if id(piece) not in within:
                    within[id(piece)] = self._merger.why_apart(piece.text, piece.ids)
                why = within[id(piece)][i - 1]
            yield Boundary(index=index, place=tokens[index].start, **why)

    def _why_split(self, left: Piece, right: Piece) -> dict:
        """The first step that put the two pieces apart, told by where they were cut differently."""
        step = next(  # a piece keeps the cuts of the piece that it was cut from
            (a.step for a, b in zip(left.cuts, right.cuts) if a is not b),
            right.cuts[-1].step if right.cuts else 0,
        )
        cuts = (next(cut for cut in piece.cuts if cut.step == step) for piece in (left, right))
        first, second = (cut.branches for cut in cuts)
        branches = (first[-1] if first else None, second[0] if second else None)
        how = [self._how(step, branch) for branch in branches]
        where = f"step {step + 1} of the pre-tokenizer" if len(self.branches) > 1 else "the regex"
        gap = "" if left.stop == right.start else " and drops what stands between"
        reason = f"{where} cuts here{gap}: {how[0]} on the left, {how[1]} on the right"
        return {"kind": "split", "reason": reason, "step": step, "branches": branches}

    def _how(self, step: int, branch: int | None) -> str:
        if branch is None:
            return "text between matches"
        if not branch:
            return "a match"
        source = self.branches[step].source(branch)
        return f"branch {branch} ({meaning(source) or source})"

    def token_bytes(self, stretches: list[Stretch]) -> dict[int, bytes]:
        ids = {stretch.token.id for stretch in stretches if stretch.token}
        for stretch in stretches:
            for piece in stretch.pieces:
                ids.update(piece.byte_ids, piece.ids, (merge.merged for merge in piece.merges))
        return {id: self._tokenizer.id_to_token(id) for id in sorted(ids)}


def changes_of(
    text: str, normalized: str, places: list[Span] | None, shift: int
) -> Iterator[Change]:
    """The spans of text that normalization changed, with what they became."""
    if places is None:
        return
    groups: list[tuple[int, int, str]] = []  # start, stop, what stands there now
    for char, (start, stop) in zip(normalized, places):
        if groups and start < groups[-1][1]:
            first, last, after = groups.pop()
            groups.append((min(first, start), max(last, stop), after + char))
        else:
            end = groups[-1][1] if groups else 0
            if end < start:
                groups.append((end, start, ""))  # these characters are gone
            groups.append((start, stop, char))
    end = groups[-1][1] if groups else 0
    groups.append((end, len(text), ""))
    for start, stop, after in groups:
        if text[start:stop] != after:
            yield Change(shift + start, shift + stop, text[start:stop], after)


def _branches_within(
    matches: list[tuple[int, int, int]], start: int, stop: int
) -> Iterator[int | None]:
    """The branches of the matches between start and stop; None for text between them."""
    end = start
    for first, last, branch in matches:
        if first >= stop:
            break
        if last > start:
            if end < first:
                yield None
            yield branch
            end = last
    if end < stop:
        yield None


def _why_added(left: Stretch, right: Stretch) -> dict:
    tokens = [stretch.token for stretch in (left, right) if stretch.token]
    names = " and ".join(f"{token.content!r}" for token in tokens)
    verb = "are added tokens" if len(tokens) > 1 else "is an added token"
    reason = f"{names} {verb}, cut out of the text before anything else sees it"
    return {"kind": "added token", "reason": reason}
