"""A directory, a .gguf or another weights file -> Transformer, its weights read and checked.

Everything is checked from headers before a weight is read: that each file is there and whole,
that the tensors' names, shapes and types are exactly those the description asks for, and that
they fit into memory.

Blind spot: it checks shapes, not values; a checkpoint with the right shapes and wrong numbers
loads.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from model import cpu
from model.arguments import file_path
from model.config import FLOAT_TYPES
from model.cpu import layout
from model.moe import checkpoint_names
from model.transformer import Block, Transformer
from model.weights import memory
from model.weights.checkpoint import Checkpoint, described, open_checkpoint, unpacked
from model.weights.files import (
    FLOAT_DTYPES,
    NUM_BYTES,
    PACKED_DTYPES,
    Stored,
    and_others,
    cpu_stream,
)
from model.weights.quantize import Scheme, matrices, prepare, schemes_of
from model.weights.safetensors import begin_import

NUM_LANES = 2  # parts of a model that a CPU loads at the same time
_DTYPES = {name: getattr(mx, name) for name in FLOAT_TYPES}  # name -> MLX's type


def load(
    path: str | Path,
    dtype: str | mx.Dtype | None = None,
    *,
    quantized: bool | None = None,
    force: bool = False,
) -> Transformer:
    """Read a model: a directory with config.json and weights, or a .gguf file.

    Weights are safetensors, .npz or PyTorch files; nothing in them is ever run. Meta's releases
    have params.json instead of config.json.

    dtype: "float32", "float16", "bfloat16" or MLX's own. None is float32 on a CPU, where products
    of the shorter types are slow, and elsewhere what the checkpoint was published in; bfloat16 for
    quantized GGUF files, because some models' activations exceed float16's range.

    quantized: None keeps MLX's quantized directories as they are and makes floats of GGUF files.
    True keeps those GGUF formats packed that MLX computes with (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
    Q5_K): less memory, slower on a CPU. False makes floats of everything.

    force: load even if memory seems too small.

    Raises FileNotFoundError where something isn't there, ValueError where it is damaged,
    unsupported or contradicts its description, NotEnoughMemory (a RuntimeError) where the weights
    won't fit.
    """
    path, dtype = file_path(path), check_dtype(dtype)
    begin_import(path)  # while enable() looks how busy the cores are
    cpu.enable()
    checkpoint = open_checkpoint(path, packed=quantized is True)
    dtype = dtype or default_dtype(checkpoint)
    fitted = fit(checkpoint, dtype, keep=quantized is not False)
    if not force:
        what = f"the weights of {path} as {dtype_name(dtype)}"
        memory.check(num_bytes(fitted.model, dtype), what)
    _fill(fitted, dtype)
    return fitted.model


@dataclass(frozen=True)
class Fitted:
    """A checkpoint, and the still empty model that its headers agree with.

    names: parameter -> the tensors that make it. schemes: path of a quantized module -> its scheme.
    num_parameters: as many as the model has unquantized.
    """

    checkpoint: Checkpoint
    model: Transformer
    names: Mapping[str, list[str]]
    schemes: Mapping[str, Scheme]
    num_parameters: int


def fit(checkpoint: Checkpoint, dtype: mx.Dtype = mx.float32, *, keep: bool = True) -> Fitted:
    """Build the model that is described and check every tensor against it, by headers alone.

    dtype: what the activations will have. keep: leave quantized matrices quantized.
    """
    if checkpoint.config.num_hidden_layers > len(checkpoint.tensors) + 1000:  # slow to build
        raise ValueError(
            f"{checkpoint.description} describes {checkpoint.config.num_hidden_layers} layers, and"
            f" there are only {len(checkpoint.tensors)} tensors; they belong to different models"
        )
    m = Transformer(checkpoint.config)
    num_parameters = sum(array.size for _, array in tree_flatten(m.parameters()))
    schemes = described(
        checkpoint.description, lambda: schemes_of(m, checkpoint.tensors, checkpoint.block)
    )
    if not keep:
        shapes = {path: module.weight.shape for path, module in matrices(m).items()}
        checkpoint, schemes = unpacked(checkpoint, schemes, shapes), {}
    prepare(m, schemes, dtype)
    return Fitted(checkpoint, m, _match(m, checkpoint), schemes, num_parameters)


def _fill(fitted: Fitted, dtype: mx.Dtype) -> None:
    """Read the weights, and lay them out as this device multiplies them fastest."""
    m, is_moved = fitted.model, layout.is_worthwhile(dtype)
    head = "model.embed_tokens" if m.config.tie_word_embeddings else "lm_head"
    parts, lanes = _parts(fitted.names), _make_lanes()
    # The head first: it is the largest, and while it is converted it is in memory twice.
    for path in sorted(parts, key=lambda path: path != head):
        part = attrgetter(path)(m) if isinstance(path, str) else m.model.layers[path]
        lane = min(lanes, key=lambda lane: lane.num_values)
        with lane.context:
            m.load_weights([(name, _stored(fitted, name)) for name in parts[path]], strict=False)
            if is_moved and isinstance(part, Block):
                part.lay_out(dtype)
            elif is_moved and path == head:
                layout.lay_out(part, dtype)
            part.apply(lambda array: _as(dtype, array))
            lane.run(part)
    for lane in lanes:
        lane.finish()


def _parts(names: Iterable[str]) -> dict[str | int, list[str]]:
    """Names of parameters by what is loaded together: a layer (its number) or a module (its path).

    >>> _parts(["model.norm.weight", "model.layers.3.mlp.up_proj.weight"])
    {'model.norm': ['model.norm.weight'], 3: ['model.layers.3.mlp.up_proj.weight']}
    """
    parts = {}
    for name in names:
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        parts.setdefault(int(layer[1]) if layer else name.rpartition(".")[0], []).append(name)
    return parts


@dataclass
class _Lane:
    """Parts of a model that MLX computes one after another, beside those of other lanes."""

    context: AbstractContextManager
    num_values: int = 0  # given to it so far
    last: nn.Module | None = None

    def run(self, part: nn.Module) -> None:
        """Compute its parameters as soon as those of the part before it are there."""
        self.finish()  # so that no more than two are in memory twice
        mx.async_eval(part.parameters())
        self.last = part
        self.num_values += sum(array.size for _, array in tree_flatten(part.parameters()))

    def finish(self) -> None:
        if self.last is not None:
            mx.eval(self.last.parameters())


def _make_lanes() -> list[_Lane]:
    """On a CPU most of the time goes into new pages of memory, and there several find them."""
    num_extra = NUM_LANES - 1 if mx.default_device().type == mx.cpu else 0
    extra = [_Lane(mx.stream(cpu_stream(number))) for number in range(1, num_extra + 1)]
    return [_Lane(nullcontext()), *extra]


def num_bytes(m: Transformer, dtype: mx.Dtype) -> int:
    """The memory of all weights once their floats are of that type."""
    arrays = (array for _, array in tree_flatten(m.parameters()))
    return sum(a.size * (dtype.size if _is_float(a) else a.dtype.size) for a in arrays)


def read(fitted: Fitted, name: str, dtype: mx.Dtype | None) -> mx.array:
    """One parameter, in memory; dtype None leaves its type."""
    array = _stored(fitted, name)
    array = array if dtype is None else _as(dtype, array)
    mx.eval(array)  # one at a time, so that only one is in memory twice
    return array


def _stored(fitted: Fitted, name: str) -> mx.array:
    """One parameter as the checkpoint has it; lazy where the file's reader is."""
    arrays = [fitted.checkpoint.read(part) for part in fitted.names[name]]
    return arrays[0] if len(arrays) == 1 else mx.stack(arrays)


