"""a parsed tokenizer.json -> Spec (Hugging Face tokenizers, format version 1.0).

What the file asks for and we do not do is refused by name, never skipped: a tokenizer that is
almost right is wrong. Blind spot: it does not know the file's place, nor how text is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import add
from typing import Any

from bpe.formats.alphabet import bytes_vocab, is_glyphs
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
        if not is_glyphs(token.content):
            vocab.pop(token.content, None)
    _check_decoder(fields["decoder"])
    prefix_ids, suffix_ids = _read_post_processor(fields["post_processor"])
    return Spec(
        vocab=bytes_vocab(vocab),
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
    return dict(vocab), read_merges(fields["merges"] or [], vocab), bool(fields["ignore_merges"])


def read_merges(
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
    left, right = zip(*merges) if merges else ((), ())
    id_of = vocab.__getitem__  # mapped, since no loop of ours is as fast over 150,000 of them
    try:
        for _ in map(id_of, map(add, left, right)):
            pass
        return tuple(zip(map(id_of, left), map(id_of, right)))
    except KeyError as error:
        raise ValueError(
            f"the merges use the token {error.args[0]!r}, which is not in the vocabulary"
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
