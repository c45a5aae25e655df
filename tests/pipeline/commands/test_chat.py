"""python -m pipeline chat as a terminal shows it: exact transcripts, with a scripted model."""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from scripted_chat import ANSWERS, ScriptedModel

from pipeline.commands import chat as repl
from pipeline.commands import terminal
from pipeline.conversation import Conversation
from pipeline.engine import Engine
from tests.pipeline.commands.test_answer import ENVIRONMENT, ROOT, copy  # noqa: F401  (a fixture)

SCRIPT = ROOT / "tests" / "scripted_chat.py"
CTRL_C, CTRL_D = "\x03", "\x04"
SECONDS = 20  # until a test gives up


class Terminal:
    """A chat in a pseudo-terminal. shown: all that it displayed, numbers with a point as N."""

    def __init__(self, model, home, *arguments, **environment):
        self.home = home
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 200, 0, 0))
        command = [sys.executable, SCRIPT, "chat", "--model", model, *map(str, arguments)]
        base = ENVIRONMENT | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "XDG_CACHE_HOME": str(home)}
        self._process = subprocess.Popen(
            [*map(str, command)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=base | environment,
            cwd=home,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._raw = ""
        self.wait_for(">>> ")

    @property
    def shown(self):
        plain = self._raw.replace("\r\n", "\n").replace("\x1b[K", "").replace("\x1b[?2004h", "")
        plain = plain.replace("\x1b[?2004l", "").replace("\r", "")
        return re.sub(r"\d+\.\d+", "N", plain)

    def wait_for(self, end, *, anywhere=False):
        """Until what is shown ends with that, or has it anywhere."""
        deadline = time.monotonic() + SECONDS
        while not (end in self.shown if anywhere else self.shown.endswith(end)):
            assert time.monotonic() < deadline, self.shown
            if select.select([self._ours], [], [], 0.1)[0]:
                self._raw += os.read(self._ours, 4096).decode()

    def type(self, keys, until=">>> ", **options):
        os.write(self._ours, keys.encode())
        seen = len(self._raw)
        deadline = time.monotonic() + SECONDS
        while len(self._raw) == seen:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._ours], [], [], 0.1)[0]:
                self._raw += os.read(self._ours, 4096).decode()
        self.wait_for(until, **options)

    def press_until_heard(self, key):
        """input() is deaf to a Ctrl-C in the moment between its prompt and its first select()."""
        deadline, seen = time.monotonic() + SECONDS, len(self._raw)
        while len(self._raw) == seen:
            assert time.monotonic() < deadline, self.shown
            os.write(self._ours, key.encode())
            if select.select([self._ours], [], [], 1)[0]:
                self._raw += os.read(self._ours, 4096).decode()

    def end(self):
        """-> the exit code, once it has ended by itself."""
        try:
            while block := os.read(self._ours, 4096):
                self._raw += block.decode()
        except OSError:  # Linux's way to say that it ended
            pass
        os.close(self._ours)
        return self._process.wait(timeout=SECONDS)


def _take_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def chat(tiny_directory, tmp_path):
    def start(*arguments, model=tiny_directory, **environment):
        return Terminal(model, tmp_path, *arguments, **environment)

    return start


def transcript(chat, *lines, **options):
    """What a chat shows, from the first prompt to the end, with each line typed in turn."""
    arguments = options.pop("arguments", ())
    terminal = chat(*arguments, **options)
    for line in lines:
        terminal.type(line + "\n", until="... " if line.endswith("\\") else ">>> ")
    os.write(terminal._ours, CTRL_D.encode())
    assert terminal.end() == 0
    return terminal.shown


BEGIN = "loading tiny ...tiny, loaded in N s\n/help lists the commands, Ctrl-D leaves\n"


