"""A path -> a Checkpoint: the description of a model, and its tensors under the Hub's names.

A directory with config.json (or Meta's params.json) and safetensors, .npz or PyTorch weights, one
such weights file beside its description, or a .gguf file. Opening reads descriptions and headers
only; what is wrong with them is said before gigabytes are read.

Blind spot: it doesn't know which tensors the model needs; load.py checks that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import mlx.core as mx

from model.arguments import file_path
from model.config import Config
from model.weights import gguf, meta
from model.weights.config_json import config_from_json
from model.weights.files import (
    FLOAT_DTYPES,
    NUM_BYTES,
    PACKED_DTYPES,
    WEIGHT_SUFFIXES,
    Stored,
    read_json,
    weight_files,
)
from model.weights.gguf import GGUF, unpermute
from model.weights.gguf_blocks import format_of
from model.weights.gguf_config import config_from_gguf
from model.weights.npz import NpzFile
from model.weights.pytorch import PyTorchFile
from model.weights.quantize import Block, Scheme, read_block, unpack
from model.weights.safetensors import SafetensorsFile

Result = TypeVar("Result")
PARTS = ("weight", "scales", "biases")  # of a quantized matrix


class Weights(Protocol):
    """Open files: what they hold, and their tensors one at a time."""

    tensors: Mapping[str, Stored]

    def read(self, name: str) -> mx.array: ...


@dataclass(frozen=True)
class Checkpoint:
    """An opened model.

    description: the file that describes it. format: "safetensors", "npz", "PyTorch" or "GGUF". raw:
    the description as a config.json, None for GGUF. tensors: the Hub's name -> Stored. read: the
    Hub's name -> array; a tensor can be read once. block: config.json's quantization. dtype: what
    the model was published in.
    """

    description: Path
    format: str
    config: Config
    raw: Mapping[str, Any] | None
    tensors: Mapping[str, Stored]
    read: Callable[[str], mx.array]
    dtype: str
    block: Block | None = None

    @property
    def folder(self) -> Path:
        return self.description.parent


def open_checkpoint(path: str | Path, *, packed: bool = False) -> Checkpoint:
    """Read descriptions and headers.

    packed: show a GGUF file's quantized tensors as MLX's three (weight, scales, biases) where MLX
    can compute with them. Raises FileNotFoundError where something isn't there, ValueError where it
    is damaged or unsupported.
    """
    path = file_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} doesn't exist; pass a model's directory or .gguf file")
    if path.is_dir():
        return _open_directory(path, None)
    if path.suffix == ".gguf":
        return _open_gguf(path, packed)
    if path.suffix in WEIGHT_SUFFIXES:
        return _open_directory(path.parent, path)
    raise ValueError(
        f"{path} is neither a directory nor a .gguf file, nor weights in one of"
        f" {', '.join(WEIGHT_SUFFIXES)}; pass the directory that holds config.json and the weights"
    )


def unpacked(
    checkpoint: Checkpoint, schemes: Mapping[str, Scheme], shapes: Mapping[str, tuple[int, ...]]
) -> Checkpoint:
    """The checkpoint with quantized matrices shown as float ones. shapes: path -> what they have
    when unpacked."""
    tensors = dict(checkpoint.tensors)
    for path, scheme in schemes.items():
        parts = [tensors.pop(f"{path}.{part}") for part in PARTS if f"{path}.{part}" in tensors]
        dtype = parts[1].dtype if scheme.has_biases else "F32"
        num_bytes = sum(part.num_bytes for part in parts)
        tensors[f"{path}.weight"] = Stored(parts[0].file, dtype, shapes[path], num_bytes)

    def read(name: str) -> mx.array:
        path = name.removesuffix(".weight")
        if path not in schemes:
            return checkpoint.read(name)
        names = {part: f"{path}.{part}" for part in PARTS}
        held = {part: checkpoint.read(n) for part, n in names.items() if n in checkpoint.tensors}
        return unpack(held, schemes[path])

    return replace(checkpoint, tensors=tensors, read=read, block=None)


def described(file: Path, make: Callable[[], Result]) -> Result:
    """The description's own errors, with its file's name in front."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _dtype(config: Config, tensors: Mapping[str, Stored]) -> str:
    """bfloat16 for GGUF's quantized formats: some activations exceed float16's range."""
    if config.dtype:
        return config.dtype
    if {tensor.dtype for tensor in tensors.values()} - FLOAT_DTYPES.keys() - PACKED_DTYPES.keys():
        return "bfloat16"
    parts = (tensors.get(f"model.embed_tokens.{part}") for part in ("weight", "scales"))
    stored = [part.dtype for part in parts if part and part.dtype in FLOAT_DTYPES]
    return FLOAT_DTYPES[stored[0]] if stored else "bfloat16"


