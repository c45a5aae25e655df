"""logits -> ids: sampling, the loops that generate, drafts, batches, and caches kept for later.

Blind spot: it does not know how a Transformer came to its weights.
"""
