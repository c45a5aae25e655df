"""a folder -> the command bytepair in it, as pip would install it, but run from the source."""

import re
import sys

from paths import ROOT

ENTRY = re.compile(r'^bytepair = "(?P<module>[\w.]+):(?P<function>\w+)"$', re.M)


def install_command(folder):
    """The path of the command, which finds our packages by PYTHONPATH."""
    folder.mkdir(exist_ok=True)
    entry = ENTRY.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    path = folder / "bytepair"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom {entry['module']} import {entry['function']}\n"
        f"if __name__ == '__main__':\n    sys.exit({entry['function']}())\n"
    )
    path.chmod(0o755)
    return path
