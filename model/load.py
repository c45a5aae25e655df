"""A directory or a .gguf file -> Transformer, its weights read and checked.

Everything is checked from headers before a weight is read: that each file is there and whole,
that the tensors' names and shapes are exactly those the description asks for.

Blind spot: it checks shapes, not values; a checkpoint with the right shapes and wrong numbers
loads.
"""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten

from model import blas
from model.config import FLOAT_TYPES, Config
from model.files import FLOAT_DTYPES, Stored, and_others, read_header, read_json, weight_files
from model.gguf import GGUF, checkpoint_name, unpermute
from model.moe import checkpoint_names
from model.transformer import Transformer

_DTYPES = {name: getattr(mx, name) for name in FLOAT_TYPES}  # name -> MLX's type


def load(path: str | Path, dtype: str | mx.Dtype | None = None) -> Transformer:
    """Read a model: a directory with config.json and safetensors, or a .gguf file.

    dtype: "float32", "float16", "bfloat16" or MLX's own. None is float32 on a CPU, where products
    of the shorter types are slow, and elsewhere what the checkpoint was published in; bfloat16 for
    quantized GGUF files, because some models' activations exceed float16's range.

    Raises FileNotFoundError where something isn't there, ValueError where it is damaged,
    unsupported or contradicts its description.
    """
    dtype = _check_dtype(dtype)
    blas.enable()
    checkpoint = _open(Path(path))
    m = Transformer(checkpoint.config)
    names = _match(m, checkpoint)
    dtype = dtype or _default_dtype(checkpoint)
    m.load_weights([(name, _read(checkpoint, parts, dtype)) for name, parts in names.items()])
    return m


class Directory:
    """config.json and model.safetensors, whole or in shards."""

    def __init__(self, path: Path) -> None:
        self.description = path / "config.json"
        raw = read_json(self.description)
        self.config = _config(self.description, lambda: Config.from_dict(raw))
        files = weight_files(path)
        self.tensors = {name: t for file in files for name, t in read_header(file)}
        self._opened = {}  # file -> its arrays by name, each read from disk when evaluated

    def own_dtype(self) -> str:
        stored = self.tensors["model.embed_tokens.weight"].dtype
        return self.config.dtype or FLOAT_DTYPES[stored]

    def is_ignored(self, name: str) -> bool:
        """Tensors that transformers ignores as well."""
        tied = self.config.tie_word_embeddings and name == "lm_head.weight"
        return tied or name.endswith("rotary_emb.inv_freq")

    def read(self, name: str) -> mx.array:
        file = self.tensors[name].file
        if file not in self._opened:
            self._opened[file] = mx.load(str(file))
        return self._opened[file].pop(name)  # so that nothing else keeps it in memory


class File:
    """A .gguf file, its tensors under the checkpoint's names."""

    def __init__(self, path: Path) -> None:
        self.description = path
        self._gguf = GGUF(path)
        self._names = {checkpoint_name(name): name for name in self._gguf.tensors}
        self.tensors = {
            name: Stored(path, self._gguf.tensors[own].format, self._gguf.tensors[own].shape)
            for name, own in self._names.items()
        }
        self.config = _config(path, self._make_config)

    def own_dtype(self) -> str:
        formats = {tensor.dtype for tensor in self.tensors.values()}
        if formats - FLOAT_DTYPES.keys():
            return "bfloat16"
        return FLOAT_DTYPES[self.tensors["model.embed_tokens.weight"].dtype]

    def is_ignored(self, name: str) -> bool:
        return name == "rope_freqs.weight"  # already in the config

    def read(self, name: str) -> mx.array:
        array = self._gguf.read(self._names[name])
        if self.config.model_type == "llama" and ".self_attn.q_proj." in name:
            return unpermute(array, self.config.num_attention_heads)
        if self.config.model_type == "llama" and ".self_attn.k_proj." in name:
            return unpermute(array, self.config.num_key_value_heads)
        return array

    def _make_config(self) -> Config:
        shapes = {name: info.shape for name, info in self._gguf.tensors.items()}
        divisors = ()
        if "rope_freqs.weight" in shapes:
            divisors = tuple(self._gguf.read("rope_freqs.weight").tolist())
        return Config.from_gguf(self._gguf.metadata, shapes, rope_divisors=divisors)


def _open(path: Path) -> Directory | File:
    if not path.exists():
        raise FileNotFoundError(f"{path} doesn't exist; pass a model's directory or .gguf file")
    if path.is_dir():
        return Directory(path)
    if path.suffix != ".gguf":
        raise ValueError(
            f"{path} is neither a directory nor a .gguf file; pass the directory that holds"
            " config.json and the weights"
        )
    return File(path)


def _config(file: Path, make: Callable[[], Config]) -> Config:
    """The description's own errors, with its file's name in front."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


# --- names and shapes ----------------------------------------------------------------------------


def _match(m: Transformer, checkpoint: Directory | File) -> dict[str, list[str]]:
    """Parameter -> the tensors that make it, after checking that all of them fit exactly."""
    names, expected = {}, {}
    for name, array in tree_flatten(m.parameters()):
        names[name] = checkpoint_names(name, array.shape)
        part = array.shape if names[name] == [name] else array.shape[1:]
        expected |= dict.fromkeys(names[name], part)
    found = {n: t for n, t in checkpoint.tensors.items() if not checkpoint.is_ignored(n)}
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
            f"{missing[0]} {expected[missing[0]]} is missing from the weights{and_others(missing)},"
            f" though {description} describes it{hint}"
        )


def _check_tensor(name: str, tensor: Stored, shape: tuple | None, description: Path) -> None:
    if shape is None:
        raise ValueError(
            f"{tensor.file}: tensor {name} {tensor.shape} has no place in the model that"
            f" {description} describes, and ignoring it would change the answers"
        )
    if tensor.shape != shape:
        raise ValueError(
            f"{tensor.file}: tensor {name} has shape {tensor.shape}, but {description} makes it"
            f" {shape}; they belong to different models"
        )


# --- dtypes --------------------------------------------------------------------------------------


def _check_dtype(dtype: str | mx.Dtype | None) -> mx.Dtype | None:
    if dtype is None or dtype in _DTYPES.values():
        return dtype
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)} or None, got {dtype!r}")
    return _DTYPES[dtype]


def _default_dtype(checkpoint: Directory | File) -> mx.Dtype:
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return mx.float32 if on_cpu else _DTYPES[checkpoint.own_dtype()]


def _read(checkpoint: Directory | File, names: list[str], dtype: mx.Dtype) -> mx.array:
    arrays = [checkpoint.read(name).astype(dtype) for name in names]
    array = arrays[0] if len(arrays) == 1 else mx.stack(arrays)
    mx.eval(array)  # one at a time, so that only one is in memory twice
    return array
