"""Blocks of a GGUF tensor (n, bytes per block) uint8 -> float32 values, or MLX's packed groups.

Every format but the float ones stores small whole numbers in groups that share a scale and, in
some, an offset: value = scale * (number - zero) + bias. Each format has one function that unpacks
its blocks into these `Groups`; the rest is common.

Blind spot: it doesn't know tensors, only rows of blocks. Formats with large codebooks (IQ1 to IQ3)
and MXFP4 aren't read.

Source: the block layouts in ggml-common.h of the ggml repository.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class Groups:
    """numbers (n, groups, size) uint8; scales and biases (n, groups) float32, biases None for 0."""

    numbers: mx.array
    scales: mx.array
    biases: mx.array | None = None
    zero: int = 0


@dataclass(frozen=True)
class Format:
    """per_block: values in a block. unpack: None for floats. packed_bits: of the MLX form with
    groups of 32, 0 where MLX has none."""

    name: str
    per_block: int
    block_bytes: int
    unpack: Callable[[mx.array], Groups] | None = None
    packed_bits: int = 0


def dequantize(name: str, blocks: mx.array) -> mx.array:
    """blocks -> (n, per_block) float32, exactly the values of ggml's own formulas; lazy."""
    stored = format_of(name)
    if stored.unpack is None:
        return blocks.view(_FLOATS[name]).astype(mx.float32)
    groups = stored.unpack(blocks)
    numbers = groups.numbers.astype(mx.float32)
    values = (numbers - groups.zero if groups.zero else numbers) * groups.scales[..., None]
    if groups.biases is not None:
        values = values + groups.biases[..., None]
    return values.reshape(-1, stored.per_block)


def repack(name: str, blocks: mx.array) -> dict[str, mx.array]:
    """blocks -> MLX's `weight` (uint32), `scales` and `biases` (float32), of the same values.

    MLX writes numbers one after another from the lowest bit, where most formats here put those of
    a block's two halves side by side.
    """
    stored = format_of(name)
    groups = stored.unpack(blocks)
    biases = groups.biases
    if biases is None:
        biases = groups.scales * -groups.zero
    weight = _pack(groups.numbers, stored.packed_bits)
    return {"weight": weight, "scales": groups.scales, "biases": biases}


def _pack(numbers: mx.array, bits: int) -> mx.array:
    """numbers (n, groups, 32) -> (n, groups, bits) uint32."""
    if bits == 8:
        return mx.contiguous(numbers).view(mx.uint32)
    if bits == 4:
        pairs = numbers.reshape(*numbers.shape[:-1], -1, 2)
        return (pairs[..., 0] | (pairs[..., 1] << 4)).view(mx.uint32)
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8).astype(mx.uint64)
    shifts = mx.arange(0, 8 * bits, bits, dtype=mx.uint64)
    packed = (eights << shifts).sum(axis=-1, keepdims=True).view(mx.uint8)  # (n, groups, 4, 8)
    tight = mx.contiguous(packed[..., :bits]).reshape(*numbers.shape[:-1], -1)
    return tight.view(mx.uint32)


# --- the pieces of blocks ------------------------------------------------------------------------


def _halves(blocks: mx.array) -> mx.array:
    """float16 numbers as float32."""
    return mx.contiguous(blocks).view(mx.float16).astype(mx.float32)


def _nibbles(packed: mx.array) -> mx.array:
    """(n, bytes) -> (n, 2, bytes): all the low halves, then all the high ones."""
    return mx.stack([packed & 15, packed >> 4], axis=1)


def _bit_rows(packed: mx.array, bits: int) -> mx.array:
    """(n, bytes) -> (n, 8 / bits, bytes): the lowest bits of all bytes, then the next ones ..."""
    shifts = mx.arange(0, 8, bits, dtype=mx.uint8)[:, None]
    return (packed[:, None] >> shifts) & (2**bits - 1)


def _uneven(numbers: mx.array) -> mx.array:
    """4-bit numbers -> the uneven steps of the IQ4 formats, plus 128."""
    steps = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
    return mx.array([step + 128 for step in steps], mx.uint8)[numbers]


def _fifth_bits(packed: mx.array) -> mx.array:
    """4 bytes -> (n, 32) of 0 or 16: bit i of the 32 belongs to value i."""
    bits = (packed[..., None] >> mx.arange(8, dtype=mx.uint8)) & 1  # (n, 4, 8)
    return bits.reshape(-1, 32) << 4


