"""a checkpoint -> a directory: its weights as they are in safetensors, or quantized.

Tensors go through one at a time, so that a model larger than memory can be written.

Blind spot: it doesn't know tokenizers; their files are copied as they lie beside the weights.

Source: what mlx-lm writes and reads: stacked experts under `switch_mlp`, and the `quantization`
block of config.json, twice.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from model import cpu
from model.arguments import file_path
from model.weights import memory, save
from model.weights.checkpoint import Checkpoint, open_checkpoint
from model.weights.files import Stored
from model.weights.load import Fitted, check_dtype, dtype_name, fit, needed, num_bytes, read
from model.weights.quantize import Scheme, check_supported, pack, plan, prepare

Report = Callable[[str], None]


@dataclass(frozen=True)
class Written:
    """What a run made. num_bytes: of the weights; parameters: as many as the model has."""

    folder: Path
    num_bytes: int
    num_bytes_before: int
    parameters: int

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.num_bytes / self.parameters


def convert(
    source: str | Path,
    folder: str | Path,
    *,
    dtype: str | None = None,
    force: bool = False,
    report: Report = lambda line: None,
) -> Written:
    """Write a checkpoint (PyTorch, Meta, .npz, safetensors) as safetensors and config.json.

    dtype: of the weights, as they were stored where None. force: replace a model in `folder`.
    report: called with a line now and then. Raises what `load` raises, and FileExistsError.
    """
    kind = check_dtype(dtype)
    checkpoint, folder = _open(source, folder, force)
    fitted = fit(checkpoint)
    size = sum(_size(tensor, kind) for tensor in needed(checkpoint).values())
    _check_room(folder, size, needed(checkpoint), force)

    def tensors() -> Iterator[tuple[str, mx.array]]:
        for name, parts in fitted.names.items():
            report(name)
            array = read(fitted, name, kind)
            yield from _as_the_hub(name, parts, array, fitted)

    config = _config(checkpoint, kind)
    copied = save.tokenizer_files(checkpoint.folder)
    size = save.write_model(folder, tensors(), config, copied=copied, force=force)
    return _written(folder, size, fitted)


def quantize(
    source: str | Path,
    folder: str | Path,
    *,
    bits: int | None = None,
    group_size: int | None = None,
    mode: str = "affine",
    dtype: str | None = None,
    force: bool = False,
    report: Report = lambda line: None,
) -> Written:
    """Write a float checkpoint with quantized matrices, as mlx-lm and `load` read it.

    dtype: of what stays float, scales included; as stored where None. Raises what `load` raises,
    FileExistsError, and ValueError for a scheme that there isn't or a model quantized already.
    """
    kind, scheme = check_dtype(dtype), Scheme.of(mode, group_size, bits)
    check_supported(scheme)
    cpu.enable()
    checkpoint, folder = _open(source, folder, force)
    fitted = fit(checkpoint)
    if fitted.schemes:
        found = next(iter(fitted.schemes.values()))
        raise ValueError(
            f"{source} is quantized already ({found}); quantizing twice"
            " loses more than it saves: start from the original"
        )
    schemes = plan(fitted.model, scheme)
    if not schemes:
        raise ValueError(
            f"no matrix of {source} has rows of whole groups of {scheme.group_size}; take a smaller"
            " --group-size"
        )
    prepare(fitted.model, schemes, kind or mx.float32)
    # Scales of two bytes each: what is larger fails at the disk, not before.
    _check_room(folder, num_bytes(fitted.model, kind or mx.float16), needed(checkpoint), force)
    size = save.write_model(
        folder,
        _quantized(fitted, schemes, kind, report),
        _config(checkpoint, kind) | _block(scheme, schemes),
        copied=save.tokenizer_files(checkpoint.folder),
        origin="mlx",
        force=force,
    )
    return _written(folder, size, fitted)


def _quantized(
    fitted: Fitted, schemes: Mapping[str, Scheme], kind: mx.Dtype | None, report: Report
) -> Iterator[tuple[str, mx.array]]:
    for name in fitted.names:
        report(name)
        array, path = read(fitted, name, kind), name.removesuffix(".weight")
        if path not in schemes or path == name:
            yield _mlx_name(name), array
            continue
        for part, packed in pack(array, schemes[path]).items():
            mx.eval(packed)
            yield f"{_mlx_name(path)}.{part}", packed


def _block(scheme: Scheme, schemes: Mapping[str, Scheme]) -> dict[str, Any]:
    """config.json's quantization, with an entry for each module that differs."""
    block = scheme.options()
    block |= {_mlx_name(p): each.options() for p, each in schemes.items() if each != scheme}
    return {"quantization": block, "quantization_config": block}


