"""a model's measurements -> one frozen, validated Config, and what each family has of its own.

Every difference between families is a row of FAMILIES or a field of Config.

Blind spot: how files spell them (weights/config_json.py, weights/gguf_config.py), and the weights.
"""

from dataclasses import dataclass, field
from typing import Any

from model.rope import Rope

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
        check_family(self.model_type)
        sizes = _SIZES + (_EXPERT_SIZES if self.sparse_layers else ())
        for name in sizes + (("sliding_window",) if self.sliding_layers else ()):
            check_size(name, getattr(self, name))
        check_size("num_attention_heads * head_dim", self.num_attention_heads * self.head_dim)
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


def check_family(model_type: Any) -> Family:
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(
            f"model_type {model_type!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def check_size(name: str, value: Any) -> None:
    most = _MOST.get(name, 2**31)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < most:
        bound = f"2**{most.bit_length() - 1}"
        raise ValueError(f"{name} must be a positive integer below {bound}, found {value!r}")
