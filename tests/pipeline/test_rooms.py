"""The order of pipeline's rooms: a file imports from its own and lower ones, and no circle."""

import ast
from graphlib import TopologicalSorter

import pytest
from paths import ROOT

ROOMS = [  # from below; a file is in the first room that names it
    {"source", "thinking", "stops", "files", "sampling", "statistics"},
    {"chunks"},
    {"engine", ""},  # pipeline/__init__.py, which offers it
    {"conversation", "trace", "glitch"},
    {"commands"},
    {"__main__"},
]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "pipeline").rglob("*.py"))
}


def room(name):
    part = (name + ".").split(".")[1]
    [number] = [number for number, names in enumerate(ROOMS) if part in names]
    return number


def imported(name):
    """The files of pipeline that one of them imports, wherever in it."""
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & {*FILES}
            yield from inner or {node.module} & {*FILES}


@pytest.mark.parametrize("name", FILES)
def test_a_file_imports_from_its_room_and_lower_ones(name):
    above = [other for other in imported(name) if room(other) > room(name)]
    assert not above


def test_no_circle():
    graph = {name: {*imported(name)} for name in FILES}
    assert sum(map(len, graph.values())) > 40  # else this holds nothing
    [*TopologicalSorter(graph).static_order()]


def test_what_answers_texts_is_below_what_reads_command_lines():
    assert room("pipeline.engine") < room("pipeline.trace") < room("pipeline.commands.trace")
