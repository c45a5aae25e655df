"""convert.py and save.py: what they write is what was read, and nothing gets lost."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, assert_same_ids, golden
from torch_files import write_torch

from model.generation.generate import generate
from model.weights import memory, save
from model.weights.checkpoint import open_checkpoint
from model.weights.convert import convert, quantize
from model.weights.load import load
from tests.model.weights.test_meta import meta_arrays, write_meta
from tests.model.weights.test_npz import arrays_of, described

QUANTIZED = REFERENCE.parent / "quantized"


@pytest.fixture
def torch_folder(tmp_path) -> Path:
    """qwen3-tied as PyTorch weights, with some files of a tokenizer."""
    folder = described("qwen3-tied", tmp_path / "torch")
    write_torch(folder / "pytorch_model.bin", arrays_of("qwen3-tied"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_text(f'{{"is": "{name}"}}')
    (folder / "tokenizer.json").chmod(0o444)
    (folder / "README.md").write_text("not the model's")
    return folder


def assert_golden(m, name: str) -> None:
    expected = golden(name)
    assert_close(m(mx.array([expected["ids"]]))[0, -1], expected["logits_last"], atol=2e-4)
    assert_same_ids(generate(m, expected["ids"], max_tokens=12), expected["greedy"])


def temporaries(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name.startswith(".")]


# --- convert -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_pytorch_becomes_safetensors_tensor_by_tensor(tmp_path, name):
    """With the Hub's names and shapes: experts apart, no head where it is tied."""
    folder, arrays = described(name, tmp_path / "torch"), arrays_of(name)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": mx.ones((8,))}
    write_torch(folder / "model.pth", arrays | extra)
    written = convert(folder, tmp_path / "new")
    made = mx.load(str(tmp_path / "new" / "model.safetensors"))
    assert made.keys() == arrays.keys()
    for key, array in arrays.items():
        assert made[key].dtype == array.dtype
        assert_close(made[key], array, atol=0)
    assert written.num_bytes == written.num_bytes_before == sum(a.nbytes for a in arrays.values())
    assert_golden(load(tmp_path / "new"), name)


def test_files_of_the_tokenizer_come_along(torch_folder, tmp_path):
    convert(torch_folder, tmp_path / "new")
    names = {file.name for file in (tmp_path / "new").iterdir()}
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert names == tokenizer | {"config.json", "model.safetensors"}
    assert (tmp_path / "new" / "tokenizer.json").read_text() == '{"is": "tokenizer.json"}'
    assert (tmp_path / "new" / "tokenizer.json").stat().st_mode & 0o200, "it may be changed"
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o777 & ~mask


def test_config_json_stays_what_it_was(torch_folder, tmp_path):
    convert(torch_folder, tmp_path / "new")
    before = json.loads((torch_folder / "config.json").read_text())
    after = json.loads((tmp_path / "new" / "config.json").read_text())
    assert after == before | {"torch_dtype": "float32"}
    convert(torch_folder, tmp_path / "short", dtype="bfloat16")
    after = json.loads((tmp_path / "short" / "config.json").read_text())
    assert after == before | {"torch_dtype": "bfloat16", "dtype": "bfloat16"}
    arrays = mx.load(str(tmp_path / "short" / "model.safetensors"))
    assert {array.dtype for array in arrays.values()} == {mx.bfloat16}


@pytest.mark.parametrize("run", [convert, quantize])
def test_what_transformers_5_renamed_is_written_under_both_names(tmp_path, run):
    """mlx-lm 0.32 reads a Llama's rope_theta and a Qwen3-MoE's num_experts only."""
    source = shutil.copytree(REFERENCE / "qwen3-moe", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}
    for old in ("num_experts", "rope_theta", "rope_scaling"):
        config.pop(old, None)
    config |= {"num_local_experts": 8, "rope_parameters": rope}
    (source / "config.json").write_text(json.dumps(config))
    run(source, tmp_path / "new")
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    both = {"num_experts": 8, "rope_theta": 5000.0, "rope_scaling": rope}
    assert written | config | both == written
    ids = mx.array([golden("qwen3-moe")["ids"]])
    if run is convert:
        assert_close(load(tmp_path / "new")(ids), load(source)(ids), atol=0)


