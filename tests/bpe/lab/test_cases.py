"""bpe/lab/cases.py: each family's genuine tokenizer gives the ids that are recorded."""

import pytest

from bpe.lab.cases import CASES, FAMILIES, check, closest_family


@pytest.mark.parametrize("family", FAMILIES)
def test_genuine_tokenizers_give_the_recorded_ids(genuine, family):
    assert check(genuine(family), family) == []
    for case in CASES:
        assert genuine(family).encode_batch([case.text], workers=1) == [list(case.ids[family])]


def test_the_list_is_whole():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 50
    for case in CASES:
        assert set(case.ids) == set(FAMILIES)
        assert case.why


def test_what_differs_is_found(genuine, tiny):
    gpt2 = genuine("gpt2")
    assert closest_family(gpt2) == ("gpt2", len(CASES))
    names = {mismatch.case.name for mismatch in check(gpt2, "llama3")}
    assert {"digits", "contractions_in_capitals"} < names
    assert "empty" not in names
    assert check(tiny, tiny) == []
    with pytest.raises(ValueError, match="'bert' is no family of the cases; they are qwen3"):
        check(tiny, "bert")
