"""weights/gguf_config.py: GGUF's metadata says what config.json says, and every refusal."""

import pytest

from model.config import Config
from model.rope import Rope
from model.weights.gguf_config import config_from_gguf
from tests.model.weights.test_config_json import read

METADATA = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 3,
    "qwen3.embedding_length": 64,
    "qwen3.feed_forward_length": 96,
    "qwen3.context_length": 256,
    "qwen3.attention.head_count": 4,
    "qwen3.attention.head_count_kv": 2,
    "qwen3.attention.key_length": 32,
    "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
    "qwen3.rope.freq_base": 1e6,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def read_gguf(*tensors: str, rope_divisors: tuple[float, ...] = (), **changes) -> Config:
    """changes: under `qwen3.`, with __ for a dot; ... removes."""
    given = {f"qwen3.{key.replace('__', '.')}": value for key, value in changes.items()}
    metadata = {k: v for k, v in (METADATA | given).items() if v is not ...}
    shapes = {"token_embd.weight": (320, 64)} | dict.fromkeys(tensors, (1,))
    return config_from_gguf(metadata, shapes, rope_divisors=rope_divisors)


def test_gguf_metadata_says_the_same_as_config_json():
    assert read_gguf() == read(dtype=...)


def test_gguf_tensors_tell_what_the_metadata_does_not():
    config = read_gguf("output.weight", "blk.0.attn_q.bias")
    assert not config.tie_word_embeddings
    assert config.qkv_bias


def test_gguf_rope():
    yarn = read_gguf(
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64,
        rope__scaling__attn_factor=0.5,
    )
    assert yarn.rope == Rope(
        type="yarn",
        theta=1e6,
        factor=4.0,
        original_context=64,
        attention_factor=0.5 * 1.138629436111989,
    )
    linear = read_gguf(rope__scaling__type="linear", rope__scaling__factor=3.0).rope
    assert (linear.type, linear.factor) == ("linear", 3.0)
    assert read_gguf(rope_divisors=(1.0, 2.0)).rope.divisors == (1.0, 2.0)


GGUF_YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"block_count": ...}, "qwen3.block_count is missing"),
        ({"attention__sliding_window": 4096}, "qwen3.attention.sliding_window = 4096"),
        ({"expert_count": 8}, "qwen3.expert_count = 8"),
        ({"rope__scaling__type": "longrope"}, "rope type 'longrope'"),
        ({"rope__scaling__yarn_log_multiplier": 0.1}, "yarn_log_multiplier"),
        ({"rope__dimension_count": 16}, "dimension_count 16 differs from the head size 32"),
        ({"attention__causal": False}, "qwen3.attention.causal = False"),
        ({"rope__dimension_sections": (8, 8)}, "qwen3.rope.dimension_sections"),
        (GGUF_YARN | {"rope__scaling__factor": "4"}, "scaling.factor must be a finite number"),
        (GGUF_YARN | {"rope__scaling__attn_factor": "1"}, "attn_factor must be a finite number"),
        ({"attention__head_count": [4, 2, 4]}, r"num_attention_heads .* found \[4, 2, 4\]"),
    ],
)
def test_gguf_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        read_gguf(**given)


def test_gguf_architectures_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'gemma3' is not supported .* llama, qwen2, qwen3"):
        config_from_gguf({"general.architecture": "gemma3"}, {})
    with pytest.raises(ValueError, match=r"token_embd\.weight is missing"):
        config_from_gguf(METADATA, {})
