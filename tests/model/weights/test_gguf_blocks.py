"""weights/gguf_blocks.py against values recorded from the gguf package, and MLX's own unpacking."""

import json

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close

from model.weights.gguf_blocks import FORMATS, OTHER_FORMATS, dequantize, repack

RECORDED = json.loads((REFERENCE.parent / "gguf_blocks.json").read_text())
QUANTIZED = {f.name: f for f in FORMATS.values() if f.unpack}
PACKED = {name: f for name, f in QUANTIZED.items() if f.packed_bits}


def recorded(name: str) -> tuple[mx.array, mx.array]:
    """Random blocks (n, bytes), and the values of the gguf package's numpy code (n, values)."""
    blocks = mx.array(memoryview(bytes.fromhex(RECORDED[name]["blocks"])))
    values = mx.array(memoryview(bytes.fromhex(RECORDED[name]["values_float32"])))
    rows = blocks.size // QUANTIZED[name].block_bytes
    return blocks.reshape(rows, -1), values.view(mx.float32).reshape(rows, -1)


def test_every_format_is_recorded():
    assert RECORDED.keys() - {"source"} == QUANTIZED.keys()
    assert not OTHER_FORMATS.keys() & FORMATS.keys()


@pytest.mark.parametrize("name", QUANTIZED)
def test_values_are_exactly_ggmls(name):
    blocks, values = recorded(name)
    assert values.shape[1] == QUANTIZED[name].per_block
    assert mx.abs(values).max() > 1, "the values are not all alike"
    assert_close(dequantize(name, blocks), values, atol=0)


@pytest.mark.parametrize("name", PACKED)
def test_repacked_values_are_the_same(name):
    blocks, values = recorded(name)
    parts = {part: a.reshape(len(values), -1) for part, a in repack(name, blocks).items()}
    assert parts["weight"].dtype == mx.uint32
    bits = PACKED[name].packed_bits
    made = mx.dequantize(*parts.values(), group_size=32, bits=bits)
    assert_close(made, values, atol=0)


def test_a_product_of_repacked_rows():
    """As a quantized layer uses them: (1, 512) @ (1, 512).T"""
    blocks, values = recorded("Q4_K")
    parts = [a.reshape(1, -1) for a in repack("Q4_K", blocks).values()]
    x = mx.random.normal((1, values.size), key=mx.random.key(0))
    product = mx.quantized_matmul(x, *parts, group_size=32, bits=4)
    assert_close(product, x @ values.reshape(1, -1).T, atol=1e-2)
