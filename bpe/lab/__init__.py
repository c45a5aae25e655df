"""The edge-case laboratory: texts and tokenizers -> what happens in them, and why.

    from bpe import lab
    lab.explain(tok, "re\\u0301sume\\u0301")     # every stage, and the reason for each boundary
    lab.audit(tok)                             # which entries of the vocabulary any text can give
    lab.compare({"a": tok, "b": other})        # what a vocabulary costs, language by language
    lab.diff(tok, other)                       # texts with other ids, each as short as it gets
    lab.roundtrip(tok, text)                   # what decode(encode(text)) loses, and where
    lab.check(tok, "qwen3")                    # the named hard texts that tok encodes otherwise

Everything is found by running the tokenizer's own code. Blind spot: models (pipeline/glitch.py).
"""

from importlib import import_module
from typing import Any

_WHERE = {  # name -> the file that holds it, loaded when it is first asked for
    "explain": "explanation", "Explanation": "explanation", "Boundary": "explanation",
    "audit": "auditing", "Audit": "auditing",
    "compare": "comparison", "Comparison": "comparison",
    "diff": "difference", "Difference": "difference",
    "roundtrip": "losses", "Loss": "losses",
    "CASES": "cases", "Case": "cases", "check": "cases",
    "SAMPLE": "sample",
}  # fmt: skip

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bpe.lab.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
