"""pipeline/engine.py against a slow loop of its own, and against ids from a script."""

import json
import random
import shutil
from types import SimpleNamespace

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_same_ids
from tiny import TINY_CHAT_TEMPLATE

import model
from model.weights.gguf import GGUF
from pipeline.chunks import Chunk
from pipeline.engine import Engine
from pipeline.sampling import Sampling
from pipeline.statistics import Statistics
from tests.model.weights.test_gguf import floats, write_gguf, write_model

ASK = [{"role": "user", "content": "The capital of France?"}]


@pytest.fixture(scope="module")
def engine(tiny_directory):
    return Engine.load(tiny_directory)


@pytest.fixture
def copy(tiny_directory, tmp_path):
    """A copy of the tiny model directory to be changed."""
    return shutil.copytree(tiny_directory, tmp_path / "copy")


@pytest.fixture
def scripted(engine, monkeypatch):
    """answer(ids) -> the chunks that the engine makes of a model which says these ids."""

    def answer(ids):
        monkeypatch.setattr(model, "generate", lambda m, prompt, **options: iter(ids))
        return list(engine.stream([5]))

    return answer


def slow_answer(engine, ids, max_tokens):
    """The greedy ids by the textbook: the whole text through the model again for each one."""
    said = []
    while len(said) < max_tokens:
        logits = engine.model(mx.array([[*ids, *said]]))[0, -1]
        said.append(mx.argmax(logits[: engine.tokenizer.vocab_size]).item())
        if said[-1] in engine.stop_ids:
            break
    return said


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


# --- ids and text --------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["The capital of France is", "x", "Once upon a time"])
def test_the_answer_is_that_of_the_slow_loop(engine, prompt):
    ids = engine.encode_raw(prompt)
    chunks = list(engine.stream(ids, max_tokens=20))
    expected = slow_answer(engine, ids, 20)
    assert_same_ids([chunk.id for chunk in chunks if chunk.id is not None], expected)
    assert text_of(chunks) == engine.tokenizer.decode(expected, skip_special_tokens=True)


def test_the_prompt_of_a_conversation_is_the_template_s(engine):
    expected = engine.tokenizer.apply_chat_template(ASK)
    assert_same_ids(engine.encode_chat(ASK), expected)
    assert engine.tokenizer.decode(expected).startswith("<|im_start|>user\nThe capital")


def test_chunks_joined_are_the_decoded_ids_whatever_they_are(engine, scripted):
    draw = random.Random(0)
    for _ in range(50):
        ids = [draw.choice([1, *range(3, 320)]) for _ in range(40)]  # every byte, no stop id
        expected = engine.tokenizer.decode(ids, skip_special_tokens=True)
        assert text_of(scripted(ids)) == expected


def test_no_chunk_holds_half_a_character(engine, scripted):
    text = "naïve 日本語 🙂 e\u0301 \u200d"
    by_byte = [engine.tokenizer.token_to_id(bytes([byte])) for byte in text.encode()]
    chunks = scripted(by_byte)
    assert [chunk.text for chunk in chunks if chunk.text] == list(text)


def test_bytes_that_never_become_a_character_come_as_one_replacement(engine, scripted):
    half = [engine.tokenizer.token_to_id(bytes([byte])) for byte in "🙂".encode()[:3]]
    assert text_of(scripted(half)) == "\ufffd"
    assert scripted([*half, 2])[-1] == Chunk("\ufffd", 2, "stop")


