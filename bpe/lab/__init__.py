"""The edge-case laboratory: texts and tokenizers -> what happens in them, and why.

    from bpe import lab
    lab.explain(tok, "re\\u0301sume\\u0301")     # every stage, and the reason for each boundary

Everything is found by running the tokenizer's own code. Blind spot: models (pipeline/glitch.py).
"""

from bpe.lab.explain import Boundary, Explanation, explain

__all__ = ["Boundary", "Explanation", "explain"]