# --- directories ---------------------------------------------------------------------------------

_READERS: Mapping[str, tuple[str, Callable[[Path], Weights]]] = {
    ".safetensors": ("safetensors", SafetensorsFile),
    ".npz": ("npz", NpzFile),
    **dict.fromkeys((".bin", ".pth", ".pt"), ("PyTorch", PyTorchFile)),
}


def _open_directory(folder: Path, file: Path | None) -> Checkpoint:
    """file: the weights; None to look for them."""
    from_params = (folder / "params.json").exists() and not (folder / "config.json").exists()
    description = folder / ("params.json" if from_params else "config.json")
    given = read_json(description)
    files = [file] if file else weight_files(folder)
    format, reader = _READERS[files[0].suffix]
    opened = [reader(each) for each in files]
    of_meta = meta.is_meta(opened[0].tensors)
    if from_params and not of_meta:
        raise ValueError(f"{files[0]} hasn't Meta's names of tensors, and {description} is Meta's")
    weights = _joined(opened, given) if of_meta else _union(opened)
    raw = given
    if from_params:
        shapes = {name: tensor.shape for name, tensor in weights.tensors.items()}
        raw = described(description, lambda: meta.config_of(given, shapes))
    config = described(description, lambda: config_from_json(raw))
    own = {_hub_name(name, of_meta): name for name in weights.tensors}  # the Hub's name -> its own
    tensors = {name: weights.tensors[its] for name, its in own.items()}

    def read(name: str) -> mx.array:
        array = weights.read(own[name])
        return _unpermuted(name, array, config) if of_meta else array

    return Checkpoint(
        description=description,
        format=format,
        config=config,
        raw=raw,
        tensors=tensors,
        read=read,
        dtype=_dtype(config, tensors),
        block=described(description, lambda: _own_block(raw)),
    )


def _hub_name(name: str, of_meta: bool) -> str:
    """mlx-lm calls stacked experts switch_mlp, where ours go by the Hub's word for them."""
    return meta.checkpoint_name(name) if of_meta else name.replace(".switch_mlp.", ".experts.")


def _own_block(raw: Mapping[str, Any]) -> Block | None:
    block = read_block(raw)
    if block is None:
        return None
    overrides = {_hub_name(path, False): scheme for path, scheme in block.overrides.items()}
    return replace(block, overrides=overrides)


@dataclass(frozen=True)
class _Several:
    """Tensors of several files. Each is made by joining parts along an axis."""

    tensors: Mapping[str, Stored]
    parts: Mapping[str, list[Weights]]
    axes: Mapping[str, int | None]

    def read(self, name: str) -> mx.array:
        arrays = [part.read(name) for part in self.parts[name]]
        return arrays[0] if len(arrays) == 1 else mx.concatenate(arrays, axis=self.axes[name])


def _union(opened: list[Weights]) -> Weights:
    """Shards: every tensor is in one of them."""
    if len(opened) == 1:
        return opened[0]
    parts: dict[str, list[Weights]] = {}
    for each in opened:
        for name, tensor in each.tensors.items():
            if name in parts:
                other = parts[name][0].tensors[name].file
                raise ValueError(
                    f"tensor {name} is in {other.name} and in {tensor.file} as well, and nothing"
                    " says which counts; download them again"
                )
            parts[name] = [each]
    tensors = {name: held[0].tensors[name] for name, held in parts.items()}
    return _Several(tensors, parts, {})