def test_a_raw_prompt_begins_as_the_model_wants_it(copy, tiny_json):
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "bos", "type_id": 0}}, {"Sequence": {"id": "A"}}],
        "pair": [],
        "special_tokens": {"bos": {"id": "bos", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    (copy / "tokenizer.json").write_text(json.dumps(tiny_json | {"post_processor": template}))
    engine = Engine.load(copy)
    assert_same_ids(engine.encode_raw("The"), [1, *engine.tokenizer.encode("The")])


def test_rows_that_only_pad_the_embedding_are_never_said(engine, copy, tiny_json):
    assert slow_answer(engine, [123], 3) == [319, 319, 319]  # <think>, as long as it is a token
    without = tiny_json | {"added_tokens": tiny_json["added_tokens"][:-1]}
    (copy / "tokenizer.json").write_text(json.dumps(without))
    smaller = Engine.load(copy)
    said = [chunk.id for chunk in smaller.stream([123], max_tokens=3)]
    assert_same_ids(said[:-1], slow_answer(smaller, [123], 3))


# --- how it ends ---------------------------------------------------------------------------------


def test_a_stop_id_ends_the_answer_without_its_text(scripted):
    rest = iter([70, 71, 0, 72])
    chunks = scripted(rest)
    assert [(chunk.id, chunk.finish_reason) for chunk in chunks] == [
        (70, None), (71, None), (0, "stop"),
    ]  # fmt: skip
    assert chunks[-1].text == ""
    assert list(rest) == [72]  # nobody asked the model for more


def test_the_end_of_the_allowed_length_is_told(scripted):
    assert scripted([70])[-1] == Chunk("", None, "length")


def test_the_context_ends_the_answer_as_well(engine):
    prompt = [5] * (engine.model.config.context - 6)
    chunks = list(engine.stream(prompt, max_tokens=100))
    assert len(chunks) == 6 + 1
    assert chunks[-1].finish_reason == "length"


def test_nothing_is_computed_before_it_is_asked_for(engine, monkeypatch):
    def never(*_):
        raise AssertionError("computed")

    monkeypatch.setattr(type(engine.model), "__call__", never)
    monkeypatch.setattr(type(engine.model), "hidden", never, raising=False)
    chunks = engine.stream([5])
    with pytest.raises(AssertionError, match="computed"):
        next(chunks)


def test_impossible_prompts_are_refused_at_the_call(engine):
    with pytest.raises(ValueError, match="empty"):
        engine.stream([])
    with pytest.raises(ValueError, match="context of 256"):
        engine.stream([5] * 256)


def test_stop_ids_come_from_all_the_files_that_name_them(copy):
    assert Engine.load(copy).stop_ids == {0, 2}  # 0 from generation_config.json
    (copy / "generation_config.json").unlink()
    assert Engine.load(copy).stop_ids == {2}
    change_json(copy / "config.json", eos_token_id=[7, 8])
    assert Engine.load(copy).stop_ids == {2, 7, 8}  # 2 is tokenizer_config.json's eos_token
    (copy / "tokenizer_config.json").unlink()
    assert Engine.load(copy).stop_ids == {7, 8}


def change_json(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# --- sampling ------------------------------------------------------------------------------------


def test_sampling_is_the_model_s_where_the_caller_leaves_it_open(copy):
    wishes = {"do_sample": True, "temperature": 1.5, "top_k": 9, "top_p": None}
    (copy / "generation_config.json").write_text(json.dumps(wishes))
    engine = Engine.load(copy)
    ids = engine.encode_raw("Once")

    def answer(**choices):
        chunks = engine.stream(ids, max_tokens=12, sampling=Sampling(**choices))
        return [chunk.id for chunk in chunks]

    def expected(**choices):
        options = {"sampler": model.make_sampler(**choices), "vocab_size": 320}
        said = list(model.generate(engine.model, ids, max_tokens=12, **options))
        stop = next((i + 1 for i, id in enumerate(said) if id in engine.stop_ids), None)
        return said[:stop] + [None] * (stop is None)

    assert answer(seed=3) == expected(temperature=1.5, top_k=9, seed=3)
    assert answer(seed=3, top_k=2) == expected(temperature=1.5, top_k=2, seed=3)
    assert answer(temperature=0, seed=3) == expected(temperature=0)
    assert answer(seed=3) == answer(seed=3)
    assert answer(seed=3) != answer(seed=4)


GREEDY = Sampling(temperature=0.0)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, GREEDY),
        ({"temperature": 0.6, "top_p": 0.95}, GREEDY),
        ({"do_sample": False, "temperature": 0.6}, GREEDY),
        ({"do_sample": None}, GREEDY),
        ({"repetition_penalty": 1.1}, Sampling(0.0, repetition_penalty=1.1)),
        ({"do_sample": True}, Sampling(temperature=1.0)),
        ({"do_sample": True, "temperature": None}, Sampling(temperature=1.0)),
        ({"do_sample": True, "temperature": 0, "top_k": None}, Sampling(temperature=0)),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 1, "min_p": 0.1},
            Sampling(temperature=0.6, top_k=20, top_p=1, min_p=0.1),
        ),
    ],
)
def test_sampling_defaults(copy, wishes, expected):
    (copy / "generation_config.json").write_text(json.dumps(wishes))
    assert Engine.load(copy).sampling == expected


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ('{"do_sample": "yes"}', "do_sample must be bool"),
        ('{"do_sample": true, "temperature": "0.6"}', "temperature must be float"),
        ('{"do_sample": true, "temperature": NaN}', "temperature must be 0"),
        ('{"do_sample": true, "temperature": -1}', "temperature must be 0"),
        ('{"do_sample": true, "top_k": 2.5}', "top_k must be int"),
        ('{"do_sample": true, "top_k": -1}', "top_k must be a whole number"),
        ('{"do_sample": true, "top_p": true}', "top_p must be float"),
        ('{"do_sample": true, "top_p": 5}', "top_p must be above 0"),
        ('{"eos_token_id": "2"}', "eos_token_id must be an id"),
        ('{"repetition_penalty": 0}', "repetition_penalty must be above 0"),
        ('{"repetition_penalty": "1"}', "repetition_penalty must be float"),
        ('{"eos_token_id": [2, "0"]}', "eos_token_id must be an id"),
        ('{"eos_token_id": true}', "eos_token_id must be an id"),
        ('{"eos_token_id": 2', "not valid JSON"),
        ("[2]", "must hold a JSON object, found a list"),
        ("\udcff", "not valid JSON"),
    ],
)
def test_wishes_that_make_no_sense_are_refused_with_the_file_s_name(copy, wishes, message):
    file = copy / "generation_config.json"
    file.write_bytes(wishes.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message) as caught:
        Engine.load(copy)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("choice", [{"top_p": 5}, {"temperature": -1}, {"top_k": -1}, {"seed": -1}])
