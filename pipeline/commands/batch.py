"""prompts.jsonl -> answers.jsonl: many prompts answered together, each line once.

Blind spot: it does not know how prompts share a step; model.Batch does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands import options as given
from pipeline.commands import terminal
from pipeline.commands.batch_records import InOrder, Journal
from pipeline.commands.batch_requests import CHOICES, Request, digest
from pipeline.commands.options import USAGE

if TYPE_CHECKING:
    from pipeline.chunks import Chunk, Composer
    from pipeline.engine import Engine
    from pipeline.sampling import Sampling

WAITING = 2  # prompts in line for each that runs: enough that no place is ever empty


def make_parser(prog: str = "python -m pipeline batch") -> given.Parser:
    """The options of python -m pipeline batch."""
    parser = given.Parser(
        prog=prog,
        description="Answer many prompts together. A line of the input is a JSON text, or an "
        'object with "prompt" or "messages" and, where wished, "id", "system", "max_tokens", '
        '"stop", "think_budget", '
        + ", ".join(f'"{name}"' for name in CHOICES)
        + ". Run the same command again to go on after an interruption.",
        epilog=given.SAMPLING,
    )
    add = parser.add_argument
    add("prompts", metavar="PROMPTS", help="a .jsonl file, or - for a pipe")
    where = "where answers go (default: stdout)"
    add("-o", "--output", type=given.new_file, metavar="OUT", help=where)
    add("--rows", type=given.integer(1), default=8, metavar="N", help="prompts at a time: 8")
    add("--raw", action="store_true", help="continue the prompts: no chat template")
    given.add_model(parser)
    given.add_answer(parser)
    given.add_thinking(parser)
    parser.add_argument("--kv-bits", type=int, choices=(4, 8), help="quantize keys and values")
    given.add_loudness(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Answer all lines; 1 where some had to be skipped."""
    from bpe.formats.whole import is_stream

    if why := given.why_not_raw(options):
        terminal.say(f"error: {why}")
        return USAGE
    lines = _read_lines(options.prompts)
    is_file = options.output is not None and not is_stream(options.output)
    if is_file and options.output.exists():
        terminal.say(
            f"error: {options.output} exists already; remove it, or pass another file with -o"
        )
        return USAGE
    numbers = [number for number, _ in lines]
    sink = Journal(options.output, options) if is_file else InOrder(options.output)
    with closing(sink):
        requests = [_parse(*line) for line in lines if sink.done.get(line[0]) != digest(line[1])]
        if len(requests) < len(lines) and not options.quiet:
            terminal.say(f"going on: {len(lines) - len(requests)} of {len(lines)} are done already")
        num_skipped = requests.count(None)
        todo = [request for request in requests if request]
        sink.begin([request.number for request in todo])
        try:
            num_skipped += _answer_all(todo, sink, options) if todo else 0
        except KeyboardInterrupt:
            if is_file:
                kept = f"{options.output}.part"
                terminal.say(f"answers so far are in {kept}; the same command goes on from there")
            raise
        sink.finish(numbers)
    if num_skipped:
        terminal.say(f"{num_skipped} of {len(lines)} lines were skipped")
    return 1 if num_skipped else 0


def _read_lines(name: str) -> list[tuple[int, bytes]]:
    """(number, line) of the lines that aren't blank."""
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    lines = enumerate(content.split(b"\n"), start=1)
    found = [(number, line) for number, line in lines if line.strip()]
    if not found:
        what = "stdin" if name == "-" else name
        raise ValueError(f"{what} holds no prompts; write one JSON object a line")
    return found


def _parse(number: int, line: bytes) -> Request | None:
    """None for a line that is no request, which is reported."""
    try:
        return Request.parse(number, line)
    except ValueError as error:  # bad JSON and bad UTF-8 as well
        _report(number, error)
        return None


def _report(number: int, error: Exception) -> None:
    terminal.say(f"line {number} is skipped: {terminal.one_line(error)}")


def _answer_all(todo: list[Request], sink: Journal | InOrder, options: argparse.Namespace) -> int:
    """Answer them into the sink; -> how many had to be skipped."""
    from pipeline.commands import loading

    engine, _ = loading.load_engine(options)
    if not options.raw and not engine.has_chat_template:
        options.raw = True
        terminal.say(f"{given.NO_TEMPLATE}prompts are continued as with --raw")
        if options.system:
            terminal.say("--system is left out")
    progress, num_skipped = _Progress(len(todo), quiet=options.quiet), 0
    for request, record in _answers(engine, todo, options):
        num_skipped += record is None
        sink.put(request, record)
        progress.step(record)
    progress.close()
    return num_skipped


@dataclass
class _Running:
    """An answer on its way. ids: of the prompt and given out. limit: ids that it may have."""

    request: Request
    composer: Composer
    ids: list[int]
    limit: int
    choices: Sampling
    num_prompt_tokens: int
    num_generated: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def num_left(self) -> int:
        return self.limit - len(self.chunks)

    def push(self, id: int) -> bool:
        """Take the next id; whether it was the last."""
        self.num_generated += 1
        return self._note([self.composer.push(id)])

    def close_thinking(self, closing: list[int]) -> bool:
        """Take the end of the reasoning as if the model had written it; whether all ends there."""
        return self._note(self.composer.close_thinking(closing))

    def _note(self, chunks: list[Chunk]) -> bool:
        self.chunks += chunks
        self.ids += [chunk.id for chunk in chunks]
        if self.chunks[-1].finish_reason:
            return True
        if self.num_left > 0:
            return False
        self.chunks.append(self.composer.finish("length"))
        return True


