"""command lines -> what the terminal shows: one file a command, and what they share.

Blind spot: it does not know how an answer comes about.
"""
