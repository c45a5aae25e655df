"""Spec -> tokenizer.json, which Hugging Face tokenizers loads with the same ids.

Blind spot: chat templates have no place in this file, so they are not written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from bpe.encoding.alphabet import to_glyphs
from bpe.encoding.oniguruma import check_common_syntax
from bpe.formats.whole import whole_file
from bpe.spec import (
    GPT2_PATTERN,
    AddedToken,
    ByteAlphabet,
    Lowercase,
    Normalize,
    Padding,
    PrefixSpace,
    Prepend,
    Replace,
    Spec,
    Split,
    Step,
    Truncation,
)


def write_tokenizer_json(spec: Spec, path: str | PathLike[str]) -> None:
    """Write spec as a tokenizer.json; the file appears whole or not at all."""
    text = json.dumps(tokenizer_json(spec), ensure_ascii=False, indent=2)
    with whole_file(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def tokenizer_json(spec: Spec) -> dict[str, Any]:
    """The tokenizer.json object of a Spec. Chat templates have no place in this file."""
    glyphs = {id: to_glyphs(token) for token, id in spec.vocab.items()}
    texts = glyphs | {id: text for text, id in spec.dead_tokens.items()}
    vocab = {texts[id]: id for id in sorted(texts)}
    start = len(vocab)
    added = sorted(spec.added_tokens, key=lambda token: token.id)
    in_vocab = [token for token in added if token.id < start + len(added) and token.id in glyphs]
    numbered_on = [token for token in added if token not in in_vocab]
    expected = iter(range(start, start + len(numbered_on)))
    if any(token.id != next(expected) for token in numbered_on):
        vocab |= {token.content: token.id for token in numbered_on}  # the only way to keep the ids
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
        "pre_tokenizer": _sequence("pretokenizers", _pre_tokenizer_json(spec.pre_tokenizer)),
        "post_processor": _sequence("processors", _post_processors_json(spec, added))
        or plain_byte_level,
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
    return {
        "type": "Replace",
        "pattern": _pattern_json(step.pattern),
        "content": step.content,
    }


def _pattern_json(pattern: str) -> dict[str, str]:
    check_common_syntax(pattern)
    return {"Regex": pattern}


def _pre_tokenizer_json(steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    """ByteLevel stands where the byte alphabet begins; it alone can add a space in front."""
    border = steps.index(ByteAlphabet()) if ByteAlphabet() in steps else len(steps)
    before, behind = steps[:border], steps[border + 1 :]
    use_regex = before[-2:] == (PrefixSpace(), Split(GPT2_PATTERN))
    before = before[:-1] if use_regex else before
    add_prefix_space = before[-1:] == (PrefixSpace(),)
    before = before[:-1] if add_prefix_space else before
    if PrefixSpace() in (*before, *behind):
        raise ValueError("tokenizer.json cannot say that a space is added before the last steps")
    byte_level = _byte_level_json(add_prefix_space, use_regex)
    return [*map(_split_json, before), byte_level, *map(_split_json, behind)]


def _byte_level_json(
    add_prefix_space: bool, use_regex: bool, trim_offsets: bool = False
) -> dict[str, Any]:
    return {
        "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }  # fmt: skip


def _split_json(step: Split) -> dict[str, Any]:
    return {
        "type": "Split", "pattern": _pattern_json(step.pattern),
        "behavior": step.behavior, "invert": step.invert,
    }  # fmt: skip


def _post_processors_json(spec: Spec, added: list[AddedToken]) -> list[dict[str, Any]]:
    trims = [_byte_level_json(spares_first, True, True) for spares_first in spec.trim_offsets]
    return [*trims, _template_json(spec, added)] if spec.prefix_ids or spec.suffix_ids else trims


def _template_json(spec: Spec, added: list[AddedToken]) -> dict[str, Any]:
    names = _names_of({*spec.prefix_ids, *spec.suffix_ids}, spec, added)
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
            name: {"id": name, "ids": [id], "tokens": [name]} for id, name in names.items()
        },
    }


def _names_of(ids: Collection[int], spec: Spec, added: list[AddedToken]) -> dict[int, str]:
    """A name for each id, and no two alike; an id may be that of no token."""
    texts = {token.id: token.content for token in added}
    names: dict[int, str] = {}
    for id in sorted(ids):
        name = texts.get(id) or to_glyphs(spec.token_bytes.get(id, b"")) or f"<{id}>"
        while name in names.values():
            name += f"<{id}>"
        names[id] = name
    return names


def _truncation_json(truncation: Truncation | None) -> dict[str, Any] | None:
    return truncation and {
        "direction": truncation.direction, "max_length": truncation.max_length,
        "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip


def _padding_json(padding: Padding | None) -> dict[str, Any] | None:
    return padding and {
        "strategy": "BatchLongest" if padding.length is None else {"Fixed": padding.length},
        "direction": padding.direction, "pad_to_multiple_of": padding.multiple_of,
        "pad_id": padding.pad_id, "pad_type_id": 0, "pad_token": "",
    }  # fmt: skip
