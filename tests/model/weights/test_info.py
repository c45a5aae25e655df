"""weights/info.py: figures counted by hand, and that only headers are read."""

import os
import shutil

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE
from mlx.utils import tree_flatten

from model.weights import memory
from model.weights.info import inspect
from model.weights.load import load
from tests.model.weights.test_gguf import Q8_0, q8_0, write_model

QUANTIZED = REFERENCE.parent / "quantized"


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A CPU with 5 MB left."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))
    monkeypatch.setattr(memory, "available_bytes", lambda: 5_000_000)


@pytest.mark.parametrize("name", ALL)
def test_what_is_counted_is_what_is_loaded(name):
    info, m = inspect(REFERENCE / name), load(REFERENCE / name)
    assert info.architecture == m.config.model_type
    assert info.parameters == sum(a.size for _, a in tree_flatten(m.parameters()))
    assert info.weight_bytes == sum(a.nbytes for _, a in tree_flatten(m.parameters()))
    assert info.file_bytes == 4 * info.parameters
    assert info.bits_per_weight == 32


def test_memory_by_hand():
    """3 layers of 2 heads of 32, keys and values, 4 bytes: 1,536 a position."""
    info = inspect(REFERENCE / "qwen3-tied", context=100)
    assert (info.kv_bytes_per_token, info.kv_bytes, info.context) == (1536, 153600, 100)
    assert info.needed_bytes == 150144 * 4 + 153600
    assert (info.available_bytes, info.fits) == (5_000_000, True)
    short = inspect(REFERENCE / "qwen3-tied", context=100, dtype="bfloat16")
    assert short.needed_bytes == info.needed_bytes // 2
    assert short.file_bytes == info.file_bytes


def test_what_does_not_fit(monkeypatch):
    needed = inspect(REFERENCE / "qwen3-tied").needed_bytes
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    assert inspect(REFERENCE / "qwen3-tied").fits is True
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    assert inspect(REFERENCE / "qwen3-tied").fits is False
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert inspect(REFERENCE / "qwen3-tied").fits is None


def test_the_context_that_is_counted():
    assert inspect(REFERENCE / "qwen3-tied").context == 256, "all that the model takes"
    assert inspect(REFERENCE / "qwen3-tied").max_context == 256
    for context in (0, 257):
        with pytest.raises(ValueError, match=f"context of {context} positions .* takes 1 to 256"):
            inspect(REFERENCE / "qwen3-tied", context=context)


def test_a_quantized_directory():
    """Bits a weight are mlx-lm's own figure for the same directory, which it prints."""
    info = inspect(QUANTIZED / "qwen3-moe-nvfp4")
    assert info.parameters == inspect(REFERENCE / "qwen3-moe").parameters
    assert info.bits_per_weight == pytest.approx(4.579, abs=5e-4)
    assert "nvfp4 4 bits in groups of 16" in info.quantization
    assert "affine 8 bits in groups of 64 (2 matrices)" in info.quantization
    m = load(QUANTIZED / "qwen3-moe-nvfp4")
    assert info.weight_bytes == sum(a.nbytes for _, a in tree_flatten(m.parameters()))
    floats = inspect(QUANTIZED / "qwen3-moe-nvfp4", quantized=False)
    assert floats.weight_bytes == 4 * info.parameters
    assert floats.file_bytes == info.file_bytes


def test_a_gguf_file(tmp_path):
    path = write_model(tmp_path / "m.gguf", load(REFERENCE / "qwen3-tied"), (Q8_0, q8_0))
    info = inspect(path)
    assert info.format == "GGUF"
    assert info.parameters == 150144
    assert set(info.formats) == {"Q8_0", "F32"}
    assert 8.5 < info.bits_per_weight < 8.7  # 34 bytes for 32 values, and a few float vectors
    assert info.weight_bytes == 4 * 150144
    packed = inspect(path, quantized=True)
    assert packed.weight_bytes < info.weight_bytes / 2
    assert (packed.file_bytes, packed.formats) == (info.file_bytes, info.formats)


def test_a_safetensors_file_alone(tmp_path):
    path = tmp_path / "x.safetensors"
    mx.save_safetensors(str(path), {"a": mx.ones((3, 4)), "b": mx.ones((8,), mx.bfloat16)})
    info = inspect(path)
    assert (info.parameters, info.file_bytes, info.formats) == (20, 64, {"F32": 48, "BF16": 16})
    assert info.architecture is info.needed_bytes is info.fits is None
    mx.save_safetensors(str(path), {"a": mx.ones((3, 4), mx.uint32)})
    with pytest.raises(ValueError, match="quantized weights, and no config.json beside it"):
        inspect(path)


def test_a_shard_and_a_whole_file():
    shard = inspect(REFERENCE / "qwen3-untied-yarn" / "model-00001-of-00003.safetensors")
    assert shard.architecture is None
    whole = inspect(REFERENCE / "qwen3-tied" / "model.safetensors")
    assert whole.parameters == inspect(REFERENCE / "qwen3-tied").parameters
    assert whole.architecture == "qwen3"


def test_only_headers_are_read(tmp_path, monkeypatch):
    """The numbers of this file are a hole that takes no space, in a header of 4 GB."""
    path = tmp_path / "m"
    shutil.copytree(REFERENCE / "qwen3-tied", path)
    monkeypatch.setattr(mx, "load", lambda *_: pytest.fail("weights were read"))
    assert inspect(path).parameters == 150144
    header = b'{"a": {"dtype": "F32", "shape": [1000000000], "data_offsets": [0, 4000000000]}}'
    big = tmp_path / "big.safetensors"
    big.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(big, 8 + len(header) + 4_000_000_000)
    assert inspect(big).parameters == 10**9


def test_bad_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere doesn't exist"):
        inspect(tmp_path / "nowhere")
    (tmp_path / "x.txt").touch()
    with pytest.raises(ValueError, match="neither a directory nor a .gguf file"):
        inspect(tmp_path / "x.txt")
