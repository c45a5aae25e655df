"""The view of a tokenizer's stages: it says what encode does, and can't be written to."""

from dataclasses import FrozenInstanceError
from itertools import chain

import pytest

TEXT = "He said: 'unbelievable' résumés, 12 你好"


def test_the_stages_in_turn_give_the_ids(qwen3):
    inside = qwen3.inside
    pieces = inside.pre_tokenizer.split(inside.pre_tokenizer.normalize(TEXT))
    ids = qwen3.encode(TEXT)
    assert list(chain.from_iterable(map(inside.ids_of_piece, pieces))) == ids
    parts = chain.from_iterable(map(inside.cut, pieces))
    assert [id for part in parts for id in inside.merge_bytes(part.encode())] == ids
    for id in filter(inside.parts.get, ids):
        assert inside.results[inside.ranks[inside.parts[id]]] == id
        assert b"".join(map(qwen3.id_to_token, inside.parts[id])) == qwen3.id_to_token(id)


def test_no_table_can_be_written_to(qwen3):
    inside = qwen3.inside
    pair = next(iter(inside.ranks))
    with pytest.raises(TypeError):
        inside.ranks[pair] = 0
    with pytest.raises(AttributeError):
        inside.ranks.pop(pair)
    with pytest.raises(TypeError):
        del inside.parts[256]
    with pytest.raises(FrozenInstanceError):
        inside.ranks = {}