def test_choices_out_of_range_are_refused_at_the_door(choice):
    with pytest.raises(ValueError, match=next(iter(choice))):
        Sampling(**choice)


# --- statistics ----------------------------------------------------------------------------------


def test_statistics_by_a_clock_that_we_set(engine, scripted, monkeypatch):
    ticks = iter([10.0, 10.5, 10.75, 11.25])  # start, then each id
    monkeypatch.setattr(
        "pipeline.statistics.time", SimpleNamespace(perf_counter=lambda: next(ticks))
    )
    monkeypatch.setattr(model, "generate", lambda m, prompt, **options: iter([70, 71, 2, 72]))
    statistics = Statistics()
    for _ in engine.stream([5, 6, 7, 8], statistics=statistics):
        pass
    assert statistics == Statistics(4, 3, prefill_seconds=0.5, decode_seconds=0.75)
    assert statistics.prefill_tokens_per_second == 4 / 0.5
    assert statistics.decode_tokens_per_second == 2 / 0.75  # the first came out of the prefill


def test_statistics_before_anything_happened_divide_by_nothing():
    assert Statistics().prefill_tokens_per_second == 0
    assert Statistics(4, 1, 0.5).decode_tokens_per_second == 0


def test_prefill_is_reported_to_its_end(engine):
    seen = []
    next(engine.stream([5, 6, 7], on_prefill=lambda *progress: seen.append(progress)))
    assert seen[-1] == (3, 3)


# --- loading -------------------------------------------------------------------------------------


@pytest.fixture
def tiny_gguf(tiny_json, tmp_path):
    """The tiny model directory as one GGUF file."""
    path = write_model(tmp_path / "tiny.gguf", model.load(REFERENCE / "qwen3-tied"))
    file = GGUF(path)
    tensors = {
        name: (0, info.shape, floats(file.read(name).reshape(-1).tolist()))
        for name, info in file.tensors.items()
    }
    vocab = tiny_json["model"]["vocab"]
    tokens = [*sorted(vocab, key=vocab.get), "<think>"]
    tokenizer = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": tiny_json["model"]["merges"],
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 4) + [4],
        "tokenizer.chat_template": TINY_CHAT_TEMPLATE,
    }  # fmt: skip
    return write_gguf(path, file.metadata | tokenizer, tensors)


def test_a_gguf_file_answers_as_the_directory_it_was_made_from(engine, tiny_gguf):
    from_gguf = Engine.load(tiny_gguf)
    assert_same_ids(from_gguf.encode_chat(ASK), engine.encode_chat(ASK))
    ids = engine.encode_chat(ASK)
    assert list(from_gguf.stream(ids, max_tokens=8)) == list(engine.stream(ids, max_tokens=8))
    assert from_gguf.stop_ids == {0, 2}  # by their names: this file's metadata has no eos


