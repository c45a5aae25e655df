"""weights/load.py: what it reads, in which type, and one clear error for each way to be wrong."""

import json
import re
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close, golden
from mlx.utils import tree_flatten

from model.transformer import Transformer
from model.weights.config_json import config_from_json
from model.weights.load import load

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def tied(tmp_path) -> Path:
    """A copy of a small checkpoint to break."""
    return shutil.copytree(REFERENCE / "qwen3-tied", tmp_path / "tied")


@pytest.fixture
def sharded(tmp_path) -> Path:
    return shutil.copytree(REFERENCE / "qwen3-untied-yarn", tmp_path / "sharded")


def change_config(path: Path, **changes) -> None:
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rewrite(path: Path, change, dtype: mx.Dtype = mx.float32) -> None:
    """Write model.safetensors anew after change(name -> array)."""
    arrays = dict(mx.load(str(path / "model.safetensors")))
    change(arrays)
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    mx.eval(arrays)  # before the file they come from is written over
    mx.save_safetensors(str(path / "model.safetensors"), arrays)


def assert_golden(m, name: str) -> None:
    expected = golden(name)
    logits = m(mx.array([expected["ids"]]))[0, -1]
    assert_close(logits, expected["logits_last"], atol=2e-4)


# --- what is read --------------------------------------------------------------------------------


def test_a_path_may_be_a_string(tied):
    assert_golden(load(str(tied)), "qwen3-tied")


def test_one_file_is_preferred_to_shards(sharded):
    """As transformers does; the index may be left over from another download."""
    shutil.copy(REFERENCE / "qwen3-tied" / "model.safetensors", sharded)
    shutil.copy(REFERENCE / "qwen3-tied" / "config.json", sharded)
    assert_golden(load(sharded), "qwen3-tied")


def test_a_tied_checkpoint_may_carry_a_head(tied):
    """transformers uses the embedding all the same."""
    rewrite(tied, lambda arrays: arrays.update({"lm_head.weight": mx.ones((320, 64))}))
    assert_golden(load(tied), "qwen3-tied")


def test_rotary_buffers_are_ignored(tied):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(tied, lambda arrays: arrays.update({name: mx.ones((16,))}))
    assert_golden(load(tied), "qwen3-tied")


def dtypes(m) -> set[mx.Dtype]:
    return {array.dtype for _, array in tree_flatten(m.parameters())}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", mx.float32), ("bfloat16", mx.bfloat16), (mx.float16, mx.float16)],
)
def test_dtype_as_asked(dtype, expected):
    assert dtypes(load(REFERENCE / "qwen3-moe", dtype)) == {expected}


def test_dtype_on_a_cpu_is_float32(tied, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))
    change_config(tied, dtype="bfloat16")
    rewrite(tied, lambda arrays: None, mx.bfloat16)
    assert dtypes(load(tied)) == {mx.float32}


@pytest.mark.parametrize(
    ("stored", "described", "expected"),
    [
        (mx.bfloat16, "bfloat16", mx.bfloat16),
        (mx.float16, None, mx.float16),
        (mx.float32, "bfloat16", mx.bfloat16),
    ],
)
def test_dtype_on_a_gpu_is_the_checkpoints_own(tied, monkeypatch, stored, described, expected):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    change_config(tied, dtype=described)
    rewrite(tied, lambda arrays: None, stored)
    assert dtypes(load(tied)) == {expected}


def test_loading_reads_in_full(tied):
    """Nothing lazy is left that would need the file later."""
    m, weights = load(tied), tied / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert_golden(m, "qwen3-tied")


# --- errors --------------------------------------------------------------------------------------


def test_another_thread_may_load(tied):
    """MLX's streams belong to threads: what is loaded must not wait for one that has ended."""
    with ThreadPoolExecutor(1) as pool:
        m = pool.submit(load, tied, "float32").result()
    assert_golden(m, "qwen3-tied")


