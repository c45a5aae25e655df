"""pipeline/stops.py against a slow reader that looks for stop texts after each character."""

import random

import pytest

from pipeline.stops import StopTexts


def slow(text, stops):
    """The text before the stop text that is complete first, and whether there is one."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def cut_up(draw, text):
    """text in pieces of random lengths, some of them empty."""
    while text:
        length = draw.choice([0, 1, 2, 3, 12, 99])
        yield text[:length]
        text = text[length:]


def pushed(pieces, stops):
    reader, out = StopTexts(stops), ""
    for piece in pieces:
        out += reader.push(piece)
        if reader.is_found:
            return out, True
    return out + reader.finish(), False


def test_the_outcome_is_the_slow_reader_s_however_the_text_is_cut():
    draw, num_found = random.Random(0), 0
    for _ in range(3000):
        text = "".join(draw.choices("ab\né", k=draw.randint(0, 12)))
        stops = ["".join(draw.choices("ab\né", k=draw.randint(1, 4))) for _ in range(3)]
        stops = stops[: draw.randint(0, 3)]
        expected = slow(text, stops)
        num_found += expected[1]
        assert pushed(cut_up(draw, text), stops) == expected, (text, stops)
    assert 500 < num_found < 2500


@pytest.mark.parametrize(
    ("pieces", "stops", "shown"),
    [
        (["Hello", " wor", "ld"], ["\n"], ["Hello", " wor", "ld"]),  # nothing is doubtful
        (["a", "b", "x"], ["abc"], ["", "", "abx"]),
        (["aa", "ab"], ["aab"], ["", "a"]),
        (["one <", "|end|> two"], ["<|end|>"], ["one ", ""]),
    ],
)
def test_only_what_may_begin_a_stop_text_is_held_back(pieces, stops, shown):
    reader = StopTexts(stops)
    assert [reader.push(piece) for piece in pieces] == shown


@pytest.mark.parametrize("stops", [[""], ["a", ""], "abc", [1]])
def test_stop_texts_that_make_no_sense_are_refused(stops):
    with pytest.raises(ValueError, match="stop texts must be"):
        StopTexts(stops)
