"""python -m bpe: what it prints, its exit codes, and one sentence for each bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_hub import FakeHub
from paths import ROOT

from bpe.__main__ import load, main
from bpe.formats import hub

TEXT = "The capital of France is"


@pytest.fixture
def run(tiny_directory, capfdbinary):
    """Run a command on the tiny tokenizer; (exit code, stdout, stderr)."""

    def call(command, *arguments, tokenizer=tiny_directory / "tokenizer.json"):
        try:
            code = main([command, "--tokenizer", str(tokenizer), *arguments])
        except SystemExit as exit:
            code = exit.code
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def test_encode_prints_ids(run, tiny, tmp_path):
    ids = tiny.encode(TEXT)
    assert run("encode", TEXT) == (0, " ".join(map(str, ids)) + "\n", "")
    assert json.loads(run("encode", "--json", TEXT)[1]) == ids
    (tmp_path / "a.txt").write_text(TEXT + "\n")
    out = run("encode", "x", "--file", str(tmp_path / "a.txt"))[1]
    assert out.splitlines() == [
        " ".join(map(str, tiny.encode("x"))), " ".join(map(str, tiny.encode(TEXT + "\n"))),
    ]  # fmt: skip


def test_special_tokens_count_only_when_allowed(run, tiny):
    assert run("encode", "<|im_end|>")[1].split() == [str(i) for i in tiny.encode("<|im_end|>")]
    assert run("encode", "--allow-special", "<|im_end|>")[1] == "2\n"


def test_decode_prints_text(run, tiny):
    ids = tiny.encode(TEXT + " é\n")
    assert run("decode", *map(str, ids)) == (0, TEXT + " é\n", "")
    assert run("decode", json.dumps(ids))[1] == TEXT + " é\n"
    assert json.loads(run("decode", "--json", *map(str, ids))[1]) == TEXT + " é\n"
    assert run("decode", "--skip-special", "2")[1] == ""


def test_count_counts(run, tiny, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("é")
    files = ("-f", str(tmp_path / "a.txt"), "-f", str(tmp_path / "b.txt"))
    counts = json.loads(run("count", "--json", *files)[1])
    assert [c["tokens"] for c in counts] == [len(tiny.encode(TEXT)), len(tiny.encode("é"))]
    assert [c["bytes"] for c in counts] == [len(TEXT), 2]
    lines = run("count", *files)[1].splitlines()
    assert lines[2].split() == [
        str(sum(c["tokens"] for c in counts)),
        "tokens",
        "26",
        "bytes",
        "total",
    ]


def test_stdin_is_read(tiny, tiny_directory):
    command = [sys.executable, "-m", "bpe", "encode", "-t", str(tiny_directory)]
    run = subprocess.run(command, cwd=ROOT, input=TEXT.encode(), capture_output=True)
    assert run.stdout.decode().split() == [str(id) for id in tiny.encode(TEXT)]
    run = subprocess.run(command, cwd=ROOT, input=b"ab\xff", capture_output=True)
    assert run.returncode == 1
    assert run.stderr == b"error: stdin is not UTF-8 at byte 2\n"


def test_a_closed_pipe_is_silent(tiny_directory, tmp_path):
    (tmp_path / "long.txt").write_text(TEXT * 100_000)
    command = (
        f"{sys.executable} -m bpe encode -t {tiny_directory} -f {tmp_path}/long.txt | head -c 5"
    )
    run = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True)
    assert len(run.stdout) == 5
    assert run.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "options", "code", "message"),
    [
        (("encode", "x"), {"tokenizer": "nowhere.json"}, 1, "there is no file or directory"),
        (
            ("encode", "x"),
            {"tokenizer": "nonsense"},
            1,
            "neither a Hub id (ORG/NAME) nor one of qwen3",
        ),
        (("encode", "-f", "nowhere.txt"), {}, 1, "nowhere.txt"),
        (("decode", "12", "x1"), {}, 1, "'x1' is not an id"),
        (("decode", "-1"), {}, 1, "'-1' is not an id"),
        (("decode", "320"), {}, 1, "beyond the last token"),
        (("encode", "--nope"), {}, 2, "unrecognized arguments"),
        (("guess",), {}, 2, "invalid choice"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, options, code, message):
    found, out, err = run(*arguments, **options)
    assert found == code
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_names_and_hub_ids_are_fetched(tiny_directory, monkeypatch):
    asked = []
    path = tiny_directory / "tokenizer.json"
    monkeypatch.setattr(hub, "fetch", lambda *wanted: asked.append(wanted[:2]) or path)
    assert load("gpt2").vocab_size == load("org/name").vocab_size == 320
    assert asked == [("openai-community/gpt2", "tokenizer.json"), ("org/name", "tokenizer.json")]


CHAT = """
import bpe
tok = bpe.Tokenizer.from_pretrained("org/tiny")
print(tok.apply_chat_template([{"role": "user", "content": "hi"}]))
"""


def test_a_hub_id_brings_the_chat_template(tiny, tiny_directory, tmp_path):
    """From a Hub, and then out of its cache, when there is none."""
    names = ("tokenizer.json", "tokenizer_config.json")
    files = {name: (tiny_directory / name).read_bytes() for name in names}
    ids = tiny.apply_chat_template([{"role": "user", "content": "hi"}])
    with FakeHub({"org/tiny": files | {"model.safetensors": b"x"}}).running() as fake:
        environment = os.environ | {"HF_ENDPOINT": fake.url, "HF_HOME": str(tmp_path)}
        for offline in "01":
            environment["HF_HUB_OFFLINE"] = offline
            run = subprocess.run(
                [sys.executable, "-c", CHAT],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert (run.stdout, run.stderr) == (f"{ids}\n", "")
        assert not any("model.safetensors" in request for request in fake.requests)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("encode", "-f", "nowhere.txt"), "error: nowhere.txt: No such file or directory"),
        (("encode", "-f", "."), "error: .: Is a directory"),
        (("decode", "9" * 5000), f"error: '{'9' * 40}' is not an id; ids are whole numbers"),
        (("decode", "\u0663"), "error: '\u0663' is not an id; ids are whole numbers"),
    ],
)
def test_bad_inputs_are_one_sentence(run, arguments, message):
    assert run(*arguments) == (1, "", message + "\n")


@pytest.mark.parametrize(
    ("redirect", "code", "err"),
    [
        (
            "<&-",
            1,
            b"error: stdin is closed, so there is nothing to read; pass the text or a file\n",
        ),
        ("x >&-", 0, b""),
        ("x >/dev/full", 1, b"error: No space left on device\n"),
    ],
)
def test_closed_and_full_streams(tiny_directory, redirect, code, err):
    if "/dev/full" in redirect and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f"'{sys.executable}' -m bpe encode -t '{tiny_directory}' {redirect}"
    run = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True)
    assert (run.returncode, run.stderr) == (code, err)


def test_too_little_memory_is_one_sentence(run, monkeypatch):
    def full(*arguments):
        raise MemoryError

    monkeypatch.setattr("bpe.__main__.load", full)
    code, out, err = run("encode", "x")
    assert (code, out) == (1, "")
    assert err == "error: there is not enough memory for this text or vocabulary\n"
