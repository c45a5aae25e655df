"""Spec -> tokenizer.json, which Hugging Face tokenizers loads with the same ids.

Blind spot: chat templates have no place in this file, so they are not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from bpe.formats.alphabet import to_glyphs
from bpe.oniguruma import check_common_syntax
from bpe.spec import (
    GPT2_PATTERN,
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
from bpe.whole import whole_file


def write_tokenizer_json(spec: Spec, path: str | PathLike[str]) -> None:
    """Write spec as a tokenizer.json; the file appears whole or not at all."""
    text = json.dumps(tokenizer_json(spec), ensure_ascii=False, indent=2)
    with whole_file(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
    return {
        "type": "Replace",
        "pattern": _pattern_json(step.pattern),
        "content": step.content,
    }


def _pattern_json(pattern: str) -> dict[str, str]:
    check_common_syntax(pattern)
    return {"Regex": pattern}


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
        "type": "Split", "pattern": _pattern_json(step.pattern),
        "behavior": step.behavior, "invert": step.invert,
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
