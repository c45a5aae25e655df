"""Fixtures: a tiny tokenizer and model directory, and the genuine tokenizers and weights."""

import json
import shutil
from functools import lru_cache

import pytest
from assets import asset
from compare import REFERENCE
from tiny import TINY_CHAT_TEMPLATE, tiny_tokenizer_json

import bpe


@pytest.fixture(scope="session")
def tiny_json():
    """The tokenizer.json object of the tiny tokenizer; copy before changing it."""
    return tiny_tokenizer_json()


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory, tiny_json):
    """A model directory: golden/reference/qwen3-tied with the tiny tokenizer and a template."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(REFERENCE / "qwen3-tied", path)
    (path / "tokenizer.json").write_text(json.dumps(tiny_json), encoding="utf-8")
    config = {"chat_template": TINY_CHAT_TEMPLATE, "eos_token": "<|im_end|>"}
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return path


@pytest.fixture(scope="session")
def tiny(tiny_directory):
    """The tiny tokenizer: ids 0-2 special, 3-258 bytes, 259-318 merges, 319 <think>."""
    return bpe.Tokenizer.from_pretrained(tiny_directory)


@pytest.fixture(scope="session")
def genuine():
    """name -> the genuine tokenizer of that family, loaded once, when it is first asked for."""

    @lru_cache
    def load(name):
        asset(f"{name}/tokenizer_config.json")
        return bpe.Tokenizer.from_pretrained(asset(f"{name}/tokenizer.json").parent)

    return load


@pytest.fixture(scope="session")
def qwen3(genuine):
    """Qwen3's genuine tokenizer with its chat template."""
    return genuine("qwen3")


@pytest.fixture(scope="session")
def smollm2_path():
    """SmolLM2-135M-Instruct as a GGUF file."""
    return asset("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """SmolLM2's genuine tokenizer, from the GGUF file."""
    return bpe.Tokenizer.from_file(smollm2_path)
