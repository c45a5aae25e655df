"""docs/: every command that can be copied is run, every quoted source is the source."""

import ast
import doctest
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from assets import asset
from paths import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block. mark: the comment before it. output: of the text block right behind it."""

    page: Path
    line: int
    kind: str
    body: str
    mark: str
    output: str | None

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def blocks(page):
    text = page.read_text(encoding="utf-8")
    found = [*FENCE.finditer(text)]
    for match, after in zip(found, [*found[1:], None]):
        is_output = after and after["kind"] == "text" and text[match.end() : after.start()] == "\n"
        line = text.count("\n", 0, match.start("body"))
        output = after["body"] if is_output else None
        yield Block(page, line, match["kind"], match["body"], match["mark"] or "", output)


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of_kind(kind):
    chosen = [block for block in BLOCKS if block.kind == kind]
    return pytest.mark.parametrize("block", chosen, ids=str)


def prepare(block, folder, request):
    """Put what a block needs into a folder, or skip it with the reason that stands before it."""
    if block.mark.startswith("not run: "):
        pytest.skip(f"{block} is {block.mark}")
    if block.mark == "needs bpe train" and importlib.util.find_spec("bpe.training.trainer") is None:
        pytest.skip(f"{block}: there is no bpe train here")
    if block.mark == "needs qwen3":
        asset("qwen3/tokenizer_config.json")
        (folder / "qwen3").symlink_to(asset("qwen3/tokenizer.json").parent)
    if block.mark == "needs smollm2":
        request.getfixturevalue("smollm2_path")


@of_kind("sh")
def test_commands(block, tmp_path, request):
    prepare(block, tmp_path, request)
    first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.body],
        cwd=tmp_path,
        env=os.environ | offline | {"PATH": first, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if block.output is not None:
        assert done.stdout.rstrip("\n") == block.output.rstrip("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_sessions(page, tmp_path, monkeypatch, request):
    """The sessions of a page share their names, as if they were typed one after the other."""
    names = {}
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.page != page or block.kind != "pycon":
            continue
        if not (tmp_path / "qwen3").exists() or block.mark != "needs qwen3":
            prepare(block, tmp_path, request)
        test = doctest.DocTestParser().get_doctest(block.body, names, str(block), str(page), 0)
        assert test.examples, f"{block} holds no examples"
        said = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(test, out=said.append, clear_globs=False)
        assert not said, "".join(said)
        names = test.globs


QUOTED = re.compile(r"from (?P<file>\S+\.py): (?P<name>[\w.]+)")


@of_kind("python")
def test_quoted_source_is_the_source(block):
    quoted = QUOTED.fullmatch(block.mark)
    if quoted is None:
        assert block.mark.startswith("not run: "), f"{block} is neither quoted nor marked"
        compile(block.body, str(block), "exec")
        return
    source = (ROOT / quoted["file"]).read_text(encoding="utf-8")
    node = ast.parse(source)
    for name in quoted["name"].split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == name)
    lines = source.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    assert block.body == textwrap.dedent("".join(lines))


def test_attention_is_found_within_a_minute():
    """The README's reader opens the page on ids, and there it is, whole and short."""
    [block] = [block for block in BLOCKS if "Attention.__call__" in block.mark]
    assert block.page.name == "ids-to-text.md"
    assert block.body.count("\n") <= 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_pages_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:bpe|model|pipeline|benchmarks|tests)/[\w./]*)`", text):
        if name in COMING and not (ROOT / name).exists():
            continue
        assert (ROOT / name).exists(), f"{page.name} names {name}"
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


COMING = {"benchmarks/history.jsonl"}  # made by the first measurement


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short_and_marks_are_known(page):
    inside = {line for block in blocks(page) for line in block.body.splitlines()}
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        assert len(line) <= 100 or line in inside, f"{page.name}:{number} is {len(line)} long"
    for block in blocks(page):
        known = re.fullmatch(r"|not run: .+|needs (qwen3|smollm2|bpe train|nothing)", block.mark)
        assert known or QUOTED.fullmatch(block.mark), f"{block} has the mark {block.mark!r}"


def test_the_five_pages_are_there():
    names = {page.stem for page in PAGES}
    assert {"text-to-tokens", "ids-to-text", "training", "edge-cases", "performance"} <= names
