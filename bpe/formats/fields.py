"""an object of a parsed tokenizer.json -> its fields, each known and of the right type.

A field that we do not know is refused by name, since skipping it may change ids. Blind spot: what a
field means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpe.spec import MAX_ID


def fields_of(data: Any, where: str, known: str) -> dict[str, Any]:
    """data's fields, None for absent ones; refused where unknown or of a wrong type."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {kind_of(data)}, not an object")
    names = known.split()
    for name, value in data.items():
        if name not in names:
            raise ValueError(f"{where} has a field {name!r} that we do not honour")
        wanted = _TYPES.get(name)
        if wanted and value is not None and type(value) not in wanted:
            raise ValueError(f"{where} has {kind_of(value)} as its {name!r}")
        if type(value) is int and not 0 <= value <= MAX_ID:
            raise ValueError(
                f"{where} has {shown_number(value)} as its {name!r}, not one of 0 to {MAX_ID}"
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
        "tokens sep cls",
        (dict,): "vocab special_tokens pattern Sequence SpecialToken",
    }.items()
    for name in names.split()
}


def required(fields: Mapping[str, Any], name: str, where: str) -> Any:
    if fields[name] is None:
        raise ValueError(f"{where} has no {name!r}")
    return fields[name]


def typed_fields(data: Any, where: str, known: str) -> dict[str, Any]:
    return fields_of(data, f"{where} {data.get('type')!r}", "type " + known)


def shown_number(number: int) -> str:
    """A number from a file, which may have thousands of digits."""
    return str(number) if abs(number) < 1 << 64 else "a number of over 64 bits"


def kind_of(data: Any) -> str:
    return "null" if data is None else f"a {type(data).__name__}"


def type_of(data: Any, where: str) -> str:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError(f"{where} is {kind_of(data)} without a type")
    return data["type"]