def test_metas_release_becomes_the_hubs_checkpoint(tmp_path):
    folder = write_meta(tmp_path / "meta", [meta_arrays()])
    (folder / "tokenizer.model").write_bytes(b"tokens")
    convert(folder, tmp_path / "new")
    made = mx.load(str(tmp_path / "new" / "model.safetensors"))
    for name, array in arrays_of("llama-llama3rope").items():
        assert_close(made[name], array, atol=0)
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert (config["model_type"], config["intermediate_size"]) == ("llama", 96)
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (tmp_path / "new" / "tokenizer.model").exists()


@pytest.mark.parametrize("name", ["qwen3-moe-nvfp4", "qwen3-tied-mixed"])
def test_quantized_npz_stays_quantized(tmp_path, name):
    folder = tmp_path / "npz"
    folder.mkdir()
    shutil.copyfile(QUANTIZED / name / "config.json", folder / "config.json")
    arrays = mx.load(str(QUANTIZED / name / "model.safetensors"))
    mx.savez(str(folder / "weights.npz"), **arrays)
    convert(folder, tmp_path / "new")
    made = mx.load(str(tmp_path / "new" / "model.safetensors"))
    assert made.keys() == arrays.keys()
    assert all(mx.array_equal(made[key], array) for key, array in arrays.items())


def test_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "SHARD_BYTES", 300_000)
    convert(REFERENCE / "qwen3-moe", tmp_path / "new")
    files = sorted(file.name for file in (tmp_path / "new").glob("*.safetensors"))
    count = len(files)
    assert files == [f"model-0000{i + 1}-of-0000{count}.safetensors" for i in range(count)]
    sizes = [(tmp_path / "new" / file).stat().st_size for file in files]
    assert len(files) >= 4
    assert all(size < 310_000 for size in sizes)
    index = json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == 4 * 282240
    assert_golden(load(tmp_path / "new"), "qwen3-moe")


# --- quantize ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "source", "options"),
    [
        ("llama-mxfp4", "llama-llama3rope", {"mode": "mxfp4"}),
        ("qwen2-affine-3bit", "qwen2-bias", {"bits": 3, "group_size": 32}),
        ("qwen3-moe-nvfp4", "qwen3-moe", {"mode": "nvfp4"}),
    ],
)
def test_it_writes_what_mlx_lm_writes(tmp_path, recorded, source, options):
    """Names, types, shapes and the block are those of mlx-lm's own conversion, values MLX's."""
    written = quantize(REFERENCE / source, tmp_path / "new", **options)
    made = mx.load(str(tmp_path / "new" / "model.safetensors"))
    expected = mx.load(str(QUANTIZED / recorded / "model.safetensors"))
    kinds = [{key: (a.shape, a.dtype) for key, a in each.items()} for each in (made, expected)]
    assert kinds[0] == kinds[1]
    assert written.num_bytes == sum(array.nbytes for array in made.values())
    block, its = (
        json.loads((folder / "config.json").read_text())["quantization"]
        for folder in (tmp_path / "new", QUANTIZED / recorded)
    )
    modes = {path: {"mode": "affine"} | v if isinstance(v, dict) else v for path, v in its.items()}
    assert block == modes
    for path in (name.removesuffix(".scales") for name in made if name.endswith(".scales")):
        scheme = block.get(path) or {key: block[key] for key in ("group_size", "bits", "mode")}
        arrays = mx.quantize(float_matrix(source, path), **scheme)
        for part, array in zip(("weight", "scales", "biases"), arrays):
            assert mx.array_equal(made[f"{path}.{part}"], array)


