"""The main job, with genuine weights: SmolLM2 answers " Paris" as the recorded ids say."""

import os
import re
import subprocess
import sys

import pytest
from compare import assert_same_ids
from paths import ROOT

from pipeline.engine import Engine

PROMPT = "The capital of France is"
PROMPT_IDS = [504, 3575, 282, 4649, 314]


@pytest.fixture(scope="module")
def engine(smollm2_path):
    return Engine.load(smollm2_path, dtype="float32")


def test_the_ids_that_follow(engine):
    assert_same_ids(engine.encode_raw(PROMPT), PROMPT_IDS)
    chunks = list(engine.stream(PROMPT_IDS, max_tokens=2))
    assert_same_ids([chunk.id for chunk in chunks[:2]], [7042, 30])
    assert "".join(chunk.text for chunk in chunks) == " Paris."


def test_an_answer_ends_by_itself(engine):
    """<|im_end|> is the stop id; the file's metadata and its name agree."""
    ids = engine.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    *said, last = engine.stream(ids, max_tokens=60)
    assert (last.id, last.text, last.finish_reason) == (2, "", "stop")
    assert "Paris" in "".join(chunk.text for chunk in said)


@pytest.fixture
def pipeline(smollm2_path, tmp_path):
    """pipeline(*arguments) -> the finished process, where neither Hub nor Qwen3 can be had."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
    }  # fmt: skip

    def pipeline(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "pipeline", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )

    return pipeline


def test_the_default_command(pipeline):
    run = pipeline("--raw", "--temp", "0", "--max-tokens", "4", PROMPT)
    assert run.stdout.startswith(" Paris.")
    assert run.stderr.startswith("the Hub can't be reached: using SmolLM2-135M-Instruct instead")
    assert re.search(r"prompt 5 tokens, .* generated 4 tokens, .* memory [\d.]+ GB", run.stderr)
    assert run.stderr.count("\n") == 4


def test_the_chat_template_is_applied_by_default(pipeline, smollm2):
    run = pipeline("--temp", "0", "--max-tokens", "24", "What is the capital of France?")
    assert "Paris" in run.stdout
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    num_tokens = len(smollm2.apply_chat_template(messages))
    assert f"prompt {num_tokens} tokens" in run.stderr
    assert num_tokens > 20  # the template brings its own system message
