"""bpe: text <-> ids. A byte-level BPE tokenizer in pure Python.

    tok = bpe.Tokenizer.from_file("tokenizer.json")
    tok.encode("The capital of France is")      # [785, 6722, 315, 9625, 374] with Qwen3
    tok.decode([12095, 13])                     # " Paris."

Blind spot: it does not know what a model does with the ids.
"""

from bpe.spec import AddedToken, Spec
from bpe.tokenizer import Stream, Tokenizer

__all__ = ["AddedToken", "Spec", "Stream", "Tokenizer"]
