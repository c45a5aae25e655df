"""python -m bpe train: the files it writes, what it says where, and how it is interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from slow_trainer import glyph_merges

import bpe
from bpe.__main__ import main
from bpe.training import cli as train_cli
from bpe.training import run as run_module
from bpe.training.cli import describe
from bpe.training.options import Progress


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    source = Path(__file__).read_text()
    (folder / "a.txt").write_text(source)
    (folder / "b.txt").write_text("low lower newest<|end|> widest été 你好\n" * 50)
    return folder


@pytest.fixture
def train(corpus, tmp_path, capfd):
    """Run the command on the corpus; (exit code, stdout, stderr). Its output is tmp_path/t.json."""

    def call(*arguments, corpus=corpus, output=tmp_path / "t.json"):
        where = [] if corpus is None else [str(corpus)]
        try:
            code = main(["train", *where, "-o", str(output), *map(str, arguments)])
        except SystemExit as exit:
            code = exit.code
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_it_writes_what_the_library_trains(train, corpus, tmp_path):
    code, out, err = train("-n", 400, "--special-token", "<|end|>", "--special-token", "<pad>")
    assert (code, out) == (0, "")
    assert err.startswith(f"{tmp_path / 't.json'}: 400 ids, ")
    found = bpe.Tokenizer.from_file(tmp_path / "t.json")
    expected = bpe.train_files(corpus, 400, special_tokens=["<|end|>", "<pad>"])
    expected.save(tmp_path / "library.json")
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "library.json").read_bytes()
    assert found.encode("low<|end|>", allowed_special="all")[-1] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "library.json", "t.json"]
    assert main(["encode", "--tokenizer", str(tmp_path / "t.json"), "lower"]) == 0


def test_all_options_arrive(train, corpus, tmp_path):
    old = bpe.train_files(corpus, 300)
    old.save(tmp_path / "old.json")
    for arguments, options in [
        (["--pattern", "gpt2", "--normalizer", "nfc"], {"pattern": "gpt2", "normalizer": "nfc"}),
        (["--min-frequency", 9], {"min_frequency": 9}),
        (["--max-token-length", 4], {"max_token_length": 4}),
        (["--ties", "first-seen"], {"ties": "first-seen"}),
        (["--lines", "--workers", 1], {"lines": True}),
        (["--limit", "3.5K"], {"limit": 3500}),
        (["--special-token", "<|end|>", "--learn-special-text"],
         {"special_tokens": ["<|end|>"], "cut_special_tokens": False}),
        (["--extend", tmp_path / "old.json"], {"extend": old}),
        (["--held-out", 0.5], {"held_out": 0.5}),
        (["--max-memory", "1GiB"], {"max_memory": 1 << 30}),
    ]:  # fmt: skip
        assert train("-n", 380, *arguments)[0] == 0
        expected = bpe.train_files(corpus, 380, **options)
        found = bpe.Tokenizer.from_file(tmp_path / "t.json")
        assert found.spec.merges == expected.spec.merges, arguments


def test_several_sizes_give_several_files(train, tmp_path):
    assert train("-n", "300,400,1_000")[0] == 0
    together = {size: (tmp_path / f"t-{size}.json").read_bytes() for size in (300, 400, 1000)}
    for size, data in together.items():
        assert train("-n", size)[0] == 0
        assert (tmp_path / "t.json").read_bytes() == data
    assert train("-n", "300,400", output=tmp_path / "{size}.x.json")[0] == 0
    assert (tmp_path / "400.x.json").read_bytes() == together[400]


def test_the_summary_is_json_on_stdout(train, tmp_path):
    code, out, _ = train("-n", 400, "--json", "--held-out", "0.5")
    summary = json.loads(out)
    assert code == 0
    assert summary["files"] == [str(tmp_path / "t.json")]
    assert set(summary["seconds"]) == {"counting", "learning", "saving"}
    assert summary["vocabularies"][0]["vocab_size"] == 400
    assert summary["ties"] == "huggingface"


def test_a_size_out_of_reach_ends_well(train):
    code, _, err = train("-n", 100_000, "--min-frequency", 5)
    assert code == 0
    assert "less than 100,000: no pair is left that occurs 5 times" in err


def test_standard_input(corpus, tmp_path):
    command = [sys.executable, "-m", "bpe", "train", "-", "-n", "300", "-o", tmp_path / "t.json"]
    subprocess.run(command, cwd=ROOT, input=(corpus / "a.txt").read_bytes(), check=True)
    found = bpe.Tokenizer.from_file(tmp_path / "t.json")
    assert glyph_merges(found) == glyph_merges(bpe.train_files(corpus / "a.txt", 300))


def test_counting_elsewhere_equals_the_direct_run(train, corpus, tmp_path):
    assert train("-n", 400)[0] == 0
    direct = (tmp_path / "t.json").read_bytes()
    tables = []
    for path in corpus.iterdir():
        tables.append(tmp_path / f"{path.stem}.tsv")
        code, out, err = train("--count-only", corpus=path, output=tables[-1])
        assert (code, out) == (0, "")
        assert err.startswith("counted ")
    assert train("-n", 400, "--from-counts", *tables, corpus=None)[0] == 0
    assert (tmp_path / "t.json").read_bytes() == direct
    assert train("-n", 400, "--from-counts", *tables, "--ties", "first-seen", corpus=None)[0] == 0


def test_files_that_are_not_text_are_named(train, corpus):
    (corpus / "picture").write_bytes(b"\0\xff")
    code, _, err = train("-n", 300)
    assert code == 0
    assert err.startswith("left out 1 files that are not text, such as ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-n", "x"], 2, "'x' is no number"),
        (["-n", "300", "--limit", "much"], 2, "'much' is no size such as"),
        ([], 2, "--vocab-size N is missing"),
        (["-n", "300", "--from-counts", "x"], 2, "--from-counts goes without a corpus"),
        (["-n", "300", "--ties", "none"], 2, "invalid choice"),
        (["-n", "200"], 1, "less than the 256 bytes"),
        (["-n", "300", "--extend", "nowhere.json"], 1, "nowhere.json"),
        (["-n", "300", "--field", "x"], 0, ""),
    ],
)
def test_bad_input_is_one_sentence(train, tmp_path, arguments, code, message):
    found, out, err = train(*arguments)
    assert (found, out) == (code, "")
    if code:
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert message in err
        assert not (tmp_path / "t.json").exists()


def test_a_corpus_must_be_there(train):
    code, _, err = train("-n", 300, corpus=None)
    assert (code, "there is no corpus" in err, "(see python -m bpe train --help)" in err) == (
        2, True, True,
    )  # fmt: skip
    code, _, err = train("-n", 300, corpus="nowhere")
    assert (code, err) == (
        1, "error: there is no file, directory or pattern 'nowhere' to read\n",
    )  # fmt: skip


def test_an_empty_corpus_is_an_error(train, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    code, _, err = train("-n", 300, corpus=tmp_path / "empty.txt")
    assert (code, err) == (
        1,
        "error: the corpus holds no text, so there is nothing to learn from\n",
    )
    code, _, err = train("--count-only", corpus=tmp_path / "empty.txt")
    assert code == 1
    assert not (tmp_path / "t.json").exists()


def test_an_output_that_cannot_be_written_is_found_before_reading(train, tmp_path, monkeypatch):
    monkeypatch.setattr(train_cli, "_job", lambda options: pytest.fail("the corpus was read"))
    for output in (tmp_path / "no folder" / "t.json", tmp_path):
        code, _, err = train("-n", 300, output=output)
        assert code == 1
        assert "can't be written" in err
        assert "so nothing was read" in err


def test_an_output_that_would_replace_what_is_read_is_refused(train, corpus, tmp_path):
    """By its name, through links, patterns and directories, as one of several sizes, or stdin."""
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    text, link = corpus / "a.txt", tmp_path / "link.txt"
    link.symlink_to(text)
    (tmp_path / "hard.txt").hardlink_to(text)
    (tmp_path / "folder").symlink_to(corpus)
    table = tmp_path / "t-300.tsv"
    assert train("--count-only", output=table)[0] == 0
    for arguments, read, output in [
        ([], text, text),
        ([], link, text),
        ([], text, link),
        ([], text, tmp_path / "hard.txt"),
        ([], text, tmp_path / "folder" / ".." / "corpus" / "a.txt"),
        ([], corpus / "*.txt", text),
        ([], corpus, text),
        ([], corpus, tmp_path / "folder" / "b.txt"),
        (["--from-counts", table], None, table),
        (["-n", "300,400", "--from-counts", table], None, tmp_path / "t.tsv"),
    ]:
        code, out, err = train("-n", 300, *arguments, corpus=read, output=output)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "is to be written, but" in err
        assert "so it would be lost; write to another one" in err
    code, out, err = train("--count-only", corpus=text, output=text)
    assert "so it would be lost" in err
    assert {path.name: path.read_bytes() for path in corpus.iterdir()} == before
    assert link.is_symlink()


def test_an_output_is_never_the_input_of_the_next_run(train, corpus, tmp_path):
    (corpus / "sub").mkdir()
    (tmp_path / "folder").symlink_to(corpus / "sub")
    for output in (corpus / "t.json", corpus / "sub" / "t.json", tmp_path / "folder" / "t.json"):
        code, out, err = train("-n", 300, output=output)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"{output} is to be written into {corpus}, all of which is read" in err
    (corpus / ".hidden").mkdir()  # is not read
    assert train("-n", 300, output=corpus / ".hidden" / "t.json")[0] == 0
    assert train("-n", 300, corpus=corpus / "a.txt", output=corpus / "t.json")[0] == 0
    found = train("-n", 300, "--checkpoint", corpus / "sub" / "c")
    assert "all of which is read" in found[2]


def test_an_output_is_not_lost_as_its_own_checkpoint(train, corpus, tmp_path):
    for checkpoint in (tmp_path / "t.json", corpus / ".." / "t.json"):
        code, _, err = train("-n", 300, "--checkpoint", checkpoint)
        assert (code, "can't be both the output and the checkpoint" in err) == (1, True)
    (tmp_path / "notes").write_text("mine")
    code, _, err = train("-n", 300, "--checkpoint", tmp_path / "notes")
    assert (code, "is there and is no checkpoint" in err) == (1, True)
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    "corpora",
    [
        "<(cat a.txt) b.txt",
        "<(head -n 60 a.txt) b.txt <(tail -n +61 a.txt)",
        "- b.txt < a.txt",
        "/dev/stdin b.txt < a.txt",
        "/dev/stdin <(cat b.txt) < <(cat a.txt)",
        "b.txt pipe & cat a.txt > pipe",
        "pipe.gz b.txt & gzip -c a.txt > pipe.gz",
        "pipe.jsonl b.txt & cat a.jsonl > pipe.jsonl",
        "<(cat a.txt b.txt) folder",
    ],
)
def test_pipes_are_read_like_files(corpora, corpus, tmp_path):
    """Wherever they stand; one in a directory is left alone, as a device is."""
    (corpus / "a.jsonl").write_text(json.dumps({"text": (corpus / "a.txt").read_text()}))
    (corpus / "folder").mkdir()
    for pipe in ("pipe", "pipe.gz", "pipe.jsonl", "folder/pipe"):
        os.mkfifo(corpus / pipe)
    (corpus / "folder" / "zero").symlink_to("/dev/zero")
    read, _, rest = corpora.partition("&")
    command = (
        f"{sys.executable} -m bpe train -n 400 --lines -o {tmp_path}/t.json {read} & {rest}\n"
        "wait %1"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(["bash", "-c", command], cwd=corpus, env=env, check=True, timeout=60)
    expected = bpe.train_files([corpus / "a.txt", corpus / "b.txt"], 400, lines=True)
    assert glyph_merges(bpe.Tokenizer.from_file(tmp_path / "t.json")) == glyph_merges(expected)


def test_a_table_may_come_through_a_pipe(train, corpus, tmp_path):
    assert train("--count-only", output=tmp_path / "t.tsv")[0] == 0
    command = (
        f"{sys.executable} -m bpe train -n 400 -o {tmp_path}/t.json --from-counts <(cat t.tsv)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, check=True, timeout=60)
    expected = bpe.train_files(corpus, 400)
    assert glyph_merges(bpe.Tokenizer.from_file(tmp_path / "t.json")) == glyph_merges(expected)


def test_not_utf8_names_the_ways_out(train, corpus, tmp_path):
    (corpus / "c.txt").write_bytes(b"ab\xff")
    code, _, err = train("-n", 300)
    assert code == 1
    assert "c.txt is not UTF-8 at byte 2" in err
    assert train("-n", 300, "--errors", "replace")[0] == 0


# --- progress and interrupts ---------------------------------------------------------------------


def test_progress_says_how_long_it_will_take(capfd):
    assert describe(Progress("counting", 30_000_000, 90_000_000, 2.0)) == (
        "counting: 30.0 of 90.0 MB, 15.0 MB/s, 0:04 left"
    )
    assert describe(Progress("counting", 30_000_000, None, 2.0)) == "counting: 30.0 MB, 15.0 MB/s"
    assert describe(Progress("checking", 30_000_000, 90_000_000, 0.1)) == (
        "checking: 30.0 of 90.0 MB, 300.0 MB/s, 0:00 left"
    )
    assert describe(Progress("learning", 1000, 8000, 1.0)) == (
        "learning: 1,000 of 8,000 ids, 1,000/s, 0:07 left"
    )


def test_progress_goes_to_stderr_when_asked(train, monkeypatch):
    monkeypatch.setattr(run_module, "TICK_SECONDS", 0.0)
    _, out, err = train("-n", 300, "--progress")
    assert out == ""
    assert err.startswith("counting: ")
    assert "counting" not in train("-n", 300)[2]


@pytest.fixture(scope="module")
def large_corpus(tmp_path_factory):
    """20 MB: enough to be interrupted in."""
    path = tmp_path_factory.mktemp("large") / "corpus.txt"
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(60_000)]
    path.write_text(" ".join(rng.choices(words, k=3_000_000)))
    return path


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_can_be_resumed(sent, large_corpus, tmp_path):
    command = [
        sys.executable, "-m", "bpe", "train", str(large_corpus), "-n", "2000",
        "-o", str(tmp_path / "t.json"),
    ]  # fmt: skip
    process = subprocess.Popen(
        [*command, "--progress"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline().startswith("counting: ")
    process.send_signal(sent)
    out, err = process.communicate()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert out == ""
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert names == ["t.json.checkpoint"]
        assert err == (
            "interrupted; the same command with --resume goes on from "
            f"{tmp_path / 't.json.checkpoint'}\n"
        )
    else:
        assert process.returncode == -9
        assert names == []
    resumed = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True)
    assert resumed.returncode == 0
    assert ("to resume from, so this begins anew" in resumed.stderr) == (names == [])
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    bpe.train_files(large_corpus, 2000).save(tmp_path / "expected.json")
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "expected.json").read_bytes()


def test_a_run_that_does_not_stop_by_itself_is_broken_off(large_corpus, tmp_path):
    """Within one long merge nothing can be saved, but Ctrl-C still works."""
    script = (
        "import os, signal, sys, bpe.training.learn, bpe.__main__\n"
        "def endless(self, pair):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    while True: pass\n"
        "bpe.training.learn.Learner._merge = endless\n"
        f"sys.exit(bpe.__main__.main(['train', {__file__!r}, '-n', '300', '-o', 't.json']))\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"]
    stopped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert stopped.returncode == 130
    assert stopped.stderr == "interrupted before there was anything to save\n"
    assert list(tmp_path.iterdir()) == []


def test_an_output_may_be_a_stream(tmp_path):
    """Standard output or a FIFO; nothing is left beside it."""
    (tmp_path / "corpus.txt").write_text("low lower lowest " * 9)
    command = [sys.executable, "-m", "bpe", "train", "corpus.txt", "-n", "262", "-o"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(*arguments):
        return subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    assert run("t.json").returncode == 0
    expected = (tmp_path / "t.json").read_text()
    for output in ("-", "/dev/stdout"):
        assert run(output).stdout == expected
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen(["cat", "fifo"], cwd=tmp_path, stdout=subprocess.PIPE) as reader:
        assert run("fifo").returncode == 0
        assert reader.stdout.read().decode() == expected
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.txt", "t.json", "fifo"}
    both = run("-", "--json")
    assert (both.returncode, both.stdout) == (2, "")
    assert "--json prints to stdout as well" in both.stderr
    assert "it is a directory" in run(".").stderr
