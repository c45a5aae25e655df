"""a parsed tokenizer.json -> Spec (Hugging Face tokenizers, format version 1.0).

What the file asks for and we do not do is refused by name, never skipped: a tokenizer that is
almost right is wrong. Blind spot: it does not know the file's place, nor how text is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

from bpe.formats.alphabet import bytes_vocab, is_glyphs
from bpe.oniguruma import may_match_nothing, to_common_syntax
from bpe.spec import (
    GPT2_PATTERN,
    MAX_ID,
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
    truncation = _read_truncation(fields["truncation"])
    if truncation and truncation.max_length < len(prefix_ids) + len(suffix_ids):
        raise ValueError(
            f"truncation.max_length is {truncation.max_length}, but the post_processor alone adds "
            f"{len(prefix_ids) + len(suffix_ids)} tokens"
        )
    return Spec(
        vocab=bytes_vocab(vocab),
        merges=merges,
        pre_tokenizer=_read_pre_tokenizer(fields["pre_tokenizer"]),
        normalizer=_read_normalizer(fields["normalizer"]),
        added_tokens=added,
        ignore_merges=ignore_merges,
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        truncation=truncation,
        padding=_read_padding(fields["padding"]),
    )


def _fields(data: Any, where: str, known: str) -> dict[str, Any]:
    """data's fields, None for absent ones; refused where unknown or of a wrong type."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {_kind(data)}, not an object")
    names = known.split()
    for name, value in data.items():
        if name not in names:
            raise ValueError(f"{where} has a field {name!r} that we do not honour")
        wanted = _TYPES.get(name)
        if wanted and value is not None and type(value) not in wanted:
            raise ValueError(f"{where} has {_kind(value)} as its {name!r}")
        if type(value) is int and not 0 <= value <= MAX_ID:
            raise ValueError(
                f"{where} has {_shown(value)} as its {name!r}, not one of 0 to {MAX_ID}"
            )
    return {name: data.get(name) for name in names}


_TYPES: dict[str, tuple[type, ...]] = {  # field, wherever it stands -> the types it may have
    name: types
    for types, names in {
        (bool,): "single_word lstrip rstrip normalized special invert individual_digits use_regex "
        "add_prefix_space trim_offsets ignore_merges byte_fallback fuse_unk",
        (int,): "id max_length stride pad_id pad_type_id pad_to_multiple_of",
        (int, float): "dropout",
        (str,): "content prepend behavior Regex String direction pad_token unk_token "
        "continuing_subword_prefix end_of_word_suffix",
        (
            list,
        ): "added_tokens normalizers pretokenizers decoders processors merges single pair ids "
        "tokens",
        (dict,): "vocab special_tokens pattern Sequence SpecialToken",
    }.items()
    for name in names.split()
}


def _required(fields: Mapping[str, Any], name: str, where: str) -> Any:
    if fields[name] is None:
        raise ValueError(f"{where} has no {name!r}")
    return fields[name]


def _typed_fields(data: Any, where: str, known: str) -> dict[str, Any]:
    return _fields(data, f"{where} {data.get('type')!r}", "type " + known)


def _shown(number: int) -> str:
    """A number from a file, which may have thousands of digits."""
    return str(number) if abs(number) < 1 << 64 else "a number of over 64 bits"


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
    if not vocab or set(map(type, vocab.values())) != {int} or min(vocab.values()) < 0:
        raise ValueError("model.vocab is not a table of tokens and their ids")
    if max(vocab.values()) > MAX_ID:
        raise ValueError(
            f"model.vocab has {_shown(max(vocab.values()))} as an id; {MAX_ID} is the last"
        )
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens of model.vocab have the same id")
    return dict(vocab), read_merges(fields["merges"] or [], vocab), bool(fields["ignore_merges"])


