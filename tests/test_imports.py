"""The arrows between packages, rooms and files: who may import whom, and what is loaded when."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

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
    "bpe/chat/__init__.py": {"jinja2"},
    "bpe/chat/marks.py": {"jinja2"},
    "bpe/chat/tree.py": {"jinja2"},
    "bpe/formats/hub.py": {"huggingface_hub"},
    "bpe/training/opening.py": {"compression", "zstandard"},  # Python's own from 3.14 on
    "bpe/lab/peers.py": {"tokenizers", "tiktoken"},  # what is compared with
    "model/weights/safetensors.py": {"safetensors", "numpy"},
}
# A room is a file or folder at a package's root. Files import from their own room and from those
# before a "<"; rooms with a comma between them know nothing of each other.
ROOMS = {  # package -> its rooms, from below
    "bpe": "spec, garbage < encoding, chat < formats < tokenizer < training, lab"
    " < __init__ < __main__",
    "model": "arguments, whole, cpu < rope < config < cache < ops < moe < transformer"
    " < weights, generation < __init__ < __main__",
    "pipeline": "source, thinking, stops, files, sampling, statistics < chunks < engine"
    " < conversation, trace, glitch < __init__ < commands < __main__",
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


def module_name(path):
    """model/cpu/__init__.py -> model.cpu"""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCES if path.relative_to(ROOT).parts[0] in ROOMS}
LEVELS = {  # package.room -> how high it stands
    f"{package}.{room}": level
    for package, order in ROOMS.items()
    for level, rooms in enumerate(order.split(" < "))
    for room in rooms.split(", ")
}


def modules_in(source, modules):
    """The modules that a source imports: also in functions, for type checkers, by import_module."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in inner]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [argument.value for argument in node.args if type(argument) is ast.Constant]
        yield from (name for name in names if name in modules)


def room_of(module):
    package, _, rest = module.partition(".")
    return f"{package}.{rest.partition('.')[0] or '__init__'}"


GRAPH = {
    module: set(modules_in(path.read_text(encoding="utf-8"), MODULES))
    for module, path in MODULES.items()
}


def test_no_circle_of_files():
    assert sum(map(len, GRAPH.values())) > 200, "else this test sees nothing"
    try:
        list(TopologicalSorter(GRAPH).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_from_lower_ones_only(package):
    own = [module for module in MODULES if module.partition(".")[0] == package]
    homeless = [module for module in own if room_of(module) not in LEVELS]
    assert not homeless, f"name the rooms of {homeless} in ROOMS"
    pairs = [(one, other) for one in own for other in GRAPH[one] if other in own]
    wrong = [
        f"{one} imports {other}"
        for one, other in pairs
        if room_of(one) != room_of(other) and LEVELS[room_of(one)] <= LEVELS[room_of(other)]
    ]
    assert not wrong


def test_imports_are_seen_wherever_they_are():
    source = """
import a, other
from a import b, name
if TYPE_CHECKING:
    from a.c import name
def function():
    import a.d as d
    importlib.import_module("a.e")
"""
    modules = {"a", "a.b", "a.c", "a.d", "a.e", "a.f"}
    assert sorted(set(modules_in(source, modules))) == ["a", "a.b", "a.c", "a.d", "a.e"]


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


NAMED_TO_CLASH_WITH_NOTHING = {"_exit", "_replace", "_asdict", "_SubParsersAction"}  # of Python's


def private_names(tree):
    """(line, name) of what a file takes from inside another class or module: x._name.

    A class's own are its own in whichever of its objects: other._ids, where it has a self._ids.
    """
    own = {}  # node -> the private names of the class around it
    for scope in ast.walk(tree):  # the outer ones first
        if isinstance(scope, ast.ClassDef):
            names = {
                node.attr for node in ast.walk(scope)
                if isinstance(node, ast.Attribute) and is_self(node.value)
            }  # fmt: skip
            own |= dict.fromkeys(ast.walk(scope), names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not is_self(node.value):
            names = {node.attr} - own.get(node, set())
        else:
            names = {a.name for a in node.names} if isinstance(node, ast.ImportFrom) else ()
        for name in names:
            if name.startswith("_") and not name.startswith("__"):
                yield node.lineno, name


def is_self(node):
    is_super = isinstance(node, ast.Call) and getattr(node.func, "id", None) == "super"
    return is_super or getattr(node, "id", None) in ("self", "cls")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_stay_private(path):
    """bpe/lab, above all, reads of a tokenizer what bpe/encoding/inside.py shows of it."""
    found = private_names(ast.parse(path.read_text(encoding="utf-8")))
    assert [one for one in found if one[1] not in NAMED_TO_CLASH_WITH_NOTHING] == []


def test_private_names_are_seen():
    """In a class, beside it, and in an import; but not its own, nor Python's __names__."""
    tree = ast.parse(
        "from a import _b, c\nclass D:\n  def e(self, other):\n"
        "    self._f, other._f, other._g, super()._h, self.i._j, other.__k__\nd._f"
    )
    assert sorted(private_names(tree)) == [(1, "_b"), (4, "_g"), (4, "_j"), (5, "_f")]
