"""files -> Spec, and Spec -> tokenizer.json: the only place that knows file formats.

One file a format. Blind spot: it does not know how text is encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from bpe.formats.alphabet import to_bytes, to_glyphs
from bpe.formats.gguf import read_gguf
from bpe.formats.ranks import read_tiktoken, read_vocab_and_merges
from bpe.formats.tokenizer_json import read_tokenizer_json
from bpe.formats.write import tokenizer_json, write_tokenizer_json
from bpe.spec import Spec

__all__ = [
    "read_directory",
    "read_file",
    "read_tokenizer_json",
    "to_bytes",
    "to_glyphs",
    "tokenizer_json",
    "write_tokenizer_json",
]


def read_file(
    path: str | PathLike[str],
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    normalizer: str | None = None,
) -> Spec:
    """The Spec in a tokenizer.json, .gguf, .tiktoken or vocab.json file.

    pattern, special_tokens and normalizer are for the last two, which do not hold them, and refused
    with the others, which do. ValueError says what is not supported.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; Tokenizer.from_pretrained reads those")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return _read_file(path, pattern, special_tokens, normalizer)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_file(path: Path, *given: Any) -> Spec:
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    if path.suffix == ".tiktoken":
        return read_tiktoken(path, *given)
    if path.suffix == ".model":
        raise ValueError("a .model file is a SentencePiece vocabulary, not byte-level BPE")
    data = None if is_gguf else _load_json(path)
    if isinstance(data, dict) and data and all(isinstance(id, int) for id in data.values()):
        return read_vocab_and_merges(data, path, *given)
    if any(value is not None for value in given):
        raise ValueError(
            "the file itself says how text is split; pass no pattern or tokens with it"
        )
    return read_gguf(path) if is_gguf else read_tokenizer_json(data)


def read_directory(path: str | PathLike[str]) -> Spec:
    """The Spec of a model directory: its tokenizer.json with the chat templates beside it."""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no directory {path}")
    if not (path / "tokenizer.json").exists():
        raise FileNotFoundError(f"{path} holds no tokenizer.json, so there is no tokenizer to load")
    spec = read_file(path / "tokenizer.json")
    config_path = path / "tokenizer_config.json"
    try:
        config = _load_json(config_path) if config_path.exists() else {}
        if not isinstance(config, dict):
            raise ValueError("it is not an object")
        return _replace(
            spec,
            chat_templates=_chat_templates(path, config),
            named_tokens={name: _content(config, name) for name in _NAMED if config.get(name)},
        )
    except ValueError as error:
        raise ValueError(f"{config_path}: {error}") from error


_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


def _chat_templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name; chat_template.jinja and chat_templates/NAME.jinja win over the config."""
    templates: dict[str, str] = {}
    declared = config.get("chat_template")
    if isinstance(declared, str):
        templates["default"] = declared
    elif isinstance(declared, list):
        templates |= dict(map(_named_template, declared))
    elif declared is not None:
        raise ValueError("chat_template is neither a text nor a list of named ones")
    if (path / "chat_template.jinja").exists():
        templates["default"] = _read_template(path / "chat_template.jinja")
    for file in sorted(path.glob("chat_templates/*.jinja")):
        templates[file.stem] = _read_template(file)
    return templates


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 at byte {error.start}") from error


def _named_template(entry: Any) -> tuple[str, str]:
    if isinstance(entry, dict):
        name, template = entry.get("name"), entry.get("template")
        if isinstance(name, str) and isinstance(template, str):
            return name, template
    raise ValueError("chat_template lists something without a name and a template")


def _content(config: Mapping[str, Any], name: str) -> str:
    """A token's text, given as it is or in an object with its flags."""
    token = config[name]
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str):
        raise ValueError(f"{name} is {token!r}, which is no token")
    return content


def _replace(spec: Spec, **changes: Any) -> Spec:
    """dataclasses.replace without checking the vocabulary a second time."""
    changed = object.__new__(Spec)
    changed.__dict__.update(spec.__dict__, **changes)
    return changed


def _load_json(path: Path) -> Any:
    data = path.read_bytes()
    if found := next((kind for start, kind in _OTHER_FILES if data.startswith(start)), None):
        raise ValueError(f"it is {found}")
    try:
        value = json.loads(data.decode("utf-8"))
        escapes = data.replace(rb"\\", b"")  # a backslash that is left begins an escape
        if b"\\ud" in escapes or b"\\uD" in escapes:  # half a character each
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}, so it is no JSON") from error
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(
            f"it has a lone surrogate (\\u{ord(half):04x}), which is no text"
        ) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from error


_OTHER_FILES = (  # what a file begins with -> what it then is
    (
        b"\xef\xbb\xbf",
        "JSON behind a byte order mark, which it may not have; save it as plain UTF-8",
    ),
    (b"\xff\xfe", "not UTF-8 but UTF-16; save it as plain UTF-8"),
    (b"\xfe\xff", "not UTF-8 but UTF-16; save it as plain UTF-8"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
)