# --- names ---------------------------------------------------------------------------------------


def _as_the_hub(
    name: str, parts: list[str], array: mx.array, fitted: Fitted
) -> Iterator[tuple[str, mx.array]]:
    """Experts apart, as the Hub has them; packed ones stay stacked, which only MLX reads."""
    path = name.rpartition(".")[0]
    if ".experts." not in name or path in fitted.schemes:
        yield _mlx_name(name), array
        return
    if parts == [name]:
        parts = [name.replace(".experts.", f".experts.{i}.") for i in range(array.shape[0])]
    for part, expert in zip(parts, array, strict=True):
        yield part, mx.contiguous(expert)


def _mlx_name(name: str) -> str:
    """mlx-lm's name of a stacked parameter or module.

    >>> _mlx_name("model.layers.0.mlp.experts.up_proj.weight")
    'model.layers.0.mlp.switch_mlp.up_proj.weight'
    """
    return name.replace(".experts.", ".switch_mlp.")


# --- around the tensors --------------------------------------------------------------------------


def _open(source: str | Path, folder: str | Path, force: bool) -> tuple[Checkpoint, Path]:
    checkpoint, folder = open_checkpoint(source), file_path(folder)
    if checkpoint.raw is None:
        raise ValueError(
            f"{source} is a GGUF file, which has neither config.json nor tokenizer.json to write;"
            " start from the model's directory"
        )
    if folder.exists() and folder.samefile(checkpoint.folder):
        raise ValueError(f"{folder} is where the model is read from; name another directory")
    sources = {file.resolve() for file in checkpoint.folder.iterdir()}
    for file in save.model_files(folder):
        if file.resolve() in sources:  # writing goes through links
            raise ValueError(
                f"{file} leads to {file.resolve()}, which the model is read from; name another"
                " directory"
            )
    save.check_destination(folder, force=force)
    return checkpoint, folder


def _size(tensor: Stored, kind: mx.Dtype | None) -> int:
    count = 1
    for size in tensor.shape:
        count *= size
    return tensor.num_bytes if kind is None or tensor.dtype in ("U32", "U8") else count * kind.size


def _check_room(folder: Path, size: int, tensors: Mapping[str, Stored], force: bool) -> None:
    """On the disk for everything; in memory for one file and the largest tensor, twice."""
    save.check_destination(folder, force=force, num_bytes=size)
    if not force:
        largest = max(tensor.num_bytes for tensor in tensors.values())
        memory.check(min(size, save.SHARD_BYTES) + 2 * largest, "a file and its largest tensor")


def _config(checkpoint: Checkpoint, kind: mx.Dtype | None) -> dict[str, Any]:
    """The description, with what transformers 5 renamed under the older names as well: mlx-lm takes
    its own defaults for what it doesn't find."""
    raw = dict(checkpoint.raw)
    dtype = dtype_name(kind) if kind is not None else checkpoint.dtype
    raw |= {"dtype": dtype, "torch_dtype": dtype}
    if rope := raw.get("rope_parameters"):
        raw["rope_theta"] = checkpoint.config.rope.theta
        if checkpoint.config.rope.type != "default":
            raw["rope_scaling"] = rope
    if checkpoint.config.sparse_layers:
        raw["num_experts"] = checkpoint.config.num_experts
    return raw


def _written(folder: Path, size: int, fitted: Fitted) -> Written:
    before = sum(tensor.num_bytes for tensor in needed(fitted.checkpoint).values())
    return Written(folder, size, before, fitted.num_parameters)
