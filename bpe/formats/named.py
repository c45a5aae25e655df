"""how people name a tokenizer -> its Spec: a path, a family's name, or a Hub id.

Blind spot: what is in the files.
"""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from bpe import formats
from bpe.formats import hub
from bpe.spec import Spec

GENUINE = {  # a name -> the Hub repository that holds that family's tokenizer.json
    "qwen3": "Qwen/Qwen3-0.6B",
    "qwen2.5": "Qwen/Qwen2.5-0.5B",
    "gpt2": "openai-community/gpt2",
    "gpt-4o": "Xenova/gpt-4o",
    "gpt-oss": "openai/gpt-oss-20b",
    "llama3": "meta-llama/Meta-Llama-3-8B",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct",
}
BESIDE = ("tokenizer_config.json", "chat_template.jinja")  # what a directory may hold besides


def read_named(name: str | PathLike[str]) -> Spec:
    """The Spec of a file, a model directory, a name of GENUINE or a Hub id (ORG/NAME).

    Raises FileNotFoundError where it is none of these, hub.SourceError where the Hub can't give it.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return formats.read_directory(path)
    if path.exists():
        return formats.read_file(path)
    text = os.fspath(name)
    repository = GENUINE.get(text, text)
    if repository.count("/") != 1 or repository[0] in "./~" or path.suffix in (".json", ".gguf"):
        raise FileNotFoundError(
            f"there is no file or directory {text!r}, and it is neither a Hub id (ORG/NAME) nor "
            f"one of {', '.join(GENUINE)}"
        )
    return formats.read_directory(hub.fetch(repository, "tokenizer.json", BESIDE).parent)
