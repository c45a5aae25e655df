"""README.md: every command and snippet that can be copied is run, but those that install.

They are collected from the page, so a new one is run too, and fails where nothing is prepared for
it. Blind spot: whether what they print is what the text around them says, where it gives no value.
"""

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from assets import asset
from compare import REFERENCE
from installed import install_command
from paths import ROOT
from test_docs import blocks
from torch_files import write_torch

import model

README = ROOT / "README.md"
FENCES = [*blocks(README)]
INLINE = re.compile(r"`((?:python -m|bytepair) [^`]+)`")
NOT_RUN = {  # the beginning of a command -> why
    "python3 -m venv ": "it makes an environment",
    "pip install ": "it installs",
    "python -m pytest ": "it is what runs now",
    "python -m benchmarks": "it measures for minutes, into the repository; it has tests of its own",
}
PACKAGES = ("bpe", "model", "pipeline", "benchmarks")


def of_kind(kind):
    return pytest.mark.parametrize("fence", [f for f in FENCES if f.kind == kind], ids=str)


def inline_commands():
    """The commands in the prose; line breaks in them are spaces."""
    text = README.read_text(encoding="utf-8")
    for fence in FENCES:
        text = text.replace(fence.body, "")
    return [" ".join(found.split()) for found in INLINE.findall(text)]


def lines_of(body):
    """The lines of a shell fence, those that go on joined."""
    return [line for line in body.replace("\\\n", " ").splitlines() if line.strip()]


def reason_not_to_run(command):
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


@pytest.fixture
def clone(tmp_path):
    """A folder that looks like a clone from inside, for what only reads it."""
    for name in PACKAGES:
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(command, folder, **options):
    install_command(folder / "bin")
    first = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}"
    first += os.environ["PATH"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace("/tmp/", f"{folder}/")],
        cwd=folder,
        env=os.environ | offline | {"PATH": first, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        **({"stdin": subprocess.DEVNULL} | options),
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def made_by(command, folder):
    """The files that a command says it writes."""
    words = shlex.split(command)
    return [folder / Path(after).name for word, after in zip(words, words[1:]) if word == "-o"]


def run_fence(body, folder):
    for command in lines_of(body):
        if reason_not_to_run(command):
            continue
        said = run(command, folder)
        assert all(path.exists() for path in made_by(command, folder))
        if "The capital of France is" in command:
            assert said.startswith(" Paris")


@of_kind("sh")
def test_shell_fences(fence, clone, request):
    if "-m pipeline" in fence.body:
        request.getfixturevalue("smollm2_path")  # the default where the Hub isn't asked
    run_fence(fence.body, clone)


@pytest.fixture
def workshop(clone, tiny_directory):
    """A clone with what the commands in the prose speak of."""
    shutil.copytree(tiny_directory, clone / "tiny")
    source = shutil.copytree(tiny_directory, clone / "source")
    weights = mx.load(str(source / "model.safetensors"))
    (source / "model.safetensors").unlink()
    write_torch(source / "pytorch_model.bin", weights)
    (clone / "prompts.jsonl").write_text('"What?"\n{"prompt": "Why?", "max_tokens": 3}\n')
    counts = [{"piece": piece, "count": 9 - len(piece)} for piece in ("the", "that", " is", "a")]
    (clone / "counts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in counts))
    return clone


PLACES = {"PATH": "tiny", "MODEL": "tiny", "SRC": "source", "DST": "made", "TEXT": "'a text'"}


def filled(command):
    """A command of the prose with words in place of its capitals, and a model that is at hand."""
    command = re.sub(r"\b[A-Z]{3,}\b", lambda found: PLACES[found[0]], command)
    if command.startswith("bytepair") and not re.search(r"--help|glitch|bpe|model", command):
        command += " --model tiny"
    if command.startswith("python -m bpe explain"):
        command += " -t tiny"
    return command


@pytest.mark.parametrize("command", inline_commands())
def test_commands_in_the_prose(command, workshop):
    if why := reason_not_to_run(command):
        pytest.skip(why)
    command = filled(command)
    said = run(command, workshop, **({"stdin": None, "input": "hi\n"} if "chat" in command else {}))
    made = made_by(command, workshop)
    assert all(path.exists() for path in made)
    assert said or made or (workshop / "made").exists()


# --- Python --------------------------------------------------------------------------------------


@pytest.fixture
def snippet_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put_qwen3(folder):
    """Qwen3's genuine tokenizer and a small model with as many ids."""
    asset("qwen3/tokenizer_config.json")
    folder = shutil.copytree(asset("qwen3/tokenizer.json").parent, folder / "Qwen3-0.6B")
    config = json.loads((REFERENCE / "qwen3-tied" / "config.json").read_text())
    weights = mx.load(str(REFERENCE / "qwen3-tied" / "model.safetensors"))
    name = "model.embed_tokens.weight"
    num_more, width = 151_936 - weights[name].shape[0], weights[name].shape[1]
    weights[name] = mx.concatenate([weights[name], mx.zeros((num_more, width))])
    weights = {name: weight.astype(mx.bfloat16) for name, weight in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 151_936}))


