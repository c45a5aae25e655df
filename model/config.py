"""config.json or GGUF metadata -> one frozen, validated Config.

Every difference between families is a row of FAMILIES or a field of Config. What a description
asks for and this package doesn't do is refused by name, never skipped: a skipped field makes
plausible nonsense.

Blind spot: it sees descriptions only; load.py checks that the weights agree with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model.rope import TYPES, Rope, yarn_attention_factor

FLOAT_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Family:
    """What every checkpoint of a model_type has and config.json doesn't say, or leaves out.

    A bias is True, False, or the name of the config.json key that decides. sliding_switch: the
    key that turns sliding windows on where no layer_types are given; sliding_start: the key of the
    first layer that has one, None where all have. head_dim, key_value_heads: what a missing key
    stands for; None, like a null: hidden_size / num_attention_heads, num_attention_heads.
    """

    qk_norm: bool = False
    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = False
    experts: bool = False
    sliding_switch: str | None = None
    sliding_start: str | None = None
    head_dim: int | None = None
    key_value_heads: int | None = None


_UPPER_LAYERS = {"sliding_switch": "use_sliding_window", "sliding_start": "max_window_layers"}
FAMILIES: dict[str, Family] = {  # model_type -> Family
    "llama": Family(mlp_bias="mlp_bias"),
    "qwen2": Family(qkv_bias=True, o_bias=False, key_value_heads=32, **_UPPER_LAYERS),
    "qwen3": Family(qk_norm=True, head_dim=128, key_value_heads=32, **_UPPER_LAYERS),
    "qwen3_moe": Family(
        qk_norm=True, experts=True, sliding_switch="use_sliding_window", key_value_heads=4
    ),
    "mistral": Family(
        qkv_bias=False, o_bias=False, sliding_switch="sliding_window", key_value_heads=8
    ),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder's measurements. Field names are config.json's where it has one.

    sparse_layers: the layers whose MLP is a mixture of experts. sliding_layers: those whose
    queries see the last sliding_window positions only, their own included. dtype: what the weights
    were published in, None where the description doesn't say.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: Rope = field(default_factory=Rope)
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    dtype: str | None = None
    bos_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    sliding_layers: tuple[int, ...] = ()
    sliding_window: int = 0
    sparse_layers: tuple[int, ...] = ()
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False

    def __post_init__(self) -> None:
        _check_family(self.model_type)
        sizes = _SIZES + (_EXPERT_SIZES if self.sparse_layers else ())
        for name in sizes + (("sliding_window",) if self.sliding_layers else ()):
            _check_size(name, getattr(self, name))
        _check_size("num_attention_heads * head_dim", self.num_attention_heads * self.head_dim)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of"
                f" num_key_value_heads ({self.num_key_value_heads}), which share them equally"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even, as rotary pairs are, found {self.head_dim}")
        if not self.rms_norm_eps > 0:
            raise ValueError(f"rms_norm_eps must be above 0, found {self.rms_norm_eps!r}")
        if self.dtype not in (None, *FLOAT_TYPES):
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(FLOAT_TYPES)}")
        if self.sparse_layers and self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok ({self.num_experts_per_tok}) exceeds"
                f" num_experts ({self.num_experts})"
            )

    @property
    def context(self) -> int:
        """How many positions the model takes. YaRN is often added without raising
        max_position_embeddings, so its own reach counts where it is longer."""
        if self.rope.type != "yarn":
            return self.max_position_embeddings
        return max(self.max_position_embeddings, int(self.rope.original_context * self.rope.factor))

    def __repr__(self) -> str:
        """In one line what tells models apart; there are many more fields."""
        return (
            f"Config({self.model_type}, {self.num_hidden_layers} layers of {self.hidden_size},"
            f" vocabulary {self.vocab_size:,}, context {self.context:,})"
        )

    def is_sparse(self, layer: int) -> bool:
        """Whether the layer's MLP is a mixture of experts."""
        return layer in self.sparse_layers

    def window(self, layer: int) -> int | None:
        """How many positions a query of the layer sees, its own included; None for all."""
        return self.sliding_window if layer in self.sliding_layers else None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "Config":
        """config.json, as transformers 4 and 5 write it.

        Raises ValueError naming the key that is missing, malformed or asks for something that
        isn't implemented.
        """
        model_type = raw.get("model_type")
        family = _check_family(model_type)
        _refuse_unsupported(raw)
        heads, width = _require(raw, "num_attention_heads"), _require(raw, "hidden_size")
        context = _require(raw, "max_position_embeddings")
        _check_size("max_position_embeddings", context)
        return cls(
            model_type=model_type,
            vocab_size=_require(raw, "vocab_size"),
            hidden_size=width,
            intermediate_size=_require(raw, "intermediate_size"),
            num_hidden_layers=_require(raw, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=_first(
                raw.get("num_key_value_heads", family.key_value_heads), heads
            ),
            head_dim=_first(raw.get("head_dim", family.head_dim), _head_dim(width, heads)),
            max_position_embeddings=context,
            rms_norm_eps=_number(raw, "rms_norm_eps", 1e-6),
            rope=_rope_from_dict(raw, context),
            tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
            qk_norm=family.qk_norm,
            qkv_bias=_flag(raw, family.qkv_bias),
            o_bias=_flag(raw, family.o_bias),
            mlp_bias=_flag(raw, family.mlp_bias),
            dtype=_dtype(_first(raw.get("dtype"), raw.get("torch_dtype"))),
            bos_token_ids=_ids(raw, "bos_token_id"),
            eos_token_ids=_ids(raw, "eos_token_id"),
            **_sliding_from_dict(raw, family),
            **(_experts_from_dict(raw) if family.experts else {}),
        )

    @classmethod
    def from_gguf(
        cls,
        metadata: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        rope_divisors: tuple[float, ...] = (),
    ) -> "Config":
        """GGUF metadata (`general.architecture` and that architecture's keys).

        shapes: tensor name (GGUF's) -> shape, row-major; the vocabulary's size, the biases and
        a tied head are told by which tensors there are. rope_divisors: `rope_freqs.weight`.
        """
        arch = metadata.get("general.architecture")
        family = _refuse_unsupported_gguf(metadata, arch)
        if "token_embd.weight" not in shapes:
            raise ValueError("tensor token_embd.weight is missing, so there is no vocabulary")
        raw = {key: metadata.get(f"{arch}.{name}") for key, name in _GGUF_OPTIONAL.items()}
        raw |= {key: _require(metadata, f"{arch}.{name}") for key, name in _GGUF_REQUIRED.items()}
        raw |= {
            "model_type": family,
            "vocab_size": shapes["token_embd.weight"][0],
            "tie_word_embeddings": "output.weight" not in shapes,
            "attention_bias": "blk.0.attn_q.bias" in shapes,
            "mlp_bias": "blk.0.ffn_down.bias" in shapes,
            "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
            "rope_parameters": _rope_from_gguf(metadata, arch),
            **(_experts_from_gguf(metadata, arch, shapes) if FAMILIES[family].experts else {}),
        }
        config = cls.from_dict(raw)
        rotated = metadata.get(f"{arch}.rope.dimension_count", config.head_dim)
        if rotated != config.head_dim:
            raise ValueError(
                f"{arch}.rope.dimension_count {rotated} differs from the head size"
                f" {config.head_dim}; only whole heads are rotated"
            )
        return replace(config, rope=replace(config.rope, divisors=rope_divisors))


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)
_EXPERT_SIZES = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_MOST = {"num_hidden_layers": 2**16, "num_experts": 2**16}  # more would fill memory before an error
_LARGEST = 2.0**127  # of float32's powers of two

