"""commands/hidden.py: what a folder of the user's does to us when we are started in it."""

import os
import subprocess
import sys

import pytest
from installed import install_command
from paths import ROOT

from pipeline.commands.hidden import OURS, THEIRS, why_hidden

CODE = "print('code of the user')\nraise SystemExit(9)\n"
HIDING = [*(f"{name}.py" for name in (*OURS, *THEIRS)), "model/__init__.py", "bpe/__init__.py"]


@pytest.fixture
def folder(tmp_path):
    """Where the user is."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def put(folder, name, content=CODE):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def started(command, folder, *paths, **environment):
    """A finished process in a folder, with more folders to look for modules in."""
    path = os.pathsep.join(map(str, (*paths, ROOT)))
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


MODULE = (sys.executable, "-m", "pipeline")


@pytest.mark.parametrize("name", HIDING)
def test_one_sentence_names_the_file_and_the_way_around(folder, name):
    file = put(folder, name)
    run = started([*MODULE, "x"], folder)
    package = file.parent.name if file.name == "__init__.py" else file.stem
    assert (run.returncode, run.stdout) == (1, "")  # its code hasn't run
    assert run.stderr == (
        f"error: {file} hides the package {package} that this program needs; run the installed "
        "command bytepair, which doesn't look into this folder\n"
    )


@pytest.mark.parametrize("command", ["chat", "batch", "trace", "glitch", "bpe", "model"])
def test_so_does_each_command(folder, command):
    put(folder, "model.py")
    run = started([*MODULE, command, "--help"], folder)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)


def test_the_installed_command_works_there(folder, tmp_path, tiny_directory, tiny):
    for name in (*HIDING, "pipeline.py", "json.py"):
        put(folder, name)
    command = [install_command(tmp_path / "bin"), "--raw", "--quiet", "-m", "3", "The capital"]
    run = started([*command, "--model", tiny_directory], folder)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout != "\n"
    run = started([command[0], "bpe", "encode", "-t", tiny_directory, "The"], folder)
    assert run.stdout.split() == [str(id) for id in tiny.encode("The")]


def test_python_can_be_told_not_to_look_there(folder):
    put(folder, "model.py")
    run = started([*MODULE, "--help"], folder, PYTHONSAFEPATH="1")
    assert run.returncode == (0 if sys.version_info >= (3, 11) else 1)


@pytest.mark.parametrize("where", ["work", "other"])
def test_a_file_on_pythonpath_has_another_way_around(tmp_path, folder, where):
    (tmp_path / where).mkdir(exist_ok=True)
    file = put(tmp_path / where, "model.py")
    run = started([install_command(tmp_path / "bin"), "x"], folder, file.parent)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        f"error: {file} hides the package model that this program needs; take {file.parent} out of "
        "PYTHONPATH\n"
    )


def test_a_link_is_named_where_it_is(tmp_path, folder):
    (folder / "model.py").symlink_to(put(tmp_path / "other", "mine.py"))
    run = started([*MODULE, "x"], folder)
    assert run.stderr.startswith(f"error: {folder / 'model.py'} hides the package model")
    assert "run the installed command bytepair" in run.stderr


def test_an_empty_part_of_pythonpath_is_the_current_folder(tmp_path, folder):
    put(folder, "bpe.py")
    run = started([install_command(tmp_path / "bin"), "x"], folder, "")
    assert run.stderr.endswith(f"take {folder} out of PYTHONPATH\n")


def test_what_hides_nothing_is_nothing_to_us(tmp_path, folder):
    put(folder, "model/weights.bin")  # a folder without __init__.py
    put(folder, "my_model.py")
    put(folder, "bpe.txt")
    assert started([*MODULE, "--help"], folder).returncode == 0
    (folder / "sub").mkdir()
    put(folder, "regex.py")
    assert started([*MODULE, "--help"], folder / "sub").returncode == 0


def test_a_clone_is_no_stranger_to_itself(monkeypatch, tmp_path):
    assert why_hidden() is None
    monkeypatch.chdir(ROOT)
    assert why_hidden() is None
    for name in (*OURS, "pipeline"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert started([*MODULE, "--help"], tmp_path).returncode == 0


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert why_hidden() is None
