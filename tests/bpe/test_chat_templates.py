"""bpe/chat/ on 70 genuine templates: renderings as recorded, and whose the control tokens are.

The templates are those of llama.cpp's collection; the renderings of conversations of every shape
are transformers 5.24's (the first eight digits of their sha256; null: it refuses). In the hostile
conversations each control token that people write stands between "@(" and ")@", so that a look
at the rendering tells whose a token is. Everything in a template that looks like a control token is
taken for one.
"""

import hashlib
import json
import re
from datetime import datetime

import pytest
from assets import TEMPLATES, asset
from chat_shapes import shapes
from golden_cases import GOLDEN

import bpe.chat

RECORDED = json.loads((GOLDEN / "chat_templates.json").read_text(encoding="utf-8"))
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}
ROLES = "<|user|> <|assistant|> <|system|> <|tool|> <|observation|>".split()
EVERYWHERE = "<think> </think> <|im_end|> <tool_call> <s> </s>".split()
CONTROL = re.compile(
    r"<\|[^|<>\s{}]{1,40}\|>|<｜[^｜{}]{1,40}｜>|</?[A-Za-z_:]{2,30}>|\[/?[A-Z_]{2,30}\]"
    r"|<\]?[^<>\s{}\[\]]{2,30}\[?>"
)
THINKING = ("<think>", "</think>")  # templates cut at these and write them anew


class Independence(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 4, 12)


def rendered(source, messages, options, controls):
    options = {"tools": None, "documents": None, "add_generation_prompt": True} | options
    try:
        variables = {"messages": messages} | options
        return bpe.chat.render(source, variables, NAMED, controls=controls)
    except ValueError:
        return None


def written_by_the_template(text, controls):
    """The spans of the control tokens that do not stand between @( and )@."""
    pattern = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))))
    return [
        match.span()
        for match in pattern.finditer(text)
        if text[: match.start()][-2:] != "@(" or text[match.end() :][:2] != ")@"
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_renderings_and_whose_the_tokens_are(name, monkeypatch):
    monkeypatch.setattr(bpe.chat, "datetime", Independence)
    source = json.loads(asset(TEMPLATES).read_text(encoding="utf-8"))[name]
    controls = {*CONTROL.findall(source), *ROLES, *EVERYWHERE}
    num_tokens = num_rendered = 0
    for x, digests in RECORDED[name].items():
        for (shape, (messages, options)), digest in zip(shapes(x).items(), digests):
            found = rendered(source, messages, options, controls)
            assert (found is None) == (digest is None), (shape, x)
            if found is None:
                continue
            assert hashlib.sha256(found.text.encode()).hexdigest()[:8] == digest, (shape, x)
            expected, spans = written_by_the_template(found.text, controls), list(found.controls)
            if "inline" in shape:
                expected, spans = (
                    [span for span in spans if found.text[slice(*span)] not in THINKING]
                    for spans in (expected, spans)
                )
            assert spans == expected, (shape, x)
            num_tokens, num_rendered = num_tokens + len(spans), num_rendered + 1
    assert num_tokens >= num_rendered


def test_most_conversations_are_rendered():
    """Two templates want tools of another form, and refuse all of them."""
    digests = [recorded["hi"] for recorded in RECORDED.values()]
    assert sum(any(row) for row in digests) == 68
    assert sum(digest is not None for row in digests for digest in row) > 1800
