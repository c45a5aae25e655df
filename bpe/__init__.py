"""bpe: text <-> ids. A byte-level BPE tokenizer in pure Python.

    tok = bpe.Tokenizer.from_file("tokenizer.json")
    tok.encode("The capital of France is")      # [785, 6722, 315, 9625, 374] with Qwen3
    tok.decode([12095, 13])                     # " Paris."
    tok = bpe.train_files("corpus/", 8000)      # a vocabulary of one's own

Blind spot: it does not know what a model does with the ids.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bpe.spec import AddedToken, Spec
from bpe.tokenizer import Stream, Tokenizer

if TYPE_CHECKING:
    from bpe import lab
    from bpe.training.trainer import (
        count_pieces,
        split_pieces,
        train,
        train_files,
        train_from_counts,
    )

__all__ = [
    "AddedToken",
    "Spec",
    "Stream",
    "Tokenizer",
    "count_pieces",
    "lab",
    "split_pieces",
    "train",
    "train_files",
    "train_from_counts",
]


__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Training and the laboratory are loaded by who uses them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "lab":
        return import_module("bpe.lab")
    return getattr(import_module("bpe.training.trainer"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
