"""workers.py: what several processes give against one, and that no process outlives its use."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import ROOT
from tiny import CORPUS

import bpe
from bpe.encoding import workers as batch
from bpe.spec import Padding


@pytest.fixture
def tokenizer(tiny):
    """A tokenizer of its own, so that its workers end with the test."""
    return bpe.Tokenizer(tiny.spec)


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pids, seconds=10):
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_same_ids_in_the_same_order(tokenizer, monkeypatch):
    monkeypatch.setattr(batch, "CHUNK_CHARACTERS", 100)
    texts = [CORPUS[i : i + i % 37] + "<|im_end|>" * (i % 3) for i in range(300)]
    for options in ({}, {"allowed_special": "all"}, {"added_tokens": False}):
        expected = [tokenizer.encode(text, **options) for text in texts]
        assert tokenizer.encode_batch(texts, workers=3, **options) == expected
    assert tokenizer.encode_batch([], workers=2) == []
    assert tokenizer.encode_batch(iter(["", "a"]), workers=2) == [[], tokenizer.encode("a")]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("length", "multiple_of", "direction", "num_padding"),  # recorded from tokenizers 0.23.3
    [
        (None, None, "Left", (4, 0, 5)),
        (None, 4, "Right", (7, 3, 8)),
        (3, None, "Right", (2, 0, 3)),
        (3, 4, "Left", (3, 0, 4)),
    ],
)
def test_texts_are_filled_up_to_the_longest(
    tiny, workers, length, multiple_of, direction, num_padding
):
    padding = Padding(9, length, multiple_of, direction)
    tokenizer = bpe.Tokenizer(dataclasses.replace(tiny.spec, padding=padding))
    expected = []
    for text, n in zip(("x", "xyxyx", ""), num_padding):
        ids, fill = tiny.encode(text), [9] * n
        expected.append(fill + ids if direction == "Left" else ids + fill)
    assert tokenizer.encode_batch(["x", "xyxyx", ""], workers=workers) == expected


def test_workers_are_kept_and_end_with_the_tokenizer(tokenizer):
    tokenizer.encode_batch(["a"], workers=2)
    pids = {process.pid for process in tokenizer._workers.processes}
    tokenizer.encode_batch(["b"], workers=2)
    assert {process.pid for process in tokenizer._workers.processes} == pids
    assert all(map(alive, pids))
    tokenizer._workers = None
    assert ended(pids)


def test_small_batches_start_no_process(tokenizer):
    tokenizer.encode_batch(["a"] * 1000)
    assert tokenizer._workers is None


def test_errors_come_back_and_the_workers_go_on(tokenizer):
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.encode_batch(["a", "\ud800"], workers=2)
    with pytest.raises(ValueError, match="neither"):
        tokenizer.encode_batch(["a"], workers=2, allowed_special="some")
    with pytest.raises(TypeError, match="not int"):
        tokenizer.encode_batch(["a", 1], workers=2)
    with pytest.raises(ValueError, match="at least 1"):
        tokenizer.encode_batch(["a"], workers=0)
    assert tokenizer.encode_batch(["a"], workers=2) == [tokenizer.encode("a")]


def test_a_worker_that_dies_is_reported(tokenizer):
    tokenizer.encode_batch(["a"], workers=2)
    for process in tokenizer._workers.processes:
        process.kill()
        process.wait()
    with pytest.raises(RuntimeError, match="ended unexpectedly"):
        tokenizer.encode_batch(["a"], workers=2)
    assert tokenizer.encode_batch(["a"], workers=2) == [tokenizer.encode("a")]


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_workers_end_when_their_caller_is_killed(tiny_directory):
    script = (
        "import bpe, time\n"
        f"tokenizer = bpe.Tokenizer.from_file({str(tiny_directory / 'tokenizer.json')!r})\n"
        "tokenizer.encode_batch(['a'], workers=2)\n"
        "print(*(process.pid for process in tokenizer._workers.processes), flush=True)\n"
        "time.sleep(60)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    assert ended(pids)
