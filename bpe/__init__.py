"""bpe: text <-> ids. A byte-level BPE tokenizer in pure Python.

    tok = bpe.Tokenizer.from_file("tokenizer.json")
    tok.encode("The capital of France is")      # [785, 6722, 315, 9625, 374] with Qwen3
    tok.decode([12095, 13])                     # " Paris."
    tok = bpe.train_files("corpus/", 8000)      # a vocabulary of one's own

Blind spot: it does not know what a model does with the ids.
"""

from typing import TYPE_CHECKING, Any

from bpe.spec import AddedToken, Spec
from bpe.tokenizer import Stream, Tokenizer

if TYPE_CHECKING:
    from bpe.trainer import count_pieces, split_pieces, train, train_files, train_from_counts

__all__ = [
    "AddedToken",
    "Spec",
    "Stream",
    "Tokenizer",
    "count_pieces",
    "split_pieces",
    "train",
    "train_files",
    "train_from_counts",
]


def __getattr__(name: str) -> Any:
    """Training is loaded by who trains."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bpe import trainer

    return getattr(trainer, name)
