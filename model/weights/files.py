"""A model's directory -> its JSON files, its weight files, and what their headers say.

Every file is checked to be there and whole, by its header, before anything reads it.

Blind spot: it doesn't know what a tensor is for.

The safetensors header is parsed here: the safetensors package opens no file without numpy and
doesn't say how many bytes are missing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

FLOAT_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # header's -> MLX's name
PACKED_DTYPES = {"U32": "uint32", "U8": "uint8"}  # of quantized weights and their scales
_DTYPES = FLOAT_DTYPES | PACKED_DTYPES
NUM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U32": 4, "U8": 1}  # per value
NUM_BYTES |= {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "BOOL": 1}
_MAX_HEADER = 100_000_000  # bytes, the format's own limit
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
    if dtype not in _DTYPES:
        raise ValueError(f"a tensor is stored as {dtype}, not one of {', '.join(_DTYPES)}")
    if not view.nbytes:
        return mx.zeros(shape, getattr(mx, _DTYPES[dtype]))
    return mx.array(view).view(getattr(mx, _DTYPES[dtype])).reshape(shape)


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


def read_header(file: Path) -> Iterator[tuple[str, Stored]]:
    """The tensors of one safetensors file, after checking that the file is whole.

    Format: 8 bytes of length, a JSON header, then the data, whose end the header tells.
    """
    num_bytes = file.stat().st_size
    _check_length(file, 8, num_bytes)
    with file.open("rb") as opened:
        start = 8 + _header_length(file, opened.read(8))
        _check_length(file, start, num_bytes)
        header = _parse_header(file, opened.read(start - 8))
    ends = [entry["data_offsets"][1] for entry in header.values()]
    _check_length(file, start + max(ends, default=0), num_bytes)
    _check_places(file, header, num_bytes - start)
    for name, entry in header.items():
        yield name, _check_entry(file, name, entry)


def _header_length(file: Path, content: bytes) -> int:
    if content == b"version ":
        raise ValueError(
            f"{file} is a Git LFS pointer, not the weights; run `git lfs pull` in its directory"
        )
    length = int.from_bytes(content, "little")
    if length > _MAX_HEADER:
        raise ValueError(f"{file} has no safetensors header; the file is damaged")
    return length


def _parse_header(file: Path, content: bytes) -> dict[str, dict]:
    try:
        header = json.loads(content, object_pairs_hook=_object)
        header.pop("__metadata__", None)
        for entry in header.values():
            start, end = entry["data_offsets"]
            sizes = (start, end, *entry["shape"])
            if start > end or any(type(size) is not int or size < 0 for size in sizes):
                raise ValueError(entry)
            if not (entry["dtype"] and type(entry["dtype"]) is str):
                raise ValueError(entry)
    except _Twice as error:
        raise ValueError(f"{file} has {error} twice in its header; it is damaged") from None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{file} has no safetensors header; the file is damaged") from None
    return header


class _Twice(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Python's own would let the last of two values under one name win."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return made


def _check_length(file: Path, expected: int, found: int) -> None:
    if found < expected:
        raise ValueError(
            f"{file} is truncated: it needs at least {expected} bytes and has {found};"
            " download it again"
        )


def _check_places(file: Path, header: dict[str, dict], num_bytes: int) -> None:
    """Tensors follow each other without gaps, from the first byte of the data to the last: where
    they don't, the header or its length is wrong, and every number would be another one."""
    places = sorted((*entry["data_offsets"], name) for name, entry in header.items())
    at, before = 0, "the header"
    for start, end, name in [*places, (num_bytes, num_bytes, "the end of the file")]:
        if start != at:
            what = "overlap" if start < at else f"have {start - at} bytes between them"
            raise ValueError(f"{file}: {before} and {name} {what}; the file is damaged")
        at, before = end, name


def _check_entry(file: Path, name: str, entry: dict) -> Stored:
    dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in _DTYPES:
        readable = ", ".join(_DTYPES)
        raise ValueError(f"{file}: tensor {name} is stored as {dtype}, not one of {readable}")
    if end - start != prod(shape) * NUM_BYTES[dtype]:
        raise ValueError(f"{file}: tensor {name} has {end - start} bytes for {dtype} {shape}")
    return Stored(file, dtype, shape, end - start)


def and_others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


@cache
def cpu_stream(number: int) -> Any:
    """The CPU stream of that number, for any thread; 0 reads files. MLX never ends a stream's
    thread, so there are no more than are asked for."""
    # Before MLX made them per thread, every stream was for any.
    return getattr(mx, "new_thread_local_stream", mx.new_stream)(mx.cpu)


class SafetensorsFile:
    """One .safetensors file. tensors: name -> Stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tensors = dict(read_header(path))
        self._arrays: dict[str, mx.array] | None = None  # each read from disk when evaluated

    def read(self, name: str) -> mx.array:
        """The tensor, which can be read once."""
        if self._arrays is None:
            # By a thread of its own, beside those that convert what was read.
            self._arrays = mx.load(str(self._path), stream=cpu_stream(0))
        return self._arrays.pop(name)  # so that nothing else keeps it in memory
