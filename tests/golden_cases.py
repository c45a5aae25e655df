"""golden/*.jsonl -> cases: hard inputs from public bug reports with the right values.

Recorded from tokenizers 0.23.3 and transformers 5.24 on the genuine files, cross-checked with
tiktoken 0.14 and with an independent slow reference. `make` is a Python expression for texts too
long to spell out.
"""

import hashlib
import json

from paths import GOLDEN


def cases(name):
    """All cases of golden/NAME.jsonl."""
    lines = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def value(case, key):
    """case[key], or what the expression beside it gives (KEY_make, or make for the input)."""
    return case[key] if key in case else eval(case.get(f"{key}_make", case.get("make")))


def sha256_of_ids(ids):
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def name_of(case):
    return case["name"]