def test_memory_while_loading_is_that_of_the_weights(tmp_path):
    """No more than a tenth above, though bfloat16 is turned and converted on the way."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 24}
    sizes |= {"layer_types": None}
    config = json.loads((REFERENCE / "qwen3-tied" / "config.json").read_text()) | sizes
    m = Transformer(config_from_json(config))
    weights = {name: array.astype(mx.bfloat16) for name, array in tree_flatten(m.parameters())}
    (tmp_path / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    del m, weights
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    m = load(tmp_path, "float32")
    held = sum(array.nbytes for _, array in tree_flatten(m.parameters()))
    assert held > 20e6
    assert mx.get_peak_memory() - before < 1.1 * held


def refused(path: Path, kind: type, *words: str, **options) -> None:
    """load raises exactly this kind, in one sentence with all these words."""
    with pytest.raises(kind) as caught:
        load(path, **options)
    message = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def test_no_such_path(tmp_path):
    refused(tmp_path / "nowhere", FileNotFoundError, "nowhere doesn't exist", "pass a")


def test_some_other_file(tied):
    refused(tied / "config.json", ValueError, "neither a directory nor a .gguf file")


@pytest.mark.parametrize("dtype", ["int8", mx.int32, 16])
def test_some_other_dtype(tied, dtype):
    refused(tied, ValueError, "dtype must be one of float32, float16, bfloat16", dtype=dtype)


def test_no_config(tied):
    (tied / "config.json").unlink()
    refused(tied, FileNotFoundError, "config.json doesn't exist", "pass a directory")


def test_no_config_beside_a_gguf(tmp_path):
    (tmp_path / "m.gguf").touch()
    refused(tmp_path, FileNotFoundError, "config.json doesn't exist", "m.gguf")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"", b"[" * 50000])
def test_corrupt_config(tied, content):
    (tied / "config.json").write_bytes(content)
    refused(tied, ValueError, "config.json is not valid JSON", "download it again")


def test_config_that_is_no_object(tied):
    (tied / "config.json").write_text("[1]")
    refused(tied, ValueError, "config.json must hold a JSON object, found a list")


def test_unsupported_architecture(tied):
    change_config(tied, model_type="gpt_neox")
    refused(tied, ValueError, "config.json: ", "'gpt_neox'", "llama, qwen2, qwen3, qwen3_moe")


def test_a_folder_with_the_ending_of_weights(tied):
    (tied / "model.safetensors").rename(tied / "other.safetensors")
    (tied / "logs.bin").mkdir()
    assert_golden(load(tied), "qwen3-tied")


def test_no_weights(tied):
    (tied / "model.safetensors").unlink()
    refused(tied, FileNotFoundError, "no weights", "model.safetensors")


def test_several_files_that_nothing_joins(tied):
    (tied / "model.safetensors").rename(tied / "one.safetensors")
    shutil.copy(tied / "one.safetensors", tied / "two.safetensors")
    refused(tied, ValueError, "2 files with weights (one.safetensors, two.safetensors", "pass the")
    assert_golden(load(tied / "two.safetensors"), "qwen3-tied")


def test_what_trainers_leave_is_no_weights(tied):
    (tied / "model.safetensors").unlink()
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (tied / name).touch()
    refused(tied, FileNotFoundError, "no weights")


def test_missing_shard(sharded):
    (sharded / SHARD).unlink()
    refused(sharded, FileNotFoundError, SHARD, "of 3 shards", "model.safetensors.index.json")


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_index_without_a_map(sharded, content):
    (sharded / "model.safetensors.index.json").write_text(content)
    refused(sharded, ValueError, "model.safetensors.index.json has no weight_map")


@pytest.mark.parametrize("name", ["../model.safetensors", 7, "..", ""])
def test_index_that_points_elsewhere(sharded, name):
    index = {"weight_map": {"model.norm.weight": name}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(sharded, ValueError, "model.safetensors.index.json", repr(name), "which is no")


def test_index_of_other_files(sharded):
    index = {"weight_map": {"model.norm.weight": "config.json"}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(sharded, ValueError, "index.json names a shard 'config.json', which is no .safetensors")


@pytest.mark.parametrize("file", ["model.safetensors", SHARD])
def test_truncated_weights(tied, sharded, file):
    path = tied if file == "model.safetensors" else sharded
    whole = (path / file).read_bytes()
    for length in (0, 7, 100, len(whole) - 1):
        (path / file).write_bytes(whole[:length])
        refused(path, ValueError, f"{file} is truncated", f"has {length};", "download it again")
    assert len(whole) > 100000
    (path / file).write_bytes(whole[:-1])
    refused(path, ValueError, f"it needs at least {len(whole)} bytes and has {len(whole) - 1}")


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}}',
        b'{"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4]}}',
        b'{"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a":' * 50000,
    ],
)
def test_damaged_header(tied, header):
    (tied / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    refused(tied, ValueError, "model.safetensors has no safetensors header")


def test_tensors_that_do_not_follow_each_other(tied):
    """The format doesn't allow it, and MLX reads it all the same."""
    one = b'"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
    other = b'"b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}'
    late = b'"b": {"dtype": "F32", "shape": [1], "data_offsets": [9, 13]}'
    for header, words in (
        (one + b"," + other, "a and b overlap"),
        (one + b"," + late, "a and b have 1 bytes between them"),
        (one, "a and the end of the file have 5 bytes between them"),
        (one + b"," + one, "has a twice in its header"),
    ):
        content = b"{" + header + b"}"
        content = struct.pack("<Q", len(content)) + content + bytes(13)
        (tied / "model.safetensors").write_bytes(content)
        refused(tied, ValueError, "model.safetensors", words, "damaged")


