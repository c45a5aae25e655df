"""Meta's release of Llama (params.json, consolidated.00.pth ...) -> config.json's terms, and names,
shapes and row order as in the Hub's checkpoints.

Large models come in parts: part i of a matrix holds its i-th share of rows or columns.

Blind spot: params.json doesn't say how long the context is or which ids end a text; both are known
from the vocabulary's size for Llama 2 and 3, and left out or kept short for anything else.

Source: ModelArgs and the parallel layers of Meta's llama-models repository.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from model.weights.files import Stored

_NAMES = {
    "tok_embeddings": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}
_BY_COLUMNS = ("attention.wo.weight", "feed_forward.w2.weight")  # how parts divide these
_KNOWN_PARAMS = {
    *("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "norm_eps", "rope_theta"),
    *("head_dim", "hidden_dim", "multiple_of", "ffn_dim_multiplier", "sliding_window"),
    *("use_scaled_rope", "rope_scaling_factor", "high_freq_factor"),
    *("max_batch_size", "max_seq_len", "model_parallel_size"),
}
_LLAMA3_VOCABULARY, _LLAMA2_VOCABULARY = 128256, 32000
_ENDS = {  # vocabulary -> bos, eos
    _LLAMA2_VOCABULARY: {"bos_token_id": 1, "eos_token_id": 2},
    _LLAMA3_VOCABULARY: {"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]},
}


def is_meta(names: Iterable[str]) -> bool:
    """Whether these are Meta's names of tensors."""
    return "tok_embeddings.weight" in names


def checkpoint_name(name: str) -> str:
    """Meta's name of a tensor -> the Hub's; an unknown name stays as it is.

    >>> checkpoint_name("layers.3.attention.wq.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"(?:layers\.(\d+)\.)?([\w.]+)\.(\w+)", name)
    if not match or match[2] not in _NAMES:
        return name
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{_NAMES[match[2]]}.{match[3]}"


def joined_axis(name: str, parts: list[Stored], width: int) -> int | None:
    """Along which axis the parts of a tensor are joined; None where each part holds all of it.

    Llama 2 divides the embedding by columns and Llama 3 by rows: its parts' width tells.
    """
    if len(parts) == 1 or len(parts[0].shape) < 2:
        return None
    by_columns = name.endswith(_BY_COLUMNS)
    if name == "tok_embeddings.weight":
        by_columns = parts[0].shape[1] != width
    return 1 if by_columns else 0


def config_of(params: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """params.json as a config.json. shapes: of the joined tensors, under Meta's names.

    Raises ValueError naming a parameter that is missing or isn't implemented.
    """
    if unknown := sorted(params.keys() - _KNOWN_PARAMS):
        key = unknown[0]
        raise ValueError(f"params.json: {key} = {params[key]!r} is not supported")
    for key in ("dim", "n_layers", "n_heads", "norm_eps"):
        if params.get(key) is None:
            raise ValueError(f"params.json has no {key}, and no default is safe")
    vocab_size = shapes["tok_embeddings.weight"][0]  # Llama 2 has -1 in params.json
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": vocab_size,
        "hidden_size": params["dim"],
        "intermediate_size": _intermediate_size(params, shapes),
        "num_hidden_layers": params["n_layers"],
        "num_attention_heads": params["n_heads"],
        "num_key_value_heads": params.get("n_kv_heads") or params["n_heads"],
        "rms_norm_eps": params["norm_eps"],
        "rope_theta": params.get("rope_theta", 10000.0),
        "max_position_embeddings": _context(params, vocab_size),
        "rope_scaling": _rope_scaling(params),
        "tie_word_embeddings": "output.weight" not in shapes,
        **_ENDS.get(vocab_size, {}),
    }
    return config | _extras(params)


def _intermediate_size(params: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Meta rounds 2/3 of 4 * dim up to a multiple; the weights themselves are surer."""
    if "layers.0.feed_forward.w1.weight" not in shapes:
        raise ValueError("layers.0.feed_forward.w1.weight is missing from the weights")
    return shapes["layers.0.feed_forward.w1.weight"][0]


def _context(params: Mapping[str, Any], vocab_size: int) -> int:
    if params.get("use_scaled_rope"):
        return 131072
    return 8192 if vocab_size == _LLAMA3_VOCABULARY else 4096


def _rope_scaling(params: Mapping[str, Any]) -> dict[str, Any] | None:
    if not params.get("use_scaled_rope"):
        return None
    return {
        "rope_type": "llama3",
        "factor": params.get("rope_scaling_factor", 8.0),
        "low_freq_factor": 1.0,
        "high_freq_factor": params.get("high_freq_factor", 4.0),
        "original_max_position_embeddings": 8192,
    }


def _extras(params: Mapping[str, Any]) -> dict[str, Any]:
    """What Mistral's releases add to the same format."""
    extras = {}
    if params.get("head_dim"):
        extras["head_dim"] = params["head_dim"]
    if params.get("sliding_window"):
        extras |= {"model_type": "mistral", "sliding_window": params["sliding_window"]}
        extras["architectures"] = ["MistralForCausalLM"]
    return extras
