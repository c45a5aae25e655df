"""a corpus -> a vocabulary: reading, counting, learning, and runs that lose no work.

Blind spot: it does not know how the vocabulary encodes (encoding/), but for what it extends.
"""
