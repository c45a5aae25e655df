"""What the model tests share: two comparisons that show only what differs, and golden values.

Blind spot: neither comparison knows which side is right.
"""

import json
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from paths import GOLDEN

REFERENCE = GOLDEN / "reference"
DENSE = ("llama-llama3rope", "qwen2-bias", "qwen3-tied", "qwen3-untied-yarn")
ALL = (*DENSE, "qwen3-moe")


def golden(name: str) -> dict[str, Any]:
    """ids, logits_first, logits_last and greedy, recorded from transformers in float32."""
    return json.loads((REFERENCE / name / "expected.json").read_text())


def assert_close(actual: mx.array, expected: Any, atol: float) -> None:
    """Equal shapes, and values no further apart than atol; else print the worst places."""
    expected = mx.array(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    gap = mx.abs(actual.astype(mx.float32) - expected.astype(mx.float32)).reshape(-1)
    wrong = mx.logical_not(gap <= atol)  # NaN counts as wrong
    count = wrong.sum().item()
    if not count:
        return
    # NaN sorts last, so it would show last; make it the widest gap.
    ranked = mx.argsort(-mx.where(mx.isnan(gap), mx.inf, gap))[: min(count, 5)].tolist()
    flat, wanted = actual.reshape(-1), expected.reshape(-1)
    places = [f"  {_unravel(i, actual.shape)}: {flat[i]} expected {wanted[i]}" for i in ranked]
    worst = "\n".join(places)
    raise AssertionError(f"{count} of {gap.size} values differ by more than {atol}:\n{worst}")


def assert_same_ids(actual: Sequence[int], expected: Sequence[int]) -> None:
    """Equal lists; else print the first difference with three neighbours on each side."""
    actual, expected = list(actual), list(expected)
    if actual == expected:
        return
    pairs = enumerate(zip(actual, expected, strict=False))
    shorter = min(len(actual), len(expected))
    first = next((i for i, (a, b) in pairs if a != b), shorter)
    window = slice(max(first - 3, 0), first + 4)
    raise AssertionError(
        f"ids differ from index {first} on (lengths {len(actual)} and {len(expected)}):"
        f" ..{actual[window]}.. expected ..{expected[window]}.."
    )


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        place.append(rest)
    return tuple(reversed(place))
