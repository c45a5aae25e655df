"""config.json's object -> Config, as transformers 4 and 5 write it.

What it asks for and this package doesn't do is refused by name, never skipped: a skipped field
makes plausible nonsense.

Blind spot: it doesn't see the weights; load.py checks that they agree.
"""

from collections.abc import Mapping
from typing import Any

from model.config import Config, Family, check_family, check_size
from model.rope import TYPES, Rope, yarn_attention_factor

_LARGEST = 2.0**127  # of float32's powers of two


def config_from_json(raw: Mapping[str, Any]) -> Config:
    """Raises ValueError naming the key that is missing, malformed or asks for something that isn't
    implemented."""
    model_type = raw.get("model_type")
    family = check_family(model_type)
    _refuse_unsupported(raw)
    heads, width = require(raw, "num_attention_heads"), require(raw, "hidden_size")
    context = require(raw, "max_position_embeddings")
    check_size("max_position_embeddings", context)
    return Config(
        model_type=model_type,
        vocab_size=require(raw, "vocab_size"),
        hidden_size=width,
        intermediate_size=require(raw, "intermediate_size"),
        num_hidden_layers=require(raw, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=_first(raw.get("num_key_value_heads", family.key_value_heads), heads),
        head_dim=_first(raw.get("head_dim", family.head_dim), _head_dim(width, heads)),
        max_position_embeddings=context,
        rms_norm_eps=number(raw, "rms_norm_eps", 1e-6),
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


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Everything a config.json may turn on that would change the arithmetic."""
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):  # one function, two names
        raise ValueError(f"hidden_act {raw['hidden_act']!r} is not supported, only 'silu'")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not supported, only whole heads are rotated")


_SLIDING, _FULL = "sliding_attention", "full_attention"


def _sliding_from_dict(raw: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The layers that transformers gives a window, by layer_types or by the family's switch."""
    num_layers = require(raw, "num_hidden_layers")
    check_size("num_hidden_layers", num_layers)
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
        theta=_first(scaling.get("rope_theta"), number(raw, "rope_theta", 10000.0)),
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
    if not (original := number({key: _first(own, top)}, key, context)) >= 1:
        raise ValueError(f"{key} must be at least 1, found {original!r}")
    return original


def _check_rope_parameters(rope_type: str, scaling: Mapping[str, Any]) -> None:
    if rope_type not in TYPES:
        raise ValueError(f"rope type {rope_type!r} is not supported; supported: {', '.join(TYPES)}")
    if unknown := sorted(scaling.keys() - _ROPE_KEYS):
        raise ValueError(f"rope parameters {unknown} of type {rope_type!r} are not supported")
    for key in scaling.keys() - {"truncate"}:
        number(scaling, key, 0)
    _flag(scaling, "truncate")
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not supported, only whole heads are rotated")
    if rope_type != "default":
        require(scaling, "factor", "the rope parameters")


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
    check_size("decoder_sparse_step", step)
    check_size("num_hidden_layers", raw.get("num_hidden_layers"))
    layers = range(raw["num_hidden_layers"])
    renamed = raw.get("num_experts") is None and raw.get("num_local_experts") is not None
    return {
        # Transformers 5 writes the other name.
        "num_experts": require(raw, "num_local_experts" if renamed else "num_experts"),
        "num_experts_per_tok": require(raw, "num_experts_per_tok"),
        "moe_intermediate_size": require(raw, "moe_intermediate_size"),
        "norm_topk_prob": _flag(raw, "norm_topk_prob"),
        "sparse_layers": tuple(i for i in layers if i not in dense and (i + 1) % step == 0),
    }


# --- single values -----------------------------------------------------------------------------


def require(raw: Mapping[str, Any], key: str, where: str = "the description") -> Any:
    if raw.get(key) is None:
        raise ValueError(f"{key} is missing from {where}, and no default is safe")
    return raw[key]


def _first(*values: Any) -> Any:
    """The first value that is not None, or None."""
    return next((value for value in values if value is not None), None)


def _head_dim(width: Any, heads: Any) -> int:
    """hidden_size / num_attention_heads, what head_dim is where it isn't given."""
    check_size("hidden_size", width)
    check_size("num_attention_heads", heads)
    return width // heads


def _count(name: str | None, value: Any) -> int:
    """A number of layers; 0 is one too."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a number of layers, found {value!r}")
    return value


def number(raw: Mapping[str, Any], key: str, default: float) -> float:
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
