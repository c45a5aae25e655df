"""commands/batch.py: answers equal to those one by one, in order, each once."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from tiny import TINY_CHAT_TEMPLATE

from pipeline.__main__ import main
from pipeline.commands import batch
from pipeline.engine import Engine
from pipeline.sampling import Sampling
from pipeline.statistics import Statistics
from tests.pipeline.commands.test_answer import ENVIRONMENT, ROOT, hear_signals, run  # noqa: F401  (a fixture)
from tests.pipeline.test_engine import widen

TEXTS = ["The capital", "x", "Once upon a time there was a cat", "mat", "Où?", "is on the", "a b"]


@pytest.fixture
def engine(tiny_directory):
    return Engine.load(tiny_directory)


@pytest.fixture
def ask(run, tiny_directory):  # noqa: F811
    return lambda *arguments: run("batch", "--model", tiny_directory, *arguments)


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def prompts(tmp_path):
    """Prompts of unequal lengths with limits of their own."""
    lines = [
        json.dumps({"prompt": text, "id": f"p{i}", "max_tokens": 3 + 5 * (i % 3)})
        for i, text in enumerate(TEXTS)
    ]
    return written(tmp_path / "prompts.jsonl", lines)


def one_by_one(engine, text, **options):
    ids = engine.encode_chat([{"role": "user", "content": text}])
    return engine.collect(engine.stream(ids, **options))


def records(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_answers_are_those_of_one_prompt_at_a_time_in_order(ask, engine, prompts, tmp_path, rows):
    out = tmp_path / "answers.jsonl"
    code, shown, err = ask("--rows", rows, prompts, "-o", out)
    assert (code, shown) == (0, "")
    found = records(out.read_text())
    assert [(one["line"], one["id"]) for one in found] == [(i + 1, f"p{i}") for i in range(7)]
    for i, one in enumerate(found):
        answer = one_by_one(engine, TEXTS[i], max_tokens=3 + 5 * (i % 3))
        assert (one["text"], one["finish_reason"]) == (answer.text, answer.finish_reason)
        assert one["usage"]["completion_tokens"] == len(answer.ids)
    assert err[-1].startswith("7 prompts in ")
    assert {path.name for path in tmp_path.iterdir()} == {"prompts.jsonl", "answers.jsonl"}


def test_without_a_file_answers_go_to_stdout_in_order(ask, prompts, tmp_path):
    code, shown, _ = ask("--rows", 3, prompts)
    assert ask("--rows", 3, prompts, "-o", tmp_path / "o")[0] == code == 0
    assert shown == (tmp_path / "o").read_text()


def test_a_line_may_be_a_text_or_messages_with_choices_of_its_own(ask, engine, tmp_path):
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    turns.append({"role": "user", "content": "z"})
    sampled = {"prompt": "Once", "temperature": 1.5, "seed": 4}
    whole = one_by_one(engine, "Once", max_tokens=9).text
    stopped = {"prompt": "Once", "stop": whole[2:4]}
    lines = map(json.dumps, ["The cat", {"messages": turns}, sampled, stopped])
    _, shown, _ = ask("--max-tokens", 9, written(tmp_path / "p", lines))
    first, second, third, fourth = (one["text"] for one in records(shown))
    assert first == one_by_one(engine, "The cat", max_tokens=9).text
    expected = engine.collect(engine.stream(engine.encode_chat(turns), max_tokens=9)).text
    assert second == expected
    sampling = Sampling(temperature=1.5, seed=4)
    assert third == one_by_one(engine, "Once", max_tokens=9, sampling=sampling).text != whole
    assert fourth == whole[: whole.index(whole[2:4])]


@pytest.fixture
def thinker(tiny_directory, tiny_json, tmp_path):
    """A model that thinks: its template opens the reasoning, and nothing it says closes it."""
    directory = shutil.copytree(tiny_directory, tmp_path / "thinker")
    more = json.loads(json.dumps(tiny_json))
    more["added_tokens"].append(dict(more["added_tokens"][-1], id=320, content="</think>"))
    (directory / "tokenizer.json").write_text(json.dumps(more))
    widen(directory)
    template = TINY_CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    (directory / "chat_template.jinja").write_text(template)
    return directory


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_thinking_budget_for_all_and_for_each(run, thinker, tmp_path, temperature):  # noqa: F811
    engine = Engine.load(thinker)
    own = {"temperature": temperature, "seed": 3, "max_tokens": 30}
    budgets = [None, 0, 1, 7, 100]
    lines = [own | {"prompt": "Once"} | {"think_budget": n} for n in budgets]
    lines.append(own | {"prompt": "Once", "think_budget": 26})  # no room for the closing
    prompts = written(tmp_path / "p", map(json.dumps, lines))
    options = ("batch", "--model", thinker, "--think-budget", 4, "--rows", 2)
    code, shown, _ = run(*options, prompts)
    assert code == 0
    for budget, found in zip([4, *budgets[1:], 26], records(shown), strict=True):
        statistics = Statistics()
        answer = one_by_one(
            engine, "Once", max_tokens=30, think_budget=budget, statistics=statistics,
            sampling=Sampling(temperature=temperature, seed=3),
        )  # fmt: skip
        assert (found["text"], found.get("reasoning", "")) == (answer.text, answer.reasoning)
        assert found["finish_reason"] == answer.finish_reason
        assert found["usage"]["reasoning_tokens"] == statistics.num_reasoning_tokens
        assert found["usage"]["completion_tokens"] == statistics.num_generated_tokens
        assert found["usage"]["prompt_tokens"] == statistics.num_prompt_tokens
        assert statistics.num_reasoning_tokens <= budget
    assert [one["usage"]["reasoning_tokens"] for one in records(shown)[:4]] == [4, 0, 1, 7]


BAD = {
    "no json": ("{", "Expecting property name"),
    "a number": ("7", "it is a JSON int, not an object or a text"),
    "no prompt": ("{}", 'neither "messages" nor a "prompt"'),
    "empty": ('{"prompt": " "}', 'neither "messages" nor a "prompt"'),
    "length": ('{"prompt": "x", "max_tokens": 0}', "max_tokens must be a whole number"),
    "budget": ('{"prompt": "x", "think_budget": -1}', "think_budget must be a whole number"),
    "too long": (json.dumps("x" * 300), "leave no room in the context of 256"),
    "choice": ('{"prompt": "x", "top_p": 5}', "top_p must be above 0"),
    "type": ('{"prompt": "x", "temperature": "hot"}', "temperature must be a number, found 'hot'"),
    "bool": ('{"prompt": "x", "top_k": true}', "top_k must be a number, found True"),
    "a stop": ('{"prompt": "x", "stop": 5}', "stop must be a text or a list of texts, found 5"),
    "system": ('{"prompt": "x", "system": 5}', "system must be a text, found 5"),
    "stop": ('{"prompt": "x", "stop": [""]}', "stop texts must be"),
    "messages": ('{"messages": "x"}', "messages must be a non-empty list"),
    "surrogate": ('"\\ud800"', "lone surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_reported_and_skipped(ask, engine, tmp_path, name):
    line, message = BAD[name]
    lines = ['"The cat"', "", line, '"mat"']
    code, shown, err = ask("--max-tokens", 4, written(tmp_path / "p", lines))
    assert code == 1
    assert [one["line"] for one in records(shown)] == [1, 4]
    assert records(shown)[1]["text"] == one_by_one(engine, "mat", max_tokens=4).text
    told = [said for said in err if said.startswith("line 3 is skipped: ")]
    assert len(told) == 1
    assert message in told[0]
    assert err[-1] == "1 of 3 lines were skipped"


def test_bytes_that_are_no_text_are_a_bad_line(ask, tmp_path):
    (tmp_path / "p").write_bytes(b'"caf\xe9"\n\xef\xbb\xbf"mat"\n')
    code, shown, err = ask("--max-tokens", 4, tmp_path / "p")
    assert (code, [one["line"] for one in records(shown)]) == (1, [2])
    assert err[0] == "line 1 is skipped: it is not UTF-8 at byte 4"


def interrupted(monkeypatch, after):
    """Let Ctrl-C come once so many answers are written."""
    put = batch.Journal.put

    def put_and_stop(self, request, record):
        put(self, request, record)
        put_and_stop.num_written += 1
        if put_and_stop.num_written == after:
            raise KeyboardInterrupt

    put_and_stop.num_written = 0
    monkeypatch.setattr(batch.Journal, "put", put_and_stop)


def test_an_interrupted_run_goes_on_where_it_stopped(ask, prompts, tmp_path, monkeypatch):
    out, part = tmp_path / "o", tmp_path / "o.part"
    expected = ask("--rows", 2, prompts)[1]
    with monkeypatch.context() as patch:
        interrupted(patch, after=3)
        code, _, err = ask("--rows", 2, prompts, "-o", out)
    told = f"answers so far are in {part}; the same command goes on from there"
    assert (code, err[-2:]) == (130, [told, "interrupted"])
    assert not out.exists()
    kept = part.read_bytes()
    assert kept.count(b"\n") == 1 + 3  # a header and three answers
    part.write_bytes(kept + b'{"line": 9, "te')  # and killed in the middle of the next one
    with monkeypatch.context() as patch:
        interrupted(patch, after=1)
        assert ask("--rows", 2, prompts, "-o", out)[0] == 130
    kept = part.read_bytes()
    assert len(records(kept.decode())) == 1 + 4
    answered = []
    put = batch.Journal.put
    monkeypatch.setattr(
        batch.Journal, "put", lambda s, q, r: (answered.append(q.number), put(s, q, r))
    )
    code, _, err = ask("--rows", 2, prompts, "-o", out)
    assert (code, err[0]) == (0, "going on: 4 of 7 are done already")
    done = {record["line"] for record in records(kept.decode())[1:]}
    assert sorted(answered) == sorted({*range(1, 8)} - done)
    assert out.read_text() == expected
    assert not part.exists()


class Stopped(io.TextIOWrapper):
    """A stdout where Ctrl-C comes with a certain write, or a certain flush."""

    def __init__(self, method, number):
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.method, self.num_left = method, number

    def write(self, text):
        self._count("write")
        super().write(text)

    def flush(self):
        super().flush()
        self._count("flush")

    def _count(self, method):
        self.num_left -= method == self.method
        if method == self.method and self.num_left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["write", "flush"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_on_stdout_an_interruption_loses_no_answer_and_tells_none_twice(
    ask, prompts, monkeypatch, method, number
):
    expected = ask("--rows", 8, prompts)[1].splitlines()
    done = []
    record = batch._record
    monkeypatch.setattr(batch, "_record", lambda *a: done.append(record(*a)) or done[-1])
    screen = Stopped(method, number)
    monkeypatch.setattr("sys.stdout", screen)
    assert ask("--rows", 8, prompts)[0] == 130
    shown = screen.buffer.getvalue().decode().splitlines()
    lines = {one["line"] for one in done}
    assert shown == [expected[line - 1] for line in sorted(lines)]


def test_answers_behind_a_bad_line_do_not_wait_for_the_end(ask, tmp_path, monkeypatch):
    lines = ["{", '"The cat"', '{"prompt": "mat", "max_tokens": 30}']
    out, shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), []
    step = batch._Progress.step
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr(
        batch._Progress, "step",
        lambda *a: shown.append(out.buffer.getvalue().count(b"\n")) or step(*a),
    )  # fmt: skip
    assert ask("--max-tokens", 2, written(tmp_path / "p", lines))[0] == 1
    assert shown == [1, 2]


def test_going_on_answers_lines_that_changed_again(ask, prompts, tmp_path, monkeypatch):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        interrupted(patch, after=7)
        assert ask(prompts, "-o", out)[0] == 130
    lines = prompts.read_text().splitlines()
    lines[2] = '{"prompt": "Another one", "max_tokens": 4}'
    written(prompts, lines)
    expected = ask(prompts)[1]
    assert ask(prompts, "-o", out)[0] == 0
    assert out.read_text() == expected


def test_a_run_with_other_options_is_not_gone_on_with(ask, prompts, tmp_path, monkeypatch):
    out = tmp_path / "o"
    with monkeypatch.context() as patch:
        interrupted(patch, after=2)
        ask(prompts, "-o", out)
    kept = (tmp_path / "o.part").read_bytes()
    code, _, err = ask("--temp", 1, prompts, "-o", out)
    assert code == 1
    assert "was begun by a run with other options" in err[-1]
    assert (tmp_path / "o.part").read_bytes() == kept
    assert ask("--rows", 1, prompts, "-o", out)[0] == 0  # the number of rows changes no answer


def test_what_is_there_is_not_overwritten(ask, prompts, tmp_path):
    (tmp_path / "o").write_text("mine")
    code, _, err = ask(prompts, "-o", tmp_path / "o")
    assert (code, len(err)) == (2, 1)
    assert "exists already" in err[0]
    assert (tmp_path / "o").read_text() == "mine"


@pytest.mark.parametrize("options", [["--system", "x"], ["--no-think"], ["--think-budget", 3]])
def test_raw_has_no_place_for_what_a_template_needs(ask, prompts, options):
    code, out, err = ask("--raw", *options, prompts)
    assert (code, out, len(err)) == (2, "", 1)
    assert f"without the chat template that {options[0]} is for" in err[0]


@pytest.mark.parametrize(
    ("out", "message"),
    [("", "--output: it is empty"), (".", "is a directory; name a file"), ("no/o", "no directory")],
)
def test_a_place_where_no_file_can_be(ask, prompts, out, message):
    code, shown, err = ask(prompts, "-o", out)
    assert (code, shown, len(err)) == (2, "", 1)
    assert message in err[0]


@pytest.mark.parametrize(
    "content", [b"mine", b"mine\n", b'{"a": 1}\n', b'{"batch": "x"}\n[]\n', b'{"batch": \n']
)
def test_a_file_of_somebody_else_is_left_alone(ask, prompts, tmp_path, content):
    (tmp_path / "o.part").write_bytes(content)
    code, _, err = ask(prompts, "-o", tmp_path / "o")
    assert (code, len(err)) == (1, 1)
    assert "o.part is damaged, or no file of this command" in err[0]
    assert (tmp_path / "o.part").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b'{"ba', b'{"batch": "f0'])
def test_a_run_killed_in_its_first_line_is_begun_again(ask, prompts, tmp_path, content):
    (tmp_path / "o.part").write_bytes(content)
    assert ask(prompts, "-o", tmp_path / "o")[0] == 0
    assert len(records((tmp_path / "o").read_text())) == len(TEXTS)


def test_no_prompts_in_a_pipe(ask, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert ask("-")[::2] == (1, ["error: stdin holds no prompts; write one JSON object a line"])


def test_two_runs_do_not_share_a_file(ask, prompts, tmp_path):
    options = batch.make_parser().parse_args(["x"])
    first = batch.Journal(tmp_path / "o", options)
    code, _, err = ask(prompts, "-o", tmp_path / "o")
    first.close()
    assert code == 1
    assert "another run is writing" in err[-1]


def test_a_killed_run_loses_nothing(tiny_directory, tmp_path):
    """A process of its own, ended by SIGKILL once the first answers are there."""
    model = shutil.copytree(tiny_directory, tmp_path / "model")
    lines = [json.dumps({"prompt": f"x {i}", "max_tokens": 20}) for i in range(60)]
    prompts, out = written(tmp_path / "p", lines), tmp_path / "o"
    command = [sys.executable, "-m", "pipeline", "batch", "--model", model, prompts, "-o", out]
    options = {"cwd": ROOT, "env": ENVIRONMENT, "preexec_fn": hear_signals}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, **options)
    for line in process.stderr:
        if b"are done" in line:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    again = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    assert again.stderr.startswith("going on: ")
    assert [one["line"] for one in records(out.read_text())] == [*range(1, 61)]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"", "holds no prompts"), (b"\n \n", "holds")]
)
def test_no_prompts(ask, tmp_path, content, message):
    if content is not None:
        (tmp_path / "p").write_bytes(content)
    code, shown, err = ask(tmp_path / "p")
    assert (code, shown, len(err)) == (1, "", 1)
    assert message in err[0]


def test_help_and_usage_errors(capfd):
    for arguments, code in ((["batch", "--help"], 0), (["batch"], 2), (["batch", "p", "--x"], 2)):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == code
    assert "(see python -m pipeline batch --help)" in capfd.readouterr().err


@pytest.mark.parametrize("output", ["-", "fifo"])
def test_answers_may_go_to_a_stream(tiny_directory, tmp_path, output):
    """Straight, as to stdout; nothing is left beside it."""
    (tmp_path / "p.jsonl").write_text('"hello"\n{"prompt": "x", "id": "b"}\n')
    os.mkfifo(tmp_path / "fifo")
    command = [sys.executable, "-m", "pipeline", "batch", "p.jsonl", "--max-tokens", "3"]
    command += ["--model", str(tiny_directory)]
    options = {"cwd": tmp_path, "env": ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, "text": True}
    expected = subprocess.run(command, capture_output=True, **options).stdout
    with subprocess.Popen(["cat", "fifo"], stdout=subprocess.PIPE, **options) as reader:
        run = subprocess.run([*command, "-o", output], capture_output=True, **options)
        if output == "-":
            reader.kill()
        assert (run.returncode, run.stdout) == (0, expected if output == "-" else "")
        assert reader.stdout.read() == ("" if output == "-" else expected)
    assert expected.count("\n") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"p.jsonl", "fifo"}
