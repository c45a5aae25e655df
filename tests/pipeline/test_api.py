"""pipeline/__init__.py and Engine.answer: what is public, and text to text in one step."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from compare import assert_same_ids
from paths import ROOT

import model
import pipeline
from pipeline import source
from tests.pipeline.test_engine import copy, slow_answer  # noqa: F401  (a fixture)

PUBLIC = {"Answer", "Chunk", "Engine", "Sampling", "load", "__version__"}
ASK = [{"role": "user", "content": "The capital"}]


@pytest.fixture(scope="module")
def engine(tiny_directory):
    return pipeline.load(tiny_directory)


# --- a text in, a text out -----------------------------------------------------------------------


def test_an_answer_is_that_of_the_slow_loop_by_chunks_and_at_once(engine):
    ids = engine.tokenizer.apply_chat_template(ASK)
    said = slow_answer(engine, ids, 12)
    text = engine.tokenizer.decode(said, skip_special_tokens=True)
    answer = engine.answer("The capital", max_tokens=12)
    assert "".join(chunk.text for chunk in answer) == text != ""
    assert_same_ids(answer.ids, said)
    assert (answer.text, answer.finish_reason) == (text, "length")
    assert engine.answer(ASK, max_tokens=12).text == text  # nothing before it was asked for


def test_raw_continues_a_text(engine):
    ids = engine.tokenizer.encode("The capital")
    answer = engine.answer("The capital", raw=True, max_tokens=5)
    assert answer.text == engine.tokenizer.decode(slow_answer(engine, ids, 5))


def prompt_of(engine, monkeypatch, *arguments, **options):
    """The text of the prompt that an answer is made for."""
    seen = []
    monkeypatch.setattr(model, "generate", lambda m, ids, **_: seen.append(ids) or iter(()))
    assert engine.answer(*arguments, **options).text == ""
    return engine.tokenizer.decode(seen[0])


def test_what_stands_around_the_prompt(engine, monkeypatch):
    about = engine, monkeypatch
    plain = prompt_of(*about, "Why?")
    assert prompt_of(*about, "Why?", system="Be brief.") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n" + plain
    )
    pair = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Be"}]
    assert prompt_of(*about, pair) == plain + "Be"  # the answer goes on with it
    assert engine.encode_chat("Why?") == engine.encode_chat([{"role": "user", "content": "Why?"}])


def test_thinking_is_switched_where_the_template_can(copy):  # noqa: F811
    template = "{{ messages[0].content }}{{ 'T' if enable_thinking else 'N' }}"
    (copy / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    engine = pipeline.load(copy)
    seen = [engine.encode_chat("x", enable_thinking=think) for think in (True, False)]
    for think, ids in zip((True, False), seen):
        answer = engine.answer("x", think=think, max_tokens=3)
        assert_same_ids(answer.ids, slow_answer(engine, ids, 3))
    assert seen[0] != seen[1]


def says(engine, monkeypatch, text):
    """Let the model say a text and end it."""
    ids = [*engine.tokenizer.encode(text, allowed_special="all"), 2]
    monkeypatch.setattr(model, "generate", lambda m, prompt, **options: iter(ids))


def test_reasoning_comes_apart(engine, monkeypatch):
    says(engine, monkeypatch, "<think>\nHm, 日本.\n</think>\n\nTōkyō 🙂")
    answer = engine.answer("?")
    assert [chunk.text for chunk in answer if chunk.text][-1] == "🙂"  # whole, of four tokens
    assert (answer.reasoning, answer.text) == ("Hm, 日本.", "Tōkyō 🙂")
    assert answer.finish_reason == "stop"
    assert "<think>" in engine.answer("?", raw=True).text


def test_the_options_of_stream_are_options(engine, monkeypatch):
    says(engine, monkeypatch, "one two three")
    assert engine.answer("?", stop=[" three"]).text == "one two"
    monkeypatch.undo()
    hot = pipeline.Sampling(temperature=5.0, seed=1)
    ids = engine.encode_chat("x")
    drawn = engine.collect(engine.stream(ids, max_tokens=9, sampling=hot)).ids
    assert_same_ids(engine.answer("x", max_tokens=9, sampling=hot).ids, drawn)
    assert drawn != engine.answer("x", max_tokens=9).ids


# --- an answer on its way ------------------------------------------------------------------------


def test_an_answer_is_made_as_it_is_read_and_once(engine, monkeypatch):
    made = []

    def generate(m, prompt, **options):
        for id in [*engine.tokenizer.encode("ab"), 2]:
            made.append(id)
            yield id

    monkeypatch.setattr(model, "generate", generate)
    answer = engine.answer("?")
    assert (made, repr(answer)) == ([], "Answer('', so far)")
    first = next(iter(answer))
    assert (len(made), first.text, repr(answer)) == (1, "a", "Answer('a', so far)")
    assert (answer.text, repr(answer)) == ("ab", "Answer('ab', stop)")
    assert [chunk.text for chunk in answer] == ["a", "b", ""]
    assert next(iter(answer)) is first
    assert len(made) == 3


def test_an_interrupted_answer_is_what_was_said(engine, monkeypatch):
    def generate(m, prompt, **options):
        yield from engine.tokenizer.encode("ab")
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "generate", generate)
    answer = engine.answer("?")
    with pytest.raises(KeyboardInterrupt):
        print(answer.text)
    assert (answer.text, answer.finish_reason, len(answer.ids)) == ("ab", None, 2)


# --- what can't be answered ----------------------------------------------------------------------

SYSTEM = {"role": "system", "content": "x"}


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "messages must be a non-empty list"),
        ({"role": "user", "content": "x"}, {}, "messages must be a non-empty list"),
        (b"x", {}, "messages must be a non-empty list"),
        (["x"], {}, "a message is 'x', not a mapping"),
        ([SYSTEM, *ASK], {"system": "y"}, "have a system message already"),
        (ASK, {"raw": True}, "raw=True continues a text"),
        ("x", {"raw": True, "system": "y"}, "raw=True continues a text"),
        ("", {"raw": True}, "the prompt is empty"),
        ("x", {"max_tokens": "5"}, "max_tokens must be a whole number from 0 up, found '5'"),
        ("x", {"max_tokens": 2.5}, "max_tokens must be a whole number from 0 up, found 2.5"),
        ("x", {"think_budget": "5"}, "think_budget must be a whole number from 0 up, found '5'"),
        ("x", {"top_logprobs": "5"}, "top_logprobs must be a whole number from 0 up, found '5'"),
        ("x", {"stop": "END"}, "stop texts must be a list of texts"),
        ("x" * 999, {}, "leaves no room in the model's context"),
    ],
)
def test_what_cannot_be_answered_is_said_at_the_call(engine, prompt, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        engine.answer(prompt, **options)
    assert "\n" not in str(caught.value)


def test_numbers_given_as_texts_elsewhere(engine, tiny_directory):
    with pytest.raises(ValueError, match="temperature must be a number, found '0.5'"):
        pipeline.Sampling(temperature="0.5")
    with pytest.raises(ValueError, match="max_context must be a whole number from 2 up"):
        pipeline.load(tiny_directory, max_context="64")
    with pytest.raises(ValueError, match=r"stream\(\) takes ids, but this is a text"):
        engine.stream("The capital")


def test_numbers_of_numpy_s_kind_are_numbers(engine):
    numpy = pytest.importorskip("numpy")
    answer = engine.answer("x", max_tokens=numpy.int64(3))
    assert len(answer.ids) == 3
    assert pipeline.Sampling(temperature=numpy.float32(0.5)).temperature == 0.5


def test_a_model_without_a_template_can_continue_texts(copy):  # noqa: F811
    (copy / "tokenizer_config.json").unlink()
    engine = pipeline.load(copy)
    with pytest.raises(ValueError, match="no chat template; raw=True continues texts"):
        engine.answer("The capital")
    assert engine.answer("The capital", raw=True, max_tokens=2).text


# --- loading -------------------------------------------------------------------------------------


def test_load_takes_what_the_command_line_takes(tiny_directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_directory, "Qwen3-0.6B")  # where the default is looked for first
    for name in (None, str(tiny_directory), Path("Qwen3-0.6B"), "Qwen3-0.6B/"):
        assert repr(pipeline.load(name)) == "Engine(qwen3, 320 tokens, context 256)"
    with pytest.raises(source.SourceError, match="there is no file or directory 'nowhere'"):
        pipeline.load("nowhere")


def test_load_s_options_are_the_engine_s(tiny_directory):
    engine = pipeline.load(tiny_directory, dtype="bfloat16", max_context=64)
    assert engine.model.model.norm.weight.dtype == mx.bfloat16
    assert engine.context == 64


def test_what_is_taken_instead_of_the_default_is_said(tiny_directory, monkeypatch, caplog):
    def find(name, *, notify):
        assert name == "org/name"
        notify("fetching org/name from the Hub")
        return source.Source(tiny_directory, name)

    monkeypatch.setattr(source, "find", find)
    pipeline.load("org/name")
    assert caplog.messages == ["fetching org/name from the Hub"]


# --- what is public ------------------------------------------------------------------------------


def test_dir_lists_what_is_public_and_nothing_else():
    import pipeline.commands.answer  # submodules are attributes then

    assert {*dir(pipeline)} == PUBLIC == {*pipeline.__all__, "__version__"}
    assert all(getattr(pipeline, name) for name in PUBLIC)
    with pytest.raises(AttributeError, match="module 'pipeline' has no attribute 'nothing'"):
        pipeline.nothing  # noqa: B018


def test_the_version_is_that_of_the_distribution():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.+)"$', text, re.M)[1] == pipeline.__version__


def test_import_alone_is_cheap_and_the_rest_comes_when_asked_for():
    script = (
        "import sys, pipeline; dir(pipeline); before = {*sys.modules}; pipeline.Engine;"
        "print({'mlx', 'bpe', 'model', 'argparse', 'logging'} & before, 'mlx' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "set() True\n"


def test_packages_say_that_they_are_typed():
    for name in ("bpe", "model", "pipeline"):
        assert (ROOT / name / "py.typed").exists()
    assert '"*" = ["py.typed"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
