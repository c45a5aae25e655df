"""commands/answer.py: what lands on which stream, when, and with which exit code."""

import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from paths import ROOT

import bpe
from pipeline import __main__ as entry
from pipeline.__main__ import main
from pipeline.chunks import Chunk
from pipeline.commands import answer
from pipeline.engine import Engine
from tests.model.weights.test_gguf import MXFP4, write_gguf

STATISTICS = re.compile(
    r"prompt (\d+) tokens, [\d.]+ tokens/s \| generated (\d+) tokens, [\d.]+ tokens/s \| "
    r"first token after [\d.]+ s \| peak memory [\d.]+ GB"
)


@pytest.fixture
def run(capfd):
    """run(*arguments) -> (exit code, stdout, lines of stderr), in this process."""

    def run(*arguments):
        try:
            code = main([*map(str, arguments)])
        except SystemExit as exit:
            code = exit.code
        out, err = capfd.readouterr()
        return code, out, err.splitlines()

    return run


@pytest.fixture
def ask(run, tiny_directory):
    """run with the tiny model."""
    return lambda *arguments: run("--model", tiny_directory, *arguments)


# PYTHONUNBUFFERED would hide a missing flush, and what Python says of unwritten text at its end.
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}


def start(*arguments, **options):
    """python -m pipeline, in a process of its own."""
    defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENVIRONMENT}
    command = [sys.executable, "-m", "pipeline", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, preexec_fn=hear_signals, **(defaults | options))


