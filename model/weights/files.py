"""A model's directory -> its JSON files, the files that hold its weights, and a tensor's types.

Blind spot: it opens no weights; each format has a reader of its own.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

FLOAT_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # header's -> MLX's name
PACKED_DTYPES = {"U32": "uint32", "U8": "uint8"}  # of quantized weights and their scales
DTYPES = FLOAT_DTYPES | PACKED_DTYPES  # what weights may be stored as
NUM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1}  # per value
NUM_BYTES |= {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "BOOL": 1}
_INDEX = "model.safetensors.index.json"
_TORCH_INDEX = "pytorch_model.bin.index.json"
WEIGHT_SUFFIXES = (".safetensors", ".npz", ".bin", ".pth", ".pt")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")  # what trainers leave


@dataclass(frozen=True)
class Stored:
    """A tensor as its file's header describes it. dtype: "F32", "U32", "Q4_1", ..."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


def to_array(view: memoryview, dtype: str, shape: tuple[int, ...]) -> mx.array:
    """A copy of raw numbers. Raises ValueError for a dtype that no weight here has."""
    if dtype not in DTYPES:
        raise ValueError(f"a tensor is stored as {dtype}, not one of {', '.join(DTYPES)}")
    if not view.nbytes:
        return mx.zeros(shape, getattr(mx, DTYPES[dtype]))
    return mx.array(view).view(getattr(mx, DTYPES[dtype])).reshape(shape)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; one clear error for each way in which there is none."""
    if not file.exists():
        hint = "pass a directory that holds config.json and model.safetensors"
        if ggufs := sorted(file.parent.glob("*.gguf")):
            hint = f"to read the GGUF file there, pass {ggufs[0]}"
        raise FileNotFoundError(f"{file} doesn't exist, so nothing describes the model; {hint}")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, or nested too deeply
        raise ValueError(f"{file} is not valid JSON ({error}); download it again") from None
    if type(content) is not dict:
        raise ValueError(f"{file} must hold a JSON object, found a {type(content).__name__}")
    return content


def weight_files(directory: Path) -> list[Path]:
    """The files that hold the weights: safetensors before .npz before PyTorch's, a single file
    before the shards that an index names."""
    for single, index in (
        ("model.safetensors", _INDEX),
        ("consolidated.safetensors", ""),
        ("model.weights.npz", ""),
        ("weights.npz", ""),
        ("pytorch_model.bin", _TORCH_INDEX),
    ):
        if (directory / single).exists():
            return [directory / single]
        if index and (directory / index).exists():
            return _shards(directory / index)
    if consolidated := sorted(directory.glob("consolidated.*.pth")):
        return consolidated
    return [_only_weights(directory)]


def _only_weights(directory: Path) -> Path:
    """A file of some other name, if there is just one."""
    found = sorted(
        file
        for file in directory.iterdir()
        if file.suffix in WEIGHT_SUFFIXES
        and not file.name.startswith(_NOT_WEIGHTS)
        and not file.is_dir()
    )
    if not found:
        raise FileNotFoundError(
            f"{directory} has no weights: neither model.safetensors nor {_INDEX}, nor an .npz or"
            " PyTorch file"
        )
    if len(found) > 1:
        raise ValueError(
            f"{directory} has {len(found)} files with weights ({found[0].name}, {found[1].name}"
            f" ...) and no {_INDEX} that says which belong together; pass the one you mean"
        )
    return found[0]


def _shards(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")  # tensor -> file name
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index} has no weight_map, so the shards are unknown")
    suffix = index.name.split(".")[1]  # of model.safetensors.index.json, pytorch_model.bin.index..
    for name in weight_map.values():
        if not isinstance(name, str) or Path(name).name != name or name == "..":
            raise ValueError(f"{index} names a shard {name!r}, which is not a file name")
        if Path(name).suffix != f".{suffix}":
            raise ValueError(f"{index} names a shard {name!r}, which is no .{suffix} file")
    files = [index.parent / name for name in sorted(set(weight_map.values()))]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]}{and_others(missing)} of {len(files)} shards named in {index} is not"
            " there; download it"
        )
    return files


def and_others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


@cache
def cpu_stream(number: int) -> Any:
    """The CPU stream of that number, for any thread; 0 reads files. MLX never ends a stream's
    thread, so there are no more than are asked for."""
    # Before MLX made them per thread, every stream was for any.
    return getattr(mx, "new_thread_local_stream", mx.new_stream)(mx.cpu)