# --- config.json -------------------------------------------------------------------------------


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Everything a config.json may turn on that would change the arithmetic."""
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):  # one function, two names
        raise ValueError(f"hidden_act {raw['hidden_act']!r} is not supported, only 'silu'")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not supported, only whole heads are rotated")


_SLIDING, _FULL = "sliding_attention", "full_attention"


def _sliding_from_dict(raw: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The layers that transformers gives a window, by layer_types or by the family's switch."""
    num_layers = _require(raw, "num_hidden_layers")
    _check_size("num_hidden_layers", num_layers)
    given = _list(raw, "layer_types")
    # transformers' default; null is none
    window = raw.get("sliding_window", 4096 if family.sliding_switch else None)
    if given:
        _check_layer_types(given, num_layers)
        layers = tuple(i for i, kind in enumerate(given) if kind == _SLIDING)
    elif window is not None and _is_on(raw, family.sliding_switch):
        start = _first(raw.get(family.sliding_start), 28) if family.sliding_start else 0
        layers = tuple(range(_count(family.sliding_start, start), num_layers))
    else:
        layers = ()
    if layers and (window is None or raw.get("use_sliding_window") is False):
        raise ValueError(
            f"layer_types has {_SLIDING}, but there is no sliding_window or use_sliding_window is"
            " false; the two contradict each other"
        )
    return {"sliding_layers": layers, "sliding_window": window} if layers else {}


def _check_layer_types(given: list, num_layers: int) -> None:
    if other := [kind for kind in given if kind not in (_SLIDING, _FULL)]:
        raise ValueError(f"layer_types {other[0]!r} is not supported, only {_FULL} and {_SLIDING}")
    if len(given) != num_layers:
        raise ValueError(f"layer_types lists {len(given)} layers, but there are {num_layers}")