def read_merges(
    merges: list[str] | list[list[str]], vocab: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """Pairs of ids from merges written "a b" or ["a", "b"]; Spec checks what they give.

    Mapped, since no loop of ours is as fast over 150,000 of them.
    """
    if merges and isinstance(merges[0], str):
        left, right = _halves_of_strings(merges)
    else:
        left, right = _halves_of_pairs(merges)
    id_of = vocab.__getitem__
    try:
        return tuple(zip(map(id_of, left), map(id_of, right)))
    except KeyError as error:
        raise ValueError(
            f"the merges use the token {error.args[0]!r}, which is not in the vocabulary"
        ) from None


def _halves_of_strings(merges: list[str]) -> tuple[list[str], list[str]]:
    if set(map(type, merges)) != {str}:
        raise ValueError("model.merges mixes strings with pairs")
    if any(map(str.startswith, merges, repeat("#version"))):
        merges = [merge for merge in merges if not merge.startswith("#version")]
    if set(map(str.count, merges, repeat(" "))) - {1}:
        wrong = next(merge for merge in merges if merge.count(" ") != 1)
        raise ValueError(f"the merge {wrong!r} is not a pair of two tokens")
    halves = " ".join(merges).split(" ") if merges else []
    return halves[::2], halves[1::2]


def _halves_of_pairs(merges: list[list[str]]) -> tuple[list[str], list[str]]:
    if set(map(type, merges)) - {list} or set(map(len, merges)) - {2}:
        wrong = next(merge for merge in merges if type(merge) is not list or len(merge) != 2)
        raise ValueError(f"the merge {wrong!r} is not a pair of two tokens")
    halves = list(chain.from_iterable(merges))
    if set(map(type, halves)) - {str}:
        raise ValueError("model.merges has a pair of something else than tokens")
    return halves[::2], halves[1::2]


def _read_added_tokens(tokens: list[Any], vocab: Mapping[str, int]) -> tuple[AddedToken, ...]:
    """Added tokens; refused where the file's id is not the one Hugging Face would give.

    HF looks a token up in the vocabulary and otherwise numbers on from there, whatever the id says.
    """
    added: list[AddedToken] = []
    next_id = len(vocab)
    listed: set[str] = set()
    for entry in tokens:
        fields = _fields(
            entry, "an added token", "id content single_word lstrip rstrip normalized special"
        )
        content, id = (_required(fields, name, "an added token") for name in ("content", "id"))
        if content in listed:
            raise ValueError(f"the added token {content!r} is listed twice")
        listed.add(content)
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
        fields = _typed_fields(step, "normalizer", "normalizers")
        steps = _required(fields, "normalizers", "a normalizer")
        return tuple(part for each in steps for part in _read_normalizer(each))
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        _typed_fields(step, "normalizer", "")
        return (Normalize(kind),)
    if kind == "Lowercase":
        _typed_fields(step, "normalizer", "")
        return (Lowercase(),)
    if kind == "Replace":
        fields = _typed_fields(step, "normalizer", "pattern content")
        content = _required(fields, "content", "a normalizer")
        pattern = _read_pattern(fields["pattern"])
        if may_match_nothing(pattern):
            raise ValueError(
                f"the normalizer replaces {pattern!r}, which may match nothing; what Hugging Face "
                "tokenizers puts there depends on where it stands"
            )
        return (Replace(pattern, content),)
    if kind == "Prepend":
        fields = _typed_fields(step, "normalizer", "prepend")
        return (Prepend(_required(fields, "prepend", "a normalizer")),)
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
        fields = _typed_fields(step, "pre_tokenizer", "pretokenizers")
        steps = _required(fields, "pretokenizers", "the pre_tokenizer")
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
    return to_common_syntax(fields["Regex"])


def _check_decoder(decoder: Any) -> None:
    kind = None if decoder is None else _type(decoder, "the decoder")
    if kind == "Sequence":
        steps = _typed_fields(decoder, "decoder", "decoders")["decoders"] or []
        kind = ", ".join(_type(step, "a decoder") for step in steps)
    if kind != "ByteLevel":
        found = "null" if kind is None else repr(kind)
        raise ValueError(f"the decoder is {found}, not ByteLevel, so this is not byte-level BPE")


def _read_post_processor(step: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ids put in front, ids put behind) for a single text. ByteLevel only trims offsets."""
    if step is None or _type(step, "the post_processor") == "ByteLevel":
        return (), ()
    if step["type"] == "Sequence":
        fields = _typed_fields(step, "post_processor", "processors")
        parts = _required(fields, "processors", "the post_processor")
        kinds = [_type(part, "a post_processor") for part in parts]
        if len(kinds) - kinds.count("ByteLevel") > 1:
            raise ValueError(
                f"the post_processor is a sequence of {', '.join(kinds)}, of which only one may "
                "add tokens: what a second one does with those of the first is not defined"
            )
        affixes = list(map(_read_post_processor, parts))
        return next(filter(any, affixes), ((), ()))
    if step["type"] != "TemplateProcessing":
        raise ValueError(f"the post_processor {step['type']!r} is none that byte-level files use")
    return _read_template(_typed_fields(step, "post_processor", "single pair special_tokens"))


def _read_template(fields: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after the text in a TemplateProcessing step's "single" template."""
    parts: tuple[list[int], list[int]] = ([], [])
    num_texts = 0
    for item in fields["single"] or []:
        item = _fields(item, "a template's item", "Sequence SpecialToken")
        if item["SpecialToken"] is None:
            if (item["Sequence"] or {}).get("id") != "A":
                raise ValueError(
                    "the post_processor's template for one text asks for another than A"
                )
            num_texts += 1
        else:
            name = item["SpecialToken"].get("id")
            parts[min(num_texts, 1)].extend(_template_ids(name, fields["special_tokens"] or {}))
    if num_texts != 1:
        raise ValueError(f"the post_processor's template has {num_texts} texts instead of one")
    return tuple(parts[0]), tuple(parts[1])


def _template_ids(name: Any, special_tokens: Mapping[str, Any]) -> list[int]:
    if not isinstance(name, str) or name not in special_tokens:
        raise ValueError(f"the post_processor uses {name!r} and does not say which ids it is")
    entry = special_tokens[name]
    ids = entry.get("ids") if isinstance(entry, dict) else None
    if not isinstance(ids, list) or not all(type(id) is int and id >= 0 for id in ids):
        raise ValueError(f"the post_processor's token {name!r} has no list of ids")
    return ids


def _read_truncation(block: Any) -> Truncation | None:
    if block is None:
        return None
    fields = _fields(block, "truncation", "direction max_length strategy stride")
    if fields["strategy"] == "OnlySecond":
        raise ValueError("truncation.strategy is OnlySecond, but we encode single texts")
    if fields["strategy"] not in (None, "LongestFirst", "OnlyFirst"):
        raise ValueError(f"truncation.strategy is {fields['strategy']!r}, which we do not know")
    max_length = _required(fields, "max_length", "truncation")
    if (fields["stride"] or 0) >= max(max_length, 1):
        raise ValueError(f"truncation.stride is {fields['stride']}, not below its max_length")
    return Truncation(max_length, _read_direction(fields))


def _read_padding(block: Any) -> Padding | None:
    if block is None:
        return None
    fields = _fields(
        block, "padding", "strategy direction pad_to_multiple_of pad_id pad_type_id pad_token"
    )
    strategy = fields["strategy"]
    length = strategy.get("Fixed") if isinstance(strategy, dict) else None
    is_length = length is None or (type(length) is int and 0 <= length <= MAX_ID)
    if strategy not in (None, "BatchLongest", {"Fixed": length}) or not is_length:
        raise ValueError(
            f"padding.strategy is {strategy!r}, neither BatchLongest nor a Fixed length"
        )
    return Padding(
        fields["pad_id"] or 0,
        length=length,
        multiple_of=fields["pad_to_multiple_of"],
        direction=_read_direction(fields),
    )


def _read_direction(fields: Mapping[str, Any]) -> str:
    direction = fields["direction"] or "Right"
    if direction not in ("Left", "Right"):
        raise ValueError(f"the direction {direction!r} is neither Left nor Right")
    return direction
