"""python -m model: what it prints, its exit codes, and one sentence for each bad input."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE
from paths import ROOT
from torch_files import mapping, tensor, write_torch, write_zip

from model.__main__ import main
from model.weights import convert, memory
from tests.model.weights.test_npz import arrays_of, described

TIED = str(REFERENCE / "qwen3-tied")
QUANTIZED = REFERENCE.parent / "quantized"


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command; (exit code, stdout, stderr)."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))
    monkeypatch.setattr(memory, "available_bytes", lambda: 5_000_000)

    def call(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
        return code, *capfd.readouterr()

    return call


# --- info ----------------------------------------------------------------------------------------


def test_info_of_a_directory(run):
    code, out, err = run("info", TIED, "--context", 100)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"path           {TIED}",
        "architecture   qwen3",
        "parameters     150,144",
        "files          0.6 MB, safetensors (F32 0.6 MB)",
        "bits a weight  32.00",
        "layers         3, width 64, vocabulary 320",
        "attention      4 heads of 32, 2 for keys",
        "context        256 positions",
        "KV cache       1,536 bytes a token in float32",
        "memory         0.8 MB for a context of 100: weights in float32 0.6 MB, KV cache 0.2 MB",
        "this machine   it fits (5.0 MB available)",
    ]


def test_info_of_experts_windows_and_quantized_weights(run, tmp_path):
    out = run("info", QUANTIZED / "qwen3-moe-nvfp4", "--dtype", "bfloat16")[1]
    assert "\nexperts        8, 2 a token\n" in out
    assert "\nquantization   nvfp4 4 bits in groups of 16 (" in out
    assert "weights in bfloat16" in out
    path = shutil.copytree(TIED, tmp_path / "m")
    raw = json.loads((path / "config.json").read_text())
    raw |= {"layer_types": ["sliding_attention"] * 3}
    raw |= {"use_sliding_window": True, "sliding_window": 64}
    (path / "config.json").write_text(json.dumps(raw))
    assert "\nwindow         64 positions\n" in run("info", path)[1]


def test_info_that_it_does_not_fit(run, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    assert run("info", TIED)[1].endswith("it does NOT fit (0.1 MB available)\n")
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert run("info", TIED)[1].endswith("its free memory is unknown\n")


def test_info_as_json(run):
    code, out, err = run("info", TIED, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["parameters"] == 150144
    assert found["needed_bytes"] == 150144 * 4 + 256 * 1536
    assert found["fits"] is True


def test_info_of_a_shard(run):
    out = run("info", REFERENCE / "qwen3-untied-yarn" / "model-00001-of-00003.safetensors")[1]
    assert "\narchitecture   not described\n" in out
    assert out.endswith("bits a weight  32.00\n")


# --- quantize and convert ------------------------------------------------------------------------


def test_quantize(run, tmp_path):
    code, out, err = run("quantize", TIED, tmp_path / "q", "--bits", 4, "--group-size", 32)
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / 'q'}: 0.1 MB of weights (from 0.6 MB), 6.11 bits a weight\n"
    block = json.loads((tmp_path / "q" / "config.json").read_text())["quantization"]
    assert block == {"group_size": 32, "bits": 4, "mode": "affine"}
    code, out, _ = run("quantize", TIED, tmp_path / "fp", "--mode", "mxfp4")
    assert code == 0
    block = json.loads((tmp_path / "fp" / "config.json").read_text())["quantization"]
    assert block == {"group_size": 32, "bits": 4, "mode": "mxfp4"}


def test_convert(run, tmp_path):
    folder = described("qwen3-tied", tmp_path / "torch")
    write_torch(folder / "pytorch_model.bin", arrays_of("qwen3-tied"))
    code, out, err = run("convert", folder, tmp_path / "new", "--dtype", "float16")
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / 'new'}: 0.3 MB of weights (from 0.6 MB), 16.00 bits a weight\n"
    code, out, _ = run("convert", folder, tmp_path / "new", "--force")
    assert code == 0
    assert "32.00 bits a weight" in out


@pytest.fixture
def bad(tmp_path) -> dict[str, Path]:
    """Names -> things that can't be read, and one that can."""
    paths = {"empty": tmp_path / "empty", "missing": tmp_path / "missing", "new": tmp_path / "new"}
    paths["empty"].mkdir()
    for name in ("cut", "code", "foreign", "short"):
        paths[name] = described("qwen3-tied", tmp_path / name)
    whole = write_torch(paths["cut"] / "model.pth", arrays_of("qwen3-tied")).read_bytes()
    (paths["cut"] / "model.pth").write_bytes(whole[:-100])
    write_zip(paths["code"] / "model.pth", b"cos\nsystem\n(" + b"X\4\0\0\0truetR", {})
    config = json.loads((paths["foreign"] / "config.json").read_text())
    (paths["foreign"] / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    write_torch(paths["foreign"] / "model.pth", {"a": mx.ones((2,))})
    write_zip(paths["short"] / "model.pth", mapping({"w": tensor("0", 9, (9,))}), {"0": b"1234"})
    paths["file"] = tmp_path / "file"
    paths["file"].write_text("x")
    return paths


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "the following arguments are required: COMMAND (see python -m model --help)"),
        (("guess",), 2, "invalid choice: 'guess'"),
        (("info",), 2, "required: PATH (see python -m model info --help)"),
        (("info", "{missing}"), 1, "missing doesn't exist; pass a model's directory"),
        (("info", "{empty}"), 1, "config.json doesn't exist, so nothing describes the model"),
        (("info", "{file}"), 1, "file is neither a directory nor a .gguf file"),
        (("info", "{foreign}"), 1, "model_type 'mamba' is not supported"),
        (("info", "{cut}"), 1, "model.pth is truncated or damaged"),
        (("info", "{code}"), 1, "asks for os.system, but only tensors are read"),
        (("info", TIED, "--context", "0"), 2, "argument --context: it is '0', but must be a whole"),
        (("info", TIED, "--context", "1e3"), 2, "it is '1e3'"),
        (("info", TIED, "--context", "257"), 1, "context of 257 positions was asked for"),
        (("info", TIED, "--dtype", "int8"), 2, "invalid choice: 'int8'"),
        (("quantize", TIED), 2, "required: DST"),
        (("quantize", TIED, ""), 2, "argument DST: it is empty, but must name"),
        (("info", ""), 2, "argument PATH: it is empty"),
        (("quantize", "{missing}", "{new}"), 1, "missing doesn't exist"),
        (("quantize", TIED, "{new}", "--bits", "7"), 1, "has no bits 7; it has 2, 3, 4, 5, 6, 8"),
        (("quantize", TIED, "{new}", "--bits", "four"), 2, "it is 'four'"),
        (("quantize", TIED, "{new}", "--group-size", "48"), 1, "no group_size 48; it has 32, 64"),
        (("quantize", TIED, "{new}", "--mode", "mxfp4", "--bits", "8"), 1, "mxfp4 has no bits 8"),
        (("quantize", TIED, "{new}", "--mode", "q4"), 2, "invalid choice: 'q4'"),
        (("quantize", TIED, "{cut}"), 1, "already holds a model (config.json)"),
        (("quantize", str(QUANTIZED / "llama-mxfp4"), "{new}"), 1, "is quantized already"),
        (("convert", "{cut}", "{new}"), 1, "model.pth is truncated or damaged"),
        (("convert", "{code}", "{new}"), 1, "nothing of it was run"),
        (("convert", "{short}", "{new}"), 1, "data/0 has 4 bytes instead of 36"),
        (("convert", "{foreign}", "{new}"), 1, "model_type 'mamba'"),
        (("convert", TIED, "{file}"), 1, "file is a file; name a directory"),
        (("convert", TIED, "{file}/new"), 1, "file"),
        (("convert", TIED, TIED, "--force"), 1, "is where the model is read from"),
    ],
)
def test_bad_input_is_one_sentence(run, bad, arguments, code, message):
    found, out, err = run(*(argument.format(**bad) for argument in arguments))
    assert found == code
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not bad["new"].exists()


def test_too_little_memory_is_one_sentence_with_the_numbers(run, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    code, out, err = run("quantize", TIED, tmp_path / "new")
    assert (code, out) == (1, "")
    assert "of memory, and 0.0 MB are available" in err
    assert run("quantize", TIED, tmp_path / "new", "--force")[0] == 0


def test_an_interruption_leaves_nothing(run, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "pack", interrupt)
    said = "interrupted; nothing was written\n"
    assert run("quantize", TIED, tmp_path / "new") == (130, "", said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(run, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = run("convert", TIED, tmp_path / "locked" / "new")
    assert code == 1
    assert "locked can't be written to" in err


def test_as_a_program():
    command = [sys.executable, "-m", "model", "info", TIED, "--json"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    assert json.loads(made.stdout)["architecture"] == "qwen3"
    assert json.loads(made.stdout)["available_bytes"] > 0


def test_a_closed_pipe_is_silent():
    command = f"{sys.executable} -m model info {TIED} | true"
    made = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True)
    assert made.stderr == b""
