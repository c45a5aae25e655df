"""a parsed chat template -> what of its literals is written in a row, and what is only read.

Blind spot: what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

# What these look for is read, not written.
_READING_METHODS = frozenset(
    "startswith endswith split rsplit partition rpartition find rfind index rindex count strip "
    "lstrip rstrip removeprefix removesuffix get".split()
)
_READING_FILTERS = frozenset(
    "selectattr rejectattr select reject map groupby sort unique attr".split()
)


class Replacer(NodeTransformer):
    def __init__(self, replaced: Mapping[int, nodes.Expr]) -> None:
        self._replaced = replaced

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if id(node) in self._replaced:
            return self._replaced[id(node)]
        return super().visit(node, *args, **kwargs)


def literal(node: nodes.Node | None) -> str:
    """The text of a literal; empty for any other node."""
    if isinstance(node, nodes.TemplateData):
        return node.data
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        return node.value
    return ""


def is_role(node: nodes.Node | None) -> bool:
    """Whether an expression is a message's role, which the program sets, perhaps filtered."""
    while isinstance(node, nodes.Filter):
        node = node.node
    if isinstance(node, nodes.Getattr):
        return node.attr == "role"
    if isinstance(node, nodes.Getitem):
        return literal(node.arg) == "role"
    return isinstance(node, nodes.Name) and node.name == "role"


def read_only(tree: nodes.Template) -> set[int]:
    """id() of the nodes whose value is only looked at: what is compared, searched for, a key."""
    roots: list[nodes.Node | None] = []
    for node in tree.find_all((nodes.Compare, nodes.Test, nodes.Call, nodes.Filter, nodes.Getitem,
                               nodes.Pair)):  # fmt: skip
        if isinstance(node, nodes.Compare):
            roots += [node.expr, *(operand.expr for operand in node.ops)]
        elif isinstance(node, nodes.Test):
            roots += [node.node, *node.args]
        elif isinstance(node, nodes.Getitem):
            roots.append(node.arg)
        elif isinstance(node, nodes.Pair):
            roots.append(node.key)
        elif isinstance(node, nodes.Filter):
            roots += node.args[:1] if node.name == "replace" else ()
            roots += node.args if node.name in _READING_FILTERS else ()
        elif isinstance(node.node, nodes.Getattr):
            roots += node.args[:1] if node.node.attr == "replace" else ()
            roots += node.args if node.node.attr in _READING_METHODS else ()
    return {id(inner) for root in roots if root for inner in _with_descendants(root)}


def _with_descendants(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    yield from node.find_all(nodes.Node)


def chains(tree: nodes.Template) -> Iterator[list[nodes.Node]]:
    """What is written in a row: the parts of an output, of a + b and a ~ b; else a node alone."""
    done: set[int] = set()
    for node in _with_descendants(tree):
        if id(node) in done:
            continue
        if isinstance(node, nodes.Output):
            chain = [part for each in node.nodes for part in _flat(each, done)]
        elif isinstance(node, (nodes.Add, nodes.Concat)):
            chain = list(_flat(node, done))
        elif isinstance(node, (nodes.TemplateData, nodes.Const, nodes.Name)):
            chain = [node]
        else:
            continue
        done.update(map(id, chain))
        yield chain


def _flat(node: nodes.Node, done: set[int]) -> Iterator[nodes.Node]:
    parts: Iterable[nodes.Node] = ()
    if isinstance(node, nodes.Add):
        parts = (node.left, node.right)
    elif isinstance(node, nodes.Concat):
        parts = node.nodes
    done.add(id(node))
    for part in parts:
        yield from _flat(part, done)
    if not parts:
        yield node


def runs(chain: Iterable[nodes.Node | None]) -> Iterator[list[nodes.Node]]:
    """The literals of a chain that stand side by side."""
    run: list[nodes.Node] = []
    for node in chain:
        if literal(node):
            run.append(node)
        elif run:
            yield run
            run = []
    if run:
        yield run
