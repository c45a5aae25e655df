"""The arrows between the packages: who may import whom, and what is loaded when."""

import ast
import subprocess
import sys

import pytest
from paths import ROOT

ALLOWED = {  # package -> what it may import besides the standard library and itself
    "bpe": {"regex"},
    "model": {"mlx"},
    "pipeline": {"bpe", "model", "mlx", "huggingface_hub", "tqdm"},
}
ALLOWED_IN_FILE = {
    "bpe/chat.py": {"jinja2"},
    "bpe/marks.py": {"jinja2"},
    "bpe/hub.py": {"huggingface_hub"},
    "bpe/corpus.py": {"compression", "zstandard"},  # the former is Python's own from 3.14 on
    "bpe/lab/peers.py": {"tokenizers", "tiktoken"},  # what is compared with
}
SOURCES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path):
    """Top-level names of all modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_allowed_imports(path):
    name = path.relative_to(ROOT).as_posix()
    package = name.split("/")[0]
    allowed = ALLOWED[package] | {package} | ALLOWED_IN_FILE.get(name, set())
    assert set(imported(path)) - sys.stdlib_module_names <= allowed


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstring_says_what_comes_in_and_out(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path} has no docstring"
    first_paragraph = docstring.split("\n\n")[0]
    assert "->" in docstring or "<->" in first_paragraph, f"{path} does not open with its arrow"


def loaded_by(statement):
    """The top-level modules that are loaded after one statement in a fresh interpreter."""
    script = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_bpe_loads_neither_jinja2_nor_mlx():
    assert "regex" in loaded_by("import bpe")
    assert not {"jinja2", "mlx", "huggingface_hub"} & loaded_by("import bpe")
