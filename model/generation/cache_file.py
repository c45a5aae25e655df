"""a model's cache and the ids it holds <-> a .safetensors file.

The file says which model computed it, by a fingerprint, and which ids it came from; keys and
values that another model reads as its own give plausible nonsense, so both are checked.

Blind spot: the fingerprint covers the configuration and a few values of every weight, not all of
them; a model that differs elsewhere only isn't told apart.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten

from model.arguments import check_layers, check_model, file_path, id_list
from model.cache import KVCache, Quantized, RotatingKVCache, make_layers
from model.transformer import Transformer
from model.whole import whole_file

_FORMAT = "bytepair cache 1"
_SAMPLE = 8  # values of each weight in the fingerprint


def save_cache(path: str | Path, cache: list[KVCache], ids: Sequence[int], m: Transformer) -> None:
    """Write what the layers hold for `ids`; the file is replaced whole or not at all.

    Raises ValueError if the cache is empty or holds another number of ids, OSError where `path`
    can't be a file.
    """
    path, ids = file_path(path), id_list(ids, "ids")
    check_layers(cache)
    check_model(m)
    if not ids or any(layer.offset != len(ids) for layer in cache):
        held = cache[0].offset
        raise ValueError(f"the cache holds {held} ids and {len(ids)} were given; there must be one")
    files = [layer.to_file() for layer in cache]
    arrays = {f"{i}.{name}": a for i, (own, _) in enumerate(files) for name, a in own.items()}
    metadata = {
        "format": _FORMAT,
        "fingerprint": fingerprint(m),
        "model": m.config.model_type,
        "ids": json.dumps(list(ids)),
        "options": json.dumps(options_of(cache[0])),
        "counters": json.dumps(files[0][1]),
    }
    with whole_file(path, ".safetensors") as part:  # MLX wants this ending
        mx.save_safetensors(str(part), arrays, metadata)


def load_cache(
    path: str | Path, m: Transformer, ids: Sequence[int] | None = None
) -> tuple[list[KVCache], list[int]]:
    """-> the layers as save_cache wrote them, and the ids that they hold.

    ids: where given, what the cache is wanted for: it must begin with the file's ids.
    Raises FileNotFoundError, or ValueError for a file that is damaged, was computed by another
    model, or holds other ids.
    """
    path = file_path(path)
    check_model(m)
    arrays, metadata = _read(path)
    if metadata.get("fingerprint") != fingerprint(m):
        raise ValueError(
            f"{path} was computed by another model (a {metadata.get('model')}), whose keys and"
            " values mean nothing to this one; load the model it was saved with, or start without"
            " it"
        )
    try:
        cache, held = _restored(m, arrays, metadata)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); save the cache again") from None
    if ids is not None:
        _check_beginning(path, held, id_list(ids, "ids"))
    return cache, held


def _restored(
    m: Transformer, arrays: dict[str, mx.array], metadata: dict[str, str]
) -> tuple[list[KVCache], list[int]]:
    held, options, counters = (json.loads(metadata[k]) for k in ("ids", "options", "counters"))
    cache, (empty, *_) = (make_layers(m.config, **options) for _ in range(2))
    if not all(type(number) is int and number >= 0 for number in [*held, *counters.values()]):
        raise ValueError("ids and counters must be whole numbers")
    if counters.keys() != empty.to_file()[1].keys() or counters["offset"] != len(held):
        raise ValueError(f"it counts {counters} and has {len(held)} ids")
    one = mx.zeros((1, m.config.num_key_value_heads, 1, m.config.head_dim))
    empty.update(one, one)
    expected = empty.to_file()[0]  # of one position
    for i, layer in enumerate(cache):
        own = {name: arrays[f"{i}.{name}"] for name in expected}
        layer.restore(own, counters)
        for name, array in own.items():
            _check_array(f"{i}.{name}", array, expected[name], layer.num_slots)
    return cache, held


def _check_array(name: str, array: mx.array, expected: mx.array, num_slots: int) -> None:
    """expected: the same of a single position."""
    B, K, _, D = expected.shape
    whole = [mx.issubdtype(each.dtype, mx.integer) for each in (array, expected)]
    if array.shape != (B, K, num_slots, D) or whole[0] != whole[1]:
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}")


def fingerprint(m: Transformer) -> str:
    """A hash of the configuration and of the first values of each weight."""
    samples, names = [], []
    for name, array in tree_flatten(m.parameters()):
        names.append(f"{name} {array.shape} {array.dtype}")
        samples.append(array[(0,) * (array.ndim - 1)][:_SAMPLE].astype(mx.float32))
    values = mx.concatenate(samples).tolist()
    config = ", ".join(f"{f.name}={getattr(m.config, f.name)!r}" for f in fields(m.config))
    content = f"(Config({config}), {names}, {values})"
    return hashlib.sha256(content.encode()).hexdigest()


def options_of(layer: KVCache) -> dict[str, int | None]:
    """What make_layers needs to make such layers."""
    options = {}
    if isinstance(layer.form, Quantized):
        options |= {"bits": layer.form.bits, "group_size": layer.form.group_size}
    if isinstance(layer, RotatingKVCache):
        options |= {"max_size": layer.max_size, "keep": layer.keep}
    return options


def _read(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    if not path.is_file():
        what = "is no regular file" if path.exists() else "doesn't exist"
        raise FileNotFoundError(f"{path} {what}, so there is no cache to load")
    try:
        arrays, metadata = mx.load(str(path), format="safetensors", return_metadata=True)
        mx.eval(list(arrays.values()))
    except RuntimeError as error:
        raise ValueError(f"{path} is damaged ({error}); save the cache again") from None
    if metadata.get("format") != _FORMAT:
        raise ValueError(
            f"{path} holds other tensors than a cache of this version (its format is"
            f" {metadata.get('format')!r}); pass a file that save_cache wrote"
        )
    return arrays, metadata


def _check_beginning(path: str | Path, held: list[int], ids: list[int]) -> None:
    same = next((i for i, (a, b) in enumerate(zip(held, ids)) if a != b), min(len(held), len(ids)))
    if same < len(held):
        raise ValueError(
            f"{path} holds {len(held)} ids and only the first {same} of them begin the"
            f" {len(ids)} ids it is wanted for; use it for a prompt that begins with all of them"
        )
