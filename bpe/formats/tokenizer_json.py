"""a parsed tokenizer.json -> Spec (Hugging Face tokenizers, format version 1.0).

What the file asks for and we do not do is refused by name, never skipped: a tokenizer that is
almost right is wrong. Blind spot: it does not know the file's place, nor how text is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat, starmap
from operator import itemgetter
from typing import Any, NamedTuple

from bpe.encoding.alphabet import bytes_vocab
from bpe.encoding.oniguruma import may_match_nothing
from bpe.formats.fields import (
    fields_of,
    kind_of,
    required,
    shown_number,
    type_of,
    typed_fields,
)
from bpe.formats.steps import read_pattern, read_pre_tokenizer
from bpe.spec import (
    MAX_ID,
    AddedToken,
    Lowercase,
    Normalize,
    Padding,
    Prepend,
    Replace,
    Spec,
    Truncation,
)


def read_tokenizer_json(data: Any) -> Spec:
    """The Spec of a parsed tokenizer.json (Hugging Face tokenizers, format version 1.0)."""
    fields = fields_of(
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
    _check_decoder(fields["decoder"])
    post = _read_post_processor(fields["post_processor"])
    truncation = _read_truncation(fields["truncation"])
    num_added = len(post.prefix_ids) + len(post.suffix_ids)
    if truncation and truncation.max_length < num_added:
        raise ValueError(
            f"truncation.max_length is {truncation.max_length}, but the post_processor alone adds "
            f"{num_added} tokens"
        )
    tokens = token_fields(vocab, merges)
    for token in added:  # whose text need not be in the byte alphabet
        tokens["dead_tokens"].pop(token.content, None)
    return Spec(
        **tokens,
        normalizer=_read_normalizer(fields["normalizer"]),
        pre_tokenizer=read_pre_tokenizer(fields["pre_tokenizer"]),
        added_tokens=added,
        ignore_merges=ignore_merges,
        truncation=truncation,
        padding=_read_padding(fields["padding"]),
        **post._asdict(),
    )


def _read_model(model: Any) -> tuple[dict[str, int], tuple[tuple[int, int], ...], bool]:
    kind = model.get("type", "BPE") if isinstance(model, dict) else kind_of(model)
    if kind != "BPE":
        raise ValueError(f"the model is {kind}, not BPE: bytepair runs byte-level BPE only")
    fields = fields_of(
        model, "model",
        "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
        "byte_fallback ignore_merges vocab merges",
    )  # fmt: skip
    if fields["byte_fallback"]:
        raise ValueError(
            "the model has byte_fallback: a byte without a token becomes a <0x..> token, as in "
            "SentencePiece vocabularies, and byte-level BPE has no such tokens"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if fields[name]:
            raise ValueError(
                f"model.{name} is {fields[name]!r}: the vocabulary marks where words begin or end, "
                "which we do not do"
            )
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
            f"model.vocab has {shown_number(max(vocab.values()))} as an id; {MAX_ID} is the last"
        )
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens of model.vocab have the same id")
    return dict(vocab), read_merges(fields["merges"] or [], vocab), bool(fields["ignore_merges"])


def token_fields(vocab: Mapping[str, int], merges: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """vocab, dead_tokens and merges of a Spec: without those of dead tokens, which never happen."""
    tokens, dead = bytes_vocab(vocab)
    if dead:
        merges = tuple(filter(set(dead.values()).isdisjoint, merges))
    return {"vocab": tokens, "dead_tokens": dead, "merges": merges}


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
    rows = _added_rows(tokens)
    next_id = len(vocab)
    listed: set[str] = set()
    for id, content, *_ in rows:
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
    return tuple(starmap(AddedToken, rows))


_ADDED_TYPES = {  # in the order of AddedToken's fields
    "id": int,
    "content": str,
    **dict.fromkeys(("special", "lstrip", "rstrip", "single_word", "normalized"), bool),
}


def _added_rows(tokens: list[Any]) -> list[tuple[Any, ...]]:
    """AddedToken's fields for each. There may be many, so complete ones are checked all at once."""
    try:
        rows = list(map(itemgetter(*_ADDED_TYPES), tokens))
    except (KeyError, TypeError):
        return list(map(_added_row, tokens))
    columns = list(zip(*rows))
    types = [set(map(type, column)) for column in columns]
    are_complete = types == [{wanted} for wanted in _ADDED_TYPES.values()]
    if (
        are_complete
        and set(map(len, tokens)) == {len(types)}
        and 0 <= min(columns[0]) <= max(columns[0]) <= MAX_ID
    ):
        return rows
    return list(map(_added_row, tokens))


def _added_row(entry: Any) -> tuple[Any, ...]:
    fields = fields_of(entry, "an added token", " ".join(_ADDED_TYPES))
    content, id = (required(fields, name, "an added token") for name in ("content", "id"))
    flags = (bool(fields[flag]) for flag in ("special", "lstrip", "rstrip", "single_word"))
    normalized = fields["normalized"]
    return id, content, *flags, not fields["special"] if normalized is None else normalized