def test_a_conversation(chat):
    assert transcript(chat, "hello", "", "/tokens", "what?", "/undo", "/undo", "/undo") == (
        BEGIN + ">>> hello\nHi, I am a script.\n"
        ">>> \n"
        ">>> /tokens\n37 of 256 tokens, 36 cached\n"
        ">>> what?\nDid you say something?\n"
        ">>> /undo\n>>> /undo\n>>> /undo\nerror: there is nothing to take back\n"
        ">>> \n"
    )


def test_each_turn_reads_only_what_is_new(chat, tiny):
    shown = transcript(chat, "hello", "hello", "/retry", arguments=["--verbose"])
    answer = tiny.encode("Hi, I am a script.")
    turns = [{"role": "user", "content": "hello"}]
    first = len(tiny.apply_chat_template(turns))
    turns += [{"role": "assistant", "content": "Hi, I am a script."}, *turns]
    second = len(tiny.apply_chat_template(turns))
    held = first + len(answer) + 1  # with <|im_end|>
    found = re.findall(r"(\d+) tokens cached, (\d+) new", shown)
    assert [(int(cached), int(new)) for cached, new in found] == [
        (0, first), (held, second - held), (second - 1, 1),
    ]  # fmt: skip


def test_messages_of_several_lines_and_with_a_slash(chat):
    shown = transcript(chat, "lines\\", "of text", "//slash")
    assert shown == BEGIN + (
        ">>> lines\\\n... of text\nTwo lines, I see.\n>>> //slash\nA slash.\n>>> \n"
    )
    terminal = chat()
    terminal.type('"""lines\n', until="... ")
    terminal.type('of text"""\n')
    assert terminal.shown == BEGIN + ('>>> """lines\n... of text"""\nTwo lines, I see.\n>>> ')
    terminal.type("/exit\n", until="/exit\n")
    assert terminal.end() == 0


def test_the_line_can_be_edited_and_earlier_lines_come_back(chat, tmp_path):
    terminal = chat()
    terminal.type("hellox\x7f\n")
    assert terminal.shown.endswith("Hi, I am a script.\n>>> ")
    terminal.type("\x1b[A\n")  # up
    assert terminal.shown.count("Hi, I am a script.") == 2
    terminal.type(CTRL_D, until="\n")
    assert terminal.end() == 0
    history = tmp_path / "bytepair" / "chat_history"
    assert "hello\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    again = chat()
    again.type("\x1b[A\n")  # also in the next chat
    assert again.shown.endswith("Hi, I am a script.\n>>> ")
    again.type(CTRL_D, until="\n")
    assert again.end() == 0


def test_ctrl_c_stops_the_answer_and_nothing_else(chat):
    terminal = chat()
    terminal.type("slow\n", until="one two", anywhere=True)
    terminal.type(CTRL_C)
    stopped = terminal.shown.removeprefix(BEGIN)
    assert re.fullmatch(r">>> slow\none two[a-z ]*(\^C)?\n\(stopped\)\n>>> ", stopped)
    said = stopped.splitlines()[1].removesuffix("^C")
    terminal.type("hello\n")
    assert terminal.shown.endswith(">>> hello\nHi, I am a script.\n>>> ")
    terminal.press_until_heard(CTRL_C)  # at the prompt: not even a turn
    terminal.wait_for("\n(Ctrl-D or /exit leaves)\n>>> ")
    terminal.type("/undo\n")
    terminal.type("/save chat.json\n", until="saved in chat.json\n>>> ")
    saved = json.loads((terminal.home / "chat.json").read_text())
    assert [turn["role"] for turn in saved["messages"]] == ["user", "assistant"]
    kept = saved["messages"][1]["content"]
    assert ANSWERS["slow"].startswith(kept)
    assert kept.startswith(said.rstrip("\n"))  # a piece is kept before it is shown
    assert len(kept) - len(said) < 6
    terminal.type("/exit\n", until="/exit\n")
    assert terminal.end() == 0