def hear_signals():
    """Also where the tests run in the background, which makes programs deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def in_shell(arguments, rest):
    """The same as a line of a shell, with rest behind it."""
    command = shlex.join([sys.executable, "-m", "pipeline", *map(str, arguments)])
    return subprocess.run(
        ["bash", "-c", f"{command} {rest}"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.fixture
def copy(tiny_directory, tmp_path):
    """A copy of the tiny model directory to be changed."""
    return shutil.copytree(tiny_directory, tmp_path / "copy")


def change_json(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def endless(copy):
    """The tiny model with a context so long that it talks for minutes."""
    change_json(copy / "config.json", max_position_embeddings=1_000_000)
    change_json(copy / "generation_config.json", eos_token_id=None)
    change_json(copy / "config.json", eos_token_id=None)
    (copy / "tokenizer_config.json").write_text("{}")
    return copy


# --- an answer -----------------------------------------------------------------------------------


def expected_text(directory, ids, max_tokens):
    chunks = Engine.load(directory).stream(ids, max_tokens=max_tokens)
    return "".join(chunk.text for chunk in chunks)


def test_the_answer_is_on_stdout_and_all_else_on_stderr(ask, tiny, tiny_directory):
    code, out, err = ask("--max-tokens", 5, "The capital")
    ids = tiny.apply_chat_template([{"role": "user", "content": "The capital"}])
    assert (code, out) == (0, expected_text(tiny_directory, ids, 5) + "\n")
    assert re.fullmatch(r"tiny, loaded in [\d.]+ s", err[0])
    assert err[1] == "stopped after 5 tokens; --max-tokens allows more"
    assert STATISTICS.fullmatch(err[2]).groups() == (str(len(ids)), "5")
    assert len(err) == 3


def test_raw_continues_the_text_as_it_stands(ask, tiny, tiny_directory):
    _, out, err = ask("--raw", "--max-tokens", 3, "The capital")
    assert STATISTICS.search(err[-1])[1] == str(len(tiny.encode("The capital")))
    assert out == expected_text(tiny_directory, tiny.encode("The capital"), 3) + "\n"


def test_without_a_template_the_prompt_is_continued_and_we_are_told(run, copy):
    (copy / "tokenizer_config.json").unlink()
    code, out, err = run("--model", copy, "--max-tokens", 3, "The capital")
    assert (code, err[1]) == (
        0, "this model has no chat template, so the prompt is continued as with --raw"
    )  # fmt: skip
    assert out == run("--model", copy, "--raw", "--max-tokens", 3, "The capital")[1]


def test_the_context_may_end_the_answer_first(ask):
    _, _, err = ask("--raw", "--max-tokens", 1000, "x" * 250)
    assert err[1] == "stopped where the context ends"


def test_a_stop_id_needs_no_remark(run, copy):
    change_json(copy / "generation_config.json", eos_token_id=[*range(320)])
    code, out, err = run("--model", copy, "x")
    assert (code, out, len(err)) == (0, "", 2)


def test_the_same_seed_gives_the_same_answer(ask):
    def answer(*choices):
        return ask("--raw", "--max-tokens", 12, "--temp", 1, *choices, "Once")[1]

    assert answer("--seed", 7) == answer("--seed", 7)
    assert answer("--seed", 7) != answer("--seed", 8)
    assert answer("--seed", 7, "--top-k", 1) == answer("--seed", 8, "--top-k", 1)
    assert answer("--seed", 7, "--top-p", 1e-9) == answer("--top-k", 1)
    assert answer("--seed", 2**64 - 1)


def test_verbose_tells_the_model_the_machine_and_the_blas(ask):
    _, _, err = ask("--verbose", "--max-tokens", 1, "--dtype", "bfloat16", "x")
    assert re.fullmatch(r"qwen3, 3 layers, context 256 \| bfloat16 on .* \| BLAS: .+", err[-1])
    assert STATISTICS.fullmatch(err[-2])


@pytest.mark.skipif(sys.platform != "linux", reason="about Linux")
def test_the_peak_is_of_this_program_not_of_its_parent():
    """Linux hands ru_maxrss down: a program that a big one starts seems big."""
    script = "from pipeline.commands.answer import _peak_resident_bytes as peak; print(peak())"
    child = [sys.executable, "-c", script]
    parent = f"import subprocess; big = b'x' * 200_000_000; subprocess.run({child})"
    run = subprocess.run(
        [sys.executable, "-c", parent], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 1e6 < int(run.stdout) < 100e6


# --- when ----------------------------------------------------------------------------------------


def test_each_chunk_is_out_before_the_next_is_asked_for(monkeypatch):
    screen, shown = io.BytesIO(), []
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, encoding="latin-1"))

    def chunks():
        for text in ("Par", "is", "", "é\n"):
            yield Chunk(text, 1)
            shown.append(screen.getvalue().decode())
        yield Chunk("", 2, "stop")

    assert list(answer.printed(chunks()))[-1].finish_reason == "stop"
    assert shown == ["Par", "Paris", "Paris", "Parisé\n"]
    assert screen.getvalue().decode() == "Parisé\n"  # the answer ended its line itself


def test_ctrl_c_keeps_the_text_so_far(endless, tiny):
    process = start("--model", endless, "--raw", "--max-tokens", 10**6, "The")
    first = os.read(process.stdout.fileno(), 10)
    assert first  # while it runs
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=10)
    text = (first + rest).decode()
    assert process.returncode == 130
    assert text.endswith("\n")
    assert expected_text(endless, tiny.encode("The"), len(text)).startswith(text[:-1])
    assert_quiet(said, last="interrupted")


def assert_quiet(said, last):
    lines = said.decode().splitlines()
    assert re.fullmatch(r"copy, loaded in [\d.]+ s", lines[0])
    assert lines[1:] == [last]


def test_a_closed_pipe_ends_it_without_a_word(endless):
    process = start("--model", endless, "--raw", "--max-tokens", 10**6, "The")
    assert os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    said = process.stderr.read().decode()
    assert process.wait(timeout=10) == 141
    assert re.fullmatch(r"copy, loaded in [\d.]+ s\n", said)


def test_head_gets_its_line_and_nobody_complains(endless):
    arguments = ["--model", endless, "--raw", "--max-tokens", 10**6, "The"]
    shell = in_shell(arguments, "2>&1 | head -1")
    assert re.fullmatch(r"copy, loaded in [\d.]+ s\n", shell.stdout)
    assert shell.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_under_stdout_is_one_error(tiny_directory):
    with open("/dev/full", "wb") as full:
        process = start("--model", tiny_directory, "--max-tokens", 3, "x", stdout=full)
        said = process.communicate(timeout=20)[1].decode().splitlines()
    assert process.returncode == 1
    assert said[1:] == ["error: reading or writing failed: No space left on device"]


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_was_closed_before(tiny_directory, closed):
    shell = in_shell(["--model", tiny_directory, "--max-tokens", 3, "x"], f"{closed}>&-")
    assert shell.returncode == 0
    assert bool(shell.stdout) == (closed == 2)
    assert bool(STATISTICS.search(shell.stderr)) == (closed == 1)


def test_on_a_terminal_progress_is_shown_and_wiped(endless):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = start("--model", endless, "--raw", "--max-tokens", 1, "x" * 1100, stderr=theirs)
    os.close(theirs)
    process.communicate(timeout=20)
    shown = read_all(ours)
    assert "loading copy ...\r\x1b[Kcopy, loaded in" in shown
    assert re.search(r"reading the prompt: +47%.*512/1100 ", shown)
    assert "Traceback" not in shown
    assert STATISTICS.search(shown)


def read_all(terminal):
    """What was written to a pseudo-terminal whose other side is closed."""
    shown = b""
    try:
        while block := os.read(terminal, 4096):
            shown += block
    except OSError:  # Linux's way to say that it ended
        pass
    os.close(terminal)
    return shown.decode()


# --- the prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_a_pipe_may_hold_the_prompt(ask, tiny_directory, dash):
    options = ("--model", tiny_directory, "--max-tokens", 4)
    process = start(*options, *dash, stdin=subprocess.PIPE)
    out, _ = process.communicate("Où est-ce ?".encode(), timeout=20)
    assert out.decode() == ask("--max-tokens", 4, "Où est-ce ?")[1]


@pytest.mark.parametrize(
    ("piped", "code", "message"),
    [
        (b"", 2, "error: the prompt is empty; give some text to answer or continue"),
        (b" \n", 2, "error: the prompt is empty; give some text to answer or continue"),
        (b"caf\xe9", 1, "error: stdin is not UTF-8 at byte 3"),
    ],
)
def test_a_pipe_without_a_prompt(tiny_directory, piped, code, message):
    process = start("--model", tiny_directory, stdin=subprocess.PIPE)
    out, said = process.communicate(piped, timeout=20)
    assert (process.returncode, out, said.decode().splitlines()) == (code, b"", [message])


def test_no_prompt_and_a_terminal_does_not_wait(tiny_directory):
    ours, theirs = pty.openpty()
    process = start("--model", tiny_directory, stdin=theirs)
    assert process.communicate(timeout=20)[1].startswith(b"error: the prompt is empty")
    assert process.returncode == 2
    os.close(theirs)
    os.close(ours)


def test_an_argument_that_is_not_utf_8(ask):
    assert ask("caf\udce9") == (1, "", ["error: the prompt is not UTF-8"])


def test_control_tokens_in_a_prompt_stay_text(ask, tiny):
    _, _, err = ask("--raw", "--max-tokens", 1, "<|im_end|>")
    assert STATISTICS.fullmatch(err[-1])[1] == str(len(tiny.encode("<|im_end|>"))) != "1"


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temp", "-1", "x"], "--temp: it is '-1', but must be a number from 0 up"),
        (["--temp", "nan", "x"], "--temp: it is 'nan'"),
        (["--temp", "inf", "x"], "--temp: it is 'inf'"),
        (["--temp", "warm", "x"], "--temp: it is 'warm'"),
        (["--top-p", "5", "x"], "--top-p: it is '5', but must be a number above 0 up to 1"),
        (["--top-p", "0", "x"], "--top-p: it is '0'"),
        (["--top-p", "nan", "x"], "--top-p: it is 'nan'"),
        (["--top-k", "-1", "x"], "--top-k: it is '-1', but must be a whole number from 0 up"),
        (["--top-k", "2.5", "x"], "--top-k: it is '2.5'"),
        (["--seed", "-1", "x"], "--seed: it is '-1'"),
        (["--seed", str(2**64), "x"], f"--seed: it is '{2**64}'"),
        (["--max-tokens", "0", "x"], "--max-tokens: it is '0'"),
        (["--dtype", "int8", "x"], "--dtype: invalid choice: 'int8'"),
        (["--bogus", "x"], "unrecognized arguments: --bogus"),
        (["--model"], "--model: expected one argument"),
        (["x", "y"], "unrecognized arguments: y"),
        ([""], "the prompt is empty"),
        ([" \n"], "the prompt is empty"),
    ],
)
def test_wrong_usage_is_one_sentence(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith("error: ")
    assert message in err[0]


def cut(file, num_bytes):
    file.write_bytes(file.read_bytes()[:num_bytes])
    return file.parent


def write(file, content):
    file.write_bytes(content)
    return file


def replaced(file, content):
    write(file, content)
    return file.parent


def configured(directory, **changes):
    change_json(directory / "config.json", **changes)
    return directory


def without(file):
    file.unlink()
    return file.parent


def folder_instead_of(file):
    file.unlink(missing_ok=True)
    file.mkdir()
    return file.parent


def shard_missing(directory):
    (directory / "model.safetensors").rename(directory / "1.safetensors")
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def gguf(directory, **metadata):
    architecture = {"general.architecture": "qwen3"} | metadata
    return write_gguf(directory / "m.gguf", architecture, {"a.weight": (0, (1,), b"1234")})


BAD_MODELS = {
    "nowhere": (lambda d: d / "nowhere", "no file or directory"),
    "no_config": (lambda d: without(d / "config.json"), "no config.json"),
    "no_tokenizer": (lambda d: without(d / "tokenizer.json"), "no tokenizer.json"),
    "no_weights": (lambda d: without(d / "model.safetensors"), "no weights"),
    "text_file": (lambda d: write(d / "notes.txt", b"hello"), "is no GGUF file"),
    "text_as_gguf": (lambda d: write(d / "a.gguf", b"hello"), "is no GGUF file"),
    "empty_gguf": (lambda d: write(d / "a.gguf", b""), "is no GGUF file"),
    "weights_file": (lambda d: d / "model.safetensors", "the directory that holds config.json"),
    "device": (lambda d: Path(os.devnull), "is no GGUF file"),
    "cut_weights": (lambda d: cut(d / "model.safetensors", 300_000), "truncated"),
    "cut_header": (lambda d: cut(d / "model.safetensors", 100), "truncated"),
    "empty_weights": (lambda d: cut(d / "model.safetensors", 0), "truncated"),
    "shard": (shard_missing, "2.safetensors of 2 shards"),
    "architecture": (
        lambda d: configured(d, model_type="gemma9"),
        "'gemma9' is not supported; supported: llama, qwen2, qwen3, qwen3_moe",
    ),
    "no_architecture": (lambda d: replaced(d / "config.json", b"{}"), "model_type None"),
    "other_sizes": (lambda d: configured(d, hidden_size=128), "has shape"),
    "cut_config": (lambda d: cut(d / "config.json", 100), "config.json is not valid JSON"),
    "cut_tokenizer": (lambda d: cut(d / "tokenizer.json", 100), "not valid JSON"),
    "cut_settings": (lambda d: cut(d / "tokenizer_config.json", 9), "not valid JSON"),
    "cut_generation": (lambda d: cut(d / "generation_config.json", 9), "not valid JSON"),
    "latin_1": (lambda d: replaced(d / "tokenizer.json", b'{"\xe9": 1}'), "not UTF-8"),
    "list": (lambda d: replaced(d / "config.json", b"[]"), "must hold a JSON object"),
    "config_is_folder": (lambda d: folder_instead_of(d / "config.json"), "directory"),
    "tokenizer_is_folder": (lambda d: folder_instead_of(d / "tokenizer.json"), "directory"),
    "weights_are_folder": (lambda d: folder_instead_of(d / "model.safetensors"), "directory"),
    "cut_gguf": (lambda d: cut(gguf(d), 40) / "m.gguf", "truncated"),
    "gguf_architecture": (
        lambda d: gguf(d, **{"general.architecture": "gemma9"}),
        "'gemma9' is not supported in GGUF files; supported: llama, qwen2, qwen3",
    ),
    "gguf_type": (
        lambda d: write_gguf(
            d / "m.gguf", {"general.architecture": "qwen3"}, {"a": (MXFP4, (256,), bytes(210))}
        ),
        "MXFP4",
    ),
    "template": (
        lambda d: replaced(d / "chat_template.jinja", b"{% if %}"),
        "template",
    ),
    "template_raises": (
        lambda d: replaced(d / "chat_template.jinja", b"{{ raise_exception('no system role') }}"),
        "no system role",
    ),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_is_one_sentence(run, copy, name):
    damage, message = BAD_MODELS[name]
    code, out, err = run("--model", damage(copy), "x")
    assert (code, out) == (1, "")
    assert [line for line in err if "loaded in" not in line] == [err[-1]]
    assert err[-1].startswith("error: ")
    assert message in err[-1]


def test_a_prompt_longer_than_the_context(ask):
    code, out, err = ask("--raw", "x" * 256)
    assert (code, out, len(err)) == (1, "", 2)
    assert "a prompt of 256 ids leaves no room in the model's context of 256" in err[1]


@pytest.fixture
def as_nobody():
    """Without the rights of the superuser, who may read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_copy(tiny_directory):
    """A copy that everybody may read; pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield shutil.copytree(tiny_directory, Path(folder) / "copy")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_may_not_be_read(public_copy, request, run, name):
    (public_copy / name).chmod(0)
    request.getfixturevalue("as_nobody")
    code, out, err = run("--model", public_copy, "x")
    assert (code, out, err) == (1, "", [f"error: {public_copy / name}: Permission denied"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "error: out of memory"),
        (RuntimeError("[malloc] Unable\n  to allocate"), "error: [malloc] Unable to allocate"),
        (OSError(), "error: OSError"),
    ],
)
def test_the_system_s_own_failures(ask, monkeypatch, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Engine, "load", fail)
    assert ask("x") == (1, "", [line])


def test_an_unknown_failure_is_not_hidden(ask, monkeypatch):
    monkeypatch.setattr(bpe.Tokenizer, "from_pretrained", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask("x")


def test_no_network(tmp_path):
    """The genuine huggingface_hub, told to stay offline, with an empty cache."""
    options = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    process = start("--model", "org/name", "x", env=ENVIRONMENT | options)
    out, said = process.communicate(timeout=20)
    assert (process.returncode, out, said.count(b"\n")) == (1, b"", 1)
    assert said.startswith(b"error: org/name is neither a local path nor whole in the Hub's cache")


# --- quickness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--temp", "-1", "x"], [""]])
def test_nothing_heavy_is_imported_for_help_and_usage_errors(arguments):
    script = f"""
