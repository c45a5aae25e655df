"""generation/cache_file.py: what comes back is what went in, and nothing else is taken for it."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_same_ids, golden

from model.config import Config
from model.generation.cache_file import fingerprint, load_cache, save_cache
from model.generation.generate import generate
from model.transformer import Transformer
from model.weights.load import load

FORMS = {
    "floats": {},
    "8 bits": {"bits": 8, "group_size": 32},
    "4 bits": {"bits": 4, "group_size": 32},
    "rotating": {"max_size": 20, "keep": 3},
    "rotating, 8 bits": {"max_size": 20, "bits": 8, "group_size": 32},
}


@pytest.fixture(scope="module")
def m():
    """Heads of 32 values, so that they can be quantized."""
    return load(REFERENCE / "qwen3-tied")


@pytest.fixture(scope="module")
def ids():
    return golden("llama-llama3rope")["ids"]


def filled(m, ids, **options):
    cache = m.make_cache(**options)
    m.hidden(mx.array([ids]), cache)
    return cache


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [9, 100])
def test_a_loaded_cache_goes_on_like_the_saved_one(m, ids, form, length, tmp_path):
    cache, file = filled(m, ids[:length], **FORMS[form]), tmp_path / "one.safetensors"
    save_cache(file, cache, ids[:length], m)
    loaded, held = load_cache(file, m)
    assert_same_ids(held, ids[:length])
    assert [type(layer) for layer in loaded] == [type(layer) for layer in cache]
    assert [layer.trimmable for layer in loaded] == [layer.trimmable for layer in cache]
    for layer in (*cache, *loaded):
        layer.trim(2)
    wanted = list(generate(m, [7], max_tokens=50, cache=cache))
    assert_same_ids(generate(m, [7], max_tokens=50, cache=loaded), wanted)


def test_only_what_is_held_is_saved(m, ids, tmp_path):
    """Not the rest of the buffers, nor what was trimmed."""
    cache = filled(m, ids)
    for layer in cache:
        layer.trim(90)
    save_cache(tmp_path / "one", cache, ids[:10], m)
    floats = 2 * m.config.num_hidden_layers * m.config.num_key_value_heads * 10 * m.config.head_dim
    assert 4 * floats < (tmp_path / "one").stat().st_size < 4 * floats + 4000


@pytest.mark.parametrize("name", ["a.safetensors", "b", "c.cache"])
def test_the_file_has_the_name_that_was_asked_for(m, ids, name, tmp_path):
    save_cache(tmp_path / name, filled(m, ids), ids, m)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert load_cache(tmp_path / name, m)[1] == ids


def test_ids_that_begin_with_the_files(m, ids, tmp_path):
    file = tmp_path / "one"
    save_cache(file, filled(m, ids[:9]), ids[:9], m)
    assert load_cache(file, m, ids)[1] == ids[:9]
    assert load_cache(file, m, ids[:9])[1] == ids[:9]
    with pytest.raises(
        ValueError, match="one holds 9 ids and only the first 6 of them begin the 7"
    ):
        load_cache(file, m, [*ids[:6], 1])
    with pytest.raises(ValueError, match="only the first 8 of them begin the 8 ids"):
        load_cache(file, m, ids[:8])


@pytest.mark.parametrize("other", [name for name in ALL if name != "qwen3-tied"])
def test_another_model_is_told(m, ids, other, tmp_path):
    file = tmp_path / "one"
    save_cache(file, filled(m, ids), ids, m)
    with pytest.raises(ValueError, match="one was computed by another model \\(a qwen3\\)"):
        load_cache(file, load(REFERENCE / other))


def small():
    sizes = {"hidden_size": 8, "intermediate_size": 6, "head_dim": 4, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    rest = {"vocab_size": 9, "max_position_embeddings": 99, "rms_norm_eps": 1e-6}
    mx.random.seed(0)
    return Transformer(Config(model_type="llama", **sizes, **heads, **rest))


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_a_change_in_any_weight_changes_the_fingerprint(name):
    """As adapters change it: everywhere in a few weights."""
    m = small()
    before = fingerprint(m)
    assert fingerprint(small()) == before
    weight = getattr(m.model.layers[1].self_attn, name)
    weight.weight = weight.weight * 1.001
    assert fingerprint(m) != before


def test_a_change_of_dtype_changes_the_fingerprint():
    m = small()
    before = fingerprint(m)
    m.set_dtype(mx.float16)
    assert fingerprint(m) != before


def test_nothing_is_lost_when_saving_fails(m, ids, tmp_path, monkeypatch):
    file = tmp_path / "one"
    save_cache(file, filled(m, ids), ids, m)
    before = file.read_bytes()

    def fails(path, *_):
        Path(path).write_bytes(b"half of it")
        raise RuntimeError("disk full")

    monkeypatch.setattr(mx, "save_safetensors", fails)
    with pytest.raises(RuntimeError, match="disk full"):
        save_cache(file, filled(m, ids[:9]), ids[:9], m)
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_two_threads_may_save_to_one_file(m, ids, tmp_path):
    """Whoever is last wins; both used one temporary name before."""
    caches = {length: filled(m, ids[:length]) for length in (9, 40)}
    mx.eval([layer.state for cache in caches.values() for layer in cache])

    def save_often(length):
        for _ in range(20):
            save_cache(tmp_path / "one", caches[length], ids[:length], m)

    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(save_often, length) for length in caches]:
            result.result()
    assert load_cache(tmp_path / "one", m)[1] in (ids[:9], ids[:40])
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_a_fifo_gets_a_file_that_can_be_loaded(m, ids, tmp_path):
    """MLX alone would write to another name, one with its own ending."""
    os.mkfifo(tmp_path / "fifo")
    with ThreadPoolExecutor(1) as pool:
        content = pool.submit((tmp_path / "fifo").read_bytes)
        save_cache(tmp_path / "fifo", filled(m, ids), ids, m)
        (tmp_path / "one").write_bytes(content.result())
    assert (tmp_path / "fifo").is_fifo()
    assert load_cache(tmp_path / "one", m)[1] == ids
    with pytest.raises(FileNotFoundError, match="fifo is no regular file"):
        load_cache(tmp_path / "fifo", m)


def test_what_can_not_be_saved(m, ids, tmp_path):
    with pytest.raises(ValueError, match="the cache holds 100 ids and 99 were given"):
        save_cache(tmp_path / "one", filled(m, ids), ids[:99], m)
    with pytest.raises(ValueError, match="the cache holds 0 ids and 0 were given"):
        save_cache(tmp_path / "one", m.make_cache(), [], m)
    with pytest.raises(FileNotFoundError, match="nowhere is no directory"):
        save_cache(tmp_path / "nowhere" / "one", filled(m, ids), ids, m)


def test_files_that_hold_no_cache(m, ids, tmp_path):
    file = tmp_path / "one"
    with pytest.raises(FileNotFoundError, match="one doesn't exist"):
        load_cache(file, m)
    save_cache(file, filled(m, ids), ids, m)
    whole = file.read_bytes()
    for cut in (0, 4, 100, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="one is damaged .* save the cache again"):
            load_cache(file, m)
    with pytest.raises(ValueError, match="holds other tensors .* format is 'pt'"):
        load_cache(REFERENCE / "qwen3-tied" / "model.safetensors", m)
    mx.save_safetensors(str(tmp_path / "two"), {"x": mx.zeros(3)}, {"format": "mlx"})
    with pytest.raises(ValueError, match="format is 'mlx'"):
        load_cache(tmp_path / "two.safetensors", m)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ...}, "'ids'"),
        ({"ids": "junk"}, "Expecting value"),
        ({"ids": "[" * 50000}, "recursion"),
        ({"ids": '["a", "b"]'}, "must be whole numbers"),
        ({"ids": "[5, 6]"}, "counts {'offset': 9} and has 2 ids"),
        ({"options": "[1]"}, "must be a mapping"),
        ({"options": '{"bits": 8, "group_size": 32}'}, "'0.keys.1'"),
        ({"options": '{"max_size": 20}'}, "counts {'offset': 9}"),
        ({"counters": '{"offset": -1}'}, "must be whole numbers"),
        ({"counters": '{"offset": 9, "form": 3}'}, "counts {'offset': 9, 'form': 3}"),
        ({"fingerprint": ...}, "was computed by another model"),
        ({"1.values.0": ...}, "'1.values.0'"),
        ({"1.values.0": (1, 2, 8, 32)}, r"1.values.0 has shape \(1, 2, 8, 32\)"),
        ({"0.keys.0": (2, 2, 9, 32)}, r"0.keys.0 has shape \(2, 2, 9, 32\)"),
    ],
)
def test_a_file_that_contradicts_itself(m, ids, tmp_path, changes, message):
    """Each of these gave ids of something else, or an error in the middle of an answer."""
    file = tmp_path / "one.safetensors"
    save_cache(file, filled(m, ids[:9]), ids[:9], m)
    arrays, metadata = mx.load(str(file), return_metadata=True)
    mx.eval(arrays)
    for name, value in changes.items():
        for held in (arrays, metadata):
            held.pop(name, None)
        if isinstance(value, tuple):
            arrays[name] = mx.zeros(value)
        elif value is not ...:
            metadata[name] = value
    mx.save_safetensors(str(file), arrays, metadata)
    with pytest.raises(ValueError, match=message) as caught:
        load_cache(file, m)
    assert "one.safetensors" in str(caught.value)


def test_the_ids_are_readable_in_the_header(m, ids, tmp_path):
    file = tmp_path / "one"
    save_cache(file, filled(m, ids), ids, m)
    content = file.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["ids"]) == ids
