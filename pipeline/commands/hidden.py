"""where Python looks for modules -> one sentence about a file that hides one of ours.

python -m looks into the current folder first, and takes a model.py there for our package `model`.
Blind spot: a pipeline.py, which hides this file too, and what hides modules of Python itself.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]  # of our packages
OURS = ("bpe", "model")
THEIRS = ("regex", "mlx", "jinja2", "huggingface_hub", "tqdm")


def why_hidden() -> str | None:
    """What to say where another file would be imported in place of a package; None if all is well.

    Nothing is imported to find out.
    """
    here = _current_folder()
    for name in (*OURS, *THEIRS):
        file = _file(name)
        if file is None or file.resolve() == HOME / name / "__init__.py":
            continue
        folder = (file.parent.parent if file.name == "__init__.py" else file.parent).resolve()
        if name in OURS or folder == here != HOME:
            what = f"{file} hides the package {name} that this program needs"
            return f"{what}; {_way_out(folder, here)}"
    return None


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it is gone, and so is what was in it
        return HOME


def _file(name: str) -> Path | None:
    """What an import of the name would run; None where that is no file."""
    spec = find_spec(name)
    return Path(spec.origin) if spec and spec.has_location else None


def _way_out(folder: Path, here: Path) -> str:
    listed = os.environ.get("PYTHONPATH", "")
    if listed and any((here / one).resolve() == folder for one in listed.split(os.pathsep)):
        return f"take {folder} out of PYTHONPATH"
    if folder == here:
        return "run the installed command bytepair, which doesn't look into this folder"
    return "rename it"
