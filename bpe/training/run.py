"""a corpus and options -> one training run that loses no more than a minute of work.

    corpus --corpus--> chunks --counts--> piece counts --learn--> merges --base--> Spec

The stages are in other files. This one joins them, reports how far they are, and saves the state
between two chunks or two merges, where it is whole. Blind spot: how any stage does its work.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bpe.encoding.pieces import PieceCache
from bpe.encoding.workers import available_cores
from bpe.garbage import no_garbage_collection
from bpe.spec import Spec
from bpe.tokenizer import Tokenizer
from bpe.training import spill
from bpe.training.checkpoint import State, check_replaceable, read_checkpoint, write_checkpoint
from bpe.training.corpus import Chunk, Documents, Files, chunks
from bpe.training.counts import Counting, PieceCounter
from bpe.training.learn import Learner
from bpe.training.options import How, Options, Progress, Result
from bpe.training.splitting import Splitter

CHECKPOINT_SECONDS = 30.0  # of work that a kill may cost
TICK_SECONDS = 0.1  # between two reports of progress
QUICK_SECONDS = 0.5  # a state that takes longer to write is not written on an interrupt
PROCESS_BYTES = 48 << 20  # what a process takes without a corpus: 21 MB measured, and some room

Corpus = Documents | Files | Counter[str]


@dataclass
class Tally:
    """What a run must remember besides counts and merges; a checkpoint keeps it."""

    num_bytes: int = 0  # of text that was trained on
    num_held_bytes: int = 0
    num_chunks: int = 0
    crc: int = 0  # of all their texts
    runs: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)  # counts of the part that is held out
    num_pieces: int = 0  # distinct ones that were learned from
    num_lost: int = 0  # distinct pieces that were left out to save memory
    lost_occurrences: int = 0
    sizes: list[list[int]] = field(default_factory=list)  # vocab size, merges, tokens, reached it

    @property
    def num_read(self) -> int:
        """Bytes of text."""
        return self.num_bytes + self.num_held_bytes


class Watch:
    """Reports progress and saves the state, each at its intervals.

    An interrupt that comes out of `progress` comes at a moment when the state is whole.
    """

    def __init__(self, how: How) -> None:
        self._progress = how.progress
        self._reported = self._saved = self._begun = time.monotonic()
        self._saving_seconds = 0.0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - self._begun

    def tick(
        self, phase: str, done: int, total: int | None, save: Callable[[], object] | None
    ) -> None:
        """Call often; save is None while the state can't be saved."""
        now = time.monotonic()
        if now - self._reported < TICK_SECONDS:
            return
        self._reported = now
        if self._progress:
            try:
                self._progress(Progress(phase, done, total, now - self._begun))
            except KeyboardInterrupt:
                if save and self._saving_seconds < QUICK_SECONDS:
                    save()
                raise
        if save and now - self._saved >= CHECKPOINT_SECONDS:
            save()
            self._saved = time.monotonic()
            self._saving_seconds = self._saved - now


def run(corpus: Corpus, options: Options, how: dict[str, Any]) -> Result:
    """Count and learn; how: the fields of How."""
    return _Run(corpus, options, How(**how)).train()


def run_counting(corpus: Corpus, options: Options, how: dict[str, Any]) -> Counter[str]:
    """Only count."""
    return _Run(corpus, options, How(**how)).count()


