"""pipeline: text -> text. The one place where the tokenizer (`bpe`) and the model (`model`) meet.

    engine = pipeline.load("Qwen3-0.6B/")           # also a .gguf file or a Hub id
    for chunk in engine.answer("Why is the sky blue?"):
        print(chunk.text, end="", flush=True)
    engine.answer([{"role": "user", "content": "And at night?"}]).text

    source --Engine.load--> Engine --stream--> Chunk, Chunk, ... --commands--> terminal

Blind spot: it holds no tokenization and no arithmetic of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.chunks import Answer, Chunk
    from pipeline.engine import Engine
    from pipeline.sampling import Sampling

__version__ = "0.1.0"

__all__ = ["Answer", "Chunk", "Engine", "Sampling", "load"]

_HOMES = {
    "Answer": "pipeline.chunks",
    "Chunk": "pipeline.chunks",
    "Engine": "pipeline.engine",
    "Sampling": "pipeline.sampling",
}


def load(
    name: str | Path | None = None,
    *,
    dtype: str | None = None,
    max_context: int | None = None,
    quantized: bool | None = None,
    force: bool = False,
) -> Engine:
    """The engine of a model: a directory, a .gguf file, a Hub id (ORG/NAME), None for the default.

    The default is Qwen3-0.6B, and where the Hub can't be reached a smaller model. What is fetched,
    or taken instead, is said by a log message. The options are Engine.load's. Raises OSError,
    RuntimeError or ValueError in one sentence.
    """
    from logging import getLogger

    from pipeline import source
    from pipeline.engine import Engine

    notify = getLogger(__name__).warning  # on stderr, where nobody says otherwise
    found = source.find(None if name is None else str(name), notify=notify)
    return Engine.load(
        found.path, dtype=dtype, max_context=max_context, quantized=quantized, force=force
    )


def __getattr__(name: str) -> Any:
    """The classes bring MLX, so they come when they are asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