def test_a_directory_without_template_has_none(copy):
    (copy / "tokenizer_config.json").unlink()
    assert not Engine.load(copy).has_chat_template


def test_a_tokenizer_with_more_ids_than_the_model_has_rows_is_refused(copy, tiny_json):
    bigger = json.loads(json.dumps(tiny_json))
    bigger["added_tokens"].append(dict(bigger["added_tokens"][-1], id=320, content="<more>"))
    (copy / "tokenizer.json").write_text(json.dumps(bigger))
    with pytest.raises(ValueError, match=r"ids up to 320 .* only 320 rows"):
        Engine.load(copy)


def test_a_model_that_we_do_not_run_is_named_even_if_its_tokenizer_is_foreign_too(copy, tiny_json):
    change_json(copy / "config.json", model_type="gemma9")
    foreign = json.loads(json.dumps(tiny_json))
    foreign["model"]["byte_fallback"] = True
    (copy / "tokenizer.json").write_text(json.dumps(foreign))
    with pytest.raises(ValueError, match=r"gemma9.*llama, qwen2, qwen3"):
        Engine.load(copy)
    change_json(copy / "config.json", model_type="llama", attention_bias=False)
    with pytest.raises(ValueError, match="byte_fallback"):
        Engine.load(copy)


def test_a_gguf_file_beside_nothing_else_is_pointed_at(tiny_gguf):
    with pytest.raises(FileNotFoundError, match=r"no config.json.* pass .*tiny.gguf"):
        Engine.load(tiny_gguf.parent)


# --- stop texts, thinking, log-probabilities -----------------------------------------------------


@pytest.fixture
def thinker(copy, tiny_json):
    """An engine whose tokenizer has </think> as well: id 320, and <think> is 319."""
    more = json.loads(json.dumps(tiny_json))
    more["added_tokens"].append(dict(more["added_tokens"][-1], id=320, content="</think>"))
    (copy / "tokenizer.json").write_text(json.dumps(more))
    widen(copy)
    return Engine.load(copy)


def widen(directory):
    """One more row in the embedding of a tied checkpoint."""
    weights = mx.load(str(directory / "model.safetensors"))
    name = "model.embed_tokens.weight"
    weights[name] = mx.concatenate([weights[name], weights[name][-1:]])
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "mlx"})
    change_json(directory / "config.json", vocab_size=321)


@pytest.fixture
def say(monkeypatch):
    """say(engine, texts, **options) -> chunks, where each generation says the next text's ids; the
    prompts that they were made for are in say.prompts."""

    def run(engine, *texts, prompt=(5,), **options):
        answers = iter(texts)

        def generate(session, ids, max_tokens, **_):
            run.prompts.append(list(ids))
            session.num_reused = 0
            said = engine.tokenizer.encode(next(answers), allowed_special="all")
            return iter(said[:max_tokens])

        monkeypatch.setattr(model.Session, "generate", generate)
        return list(engine.stream(prompt, session=engine.session(), **options))

    run.prompts = []
    return run


@pytest.mark.parametrize("stop", ["is", "is on", "\n", "e m", "🙂"])
def test_a_stop_text_ends_the_answer_across_token_borders(engine, say, stop):
    text = "The cat is on the mat. 🙂\n"
    chunks = say(engine, text, stop=["never", stop])
    assert text_of(chunks) == text[: text.index(stop)]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    assert chunks[-1].finish_reason == "stop"


def test_what_only_looked_like_a_stop_text_is_given_out_at_the_end(engine, say):
    assert text_of(say(engine, "The mat", stop=["mat!"])) == "The mat"
    assert text_of(say(engine, "The mat<|im_end|>", stop=["mat!"])) == "The mat"


def test_thinking_is_apart_where_it_is_asked_for(thinker, say):
    text = "<think>\nHm, the cat.\n</think>\n\nThe mat.<|im_end|>"
    chunks = say(thinker, text, split_thinking=True, stop=["cat"])  # no stop in the reasoning
    answer = thinker.collect(chunks)
    assert (answer.reasoning, answer.text) == ("Hm, the cat.", "The mat.")
    assert (answer.finish_reason, chunks[-1].id) == ("stop", 2)
    assert thinker.tokenizer.decode(answer.ids) + "<|im_end|>" == text
    whole = thinker.collect(say(thinker, text))
    assert (whole.reasoning, whole.text) == ("", text.removesuffix("<|im_end|>"))


