"""ids of a text -> what the file asks to make of them: cut, framed, filled up.

Blind spot: text.
"""

from __future__ import annotations

from bpe.spec import Padding, Spec, Truncation


def post_process(ids: list[int], spec: Spec, *, add_special_tokens: bool) -> list[int]:
    """Truncate, add prefix and suffix, pad: in that order, each where the file asks for it."""
    prefix = spec.prefix_ids if add_special_tokens else ()
    suffix = spec.suffix_ids if add_special_tokens else ()
    if spec.truncation:
        ids = _truncate(ids, spec.truncation, len(prefix) + len(suffix))
    if prefix or suffix:
        ids = [*prefix, *ids, *suffix]
    return _pad(ids, spec.padding) if spec.padding else ids


def pad_batch(batch: list[list[int]], padding: Padding | None) -> list[list[int]]:
    """Fill all up to the longest, where the file asks for it."""
    if padding is None or padding.length is not None:
        return batch
    longest = max(map(len, batch), default=0)
    return [_pad(ids, padding, longest) for ids in batch]


def _truncate(ids: list[int], truncation: Truncation, num_added: int) -> list[int]:
    kept = max(0, truncation.max_length - num_added)
    if len(ids) <= kept:
        return ids
    return ids[:kept] if truncation.direction == "Right" else ids[len(ids) - kept :]


def _pad(ids: list[int], padding: Padding, longest: int = 0) -> list[int]:
    """ids filled up to padding's fixed length, or to the longest of a batch; never cut."""
    length = max(len(ids), longest) if padding.length is None else padding.length
    if padding.multiple_of:
        length += -length % padding.multiple_of
    fill = [padding.pad_id] * (length - len(ids))
    return ids + fill if padding.direction == "Right" else fill + ids