def float_matrix(source: str, path: str) -> mx.array:
    """The matrix that mlx-lm's path means; its experts are stacked."""
    arrays = arrays_of(source)
    if "switch_mlp" not in path:
        return arrays[f"{path}.weight"]
    names = (path.replace("switch_mlp", f"experts.{i}") + ".weight" for i in range(8))
    return mx.stack([arrays[name] for name in names])


def test_scales_have_the_type_of_the_weights(tmp_path):
    quantize(REFERENCE / "qwen3-tied", tmp_path / "new", dtype="bfloat16")
    arrays = mx.load(str(tmp_path / "new" / "model.safetensors"))
    assert {array.dtype for array in arrays.values()} == {mx.uint32, mx.bfloat16}
    assert open_checkpoint(tmp_path / "new").dtype == "bfloat16"


# --- refusals ------------------------------------------------------------------------------------


def unchanged(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("run", [convert, quantize])
def test_a_model_is_not_written_over(tmp_path, run):
    folder = shutil.copytree(REFERENCE / "qwen2-bias", tmp_path / "m")
    before = unchanged(tmp_path)
    with pytest.raises(FileExistsError, match=r"m already holds a model \(config\.json\).*--force"):
        run(REFERENCE / "qwen3-tied", folder)
    assert unchanged(tmp_path) == before


def test_force_replaces_a_model_and_keeps_other_files(tmp_path):
    """Shards of the old model would be read along with the new one."""
    folder = shutil.copytree(REFERENCE / "qwen3-untied-yarn", tmp_path / "m")
    (folder / "notes.txt").write_text("mine")
    convert(REFERENCE / "qwen3-tied", folder, force=True)
    assert {f.name for f in folder.iterdir()} == {
        "config.json", "expected.json", "model.safetensors", "notes.txt",
    }  # fmt: skip
    assert_golden(load(folder), "qwen3-tied")
    assert temporaries(tmp_path) == []


def test_folders_that_hold_no_model_are_filled(tmp_path):
    (tmp_path / "m").mkdir()
    convert(REFERENCE / "qwen3-tied", tmp_path / "m")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    convert(REFERENCE / "qwen3-tied", tmp_path / "notes")
    assert (tmp_path / "notes" / "notes.txt").read_text() == "mine"
    convert(REFERENCE / "qwen3-tied", tmp_path / "far" / "away")
    for folder in (tmp_path / "m", tmp_path / "notes", tmp_path / "far" / "away"):
        assert_golden(load(folder), "qwen3-tied")


def test_a_destination_that_cant_be_replaced_as_a_whole(tmp_path, monkeypatch):
    """A mount point, a folder in one that can't be written, and a link to a folder."""
    places, real = [], tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **o: places.append(o["dir"]) or real(**o))
    disk, own, linked = (tmp_path / name for name in ("disk", "own", "linked"))
    for folder in (disk, own, linked):
        folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(save, "_is_on_disk_of", lambda folder, other: False)
        convert(REFERENCE / "qwen3-tied", disk)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: path != tmp_path)
        convert(REFERENCE / "qwen3-tied", own)
    (tmp_path / "link").symlink_to(linked)
    convert(REFERENCE / "qwen3-tied", tmp_path / "link")
    assert places == [disk, own, tmp_path]
    for folder in (disk, own, linked):
        assert_golden(load(folder), "qwen3-tied")
        assert temporaries(folder) == []
    assert temporaries(tmp_path) == []


def test_links_and_modes_stay_where_a_model_is_replaced(tmp_path):
    """Such as a config.json that several folders share, or weights on a larger disk."""
    folder = shutil.copytree(REFERENCE / "qwen2-bias", tmp_path / "m")
    (folder / "config.json").rename(tmp_path / "shared.json")
    (folder / "config.json").symlink_to("../shared.json")
    (folder / "model.safetensors").chmod(0o640)
    convert(REFERENCE / "qwen3-tied", folder, force=True)
    assert os.readlink(folder / "config.json") == "../shared.json"
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o640
    assert_golden(load(folder), "qwen3-tied")