def test_a_prompt_may_have_opened_the_thinking(thinker):
    def parts(prompt, text):
        ids = thinker.tokenizer.encode(prompt, allowed_special="all")
        composer = thinker.composer(ids, split_thinking=True)
        chunks = [composer.push(id) for id in thinker.tokenizer.encode(text)]
        answer = thinker.collect([*chunks, composer.finish("length")])
        return answer.reasoning, answer.text

    asked = "<|im_start|>user\n<think> what?<|im_end|>\n<|im_start|>assistant\n"
    assert parts(asked, "Hm.</think>Yes") == ("", "Hm.</think>Yes")
    assert parts(asked + "<think>\n", "Hm.</think>Yes") == ("Hm.", "Yes")
    assert parts(asked + "<think>\n\n</think>\n\n", "Yes") == ("", "Yes")


def test_a_spent_budget_closes_the_thinking_and_the_answer_follows(thinker, say):
    statistics = Statistics()
    endless = "<think>" + "Hm. " * 40
    chunks = say(
        thinker, endless, "The mat.<|im_end|>", think_budget=10, statistics=statistics
    )  # fmt: skip
    answer = thinker.collect(chunks)
    spent = thinker.tokenizer.encode(endless)[:11]  # the tag and ten of reasoning
    closing = thinker.tokenizer.encode("\n</think>\n\n")
    mat = thinker.tokenizer.encode("The mat.")
    assert answer.ids == spent + closing + mat
    assert say.prompts[-2:] == [[5], [5, *spent, *closing]]
    assert (answer.reasoning, answer.text) == (
        thinker.tokenizer.decode(spent[1:]).strip(),
        "The mat.",
    )
    assert (statistics.num_reasoning_tokens, statistics.num_generated_tokens) == (
        10,
        11 + len(mat) + 1,
    )


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_budget_is_the_most_tokens_that_the_model_thinks(thinker, say, budget, is_open):
    statistics, encode = Statistics(), thinker.tokenizer.encode
    prompt = encode("<think>\n") if is_open else [5]
    thought = encode("<think>" * (not is_open) + "Hm. " * 40)
    spent = thought[: (not is_open) + budget]
    before = ["<think>" * (not is_open) + "Hm. " * 40] if spent else []
    chunks = say(
        thinker, *before, "The mat.<|im_end|>", prompt=prompt, think_budget=budget,
        statistics=statistics,
    )  # fmt: skip
    answer = thinker.collect(chunks)
    assert say.prompts[-1] == [*prompt, *spent, *encode("\n</think>\n\n")]
    assert len(say.prompts) == len(before) + 1  # nothing was said in vain
    assert answer.text == "The mat."
    assert answer.reasoning == thinker.tokenizer.decode(spent[not is_open :]).strip()
    assert statistics.num_reasoning_tokens == budget


def test_without_a_budget_all_between_the_tags_is_counted(thinker, say):
    statistics, text = Statistics(), "<think>Hm.</think>The mat.<|im_end|>"
    say(thinker, text, split_thinking=True, statistics=statistics)
    assert statistics.num_reasoning_tokens == len(thinker.tokenizer.encode("Hm."))


def test_a_budget_that_is_not_reached_changes_nothing(thinker, say):
    text = "<think>Hm.</think>The mat." + "Hm. " * 10 + "<|im_end|>"
    assert say(thinker, text, think_budget=20) == say(thinker, text, split_thinking=True)


def test_the_allowed_length_counts_the_closing_of_a_spent_budget(thinker, say):
    chunks = say(thinker, "<think>" + "Hm. " * 40, "The", think_budget=10, max_tokens=12)
    assert chunks[-1] == Chunk("", None, "length")
    assert len(say.prompts) == 1


