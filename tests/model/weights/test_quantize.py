"""weights/quantize.py against directories that mlx-lm wrote, against MLX, and against itself."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, assert_same_ids, golden
from mlx import nn
from mlx.utils import tree_flatten

from model.generation.generate import generate
from model.moe import ExpertLinear
from model.weights.load import load
from model.weights.quantize import (
    MODES,
    QuantizedExpertLinear,
    Scheme,
    check_supported,
    dequantize,
    matrices,
    pack,
    quantize,
    read_block,
    unpack,
)

QUANTIZED = REFERENCE.parent / "quantized"
OF_MLX_LM = ("llama-mxfp4", "qwen2-affine-3bit", "qwen3-moe-nvfp4", "qwen3-tied-mixed")


def recorded(name: str) -> dict:
    return json.loads((QUANTIZED / name / "expected.json").read_text())


def schemes(m) -> dict[str, tuple]:
    """Path -> (bits, group size, mode) of each quantized module."""
    leaves = tree_flatten(m.leaf_modules(), is_leaf=lambda node: isinstance(node, nn.Module))
    return {p: (x.bits, x.group_size, x.mode) for p, x in leaves if hasattr(x, "bits")}


@pytest.fixture
def mixed(tmp_path) -> Path:
    """A copy to break."""
    return shutil.copytree(QUANTIZED / "qwen3-tied-mixed", tmp_path / "mixed")


def change_block(path: Path, **changes) -> None:
    file = path / "config.json"
    raw = json.loads(file.read_text())
    for key in ("quantization", "quantization_config"):
        raw[key] |= changes
    file.write_text(json.dumps(raw))


def rewrite(path: Path, change) -> None:
    arrays = dict(mx.load(str(path / "model.safetensors")))
    change(arrays)
    mx.eval(arrays)
    mx.save_safetensors(str(path / "model.safetensors"), arrays)


# --- what mlx-lm wrote ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_MLX_LM)
def test_directories_of_mlx_lm_give_its_logits_and_ids(name):
    expected, m = recorded(name), load(QUANTIZED / name, "float32")
    logits = m(mx.array([expected["ids"]]))[0]
    assert_close(logits[0], expected["logits_first"], atol=2e-5)
    assert_close(logits[-1], expected["logits_last"], atol=2e-5)
    assert_same_ids(generate(m, expected["ids"], max_tokens=12), expected["greedy"])


@pytest.mark.parametrize("name", OF_MLX_LM)
def test_made_floats_at_load_they_give_the_same(name):
    expected, m = recorded(name), load(QUANTIZED / name, "float32", quantized=False)
    assert schemes(m) == {}
    assert {array.dtype for _, array in tree_flatten(m.parameters())} == {mx.float32}
    logits = m(mx.array([expected["ids"]]))[0]
    assert_close(logits[-1], expected["logits_last"], atol=2e-5)


def test_modules_are_mlxs_own_with_the_schemes_of_the_file():
    m = load(QUANTIZED / "qwen3-tied-mixed")
    layer = m.model.layers[0]
    assert isinstance(m.model.embed_tokens, nn.QuantizedEmbedding)
    assert isinstance(layer.self_attn.q_proj, nn.QuantizedLinear)
    assert type(layer.self_attn.k_proj) is nn.Linear
    found = schemes(m)
    assert found["model.embed_tokens"] == (8, 64, "affine")
    assert found["model.layers.0.self_attn.q_proj"] == (4, 32, "affine")
    assert found["model.layers.0.self_attn.o_proj"] == (8, 32, "mxfp8")
    assert found["model.layers.2.mlp.down_proj"] == (6, 32, "affine")
    experts = load(QUANTIZED / "qwen3-moe-nvfp4").model.layers[0].mlp
    assert isinstance(experts.experts.up_proj, QuantizedExpertLinear)
    assert (experts.gate.bits, experts.gate.mode) == (8, "affine")


@pytest.mark.parametrize("name", OF_MLX_LM)
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_activations_have_the_type_that_was_asked_for(name, dtype):
    m, ids = load(QUANTIZED / name, dtype), mx.array([recorded(name)["ids"]])
    cache = m.make_cache()
    logits = m(ids, cache)
    assert {logits.dtype, *(buffer.dtype for buffer in cache[0].state)} == {dtype}
    if "moe" not in name:  # rounding may send a token to other experts
        assert_close(logits[0, -1], recorded(name)["logits_last"], atol=0.15)


def test_the_block_under_either_name_or_none(mixed):
    """The shapes decide; the block is checked where it is there."""
    file = mixed / "config.json"
    whole = json.loads(file.read_text())
    expected = recorded("qwen3-tied-mixed")
    for left_out in (["quantization"], ["quantization_config"], whole.keys() & {"quantization"}):
        file.write_text(json.dumps({k: v for k, v in whole.items() if k not in left_out}))
        logits = load(mixed)(mx.array([expected["ids"]]))[0, -1]
        assert_close(logits, expected["logits_last"], atol=2e-5)


def test_older_mlx_lm_left_out_the_modes_and_what_the_shapes_say(mixed):
    for key in ("model.embed_tokens", "model.layers.2.mlp.down_proj"):
        raw = json.loads((mixed / "config.json").read_text())
        for block in ("quantization", "quantization_config"):
            raw[block].pop(key)
        (mixed / "config.json").write_text(json.dumps(raw))
    change_block(mixed, **{"model.layers.0.self_attn.q_proj": True, "lm_head": False})
    expected = recorded("qwen3-tied-mixed")
    logits = load(mixed)(mx.array([expected["ids"]]))[0, -1]
    assert_close(logits, expected["logits_last"], atol=2e-5)


# --- what contradicts itself ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"bits": 7}, "mode affine has no bits 7; it has 2, 3, 4, 5, 6, 8"),
        ({"bits": 4, "group_size": 16}, "affine has no group_size 16; it has 32, 64, 128"),
        ({"bits": "4"}, "has no bits '4'"),
        ({"bits": 8, "mode": "mxfp4"}, "mode mxfp4 has no bits 8; it has 4"),
        ({"bits": 4, "mode": "int4"}, "'int4' is not one of affine, mxfp4, nvfp4, mxfp8"),
        ({"bits": 4, "mode": None}, "mode None is not one of"),
        ({"bits": 4, "mode": ["affine"]}, r"mode \['affine'\] is not one of"),
        ({"group_size": 64}, "neither bits nor mode"),
        ([4], r"must be an object, found \[4\]"),
        ({"bits": 4, "zero_point": 8}, "zero_point = 8 is not supported"),
        ({"bits": 4, "lm_head": {"bits": 9}}, "quantization of lm_head: .* has no bits 9"),
        ({"bits": 4, "lm_head": {"desc_act": 1}}, "quantization of lm_head: desc_act = 1"),
        ({"quant_method": "gptq", "bits": 4}, "quantized by 'gptq' are not supported"),
    ],
)
def test_blocks_are_refused_by_name(block, message):
    with pytest.raises(ValueError, match=message):
        read_block({"quantization_config": block})


def test_no_block():
    assert read_block({"quantization": None, "quantization_config": {}}) is None
    assert read_block({}) is None


@pytest.mark.parametrize("said", [{"bits": 8, "group_size": 32}, False])
def test_a_block_that_contradicts_the_tensors(mixed, said):
    change_block(mixed, **{"model.layers.1.self_attn.v_proj": said})
    with pytest.raises(ValueError, match=r"config\.json says of model\.layers\.1\.self_attn\.v"):
        load(mixed)


def test_a_block_says_switch_mlp_for_experts(tmp_path):
    path = shutil.copytree(QUANTIZED / "qwen3-moe-nvfp4", tmp_path / "moe")
    change_block(path, **{"model.layers.0.mlp.switch_mlp.up_proj": {"mode": "nvfp4"}})
    load(path)
    change_block(path, **{"model.layers.0.mlp.switch_mlp.up_proj": {"mode": "mxfp4"}})
    with pytest.raises(ValueError, match=r"model\.layers\.0\.mlp\.experts\.up_proj mxfp4 4 bits"):
        load(path)


def test_other_methods_are_refused_with_the_files_name(mixed):
    raw = json.loads((mixed / "config.json").read_text())
    del raw["quantization"]
    raw["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (mixed / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=r"mixed/config\.json: .*'awq' are not supported"):
        load(mixed)


def test_missing_parts(mixed, tmp_path):
    other = shutil.copytree(mixed, tmp_path / "other")
    name = "model.layers.0.self_attn.q_proj"
    rewrite(mixed, lambda arrays: arrays.pop(f"{name}.scales"))
    with pytest.raises(ValueError, match="part of a quantized matrix is missing|no place"):
        load(mixed)
    rewrite(other, lambda arrays: arrays.pop(f"{name}.biases"))
    with pytest.raises(ValueError, match=rf"{name}\.biases \(128, 2\) is missing"):
        load(other)


def test_shapes_that_fit_no_scheme(mixed):
    name = "model.layers.0.self_attn.q_proj.scales"
    rewrite(mixed, lambda arrays: arrays.update({name: arrays[name][:, :1]}))
    change_block(mixed)
    with pytest.raises(ValueError, match="q_proj"):
        load(mixed)
    for shape in ((128, 9), ()):
        rewrite(mixed, lambda arrays, shape=shape: arrays.update({name: mx.ones(shape)}))
        with pytest.raises(ValueError, match=r"which is no scheme for rows of 64 values"):
            load(mixed)


def test_a_scheme_that_this_mlx_computes_wrongly_is_refused(monkeypatch):
    """As MLX 0.29 does on CPUs: it takes the mode, and its products are something else."""
    scheme, real = Scheme.of("mxfp8"), mx.quantized_matmul
    check_supported.cache_clear()
    monkeypatch.setattr(mx, "quantized_matmul", lambda *a, **options: real(*a, **options) * 2)
    with pytest.raises(ValueError, match=r"can't run mxfp8 8 bits .* products are wrong; upgrade"):
        check_supported(scheme)
    with pytest.raises(ValueError, match="llama-mxfp4/config.json: this MLX .* can't run mxfp4"):
        load(QUANTIZED / "llama-mxfp4")
    monkeypatch.undo()
    check_supported(scheme)


def test_a_scheme_that_this_mlx_does_not_know_is_refused(monkeypatch):
    def unknown(*_, **options):
        raise ValueError(f"no mode {options['mode']}")

    check_supported.cache_clear()
    monkeypatch.setattr(mx, "quantize", unknown)
    with pytest.raises(ValueError, match=r"can't run nvfp4 4 bits .*: no mode nvfp4; upgrade mlx"):
        check_supported(Scheme.of("nvfp4"))


# --- in memory -----------------------------------------------------------------------------------

SCHEMES = [
    Scheme(group_size=size, bits=bits, mode=mode)
    for mode, (sizes, widths) in MODES.items()
    for size in sizes
    for bits in widths
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.mode}-{s.bits}-{s.group_size}")
def test_a_round_trip_is_mlxs(scheme):
    weight = mx.random.normal((6, 256), key=mx.random.key(scheme.bits))
    packed = pack(weight, scheme)
    assert packed["weight"].shape == (6, 256 * scheme.bits // 32)
    assert packed["scales"].shape == (6, 256 // scheme.group_size)
    made = unpack(packed, scheme)
    expected = mx.dequantize(*mx.quantize(weight, **scheme.options()), **scheme.options())
    assert_close(made, expected, atol=0)
    if scheme.mode == "affine":
        spread = weight.reshape(6, -1, scheme.group_size)
        step = (spread.max(axis=-1) - spread.min(axis=-1)) / (2**scheme.bits - 1)
        assert mx.abs(made - weight).max() <= step.max() * 1.01  # MLX may move the edges a little


@pytest.mark.parametrize("name", ALL)
def test_quantizing_in_memory_and_back(name):
    expected, m = golden(name), load(REFERENCE / name)
    quantize(m, bits=8, group_size=32)
    assert {bits for bits, _, _ in schemes(m).values()} == {8}
    ids = mx.array([expected["ids"]])
    packed = m(ids)[0, -1]
    if name != "qwen3-moe":
        assert_close(packed, expected["logits_last"], atol=0.1)
    dequantize(m)
    assert schemes(m) == {}
    assert {type(x) for x in matrices(m).values()} <= {nn.Linear, nn.Embedding, ExpertLinear}
    assert_close(m(ids)[0, -1], packed, atol=2e-5)


@pytest.mark.parametrize("mode", ["affine", "mxfp8"])
def test_floats_have_the_type_that_was_asked_for(mode):
    m = load(REFERENCE / "qwen3-tied", "bfloat16")
    quantize(m, mode=mode, bits=8, group_size=32)
    dequantize(m, mx.bfloat16)
    assert {array.dtype for _, array in tree_flatten(m.parameters())} == {mx.bfloat16}
    m = load(REFERENCE / "qwen3-tied")
    quantize(m, mode=mode, bits=8, group_size=32)
    dequantize(m)
    assert {array.dtype for _, array in tree_flatten(m.parameters())} == {mx.float32}


def test_only_what_is_chosen_is_quantized():
    m = load(REFERENCE / "qwen3-tied")
    quantize(m, bits=4, choose=lambda path, module: path.endswith("v_proj"))
    assert list(schemes(m)) == [f"model.layers.{i}.self_attn.v_proj" for i in range(3)]


def test_rows_that_are_no_whole_groups_stay():
    m = load(REFERENCE / "qwen3-tied")  # down_proj has rows of 96
    quantize(m, bits=4, group_size=64)
    assert not any("down_proj" in path for path in schemes(m))
    with pytest.raises(ValueError, match="no matrix was quantized"):
        quantize(m, bits=4, group_size=128, choose=lambda path, _: "v_proj" in path)


def test_routers_keep_eight_bits():
    m = load(REFERENCE / "qwen3-moe")
    quantize(m, mode="nvfp4")
    assert schemes(m)["model.layers.0.mlp.gate"] == (8, 64, "affine")
    assert schemes(m)["model.layers.0.mlp.experts.gate_proj"] == (4, 16, "nvfp4")
