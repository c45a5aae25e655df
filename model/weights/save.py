"""tensors, one after another -> a directory that this package, mlx-lm and transformers load.

Everything is written beside the destination first and moved there when it is whole, so that an
interrupted run leaves what was there.

Blind spot: it doesn't look into tensors; names and config are the caller's.

Source: the sharding and the index file are those of the Hub's checkpoints.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

from model.weights.files import WEIGHT_SUFFIXES
from model.weights.memory import gigabytes
from model.whole import whole_file

SHARD_BYTES = 2_000_000_000  # of one file; what is written at a time has to be in memory
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"),
    *("generation_config.json", "*.tiktoken"),
)
_INDEX = "model.safetensors.index.json"


def write_model(
    folder: Path,
    tensors: Iterable[tuple[str, mx.array]],
    config: Mapping[str, Any],
    *,
    copied: Iterable[Path] = (),
    origin: str = "pt",
    force: bool = False,
) -> int:
    """Write safetensors, config.json and copies of files; -> the bytes of the weights.

    origin: the `format` that safetensors files name, "pt" or "mlx". Raises FileExistsError where a
    model would be lost and `force` isn't set, OSError where the folder can't be written.
    """
    check_destination(folder, force=force)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _beside(folder) as made:
        total = _write_shards(made, tensors, {"format": origin})
        content = json.dumps(dict(sorted(config.items())), indent=2, ensure_ascii=False)
        (made / "config.json").write_text(content + "\n", encoding="utf-8")
        for file in copied:
            shutil.copyfile(file, made / file.name)
        _move(made, folder)
    return total


def check_destination(folder: Path, *, force: bool = False, num_bytes: int = 0) -> None:
    """Raise what would be raised at the end of a long run: before it."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a directory to write the model to")
    if not force and (lost := model_files(folder)):
        raise FileExistsError(
            f"{folder} already holds a model ({lost[0].name}); name another directory, or --force"
            " to replace it"
        )
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not os.access(existing, os.W_OK):
        raise PermissionError(f"{existing} can't be written to; name another directory")
    free = shutil.disk_usage(existing).free
    if num_bytes > free:
        raise OSError(
            f"{folder} needs {gigabytes(num_bytes)} and the disk has {gigabytes(free)} left; free"
            " some space or name another place"
        )


def tokenizer_files(folder: Path) -> list[Path]:
    """What lies beside the weights and belongs to the model."""
    found = (file for pattern in TOKENIZER_FILES for file in folder.glob(pattern))
    return sorted(file for file in found if file.is_file())


def model_files(folder: Path) -> list[Path]:
    """What a new model would replace, or be confused with."""
    if not folder.is_dir():
        return []
    names = ("config.json", "params.json", *TOKENIZER_FILES, "*.index.json")
    patterns = (*names, *(f"*{suffix}" for suffix in WEIGHT_SUFFIXES))
    return sorted({file for pattern in patterns for file in folder.glob(pattern)})


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new directory on the same disk, gone at the end unless it was moved away.

    That is next to `folder`, or in it where that is another disk (a mount point) or not allowed.
    """
    place = folder.parent
    if folder.exists() and not (_is_on_disk_of(folder, place) and os.access(place, os.W_OK)):
        place = folder
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=place))
    try:
        made = temporary / "model"
        made.mkdir()  # with the user's permissions, which mkdtemp's isn't
        yield made
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_on_disk_of(folder: Path, other: Path) -> bool:
    return folder.stat().st_dev == other.stat().st_dev


def _move(made: Path, folder: Path) -> None:
    """In one step where nothing is there; else file by file, and what is left of an older model
    goes, because it would be read along with the new one. The user's other files stay, as do modes
    and links."""
    if not folder.exists() or not (any(folder.iterdir()) or folder.is_symlink()):
        made.rename(folder)
        return
    new = {file.name for file in made.iterdir()}
    old = [file for file in model_files(folder) if file.name not in new]
    for file in sorted(made.iterdir()):
        with whole_file(folder / file.name) as place:
            shutil.move(file, place)
    for file in old:
        file.unlink()


# --- shards --------------------------------------------------------------------------------------


def _write_shards(made: Path, tensors: Iterable[tuple[str, mx.array]], metadata: dict) -> int:
    """model.safetensors, or shards and their index where it would be too large; -> bytes."""
    names, total = [], 0  # names: of the tensors in each shard
    for number, shard in enumerate(_shards(tensors)):
        try:
            mx.save_safetensors(str(made / f"{number}.safetensors"), shard, metadata)
        except RuntimeError as error:  # MLX names neither the file nor the reason
            raise OSError(f"{made.parent.parent} can't take the weights ({error})") from None
        names.append(list(shard))
        total += sum(array.nbytes for array in shard.values())
    if len(names) == 1:
        (made / "0.safetensors").rename(made / "model.safetensors")
        return total
    files = [f"model-{i + 1:05d}-of-{len(names):05d}.safetensors" for i in range(len(names))]
    for number, file in enumerate(files):
        (made / f"{number}.safetensors").rename(made / file)
    weight_map = {name: file for file, held in zip(files, names, strict=True) for name in held}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (made / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return total


def _shards(tensors: Iterable[tuple[str, mx.array]]) -> Iterator[dict[str, mx.array]]:
    shard, size = {}, 0
    for name, array in tensors:
        if shard and size + array.nbytes > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = array
        size += array.nbytes
    yield shard
