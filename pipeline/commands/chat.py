"""python -m pipeline chat: lines from a terminal or a pipe -> answers, turn by turn.

    line --/command--> a change of the conversation or its settings
    line --message--> Conversation --Engine, with one session--> answer

Blind spot: it does not know how a conversation is kept or how text is made.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands import options as given
from pipeline.commands import terminal
from pipeline.commands.answer import printed, why_it_ended
from pipeline.conversation import Conversation

if TYPE_CHECKING:
    from pipeline.chunks import Chunk
    from pipeline.engine import Engine
    from pipeline.sampling import Sampling
    from pipeline.statistics import Statistics

PROMPT, MORE = ">>> ", "... "
QUOTES = '"""'  # around a message of several lines
HISTORY_LINES = 1000
HELP = """\
/help               this list
/system TEXT        set the system message; off removes it, nothing shows it
/think, /nothink    let the model think before it answers, or not
/set NAME VALUE     temp, top-p, top-k, min-p, repetition-penalty, seed, max-tokens, think-budget;
                    the value default leaves it to the model, /set alone shows all
/save FILE          keep the conversation in a file
/load FILE          go on with a kept one
/retry              answer the last message again
/undo               take back the last message and its answer
/tokens             how much of the context is used
/clear              forget all turns; the system message stays
/exit               leave, as Ctrl-D does; Ctrl-C stops an answer
A line that ends with \\ goes on in the next one, and so does what stands between \"\"\" and \"\"\".
A message that begins with / is written with two of them."""
SETTINGS: dict[str, Callable[[str], Any]] = {
    "temp": given.number(0),
    "top-p": given.number(0, 1, open_below=True),
    "top-k": given.integer(0),
    "min-p": given.number(0, 1),
    "repetition-penalty": given.number(0, open_below=True),
    "seed": given.integer(0, 2**64 - 1),
    "max-tokens": given.integer(1),
    "think-budget": given.integer(0),
}


def make_parser(prog: str = "python -m pipeline chat") -> given.Parser:
    """The options of python -m pipeline chat."""
    parser = given.Parser(
        prog=prog,
        description="Talk with a local language model; /help lists what can be said besides.",
        epilog=given.SAMPLING,
    )
    given.add_model(parser)
    given.add_answer(parser)
    given.add_thinking(parser)
    given.add_cache(parser)
    given.add_loudness(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Load the model and talk until the input ends."""
    from pipeline.commands import loading

    engine, _ = loading.load_engine(options)
    if not engine.has_chat_template:
        raise ValueError(
            "this model has no chat template, so it can't hold a conversation; without chat, --raw "
            "continues texts with it"
        )
    options.prompt_cache = None
    chat = _Chat(engine, options, loading.load_draft(engine, options))
    if options.verbose:
        terminal.say(loading.details(engine))
    reader = _Reader()
    if reader.is_terminal and not options.quiet:
        terminal.say("/help lists the commands, Ctrl-D leaves")
    try:
        _talk(chat, reader)
    finally:
        reader.close()
    return 0


def _talk(chat: _Chat, reader: _Reader) -> None:
    while True:
        try:
            text = reader.read()
            if text is None or not chat.take(text):
                return
        except KeyboardInterrupt:
            if not reader.is_terminal:
                raise
            terminal.say("\n(Ctrl-D or /exit leaves)")
        except BrokenPipeError:
            raise
        except (ValueError, OSError, RuntimeError, MemoryError) as error:
            terminal.say_error(error)


# --- what is typed -------------------------------------------------------------------------------


class _Reader:
    """Messages from stdin: with line editing and a history where it is a terminal."""

    def __init__(self) -> None:
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        self.is_terminal = sys.stdin.isatty()
        self._readline = self._history = None
        if self.is_terminal and sys.stdout.isatty():
            self._open_history()

    def read(self) -> str | None:
        """The next message, None where the input has ended. ValueError if it isn't UTF-8."""
        text = None
        try:
            text = self._line(PROMPT)
            if text.lstrip().startswith(QUOTES):
                text = self._quoted(text.lstrip()[len(QUOTES) :])
            else:
                while text.endswith("\\"):
                    text = text[:-1] + "\n" + self._line(MORE)
        except EOFError:
            if text is not None:
                terminal.say_error("the input ended inside a message, which was left out")
            elif self.is_terminal:
                print(file=sys.stderr)
            return None
        if not given.is_unicode(text):
            raise ValueError("what was typed is not UTF-8, so it was left out")
        return text

    def close(self) -> None:
        """Keep the history."""
        if self._readline is None:
            return
        try:
            self._keep_history()
        except OSError as error:
            terminal.say(f"the history can't be kept: {terminal.one_line(error)}")

    def _keep_history(self) -> None:
        from bpe.formats.whole import whole_file

        self._readline.set_history_length(HISTORY_LINES)
        self._history.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self._history) as temporary:
            temporary.touch(0o600)
            self._readline.write_history_file(str(temporary))

    def _quoted(self, text: str) -> str:
        while not text.rstrip().endswith(QUOTES):
            text += "\n" + self._line(MORE)
        return text.rstrip().removesuffix(QUOTES).strip("\n")

    def _line(self, prompt: str) -> str:
        if self._readline is not None:
            return input(prompt)
        if self.is_terminal:  # stdout is something else, where a prompt has no place
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _open_history(self) -> None:
        try:
            import readline
        except ImportError:  # a Python without it: lines still come, with no editing
            return
        from pipeline.source import cache_directory

        self._readline, self._history = readline, cache_directory() / "chat_history"
        if self._history.exists():
            readline.read_history_file(str(self._history))


