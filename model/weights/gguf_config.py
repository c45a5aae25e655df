"""a GGUF file's metadata -> Config, by way of config.json's words for the same.

Blind spot: it sees names and shapes of tensors, not what they hold.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.config import FAMILIES, Config, check_size
from model.rope import yarn_attention_factor
from model.weights.config_json import config_from_json, number, require

_ARCHITECTURES = {  # GGUF's -> model_type
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
}
_REQUIRED = {  # config.json's key -> GGUF's, under the architecture's name
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_OPTIONAL = {
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
}
_EXPERTS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_ROPE = {
    "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}
_REFUSED = (
    "attention.sliding_window",
    "attention.scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_gating_func",
    "expert_group_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_scale",
    "logit_scale",
    "residual_scale",
    "rope.dimension_sections",
    "rope.scale_linear",
)


def config_from_gguf(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    rope_divisors: tuple[float, ...] = (),
) -> Config:
    """GGUF metadata (`general.architecture` and that architecture's keys).

    shapes: tensor name (GGUF's) -> shape, row-major; the vocabulary's size, the biases and
    a tied head are told by which tensors there are. rope_divisors: `rope_freqs.weight`.
    """
    arch = metadata.get("general.architecture")
    family = _refuse_unsupported(metadata, arch)
    if "token_embd.weight" not in shapes:
        raise ValueError("tensor token_embd.weight is missing, so there is no vocabulary")
    raw = {key: metadata.get(f"{arch}.{name}") for key, name in _OPTIONAL.items()}
    raw |= {key: require(metadata, f"{arch}.{name}") for key, name in _REQUIRED.items()}
    raw |= {
        "model_type": family,
        "vocab_size": shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "mlp_bias": "blk.0.ffn_down.bias" in shapes,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "rope_parameters": _rope(metadata, arch),
        **(_experts(metadata, arch, shapes) if FAMILIES[family].experts else {}),
    }
    config = config_from_json(raw)
    rotated = metadata.get(f"{arch}.rope.dimension_count", config.head_dim)
    if rotated != config.head_dim:
        raise ValueError(
            f"{arch}.rope.dimension_count {rotated} differs from the head size"
            f" {config.head_dim}; only whole heads are rotated"
        )
    return replace(config, rope=replace(config.rope, divisors=rope_divisors))


def _refuse_unsupported(metadata: Mapping[str, Any], arch: Any) -> str:
    """-> the architecture's model_type."""
    if arch not in _ARCHITECTURES:
        raise ValueError(
            f"architecture {arch!r} is not supported in GGUF files;"
            f" supported: {', '.join(_ARCHITECTURES)}"
        )
    known = {*_ROPE.values(), "type", "finetuned", "attn_factor"}
    for key, value in metadata.items():
        asked = key.removeprefix(f"{arch}.")
        scaling = asked.startswith("rope.scaling.") and asked.split(".")[-1] not in known
        sees_ahead = asked == "attention.causal" and value is not True
        expert = asked.startswith("expert_") and not FAMILIES[_ARCHITECTURES[arch]].experts
        if scaling or sees_ahead or ((expert or asked in _REFUSED) and value):
            raise ValueError(f"{key} = {value!r} is not supported")
    return _ARCHITECTURES[arch]


def _experts(
    metadata: Mapping[str, Any], arch: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Which layers are sparse is told by their tensors. That the chosen experts' weights are made
    to sum to one is true of every published Qwen3-MoE, and few files say it."""
    num_layers = require(metadata, f"{arch}.block_count")
    check_size("num_hidden_layers", num_layers)
    dense = [i for i in range(num_layers) if f"blk.{i}.ffn_gate_exps.weight" not in shapes]
    given = {key: require(metadata, f"{arch}.{name}") for key, name in _EXPERTS.items()}
    norm = metadata.get(f"{arch}.expert_weights_norm", True)
    return given | {"norm_topk_prob": norm, "mlp_only_layers": dense}


def _rope(metadata: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """The settings in config.json's terms."""
    scaling = {key: metadata.get(f"{arch}.rope.scaling.{name}") for key, name in _ROPE.items()}
    rope_type = metadata.get(f"{arch}.rope.scaling.type", "none")
    if rope_type == "none":
        return {}
    if rope_type == "yarn":
        sharper = number(metadata, f"{arch}.rope.scaling.attn_factor", 1.0)
        require(metadata, f"{arch}.rope.scaling.factor")
        factor = number(metadata, f"{arch}.rope.scaling.factor", 1.0)
        scaling["attention_factor"] = sharper * yarn_attention_factor(factor)
    return {"rope_type": rope_type, **scaling}
