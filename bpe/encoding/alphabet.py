"""byte-level token <-> its printable form: the alphabet that vocabulary files are written in.

Each byte is one printable character: itself where Latin-1 has a visible one, else the next free
character from U+0100 on. This is a charmap codec, so C code converts. Blind spot: files.

Source: GPT-2's released encoder.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from itertools import accumulate, chain

_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
ALPHABET = "".join(
    chr(byte) if byte in _VISIBLE else chr(0x100 + _HIDDEN.index(byte)) for byte in range(256)
)  # ALPHABET[byte] is the byte's character; a space is "Ġ"
_ALPHABET_MAP = codecs.charmap_build(ALPHABET)
_GLYPHS = frozenset(ALPHABET)


def to_bytes(glyphs: str) -> bytes:
    """The bytes of a token in the byte alphabet; UnicodeEncodeError for any other character.

    >>> to_bytes("Ġthe")
    b' the'
    """
    return codecs.charmap_encode(glyphs, "strict", _ALPHABET_MAP)[0]


def to_glyphs(token: bytes) -> str:
    """The printable form of a token, as vocabulary files write it.

    >>> to_glyphs(b" the")
    'Ġthe'
    """
    return codecs.charmap_decode(token, "strict", ALPHABET)[0]


is_glyphs = _GLYPHS.issuperset  # whether a text is in the byte alphabet


def bytes_vocab(vocab: Mapping[str, int]) -> tuple[dict[bytes, int], dict[str, int]]:
    """(vocab with its tokens as bytes, the tokens that are not in the byte alphabet).

    All are converted at once, as each glyph is one byte.
    """
    dead: dict[str, int] = {}
    try:
        data = to_bytes("".join(vocab))
    except UnicodeEncodeError:
        dead = {token: id for token, id in vocab.items() if not is_glyphs(token)}
        vocab = {token: id for token, id in vocab.items() if token not in dead}
        data = to_bytes("".join(vocab))
    ends = list(accumulate(map(len, vocab)))
    tokens = map(data.__getitem__, map(slice, chain((0,), ends), ends))
    return dict(zip(tokens, vocab.values())), dead