def _is_on(raw: Mapping[str, Any], switch: str | None) -> bool:
    """Mistral's switch is the window's own size."""
    return switch == "sliding_window" or (switch is not None and _flag(raw, switch))


def _rope_from_dict(raw: Mapping[str, Any], context: int) -> Rope:
    """Transformers 5 keeps everything in rope_parameters, 4 in rope_theta and rope_scaling."""
    old, new = raw.get("rope_scaling"), raw.get("rope_parameters")
    given = old or new or {}
    if type(given) is not dict:
        raise ValueError(f"rope parameters must be an object, found {given!r}")
    if old and new and old != new:
        raise ValueError("rope_scaling and rope_parameters are both given and differ; keep one")
    scaling = {key: value for key, value in given.items() if value is not None}
    rope_type = _first(scaling.pop("rope_type", None), scaling.pop("type", None), "default")
    scaling.pop("type", None)
    _check_rope_parameters(rope_type, scaling)
    return Rope(
        type=rope_type,
        theta=_first(scaling.get("rope_theta"), _number(raw, "rope_theta", 10000.0)),
        original_context=_original_context(raw, scaling, context),
        attention_factor=_attention_factor(rope_type, scaling),
        **{key: scaling[key] for key in _ROPE_FIELDS if key in scaling},
    )


def _original_context(raw: Mapping[str, Any], scaling: Mapping[str, Any], context: int) -> float:
    """Transformers 5 lets one at the top level win, and 4 doesn't look there."""
    key = "original_max_position_embeddings"
    top, own = raw.get(key), scaling.get(key)
    if top is not None and own is not None and top != own:
        raise ValueError(f"{key} is {own!r} in the rope parameters and {top!r} outside; keep one")
    if not (original := _number({key: _first(own, top)}, key, context)) >= 1:
        raise ValueError(f"{key} must be at least 1, found {original!r}")
    return original


def _check_rope_parameters(rope_type: str, scaling: Mapping[str, Any]) -> None:
    if rope_type not in TYPES:
        raise ValueError(f"rope type {rope_type!r} is not supported; supported: {', '.join(TYPES)}")
    if unknown := sorted(scaling.keys() - _ROPE_KEYS):
        raise ValueError(f"rope parameters {unknown} of type {rope_type!r} are not supported")
    for key in scaling.keys() - {"truncate"}:
        _number(scaling, key, 0)
    _flag(scaling, "truncate")
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not supported, only whole heads are rotated")
    if rope_type != "default":
        _require(scaling, "factor", "the rope parameters")


_ROPE_FIELDS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "truncate",
)
_ROPE_KEYS = {
    *_ROPE_FIELDS,
    "rope_theta",
    "original_max_position_embeddings",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "partial_rotary_factor",
}


def _attention_factor(rope_type: str, scaling: Mapping[str, Any]) -> float:
    if rope_type != "yarn":
        return 1.0
    if "attention_factor" in scaling:
        return scaling["attention_factor"]
    factor, mscale, all_dims = (scaling.get(k) for k in ("factor", "mscale", "mscale_all_dim"))
    if min(mscale or 0, all_dims or 0) < 0:
        raise ValueError(f"mscale must not be negative, found {mscale!r} and {all_dims!r}")
    if mscale and all_dims:
        return yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, all_dims)
    return yarn_attention_factor(factor)


def _experts_from_dict(raw: Mapping[str, Any]) -> dict[str, Any]:
    step, dense = _first(raw.get("decoder_sparse_step"), 1), _list(raw, "mlp_only_layers")
    _check_size("decoder_sparse_step", step)
    _check_size("num_hidden_layers", raw.get("num_hidden_layers"))
    layers = range(raw["num_hidden_layers"])
    renamed = raw.get("num_experts") is None and raw.get("num_local_experts") is not None
    return {
        # Transformers 5 writes the other name.
        "num_experts": _require(raw, "num_local_experts" if renamed else "num_experts"),
        "num_experts_per_tok": _require(raw, "num_experts_per_tok"),
        "moe_intermediate_size": _require(raw, "moe_intermediate_size"),
        "norm_topk_prob": _flag(raw, "norm_topk_prob"),
        "sparse_layers": tuple(i for i in layers if i not in dense and (i + 1) % step == 0),
    }


# --- GGUF --------------------------------------------------------------------------------------