def _as(dtype: mx.Dtype, array: mx.array) -> mx.array:
    """The array itself unless it holds floats of another type."""
    return array.astype(dtype) if _is_float(array) and array.dtype != dtype else array


def needed(checkpoint: Checkpoint) -> dict[str, Stored]:
    """The tensors but for those that transformers ignores as well, or that the config has."""
    tied = checkpoint.config.tie_word_embeddings
    return {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if not (name.endswith("rotary_emb.inv_freq") or name in _ROTARY)
        and not (tied and name.startswith("lm_head."))
    }


_ROTARY = ("rope_freqs.weight", "rope.freqs")  # GGUF's, Meta's


def _is_float(array: mx.array) -> bool:
    return mx.issubdtype(array.dtype, mx.floating)


# --- names, shapes and types ---------------------------------------------------------------------


def _match(m: Transformer, checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Parameter -> the tensors that make it, after checking that all of them fit exactly."""
    names, expected = {}, {}
    for name, array in tree_flatten(m.parameters()):
        stacked = name in checkpoint.tensors
        names[name] = [name] if stacked else checkpoint_names(name, array.shape)
        part = array.shape if names[name] == [name] else array.shape[1:]
        expected |= dict.fromkeys(names[name], (part, array.dtype))
    found = needed(checkpoint)
    _check_missing(expected, found, checkpoint.description)
    for name, tensor in found.items():
        _check_tensor(name, tensor, expected.get(name), checkpoint.description)
    return names


def _check_missing(expected: dict, found: dict, description: Path) -> None:
    missing = [name for name in expected if name not in found]
    if missing:
        hint = ""
        if missing == ["lm_head.weight"]:
            hint = '; if the head is the embedding, "tie_word_embeddings" must be true'
        raise ValueError(
            f"{missing[0]} {expected[missing[0]][0]} is missing from the"
            f" weights{and_others(missing)}, though {description} describes it{hint}"
        )


def _check_tensor(name: str, tensor: Stored, wanted: tuple | None, description: Path) -> None:
    if wanted is None:
        raise ValueError(
            f"{tensor.file}: tensor {name} {tensor.shape} has no place in the model that"
            f" {description} describes, and ignoring it would change the answers"
        )
    shape, dtype = wanted
    if tensor.dtype in NUM_BYTES.keys() - FLOAT_DTYPES.keys() - PACKED_DTYPES.keys():
        raise ValueError(
            f"{tensor.file}: tensor {name} is stored as {tensor.dtype}, not one of"
            f" {', '.join(FLOAT_DTYPES)}"
        )
    packed = {stored: getattr(mx, own) for stored, own in PACKED_DTYPES.items()}
    if packed.get(tensor.dtype, mx.float32) != dtype:
        raise ValueError(
            f"{tensor.file}: tensor {name} is stored as {tensor.dtype}, and {dtype_name(dtype)} was"
            " expected: a part of a quantized matrix is missing or belongs to another one"
        )
    if tensor.shape != shape:
        raise ValueError(
            f"{tensor.file}: tensor {name} has shape {tensor.shape}, but {description} makes it"
            f" {shape}; they belong to different models"
        )


# --- dtypes --------------------------------------------------------------------------------------


def check_dtype(dtype: str | mx.Dtype | None) -> mx.Dtype | None:
    if dtype is None or dtype in _DTYPES.values():
        return dtype
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)} or None, got {dtype!r}")
    return _DTYPES[dtype]


def default_dtype(checkpoint: Checkpoint) -> mx.Dtype:
    """float32 on CPUs, where products of the shorter types are slow, else the model's own."""
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return mx.float32 if on_cpu else _DTYPES[checkpoint.dtype]


def dtype_name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")