def test_a_header_whose_length_is_one_too_short(tied):
    """It ends in spaces, so that it is still read, but every number would be another one."""
    file = tied / "model.safetensors"
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    assert whole[8 + length - 1] == ord(" ")
    file.write_bytes((length - 1).to_bytes(8, "little") + whole[8:])
    refused(tied, ValueError, "have 1 bytes between them; the file is damaged")


def test_a_tensor_in_two_shards(sharded):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shutil.copy(sharded / SHARD, sharded / "again.safetensors")
    content["weight_map"]["model.norm.weight"] = "again.safetensors"
    index.write_text(json.dumps(content))
    refused(sharded, ValueError, "in again.safetensors and in", f"{SHARD} as well")


def test_more_layers_than_tensors(tied):
    """Building them would fill memory before the first is missed."""
    change_config(tied, num_hidden_layers=60000, layer_types=None)
    refused(tied, ValueError, "config.json describes 60000 layers", "only 35 tensors")


def test_something_else_under_the_name_of_weights(tied):
    weights = tied / "model.safetensors"
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    refused(tied, ValueError, "model.safetensors is a Git LFS pointer", "git lfs pull")
    weights.write_bytes(b"<!DOCTYPE html><html><body>Not Found</body></html>")
    refused(tied, ValueError, "model.safetensors has no safetensors header")


def test_header_whose_sizes_disagree(tied):
    header = b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}'
    (tied / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refused(tied, ValueError, "tensor a has 8 bytes for F32 (3,)")


def test_a_type_that_is_no_float(tied):
    header = b'{"a": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]}}'
    (tied / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refused(tied, ValueError, "tensor a is stored as I8", "F32, F16, BF16")


def test_whole_numbers_where_floats_belong(tied):
    name = "model.layers.0.input_layernorm.weight"
    arrays = dict(mx.load(str(tied / "model.safetensors"))) | {name: mx.ones((64,), mx.uint32)}
    mx.eval(arrays)
    mx.save_safetensors(str(tied / "model.safetensors"), arrays)
    refused(tied, ValueError, f"{name} is stored as U32, and float32 was expected")


def test_missing_tensor(tied):
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in (1, 2)]
    rewrite(tied, lambda arrays: [arrays.pop(name) for name in names])
    refused(tied, ValueError, f"{names[0]} (96, 64) is missing", "(and 1 more)", "config.json")


def test_missing_head(tied):
    change_config(tied, tie_word_embeddings=False)
    refused(tied, ValueError, "lm_head.weight (320, 64) is missing", '"tie_word_embeddings"')


def test_extra_tensor(tied):
    name = "model.layers.0.self_attn.q_proj.bias"
    rewrite(tied, lambda arrays: arrays.update({name: mx.ones((128,))}))
    refused(tied, ValueError, "model.safetensors", f"{name} (128,)", "no place", "config.json")


def test_misshapen_tensor(tied):
    name = "model.layers.2.mlp.down_proj.weight"
    rewrite(tied, lambda arrays: arrays.update({name: arrays[name].T}))
    words = "model.safetensors", name, "has shape (96, 64)", "makes it (64, 96)"
    refused(tied, ValueError, *words)


def test_misshapen_expert(tmp_path):
    path = shutil.copytree(REFERENCE / "qwen3-moe", tmp_path / "moe")
    name = "model.layers.2.mlp.experts.5.up_proj.weight"
    rewrite(path, lambda arrays: arrays.update({name: mx.ones((48, 63))}))
    refused(path, ValueError, name, "has shape (48, 63)", "makes it (48, 64)")


def test_errors_come_before_any_weight_is_read(tied, monkeypatch):
    change_config(tied, intermediate_size=97)
    monkeypatch.setattr(mx, "load", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=re.escape("makes it (64, 97)")):
        load(tied)
