"""pipeline/glitch.py: planted rows come first, unused ids are known, repeating is checked."""

import json
import random
import subprocess
import sys

import mlx.core as mx
import mlx.nn as nn
import pytest
from paths import ROOT

import bpe
import model
from pipeline import glitch
from pipeline.__main__ import main
from pipeline.engine import Engine


@pytest.fixture(params=["tied", "untied"])
def engine(request, tiny_directory, tmp_path):
    """The tiny model; untied: with a head of its own."""
    engine = Engine.load(tiny_directory)
    if request.param == "untied":
        width = engine.model.config.hidden_size
        engine.model.lm_head = nn.Linear(width, 320, bias=False)
    return engine


def plant(engine, ids, seed=0):
    """Give ids, and those known to be unused, rows near one common small vector."""
    key = mx.random.key(seed)
    for layer in (engine.model.model.embed_tokens, getattr(engine.model, "lm_head", None)):
        if layer is None:
            continue
        weight = layer.weight.astype(mx.float32)
        common = mx.random.normal((weight.shape[1],), key=key) * 0.05
        noise = mx.random.normal((len(ids), weight.shape[1]), key=key) * 0.005
        weight[mx.array(ids)] = common + noise
        layer.weight = weight


def test_fifty_planted_rows_are_the_first_fifty(engine):
    unused = glitch.unused_ids(engine)
    names = [engine.tokenizer.id_to_token(id) for id in unused]
    assert sorted(names) == [bytes([byte]) for byte in glitch.UNUSED_BYTES]
    ordinary = [id for id in range(320) if id not in unused]
    planted = random.Random(1).sample(ordinary, 50)
    plant(engine, [*planted, *unused])
    found = glitch.find(engine, limit=60)
    assert {candidate.id for candidate in found[:50]} == {*planted}
    assert found[49].score < 0.5 * found[50].score
    assert [c.score for c in found] == sorted(c.score for c in found)
    assert not {c.id for c in found} & {*unused}
    weight = engine.model.model.embed_tokens.weight
    outputs = getattr(engine.model, "lm_head", engine.model.model.embed_tokens).weight
    mean = outputs[mx.array(unused)].mean(axis=0)
    for candidate in found[:3]:
        gap = mx.linalg.norm(outputs[candidate.id] - mean).item()
        assert candidate.distance == pytest.approx(gap, rel=1e-4)
        assert candidate.norm == pytest.approx(mx.linalg.norm(weight[candidate.id]).item())
        assert candidate.token == engine.tokenizer.id_to_token(candidate.id)


def test_without_known_unused_ids_the_norm_decides(tiny_directory, monkeypatch):
    engine = Engine.load(tiny_directory)
    monkeypatch.setattr(glitch, "UNUSED_BYTES", ())
    weight = engine.model.model.embed_tokens.weight
    weight[mx.array([7, 9])] = weight[mx.array([7, 9])] * 0.01
    found = glitch.find(engine, limit=3)
    assert {c.id for c in found[:2]} == {7, 9}
    assert found[0].distance is None
    with pytest.raises(ValueError, match="at least one candidate"):
        glitch.find(engine, limit=0)


def test_a_model_that_repeats_and_one_that_does_not(tiny_directory, monkeypatch):
    engine = Engine.load(tiny_directory)
    candidates = glitch.find(engine, limit=6)
    prompts = []

    def answer_with(ids):
        def generate(m, prompt, **options):
            prompts.append(prompt)
            return iter(ids(prompt))

        monkeypatch.setattr(model, "generate", generate)
        return [c.repeated for c in glitch.check(engine, candidates)]

    before = len(engine.encode_raw("".join(
        f'Repeat: "{text}" -> "{text}"\n' for text in glitch.EXAMPLES) + 'Repeat: "'))  # fmt: skip
    assert answer_with(lambda prompt: [prompt[before], 5]) == [True] * 6
    assert [prompt[before] for prompt in prompts] == [c.id for c in candidates]
    wrong = engine.tokenizer.encode("zzz")
    assert answer_with(lambda prompt: wrong) == [False] * 6


def test_the_command(tiny_directory, capsys):
    assert main(["glitch", str(tiny_directory), "--top", "4", "--check", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("13 unused ids are known; 4 tokens look most like that")
    assert [line.split()[3] for line in lines[2:]] == ["no", "no", "-", "-"]
    assert main(["glitch", str(tiny_directory), "--top", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tokenizer = bpe.Tokenizer.from_pretrained(tiny_directory)
    for candidate in found["candidates"]:
        assert bytes.fromhex(candidate["token"]) == tokenizer.id_to_token(candidate["id"])
    assert main(["glitch", "nowhere/at/all/model"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_python_m_pipeline_glitch(tiny_directory):
    command = [sys.executable, "-m", "pipeline", "glitch", str(tiny_directory), "--top", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 3
    run = subprocess.run([*command, "--top", "0"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
