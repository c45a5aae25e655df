"""Tokenizers in forked and spawned processes, and in copies: each with processes of its own.

What forks runs in a fresh interpreter, which must answer within a time: a fault shows as a hang.
"""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from paths import ROOT

import bpe
from tests.bpe.encoding.test_workers import alive, ended

TEXTS = ["The capital of France is Paris.", "<think> é\u0301 中文", ""] * 40

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

# What the scripts begin with: a tokenizer with processes, in chunks so small that both are used.
PREAMBLE = """
import multiprocessing, os, sys, threading, time
import bpe
from bpe.encoding import workers as batch

batch.CHUNK_CHARACTERS = 60
TEXTS = {texts!r}

def right(tokenizer, times=5):
    expected = [tokenizer.encode(text) for text in TEXTS]
    return all(tokenizer.encode_batch(TEXTS, workers=2) == expected for _ in range(times))

def pids(tokenizer):
    return [process.pid for process in tokenizer._workers.processes]

def in_fork(work):
    pid = os.fork()
    if pid == 0:
        sys.exit(0 if work() else 1)  # not os._exit: what is registered for the exit must run
    return pid

def all_well(children):
    return not any([os.waitpid(pid, 0)[1] for pid in children])

if __name__ == "__main__":
    tokenizer = bpe.Tokenizer.from_file({path!r})
"""


@pytest.fixture
def script(tiny_directory, tmp_path):
    """Runs the lines in a fresh interpreter and gives what it prints."""

    def run(lines):
        path = str(tiny_directory / "tokenizer.json")
        preamble = PREAMBLE.format(texts=TEXTS, path=path)
        file = tmp_path / "script.py"
        file.write_text(preamble + textwrap.indent(textwrap.dedent(lines), "    "))
        process = subprocess.Popen(
            [sys.executable, file], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            printed, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its forks as well
            process.communicate()
            raise
        assert (process.returncode, errors) == (0, ""), errors
        return printed.split()

    return run


@forks
def test_parent_and_children_at_once(script):
    printed = script("""
        assert right(tokenizer)
        before = pids(tokenizer)
        children = [in_fork(lambda: right(tokenizer) and not {*pids(tokenizer)} & {*before})
                    for _ in range(3)]
        assert right(tokenizer, 20)
        assert all_well(children)
        assert right(tokenizer) and pids(tokenizer) == before  # the children's end stopped none
        print(*before)
    """)  # fmt: skip
    assert len(printed) == 2
    assert ended(map(int, printed))


@forks
def test_children_that_only_end(script):
    """Also by the collection of the tokenizer, and with all that is registered for the exit."""
    script("""
        def forget():
            global tokenizer
            del tokenizer
            return True

        assert right(tokenizer)
        assert all_well([in_fork(lambda: True), in_fork(forget)])
        before = pids(tokenizer)
        assert right(tokenizer) and pids(tokenizer) == before
    """)


@forks
def test_grandchildren(script):
    script("""
        def with_child():
            first = right(tokenizer)
            child = in_fork(lambda: right(tokenizer))
            return first and right(tokenizer) and all_well([child])

        assert right(tokenizer)
        children = [in_fork(with_child), in_fork(lambda: all_well([in_fork(with_child)]))]
        assert right(tokenizer) and all_well(children)
    """)


@forks
def test_forks_while_other_threads_encode(script):
    script("""
        import warnings
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # threads and forks
        results, go_on = [], True

        def encode():
            while go_on:
                results.append(right(tokenizer, 1))

        threads = [threading.Thread(target=encode) for _ in range(2)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(6):
            children.append(in_fork(lambda: right(tokenizer, 1)))
            time.sleep(0.02)
        fine = all_well(children)
        go_on = False
        for thread in threads:
            thread.join()
        assert fine and results and all(results)
    """)


@forks
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools(script, method):
    script(f"""
        if {method!r} == "fork":
            assert right(tokenizer)
        expected = [tokenizer.encode(text) for text in TEXTS]
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            jobs = pool.map_async(right, [tokenizer] * 4, chunksize=1)
            assert pool.map(tokenizer.encode, TEXTS) == expected
            assert right(tokenizer)
            assert jobs.get(40) == [True] * 4
        assert right(tokenizer)
    """)


@forks
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_processes_end_with_their_owner_though_its_child_lives(tiny_directory):
    lines = """
        right(tokenizer)
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        child = os.fork() or time.sleep(60)
        print(child, *pids(tokenizer), flush=True)
        time.sleep(60)
    """
    preamble = PREAMBLE.format(texts=TEXTS, path=str(tiny_directory / "tokenizer.json"))
    code = preamble + textwrap.indent(textwrap.dedent(lines), "    ")
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        child, *pids = map(int, owner.stdout.readline().split())
        assert len(pids) == 2
        assert all(map(alive, pids))
        owner.kill()
        owner.wait()
        assert ended(pids)
        assert alive(child)
    finally:
        os.killpg(owner.pid, signal.SIGKILL)


@forks
def test_forks_while_training(script):
    """Documents that are read by forks: the helper ends with training, and no fork feeds it."""
    script("""
        from bpe.training.counts import Counting
        from bpe.training.corpus import Chunk
        from bpe.training.splitting import Cutting
        from bpe.spec import QWEN_PATTERN, Split
        cutting = Cutting((Split(QWEN_PATTERN),))

        def counts(num_workers, forks):
            counting = Counting(cutting, num_workers, small_corpus=0)
            children = []
            for text in TEXTS:
                counting.add(Chunk([text], len(text)))
                children += [in_fork(lambda: fails(counting))] if forks else []
            table = counting.add_up()
            assert all_well(children)
            table = counting.add_up()
            counting.close()
            return table

        def fails(counting):
            try:
                counting.add_up()
            except RuntimeError as error:
                return "fork" in str(error)

        assert counts(2, True) == counts(1, False)
    """)


def test_two_threads_at_once(tiny, monkeypatch):
    """Each gets its own answers, also where they ask for unequal numbers of processes."""
    from concurrent.futures import ThreadPoolExecutor

    from bpe.encoding import workers as batch

    monkeypatch.setattr(batch, "CHUNK_CHARACTERS", 60)
    tokenizer = bpe.Tokenizer(tiny.spec)
    texts = [[f"{i} {text}" for text in TEXTS] for i in range(6)]
    expected = [[tokenizer.encode(text) for text in some] for some in texts]

    def encode(some, workers):
        return tokenizer.encode_batch(some, workers=workers)

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(encode, texts, [2] * 6)) == expected
        assert list(threads.map(encode, texts, [2, 3] * 3)) == expected


