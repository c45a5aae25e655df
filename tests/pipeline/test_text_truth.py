"""Whatever ids a model says, all the texts that are made of them agree.

The ids decoded at once, the chunks as they stream, the final text and the bytes of the
log-probabilities, for 2,000 random lists over whole vocabularies.
"""

import random

import pytest

from model import Token
from pipeline.commands.answer import _logprob
from pipeline.engine import Engine

NUM_LISTS = 1000  # for each tokenizer
STOP = 2


def lists(engine, seed):
    """Random ids, with runs that cut characters in the middle and control tokens among them."""
    draw, vocab_size = random.Random(seed), engine.tokenizer.vocab_size
    halves = [engine.tokenizer.token_to_id(bytes([byte])) for byte in range(128, 256)]
    halves = [id for id in halves if id is not None]
    special = [*engine.tokenizer.special_ids - engine.stop_ids]
    pools = [range(vocab_size), halves, special]
    for _ in range(NUM_LISTS):
        ids = [draw.choice(draw.choices(pools, (6, 3, 1))[0]) for _ in range(draw.randint(1, 30))]
        yield [id for id in ids if id not in engine.stop_ids]


@pytest.fixture(params=["tiny", "qwen3"], scope="module")
def engine(request):
    tokenizer = request.getfixturevalue(request.param)
    return Engine(tokenizer, None, frozenset({STOP} if request.param == "tiny" else {151645}))


def test_streamed_and_final_text_ids_and_log_probabilities_agree(engine):
    tokenizer = engine.tokenizer
    for ids in lists(engine, seed=6):
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        composer = engine.composer([5])
        chunks = [composer.push(Token(id, -1.0, ((id, -1.0),))) for id in ids]
        chunks.append(composer.finish("stop", min(engine.stop_ids)))
        answer = engine.collect(chunks)
        assert "".join(chunk.text for chunk in chunks) == answer.text == expected
        assert answer.ids == ids
        told = [_logprob(engine, *pair) for pair in zip(answer.ids, answer.tokens, strict=True)]
        shown = [one for one in told if one["id"] not in tokenizer.special_ids]
        assert b"".join(bytes(one["bytes"]) for one in shown).decode("utf-8", "replace") == expected


def test_no_chunk_ends_in_half_a_character(engine):
    """Each beginning of the stream is one of the final text, and every chunk is whole text."""
    for ids in lists(engine, seed=7):
        composer, text = engine.composer([5]), ""
        expected = engine.tokenizer.decode(ids, skip_special_tokens=True)
        for id in ids:
            text += composer.push(id).text
            text.encode()  # no lone surrogate
            assert expected.startswith(text)
        assert text + composer.finish("length").text == expected


def test_reasoning_and_answer_together_hold_every_character_but_tags_and_blanks(engine):
    think, close = (engine.tokenizer.encode(text) for text in ("<think>", "</think>"))
    for ids in lists(engine, seed=8):
        half = len(ids) // 2
        said = [*think, *ids[:half], *close, *ids[half:]]
        composer = engine.composer([5], split_thinking=True)
        answer = engine.collect([*map(composer.push, said), composer.finish("length")])
        text = engine.tokenizer.decode(said, skip_special_tokens=True)
        opened, _, rest = text.partition("<think>")[2].partition("</think>")
        assert (answer.reasoning, answer.text) == (opened.strip(), rest.lstrip())
        assert answer.ids == said


def test_control_tokens_in_what_people_write_stay_text(engine):
    special = {engine.tokenizer.decode([id]) for id in engine.tokenizer.special_ids}
    for text in special:
        written = f"a{text}b"
        alone = engine.encode_raw(written)
        assert not engine.tokenizer.special_ids & {*alone}
        assert engine.tokenizer.decode(alone) == written
        messages = [
            {"role": "system", "content": written},
            {"role": "user", "content": written},
        ]
        plain = [dict(message, content="a b") for message in messages]
        for asked in (messages, [*messages, {"role": "assistant", "content": written}]):
            calm = [*plain, {"role": "assistant", "content": "a b"}][: len(asked)]
            ids = engine.encode_chat(asked)
            assert engine.tokenizer.decode(ids).count(written) == len(asked)
            assert [id for id in ids if id in engine.tokenizer.special_ids] == [
                id for id in engine.encode_chat(calm) if id in engine.tokenizer.special_ids
            ]