import sys
from pipeline.__main__ import main
try:
    main({arguments})
except SystemExit:
    pass
print(*{{name.split(".")[0] for name in sys.modules}}, file=sys.stderr)
"""
    begin = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert time.perf_counter() - begin < 2
    loaded = set(run.stderr.splitlines()[-1].split())
    assert "pipeline" in loaded
    heavy = {"mlx", "regex", "huggingface_hub", "jinja2", "safetensors", "tqdm", "bpe", "model"}
    assert not heavy & loaded


def test_help_names_every_option(run):
    code, out, err = run("--help")
    assert (code, err) == (0, [])
    names = """
        model raw max-tokens temp top-p top-k seed dtype verbose file system stop min-p quiet json
        repetition-penalty logprobs prefill prompt-cache kv-bits context force quantized draft
        think no-think think-budget
    """.split()
    assert [name for name in names if f"--{name}" not in out] == []


# --- what is asked, and how it is told -----------------------------------------------------------


def ids_of(tiny, *messages, **options):
    """The prompt ids of (role, content) pairs."""
    turns = [{"role": role, "content": content} for role, content in messages]
    return tiny.apply_chat_template(turns, **options)


def test_a_file_is_the_prompt_or_stands_behind_it(ask, tmp_path):
    write(tmp_path / "a.txt", "Où est".encode())
    write(tmp_path / "b.txt", b"the cat?")
    alone = ask("--raw", "--max-tokens", 4, "-f", tmp_path / "a.txt")[1]
    assert alone == ask("--raw", "--max-tokens", 4, "Où est")[1]
    files = ["-f", tmp_path / "a.txt", "--file", tmp_path / "b.txt"]
    both = ask("--max-tokens", 4, *files, "Say:")[1]
    assert both == ask("--max-tokens", 4, "Say:\n\nOù est\n\nthe cat?")[1] != alone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no.txt: No such file or directory"),
        (b"caf\xe9", "no.txt is not UTF-8 at byte 3"),
    ],
)
def test_a_file_that_is_no_prompt(ask, tmp_path, content, message):
    if content:
        write(tmp_path / "no.txt", content)
    code, out, err = ask("-f", tmp_path / "no.txt")
    assert (code, out, len(err)) == (1, "", 1)
    assert err[0].endswith(message)


def test_a_system_message_and_the_answer_s_beginning(ask, tiny, tiny_directory):
    _, out, err = ask("--max-tokens", 6, "--system", "Be brief.", "--prefill", "The cat", "Who?")
    ids = ids_of(tiny, ("system", "Be brief."), ("user", "Who?")) + tiny.encode("The cat")
    assert STATISTICS.fullmatch(err[-1])[1] == str(len(ids))
    assert out == "The cat" + expected_text(tiny_directory, ids, 6) + "\n"


def test_stop_texts(ask, tiny_directory, tiny):
    whole = expected_text(tiny_directory, tiny.encode("Once"), 12)
    stop = whole[3:5]
    assert whole.index(stop) == 3
    code, out, err = ask("--raw", "--max-tokens", 12, "--stop", "never", "--stop", stop, "Once")
    assert (code, out) == (0, whole[:3] + "\n")
    assert len(err) == 2  # no remark that the length ended it


def test_json_is_one_object_with_all_there_is_to_know(ask, tiny, tiny_directory):
    code, out, err = ask("--json", "--quiet", "--logprobs", 2, "--max-tokens", 5, "The capital")
    assert (code, err, out.count("\n")) == (0, [], 1)
    found = json.loads(out)
    ids = ids_of(tiny, ("user", "The capital"))
    assert found["text"] == expected_text(tiny_directory, ids, 5)
    assert tiny.decode(found["ids"], skip_special_tokens=True) == found["text"]
    assert (found["reasoning"], found["finish_reason"]) == ("", "length")
    assert found["usage"] == {
        "prompt_tokens": len(ids), "cached_tokens": 0, "completion_tokens": 5,
        "reasoning_tokens": 0, "total_tokens": len(ids) + 5,
    }  # fmt: skip
    assert {*found["timings"]} >= {"load_seconds", "prefill_seconds", "decode_seconds"}
    assert [one["id"] for one in found["logprobs"]] == found["ids"]
    for one in found["logprobs"]:
        assert bytes(one["bytes"]) == tiny.id_to_token(one["id"])
        assert one["top"][0]["id"] == one["id"]
        assert one["top"][0]["logprob"] == one["logprob"] > one["top"][1]["logprob"]


def test_log_probabilities_are_lines_on_stderr(ask):
    _, _, err = ask("--raw", "--logprobs", 1, "--max-tokens", 3, "The capital")
    lines = [line for line in err if "|" in line and "tokens/s" not in line]
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r" +(-\d+\.\d{3} \".*\")  \| +\1", line)


def test_quiet_leaves_stderr_to_errors(ask, run, tmp_path):
    assert ask("--quiet", "--max-tokens", 3, "x")[2] == []
    assert len(run("--quiet", "--model", tmp_path, "x")[2]) == 1
    assert ask("--quiet", "--verbose", "x")[0] == 2


def test_verbose_tells_of_the_model(ask):
    line = ask("--verbose", "--context", 99, "--max-tokens", 3, "x")[2][-1]
    assert re.fullmatch(r"qwen3, \d layers, context 99 \| float32 on .* \| BLAS: .*", line)


def test_no_thinking_where_the_template_cannot_say_so(ask, run, copy):
    _, _, err = ask("--no-think", "--max-tokens", 3, "x")
    assert err[1].endswith("has no switch for thinking: --no-think changes nothing")
    template = "{% if enable_thinking is false %}no{% else %}yes{% endif %}"
    (copy / "chat_template.jinja").write_text(template)
    sizes = [
        run("--model", copy, "--json", "--quiet", "--max-tokens", 1, *choice, "x")[1]
        for choice in ([], ["--think"], ["--no-think"])
    ]
    assert [json.loads(out)["usage"]["prompt_tokens"] for out in sizes] == [3, 3, 2]


def test_the_reasoning_is_on_stderr_and_the_answer_alone_on_stdout(capfd):
    chunks = [Chunk("", 1, None, "Hm, "), Chunk("", 1, None, "so."), Chunk("Yes", 1), Chunk("", 2)]
    assert list(answer.printed(iter(chunks))) == chunks
    assert capfd.readouterr() == ("Yes\n", "Hm, so.\n")
    list(answer.printed(iter(chunks), show_reasoning=False))
    assert capfd.readouterr() == ("Yes\n", "")
    list(answer.printed(iter(chunks[:2])))  # cut short
    assert capfd.readouterr() == ("", "Hm, so.\n")


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"TERM": "xterm"}, "\x1b[2mHm.\x1b[0m\nYes\n"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "Hm.\nYes\n"),
        ({"TERM": "dumb"}, "Hm.\nYes\n"),
    ],
)
def test_the_reasoning_is_dimmed_on_terminals_that_can(environment, shown):
    script = """
