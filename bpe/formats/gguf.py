"""the tokenizer.ggml.* metadata of a GGUF file -> Spec (gpt2-type models, llama.cpp's names).

model/weights/gguf.py reads the same header for tensors; the two stay apart because bpe and model do
not know each other. Blind spot: tensors.

Source: the GGUF specification.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bpe.formats.gguf_names import named
from bpe.formats.tokenizer_json import read_merges, token_fields
from bpe.spec import AddedToken, Spec

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # tokenizer.ggml.token_type


def read_gguf(path: Path) -> Spec:
    """The Spec in a GGUF file's tokenizer.ggml.* metadata (gpt2-type models)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        data = _GgufReader(buffer).read("tokenizer.")
    model, pre = data.get("tokenizer.ggml.model"), data.get("tokenizer.ggml.pre", "default")
    if model != "gpt2":
        raise ValueError(
            f"the file's tokenizer.ggml.model is {model!r}; only 'gpt2' is byte-level BPE"
        )
    rule = named(pre)
    tokens, merges = (_strings(data, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    types = data.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise ValueError("tokenizer.ggml.token_type is not a list of one type a token")
    vocab = {token: id for id, token in enumerate(tokens) if types[id] not in _NOT_BYTE_LEVEL}
    return Spec(
        **token_fields(vocab, read_merges(merges, vocab)),
        pre_tokenizer=rule.steps,
        normalizer=rule.normalizer,
        added_tokens=tuple(
            AddedToken(id, token, special=types[id] == _CONTROL, lstrip=token == rule.mask)
            for id, token in enumerate(tokens)
            if types[id] in (_CONTROL, _USER_DEFINED)
        ),
        ignore_merges=rule.ignore_merges,
        prefix_ids=_gguf_affix(data, "bos", rule.adds_bos),
        suffix_ids=_gguf_affix(data, "eos", False),
        chat_templates={
            key.removeprefix("tokenizer.chat_template").removeprefix(".") or "default": value
            for key, value in data.items()
            if key.startswith("tokenizer.chat_template") and isinstance(value, str)
        },
        named_tokens={
            f"{name}_token": tokens[id]
            for name, long in (("bos",) * 2, ("eos",) * 2, ("unk", "unknown"), ("pad", "padding"))
            if (id := data.get(f"tokenizer.ggml.{long}_token_id")) in range(len(tokens))
        },
    )


_NOT_BYTE_LEVEL = (_CONTROL, _USER_DEFINED, _UNUSED)


def _gguf_affix(data: Mapping[str, Any], name: str, adds: bool) -> tuple[int, ...]:
    """The id that is added at one end; adds: whether one is where the file says nothing of it."""
    told = data.get(f"tokenizer.ggml.add_{name}_token")
    id = data.get(f"tokenizer.ggml.{name}_token_id")
    if not (adds and id is not None if told is None else told):
        return ()
    if type(id) is not int:
        raise ValueError(f"tokenizer.ggml.add_{name}_token is set, but there is no {name} token")
    return (id,)


def _strings(data: Mapping[str, Any], key: str) -> list[str]:
    if not isinstance(data.get(key), list) or not all(isinstance(one, str) for one in data[key]):
        raise ValueError(f"the file's {key} is no list of texts")
    return data[key]


class _GgufReader:
    """Reads the key-value block of a GGUF file (version 2 or 3, little-endian)."""

    SCALARS: ClassVar[dict[int, str]] = {  # value type -> struct format
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
    }  # fmt: skip
    STRING, ARRAY = 8, 9

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self._offset = 4

    def read(self, prefix: str) -> dict[str, Any]:
        """The entries whose key begins with prefix. ValueError if the file ends too early."""
        try:
            version, _, num_entries = self._unpack("IQQ")
            if version not in (2, 3):
                raise ValueError(f"it is GGUF version {version}; 2 and 3 are the ones we read")
            entries: dict[str, Any] = {}
            for _ in range(num_entries):
                key = self._string()
                value = self._value(self._unpack("I")[0])
                if key.startswith(prefix):
                    entries[key] = value
            return entries
        except (struct.error, IndexError) as error:
            raise ValueError(
                f"the GGUF header goes on beyond the file's {len(self._buffer)} bytes: the file is "
                "cut off; fetch it again"
            ) from error

    def _unpack(self, format: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + format, self._buffer, self._offset)
        self._offset += struct.calcsize("<" + format)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        start, self._offset = self._offset, self._offset + length
        if self._offset > len(self._buffer):
            raise IndexError(self._offset)
        try:
            return self._buffer[start : self._offset].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the GGUF header has a text that is not UTF-8 at byte {start + error.start}"
            ) from error

    def _value(self, type: int) -> Any:
        if type == self.STRING:
            return self._string()
        if type != self.ARRAY:
            return self._unpack(self._scalar(type))[0]
        item_type, length = self._unpack("IQ")
        if item_type == self.STRING:
            return [self._string() for _ in range(length)]
        if item_type == self.ARRAY:
            return [self._value(self.ARRAY) for _ in range(length)]
        return list(self._unpack(f"{length}{self._scalar(item_type)}"))

    def _scalar(self, type: int) -> str:
        if type not in self.SCALARS:
            raise ValueError(f"the GGUF header has a value of unknown type {type}")
        return self.SCALARS[type]
