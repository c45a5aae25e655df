"""pipeline/thinking.py against a division of the whole text at once."""

import random
import re

import pytest

from pipeline.thinking import ThinkingSplitter, is_left_open
from tests.pipeline.test_stops import cut_up


def slow(text, is_thinking):
    """(reasoning, answer) of the whole text."""
    opened = re.match(r"\s*<think>", text)
    if is_thinking:
        text = "<think>" + text
    elif not opened:
        return "", text
    reasoning, _, answer = text.partition("<think>")[2].partition("</think>")
    return reasoning.strip(), answer.lstrip()


def split(pieces, is_thinking):
    splitter, reasoning, answer = ThinkingSplitter(is_thinking=is_thinking), "", ""
    for piece in pieces:
        more = splitter.push(piece)
        reasoning, answer = reasoning + more[0], answer + more[1]
    more = splitter.finish()
    return reasoning + more[0], answer + more[1]


PARTS = ["<think>", "</think>", "<thi", "</", ">", "\n\n", " ", "a", "é", "I see"]


@pytest.mark.parametrize("is_thinking", [False, True])
def test_the_parts_are_those_of_the_whole_text_however_it_is_cut(is_thinking):
    draw, seen = random.Random(1), set()
    for _ in range(3000):
        text = "".join(draw.choices(PARTS, k=draw.randint(0, 7)))
        text = draw.choice(["", "<think>", "\n<think>\n"]) + text
        expected = slow(text, is_thinking)
        seen.add((bool(expected[0]), bool(expected[1])))
        assert split(cut_up(draw, text), is_thinking) == expected, text
    assert len(seen) == 4


def test_text_comes_as_early_as_it_can():
    splitter = ThinkingSplitter()
    pieces = ["<think>", "\n", "Hm", "m. ", "\n</th", "ink>", "\n\n", "Yes", " </think>"]
    assert [splitter.push(piece) for piece in pieces] == [
        ("", ""), ("", ""), ("Hm", ""), ("m.", ""), ("", ""), ("", ""), ("", ""), ("", "Yes"),
        ("", " </think>"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["no thinking", " <b>bold</b>", "<thin", "  "])
def test_an_answer_without_thinking_is_left_as_it_is(text):
    assert split([*text], False) == ("", text)


def test_is_thinking_tells_where_the_text_ends():
    splitter = ThinkingSplitter()
    ends = []
    for piece in ["<thi", "nk>", "a", "</think", ">", "b"]:
        splitter.push(piece)
        ends.append(splitter.is_thinking)
    assert ends == [False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("assistant\n", False),
        ("assistant\n<think>\n", True),
        ("<think>\n\n</think>\n\n", False),
        ("<think></think><think>", True),
    ],
)
def test_whether_a_prompt_leaves_the_thinking_open(text, expected):
    assert is_left_open(text) == expected
