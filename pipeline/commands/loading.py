"""options of the command line -> a loaded Engine, its session and its draft model.

Blind spot: it does not know what will be asked of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import source
from pipeline.commands import terminal
from pipeline.files import why_no_file

if TYPE_CHECKING:
    import argparse

    import model
    from pipeline.engine import Engine


def load_engine(options: argparse.Namespace) -> tuple[Engine, float]:
    """-> the engine of the options' model, and how many seconds it took."""
    notify = _ignore if options.quiet else terminal.say
    found = source.find(options.model, notify=notify)
    start = time.perf_counter()
    if sys.stderr.isatty() and not options.quiet:
        print(f"loading {found.name} ...", end="\r", file=sys.stderr, flush=True)
    from pipeline.engine import Engine

    engine = Engine.load(
        found.path,
        dtype=options.dtype,
        max_context=options.context,
        quantized=options.quantized or None,
        force=options.force,
    )
    seconds = time.perf_counter() - start
    notify(f"{found.name}, loaded in {seconds:.1f} s")
    if options.context and options.context > engine.context:
        notify(f"the model's own context is {engine.context} tokens: --context changes nothing")
    if options.think is not None and not engine.can_switch_thinking:
        name = "--think" if options.think else "--no-think"
        notify(f"this model's chat template has no switch for thinking: {name} changes nothing")
    return engine, seconds


def load_draft(engine: Engine, options: argparse.Namespace) -> Any:
    """What --draft names: "ngram", or a smaller model with the same tokens."""
    if options.draft in (None, "ngram"):
        return options.draft
    found = source.find(options.draft, notify=_ignore if options.quiet else terminal.say)
    from pipeline.engine import Engine

    smaller = Engine.load(found.path, dtype=options.dtype, force=options.force)
    if not _same_tokens(engine, smaller):
        raise ValueError(
            f"{found.name} has other tokens than the model that it should draft for; --draft takes "
            "a smaller model of the same family, or ngram"
        )
    return smaller.model


def load_session(engine: Engine, options: argparse.Namespace) -> model.Session:
    """The session that --prompt-cache holds, or a new one."""
    import model

    group_size = 64 if engine.model.config.head_dim % 64 == 0 else 32
    new = engine.session(bits=options.kv_bits, group_size=group_size, max_size=options.max_kv_size)
    if not options.prompt_cache:
        return new
    path = Path(options.prompt_cache)
    _check_place(path)
    if not path.exists():
        return new
    kept = model.Session.load(path, engine.model)
    if (options.kv_bits or options.max_kv_size) and kept.cache_options != new.cache_options:
        raise ValueError(
            f"{path} holds keys and values in another form than --kv-bits and --max-kv-size ask "
            "for; leave these out to go on with it, or name another file"
        )
    return kept


def _check_place(path: Path) -> None:
    """ValueError where a file can't be kept, before an answer is made for it."""
    if why := why_no_file(path):
        raise ValueError(why)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        what = f"{path.name} can't be put into {path.parent}"
        raise ValueError(f"{what}: {error.strerror}") from error


def details(engine: Engine) -> str:
    """A line about the model and the machine."""
    import mlx.core as mx

    from model import cpu

    config = engine.model.config
    # A quantized matrix is of integers; the norms have the type that is computed with.
    dtype = str(engine.model.model.norm.weight.dtype).removeprefix("mlx.core.")
    return (
        f"{config.model_type}, {config.num_hidden_layers} layers, context {engine.context} | "
        f"{dtype} on {mx.default_device()} | BLAS: {cpu.enable()}"
    )


def _same_tokens(engine: Engine, other: Engine) -> bool:
    ours, theirs = engine.tokenizer.spec, other.tokenizer.spec
    return ours.vocab == theirs.vocab and ours.added_tokens == theirs.added_tokens


def _ignore(line: str) -> None:
    pass
