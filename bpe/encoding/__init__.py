"""text -> ids, stage by stage: added tokens, normalization, pieces, words, merges, places.

Blind spot: it does not know files, nor the Tokenizer that joins the stages.
"""