def _joined(opened: list[Weights], given: Mapping[str, Any]) -> Weights:
    """Meta's parts: every tensor is in all of them."""
    tensors, parts, axes = {}, {}, {}
    width = given.get("dim") or given.get("hidden_size")
    for name in opened[0].tensors:
        if any(name not in each.tensors for each in opened):
            raise ValueError(f"tensor {name} is not in all {len(opened)} parts; one is damaged")
        stored = [each.tensors[name] for each in opened]
        axis = meta.joined_axis(name, stored, width)
        tensors[name], axes[name] = _stored_joined(stored, axis), axis
        parts[name] = opened if axis is not None else opened[:1]
    return _Several(tensors, parts, axes)


def _stored_joined(parts: list[Stored], axis: int | None) -> Stored:
    first = parts[0]
    if axis is None:
        return first
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Stored(first.file, first.dtype, tuple(shape), sum(part.num_bytes for part in parts))


def _unpermuted(name: str, array: mx.array, config: Config) -> mx.array:
    """Meta's releases, and GGUF files of that family, keep rotary pairs in neighbouring rows."""
    if ".self_attn.q_proj." in name:
        return unpermute(array, config.num_attention_heads)
    if ".self_attn.k_proj." in name:
        return unpermute(array, config.num_key_value_heads)
    return array


# --- GGUF ----------------------------------------------------------------------------------------


def _open_gguf(path: Path, packed: bool) -> Checkpoint:
    opened = gguf.open_whole(path)
    config = described(path, lambda: _gguf_config(opened))
    names = {gguf.checkpoint_name(name): name for name in opened.tensors}
    tensors = {
        name: Stored(info.file, info.format, info.shape, info.num_bytes)
        for name, info in ((name, opened.tensors[own]) for name, own in names.items())
    }
    dtype = _dtype(config, tensors)
    repacked = {
        name for name, tensor in tensors.items() if packed and format_of(tensor.dtype).packed_bits
    }
    for name in repacked:
        tensors |= _packed_tensors(name.removesuffix(".weight"), tensors[name])

    def read(name: str) -> mx.array:
        path, _, part = name.rpartition(".")
        if part in PARTS and f"{path}.weight" in repacked:
            array = opened.read_packed(names[f"{path}.weight"])[part]
        else:
            array = opened.read(names[name])
        return _unpermuted(name, array, config) if config.model_type == "llama" else array

    return Checkpoint(
        description=path,
        format="GGUF",
        config=config,
        raw=None,
        tensors=tensors,
        read=read,
        dtype=dtype,
    )


def _packed_tensors(path: str, tensor: Stored) -> dict[str, Stored]:
    """The three that `GGUF.read_packed` makes of one."""
    *outer, dims_in = tensor.shape
    bits = format_of(tensor.dtype).packed_bits
    shapes = {"weight": (*outer, dims_in * bits // 32)}
    shapes |= dict.fromkeys(("scales", "biases"), (*outer, dims_in // 32))
    made = {}
    for part, shape in shapes.items():
        dtype = "U32" if part == "weight" else "F32"
        num_bytes = NUM_BYTES[dtype]
        for size in shape:
            num_bytes *= size
        made[f"{path}.{part}"] = Stored(tensor.file, dtype, shape, num_bytes)
    return made


def _gguf_config(opened: GGUF) -> Config:
    shapes = {name: info.shape for name, info in opened.tensors.items()}
    divisors = ()
    if "rope_freqs.weight" in shapes:
        divisors = tuple(opened.read("rope_freqs.weight").reshape(-1).tolist())
    return config_from_gguf(opened.metadata, shapes, rope_divisors=divisors)