def test_qwen3_s_own_tokenizer_divides_and_closes(qwen3):
    engine = Engine(qwen3, None, frozenset({151645}))
    ids = engine.encode_chat(ASK)
    composer = engine.composer(ids, split_thinking=True)
    said = qwen3.encode("<think>\nOkay, 日本.\n</think>\n\nParis.<|im_end|>", allowed_special="all")
    answer = engine.collect([composer.push(id) for id in said])
    assert (answer.reasoning, answer.text) == ("Okay, 日本.", "Paris.")
    assert engine.can_switch_thinking
    closed = engine.encode_chat(ASK, enable_thinking=False)
    assert qwen3.decode(closed).endswith("assistant\n<think>\n\n</think>\n\n")
    composer = engine.composer(closed, split_thinking=True)
    assert composer.push(said[0]).text == ""  # may begin a thinking of its own
    assert not engine.composer(closed, split_thinking=True).is_thinking
    assert qwen3.encode("\n</think>\n\n") == [198, 151668, 271]


def test_an_answer_goes_on_from_its_beginning(engine):
    begun = [*ASK, {"role": "assistant", "content": "The cat"}]
    text = engine.tokenizer.decode(engine.encode_chat(begun))
    assert text.endswith("<|im_start|>assistant\nThe cat")


def test_log_probabilities_are_those_of_the_model(engine):
    ids = engine.encode_raw("Once")
    answer = engine.collect(engine.stream(ids, max_tokens=5, top_logprobs=3))
    for place, (id, token) in enumerate(zip(answer.ids, answer.tokens, strict=True)):
        logits = engine.model(mx.array([[*ids, *answer.ids[:place]]]))[0, -1, :320]
        logprobs = (logits - mx.logsumexp(logits)).tolist()
        assert token.id == id == token.top[0][0]
        assert token.logprob == pytest.approx(logprobs[id], abs=1e-4)
        best = sorted(range(320), key=lambda one: -logprobs[one])[:3]
        assert [one for one, _ in token.top] == best


# --- sessions, the context, penalties ------------------------------------------------------------


def test_a_session_reads_only_what_is_new_and_says_so(engine):
    session, ids = engine.session(), [*range(10, 60)]
    first = list(engine.stream(ids, max_tokens=5, session=session))
    statistics = Statistics()
    longer = [*ids, *(chunk.id for chunk in first if chunk.id is not None), 7, 8]
    again = engine.stream(longer, max_tokens=5, session=session, statistics=statistics)
    assert list(again) == list(engine.stream(longer, max_tokens=5))
    assert statistics.num_cached_tokens == 50 + 4  # the last id given out had not been read
    assert Statistics(60, 1, 2.0, num_cached_tokens=50).prefill_tokens_per_second == 5


def test_a_smaller_context_bounds_prompt_and_answer(tiny_directory):
    engine = Engine.load(tiny_directory, max_context=20)
    assert (engine.context, Engine.load(tiny_directory, max_context=999).context) == (20, 256)
    assert len(list(engine.stream([5] * 16, max_tokens=100))) == 4 + 1
    with pytest.raises(ValueError, match="context of 20 that was asked for"):
        engine.stream([5] * 20)


@pytest.mark.parametrize("wishes", [{}, {"do_sample": True, "temperature": 0}])
def test_the_files_repetition_penalty_is_honoured(copy, wishes):
    (copy / "generation_config.json").write_text(json.dumps(wishes | {"repetition_penalty": 1.8}))
    engine = Engine.load(copy)
    assert engine.sampling.repetition_penalty == 1.8
    ids = engine.encode_raw("The capital of the capital")
    options = {"vocab_size": 320, "max_tokens": 12}
    processors = model.make_processors(repetition_penalty=1.8)
    expected = list(model.generate(engine.model, ids, processors=processors, **options))
    plain = list(model.generate(engine.model, ids, **options))

    def answer(**choices):
        chunks = engine.stream(ids, max_tokens=12, sampling=Sampling(**choices))
        return [chunk.id for chunk in chunks if chunk.id is not None]

    assert expected != plain
    assert_same_ids(answer(), expected)
    assert_same_ids(answer(repetition_penalty=1), plain)
    assert_same_ids(answer(temperature=0), expected)


def test_a_draft_changes_no_id(engine):
    ids = engine.encode_raw("The cat is on the mat. " * 4)
    expected = list(engine.stream(ids, max_tokens=20))
    for draft in ("ngram", engine.model):
        assert list(engine.stream(ids, max_tokens=20, draft=draft)) == expected
