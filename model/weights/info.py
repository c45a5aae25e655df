"""a model's files -> what they hold and what running it takes, from headers alone.

Blind spot: it measures nothing. The memory of a forward pass is left out: it is small beside
weights and cache.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

from model.arguments import file_path
from model.config import Config
from model.weights import memory
from model.weights.checkpoint import open_checkpoint
from model.weights.files import Stored, weight_files
from model.weights.load import check_dtype, default_dtype, dtype_name, fit, needed, num_bytes
from model.weights.safetensors import SafetensorsFile

DEFAULT_CONTEXT = 4096  # positions, where none are asked for and the model takes as many


@dataclass(frozen=True, kw_only=True)
class Info:
    """Sizes in bytes. What isn't known, as of a file without a description, is None.

    formats: how tensors are stored -> bytes of them. dtype: what the weights are loaded as, and
    weight_bytes what they take then. context: how many positions kv_bytes and needed_bytes are for.
    fits: whether needed_bytes are available on this machine.
    """

    path: str
    format: str
    architecture: str | None = None
    parameters: int
    file_bytes: int
    bits_per_weight: float
    formats: Mapping[str, int]
    quantization: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    experts: str | None = None
    sliding_window: int | None = None
    max_context: int | None = None
    dtype: str | None = None
    weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    context: int | None = None
    kv_bytes: int | None = None
    needed_bytes: int | None = None
    available_bytes: int | None = None
    fits: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect(
    path: str | Path,
    *,
    context: int | None = None,
    dtype: str | None = None,
    quantized: bool | None = None,
) -> Info:
    """Read descriptions and headers, as `load` with these arguments would, and add up.

    A .safetensors file that is not a whole model with its description is shown as far as its
    header goes.
    Raises what `load` raises before it reads weights, and ValueError for a context that the model
    doesn't have.
    """
    path = file_path(path)
    if path.suffix == ".safetensors" and path.is_file() and not _is_whole(path):
        return _of_tensors(path)
    kind = check_dtype(dtype)
    stored = needed(open_checkpoint(path))
    checkpoint = open_checkpoint(path, packed=quantized is True)
    kind = kind or default_dtype(checkpoint)
    fitted = fit(checkpoint, kind, keep=quantized is not False)
    file_bytes = sum(tensor.num_bytes for tensor in stored.values())
    return Info(
        path=str(path),
        format=checkpoint.format,
        parameters=fitted.num_parameters,
        file_bytes=file_bytes,
        bits_per_weight=8 * file_bytes / fitted.num_parameters,
        formats=_formats(stored),
        quantization=_quantization(fitted.schemes.values()),
        dtype=dtype_name(kind),
        **_measurements(checkpoint.config),
        **_memory(checkpoint.config, kind, num_bytes(fitted.model, kind), context),
    )


def _is_whole(path: Path) -> bool:
    """Not a shard, nor a file without a description."""
    described = any((path.parent / name).exists() for name in ("config.json", "params.json"))
    return described and weight_files(path.parent) == [path]


def _of_tensors(path: Path) -> Info:
    tensors = SafetensorsFile(path).tensors
    file_bytes = sum(tensor.num_bytes for tensor in tensors.values())
    parameters = sum(_count(name, tensors) for name in tensors)
    return Info(
        path=str(path),
        format="safetensors",
        parameters=parameters,
        file_bytes=file_bytes,
        bits_per_weight=8 * file_bytes / max(1, parameters),
        formats=_formats(tensors),
    )


def _count(name: str, tensors: Mapping[str, Stored]) -> int:
    """Parameters of one tensor; packed ones can't be counted without their bits a value."""
    tensor = tensors[name]
    if tensor.dtype in ("U32", "U8"):
        raise ValueError(
            f"{tensor.file} holds quantized weights, and no config.json beside it says how many"
            " values they pack; pass the model's directory"
        )
    return prod(tensor.shape)


def _formats(tensors: Mapping[str, Stored]) -> dict[str, int]:
    counts = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += tensor.num_bytes
    return dict(counts.most_common())


def _quantization(schemes: Any) -> str | None:
    """Such as "affine 4 bits in groups of 64 (197 matrices)", the most frequent first."""
    counts = Counter(schemes).most_common()
    return ", ".join(f"{scheme} ({count} matrices)" for scheme, count in counts) or None


def _measurements(config: Config) -> dict[str, Any]:
    experts = None
    if config.sparse_layers:
        experts = f"{config.num_experts}, {config.num_experts_per_tok} a token"
    return {
        "architecture": config.model_type,
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "experts": experts,
        "sliding_window": config.sliding_window or None,
        "max_context": config.context,
    }


def _memory(config: Config, kind: mx.Dtype, weights: int, context: int | None) -> dict[str, Any]:
    if context is not None and not 0 < context <= config.context:
        raise ValueError(
            f"a context of {context} positions was asked for, and the model takes 1 to"
            f" {config.context}"
        )
    positions = context or min(DEFAULT_CONTEXT, config.context)
    per_token = memory.kv_bytes_per_token(config, kind)
    total = weights + positions * per_token
    available = memory.available_bytes()
    return {
        "weight_bytes": weights,
        "kv_bytes_per_token": per_token,
        "context": positions,
        "kv_bytes": positions * per_token,
        "needed_bytes": total,
        "available_bytes": available,
        "fits": None if available is None else total <= available,
    }
