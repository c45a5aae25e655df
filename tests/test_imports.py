"""The arrows between the packages: who may import whom, and what is loaded when."""

import ast
import subprocess
import sys

import pytest
from compare import REFERENCE
from paths import ROOT

import model
from tests.model.weights.test_gguf import Q8_0, q8_0, write_model

ALLOWED = {  # package -> what it may import besides the standard library and itself
    "bpe": {"regex"},
    "model": {"mlx"},
    "pipeline": {"bpe", "model", "mlx", "huggingface_hub", "tqdm"},
}
ALLOWED_IN_FILE = {
    "bpe/chat.py": {"jinja2"},
    "bpe/marks.py": {"jinja2"},
    "bpe/formats/hub.py": {"huggingface_hub"},
    "bpe/training/corpus.py": {"compression", "zstandard"},  # Python's own from 3.14 on
    "bpe/lab/peers.py": {"tokenizers", "tiktoken"},  # what is compared with
    "model/weights/safetensors.py": {"safetensors", "numpy"},
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


@pytest.mark.parametrize(
    "statement",
    [
        "import model, model.__main__, model.weights.convert, model.weights.info",
        "import pipeline, pipeline.engine, pipeline.source, pipeline.commands.answer",
        "import sys; sys.argv[1:] = ['--help']; from pipeline.__main__ import main\ntry: main()\n"
        "except SystemExit: pass",
        "import model; model.load({gguf!r})",
    ],
)
def test_numpy_is_loaded_only_where_a_safetensors_file_is_opened(statement, tmp_path):
    m = model.load(REFERENCE / "qwen3-tied")
    gguf = write_model(tmp_path / "m.gguf", m, (Q8_0, q8_0))
    loaded = loaded_by(statement.format(gguf=str(gguf)))
    assert loaded & {"model", "pipeline"}
    assert not {"numpy", "safetensors"} & loaded


def test_a_safetensors_file_is_opened_by_safetensors():
    directory = REFERENCE / "qwen3-tied"
    assert {"numpy", "safetensors"} <= loaded_by(f"import model; model.load({str(directory)!r})")