_GGUF_ARCHITECTURES = {  # GGUF's -> model_type
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
}
_GGUF_REQUIRED = {  # config.json's key -> GGUF's, under the architecture's name
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_GGUF_OPTIONAL = {
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
}
_GGUF_EXPERTS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_GGUF_ROPE = {
    "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}
_GGUF_REFUSED = (
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


def _refuse_unsupported_gguf(metadata: Mapping[str, Any], arch: Any) -> str:
    """-> the architecture's model_type."""
    if arch not in _GGUF_ARCHITECTURES:
        raise ValueError(
            f"architecture {arch!r} is not supported in GGUF files;"
            f" supported: {', '.join(_GGUF_ARCHITECTURES)}"
        )
    known = {*_GGUF_ROPE.values(), "type", "finetuned", "attn_factor"}
    for key, value in metadata.items():
        asked = key.removeprefix(f"{arch}.")
        scaling = asked.startswith("rope.scaling.") and asked.split(".")[-1] not in known
        sees_ahead = asked == "attention.causal" and value is not True
        expert = asked.startswith("expert_") and not FAMILIES[_GGUF_ARCHITECTURES[arch]].experts
        if scaling or sees_ahead or ((expert or asked in _GGUF_REFUSED) and value):
            raise ValueError(f"{key} = {value!r} is not supported")
    return _GGUF_ARCHITECTURES[arch]


def _experts_from_gguf(
    metadata: Mapping[str, Any], arch: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Which layers are sparse is told by their tensors. That the chosen experts' weights are made
    to sum to one is true of every published Qwen3-MoE, and few files say it."""
    num_layers = _require(metadata, f"{arch}.block_count")
    _check_size("num_hidden_layers", num_layers)
    dense = [i for i in range(num_layers) if f"blk.{i}.ffn_gate_exps.weight" not in shapes]
    given = {key: _require(metadata, f"{arch}.{name}") for key, name in _GGUF_EXPERTS.items()}
    norm = metadata.get(f"{arch}.expert_weights_norm", True)
    return given | {"norm_topk_prob": norm, "mlp_only_layers": dense}


def _rope_from_gguf(metadata: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """The settings in config.json's terms."""
    scaling = {key: metadata.get(f"{arch}.rope.scaling.{name}") for key, name in _GGUF_ROPE.items()}
    rope_type = metadata.get(f"{arch}.rope.scaling.type", "none")
    if rope_type == "none":
        return {}
    if rope_type == "yarn":
        sharper = _number(metadata, f"{arch}.rope.scaling.attn_factor", 1.0)
        _require(metadata, f"{arch}.rope.scaling.factor")
        factor = _number(metadata, f"{arch}.rope.scaling.factor", 1.0)
        scaling["attention_factor"] = sharper * yarn_attention_factor(factor)
    return {"rope_type": rope_type, **scaling}


# --- single values -----------------------------------------------------------------------------


def _check_family(model_type: Any) -> Family:
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(
            f"model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def _check_size(name: str, value: Any) -> None:
    most = _MOST.get(name, 2**31)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < most:
        bound = f"2**{most.bit_length() - 1}"
        raise ValueError(f"{name} must be a positive integer below {bound}, found {value!r}")


def _require(raw: Mapping[str, Any], key: str, where: str = "the description") -> Any:
    if raw.get(key) is None:
        raise ValueError(f"{key} is missing from {where}, and no default is safe")
    return raw[key]


def _first(*values: Any) -> Any:
    """The first value that is not None, or None."""
    return next((value for value in values if value is not None), None)


def _head_dim(width: Any, heads: Any) -> int:
    """hidden_size / num_attention_heads, what head_dim is where it isn't given."""
    _check_size("hidden_size", width)
    _check_size("num_attention_heads", heads)
    return width // heads


def _count(name: str | None, value: Any) -> int:
    """A number of layers; 0 is one too."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a number of layers, found {value!r}")
    return value


def _number(raw: Mapping[str, Any], key: str, default: float) -> float:
    value = _first(raw.get(key), default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"{key} must be a finite number, found {value!r}")
    return value


def _flag(raw: Mapping[str, Any], key: bool | str) -> bool:
    """A family's own answer, or config.json's (absent and null are False)."""
    value = key if isinstance(key, bool) else _first(raw.get(key), False)
    if value is not True and value is not False:
        raise ValueError(f"{key} must be true or false, found {value!r}")
    return value


def _list(raw: Mapping[str, Any], key: str) -> list:
    value = _first(raw.get(key), [])
    if type(value) is not list:
        raise ValueError(f"{key} must be a list, found {value!r}")
    return value


def _dtype(name: Any) -> str | None:
    return name.removeprefix("torch.") if isinstance(name, str) else name


def _ids(raw: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """An id, a list of ids, or nothing."""
    value = _first(raw.get(key), [])
    ids = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in ids:
        if isinstance(one, bool) or not isinstance(one, int) or one < 0:
            raise ValueError(f"{key} must be an id or a list of ids, found {value!r}")
    return ids