def test_thinking_is_dimmed_and_apart(chat, tmp_path):
    terminal = chat(TERM="xterm", NO_COLOR="")
    terminal.type("think\n")
    assert terminal.shown.endswith("\x1b[2mHm, so.\x1b[0m\nI thought.\n>>> ")
    terminal.type("/save t.json\n")
    saved = json.loads((tmp_path / "t.json").read_text())["messages"][-1]
    assert saved == {
        "role": "assistant", "content": "I thought.", "reasoning_content": "Hm, so.",
    }  # fmt: skip
    terminal.type("/exit\n", until="/exit\n")
    assert terminal.end() == 0
    hidden = transcript(chat, "think", arguments=["--quiet"])
    assert hidden == ">>> think\nI thought.\n>>> \n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('"messages": [{"role": "user", "content": 5}]', "not all of its messages are texts"),
        ('"messages": [{"role": "user"}]', "not all of its messages are texts"),
        ('"system": 5, "messages": []', "not all of its messages are texts"),
        ('"messages": [{"role": "assistant", "content": "a"}]', "the user's and assistant's"),
        ('"messages": 5', "aren't the user's and assistant's"),
    ],
)
def test_a_damaged_conversation_is_not_loaded(tmp_path, content, message):
    (tmp_path / "c.json").write_text('{"format": "bytepair chat 1", ' + content + "}")
    with pytest.raises(ValueError, match=message):
        Conversation.load(tmp_path / "c.json")


