"""The house style that a tool can check: ruff, with the settings of pyproject.toml."""

import subprocess
import sys

import pytest
from paths import ROOT


def test_ruff_finds_nothing():
    pytest.importorskip("ruff")
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