# --- what is done about it -----------------------------------------------------------------------


class _Chat:
    """A conversation with its settings."""

    def __init__(self, engine: Engine, options: argparse.Namespace, draft: Any) -> None:
        from pipeline.commands import loading

        self._engine, self._options, self._draft = engine, options, draft
        self._session = loading.load_session(engine, options)
        self._conversation = Conversation(options.system)
        self._num_answers = 0

    def take(self, text: str) -> bool:
        """A message or a command; whether the chat goes on."""
        if not text.strip():
            return True
        if not text.startswith("/") or text.startswith("//"):
            message = text[1:] if text.startswith("/") else text
            self._answer(self._conversation.ask(message))
            return True
        name, _, argument = text[1:].partition(" ")
        if name in ("exit", "quit"):
            return False
        command = getattr(self, f"_do_{name}", None) if name.isalpha() else None
        if command is None:
            raise ValueError(f"there is no /{name}; /help lists what there is")
        command(argument.strip())
        return True

    def _do_help(self, argument: str) -> None:
        terminal.say(HELP)

    def _do_system(self, argument: str) -> None:
        if argument:
            system = None if argument == "off" else argument
            self._conversation = replace(self._conversation, system=system)
        else:
            terminal.say(self._conversation.system or "there is no system message")

    def _do_think(self, argument: str) -> None:
        self._switch_thinking(True)

    def _do_nothink(self, argument: str) -> None:
        self._switch_thinking(False)

    def _do_set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        name = name.lstrip("-").replace("_", "-")
        if not name:
            terminal.say(", ".join(f"{one} {self._shown(one)}" for one in SETTINGS))
            return
        if name not in SETTINGS:
            raise ValueError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
        if not value.strip():
            terminal.say(f"{name} {self._shown(name)}")
            return
        try:
            made = None if value.strip() == "default" else SETTINGS[name](value.strip())
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{name}: {error}") from error
        if made is None and name == "max-tokens":
            made = make_parser().get_default("max_tokens")
        setattr(self._options, name.replace("-", "_"), made)

    def _do_save(self, argument: str) -> None:
        path = _path(argument)
        self._conversation.save(path)
        terminal.say(f"saved in {path}")

    def _do_load(self, argument: str) -> None:
        self._conversation = Conversation.load(_path(argument))
        terminal.say(f"loaded {len(self._conversation.turns)} messages")

    def _do_retry(self, argument: str) -> None:
        self._answer(self._conversation.unanswered())

    def _do_undo(self, argument: str) -> None:
        self._conversation = self._conversation.undone()

    def _do_tokens(self, argument: str) -> None:
        messages = self._conversation.messages
        tokenizer, num_tokens = self._engine.tokenizer, 0
        if messages:
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=False)
            num_tokens = len(ids)
        terminal.say(
            f"{num_tokens} of {self._engine.context} tokens, {len(self._session.ids)} cached"
        )

    def _do_clear(self, argument: str) -> None:
        self._conversation = replace(self._conversation, turns=())

    def _shown(self, name: str) -> str:
        value = getattr(self._options, name.replace("-", "_"))
        return "default" if value is None else f"{value:g}" if value < 1e6 else str(value)

    def _switch_thinking(self, think: bool) -> None:
        if not self._engine.can_switch_thinking:
            raise ValueError("this model's chat template has no switch for thinking")
        self._options.think = think

    def _answer(self, asked: Conversation) -> None:
        """Answer the last message. Where that fails before anything is said, nothing has changed;
        else what was said is kept, also after Ctrl-C or an error.
        """
        from pipeline.statistics import Statistics

        statistics = Statistics()
        try:
            stream = self._kept(*self._begin(asked, statistics))
            show_reasoning = not self._options.quiet
            answer = self._engine.collect(printed(stream, show_reasoning=show_reasoning))
        except KeyboardInterrupt:
            terminal.say("(stopped)")
            if statistics.num_generated_tokens:
                self._tell(None, statistics)
            return
        self._tell(answer.finish_reason, statistics)

    def _begin(
        self, asked: Conversation, statistics: Statistics
    ) -> tuple[Conversation, Iterator[Chunk]]:
        """-> what of the conversation fits into the context, and the answer's stream."""
        context = self._engine.context
        for_answer = min(self._options.max_tokens, context // 4)
        variables = given.thinking_variables(self._options.think)
        encode = partial(self._engine.encode_chat, **variables)
        kept, ids, num_dropped = asked.fit(encode, context - for_answer)
        stream = self._stream(ids, statistics)
        if num_dropped:
            what = "turn is" if num_dropped == 1 else f"{num_dropped} turns are"
            terminal.say(f"(the context of {context} tokens is full: the oldest {what} dropped)")
        self._num_answers += 1
        return kept, stream

    def _kept(self, asked: Conversation, stream: Iterator[Chunk]) -> Iterator[Chunk]:
        """The same chunks, each of them part of the conversation before it can be seen."""
        text = reasoning = ""
        for chunk in stream:
            text, reasoning = text + chunk.text, reasoning + chunk.reasoning
            if text or reasoning or chunk.finish_reason:
                self._conversation = asked.answer(text, reasoning)
            yield chunk

    def _stream(self, ids: list[int], statistics: Statistics) -> Iterator[Chunk]:
        options = self._options
        return self._engine.stream(
            ids,
            max_tokens=options.max_tokens,
            sampling=self._sampling(),
            statistics=statistics,
            on_prefill=None if options.quiet else terminal.prefill_progress(len(ids)),
            session=self._session,
            stop=options.stop,
            split_thinking=True,
            think_budget=options.think_budget,
            draft=self._draft,
        )

    def _sampling(self) -> Sampling:
        """With a seed, each answer has its own, so that /retry says something else."""
        return given.sampling_of(self._options).another(self._num_answers)

    def _tell(self, finish_reason: str | None, statistics: Statistics) -> None:
        s = statistics
        if finish_reason == "length" and not self._options.quiet:
            terminal.say(f"({why_it_ended(s, self._options.max_tokens)})")
        if self._options.verbose:
            terminal.say(
                f"{s.num_cached_tokens} tokens cached, "
                f"{s.num_prompt_tokens - s.num_cached_tokens} new, first token after "
                f"{s.prefill_seconds:.2f} s | generated {s.num_generated_tokens} tokens, "
                f"{s.decode_tokens_per_second:.1f} tokens/s"
            )


def _path(argument: str) -> Path:
    if not argument:
        raise ValueError("the name of a file is missing")
    return Path(os.path.expanduser(argument))
