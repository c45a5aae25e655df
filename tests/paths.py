"""Where things are: the project's root, and the recorded values."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
