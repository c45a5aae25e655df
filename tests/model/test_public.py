"""The public names in a notebook: what is listed, and one sentence for what can't be meant."""

import inspect
import re
import typing
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_same_ids
from paths import ROOT

import model

TEXT = r"the prompt must be a list of ids, .*; a tokenizer's encode\(\) makes"


@pytest.fixture(scope="module")
def m():
    return model.load(REFERENCE / "qwen3-tied")


def test_what_is_listed_is_what_is_public():
    assert dir(model) == sorted({*model.__all__, "__version__"})
    assert all(hasattr(model, name) for name in dir(model))
    with pytest.raises(AttributeError):
        model.nothing  # noqa: B018


def test_the_version_is_that_of_the_project():
    """tomllib comes with Python 3.11."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1] == model.__version__


def functions_of(public):
    if inspect.isfunction(public):
        yield public
        return
    for name, each in vars(public).items():
        each = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if inspect.isfunction(each) and (name[0] != "_" or name in ("__init__", "__call__")):
            yield each


def test_every_public_function_says_its_types():
    """py.typed promises as much to type checkers."""
    assert (ROOT / "model" / "py.typed").exists()
    checked = [each for name in model.__all__ for each in functions_of(getattr(model, name))]
    assert len(checked) > 30
    for function in checked:
        hints = typing.get_type_hints(function)
        named = {*inspect.signature(function).parameters, "return"} - {"self", "cls"}
        assert named <= hints.keys(), function


def test_a_config_in_one_line(m):
    assert repr(m.config) == "Config(qwen3, 3 layers of 64, vocabulary 320, context 256)"


# --- what can't be meant -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ids": "text"}, f"{TEXT} them of a text; got 'text'"),
        ({"ids": b"text"}, f"{TEXT} them of a text; got b'text'"),
        ({"ids": 5}, f"{TEXT} them of a text; got 5"),
        ({"ids": None}, f"{TEXT} them of a text; got None"),
        ({"ids": [[1, 2]]}, "the prompt must hold ids, .*; got \\[1, 2\\] at index 0"),
        ({"ids": [1, "2"]}, "the prompt must hold ids, .*; got '2' at index 1"),
        ({"ids": [1, 2.0]}, "the prompt must hold ids, .*; got 2.0 at index 1"),
        ({"ids": {"input_ids": [1]}}, "the prompt must hold ids, .*; got 'input_ids' at index 0"),
        ({"ids": mx.array([[1, 2]])}, "the prompt must hold ids, .*; got array.* at index 0"),
        ({"cached_ids": "text"}, "cached_ids must be a list of ids, .*; got 'text'"),
        ({"max_tokens": "8"}, "max_tokens must be a whole number, got '8'"),
        ({"max_tokens": 8.0}, "max_tokens must be a whole number, got 8.0"),
        ({"max_tokens": None}, "max_tokens must be a whole number, got None"),
        ({"max_tokens": True}, "max_tokens must be a whole number, got True"),
        ({"prefill_step_size": "8"}, "prefill_step_size must be a whole number, got '8'"),
        ({"vocab_size": "8"}, "vocab_size must be a whole number, got '8'"),
        ({"top_logprobs": "8"}, "top_logprobs must be a whole number, got '8'"),
        ({"sampler": 0.7}, "the sampler must be a function, see make_sampler; got 0.7"),
        ({"processors": print}, "processors must be a list of functions, see make_processors"),
        ({"processors": 1.1}, "processors must be a list of functions, .*; got 1.1"),
        ({"processors": [1.1]}, "processors must be a list of functions, .*; got \\[1.1\\]"),
        ({"cache": "x"}, "the cache must be a list, see the model's make_cache; got 'x'"),
    ],
)
def test_generate_takes_ids_and_numbers(m, options, message):
    options = {"ids": [5]} | options
    with pytest.raises(TypeError, match=message) as caught:
        model.generate(m, **options)
    assert "\n" not in str(caught.value)
    if options.keys() <= {"ids", "max_tokens", "sampler", "processors", "top_logprobs"}:
        with pytest.raises(TypeError, match=message):
            model.Batch(m).add(**options)


def test_a_draft_is_a_model(m):
    for draft in (5, "gpt", [m]):
        with pytest.raises(ValueError, match='draft must be "ngram", a model or a Drafter, got'):
            model.generate(m, [5], draft=draft)


def test_a_model_is_a_loaded_one(m, tmp_path):
    cache = m.make_cache()
    for call in (
        lambda: model.generate("Qwen3/", [5]),
        lambda: model.generate_batch(None, [[5]]),
        lambda: model.Batch(Path("Qwen3")),
        lambda: model.Session("Qwen3/"),
        lambda: model.save_cache(tmp_path / "x", cache, [5], "Qwen3/"),
        lambda: model.load_cache(tmp_path / "x", "Qwen3/"),
    ):
        with pytest.raises(TypeError, match=r"the model must be what model\.load\(\) returns, got"):
            call()


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ("text", {}, "prompts must be a list of lists of ids, got 'text'"),
        (5, {}, "prompts must be a list of lists of ids, got 5"),
        (["text", "text"], {}, f"{TEXT} them of a text; got 'text'"),
        ([1, 2, 3], {}, f"{TEXT} them of a text; got 1"),
        ([[1]], {"max_tokens": "8"}, "max_tokens must be a whole number, got '8'"),
        ([[1]], {"max_tokens": ["8"]}, "max_tokens must be a whole number, got '8'"),
        ([[1]], {"max_rows": "8"}, "max_rows must be a whole number, got '8'"),
        ([[1]], {"stop_ids": 5}, "stop_ids must be a list of ids, .*; got 5"),
        ([[1]], {"stop_ids": ["</s>"]}, "stop_ids must hold ids, .*; got '</s>' at index 0"),
    ],
)
def test_generate_batch_takes_lists_of_ids(m, prompts, options, message):
    with pytest.raises(TypeError, match=message):
        model.generate_batch(m, prompts, **options)


def test_a_session_takes_ids(m, tmp_path):
    session = model.Session(m)
    with pytest.raises(TypeError, match=f"{TEXT} them of a text; got 'text'"):
        session.generate("text")
    assert len(list(session.generate([5], max_tokens=3))) == 3
    with pytest.raises(TypeError, match="max_tokens must be a whole number, got '8'"):
        session.generate([5], max_tokens="8")
    with pytest.raises(TypeError, match="a path must be a str or a Path, got 5"):
        session.save(5)
    with pytest.raises(TypeError, match="ids must be a list of ids"):
        model.save_cache(tmp_path / "x", m.make_cache(), "text", m)
    with pytest.raises(TypeError, match="the cache must be a list"):
        model.save_cache(tmp_path / "x", session, [5], m)


@pytest.mark.parametrize("options", [{"max_size": "20"}, {"max_size": 20, "keep": "3"}])
def test_a_cache_has_sizes(m, options):
    with pytest.raises(TypeError, match="(max_size|keep) must be a whole number, got '(20|3)'"):
        model.Session(m, **options)
    for form in ({"bits": "8"}, {"bits": 8, "group_size": "32"}):
        with pytest.raises(ValueError, match="not '8'|got '32'"):
            m.make_cache(**form)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("value", ["0.5", None, [0.5], True])
def test_a_sampler_takes_numbers(name, value):
    with pytest.raises(TypeError, match=re.escape(f"{name} must be a number, got {value!r}")):
        model.make_sampler(**{name: value})


def test_processors_take_numbers():
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        with pytest.raises(TypeError, match=f"{name} must be a number, got '1.5'"):
            model.make_processors(**{name: "1.5"})
    with pytest.raises(TypeError, match="logit_bias of id 5 must be a number, got '-1'"):
        model.make_processors(logit_bias={5: "-1"})
    with pytest.raises(TypeError, match=r"logit_bias must be a dict, id -> bias, got \[5\]"):
        model.make_processors(logit_bias=[5])


@pytest.mark.parametrize("ids", [[[1, 2]], "text", mx.array([1, 2]), mx.array(1)])
def test_a_model_is_called_with_a_batch_of_ids(m, ids):
    with pytest.raises(TypeError, match=r"ids must be an mx\.array of \(batch, length\), got"):
        m(ids)


@pytest.mark.parametrize("path", [None, 5, ["x"], b"x"])
def test_a_model_is_loaded_from_a_path(path):
    with pytest.raises(TypeError, match="a path must be a str or a Path, got"):
        model.load(path)


def test_whole_numbers_of_other_kinds(m):
    """Arrays of MLX and of numpy, as tokenizers of others return them."""
    wanted = list(model.generate(m, [5, 6, 7], max_tokens=4))
    for ids in ((5, 6, 7), iter([5, 6, 7]), mx.array([5, 6, 7]), range(5, 8)):
        assert_same_ids(model.generate(m, ids, max_tokens=4), wanted)
    np = pytest.importorskip("numpy")
    ids = np.array([5, 6, 7], dtype=np.uint16)
    assert_same_ids(model.generate(m, ids, max_tokens=np.int64(4)), wanted)
    sampler = model.make_sampler(temperature=np.float32(0))
    assert_same_ids(model.generate(m, ids, max_tokens=4, sampler=sampler), wanted)
