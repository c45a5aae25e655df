"""files -> Spec, and Spec -> tokenizer.json: the only place that knows file formats.

One file a format. Blind spot: it does not know how text is encoded.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from bpe.encoding.alphabet import to_bytes, to_glyphs
from bpe.formats.gguf import read_gguf
from bpe.formats.ranks import (
    is_rank_table,
    is_vocabulary,
    read_tiktoken,
    read_vocab_and_merges,
)
from bpe.formats.text import errors_of, read_bytes, read_text
from bpe.formats.tokenizer_json import read_tokenizer_json
from bpe.formats.write import tokenizer_json, write_tokenizer_json
from bpe.spec import Spec

__all__ = [
    "errors_of",
    "read_directory",
    "read_file",
    "read_tokenizer_json",
    "to_bytes",
    "to_glyphs",
    "tokenizer_json",
    "write_tokenizer_json",
]


HEAD_BYTES = 4096  # of a file, which tell what it is


def read_file(
    path: str | PathLike[str],
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    normalizer: str | None = None,
) -> Spec:
    """The Spec in a tokenizer.json, a .gguf, a rank table (.tiktoken) or a vocab.json file.

    What a file is, its content says. pattern, special_tokens and normalizer are for the last two,
    which do not hold them, and refused with the others, which do. ValueError says what is not
    supported.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; Tokenizer.from_pretrained reads those")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    with errors_of(path):
        return _read_file(path, pattern, special_tokens, normalizer)


def _read_file(path: Path, *given: Any) -> Spec:
    head = read_bytes(path, HEAD_BYTES)
    if path.suffix == ".tiktoken" or is_rank_table(head):
        return read_tiktoken(path, *given)
    if _is_sentencepiece(head, path.suffix):
        raise ValueError("it is a SentencePiece vocabulary, not byte-level BPE")
    if head.startswith(b"#version"):
        raise ValueError("it holds merges; name the vocabulary beside it, which has the ids")
    is_gguf = head.startswith(b"GGUF")
    data = None if is_gguf else _load_json(path)
    if isinstance(data, dict) and set(map(type, data.values())) == {int}:
        return read_vocab_and_merges(data, path, *given)
    if any(value is not None for value in given):
        raise ValueError(
            "the file itself says how text is split; pass no pattern or tokens with it"
        )
    return read_gguf(path) if is_gguf else read_tokenizer_json(data)


def _is_sentencepiece(head: bytes, suffix: str) -> bool:
    """Whether it begins with a piece: a field that holds a short text, and then a score."""
    if head[:1] != b"\n" or len(head) < 4:
        return False
    return suffix == ".model" or (head[2:3] == b"\n" and head[4 + head[3] :][:1] == b"\x15")


def read_directory(path: str | PathLike[str]) -> Spec:
    """The Spec of a model directory: its tokenizer.json with the chat templates beside it."""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no directory {path}")
    if not (path / "tokenizer.json").exists():
        raise FileNotFoundError(_missing(path))
    spec = read_file(path / "tokenizer.json")
    config_path = path / "tokenizer_config.json"
    with errors_of(config_path):
        config = _load_json(config_path) if config_path.exists() else {}
        if not isinstance(config, dict):
            raise ValueError("it is not an object")
        return _replace(
            spec,
            chat_templates=_chat_templates(path, config),
            named_tokens={name: _content(config, name) for name in _NAMED if config.get(name)},
        )


def _missing(path: Path) -> str:
    """What there is instead of a tokenizer.json."""
    sentence = f"{path} holds no tokenizer.json, so there is no tokenizer to load"
    for file in sorted(filter(Path.is_file, path.iterdir())):
        with file.open("rb") as opened:
            found = is_vocabulary(file) or is_rank_table(opened.read(HEAD_BYTES))
        if found:
            return (
                f"{sentence}; its {file.name} does not say how text is split: pass it to "
                "Tokenizer.from_file with pattern="
            )
    return sentence


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
        templates["default"] = read_text(path / "chat_template.jinja")
    for file in sorted(path.glob("chat_templates/*.jinja")):
        templates[file.stem] = read_text(file)
    return templates


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
    data = read_bytes(path)
    if data.startswith(codecs.BOM_UTF8):
        raise ValueError("it begins with a byte order mark, which it may not have; save it without")
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