# --- pickles and copies --------------------------------------------------------------------------

COPIES = {
    "pickle": lambda tokenizer: pickle.loads(pickle.dumps(tokenizer)),
    "oldest pickle": lambda tokenizer: pickle.loads(pickle.dumps(tokenizer, protocol=0)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("unicode", ["huggingface", "current"])
@pytest.mark.parametrize("way", COPIES)
def test_copies_are_equal(tiny, way, unicode):
    tokenizer = bpe.Tokenizer(tiny.spec, unicode=unicode)
    expected = [tokenizer.encode(text, allowed_special="all") for text in TEXTS]
    tokenizer.encode_batch(TEXTS, workers=2)
    again = COPIES[way](tokenizer)
    assert (again.spec, again._unicode, again._workers) == (tokenizer.spec, unicode, None)
    assert again.spec.token_bytes == tokenizer.spec.token_bytes
    assert again.spec.merged == tokenizer.spec.merged
    assert [again.encode(text, allowed_special="all") for text in TEXTS] == expected
    messages = [{"role": "user", "content": "the cat"}]
    assert again.apply_chat_template(messages) == tokenizer.apply_chat_template(messages)
    assert again.decode(expected[0]) == tokenizer.decode(expected[0])
    del again
    assert all(alive(process.pid) for process in tokenizer._workers.processes)


def test_a_pickle_holds_no_caches(qwen3):
    before = len(pickle.dumps(bpe.Tokenizer(qwen3.spec)))
    tokenizer = bpe.Tokenizer(qwen3.spec)
    tokenizer.encode(" ".join(map(str, range(20_000))))
    assert len(pickle.dumps(tokenizer)) == before < 4_500_000
