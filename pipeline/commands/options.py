"""command line -> checked options, with one sentence where something is wrong.

What the commands share is here once. Names are mlx-lm's where it has one.
Blind spot: it does not know what the options do.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pipeline.commands.terminal import say
from pipeline.files import why_no_file

if TYPE_CHECKING:
    from pipeline.sampling import Sampling

USAGE = 2  # exit code
DTYPES = ("float32", "bfloat16", "float16")
NO_TEMPLATE = "this model has no chat template, so "
SAMPLING = "Where temperature, top-p, top-k, min-p and repetition penalty are not given, the "
SAMPLING += "model's generation_config.json decides."


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        say(f"error: {message} (see {self.prog} --help)")
        sys.exit(USAGE)


def add_prompt(parser: Parser) -> None:
    """Where the prompt comes from, and what stands around it."""
    add = parser.add_argument_group("prompt").add_argument
    add("prompt", nargs="?", help="what to answer; - or nothing reads it from a pipe")
    add(
        "-p",
        "--prompt",
        dest="prompt_option",
        metavar="TEXT",
        help="the same, also where it is the name of a command",
    )
    add(
        "-f",
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="read the prompt from FILE; behind the prompt if there is one; repeatable",
    )
    add(
        "--raw",
        "--ignore-chat-template",
        action="store_true",
        help="continue the text as it stands: no chat template",
    )
    add("--prefill", "--prefill-response", type=text, metavar="TEXT", help="how the answer begins")
    add(
        "--prompt-cache",
        "--prompt-cache-file",
        type=text,
        metavar="FILE",
        help="read what FILE holds of the prompt, then keep this prompt and answer there",
    )


def add_model(parser: Parser) -> None:
    """Which model, and in what form."""
    add = parser.add_argument_group("model").add_argument
    where = "directory, .gguf file or Hub id (default: Qwen3-0.6B)"
    add("--model", type=text, metavar="MODEL", help=where)
    add("--dtype", choices=DTYPES, help="of the weights (default: float32 on CPUs, else theirs)")
    add(
        "--quantized",
        action="store_true",
        help="keep a GGUF file's weights packed: less memory, slower on a CPU",
    )
    add("--force", action="store_true", help="load even if memory seems too small")
    add(
        "--context",
        type=integer(2),
        metavar="N",
        help="tokens that prompt and answer may have together (default: the model's)",
    )


def add_cache(parser: Parser) -> None:
    """The form of keys and values, and guesses at what follows."""
    add = parser.add_argument_group("memory and speed").add_argument
    add("--kv-bits", type=int, choices=(4, 8), help="quantize keys and values")
    add(
        "--max-kv-size",
        type=integer(8),
        metavar="N",
        help="keep keys and values of the first 4 and the last tokens, N at most",
    )
    add(
        "--draft",
        "--draft-model",
        type=text,
        metavar="ngram|MODEL",
        help="guess tokens from repeats, or with a smaller model of the same vocabulary",
    )


def add_answer(parser: Parser) -> None:
    """How the answer is drawn, and what ends it."""
    add = parser.add_argument_group("answer").add_argument
    add("--system", "--system-prompt", type=text, metavar="TEXT", help="the system message")
    add("-m", "--max-tokens", type=integer(1), default=1024, metavar="N", help="default: 1024")
    add(
        "--stop",
        action="append",
        default=[],
        type=text,
        metavar="TEXT",
        help="end before TEXT; repeatable",
    )
    add("--temp", type=number(0), metavar="T", help="temperature; 0 takes the likeliest token")
    add("--top-p", type=number(0, 1, open_below=True), metavar="P", help="nucleus sampling")
    add("--top-k", type=integer(0), metavar="K", help="draw from the K likeliest; 0 is all")
    add(
        "--min-p",
        type=number(0, 1),
        metavar="P",
        help="drop tokens less likely than P times the likeliest",
    )
    add(
        "--repetition-penalty",
        type=number(0, open_below=True),
        metavar="R",
        help="above 1 makes tokens that were there before less likely",
    )
    add("--seed", type=integer(0, 2**64 - 1), metavar="S", help="same seed, same answer")


def add_thinking(parser: Parser) -> None:
    """Whether the model thinks first, where its template can say so."""
    group = parser.add_argument_group("thinking (models whose answers begin with <think>)")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--think", action="store_true", default=None, help="let the model think")
    either.add_argument(
        "--no-think", action="store_false", dest="think", help="let it answer at once"
    )
    group.add_argument(
        "--think-budget",
        type=integer(0),
        metavar="N",
        help="end the thinking after N tokens; 0 allows none",
    )


def add_loudness(parser: Parser) -> None:
    """How much is said on stderr."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    either.add_argument(
        "--verbose", action="store_true", help="say more about the model and the machine"
    )


def sampling_of(options: argparse.Namespace) -> Sampling:
    """The options of add_answer that say how ids are drawn."""
    from pipeline.sampling import Sampling

    return Sampling(
        options.temp,
        options.top_p,
        options.top_k,
        options.min_p,
        options.seed,
        options.repetition_penalty,
    )


def thinking_variables(think: bool | None) -> dict[str, bool]:
    """What a chat template is told; nothing where the user leaves it to the template."""
    return {} if think is None else {"enable_thinking": think}


def why_not_raw(options: argparse.Namespace) -> str | None:
    """What makes no sense beside --raw, in one sentence."""
    asked = {
        "--system": options.system,
        "--think": options.think or None,
        "--no-think": None if options.think is None else not options.think or None,
        "--think-budget": options.think_budget,
    }
    names = [name for name, value in asked.items() if value is not None]
    if not (options.raw and names):
        return None
    return f"--raw continues a text as it stands, without the chat template that {names[0]} is for"


# --- types of arguments --------------------------------------------------------------------------


def number(low: float, high: float = math.inf, *, open_below: bool = False) -> Callable:
    """An argparse type: a finite number within bounds."""
    what = f"a number {'above' if open_below else 'from'} {low:g}"
    what += f" up to {high:g}" if high < math.inf else " up"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        too_low = value <= low if open_below else value < low
        if too_low or not value <= high or math.isinf(value):  # NaN is not <= anything
            raise argparse.ArgumentTypeError(f"it is {text!r}, but must be {what}")
        return value

    return parse


def integer(low: int, high: float = math.inf) -> Callable:
    """An argparse type: a whole number within bounds."""
    what = f"a whole number from {low} up" + (f" to {high}" if high < math.inf else "")

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"it is {text!r}, but must be {what}")
        return value

    return parse


def text(value: str) -> str:
    """An argparse type: text that isn't empty."""
    if not value or not is_unicode(value):
        what = "empty" if not value else "not UTF-8"
        raise argparse.ArgumentTypeError(f"it is {what}, but must be some text")
    return value


def new_file(name: str) -> Path:
    """An argparse type: where a file can be put."""
    path = Path(text(name))
    if why := why_no_file(path):
        raise argparse.ArgumentTypeError(why)
    return path


def is_unicode(argument: str) -> bool:
    """Python has a lone surrogate for each byte of an argument that isn't UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True