class _Run:
    def __init__(self, corpus: Corpus, options: Options, how: How) -> None:
        if how.max_memory and options.ties == "first-seen":
            raise ValueError(
                "max_memory sorts pieces on disk, so the order that ties='first-seen' needs is "
                "lost; leave one of the two out"
            )
        self.corpus, self.options, self.how = corpus, options, how
        self.workers = how.workers or available_cores()
        self.checkpoint = Path(how.checkpoint) if how.checkpoint is not None else None
        self.tally = Tally()
        self.watch = Watch(how)
        self.plan = self._make_plan() if self.checkpoint else {}
        if self.checkpoint:
            check_replaceable(self.checkpoint)
            if isinstance(corpus, Files):
                corpus.check_apart([self.checkpoint])
        self.state = self._read_state() if how.resume else None

    def train(self) -> Result:
        counts = self.count()
        # Learning makes millions of lists and no cycles: a tenth of its time.
        with self.watch.phase("learning"), no_garbage_collection():
            learner = self._restored_learner() if self._is_counted() else self._new_learner(counts)
            self._learn(learner)
        if self._runs_folder:
            shutil.rmtree(self._runs_folder, ignore_errors=True)
        return self._result(learner)

    def _is_counted(self) -> bool:
        return self.state is not None and self.state.phase == "learning"

    # --- counting ------------------------------------------------------------------------------

    def count(self) -> Counter[str]:
        """The counts of the whole corpus, or of as much of it as fits; none once they are used."""
        if isinstance(self.corpus, Counter):
            return self.corpus
        unread = self._unread()
        if self._is_counted():
            return Counter()
        with self.watch.phase("counting"), self._folder() as folder:
            counting = Counting(
                self.options.cutting,
                self.workers,
                in_order=self.options.ties == "first-seen",
                share=self._share(),
                folder=folder,
            )
            try:
                self._restore_counting(counting, folder)
                self._read(unread, counting)
                return self._counted(counting)
            finally:
                counting.close()

    def _unread(self) -> Iterator[Chunk]:
        """The chunks that the state doesn't hold; ValueError if the others aren't what they were.

        To know that, they are read again, which takes a small part of the time of counting them.
        """
        last_cut = Splitter(self.options.cutting).last_cut
        found = chunks(self.corpus.parts(last_cut), self.how.limit)
        if self.state:
            with self.watch.phase("checking"):
                is_same = self._holds(islice(found, self.tally.num_chunks))
                is_same = is_same and not (self._is_counted() and next(found, None))
            if not is_same:
                raise ValueError(
                    f"the corpus no longer holds what the run of {self.checkpoint} has read, so it "
                    "can't go on; start without resuming, or with the corpus as it was"
                )
        return found

    def _holds(self, found: Iterator[Chunk]) -> bool:
        """Whether the chunks are those that the state counted."""
        crc = num_chunks = num_bytes = 0
        for chunk in found:
            crc, num_chunks = chunk.crc(crc), num_chunks + 1
            num_bytes += chunk.num_bytes
            self.watch.tick("checking", num_bytes, self.tally.num_read, None)
        return (crc, num_chunks) == (self.tally.crc, self.tally.num_chunks)

    def _read(self, unread: Iterator[Chunk], counting: Counting) -> None:
        tally, total = self.tally, self.corpus.num_bytes
        total = self.how.limit if total is None else min(total, self.how.limit or total)
        held = PieceCounter(self.options.cutting)
        every = round(1 / self.how.held_out) if self.how.held_out else 0
        save = self.checkpoint and partial(self._save_counts, counting)
        for chunk in unread:
            tally.num_chunks += 1
            tally.crc = chunk.crc(tally.crc) if self.checkpoint else 0
            if every and tally.num_chunks % every == 0:
                held.add(0, chunk.texts)
                tally.held = dict(Counter(tally.held) + held.take().as_counter())
                tally.num_held_bytes += chunk.num_bytes
            else:
                counting.add(chunk)
                tally.num_bytes += chunk.num_bytes
            self.watch.tick("counting", tally.num_read, total, save)

    def _counted(self, counting: Counting) -> Counter[str]:
        if not self.how.max_memory:
            return counting.add_up()
        runs = counting.flush()
        counting.close()
        kept = spill.most_frequent(runs, self.how.max_memory - PROCESS_BYTES)
        self.tally.num_lost, self.tally.lost_occurrences = kept.num_lost, kept.lost_occurrences
        return kept.counts

    def _share(self) -> int | None:
        """Memory for the table of each process, which for a moment exists twice."""
        if not self.how.max_memory:
            return None
        return (self.how.max_memory - PROCESS_BYTES * self.workers) // (2 * self.workers)

    @contextmanager
    def _folder(self) -> Iterator[Path | None]:
        """Where runs are written; beside a checkpoint they stay, for a resumed run."""
        if not self.how.max_memory:
            yield None
        elif self._runs_folder is None:
            with tempfile.TemporaryDirectory(prefix="bytepair-") as name:
                yield Path(name)
        else:
            self._runs_folder.mkdir(exist_ok=True)
            for path in self._runs_folder.iterdir():
                if path.name not in self.tally.runs:  # newer than the checkpoint
                    path.unlink()
            yield self._runs_folder

    @property
    def _runs_folder(self) -> Path | None:
        return self.checkpoint and self.checkpoint.with_name(self.checkpoint.name + ".runs")

    # --- learning ------------------------------------------------------------------------------

    def _new_learner(self, counts: Counter[str]) -> Learner:
        self.tally.num_pieces = len(counts)
        pieces, weights = list(counts), list(counts.values())
        counts.clear()
        words = self.options.base.words(pieces)
        return self.options.base.learner(words, weights, self.options.rules)

    def _learn(self, learner: Learner) -> None:
        """Learn up to each size in turn, and note where it was reached."""
        total = max(self.options.vocab_sizes)
        save = self.checkpoint and partial(self._save_learner, learner)
        done = {size for size, *_ in self.tally.sizes}
        for size in sorted(set(self.options.vocab_sizes) - done):
            complete = learner.learn(
                size, lambda: self.watch.tick("learning", learner.next_id, total, save)
            )
            entry = [size, len(learner.merges), learner.num_tokens(), int(complete)]
            self.tally.sizes.append(entry)

    def _result(self, learner: Learner) -> Result:
        specs: dict[int, Spec] = {}
        vocabularies = {}
        for size, num_merges, num_tokens, complete in self.tally.sizes:
            specs[size] = self.options.base.with_merges(learner, num_merges)
            vocabularies[size] = {
                "vocab_size": size, "merges": num_merges, "complete": bool(complete),
                "tokens": num_tokens, "bytes_per_token": _ratio(self.tally.num_bytes, num_tokens),
                "held_out_bytes_per_token": self._held_out_compression(specs[size]),
            }  # fmt: skip
        tally, weights = self.tally, learner.weights
        summary = {
            "bytes": tally.num_bytes, "held_out_bytes": tally.num_held_bytes,
            "pieces": sum(weights) + tally.lost_occurrences,
            "distinct_pieces": tally.num_pieces + tally.num_lost,
            "approximate": tally.num_lost > 0, "left_out_pieces": tally.num_lost,
            "ties": self.options.ties, "seconds": self.watch.seconds,
            "peak_memory_bytes": peak_memory(),
            "vocabularies": [vocabularies[size] for size in self.options.vocab_sizes],
        }  # fmt: skip
        tokenizers = {size: Tokenizer(spec) for size, spec in specs.items()}
        return Result([tokenizers[size] for size in self.options.vocab_sizes], summary)

    def _held_out_compression(self, spec: Spec) -> float | None:
        if not self.tally.held:
            return None
        cache = PieceCache(spec)
        num_tokens = sum(count * len(cache[piece]) for piece, count in self.tally.held.items())
        return _ratio(self.tally.num_held_bytes, num_tokens)

    # --- checkpoints ---------------------------------------------------------------------------

    def _make_plan(self) -> dict[str, Any]:
        """What must be the same for a run to go on where another stopped."""
        options = self.options
        corpus = self.corpus
        what = _describe(corpus) if isinstance(corpus, Counter) else corpus.describe()
        return {
            "corpus": what, "limit": self.how.limit, "held-out share": self.how.held_out,
            "max memory": self.how.max_memory, "vocabulary sizes": list(options.vocab_sizes),
            "rules": repr(options.rules), "splitting": repr(options.cutting),
            "vocabulary to begin with": zlib.crc32(repr(options.base.spec).encode()),
        }  # fmt: skip

    def _save_counts(self, counting: Counting) -> None:
        if self.how.max_memory:
            self.tally.runs = [path.name for path in counting.flush()]
        else:
            counting.add_up()
        self._save("counting", list(counting.table), list(counting.table.values()))

    def _save_learner(self, learner: Learner) -> None:
        self._save("learning", learner.words, learner.weights, learner.merges)

    def _save(self, phase: str, words: list[str], weights: list[int], merges: Any = ()) -> None:
        numbers = vars(self.tally)
        state = State(self.plan, phase, words, weights, numbers, list(merges))
        write_checkpoint(self.checkpoint, state)

    def _read_state(self) -> State | None:
        state = read_checkpoint(self.checkpoint, self.plan)
        if state:
            self.tally = Tally(**state.numbers)
        return state

    def _restore_counting(self, counting: Counting, folder: Path | None) -> None:
        if self.state:
            counting.table.update(dict(zip(self.state.words, self.state.weights)))
            counting.runs += [folder / name for name in self.tally.runs]
            self.state = None

    def _restored_learner(self) -> Learner:
        state, self.state = self.state, None
        return self.options.base.learner(
            state.words, state.weights, self.options.rules, state.merges
        )


def _describe(counts: Counter[str]) -> list[Any]:
    crc = 0
    for piece, count in counts.items():
        crc = zlib.crc32(f"{count} {piece}\n".encode("utf-8", "surrogatepass"), crc)
    return ["counts", len(counts), crc]


def _ratio(num_bytes: int, num_tokens: int) -> float | None:
    return round(num_bytes / num_tokens, 4) if num_tokens else None


def peak_memory() -> int | None:
    """The most memory that this process had, in bytes; None where the system doesn't say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