def test_links_to_the_model_that_is_read_are_not_written_through(tmp_path):
    source = shutil.copytree(REFERENCE / "qwen3-tied", tmp_path / "source")
    (tmp_path / "m").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "m" / name).symlink_to(source / name)
    before = unchanged(tmp_path)
    with pytest.raises(ValueError, match=r"leads to .*/config\.json, which the model is"):
        convert(source, tmp_path / "m", force=True)
    assert unchanged(tmp_path) == before


def test_links_to_nowhere_and_folders_are_no_files_of_a_tokenizer(torch_folder, tmp_path):
    (torch_folder / "vocab.json").symlink_to(tmp_path / "nowhere")
    (torch_folder / "merges.txt").mkdir()
    convert(torch_folder, tmp_path / "new")
    assert not (tmp_path / "new" / "vocab.json").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_model_is_not_written_over_itself(tmp_path, force):
    folder = shutil.copytree(REFERENCE / "qwen2-bias", tmp_path / "m")
    before = unchanged(tmp_path)
    for name in (folder, folder / ".." / "m"):
        with pytest.raises(ValueError, match="is where the model is read from"):
            convert(folder, name, force=force)
    assert unchanged(tmp_path) == before


def test_what_breaks_on_the_way_leaves_no_trace(tmp_path, monkeypatch):
    folder = shutil.copytree(REFERENCE / "qwen2-bias", tmp_path / "m")
    before, real = unchanged(tmp_path), mx.save_safetensors

    def full(*arguments):
        real(*arguments)
        raise RuntimeError("[write] Unable to write 7 bytes to file.")

    monkeypatch.setattr(mx, "save_safetensors", full)
    for target in (folder, tmp_path / "new"):
        with pytest.raises(OSError, match=r"can't take the weights \(\[write\] Unable"):
            convert(REFERENCE / "qwen3-tied", target, force=True)
    assert unchanged(tmp_path) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m"]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file is a file; name a directory"):
        convert(REFERENCE / "qwen3-tied", tmp_path / "file", force=True)
    with pytest.raises(OSError, match="file"):
        convert(REFERENCE / "qwen3-tied", tmp_path / "file" / "below")


def test_a_place_that_cant_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(PermissionError, match="can't be written to"):
        convert(REFERENCE / "qwen3-tied", tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=500_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(mx, "load", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(OSError, match=r"new needs 0\.6 MB and the disk has 0\.5 MB left"):
        convert(REFERENCE / "qwen3-tied", tmp_path / "new")


def test_a_memory_that_is_too_small(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    for run in (convert, quantize):
        with pytest.raises(memory.NotEnoughMemory, match="and 0.1 MB are available"):
            run(REFERENCE / "qwen3-tied", tmp_path / "new")
        run(REFERENCE / "qwen3-tied", tmp_path / run.__name__, force=True)


def test_only_the_largest_tensors_have_to_fit(tmp_path, monkeypatch):
    """A model larger than memory goes through in shards."""
    monkeypatch.setattr(save, "SHARD_BYTES", 100_000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 300_000)
    convert(REFERENCE / "qwen3-tied", tmp_path / "new")
    assert_golden(load(tmp_path / "new", force=True), "qwen3-tied")


def test_quantizing_twice_and_nothing_to_quantize(tmp_path):
    with pytest.raises(ValueError, match=r"llama-mxfp4 is quantized already \(mxfp4 4 bits"):
        quantize(QUANTIZED / "llama-mxfp4", tmp_path / "new")
    with pytest.raises(ValueError, match="whole groups of 128; take a smaller --group-size"):
        quantize(REFERENCE / "qwen2-bias", tmp_path / "new", group_size=128)
    assert list(tmp_path.iterdir()) == []


def test_gguf_files_have_no_tokenizer_to_copy(tmp_path):
    from tests.model.weights.test_gguf import write_model

    path = write_model(tmp_path / "m.gguf", load(REFERENCE / "qwen3-tied"))
    for run in (convert, quantize):
        with pytest.raises(ValueError, match=r"m\.gguf is a GGUF file"):
            run(path, tmp_path / "new")