def _answers(
    engine: Engine, requests: list[Request], options: argparse.Namespace
) -> Iterator[tuple[Request, dict[str, Any] | None]]:
    """Requests with their records as they are done; None for one that can't be answered."""
    import model

    batch = model.Batch(
        engine.model,
        max_rows=options.rows,
        vocab_size=engine.tokenizer.vocab_size,
        bits=options.kv_bits,
        group_size=64 if engine.model.config.head_dim % 64 == 0 else 32,
    )
    waiting, running = deque(requests), {}
    while waiting or running:
        while waiting and len(running) < options.rows * (1 + WAITING):
            request = waiting.popleft()
            try:
                own = _start(engine, request, options)
                running[_add(batch, own)] = own
            except (ValueError, TypeError) as error:
                _report(request.number, error)
                yield request, None
        for key, id in batch.step():
            own = running[key]
            is_done = own.push(id)
            if not is_done and not own.composer.is_budget_spent:
                continue
            batch.remove(key)
            del running[key]
            if is_done or own.close_thinking(engine.closing_ids):
                yield own.request, _record(engine, own)
            else:  # another prompt for the model: with the end of its reasoning
                own.choices = own.choices.another()
                running[_add(batch, own)] = own


def _start(engine: Engine, request: Request, options: argparse.Namespace) -> _Running:
    """A request before its first id. Raises ValueError or TypeError for what it asks."""
    from pipeline.sampling import Sampling

    ids, budget = _encode(engine, request, options), request.think_budget
    budget = None if options.raw else options.think_budget if budget is None else budget
    if budget == 0:
        ids = engine.close_thinking(ids)
    limit = min(request.max_tokens or options.max_tokens, engine.context - len(ids))
    if limit < 1:
        raise ValueError(f"its {len(ids)} tokens leave no room in the context of {engine.context}")
    choices = Sampling(**request.choices).or_else(given.sampling_of(options))
    choices = choices.or_else(engine.sampling)
    composer = engine.composer(
        ids,
        stop=[*options.stop, *request.stop],
        split_thinking=not options.raw,
        think_budget=budget,
    )
    return _Running(request, composer, ids, limit, choices, num_prompt_tokens=len(ids))


def _add(batch: Any, own: _Running) -> int:
    """Queue it; -> its key. Raises ValueError or TypeError for what it asks."""
    return batch.add(
        own.ids,
        max_tokens=own.num_left,
        sampler=own.choices.sampler(),
        processors=own.choices.processors(),
    )


def _encode(engine: Engine, request: Request, options: argparse.Namespace) -> list[int]:
    messages = request.messages
    if options.raw:
        if len(messages) != 1:
            raise ValueError('with --raw a line has a "prompt", no messages and no system')
        return engine.encode_raw(messages[0]["content"])
    if options.system and not any(one.get("role") == "system" for one in messages):
        messages = [{"role": "system", "content": options.system}, *messages]
    return engine.encode_chat(messages, **given.thinking_variables(options.think))


def _record(engine: Engine, own: _Running) -> dict[str, Any]:
    """A line of the output."""
    answer = engine.collect(own.chunks)
    record = {"line": own.request.number, "id": own.request.id, "text": answer.text}
    if own.request.id is None:
        del record["id"]
    if answer.reasoning:
        record["reasoning"] = answer.reasoning
    usage = {
        "prompt_tokens": own.num_prompt_tokens,
        "completion_tokens": own.num_generated,
        "reasoning_tokens": own.composer.num_reasoning_tokens,
    }
    return record | {"finish_reason": answer.finish_reason, "usage": usage}


# --- progress ------------------------------------------------------------------------------------


class _Progress:
    """How many are done and how long the rest will take: a bar, or a line for each tenth."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total, self._quiet = total, quiet
        self._num_done = self._num_tokens = 0
        self._start, self._bar = time.perf_counter(), None
        if sys.stderr.isatty() and not quiet:
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="prompt", desc="answering", leave=False)

    def step(self, record: dict[str, Any] | None) -> None:
        """One more is done."""
        self._num_done += 1
        self._num_tokens += record["usage"]["completion_tokens"] if record else 0
        if self._bar is not None:
            self._bar.update()
        elif self._is_tenth() and not self._quiet:
            left = self._seconds() / self._num_done * (self._total - self._num_done)
            terminal.say(f"{self._num_done} of {self._total} are done, about {left:.0f} s left")

    def close(self) -> None:
        """Say what it came to."""
        if self._bar is not None:
            self._bar.close()
        if not self._quiet:
            seconds = self._seconds()
            terminal.say(
                f"{self._num_done} prompts in {seconds:.1f} s | generated {self._num_tokens} "
                f"tokens, {self._num_tokens / seconds:.1f} tokens/s"
            )

    def _seconds(self) -> float:
        return max(time.perf_counter() - self._start, 1e-9)

    def _is_tenth(self) -> bool:
        tenth = max(self._total // 10, 2)
        return self._num_done % tenth == 0 and self._num_done < self._total
