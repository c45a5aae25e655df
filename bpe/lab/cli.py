"""command line -> the laboratory's findings: python -m bpe explain | compare | diff | audit | ...

Each command prints for a terminal, or JSON, or writes one HTML page. Blind spot: how anything is
found; __main__.py prints its errors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe.formats.whole import STDOUT, is_stream, whole_file

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

Load = Callable[[str], "Tokenizer"]
Texts = Callable[[argparse.Namespace], Iterator[tuple[str, str]]]
AddCommand = Callable[..., argparse.ArgumentParser]

FOUND = 1  # the exit code when differences, losses or (--strict) faults were found


def add_commands(add: AddCommand) -> None:
    """The laboratory's subcommands; add(name, help, many) makes one with --tokenizer and --json.

    many: --tokenizer may be given several times.
    """
    command = add("explain", "show every stage from a text to its ids, and why it is cut there")
    _add_texts(command)
    _add_html(command)
    command.add_argument(
        "--at", type=int, metavar="N", help="only the boundary nearest to character N (from 0 on)"
    )
    command = add("compare", "show what tokenizers make of texts, or of many languages", True)
    _add_texts(command)
    _add_html(command)
    command = add("diff", "search texts on which two tokenizers differ (exit code 1)", True)
    command.add_argument("--random", type=int, default=3000, metavar="N",
                         help="random texts to try (default: 3000)")  # fmt: skip
    command.add_argument("--seed", type=int, default=0, help="same seed, same texts")
    command.add_argument("--limit", type=int, default=10, metavar="N",
                         help="stop after N differences (default: 10)")  # fmt: skip
    command = add("audit", "say which entries of a vocabulary texts can give, and what is odd")
    command.add_argument("tokenizer_again", nargs="?", metavar="TOKENIZER",
                         help="the tokenizer, as with --tokenizer")  # fmt: skip
    command.add_argument("--strict", action="store_true", help="exit code 1 if there are faults")
    command.add_argument("--show", type=int, default=5, metavar="N",
                         help="examples of each kind (default: 5)")  # fmt: skip
    _add_html(command)
    command = add("roundtrip", "check that decoding gives files back; exit code 1 if it does not")
    command.add_argument("files", nargs="+", metavar="FILE", help="UTF-8 files; - is stdin")
    command.add_argument(
        "--allow-special", action="store_true", help="let special tokens in the text count as such"
    )
    command = add("cases", "encode the named hard texts; exit code 1 if ids differ")
    command.add_argument(
        "--reference", metavar="FAMILY",
        help="a family of the cases, or a tokenizer (default: the closest)",
    )  # fmt: skip


def _add_texts(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="*", help="texts; none reads files or stdin")
    command.add_argument("-f", "--file", action="append", default=[], metavar="FILE")
    command.add_argument(
        "--allow-special", action="store_true", help="let special tokens in the text count as such"
    )


def _add_html(command: argparse.ArgumentParser) -> None:
    command.add_argument("--html", metavar="FILE", help="write one self-contained HTML page")


def run(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    """Run the command that options name and return its exit code.

    load: what a user names -> Tokenizer; texts: options -> (where from, text) of each text.
    """
    return _RUN[options.command](options, load, texts)


def _explain(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.explanation import explain
    from bpe.lab.terminal import Paint, boundary_lines, explain_lines

    _check_writable(options.html)
    tokenizer = load(options.tokenizer)
    allowed = "all" if options.allow_special else "none"
    paint = Paint.for_stream(sys.stdout)
    explanations = []
    for number, (_, text) in enumerate(texts(options)):
        explanation = explain(tokenizer, text, allowed_special=allowed)
        explanations.append(explanation)
        if options.json:
            _print_json(explanation.to_dict())
        elif options.html:
            continue
        elif options.at is None:
            _print([""] if number else [])
            _print(explain_lines(explanation, paint))
        elif boundary := explanation.boundary_at(options.at):
            _print(boundary_lines(explanation, boundary, paint))
        else:
            _print(["there is no boundary: the text is not more than one token"])
    if options.html:
        from bpe.lab.html import explain_page

        _write(options.html, explain_page(*_short_names([options.tokenizer]), explanations))
    return 0


def _compare(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.comparison import compare
    from bpe.lab.terminal import Paint, compare_lines

    _check_writable(options.html)
    tokenizers = _load_all(options.tokenizer or ["qwen3"], load)
    given = None
    if options.text or options.file:
        given = {}
        for where, text in texts(options):
            name = where if where != "argument" else f"text {len(given) + 1}"
            given[name] = text
    found = compare(tokenizers, given)
    if options.html:
        from bpe.lab.html import compare_page

        _write(options.html, compare_page(found))
    elif options.json:
        _print_json(found.to_dict())
    else:
        _print(compare_lines(found, Paint.for_stream(sys.stdout)))
    return 0


def _diff(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.difference import diff
    from bpe.lab.terminal import Paint, diff_lines

    names = options.tokenizer or []
    if len(names) != 2:
        raise ValueError(f"diff takes two tokenizers, and {len(names)} are given; pass -t A -t B")
    pair = _load_all(names, load)
    found = diff(*pair.values(), num_random=options.random, seed=options.seed, limit=options.limit)
    if options.json:
        _print_json([difference.to_dict() for difference in found])
    else:
        _print(diff_lines(list(pair), found, Paint.for_stream(sys.stdout)))
    return FOUND if found else 0


def _load_all(names: list[str], load: Load) -> dict[str, Any]:
    """Short name -> tokenizer."""
    from bpe.lab.peers import load_peer

    short = _short_names(names)
    if len({*short}) < len(names):
        raise ValueError("the same tokenizer is given twice, so there is nothing to compare")
    return {called: load_peer(name, load) for called, name in zip(short, names)}


def _short_names(names: list[str]) -> list[str]:
    """What tells names apart: for paths, the last part that they don't share.

    >>> _short_names(["a/qwen3/tokenizer.json", "b/gpt2/tokenizer.json"]), _short_names(["x/y"])
    (['qwen3', 'gpt2'], ['y'])
    """
    parts = [[p for p in name.split("/") if p] or [name] for name in names]
    while all(len(p) > 1 and p[-1] == parts[0][-1] for p in parts) and (
        len(parts) > 1 or parts[0][-1] == "tokenizer.json"
    ):
        parts = [p[:-1] for p in parts]
    short = [p[-1] for p in parts]
    return short if len({*short}) == len({*names}) else names


def _audit(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.auditing import audit, missing_parts, num_rows_of
    from bpe.lab.characters import shown
    from bpe.lab.terminal import Paint, audit_lines

    _check_writable(options.html)
    name = options.tokenizer_again or options.tokenizer
    paint = Paint.for_stream(sys.stdout)
    try:
        tokenizer = load(name)
    except ValueError:
        if not (missing := missing_parts(name)):
            raise
        _print_json({"faults": missing}) if options.json else _print(missing)
        return FOUND
    found = audit(tokenizer, num_rows=num_rows_of(name))
    ids = [*tokenizer.spec.token_bytes, *(token.id for token in tokenizer.spec.added_tokens)]
    names = {id: shown(tokenizer.id_to_token(id)) for id in ids}
    if options.html:
        from bpe.lab.html import audit_page

        _write(options.html, audit_page(*_short_names([name]), found, names))
    elif options.json:
        _print_json(found.to_dict())
    else:
        _print(audit_lines(found, paint, options.show, names))
    return FOUND if options.strict and found.faults() else 0


def _roundtrip(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.losses import roundtrip
    from bpe.lab.terminal import count

    tokenizer = load(options.tokenizer)
    allowed = "all" if options.allow_special else "none"
    code, found = 0, []
    for name, text in _each_file(options, texts):
        if isinstance(text, ValueError):
            code = FOUND
            found.append({"file": name, "error": str(text)})
            _print([] if options.json else [str(text)])
            continue
        losses = roundtrip(tokenizer, text, allowed_special=allowed)
        num_lost = sum(loss.is_loss for loss in losses)
        code = FOUND if num_lost else code
        found.append({"file": name, "losses": [loss.to_dict() for loss in losses]})
        if not options.json:
            _print(f"{name}:{loss}" for loss in losses if loss.is_loss)
            changed = len(losses) - num_lost
            kept = "nothing lost" if not num_lost else count(num_lost, "loss", "losses")
            also = f" ({count(changed, 'change')} by declared normalization)" if changed else ""
            _print([f"{name}: {count(len(text), 'character')}, {kept}{also}"])
    if options.json:
        _print_json(found)
    return code


def _each_file(options: argparse.Namespace, texts: Texts) -> Iterator[tuple[str, str | ValueError]]:
    """(file, its text), or the error of a file that is not UTF-8."""
    for name in options.files:
        one = argparse.Namespace(text=[], file=[name])
        try:
            yield from texts(one)
        except ValueError as error:
            yield name, error


def _cases(options: argparse.Namespace, load: Load, texts: Texts) -> int:
    from bpe.lab.cases import CASES, FAMILIES, check, closest_family
    from bpe.lab.terminal import Paint, cases_lines

    tokenizer = load(options.tokenizer)
    name = options.reference or closest_family(tokenizer)[0]
    mismatches = check(tokenizer, name if name in FAMILIES else load(name))
    if options.json:
        _print_json({"reference": name, "num_cases": len(CASES), "differ": [
            {"name": m.case.name, "text": m.case.text, "why": m.case.why,
             "expected": m.expected, "ids": m.ids} for m in mismatches
        ]})  # fmt: skip
    else:
        _print(cases_lines(mismatches, name, len(CASES), Paint.for_stream(sys.stdout)))
    return FOUND if mismatches else 0


_RUN: dict[str, Callable[[argparse.Namespace, Load, Texts], int]] = {
    "explain": _explain, "compare": _compare, "diff": _diff, "audit": _audit,
    "roundtrip": _roundtrip, "cases": _cases,
}  # fmt: skip


# --- output --------------------------------------------------------------------------------------


def _print(lines: Iterable[str]) -> None:
    """Print lines; what the terminal's encoding can't show appears escaped, not as a traceback."""
    if (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8":
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        print(line)


def _print_json(data: Any) -> None:
    print(json.dumps(data))


def _check_writable(name: str | None) -> None:
    """Find out before the work is done that its page could not be written."""
    if name is None or is_stream(name):
        return
    folder = Path(name).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{name} can't be written: there is no directory {folder}")
    if Path(name).is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"{name} can't be written; pass --html a file in a directory of yours")
    if Path(name).is_file() and not _is_replaceable(Path(name)):
        raise ValueError(f"{name} is there and is no HTML page; pass --html another file")


def _is_replaceable(path: Path) -> bool:
    """Not so what is to be read: a text or a tokenizer."""
    with path.open("rb") as file:
        return file.read(9).lower() in (b"<!doctype", b"")


def _write(name: str, page: str) -> None:
    """The page appears whole or not at all."""
    with whole_file(Path(name)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if name not in STDOUT:
        _print([f"wrote {name}"])
