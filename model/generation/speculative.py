"""ids so far -> a draft of the ids that may follow, for the loop to check in one pass.

    NGramDraft   copies what followed an earlier occurrence of the last ids
    ModelDraft   asks a smaller model

A pass that checks a draft costs a CPU more than two plain steps, even of one id, so a drafter must
be right often enough. Both watch how their drafts fare, draft longer where all was right, and fall
silent where drafts don't pay: then generate() steps plainly.

Blind spot: it doesn't decide what is given out. A bad draft costs time and never changes an id.

Sources: Leviathan et al., arXiv:2211.17192; prompt lookup, Saxena 2023
(github.com/apoorvumang/prompt-lookup-decoding). Only a match that is long enough is trusted, and
how long is learned: that part is our own.
"""

from collections.abc import Sequence

from mlx.utils import tree_flatten

from model.arguments import shown
from model.generation.loop import MAX_DRAFT, Drafter, Run, stream
from model.transformer import Transformer

FIRST_DRAFT = 4  # ids in a draft before it is known how drafts fare


def pass_cost(num_rows: int) -> float:
    """What a pass over so many ids costs in plain steps. Measured on two x86 cores, rounded up."""
    return 1.0 if num_rows == 1 else 2.3 + 0.05 * (num_rows - 2)


class NoDraft:
    """Never drafts: plain generation."""

    def propose(self, ids: Sequence[int], limit: int) -> list[int]:
        return []

    def is_ready(self, ids: Sequence[int]) -> bool:
        return False

    def learn(self, num_drafted: int, num_right: int) -> None:
        pass


class _Length:
    """How long drafts are: twice as long after one that was right to its end."""

    def __init__(self, shortest: int) -> None:
        self.shortest, self.now = shortest, FIRST_DRAFT

    def learn(self, num_drafted: int, num_right: int) -> None:
        if num_right == num_drafted:
            self.now = min(max(self.now, 2 * num_drafted), MAX_DRAFT)
        else:
            self.now = max(self.shortest, num_right + 1)


class NGramDraft:
    """Drafts by looking the last ids up in all that came before.

    The last SHORTEST ids are looked up; the match is then followed backwards, and must be
    `needed` long. A draft that doesn't pay doubles `needed`, one that pays lowers it by two, so
    that text without repeats is soon left alone.
    """

    SHORTEST, FIRST, LONGEST = 3, 5, 64  # ids of a match

    def __init__(self) -> None:
        self.needed = self.FIRST
        self._length = _Length(FIRST_DRAFT)
        self._following = {}  # SHORTEST ids -> index after their last occurrence that has one
        self._num_known = 0  # ids indexed as the last of such a group

    def propose(self, ids: Sequence[int], limit: int) -> list[int]:
        """What followed the longest part of the end of `ids` at its last occurrence."""
        self._index(ids)
        start = self._following.get(tuple(ids[-self.SHORTEST :]))
        if start is None or _match(ids, start, self.needed) < self.needed:
            return []
        return list(ids[start : start + min(self._length.now, limit)])

    def is_ready(self, ids: Sequence[int]) -> bool:
        """Whether the ids so far would be drafted from."""
        return bool(self.propose(ids, 1))

    def learn(self, num_drafted: int, num_right: int) -> None:
        """How the last draft fared."""
        self._length.learn(num_drafted, num_right)
        if num_right + 1 < pass_cost(num_drafted + 1):
            self.needed = min(2 * self.needed, self.LONGEST)
        else:
            self.needed = max(self.needed - 2, self.SHORTEST)

    def _index(self, ids: Sequence[int]) -> None:
        """Note each group of ids that something follows already."""
        for end in range(max(self._num_known, self.SHORTEST), len(ids)):
            self._following[tuple(ids[end - self.SHORTEST : end])] = end
        self._num_known = max(self._num_known, len(ids))


def _match(ids: Sequence[int], start: int, enough: int) -> int:
    """How many ids before `start` equal those at the end, counted up to `enough`.

    >>> _match([5, 1, 2, 3, 9, 1, 2, 3], 4, 10)
    3
    """
    length = 0
    while length < min(enough, start) and ids[start - 1 - length] == ids[-1 - length]:
        length += 1
    return length


class ModelDraft:
    """Drafts with a smaller model that has the same vocabulary; it is always greedy.

    After a draft that didn't pay it pauses, twice as long each time, for at most LONGEST ids.
    """

    FIRST, LONGEST = 8, 256  # ids of a pause

    def __init__(self, m: Transformer, num_valid: int, cost: float) -> None:
        """num_valid: ids in use. cost: what a step of this model costs in the other's steps."""
        if m.config.vocab_size < num_valid:
            raise ValueError(
                f"the draft model has only {m.config.vocab_size} of the {num_valid} ids, so it"
                " can't read what it should continue; take one with the same tokenizer"
            )
        self._m, self._num_valid, self._cost = m, num_valid, cost
        self._cache, self._held = m.make_cache(), []  # the ids that the cache holds
        self._length = _Length(2)
        self._pause, self._paused_until = self.FIRST, 0  # the latter an index into the ids
        self._num_seen = 0

    def propose(self, ids: Sequence[int], limit: int) -> list[int]:
        """What the smaller model would say next."""
        num_drafted = min(self._length.now, limit, self._m.config.context - len(ids))
        if len(ids) < self._paused_until or num_drafted < 1:
            return []
        self._num_seen = len(ids)
        rest = self._rest(ids)
        run = Run(self._m, self._cache, rest, self._num_valid, num_left=num_drafted)
        drafted = list(stream(run, NoDraft()))
        self._held = [*ids, *drafted[:-1]]
        return drafted

    def is_ready(self, ids: Sequence[int]) -> bool:
        """Whether the pause is over after one more id."""
        return len(ids) + 1 >= self._paused_until

    def learn(self, num_drafted: int, num_right: int) -> None:
        """How the last draft fared."""
        self._length.learn(num_drafted, num_right)
        if num_right + 1 < pass_cost(num_drafted + 1) + num_drafted * self._cost:
            self._paused_until = self._num_seen + num_right + 1 + self._pause
            self._pause = min(2 * self._pause, self.LONGEST)
        else:
            self._pause = self.FIRST

    def _rest(self, ids: Sequence[int]) -> list[int]:
        """The ids that the cache lacks, after trimming those of a rejected draft."""
        pairs = zip(self._held, ids[:-1])
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        same = min(len(self._held), len(ids) - 1) if same is None else same
        for layer in self._cache:
            layer.trim(layer.offset - same)
        return list(ids[same:])


def make_drafter(
    draft: str | Transformer | Drafter | None, m: Transformer, num_valid: int
) -> Drafter:
    """ "ngram", a smaller model, a drafter of one's own or None -> the drafter."""
    if draft is None:
        return NoDraft()
    if draft == "ngram":
        return NGramDraft()
    if hasattr(draft, "propose"):
        return draft
    if not hasattr(draft, "make_cache"):
        raise ValueError(f'draft must be "ngram", a model or a Drafter, got {shown(draft)}')
    return ModelDraft(draft, num_valid, _num_bytes(draft) / _num_bytes(m))


def _num_bytes(m: Transformer) -> int:
    return sum(array.nbytes for _, array in tree_flatten(m.parameters()))
