"""weights/meta.py: a reference checkpoint written as Meta would, and what params.json says."""

import json
import re
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close, assert_same_ids
from torch_files import write_torch

from model.config import Config
from model.generation.generate import generate
from model.weights.config_json import config_from_json
from model.weights.load import load
from model.weights.meta import checkpoint_name, config_of

LLAMA = REFERENCE / "llama-llama3rope"
META_NAMES = {  # the Hub's -> Meta's, written down from Meta's model.py
    "embed_tokens": "tok_embeddings",
    "norm": "norm",
    "lm_head": "output",
    "q_proj": "attention.wq",
    "k_proj": "attention.wk",
    "v_proj": "attention.wv",
    "o_proj": "attention.wo",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "gate_proj": "feed_forward.w1",
    "down_proj": "feed_forward.w2",
    "up_proj": "feed_forward.w3",
}
PARAMS = {
    "dim": 64,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": -1,
    "multiple_of": 32,
    "ffn_dim_multiplier": 1.3,
}


def interleaved(rows: mx.array, heads: int) -> mx.array:
    """Meta's order: dimension i of the first half of a head stands beside i of the second."""
    size = rows.shape[0] // heads
    order = [h * size + i + half for h in range(heads) for i in range(size // 2)
             for half in (0, size // 2)]  # fmt: skip
    return rows[mx.array(order)]


def meta_arrays() -> dict[str, mx.array]:
    arrays = {}
    for name, array in mx.load(str(LLAMA / "model.safetensors")).items():
        module, layer = name.split(".")[-2], re.search(r"layers\.\d+\.", name)
        if module in ("q_proj", "k_proj"):
            array = interleaved(array, PARAMS["n_heads" if module == "q_proj" else "n_kv_heads"])
        arrays[f"{layer[0] if layer else ''}{META_NAMES[module]}.weight"] = array
    return arrays | {"rope.freqs": mx.ones((8,))}


def write_meta(folder: Path, parts: list[dict[str, mx.array]], **params) -> Path:
    folder.mkdir()
    for number, arrays in enumerate(parts):
        write_torch(folder / f"consolidated.{number:02d}.pth", arrays)
    (folder / "params.json").write_text(json.dumps(PARAMS | params))
    return folder


@pytest.fixture(scope="module")
def same_model(tmp_path_factory):
    """The reference checkpoint with the description that Meta's params.json amounts to."""
    folder = tmp_path_factory.mktemp("hub")
    raw = json.loads((LLAMA / "config.json").read_text())
    raw |= {"rope_scaling": None, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(raw))
    (folder / "model.safetensors").write_bytes((LLAMA / "model.safetensors").read_bytes())
    return load(folder)


IDS = json.loads((LLAMA / "expected.json").read_text())["ids"]


def assert_same(m, same_model) -> None:
    assert m.config.rms_norm_eps == same_model.config.rms_norm_eps
    assert_close(m(mx.array([IDS])), same_model(mx.array([IDS])), atol=1e-5)
    assert_same_ids(*(generate(each, IDS, max_tokens=12) for each in (m, same_model)))


def test_a_release_in_one_part(tmp_path, same_model):
    assert_same(load(write_meta(tmp_path / "m", [meta_arrays()])), same_model)


@pytest.mark.parametrize("embedding_axis", [0, 1])  # Llama 3's parts, Llama 2's
def test_a_release_in_two_parts(tmp_path, same_model, embedding_axis):
    """As Meta's parallel layers divide them, which their code says."""
    parts = [{}, {}]
    for name, array in meta_arrays().items():
        if array.ndim == 1:
            halves = [array, array]
        elif name == "tok_embeddings.weight":
            halves = mx.split(array, 2, axis=embedding_axis)
        else:
            halves = mx.split(array, 2, axis=1 if "wo" in name or "w2" in name else 0)
        for part, half in zip(parts, halves):
            part[name] = half
    assert_same(load(write_meta(tmp_path / "m", parts)), same_model)
    del parts[1]["layers.0.attention.wq.weight"]
    folder = write_meta(tmp_path / "damaged", parts)
    with pytest.raises(ValueError, match=r"layers\.0\.attention\.wq\.weight is not in all 2 parts"):
        load(folder)


def test_metas_names_beside_a_config_json(tmp_path, same_model):
    folder = write_meta(tmp_path / "m", [meta_arrays()])
    raw = json.loads((LLAMA / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"rope_scaling": None}))
    (folder / "params.json").unlink()
    (folder / "consolidated.00.pth").rename(folder / "llama.pth")
    assert_close(load(folder)(mx.array([IDS])), same_model(mx.array([IDS])), atol=1e-5)


def test_hub_names_beside_params_json(tmp_path):
    arrays = dict(mx.load(str(LLAMA / "model.safetensors")))
    folder = write_meta(tmp_path / "m", [arrays])
    with pytest.raises(ValueError, match=r"consolidated\.00\.pth hasn't Meta's names"):
        load(folder)


# --- params.json ---------------------------------------------------------------------------------

SHAPES = {"tok_embeddings.weight": (320, 64), "layers.0.feed_forward.w1.weight": (96, 64)}


def config(vocab_size: int = 320, **changes) -> Config:
    params = {k: v for k, v in (PARAMS | changes).items() if v is not ...}
    shapes = SHAPES | {"tok_embeddings.weight": (vocab_size, 64)}
    return config_from_json(config_of(params, shapes))


def test_what_params_json_says():
    found = config()
    assert (found.vocab_size, found.intermediate_size, found.head_dim) == (320, 96, 16)
    assert (found.num_key_value_heads, found.tie_word_embeddings) == (2, True)  # no output.weight
    assert config(n_kv_heads=...).num_key_value_heads == 4
    assert config(rope_theta=...).rope.theta == 10000.0
    scaled = config(use_scaled_rope=True).rope
    assert (scaled.type, scaled.factor, scaled.original_context) == ("llama3", 8.0, 8192)
    assert config(use_scaled_rope=True, rope_scaling_factor=32.0).rope.factor == 32.0


def test_what_the_vocabulary_tells():
    assert (config(32000).context, config(32000).eos_token_ids) == (4096, (2,))
    assert (config(128256).context, config(128256).bos_token_ids) == (8192, (128000,))
    assert config(128256, use_scaled_rope=True).context == 131072


def test_mistral_in_the_same_format():
    found = config(head_dim=32, sliding_window=4096, hidden_dim=96)
    assert (found.model_type, found.head_dim, found.window(2)) == ("mistral", 32, 4096)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": ...}, "params.json has no dim"),
        ({"norm_eps": None}, "params.json has no norm_eps"),
        ({"moe": {"num_experts": 8}}, "params.json: moe = "),
        ({"quantization_args": {}}, "params.json: quantization_args"),
    ],
)
def test_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tok_embeddings.weight", "model.embed_tokens.weight"),
        ("norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("layers.11.feed_forward.w2.weight", "model.layers.11.mlp.down_proj.weight"),
        ("layers.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
        ("layers.0.attention.what.weight", "layers.0.attention.what.weight"),
    ],
)
def test_names(name, expected):
    assert checkpoint_name(name) == expected
