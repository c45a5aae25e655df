"""command line -> the answer on stdout, everything about the answer on stderr.

Blind spot: it does not know how text is made; it asks Engine for chunks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.commands import options as given
from pipeline.commands.options import USAGE
from pipeline.commands.terminal import AnswerPrinter, prefill_progress, say

if TYPE_CHECKING:
    from model import Session
    from pipeline.chunks import Answer, Chunk
    from pipeline.engine import Engine
    from pipeline.statistics import Statistics


def make_parser(prog: str = "python -m pipeline") -> given.Parser:
    """The options of python -m pipeline; its errors leave with exit code 2."""
    parser = given.Parser(
        prog=prog,
        usage="%(prog)s [options] [prompt]\n"
        "       %(prog)s chat|batch|trace|glitch|bpe|model --help",
        description="Answer or continue a prompt with a local language model.",
        epilog="%(prog)s chat is for conversations, batch for many prompts at once, trace shows a "
        "text's way through the machine, glitch lists tokens that a model hardly knows; bpe and "
        "model have commands for tokenizers and for models' files. "
        "The answer goes to stdout, thinking, progress and statistics to stderr. " + given.SAMPLING,
    )
    given.add_prompt(parser)
    given.add_model(parser)
    given.add_answer(parser)
    given.add_thinking(parser)
    given.add_cache(parser)
    parser.add_argument(
        "--logprobs",
        type=given.integer(0),
        metavar="N",
        help="tell each token's log-probability and the N likeliest",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, once all is there")
    given.add_loudness(parser)
    parser.add_argument("--version", action="version", version=f"bytepair {__version__}")
    return parser


def run(options: argparse.Namespace) -> int:
    """Find the model, load it, stream its answer, say what it cost."""
    if why := given.why_not_raw(options) or _why_no_prompt(options):
        say(f"error: {why}")
        return USAGE
    prompt = _read_prompt(options)
    if not prompt.strip():
        say("error: the prompt is empty; give some text to answer or continue")
        return USAGE
    from pipeline.commands import loading

    engine, load_seconds = loading.load_engine(options)
    draft, session = loading.load_draft(engine, options), loading.load_session(engine, options)

    from pipeline.statistics import Statistics

    ids, is_raw = _encode(engine, prompt, options)
    statistics = Statistics()
    stream = partial(
        engine.stream,
        ids,
        max_tokens=options.max_tokens,
        sampling=given.sampling_of(options),
        statistics=statistics,
        on_prefill=None if options.quiet else prefill_progress(len(ids)),
        session=session,
        stop=options.stop,
        split_thinking=not is_raw,
        think_budget=None if is_raw else options.think_budget,
        top_logprobs=options.logprobs,
        draft=draft,
    )
    with _kept(session, options.prompt_cache):
        chunks = _prefilled(stream(), options.prefill)
        if options.json:
            answer = engine.collect(chunks)
            print(_as_json(answer, statistics, engine, load_seconds, options), flush=True)
        else:
            answer = engine.collect(printed(chunks, show_reasoning=not options.quiet))
    if not options.quiet:
        _tell(answer, statistics, engine, options)
    return 0


@contextmanager
def _kept(session: Session, path: str | None) -> Iterator[None]:
    """Save what the session has read by the end of the block. After an interruption too, so that a
    long prompt isn't read in vain, but then only if nothing is lost that the file held.
    """
    held = session.ids
    try:
        yield
    except (KeyboardInterrupt, SystemExit, BrokenPipeError):
        if path and session.ids != held and session.ids[: len(held)] == held:
            session.save(path)
        raise
    if path:
        session.save(path)


# --- the prompt ----------------------------------------------------------------------------------


def _why_no_prompt(options: argparse.Namespace) -> str | None:
    if options.prompt is None or options.prompt_option is None:
        return None
    return f"there are two prompts, {options.prompt!r} and that of --prompt; give one of them"


def _read_prompt(options: argparse.Namespace) -> str:
    """The argument and the files, or what a pipe holds. ValueError if it isn't UTF-8."""
    files = [_read_file(name) for name in options.file]
    prompt = options.prompt_option if options.prompt is None else options.prompt
    if prompt == "-" or (prompt is None and not files):
        parts = [_read_pipe(prompt)]
    else:
        parts = [] if prompt is None else [prompt]
    if not all(map(given.is_unicode, parts)):
        raise ValueError("the prompt is not UTF-8")
    return "\n\n".join([*parts, *files])


