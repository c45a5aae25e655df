"""counted words -> merges: byte-pair encoding, learned.

One rule, repeated: the pair of neighbouring symbols that occurs most often becomes a new symbol
(Sennrich et al. 2016, arXiv:1508.07909). What makes it fast is that nothing is counted twice:

* a word is a str with one character a symbol, chr(id), so that finding and replacing a pair are
  each one call into C;
* `where` says which words a pair is in. Entries are never removed: a word that has lost its pair is
  noticed when it is looked at;
* pairs wait in buckets by their count. A pair whose count has fallen since is moved down when its
  bucket is reached.

Blind spot: it does not know texts, pieces or files, nor which words it was not given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import add, mul

TIES = ("huggingface", "first-seen")
MAX_ID = 0x10FFFE  # a symbol is a character; the last one separates words in a checkpoint

Place = tuple[int, int, str]  # number of a word, byte in it, the pair that stands there first
Made = tuple[str, str, list[int]]  # a pair that is gone, the pair in its place, in which words


@dataclass(frozen=True)
class Rules:
    """What may merge, and what goes first.

    min_frequency: a pair that occurs less often is never merged; 0 is the same as 1.
    ties: among pairs that occur equally often, "huggingface" takes the lowest (left id, right id),
        as that library's BpeTrainer does; "first-seen" the one that comes first in the corpus, as
        minbpe does.
    max_token_length: in bytes. Under ties="huggingface" the bound is that library's: a token has
        fewer bytes than that, but two single bytes always merge.
    """

    min_frequency: int = 2
    ties: str = "huggingface"
    max_token_length: int | None = None

    def __post_init__(self) -> None:
        if self.min_frequency < 0:
            raise ValueError(f"min_frequency is {self.min_frequency}; a count can't be below 0")
        if self.ties not in TIES:
            raise ValueError(f"ties={self.ties!r} is neither of {', '.join(map(repr, TIES))}")
        if self.max_token_length is not None and self.max_token_length < 1:
            raise ValueError(
                f"max_token_length is {self.max_token_length}; a token has at least 1 byte"
            )

    def allows(self, left: bytes, right: bytes) -> bool:
        """May these two tokens be joined?"""
        length, limit = len(left) + len(right), self.max_token_length
        if limit is None:
            return True
        if self.ties == "first-seen":
            return length <= limit
        return length < limit or length == 2


class Learner:
    """Learns merges one by one; between two of them its state is complete and can be saved."""

    def __init__(
        self,
        words: list[str],
        weights: list[int],
        tokens: Mapping[int, bytes],
        rules: Rules,
        *,
        reserved: Mapping[bytes, int],
        next_id: int,
        merges: Sequence[tuple[int, int]] = (),
    ) -> None:
        """words: symbols as chr(id); each counts weights times. tokens: id -> bytes of all symbols.

        reserved: bytes -> id of tokens that have an id already; a merge that makes one takes it.
        merges: those that the words have behind them. The words are changed in place.
        """
        self.words, self.weights = words, weights
        self.tokens = dict(tokens)
        self.rules = rules
        self.merges: list[tuple[int, int]] = []
        self.ids = {token: id for id, token in self.tokens.items()} | dict(reserved)
        self.next_id = next_id
        for pair in merges:
            self._add_token(*pair)
        self._index()

    def learn(self, vocab_size: int, tick: Callable[[], object] = lambda: None) -> bool:
        """Merge until the next id is vocab_size; False if no pair was left before that.

        tick is called between merges, after each that took long and every few of the others.
        """
        while self.next_id < vocab_size:
            pair = self._most_frequent()
            if pair is None:
                return False
            if self._merge(pair) > 1000 or not len(self.merges) % 32:
                tick()
        return True

    def num_tokens(self) -> int:
        """The number of symbols that all words are now, each as often as it counts."""
        return sum(map(mul, self.weights, map(len, self.words)))

    def _index(self) -> None:
        """Count all pairs from the words as they are."""
        self._least = max(self.rules.min_frequency, 1)
        self._is_limited = self.rules.max_token_length is not None
        self._where: dict[str, list[int]] = {}  # pair -> numbers of words, ascending
        self._total: dict[str, int] = {}  # pair -> how often it occurs
        self._buckets: dict[int, list] = defaultdict(list)  # count -> pairs (or their places)
        self._levels: list[int] = []  # the counts that have a bucket, negative: a heap
        self._level, self._bucket = 0, []  # the highest of them, as a heap
        where = defaultdict(list)
        for number, word in enumerate(self.words):
            for pair in map(add, word, word[1:]):
                where[pair].append(number)
        weight = self.weights.__getitem__
        for pair, numbers in where.items():
            count = sum(map(weight, numbers))
            if count >= self._least and (not self._is_limited or self._allows(pair)):
                self._where[pair], self._total[pair] = numbers, count
                self._enqueue(pair, count)

    def _allows(self, pair: str) -> bool:
        return self.rules.allows(*(self.tokens[ord(symbol)] for symbol in pair))

    # --- the queue -----------------------------------------------------------------------------

    def _enqueue(self, pair: str, count: int) -> None:
        entry = pair if self.rules.ties == "huggingface" else (self._where[pair][0], 0, pair)
        if count == self._level:
            heappush(self._bucket, entry)
        else:
            if count not in self._buckets:
                heappush(self._levels, -count)
            self._buckets[count].append(entry)

    def _most_frequent(self) -> str | None:
        """The pair that is next by count and ties, taken out of the queue; None if there is none.

        Counts only fall and first places only move back, so an entry never stands too low.
        """
        while True:
            if not self._bucket:
                if not self._levels:
                    return None
                self._level = -heappop(self._levels)
                self._bucket = self._buckets.pop(self._level)
                heapify(self._bucket)
            entry = heappop(self._bucket)
            pair = entry if type(entry) is str else entry[2]
            count = self._total.get(pair)
            if count == self._level:
                if entry is pair or entry == (place := self._first_place(pair)):
                    return pair
                heappush(self._bucket, place)
            elif count is not None and count >= self._least:
                self._enqueue(pair, count)
            else:
                self._total.pop(pair, None)
                self._where.pop(pair, None)

    def _first_place(self, pair: str) -> Place:
        numbers = self._where[pair]
        gone = 0
        while pair not in self.words[numbers[gone]]:
            gone += 1
        del numbers[:gone]
        word = self.words[numbers[0]]
        before = word[: word.index(pair)]
        return numbers[0], sum(len(self.tokens[ord(symbol)]) for symbol in before), pair

    # --- one merge -----------------------------------------------------------------------------

    def _merge(self, pair: str) -> int:
        """Make pair a symbol in all words; the number of words that had to be looked at."""
        next_id = self.next_id
        id = self._add_token(*map(ord, pair))
        del self._total[pair]
        numbers = self._where.pop(pair)
        made = self._replace(pair, chr(id), numbers)
        if id == next_id:
            self._update(made)
        else:  # pairs with this symbol may be in other words already
            self._index()
        return len(numbers)

    def _add_token(self, left: int, right: int) -> int:
        token = self.tokens[left] + self.tokens[right]
        id = self.ids.get(token, self.next_id)
        self.next_id += token not in self.ids
        self.ids[token], self.tokens[id] = id, token
        self.merges.append((left, right))
        return id

    def _replace(self, pair: str, symbol: str, numbers: list[int]) -> list[Made]:
        """Replace pair in these words, from left to right; what that does to its neighbours."""
        words = self.words
        lefts: dict[str, list[int]] = defaultdict(list)  # symbol before -> numbers of words
        rights: dict[str, list[int]] = defaultdict(list)
        between: list[int] = []  # where two merged pairs follow one another
        once = dict.fromkeys(numbers)  # a word that has the pair twice is listed twice
        may_repeat = len(once) < len(numbers)
        for number in once:
            before, found, after = words[number].partition(pair)
            if not found:
                continue
            if may_repeat and pair in after:
                parts = words[number].split(pair)
                words[number] = symbol.join(parts)
                _neighbours(parts, number, lefts, rights, between)
                continue
            words[number] = before + symbol + after
            if before:
                lefts[before[-1]].append(number)
            if after:
                rights[after[0]].append(number)
        first, last = pair
        made = [(left + first, left + symbol, where) for left, where in lefts.items()]
        made += [(last + right, symbol + right, where) for right, where in rights.items()]
        if between:
            made.append((last + first, symbol + symbol, between))
        return made

    def _update(self, made: list[Made]) -> None:
        """Correct the counts, and queue the new pairs."""
        total, buckets, weight = self._total, self._buckets, self.weights.__getitem__
        is_plain = self.rules.ties == "huggingface"  # then an entry is the pair alone
        for gone, pair, numbers in made:
            count = sum(map(weight, numbers))
            if gone in total:
                total[gone] -= count
            if count >= self._least and (not self._is_limited or self._allows(pair)):
                total[pair] = count
                self._where[pair] = numbers
                if is_plain and count in buckets:
                    buckets[count].append(pair)
                else:
                    self._enqueue(pair, count)


def _neighbours(
    parts: Sequence[str],
    number: int,
    lefts: Mapping[str, list[int]],
    rights: Mapping[str, list[int]],
    between: list[int],
) -> None:
    """Note what stands before and after each of several merged pairs; parts lie around them."""
    for i, (before, after) in enumerate(zip(parts, parts[1:])):
        if before:
            lefts[before[-1]].append(number)
        elif i:
            between.append(number)
        if after:
            rights[after[0]].append(number)