def _read_normalizer(step: Any) -> tuple[Normalize | Lowercase | Replace | Prepend, ...]:
    if step is None:
        return ()
    kind = type_of(step, "the normalizer")
    if kind == "Sequence":
        fields = typed_fields(step, "normalizer", "normalizers")
        steps = required(fields, "normalizers", "a normalizer")
        return tuple(part for each in steps for part in _read_normalizer(each))
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        typed_fields(step, "normalizer", "")
        return (Normalize(kind),)
    if kind == "Lowercase":
        typed_fields(step, "normalizer", "")
        return (Lowercase(),)
    if kind == "Replace":
        fields = typed_fields(step, "normalizer", "pattern content")
        content = required(fields, "content", "a normalizer")
        pattern = read_pattern(fields["pattern"])
        if may_match_nothing(pattern):
            raise ValueError(
                f"the normalizer replaces {pattern!r}, which may match nothing; what Hugging Face "
                "tokenizers puts there depends on where it stands"
            )
        return (Replace(pattern, content),)
    if kind == "Prepend":
        fields = typed_fields(step, "normalizer", "prepend")
        return (Prepend(required(fields, "prepend", "a normalizer")),)
    raise ValueError(
        f"the normalizer {kind!r} is none that we have; those are NFC, NFD, NFKC, NFKD, Lowercase, "
        "Replace and Prepend"
    )


def _check_decoder(decoder: Any) -> None:
    kind = None if decoder is None else type_of(decoder, "the decoder")
    if kind == "Sequence":
        steps = typed_fields(decoder, "decoder", "decoders")["decoders"] or []
        kind = ", ".join(type_of(step, "a decoder") for step in steps)
    if kind != "ByteLevel":
        found = "null" if kind is None else repr(kind)
        raise ValueError(
            f"the decoder is {found}, not ByteLevel: ids would give another text than their bytes"
        )


class _Post(NamedTuple):
    """What a post_processor does with a single text; the fields are Spec's."""

    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    trim_offsets: tuple[bool, ...] = ()


def _read_post_processor(step: Any) -> _Post:
    if step is None:
        return _Post()
    kind = type_of(step, "the post_processor")
    if kind == "Sequence":
        return _read_processors(typed_fields(step, "post_processor", "processors"))
    if kind == "ByteLevel":
        fields = typed_fields(step, "post_processor", "add_prefix_space trim_offsets use_regex")
        spares_first = fields["add_prefix_space"] is not False
        return _Post(trim_offsets=() if fields["trim_offsets"] is False else (spares_first,))
    if kind == "TemplateProcessing":
        fields = typed_fields(step, "post_processor", "single pair special_tokens")
        return _Post(*_read_template(fields))
    if kind in ("RobertaProcessing", "BertProcessing"):
        fields = typed_fields(step, "post_processor", "sep cls trim_offsets add_prefix_space")
        ends = (_token_id(fields, "cls"),), (_token_id(fields, "sep"),)
        is_trimming = kind == "RobertaProcessing" and fields["trim_offsets"]
        spares_first = fields["add_prefix_space"]  # without it the peer takes it for Bert's
        return _Post(*ends, (spares_first,) if is_trimming and spares_first is not None else ())
    raise ValueError(
        f"the post_processor {kind!r} is none that we have; those are ByteLevel, "
        "TemplateProcessing, RobertaProcessing and BertProcessing"
    )


def _read_processors(fields: Mapping[str, Any]) -> _Post:
    parts = required(fields, "processors", "the post_processor")
    kinds = [type_of(part, "a post_processor") for part in parts]
    if len(kinds) - kinds.count("ByteLevel") > 1:
        raise ValueError(
            f"the post_processor is a sequence of {', '.join(kinds)}, of which only one may "
            "add tokens: what a second one does with those of the first is not defined"
        )
    posts = list(map(_read_post_processor, parts))
    trims = tuple(chain.from_iterable(post.trim_offsets for post in posts))
    adding = next((post for post in posts if post.prefix_ids or post.suffix_ids), _Post())
    return adding._replace(trim_offsets=trims)


def _token_id(fields: Mapping[str, Any], name: str) -> int:
    """The id in a pair ["</s>", 2]."""
    match fields[name]:
        case [str(), int(id)] if type(id) is int and 0 <= id <= MAX_ID:
            return id
    raise ValueError(f"the post_processor's {name} is {fields[name]!r}, not a token and its id")


def _read_template(fields: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after the text in a TemplateProcessing step's "single" template."""
    parts: tuple[list[int], list[int]] = ([], [])
    num_texts = 0
    for item in fields["single"] or []:
        item = fields_of(item, "a template's item", "Sequence SpecialToken")
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
    fields = fields_of(block, "truncation", "direction max_length strategy stride")
    if fields["strategy"] == "OnlySecond":
        raise ValueError("truncation.strategy is OnlySecond, but we encode single texts")
    if fields["strategy"] not in (None, "LongestFirst", "OnlyFirst"):
        raise ValueError(f"truncation.strategy is {fields['strategy']!r}, which we do not know")
    max_length = required(fields, "max_length", "truncation")
    if (fields["stride"] or 0) >= max(max_length, 1):
        raise ValueError(f"truncation.stride is {fields['stride']}, not below its max_length")
    return Truncation(max_length, _read_direction(fields))


def _read_padding(block: Any) -> Padding | None:
    if block is None:
        return None
    fields = fields_of(
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
