"""files -> Spec, and Spec -> tokenizer.json: the only file that knows formats.

Read here: tokenizer.json (Hugging Face), a model directory around one, and the tokenizer.ggml.*
metadata of GGUF. What a file asks for and we do not do is refused by name, never skipped: a
tokenizer that is almost right is wrong. Blind spot: it does not know how text is encoded.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from bpe.spec import (
    GPT2_PATTERN,
    LLAMA3_PATTERN,
    QWEN_PATTERN,
    AddedToken,
    Lowercase,
    Normalize,
    Padding,
    PrefixSpace,
    Prepend,
    Replace,
    Spec,
    Split,
    Truncation,
)

# --- the byte alphabet -------------------------------------------------------------------------
# Byte-level files write each byte as one printable character: itself where Latin-1 has a visible
# one, else the next free character from U+0100 on. This is a charmap codec, so C code converts.

_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
ALPHABET = "".join(
    chr(byte) if byte in _VISIBLE else chr(0x100 + _HIDDEN.index(byte)) for byte in range(256)
)  # ALPHABET[byte] is the byte's character; a space is "Ġ"
_ALPHABET_MAP = codecs.charmap_build(ALPHABET)
_GLYPHS = frozenset(ALPHABET)


def to_bytes(glyphs: str) -> bytes:
    """The bytes of a token in the byte alphabet; UnicodeEncodeError for any other character.

    >>> to_bytes("Ġthe")
    b' the'
    """
    return codecs.charmap_encode(glyphs, "strict", _ALPHABET_MAP)[0]


def to_glyphs(token: bytes) -> str:
    """The printable form of a token, as vocabulary files write it.

    >>> to_glyphs(b" the")
    'Ġthe'
    """
    return codecs.charmap_decode(token, "strict", ALPHABET)[0]


def _is_glyphs(text: str) -> bool:
    return all(char in _GLYPHS for char in text)


# --- finding the file --------------------------------------------------------------------------


def read_file(path: str | PathLike[str]) -> Spec:
    """The Spec in a tokenizer.json or .gguf file. ValueError says what is not supported."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; Tokenizer.from_pretrained reads those")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    try:
        return read_gguf(path) if is_gguf else read_tokenizer_json(_load_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_directory(path: str | PathLike[str]) -> Spec:
    """The Spec of a model directory: its tokenizer.json with the chat templates beside it."""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no directory {path}")
    if not (path / "tokenizer.json").exists():
        raise FileNotFoundError(f"{path} holds no tokenizer.json, so there is no tokenizer to load")
    spec = read_file(path / "tokenizer.json")
    config_path = path / "tokenizer_config.json"
    config = _load_json(config_path) if config_path.exists() else {}
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    spec = _replace(
        spec,
        chat_templates=_chat_templates(path, config),
        named_tokens={name: _content(config[name]) for name in names if config.get(name)},
    )
    return spec


def _chat_templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name; chat_template.jinja and chat_templates/NAME.jinja win over the config."""
    templates: dict[str, str] = {}
    declared = config.get("chat_template")
    if isinstance(declared, str):
        templates["default"] = declared
    elif isinstance(declared, list):
        templates |= {entry["name"]: entry["template"] for entry in declared}
    if (path / "chat_template.jinja").exists():
        templates["default"] = (path / "chat_template.jinja").read_text(encoding="utf-8")
    for file in sorted(path.glob("chat_templates/*.jinja")):
        templates[file.stem] = file.read_text(encoding="utf-8")
    return templates


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else token["content"]


def _replace(spec: Spec, **changes: Any) -> Spec:
    """dataclasses.replace without checking the vocabulary a second time."""
    changed = object.__new__(Spec)
    changed.__dict__.update(spec.__dict__, **changes)
    return changed


def _load_json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return json.loads(file.read().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}, so it is no JSON") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error}") from error


# --- tokenizer.json ----------------------------------------------------------------------------


def read_tokenizer_json(data: Any) -> Spec:
    """The Spec of a parsed tokenizer.json (Hugging Face tokenizers, format version 1.0)."""
    fields = _fields(
        data, "tokenizer.json",
        "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
        "model",
    )  # fmt: skip
    if fields["version"] not in (None, "1.0"):
        raise ValueError(
            f"tokenizer.json has version {fields['version']!r}; 1.0 is the one we read"
        )
    vocab, merges, ignore_merges = _read_model(fields["model"])
    added = _read_added_tokens(fields["added_tokens"] or [], vocab)
    for token in added:  # an added token's text need not be in the byte alphabet
        if not _is_glyphs(token.content):
            vocab.pop(token.content, None)
    _check_decoder(fields["decoder"])
    prefix_ids, suffix_ids = _read_post_processor(fields["post_processor"])
    return Spec(
        vocab=_bytes_vocab(vocab),
        merges=merges,
        pre_tokenizer=_read_pre_tokenizer(fields["pre_tokenizer"]),
        normalizer=_read_normalizer(fields["normalizer"]),
        added_tokens=added,
        ignore_merges=ignore_merges,
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        truncation=_read_truncation(fields["truncation"]),
        padding=_read_padding(fields["padding"]),
    )


def _fields(data: Any, where: str, known: str) -> dict[str, Any]:
    """data's fields, None for absent ones; a field that is not known is refused by name."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {_kind(data)}, not an object")
    names = known.split()
    for name in data:
        if name not in names:
            raise ValueError(f"{where} has a field {name!r} that we do not honour")
    return {name: data.get(name) for name in names}


def _typed_fields(data: Any, where: str, known: str) -> dict[str, Any]:
    return _fields(data, f"{where} {data.get('type')!r}", "type " + known)


def _kind(data: Any) -> str:
    return "null" if data is None else f"a {type(data).__name__}"


def _type(data: Any, where: str) -> str:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError(f"{where} is {_kind(data)} without a type")
    return data["type"]


def _read_model(model: Any) -> tuple[dict[str, int], tuple[tuple[int, int], ...], bool]:
    kind = model.get("type", "BPE") if isinstance(model, dict) else _kind(model)
    if kind != "BPE":
        raise ValueError(f"the model is {kind}, not BPE: bytepair runs byte-level BPE only")
    fields = _fields(
        model, "model",
        "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
        "byte_fallback ignore_merges vocab merges",
    )  # fmt: skip
    if fields["byte_fallback"]:
        raise ValueError(
            "the model has byte_fallback, so it is a SentencePiece vocabulary with <0x..> tokens, "
            "not byte-level BPE"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if fields[name]:
            raise ValueError(f"model.{name} is {fields[name]!r}; byte-level BPE has none")
    if fields["dropout"]:
        raise ValueError(
            f"model.dropout is {fields['dropout']}: encoding would skip merges at random; set it "
            "to null to encode with all of them"
        )
    vocab = fields["vocab"]
    if not isinstance(vocab, dict) or not vocab:
        raise ValueError(f"model.vocab is {_kind(vocab)}, not a table of tokens and ids")
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens of model.vocab have the same id")
    return dict(vocab), _read_merges(fields["merges"] or [], vocab), bool(fields["ignore_merges"])


def _read_merges(
    merges: list[str] | list[list[str]], vocab: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """Pairs of ids from merges written "a b" or ["a", "b"], each part and result checked."""
    if merges and isinstance(merges[0], str):
        if not all(isinstance(merge, str) for merge in merges):
            raise ValueError("model.merges mixes strings with pairs")
        merges = [merge.split(" ") for merge in merges if not merge.startswith("#version")]
    for merge in merges:
        if not isinstance(merge, (list, tuple)) or len(merge) != 2:
            shown = " ".join(merge) if isinstance(merge, list) else merge
            raise ValueError(f"the merge {shown!r} is not a pair of two tokens")
    try:
        for left, right in merges:
            vocab[left + right]
        return tuple((vocab[left], vocab[right]) for left, right in merges)
    except KeyError as error:
        raise ValueError(
            f"the merges use the token {error.args[0]!r}, which is not in the vocabulary"
        ) from None


def _bytes_vocab(vocab: Mapping[str, int]) -> dict[bytes, int]:
    try:
        return {to_bytes(glyphs): id for glyphs, id in vocab.items()}
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the vocabulary has a token {error.object!r} with a character outside the byte "
            "alphabet, so it is not byte-level BPE"
        ) from None


def _read_added_tokens(tokens: list[Any], vocab: Mapping[str, int]) -> tuple[AddedToken, ...]:
    """Added tokens; refused where the file's id is not the one Hugging Face would give.

    HF looks a token up in the vocabulary and otherwise numbers on from there, whatever the id says.
    """
    added: list[AddedToken] = []
    next_id = max(len(vocab), 0)
    for entry in tokens:
        fields = _fields(
            entry, "an added token", "id content single_word lstrip rstrip normalized special"
        )
        content, id = fields["content"], fields["id"]
        if any(token.content == content for token in added):
            raise ValueError(f"the added token {content!r} is listed twice")
        expected = vocab.get(content, next_id)
        if id != expected:
            raise ValueError(
                f"the added token {content!r} has id {id}, but Hugging Face tokenizers would "
                f"number it {expected} and peers disagree; correct the id in the file"
            )
        next_id = next_id if content in vocab else next_id + 1
        flags = ("special", "lstrip", "rstrip", "single_word")
        normalized = fields["normalized"]
        added.append(
            AddedToken(
                id=id,
                content=content,
                normalized=not fields["special"] if normalized is None else bool(normalized),
                **{flag: bool(fields[flag]) for flag in flags},
            )
        )
    return tuple(added)


def _read_normalizer(step: Any) -> tuple[Normalize | Lowercase | Replace | Prepend, ...]:
    if step is None:
        return ()
    kind = _type(step, "the normalizer")
    if kind == "Sequence":
        steps = _typed_fields(step, "normalizer", "normalizers")["normalizers"]
        return tuple(part for each in steps for part in _read_normalizer(each))
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        _typed_fields(step, "normalizer", "")
        return (Normalize(kind),)
    if kind == "Lowercase":
        return (Lowercase(),)
    if kind == "Replace":
        fields = _typed_fields(step, "normalizer", "pattern content")
        return (Replace(_read_pattern(fields["pattern"]), fields["content"]),)
    if kind == "Prepend":
        return (Prepend(_typed_fields(step, "normalizer", "prepend")["prepend"]),)
    raise ValueError(f"the normalizer {kind!r} is not one that byte-level files use; we have none")


def _read_pre_tokenizer(step: Any) -> tuple[Split | PrefixSpace, ...]:
    """The steps before the byte alphabet; a ByteLevel step must come last and must be there."""
    if step is None or _type(step, "the pre_tokenizer") not in ("Sequence", "ByteLevel"):
        found = "null" if step is None else repr(step["type"])
        raise ValueError(
            f"the pre_tokenizer is {found} without a ByteLevel step, so this is not byte-level BPE"
        )
    steps = [step]
    if step["type"] == "Sequence":
        steps = _typed_fields(step, "pre_tokenizer", "pretokenizers")["pretokenizers"]
    kinds = [_type(each, "a pre_tokenizer") for each in steps]
    if kinds.count("ByteLevel") != 1 or kinds[-1] != "ByteLevel":
        raise ValueError(
            f"the pre_tokenizer is a sequence of {', '.join(kinds) or 'nothing'}; byte-level BPE "
            "has one ByteLevel step, at its end"
        )
    return tuple(part for each in steps for part in _read_pre_tokenizer_step(each))


def _read_pre_tokenizer_step(step: dict[str, Any]) -> Iterable[Split | PrefixSpace]:
    kind = step["type"]
    if kind == "Split":
        fields = _typed_fields(step, "pre_tokenizer", "pattern behavior invert")
        return [Split(_read_pattern(fields["pattern"]), fields["behavior"], bool(fields["invert"]))]
    if kind == "Digits":
        individual = _typed_fields(step, "pre_tokenizer", "individual_digits")["individual_digits"]
        return [Split(r"\p{N}" if individual else r"\p{N}+")]
    if kind == "ByteLevel":
        fields = _typed_fields(step, "pre_tokenizer", "add_prefix_space trim_offsets use_regex")
        prefix = [] if fields["add_prefix_space"] is False else [PrefixSpace()]  # absent: true
        return [*prefix, *([] if fields["use_regex"] is False else [Split(GPT2_PATTERN)])]
    raise ValueError(f"the pre_tokenizer step {kind!r} is not one that byte-level files use")


def _read_pattern(pattern: Any) -> str:
    fields = _fields(pattern, "a pattern", "Regex String")
    if fields["String"] is not None:
        return re.escape(fields["String"])
    if fields["Regex"] is None:
        raise ValueError("a pattern has neither Regex nor String")
    return fields["Regex"]


def _check_decoder(decoder: Any) -> None:
    kind = None if decoder is None else _type(decoder, "the decoder")
    if kind == "Sequence" and [_type(d, "a decoder") for d in decoder["decoders"]] == ["ByteLevel"]:
        kind = "ByteLevel"
    if kind != "ByteLevel":
        found = "null" if kind is None else repr(kind)
        raise ValueError(f"the decoder is {found}, not ByteLevel, so this is not byte-level BPE")


def _read_post_processor(step: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ids put in front, ids put behind) for a single text. ByteLevel only trims offsets."""
    if step is None or _type(step, "the post_processor") == "ByteLevel":
        return (), ()
    if step["type"] == "Sequence":
        prefix: tuple[int, ...] = ()
        suffix: tuple[int, ...] = ()
        for part in _typed_fields(step, "post_processor", "processors")["processors"]:
            before, after = _read_post_processor(part)
            prefix, suffix = before + prefix, suffix + after
        return prefix, suffix
    if step["type"] != "TemplateProcessing":
        raise ValueError(f"the post_processor {step['type']!r} is none that byte-level files use")
    fields = _typed_fields(step, "post_processor", "single pair special_tokens")
    parts: tuple[list[int], list[int]] = ([], [])
    num_sequences = 0
    for item in fields["single"]:
        if "Sequence" in item:
            num_sequences += 1
        else:
            name = item["SpecialToken"]["id"]
            if name not in (fields["special_tokens"] or {}):
                raise ValueError(
                    f"the post_processor uses {name!r} and does not say which ids it is"
                )
            parts[min(num_sequences, 1)].extend(fields["special_tokens"][name]["ids"])
    if num_sequences != 1:
        raise ValueError(f"the post_processor's template has {num_sequences} texts instead of one")
    return tuple(parts[0]), tuple(parts[1])


def _read_truncation(block: Any) -> Truncation | None:
    if block is None:
        return None
    fields = _fields(block, "truncation", "direction max_length strategy stride")
    if fields["strategy"] == "OnlySecond":
        raise ValueError("truncation.strategy is OnlySecond, but we encode single texts")
    return Truncation(fields["max_length"], fields["direction"] or "Right")


def _read_padding(block: Any) -> Padding | None:
    if block is None:
        return None
    fields = _fields(
        block, "padding", "strategy direction pad_to_multiple_of pad_id pad_type_id pad_token"
    )
    strategy = fields["strategy"]
    return Padding(
        fields["pad_id"] or 0,
        length=strategy["Fixed"] if isinstance(strategy, dict) else None,
        multiple_of=fields["pad_to_multiple_of"],
        direction=fields["direction"] or "Right",
    )


def write_tokenizer_json(spec: Spec, path: str | PathLike[str]) -> None:
    """Write spec as a tokenizer.json; the file appears whole or not at all."""
    path = Path(path)
    text = json.dumps(tokenizer_json(spec), ensure_ascii=False, indent=2)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def tokenizer_json(spec: Spec) -> dict[str, Any]:
    """The tokenizer.json object of a Spec. Chat templates have no place in this file."""
    glyphs = {id: to_glyphs(token) for token, id in spec.vocab.items()}
    vocab = {glyphs[id]: id for id in sorted(glyphs)}
    start = len(vocab)
    added = sorted(spec.added_tokens, key=lambda token: token.id)
    in_vocab = [token for token in added if token.id < start + len(added) and token.id in glyphs]
    numbered_on = [token for token in added if token not in in_vocab]
    expected = iter(range(start, start + len(numbered_on)))
    if any(token.id != next(expected) for token in numbered_on):
        vocab |= {token.content: token.id for token in numbered_on}  # the only way to keep the ids
    steps, byte_level = _split_off_byte_level(spec.pre_tokenizer)
    plain_byte_level = _byte_level_json(False, False)
    return {
        "version": "1.0",
        "truncation": _truncation_json(spec.truncation),
        "padding": _padding_json(spec.padding),
        "added_tokens": [
            {
                "id": token.id, "content": token.content, "single_word": token.single_word,
                "lstrip": token.lstrip, "rstrip": token.rstrip, "normalized": token.normalized,
                "special": token.special,
            }
            for token in added
        ],
        "normalizer": _sequence("normalizers", map(_normalizer_json, spec.normalizer)),
        "pre_tokenizer": _sequence(
            "pretokenizers", [*map(_pre_tokenizer_json, steps), byte_level]
        ),
        "post_processor": _post_processor_json(spec, added) or plain_byte_level,
        "decoder": plain_byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": spec.ignore_merges, "vocab": vocab,
            "merges": [[glyphs[left], glyphs[right]] for left, right in spec.merges],
        },
    }  # fmt: skip


def _sequence(name: str, steps: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    steps = list(steps)
    if len(steps) > 1:
        return {"type": "Sequence", name: steps}
    return steps[0] if steps else None


def _normalizer_json(step: Normalize | Lowercase | Replace | Prepend) -> dict[str, Any]:
    if isinstance(step, Normalize):
        return {"type": step.form}
    if isinstance(step, Lowercase):
        return {"type": "Lowercase"}
    if isinstance(step, Prepend):
        return {"type": "Prepend", "prepend": step.content}
    return {"type": "Replace", "pattern": {"Regex": step.pattern}, "content": step.content}


def _split_off_byte_level(
    steps: tuple[Split | PrefixSpace, ...],
) -> tuple[tuple[Split, ...], dict[str, Any]]:
    """(the Split steps, the ByteLevel step at the end): only ByteLevel can add a prefix space."""
    if steps[-2:] == (PrefixSpace(), Split(GPT2_PATTERN)):
        return steps[:-2], _byte_level_json(True, True)
    if steps[-1:] == (PrefixSpace(),):
        return steps[:-1], _byte_level_json(True, False)
    if PrefixSpace() in steps:
        raise ValueError("tokenizer.json cannot say that a space is added before the last steps")
    return steps, _byte_level_json(False, False)


def _byte_level_json(add_prefix_space: bool, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": False,
        "use_regex": use_regex,
    }  # fmt: skip


def _pre_tokenizer_json(step: Split) -> dict[str, Any]:
    return {
        "type": "Split", "pattern": {"Regex": step.pattern}, "behavior": step.behavior,
        "invert": step.invert,
    }  # fmt: skip


def _post_processor_json(spec: Spec, added: list[AddedToken]) -> dict[str, Any] | None:
    if not spec.prefix_ids and not spec.suffix_ids:
        return None
    names = {id: to_glyphs(token) for token, id in spec.vocab.items()}
    names |= {token.id: token.content for token in added}
    before, after = (
        [{"SpecialToken": {"id": names[id], "type_id": 0}} for id in ids]
        for ids in (spec.prefix_ids, spec.suffix_ids)
    )
    single = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            names[id]: {"id": names[id], "ids": [id], "tokens": [names[id]]}
            for id in {*spec.prefix_ids, *spec.suffix_ids}
        },
    }


def _truncation_json(truncation: Truncation | None) -> dict[str, Any] | None:
    return truncation and {
        "direction": truncation.direction, "max_length": truncation.max_length,
        "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip


def _padding_json(padding: Padding | None) -> dict[str, Any] | None:
    return padding and {
        "strategy": {"Fixed": padding.length} if padding.length else "BatchLongest",
        "direction": padding.direction, "pad_to_multiple_of": padding.multiple_of,
        "pad_id": padding.pad_id, "pad_type_id": 0, "pad_token": "",
    }  # fmt: skip


# --- GGUF --------------------------------------------------------------------------------------
# model/gguf.py reads the same header for tensors; the two stay apart because bpe and model do not
# know each other.

_LLAMA_CPP_GPT2 = Split(
    GPT2_PATTERN.removesuffix(r"|\s+")
)  # the spaces left over are gaps = pieces

GGUF_PRE_TOKENIZERS: dict[str, tuple[tuple[Split, ...], tuple[Normalize, ...], bool]] = {
    # tokenizer.ggml.pre -> steps, normalizer of the models that use it, ignore_merges
    "qwen2": ((Split(QWEN_PATTERN),), (Normalize("NFC"),), False),
    "llama-bpe": ((Split(LLAMA3_PATTERN),), (), True),
    "smollm": ((Split(r"\p{N}"), _LLAMA_CPP_GPT2), (), False),
    "gpt-2": ((_LLAMA_CPP_GPT2,), (), False),
    "default": (
        (
            Split(r"[\p{P}\$\+<=>\^~\|]+"), _LLAMA_CPP_GPT2,
            Split(r"\p{N}+"), Split("[0-9][0-9][0-9]"),
        ),
        (),
        False,
    ),
}  # fmt: skip

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
    if pre not in GGUF_PRE_TOKENIZERS:
        raise ValueError(
            f"tokenizer.ggml.pre is {pre!r}; we know {', '.join(sorted(GGUF_PRE_TOKENIZERS))}"
        )
    tokens: list[str] = data["tokenizer.ggml.tokens"]
    types = data.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    steps, normalizer, ignore_merges = GGUF_PRE_TOKENIZERS[pre]
    vocab = {token: id for id, token in enumerate(tokens) if types[id] not in _NOT_BYTE_LEVEL}
    return Spec(
        vocab=_bytes_vocab(vocab),
        merges=_read_merges(data["tokenizer.ggml.merges"], vocab),
        pre_tokenizer=steps,
        normalizer=normalizer,
        added_tokens=tuple(
            AddedToken(id, token, special=types[id] == _CONTROL)
            for id, token in enumerate(tokens)
            if types[id] in (_CONTROL, _USER_DEFINED)
        ),
        ignore_merges=ignore_merges,
        prefix_ids=_gguf_affix(data, "bos"),
        suffix_ids=_gguf_affix(data, "eos"),
        chat_templates={
            key.removeprefix("tokenizer.chat_template").removeprefix(".") or "default": value
            for key, value in data.items()
            if key.startswith("tokenizer.chat_template") and isinstance(value, str)
        },
        named_tokens={
            f"{name}_token": tokens[data[key]]
            for name, long in (("bos",) * 2, ("eos",) * 2, ("unk", "unknown"), ("pad", "padding"))
            if 0 <= data.get(key := f"tokenizer.ggml.{long}_token_id", -1) < len(tokens)
        },
    )


_NOT_BYTE_LEVEL = (_CONTROL, _USER_DEFINED, _UNUSED)


def _gguf_affix(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    if not data.get(f"tokenizer.ggml.add_{name}_token"):
        return ()
    return (data[f"tokenizer.ggml.{name}_token_id"],)


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
        return self._buffer[start : self._offset].decode("utf-8")

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
