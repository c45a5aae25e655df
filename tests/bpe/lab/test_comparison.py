"""bpe/lab/comparison.py: counts against encode, and the aligned parts against the tokens."""

import dataclasses
import unicodedata

import pytest

import bpe
from bpe.lab import SAMPLE, compare
from bpe.lab.comparison import script_of
from bpe.spec import Replace


def test_the_sample_is_broad_and_normalized():
    languages = [sample for sample in SAMPLE if sample.kind == "language"]
    assert len(languages) >= 20
    assert len({sample.script for sample in languages}) >= 12
    assert {"code", "numbers", "emoji"} < {sample.kind for sample in SAMPLE}
    assert len({sample.name for sample in SAMPLE}) == len(SAMPLE)
    for sample in SAMPLE:
        assert unicodedata.is_normalized("NFC", sample.text)
        if sample.kind == "language" and " " not in sample.script:
            assert script_of(sample.text) == sample.script


def test_costs(genuine, qwen3):
    gpt2 = genuine("gpt2")
    found = compare({"qwen3": qwen3, "gpt2": gpt2})
    rows = {row.name: row for row in found.rows}
    for sample in SAMPLE:
        row = rows[sample.name]
        numbers = [len(qwen3.encode(sample.text)), len(gpt2.encode(sample.text))]
        assert [cost.num_tokens for cost in row.costs] == numbers
        for cost, number in zip(row.costs, numbers):
            assert cost.bytes_per_token == pytest.approx(len(sample.text.encode()) / number)
    assert rows["English"].costs[0].ratio == 1.0
    assert rows["English"].num_words == 28
    assert rows["Chinese"].costs[0].tokens_per_word is None
    assert rows["Hindi"].costs[1].ratio > 1.5 * rows["Hindi"].costs[0].ratio > 3
    assert rows["emoji"].costs[0].ratio is None
    latin = next(r for r in found.by_script if (r.script, r.kind) == ("Latin", "language"))
    of_script = [r for r in found.rows if (r.script, r.kind) == ("Latin", "language")]
    assert latin.costs[1].num_tokens == sum(r.costs[1].num_tokens for r in of_script)
    assert latin.costs[1].ratio == pytest.approx(
        sum(r.costs[1].ratio for r in of_script) / len(of_script)
    )
    assert found.sides == ()


@pytest.mark.parametrize("text", ["", "x", "1234 né 👨‍👩‍👧 ที่นี่", "e\u0301a\u0301 中国人民 I'LL"])
def test_sides_hold_all_tokens_in_order(genuine, qwen3, text):
    tokenizers = [qwen3, genuine("gpt2"), genuine("llama3")]
    found = compare(dict(zip("abc", tokenizers)), {"text": text})
    (sides,) = found.sides
    assert "".join(side.text for side in sides) == text
    for number, tokenizer in enumerate(tokenizers):
        ids = [id for side in sides for id in side.ids[number]]
        assert ids == tokenizer.encode(text)
        spans = tokenizer.encode_with_offsets(text)
        for side in sides:
            for _, start, stop in spans:
                assert stop <= side.start or start >= side.start
    if text.startswith("1234"):
        assert [side.text for side in sides[:2]] == ["1234", " né"]
        assert sides[0].differs


def test_what_a_normalizer_puts_in_at_the_end_belongs_to_the_last_part(tiny):
    spec = dataclasses.replace(tiny.spec, normalizer=(Replace(r"\Z", "!"),))
    tokenizer = bpe.Tokenizer(spec)
    (sides,) = compare({"a": tokenizer}, {"text": "a cat"}).sides
    assert [id for side in sides for id in side.ids[0]] == tokenizer.encode("a cat")
    assert sides[-1].tokens[0][-1] == "!"


def test_words_of_texts_that_are_given(qwen3):
    found = compare({"a": qwen3}, {"en": "two words, don't", "zh": "今天天气很好", "no": "123"})
    assert [row.num_words for row in found.rows] == [3, None, 1]
    assert [row.script for row in found.rows] == ["Latin", "Han", "-"]
    with pytest.raises(ValueError, match="no tokenizer to compare"):
        compare({})