from pipeline.commands.answer import printed
from pipeline.chunks import Chunk
list(printed(iter([Chunk("", 1, None, "Hm."), Chunk("Yes", 1)])))
"""
    ours, theirs = pty.openpty()
    base = {name: text for name, text in ENVIRONMENT.items() if name != "NO_COLOR"}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=base | environment,
                   stdout=theirs, stderr=theirs, check=True)  # fmt: skip
    os.close(theirs)
    assert read_all(ours).replace("\r\n", "\n") == shown


def test_a_prompt_cache_is_read_and_kept(ask, tmp_path):
    file = tmp_path / "cache.safetensors"

    def answer(prompt, *options):
        code, out, _ = ask("--raw", "--json", "--quiet", "--max-tokens", 4, *options, prompt)
        assert code == 0
        return json.loads(out)

    kept = ("--prompt-cache", file)
    first = answer("The capital of France", *kept)
    assert first["usage"]["cached_tokens"] == 0
    longer = "The capital of France" + first["text"] + " and"
    again = answer(longer, *kept)
    assert again["usage"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    assert (again["ids"], again["text"]) == (answer(longer)["ids"], answer(longer)["text"])


@pytest.fixture
def stopped(ask, monkeypatch):
    """stopped(error, number, *arguments): the command, where an error comes with a write."""

    def run(error, number, *arguments):
        write, count = answer.AnswerPrinter._write, iter(range(1, 1000))

        def write_and_stop(printer, stream, text):
            write(printer, stream, text)
            if next(count) == number:
                raise error

        with monkeypatch.context() as patch:
            patch.setattr(answer.AnswerPrinter, "_write", write_and_stop)
            patch.setattr(entry, "silence", lambda *streams: None)  # our own stdout is wanted
            return ask(*arguments)

    return run


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_a_prompt_that_was_read_is_kept_when_the_answer_is_stopped(
    ask, stopped, tmp_path, tiny, error, code
):
    file = tmp_path / "cache.safetensors"
    kept = ("--raw", "--prompt-cache", file, "--max-tokens", 9)
    assert stopped(error, 2, *kept, "The capital of France")[0] == code
    again = json.loads(ask(*kept, "--json", "--quiet", "The capital of France is")[1])
    assert again["usage"]["cached_tokens"] >= len(tiny.encode("The capital of France"))
    alone = ask("--raw", "--max-tokens", 9, "--json", "--quiet", "The capital of France is")[1]
    assert again["ids"] == json.loads(alone)["ids"]


def test_an_interruption_loses_nothing_that_a_prompt_cache_held(ask, stopped, tmp_path):
    file = tmp_path / "cache.safetensors"
    kept = ("--raw", "--prompt-cache", file, "--max-tokens", 9)
    assert ask(*kept, "The capital of France")[0] == 0
    before = file.read_bytes()
    assert stopped(KeyboardInterrupt, 2, *kept, "Once upon a time")[0] == 130
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_prompt_cache_that_cannot_be(ask, tmp_path):
    file = write(tmp_path / "cache.safetensors", b"no cache")
    code, out, err = ask("--prompt-cache", file, "x")
    assert (code, out) == (1, "")
    assert "is damaged" in err[-1]
    assert file.read_bytes() == b"no cache"
    code, out, err = ask("--prompt-cache", tmp_path / "no" / "cache", "x")
    assert (code, out) == (1, "")
    assert "is no directory" in err[-1]
    code, out, err = ask("--prompt-cache", tmp_path, "x")
    assert (code, out) == (1, "")
    assert "is a directory; name a file" in err[-1]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_where_a_prompt_cache_cannot_be_put_no_answer_is_made_for_it(ask):
    code, out, err = ask("--prompt-cache", "/proc/cache", "x")
    assert (code, out) == (1, "")
    assert "error: cache can't be put into /proc" in err[-1]


@pytest.mark.parametrize("form", [["--max-kv-size", 16], ["--max-kv-size", 300]])
def test_a_prompt_cache_in_another_form_is_not_taken_for_it(ask, tmp_path, form):
    kept = ("--quiet", "--max-tokens", 3, "--prompt-cache", tmp_path / "c", "x")
    assert ask(*form, *kept)[0] == 0
    assert ask(*kept)[0] == 0  # its form is the file's
    assert ask(*form, *kept)[0] == 0
    before = (tmp_path / "c").read_bytes()
    code, out, err = ask("--max-kv-size", 20, *kept)
    assert (code, out, len(err)) == (1, "", 1)
    assert "in another form than --kv-bits and --max-kv-size ask for" in err[0]
    assert (tmp_path / "c").read_bytes() == before


def test_a_context_beyond_the_model_s_is_told(ask):
    _, _, err = ask("--context", 10**12, "--max-tokens", 2, "x")
    assert err[1] == "the model's own context is 256 tokens: --context changes nothing"


def test_a_system_message_that_no_template_takes_is_told(run, copy):
    (copy / "tokenizer_config.json").unlink()
    _, _, err = run("--model", copy, "--max-tokens", 2, "--system", "a", "x")
    assert err[2] == "--system is left out"


@pytest.mark.parametrize("options", [["--kv-bits", 8], ["--max-kv-size", 16]])
def test_other_forms_of_keys_and_values_answer_as_well(ask, options):
    code, out, err = ask("--raw", "--max-tokens", 40, *options, "The capital of France is")
    assert (code, STATISTICS.fullmatch(err[-1])[2]) == (0, "40")
    assert out.strip()


def test_drafts_change_nothing(ask, tiny_directory, copy):
    prompt = "The cat is on the mat. " * 3
    plain = ask("--raw", "--max-tokens", 12, prompt)[1]
    for draft in ("ngram", tiny_directory):
        assert ask("--raw", "--max-tokens", 12, "--draft", draft, prompt)[1] == plain
    change_json(copy / "tokenizer.json", added_tokens=[])
    code, _, err = ask("--draft", copy, prompt)
    assert code == 1
    assert "has other tokens than the model" in err[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--min-p", "2", "x"], "--min-p: it is '2', but must be a number from 0 up to 1"),
        (["--repetition-penalty", "0", "x"], "--repetition-penalty: it is '0'"),
        (["--stop", "", "x"], "--stop: it is empty"),
        (["--kv-bits", "3", "x"], "--kv-bits: invalid choice: 3"),
        (["--think", "--no-think", "x"], "not allowed with argument --think"),
        (["--think-budget", "-1", "x"], "--think-budget: it is '-1'"),
        (["--context", "0", "x"], "--context: it is '0'"),
        (["--logprobs", "x"], "--logprobs: it is 'x'"),
        (["--model", "", "x"], "--model: it is empty"),
        (["--draft", "", "x"], "--draft/--draft-model: it is empty"),
        (["--prompt-cache", "", "x"], "--prompt-cache/--prompt-cache-file: it is empty"),
        (["--raw", "--system", "a", "x"], "the chat template that --system is for"),
        (["--raw", "--think", "x"], "the chat template that --think is for"),
        (["--raw", "--no-think", "x"], "the chat template that --no-think is for"),
        (["--raw", "--think-budget", "0", "x"], "the chat template that --think-budget is for"),
        (["--system", "caf\udce9", "x"], "argument --system/--system-prompt: it is not UTF-8"),
    ],
)
def test_more_wrong_usage_is_one_sentence(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out, len(err)) == (2, "", 1)
    assert message in err[0]


def test_a_local_model_is_answered_without_what_only_others_need(tiny_directory):
    arguments = ["--model", str(tiny_directory), "--raw", "--quiet", "--max-tokens", "1", "x"]
    script = f"""
import sys
from pipeline.__main__ import main
main({arguments})
print(*sys.modules, file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    loaded = {*run.stderr.split()}
    assert {"mlx.core", "pipeline.engine"} <= loaded
    unneeded = {"huggingface_hub", "jinja2", "tqdm", "readline"}
    assert not {*unneeded, "pipeline.commands.chat", "pipeline.commands.batch"} & loaded


def test_a_prompt_that_is_a_command_s_name_can_be_asked(ask, tiny, tmp_path):
    _, _, err = ask("--raw", "--max-tokens", 1, "chat")  # not the first argument
    assert STATISTICS.fullmatch(err[-1])[1] == str(len(tiny.encode("chat")))


def test_ctrl_c_before_json_says_so_and_leaves_no_half_object(endless):
    process = start("--json", "--model", endless, "--raw", "--max-tokens", 10**6, "The")
    assert process.stderr.readline().startswith(b"copy, loaded in")
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=10)
    assert (process.returncode, out, said) == (130, b"", b"interrupted\n")
