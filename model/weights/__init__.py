"""files -> a Transformer with its weights, and back: every format that people keep weights in.

Blind spot: it does not know how ids are chosen.
"""