def _read_pipe(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin is not UTF-8 at byte {error.start}") from error


def _read_file(name: str) -> str:
    try:
        return Path(name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 at byte {error.start}") from error


def _encode(engine: Engine, prompt: str, options: argparse.Namespace) -> tuple[list[int], bool]:
    """-> the prompt's ids, and whether it is continued as it stands."""
    if not options.raw and not engine.has_chat_template and not options.quiet:
        say(f"{given.NO_TEMPLATE}the prompt is continued as with --raw")
        if options.system:
            say("--system is left out")
    if options.raw or not engine.has_chat_template:
        return engine.encode_raw(prompt + (options.prefill or "")), True
    messages = [{"role": "user", "content": prompt}]
    if options.system:
        messages.insert(0, {"role": "system", "content": options.system})
    if options.prefill:
        messages.append({"role": "assistant", "content": options.prefill})
    return engine.encode_chat(messages, **given.thinking_variables(options.think)), False


# --- the answer ----------------------------------------------------------------------------------


def _prefilled(chunks: Iterator[Chunk], prefill: str | None) -> Iterator[Chunk]:
    """The chunks after one that brings what the answer begins with."""
    from pipeline.chunks import Chunk

    if prefill:
        yield Chunk(prefill)
    yield from chunks


def printed(chunks: Iterator[Chunk], *, show_reasoning: bool = True) -> Iterator[Chunk]:
    """The same chunks, each written before the next is asked for."""
    printer = AnswerPrinter(show_reasoning=show_reasoning)
    try:
        for chunk in chunks:
            printer.show(chunk)
            yield chunk
    finally:  # also after Ctrl-C
        printer.close()


def _as_json(
    answer: Answer,
    statistics: Statistics,
    engine: Engine,
    load_seconds: float,
    options: argparse.Namespace,
) -> str:
    sys.stdout.reconfigure(encoding="utf-8")
    content = {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "ids": answer.ids,
        "finish_reason": answer.finish_reason,
        "usage": usage(statistics),
        "timings": {"load_seconds": load_seconds, **timings(statistics)},
    }
    if options.prefill:
        content["prefill"] = options.prefill
    if options.logprobs is not None:
        pairs = zip(answer.ids, answer.tokens, strict=True)
        content["logprobs"] = [_logprob(engine, *pair) for pair in pairs]
    return json.dumps(content, ensure_ascii=False)


def usage(statistics: Statistics) -> dict[str, int]:
    """How many tokens an answer took, by the names that servers use."""
    s = statistics
    return {
        "prompt_tokens": s.num_prompt_tokens,
        "cached_tokens": s.num_cached_tokens,
        "completion_tokens": s.num_generated_tokens,
        "reasoning_tokens": s.num_reasoning_tokens,
        "total_tokens": s.num_prompt_tokens + s.num_generated_tokens,
    }


def timings(statistics: Statistics) -> dict[str, float]:
    """How long an answer took."""
    s = statistics
    return {
        "prefill_seconds": s.prefill_seconds,
        "decode_seconds": s.decode_seconds,
        "prefill_tokens_per_second": s.prefill_tokens_per_second,
        "decode_tokens_per_second": s.decode_tokens_per_second,
    }


def _logprob(engine: Engine, id: int, token: Any) -> dict[str, Any]:
    """An id with its text and bytes; logprob is null where the model didn't choose it."""
    own = _token(engine, id, token and token.logprob)
    return own | {"top": [_token(engine, *pair) for pair in token.top] if token else []}


def _token(engine: Engine, id: int, logprob: float | None) -> dict[str, Any]:
    content = engine.tokenizer.id_to_token(id)
    text = content.decode("utf-8", "replace")
    return {"id": id, "token": text, "bytes": list(content), "logprob": logprob}


# --- lines about the answer ----------------------------------------------------------------------


def _tell(
    answer: Answer, statistics: Statistics, engine: Engine, options: argparse.Namespace
) -> None:
    from pipeline.commands import loading

    if options.logprobs is not None and not options.json:
        for id, token in zip(answer.ids, answer.tokens, strict=True):
            say(_logprob_line(engine, id, token))
    if answer.finish_reason == "length" and not options.json:
        say(why_it_ended(statistics, options.max_tokens))
    say(summary(statistics))
    if options.verbose:
        say(loading.details(engine))


def _logprob_line(engine: Engine, id: int, token: Any) -> str:
    """A token, its log-probability, and the likeliest ones at its place."""

    def shown(id: int, logprob: float) -> str:
        text = engine.tokenizer.id_to_token(id).decode("utf-8", "replace")
        return f"{logprob:8.3f} {json.dumps(text, ensure_ascii=False)}"

    if token is None:  # what closed the thinking
        return f"{'':8} {json.dumps(engine.tokenizer.decode([id]), ensure_ascii=False)}"
    return "  |".join([shown(id, token.logprob), *(shown(*pair) for pair in token.top)])


def summary(statistics: Statistics) -> str:
    """One line about an answer's cost."""
    s = statistics
    cached = f" ({s.num_cached_tokens} cached)" if s.num_cached_tokens else ""
    return (
        f"prompt {s.num_prompt_tokens} tokens{cached}, {s.prefill_tokens_per_second:.1f} tokens/s "
        f"| generated {s.num_generated_tokens} tokens, {s.decode_tokens_per_second:.1f} tokens/s | "
        f"first token after {s.prefill_seconds:.2f} s | peak memory {_peak_gigabytes():.2f} GB"
    )


def why_it_ended(statistics: Statistics, max_tokens: int) -> str:
    """What to say of an answer whose length ended it."""
    if statistics.num_generated_tokens < max_tokens:
        return "stopped where the context ends"
    return f"stopped after {max_tokens} tokens; --max-tokens allows more"


def _peak_gigabytes() -> float:
    """The most memory the process has held so far, the GPU's included where there is one."""
    import mlx.core as mx

    on_gpu = mx.default_device().type != mx.DeviceType.cpu
    return max(_peak_resident_bytes(), mx.get_peak_memory() if on_gpu else 0) / 1e9


def _peak_resident_bytes() -> int:
    """Of this program. Linux's ru_maxrss also counts what its parent held before exec."""
    import resource

    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # no Linux
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
