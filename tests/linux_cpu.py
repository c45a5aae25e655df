"""Which tests of model/cpu this machine can run, and an interpreter that has patched nothing."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from paths import ROOT

from model import cpu
from model.cpu.addresses import Mapping

ON_CPU = sys.platform == "linux" and mx.default_device().type == mx.cpu
HAS_LIBRARY = importlib.util.find_spec("scipy_openblas32") is not None

on_linux = pytest.mark.skipif(not ON_CPU, reason="only MLX on a Linux CPU is ever patched")
with_library = pytest.mark.skipif(
    not (ON_CPU and HAS_LIBRARY), reason="needs MLX on a Linux CPU and scipy-openblas32"
)
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the shim is for x86-64")


def run(script: str, **environment: str) -> list[str]:
    """The lines that a script prints in an interpreter of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    kept.pop(cpu.SWITCH, None)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def libmlx() -> Path:
    mx.eval(mx.ones(1))
    return Path(next(m.path for m in Mapping.all() if m.path.endswith("/libmlx.so")))