def _six_bit_scales(packed: mx.array) -> tuple[mx.array, mx.array]:
    """12 bytes -> eight scales and eight offsets of 6 bits each, (n, 8) float32.

    The first four of each fill bytes 0-3 and 4-7; of the others the low halves share bytes 8-11,
    and the two upper bits fill what is left of bytes 0-7.
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = mx.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    offsets = mx.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales.astype(mx.float32), offsets.astype(mx.float32)


# --- formats of 32 values ------------------------------------------------------------------------


def _q4_0(blocks: mx.array) -> Groups:
    return Groups(_nibbles(blocks[:, 2:]).reshape(-1, 1, 32), _halves(blocks[:, :2]), zero=8)


def _q4_1(blocks: mx.array) -> Groups:
    numbers = _nibbles(blocks[:, 4:]).reshape(-1, 1, 32)
    return Groups(numbers, _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q5_0(blocks: mx.array) -> Groups:
    numbers = _nibbles(blocks[:, 6:]).reshape(-1, 32) | _fifth_bits(blocks[:, 2:6])
    return Groups(numbers.reshape(-1, 1, 32), _halves(blocks[:, :2]), zero=16)


def _q5_1(blocks: mx.array) -> Groups:
    numbers = _nibbles(blocks[:, 8:]).reshape(-1, 32) | _fifth_bits(blocks[:, 4:8])
    return Groups(numbers.reshape(-1, 1, 32), _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q8_0(blocks: mx.array) -> Groups:
    signed = blocks[:, 2:] ^ 128  # two's complement -> the number + 128
    return Groups(signed.reshape(-1, 1, 32), _halves(blocks[:, :2]), zero=128)


def _iq4_nl(blocks: mx.array) -> Groups:
    numbers = _uneven(_nibbles(blocks[:, 2:]).reshape(-1, 1, 32))
    return Groups(numbers, _halves(blocks[:, :2]), zero=128)


# --- formats of 256 values -----------------------------------------------------------------------


def _q2_k(blocks: mx.array) -> Groups:
    packed, scales = blocks[:, 16:80].reshape(-1, 32), blocks[:, :16]
    numbers = _bit_rows(packed, 2).reshape(-1, 16, 16)
    biases = (scales >> 4).astype(mx.float32) * -_halves(blocks[:, 82:])
    return Groups(numbers, (scales & 15).astype(mx.float32) * _halves(blocks[:, 80:82]), biases)


def _q3_k(blocks: mx.array) -> Groups:
    low = _bit_rows(blocks[:, 32:96].reshape(-1, 32), 2).reshape(-1, 16, 16)
    high = _bit_rows(blocks[:, :32], 1).reshape(-1, 16, 16)
    packed = blocks[:, 96:108]
    scales = _nibbles(packed[:, :8]).reshape(-1, 16)
    scales = scales | (_bit_rows(packed[:, 8:], 2).reshape(-1, 16) << 4)
    scales = (scales.astype(mx.float32) - 32) * _halves(blocks[:, 108:])
    return Groups(low | (high << 2), scales, zero=4)


def _q4_k(blocks: mx.array) -> Groups:
    numbers = _nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32)
    scales, offsets = _six_bit_scales(blocks[:, 4:16])
    return Groups(numbers, scales * _halves(blocks[:, :2]), offsets * -_halves(blocks[:, 2:4]))


def _q5_k(blocks: mx.array) -> Groups:
    numbers = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    numbers = numbers | (_bit_rows(blocks[:, 16:48], 1) << 4)
    scales, offsets = _six_bit_scales(blocks[:, 4:16])
    return Groups(numbers, scales * _halves(blocks[:, :2]), offsets * -_halves(blocks[:, 2:4]))


def _q6_k(blocks: mx.array) -> Groups:
    low = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 16, 16)
    high = _bit_rows(blocks[:, 128:192].reshape(-1, 32), 2).reshape(-1, 16, 16)
    scales = mx.contiguous(blocks[:, 192:208]).view(mx.int8).astype(mx.float32)
    return Groups(low | (high << 4), scales * _halves(blocks[:, 208:]), zero=32)


def _iq4_xs(blocks: mx.array) -> Groups:
    numbers = _uneven(_nibbles(blocks[:, 8:].reshape(-1, 16)).reshape(-1, 8, 32))
    low = _nibbles(blocks[:, 4:8]).swapaxes(1, 2).reshape(-1, 8)
    high = _bit_rows(blocks[:, 2:4], 2).swapaxes(1, 2).reshape(-1, 8)
    scales = (low | (high << 4)).astype(mx.float32) - 32
    return Groups(numbers, scales * _halves(blocks[:, :2]), zero=128)


_FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
FORMATS = {  # ggml's number of a format -> Format
    0: Format("F32", 1, 4),
    1: Format("F16", 1, 2),
    2: Format("Q4_0", 32, 18, _q4_0, packed_bits=4),
    3: Format("Q4_1", 32, 20, _q4_1, packed_bits=4),
    6: Format("Q5_0", 32, 22, _q5_0, packed_bits=5),
    7: Format("Q5_1", 32, 24, _q5_1, packed_bits=5),
    8: Format("Q8_0", 32, 34, _q8_0, packed_bits=8),
    10: Format("Q2_K", 256, 84, _q2_k),
    11: Format("Q3_K", 256, 110, _q3_k),
    12: Format("Q4_K", 256, 144, _q4_k, packed_bits=4),
    13: Format("Q5_K", 256, 176, _q5_k, packed_bits=5),
    14: Format("Q6_K", 256, 210, _q6_k),
    20: Format("IQ4_NL", 32, 18, _iq4_nl, packed_bits=8),
    23: Format("IQ4_XS", 256, 136, _iq4_xs, packed_bits=8),
    30: Format("BF16", 1, 2),
}
# What else people's files hold, to refuse it by its name.
OTHER_FORMATS = {16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S"}
OTHER_FORMATS |= {22: "IQ2_S", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}
_BY_NAME = {stored.name: stored for stored in FORMATS.values()}


def format_of(name: str) -> Format:
    return _BY_NAME[name]