@pytest.mark.parametrize(("name", "message"), [(".", "is a directory"), ("no/c", "no directory")])
def test_a_conversation_that_cannot_be_put_there(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        Conversation().save(Path(name))


@pytest.mark.parametrize("piped", ['hello\n"""what\n', "hello\nwhat\\\n"])
def test_an_unfinished_message_is_told(tiny_directory, tmp_path, piped):
    command = [sys.executable, SCRIPT, "chat", "--quiet", "--model", tiny_directory]
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    run = subprocess.run(
        command, env=environment, input=piped, capture_output=True, text=True, timeout=SECONDS
    )
    assert (run.returncode, run.stdout) == (0, "Hi, I am a script.\n")
    assert run.stderr == "error: the input ended inside a message, which was left out\n"


def test_a_conversation_is_kept_and_gone_on_with(chat, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    first = transcript(
        chat, "/system Be brief.", "hello", "/save c.json", "/save mine.txt", "/save"
    )
    assert first == BEGIN + (
        ">>> /system Be brief.\n>>> hello\nHi, I am a script.\n"
        ">>> /save c.json\nsaved in c.json\n"
        ">>> /save mine.txt\n"
        "error: mine.txt exists and is no saved conversation; take another name\n"
        ">>> /save\nerror: the name of a file is missing\n>>> \n"
    )
    assert (tmp_path / "mine.txt").read_text() == "mine"
    second = transcript(chat, "/load mine.txt", "/load no", "/load c.json", "/system", "/retry")
    assert second == BEGIN + (
        ">>> /load mine.txt\nerror: mine.txt is no saved conversation; /save writes one\n"
        ">>> /load no\nerror: no: No such file or directory\n"
        ">>> /load c.json\nloaded 2 messages\n"
        ">>> /system\nBe brief.\n>>> /retry\nHi, I am a script.\n>>> \n"
    )


def test_settings(chat):
    shown = transcript(
        chat, "/set temp 0.5", "/set temp", "/set temp hot", "/set", "/set temp default",
        "/set max-tokens 3", "hello", "/set nonsense 1", "/think",
    )  # fmt: skip
    assert shown == BEGIN + (
        ">>> /set temp N\n>>> /set temp\ntemp N\n"
        ">>> /set temp hot\nerror: temp: it is 'hot', but must be a number from 0 up\n"
        ">>> /set\ntemp N, top-p default, top-k default, min-p default, "
        "repetition-penalty default, seed default, max-tokens 1024, think-budget default\n"
        ">>> /set temp default\n>>> /set max-tokens 3\n"
        ">>> hello\nHi,\n(stopped after 3 tokens; --max-tokens allows more)\n"
        ">>> /set nonsense 1\nerror: there is no setting 'nonsense'; there are temp, top-p, "
        "top-k, min-p, repetition-penalty, seed, max-tokens, think-budget\n"
        ">>> /think\nerror: this model's chat template has no switch for thinking\n>>> \n"
    )


def test_commands_that_find_nothing_to_do(chat):
    shown = transcript(chat, "/retry", "/foo", "/clear", "/system", "/system a", "/system off")
    assert shown == BEGIN + (
        ">>> /retry\nerror: there is no message to answer again\n"
        ">>> /foo\nerror: there is no /foo; /help lists what there is\n"
        ">>> /clear\n>>> /system\nthere is no system message\n"
        ">>> /system a\n>>> /system off\n>>> \n"
    )


def test_help_names_every_command(chat):
    from pipeline.commands.chat import _Chat

    shown = transcript(chat, "/help")
    names = [name.removeprefix("_do_") for name in vars(_Chat) if name.startswith("_do_")]
    assert [name for name in [*names, "exit"] if f"/{name}" not in shown] == []
    assert len(names) == 11


def test_a_full_context_drops_the_oldest_turns(chat):
    shown = transcript(chat, *["hello"] * 4, "/clear", "hello", arguments=["--context", 100])
    answer = ">>> hello\nHi, I am a script.\n"
    full = "(the context of 100 tokens is full: the oldest turn is dropped)\n"
    last = ">>> hello\n" + full + "Hi, I am a script.\n"
    assert shown == BEGIN + answer * 2 + last * 2 + ">>> /clear\n" + answer + ">>> \n"


def test_a_message_that_is_too_long_is_taken_back_and_nothing_else(chat):
    lines = ["hello", "x" * 120, "/undo", "/undo", "hello"]
    shown = transcript(chat, *lines, arguments=["--context", 100])
    assert "leaves no room in the context of 100 that was asked for" in shown
    assert "dropped" not in shown
    assert shown.endswith(
        ">>> /undo\n>>> /undo\nerror: there is nothing to take back\n"
        ">>> hello\nHi, I am a script.\n>>> \n"
    )


def test_a_model_without_a_template_cannot_chat(copy, tmp_path):  # noqa: F811
    (copy / "tokenizer_config.json").unlink()
    command = [sys.executable, SCRIPT, "chat", "--model", copy]
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, input=b"", capture_output=True, timeout=SECONDS)
    assert run.returncode == 1
    assert b"no chat template, so it can't hold a conversation" in run.stderr


@pytest.mark.parametrize(
    ("piped", "out"),
    [
        ("hello\n\nwhat?\n", "Hi, I am a script.\nDid you say something?\n"),
        ("hello", "Hi, I am a script.\n"),
        ("", ""),
    ],
)
def test_a_pipe_may_talk_as_well(tiny_directory, tmp_path, piped, out):
    command = [sys.executable, SCRIPT, "chat", "--quiet", "--model", tiny_directory]
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    run = subprocess.run(
        command, env=environment, input=piped, capture_output=True, text=True, timeout=SECONDS
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, out, "")
    assert not list(tmp_path.iterdir())  # no history of what nobody typed


def test_bytes_that_are_no_text_are_one_error(tiny_directory):
    command = [sys.executable, SCRIPT, "chat", "--quiet", "--model", tiny_directory]
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, env=environment, input=b"caf\xe9\nhello\n", capture_output=True, timeout=SECONDS
    )
    assert (run.returncode, run.stdout) == (0, b"Hi, I am a script.\n")
    assert run.stderr == b"error: what was typed is not UTF-8, so it was left out\n"


# --- what is kept when something comes between ---------------------------------------------------


@pytest.fixture(scope="module")
def scripted(tiny_directory):
    genuine = Engine.load(tiny_directory)
    model = ScriptedModel(genuine.model, genuine.tokenizer)
    return Engine(genuine.tokenizer, model, genuine.stop_ids, genuine.sampling)


