"""pipeline: text -> text. The one place where the tokenizer (`bpe`) and the model (`model`) meet.

    source --Engine.load--> Engine --stream--> Chunk, Chunk, ... --commands--> terminal

Blind spot: it holds no tokenization and no arithmetic of its own.
"""