def ids_in_comments(body):
    """(expression, the ids that the comment behind it promises)."""
    for line in body.splitlines():
        code, _, comment = line.partition("  # ")
        if found := re.search(r"\[[\d, ]+\]$", comment):
            yield code, ast.literal_eval(found[0])


def check_answers(engine, shown, text):
    """What the sample shows, and what it holds, is what the model's ids are together."""
    for said, question, variables, limit in (
        (shown, "Why is the sky blue?", {}, 64),
        (text, "And at night?", {"enable_thinking": False}, 1024),
    ):
        prompt = engine.encode_chat([{"role": "user", "content": question}], **variables)
        ids = model.generate(engine.model, prompt, max_tokens=limit)
        ids = [*itertools.takewhile(lambda id: id not in engine.stop_ids, ids)]
        assert said == engine.tokenizer.decode(ids, skip_special_tokens=True) != ""


@of_kind("python")
def test_python_fences(fence, snippet_folder, capsys):
    if "Qwen3-0.6B" in fence.body:
        put_qwen3(snippet_folder)
    if "duckdb" in fence.body:
        pytest.importorskip("duckdb")
        pytest.importorskip("numpy")
        docs = [{"text": "the cat is on the mat"}, {"text": "the dog"}]
        Path("docs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in docs))
    names = {}
    exec(compile(fence.body, str(fence), "exec"), names)
    for code, ids in ids_in_comments(fence.body):
        assert eval(code, names) == ids
    if "engine" in names:
        check_answers(names["engine"], capsys.readouterr().out, names["text"])
    if "duckdb" in fence.body:
        counts = [json.loads(line) for line in Path("counts.jsonl").read_text().splitlines()]
        assert {one["piece"]: one["count"] for one in counts}[" the"] == 1
        [command] = [one for one in inline_commands() if "--from-counts counts.jsonl" in one]
        run(command, snippet_folder)
        assert Path("tokenizer.json").exists()


# --- nothing is left out -------------------------------------------------------------------------


def test_each_fence_is_run_or_shows_what_comes_out():
    assert {fence.kind for fence in FENCES} <= {"sh", "python", ""}
    for fence in FENCES:
        if fence.kind == "":
            assert "python" not in fence.body
        if fence.kind == "sh":
            for command in lines_of(fence.body):
                known = command.startswith(tuple(f"python -m {name} " for name in PACKAGES))
                assert known or reason_not_to_run(command), f"nobody runs {command!r}"


def test_a_command_that_fails_is_noticed(clone):
    [fence] = [fence for fence in FENCES if "bpe train" in fence.body and fence.kind == "sh"]
    with pytest.raises(AssertionError, match="--no-such-option"):
        run_fence(fence.body.replace("-n 4000", "--no-such-option"), clone)


def test_the_page_has_what_this_file_looks_for():
    """Else it would hold nothing."""
    assert len(inline_commands()) >= 10
    kinds = [fence.kind for fence in FENCES]
    assert (kinds.count("sh") >= 3, kinds.count("python") >= 2) == (True, True)
