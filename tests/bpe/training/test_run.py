"""Training runs: an interrupted one goes on where it stopped, memory has a ceiling, sums hold."""

import contextlib
import gzip
import io
import json
import os
import random
import threading

import pytest

import bpe
from bpe.training import run as run_module
from bpe.training.checkpoint import State, read_checkpoint, write_checkpoint
from bpe.training.corpus import Documents, find_files
from bpe.training.options import split_options
from bpe.training.run import run


class Killed(BaseException):
    """Stands for kill -9: nobody catches it to save anything."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files, 300 kB, with some words that come once."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    stems = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(900)]
    for number in range(3):
        words = [
            f"{rng.choice([' ', ' ', chr(10), ' été', ' 你'])}{rng.choice(stems)}"
            f"{'' if rng.random() < 0.9 else rng.getrandbits(40)}"
            for _ in range(12_000)
        ]
        (folder / f"{number}.txt").write_text("".join(words))
    return folder


@pytest.fixture
def eager(monkeypatch):
    """Report at every chance, and save at every one."""
    monkeypatch.setattr(run_module, "TICK_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "QUICK_SECONDS", 1e9)


def stop_after(num_ticks, exception):
    """A progress callback that raises at the num_ticks-th call about work; it counts them."""

    def progress(how_far):
        if how_far.phase == "checking":
            return
        progress.calls += 1
        if progress.calls == num_ticks:
            raise exception

    progress.calls = 0
    return progress


OPTIONS = [
    {},
    {"ties": "first-seen", "workers": 2},
    {"max_memory": 1 << 28, "workers": 1},
    {"held_out": 0.2, "limit": 200_000, "lines": True},
    {"max_token_length": 4, "special_tokens": ["ab"], "cut_special_tokens": False},
]


@pytest.mark.parametrize("exception", [KeyboardInterrupt, Killed])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "default")
def test_an_interrupted_run_goes_on_to_the_same_file(options, exception, corpus, tmp_path, eager):
    sizes = [300, 500, 700]
    counter = stop_after(0, None)
    whole = run(find_files(corpus), *split_options(sizes, options | {"progress": counter}))
    checkpoint = tmp_path / "checkpoint"
    how = options | {"checkpoint": checkpoint}
    total = counter.calls
    assert total > 15
    for num_ticks in (1, 2, total // 4, total // 2, total - 8, total - 1):
        checkpoint.unlink(missing_ok=True)
        stop = stop_after(num_ticks, exception)
        with pytest.raises(exception):
            run(find_files(corpus), *split_options(sizes, how | {"progress": stop}))
        assert checkpoint.exists() or (exception is Killed and num_ticks == 1)
        how["resume"] = True
        progress = stop_after(0, None)
        again = run(find_files(corpus), *split_options(sizes, how | {"progress": progress}))
        how["resume"] = False
        assert [t.spec for t in again.tokenizers] == [t.spec for t in whole.tokenizers]
        left = {"seconds": None, "peak_memory_bytes": None}
        assert again.summary | left == whole.summary | left
        assert progress.calls <= total - num_ticks + 5  # nothing was done twice


def test_an_interrupted_run_is_interrupted_again(corpus, tmp_path, eager):
    how = {"checkpoint": tmp_path / "c", "resume": True}
    expected = bpe.train_files(corpus, 600).spec
    for _ in range(200):
        try:
            found = bpe.train_files(corpus, 600, **how, progress=stop_after(7, KeyboardInterrupt))
        except KeyboardInterrupt:
            continue
        break
    assert found.spec == expected


def test_documents_of_an_iterator_are_skipped_up_to_the_checkpoint(tmp_path, eager):
    texts = [f"low lower newest {i % 70} " * 900 for i in range(80)]
    how = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        bpe.train(iter(texts), 300, **how, progress=stop_after(9, KeyboardInterrupt))
    again = bpe.train(iter(texts), 300, **how, resume=True)
    assert again.spec == bpe.train(texts, 300).spec


def test_a_checkpoint_of_another_run_is_refused(corpus, tmp_path, eager):
    how = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        bpe.train_files(corpus, 500, **how, progress=stop_after(5, KeyboardInterrupt))
    for options, name in [
        ({"min_frequency": 3}, "rules"),
        ({"pattern": "gpt2"}, "splitting"),
        ({"limit": 1000}, "limit"),
        ({"special_tokens": ["<s>"]}, "splitting"),
    ]:
        with pytest.raises(ValueError, match=f"is of a run with another {name}"):
            bpe.train_files(corpus, 500, **how, resume=True, **options)
    with pytest.raises(ValueError, match="another vocabulary sizes"):
        bpe.train_files(corpus, 501, **how, resume=True)
    with pytest.raises(ValueError, match="another corpus"):
        bpe.train_files(sorted(corpus.glob("*"))[:2], 500, **how, resume=True)


# --- a corpus that has changed meanwhile ---------------------------------------------------------

WORDS = [f"{a}{b}{c}é " for a in "low" for b in ("new", "er", "ide", "th") for c in "abcdefghij"]
TEXTS = ["".join(random.Random(i).choices(WORDS, k=5000)) for i in range(9)]
KINDS = ["txt", "txt.gz", "jsonl", "documents", "stdin", "fifo"]
CHANGES = {
    "one letter": [TEXTS[0].replace("w", "v", 1), *TEXTS[1:]],
    "one letter at the end": [*TEXTS[:-1], TEXTS[-1][:-1] + "x"],
    "shorter": TEXTS[:1],
    "longer": [*TEXTS, "more"],
    "empty": [],
}


@pytest.fixture
def give(tmp_path, monkeypatch):
    """give(kind, texts): a corpus of that kind which holds texts, always under the same name."""
    writers = []

    def corpus_of(kind, texts):
        if kind == "documents":
            return Documents(iter(texts))
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        data = "".join(lines if kind == "jsonl" else texts).encode()
        path = tmp_path / f"corpus.{kind}"
        if kind == "stdin":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        elif kind == "fifo":
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            writers.append(threading.Thread(target=pour, args=(path, data)))
            writers[-1].start()
        else:
            path.write_bytes(gzip.compress(data) if kind == "txt.gz" else data)
        return find_files("-" if kind == "stdin" else path)

    yield corpus_of
    for writer in writers:
        writer.join(10)


def pour(path, data):
    with contextlib.suppress(BrokenPipeError), path.open("wb") as file:
        file.write(data)


def stop_in(phase):
    """A progress callback that raises at the first call about learning, the second of counting."""
    calls = []

    def progress(how_far):
        calls.append(how_far.phase)
        if calls.count(phase) == {"counting": 2, "learning": 1}[phase]:
            raise KeyboardInterrupt

    return progress


def trained(given, **how):
    return run(given, *split_options(300, how)).tokenizers[0].spec


@pytest.mark.parametrize("phase", ["counting", "learning"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_with_what_it_has_read_and_with_nothing_else(
    kind, phase, give, tmp_path, eager
):
    checkpoint = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        trained(give(kind, TEXTS), checkpoint=checkpoint, progress=stop_in(phase))
    saved = checkpoint.read_bytes()
    for change, texts in CHANGES.items():
        is_read = phase == "learning" or change not in ("one letter at the end", "longer")
        if is_read or (kind in ("txt", "jsonl") and change == "longer"):  # files whose size is told
            with pytest.raises(ValueError, match=r"another corpus|the corpus no longer holds"):
                trained(give(kind, texts), checkpoint=checkpoint, resume=True)
            assert checkpoint.read_bytes() == saved
        else:
            again = trained(give(kind, texts), checkpoint=checkpoint, resume=True)
            assert again == trained(give(kind, texts)), change
            checkpoint.write_bytes(saved)
    again = trained(give(kind, TEXTS), checkpoint=checkpoint, resume=True)
    assert again == trained(give(kind, TEXTS))


def test_documents_with_other_borders_are_another_corpus(tmp_path, eager):
    """Also where their text, one after the other, is the same."""
    texts = TEXTS[:2]
    moved = [texts[0] + texts[1][0], texts[1][1:]]
    how = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        bpe.train(texts, 300, **how, progress=stop_in("learning"))
    with pytest.raises(ValueError, match="the corpus no longer holds"):
        bpe.train(moved, 300, **how, resume=True)


def test_counts_are_compared_too(tmp_path, eager):
    counts = bpe.count_pieces(TEXTS)
    how = {"checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        bpe.train_from_counts(counts, 300, **how, progress=stop_in("learning"))
    word = max(counts, key=counts.get)
    for other in (counts | {word: 1}, counts | {"new": 1}):
        with pytest.raises(ValueError, match="is of a run with another corpus"):
            bpe.train_from_counts(other, 300, **how, resume=True)
    again = bpe.train_from_counts(counts, 300, **how, resume=True)
    assert again.spec == bpe.train_from_counts(counts, 300).spec


def test_another_corpus_is_one_sentence_however_many_files(tmp_path, eager):
    for number in range(500):
        (tmp_path / f"{number}.txt").write_text(TEXTS[0])
    how = {"checkpoint": tmp_path / "c"}
    files = sorted(tmp_path.glob("*.txt"))
    with pytest.raises(KeyboardInterrupt):
        bpe.train_files(files, 300, **how, progress=stop_in("counting"))
    files[250].write_text("another")
    with pytest.raises(ValueError, match=r"another corpus \(.*, 7\]\), so it can't") as error:
        bpe.train_files(files, 300, **how, resume=True)
    assert len(str(error.value)) < 600


def test_a_checkpoint_never_replaces_another_file(corpus, tmp_path):
    data = (corpus / "1.txt").read_bytes()
    (tmp_path / "link").symlink_to(corpus / "1.txt")
    for checkpoint in (corpus / "1.txt", tmp_path / "link"):
        with pytest.raises(ValueError, match="is there and is no checkpoint"):
            bpe.train_files(corpus, 300, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="all of which is read, so the next run would read it"):
        bpe.train_files(corpus, 300, checkpoint=corpus / "new")
    assert (corpus / "1.txt").read_bytes() == data
    assert len(list(corpus.iterdir())) == 3
    (tmp_path / "empty").touch()
    bpe.train_files(corpus, 300, checkpoint=tmp_path / "empty")


def test_checkpoints_hold_any_symbol_and_notice_damage(tmp_path):
    words = ["a\n,\t", chr(0xD800) + chr(0xDFFF), chr(0x10FFFE), "", "\0"]
    state = State({"a": 1}, "learning", words, [1, 1 << 70, 3, 4, 5], {"n": 1}, [(1, 2), (3, 4)])
    path = tmp_path / "c"
    write_checkpoint(path, state)
    assert read_checkpoint(path, {"a": 1}) == state
    empty = State({}, "counting", [], [], {})
    write_checkpoint(path, empty)
    assert read_checkpoint(path, {}) == empty
    write_checkpoint(path, state)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"x", whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            read_checkpoint(path, {"a": 1})
    old = whole.replace(b"checkpoint 2", b"checkpoint 1", 1)
    for strange in (b"", b"{}\n", b"\x80\x04K\x01.", old):
        path.write_bytes(strange)
        with pytest.raises(ValueError, match="is no checkpoint of this version"):
            read_checkpoint(path, {"a": 1})
    assert read_checkpoint(tmp_path / "nowhere", {}) is None


# --- the summary ---------------------------------------------------------------------------------


def summary_of(corpus, sizes, **options):
    result = run(find_files(corpus), *split_options(sizes, options))
    return result.tokenizers, result.summary


def test_the_summary_counts_what_the_tokenizers_do(corpus):
    texts = [path.read_text() for path in sorted(corpus.iterdir())]
    num_bytes = sum(len(text.encode()) for text in texts)
    tokenizers, summary = summary_of(corpus, [300, 600])
    counts = bpe.count_pieces(texts)
    assert summary["bytes"] == num_bytes
    assert (summary["pieces"], summary["distinct_pieces"]) == (counts.total(), len(counts))
    for tokenizer, vocabulary in zip(tokenizers, summary["vocabularies"]):
        num_tokens = sum(len(tokenizer.encode(text)) for text in texts)
        assert vocabulary["tokens"] == num_tokens
        assert vocabulary["bytes_per_token"] == round(num_bytes / num_tokens, 4)
        assert vocabulary["held_out_bytes_per_token"] is None
        assert vocabulary["merges"] == len(tokenizer.spec.merges)
        assert vocabulary["complete"]
    assert set(summary["seconds"]) == {"counting", "learning"}
    assert summary["peak_memory_bytes"] > 10e6
    assert not summary["approximate"]


def test_what_is_held_out_is_not_trained_on(corpus):
    files = find_files(corpus)
    _, whole = summary_of(corpus, 300)
    _, summary = summary_of(corpus, 300, held_out=0.25)
    assert summary["bytes"] + summary["held_out_bytes"] == whole["bytes"] == files.num_bytes
    assert 0.15 < summary["held_out_bytes"] / whole["bytes"] < 0.35
    assert summary["pieces"] < whole["pieces"]
    [vocabulary] = summary["vocabularies"]
    assert 1 < vocabulary["held_out_bytes_per_token"] < vocabulary["bytes_per_token"] * 1.2


def test_a_ceiling_that_is_enough_changes_nothing(corpus):
    tokenizers, summary = summary_of(corpus, 500, max_memory=1 << 28)
    assert not summary["approximate"]
    assert tokenizers[0].spec == bpe.train_files(corpus, 500).spec


def test_a_ceiling_that_is_too_low_is_called_approximate(corpus, monkeypatch):
    monkeypatch.setattr("bpe.training.options.LEAST_MEMORY", 0)
    tokenizers, summary = summary_of(
        corpus, 500, max_memory=run_module.PROCESS_BYTES + 400_000, workers=1
    )
    assert summary["approximate"]
    assert 0 < summary["left_out_pieces"] < summary["distinct_pieces"]
    _, whole = summary_of(corpus, 500)
    assert summary["distinct_pieces"] == whole["distinct_pieces"]
    assert summary["pieces"] == whole["pieces"]
    assert tokenizers[0].vocab_size == 500


def test_a_size_out_of_reach_is_incomplete():
    result = run(find_files(__file__), *split_options(100_000, {}))
    [vocabulary] = result.summary["vocabularies"]
    assert not vocabulary["complete"]
    assert result.tokenizers[0].vocab_size == 256 + vocabulary["merges"] < 100_000
