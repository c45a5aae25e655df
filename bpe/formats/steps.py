r"""the pre_tokenizer of a parsed tokenizer.json -> the steps of a Spec.

What the file asks for by name (Punctuation, Digits, Whitespace ...) becomes the Split step with the
same pieces. Blind spot: how a text is split.

Sources: the classes of characters are those of tokenizers 0.23.3, compared on every code point.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bpe.encoding.oniguruma import to_common_syntax
from bpe.encoding.unicode16 import parse_ranges
from bpe.formats.fields import fields_of, required, type_of, typed_fields
from bpe.spec import GPT2_PATTERN, NUMERIC, ByteAlphabet, PrefixSpace, Split, Step

# Punctuation is that of Unicode 8, two marks that are letters today, and ASCII's symbols. What came
# later is left out by ranges that hold no earlier mark.
_LATER = "".join(
    f"{chr(marks[0])}-{chr(marks[-1])}"
    for marks in parse_ranges(
        "61D 9FD-A76 C77-C84 1B4E-1B4F 1B7D-1B7F 2E43-2E5D 10D6E-10F89 113D4-1145D 11660-116B9 "
        "1183B-11FFF 12FF1-12FF2 16D6D-16FE2 1E5FF-1E95F"
    )
)
PUNCTUATION = rf"(?![{_LATER}])[\p{{P}}" + "\u166d\U000111c9" + r"$+<=>\^`|~]"
_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}" + "\u200c\u200d"
_WORDS = rf"[{_WORD}]+|[^\s{_WORD}]+"


def read_pre_tokenizer(block: Any) -> tuple[Step, ...]:
    """The steps; those behind ByteLevel see the byte alphabet. ValueError if it is not there."""
    blocks = [] if block is None else list(_flattened(block))
    kinds = [kind for kind, _ in blocks]
    if "ByteLevel" not in kinds:
        found = "null" if block is None else repr(kinds[0] if len(kinds) == 1 else kinds)
        raise ValueError(
            f"the pre_tokenizer is {found} without a ByteLevel step, so this is not byte-level BPE"
        )
    if kinds.count("ByteLevel") > 1:
        raise ValueError(
            f"the pre_tokenizer is a sequence of {', '.join(kinds)}, whose second ByteLevel step "
            "would write the bytes of what the first one has written; one is all that we do"
        )
    steps = [part for kind, one in blocks for part in _read_step(kind, one)]
    return tuple(steps[:-1] if kinds[-1] == "ByteLevel" else steps)


def _flattened(block: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(type, block) of each step, in order; a Sequence may hold Sequences."""
    kind = type_of(block, "a pre_tokenizer")
    if kind != "Sequence":
        yield kind, block
        return
    fields = typed_fields(block, "pre_tokenizer", "pretokenizers")
    for one in required(fields, "pretokenizers", "the pre_tokenizer"):
        yield from _flattened(one)


def _read_step(kind: str, step: dict[str, Any]) -> list[Step]:
    if kind not in _FIELDS:
        raise ValueError(
            f"the pre_tokenizer step {kind!r} is none that we have; those are {', '.join(_FIELDS)}"
        )
    fields = typed_fields(step, "pre_tokenizer", _FIELDS[kind])
    if kind == "ByteLevel":
        prefix = [] if fields["add_prefix_space"] is False else [PrefixSpace()]  # absent: true
        split = [] if fields["use_regex"] is False else [Split(GPT2_PATTERN)]
        return [*prefix, *split, ByteAlphabet()]
    if kind == "Split":
        return [Split(read_pattern(fields["pattern"]), fields["behavior"], bool(fields["invert"]))]
    if kind == "Digits":
        return [Split(NUMERIC if fields["individual_digits"] else f"{NUMERIC}+")]
    if kind == "Punctuation":
        return [Split(PUNCTUATION, fields["behavior"] or "Isolated")]
    if kind == "Whitespace":
        return [Split(_WORDS, "Removed", invert=True)]
    white_space = Split(r"\s", "Removed")
    return [white_space] if kind == "WhitespaceSplit" else [white_space, Split(PUNCTUATION)]


_FIELDS = {  # the type of a step -> its fields
    "ByteLevel": "add_prefix_space trim_offsets use_regex",
    "Split": "pattern behavior invert",
    "Digits": "individual_digits",
    "Punctuation": "behavior",
    "Whitespace": "",
    "WhitespaceSplit": "",
    "BertPreTokenizer": "",
}


def read_pattern(pattern: Any) -> str:
    """A regex in the syntax that all our engines read alike, from a Regex or a String."""
    fields = fields_of(pattern, "a pattern", "Regex String")
    if fields["String"] is not None:
        return re.escape(fields["String"])
    if fields["Regex"] is None:
        raise ValueError("a pattern has neither Regex nor String")
    return to_common_syntax(fields["Regex"])