@pytest.fixture
def talk(scripted):
    """A chat without a terminal."""
    options = repl.make_parser().parse_args([])
    options.prompt_cache = None
    return repl._Chat(scripted, options, None)


class Screen(io.TextIOWrapper):
    """A stdout where Ctrl-C comes with a certain write, before or after it is done."""

    def __init__(self, num_writes, is_before):
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.num_left, self.is_before = num_writes, is_before

    def write(self, text):
        self.num_left -= 1
        if self.num_left == 0 and self.is_before:
            raise KeyboardInterrupt
        super().write(text)
        if self.num_left == 0:
            raise KeyboardInterrupt

    @property
    def shown(self):
        self.flush()
        return self.buffer.getvalue().decode()


@pytest.mark.parametrize("is_before", [True, False])
def test_what_is_shown_is_kept_wherever_ctrl_c_comes(
    talk, scripted, tmp_path, monkeypatch, is_before
):
    pieces = scripted.tokenizer.encode(ANSWERS["hello"])
    for number in range(1, len(pieces) + 1):
        with monkeypatch.context() as patch:
            screen = Screen(number, is_before)
            patch.setattr("sys.stdout", screen)
            assert talk.take("hello")
        seen = screen.shown.removesuffix("\n")
        assert seen == scripted.tokenizer.decode(pieces[: number - is_before])
        kept = talk._conversation
        assert [turn["role"] for turn in kept.turns] == ["user", "assistant"]
        assert kept.turns[-1]["content"] == scripted.tokenizer.decode(pieces[:number])
        kept.save(tmp_path / "c.json")
        assert Conversation.load(tmp_path / "c.json") == kept
        talk.take("/undo")
        assert talk._conversation == Conversation()


def test_a_second_ctrl_c_loses_nothing_either(talk, monkeypatch):
    def press_again(line):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdout", Screen(3, False))
    monkeypatch.setattr(terminal, "say", press_again)
    with pytest.raises(KeyboardInterrupt):
        talk.take("hello")
    assert [turn["role"] for turn in talk._conversation.turns] == ["user", "assistant"]
    assert talk._conversation.turns[-1]["content"] == sys.stdout.shown.removesuffix("\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, BrokenPipeError])
@pytest.mark.parametrize("line", ["/retry", "what?"])
def test_where_nothing_was_said_nothing_has_changed(talk, monkeypatch, capsys, error, line):
    def fail(*_):
        raise error
        yield

    talk.take("hello")
    before = talk._conversation
    monkeypatch.setattr(talk, "_stream", fail)
    if error is KeyboardInterrupt:
        talk.take(line)
        assert capsys.readouterr().err == "(stopped)\n"
    else:
        with pytest.raises(error):
            talk.take(line)
    assert talk._conversation == before


def test_an_error_in_the_middle_keeps_what_was_said(talk, monkeypatch, capsys):
    stream = talk._stream

    def cut_short(*arguments):
        chunks = stream(*arguments)
        yield from (next(chunks) for _ in range(4))
        raise RuntimeError("out of something")

    monkeypatch.setattr(talk, "_stream", cut_short)
    with pytest.raises(RuntimeError):
        talk.take("hello")
    said = talk._conversation.turns[-1]
    assert said == {"role": "assistant", "content": capsys.readouterr().out.removesuffix("\n")}
    assert ANSWERS["hello"].startswith(said["content"])


def test_a_history_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, monkeypatch):
    class Full:
        def set_history_length(self, length):
            pass

        def write_history_file(self, path):
            Path(path).write_text("hal")
            raise OSError(28, "No space left on device")

    history = tmp_path / "chat_history"
    history.write_text("hello\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    told = []
    monkeypatch.setattr(terminal, "say", told.append)
    reader = repl._Reader()
    reader._readline, reader._history = Full(), history
    reader.close()
    assert told == ["the history can't be kept: reading or writing failed: No space left on device"]
    assert history.read_text() == "hello\n"
    assert [path.name for path in tmp_path.iterdir()] == ["chat_history"]
