"""python -m bpe explain | compare | diff | audit | roundtrip | cases: what they print and leave."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from paths import ROOT
from tiny import added_token, json_of

import bpe.__main__
from bpe.__main__ import main
from bpe.lab import terminal

TEXT = "The capital is re\u0301sume\u0301 <think> \u200d中\x00"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FIXTURE = {"gpt-4o": "gpt4o", "deepseek-v3": "deepseek_v3"}  # a command's name -> the fixture's


@pytest.fixture
def run(tiny_directory, capfd):
    """Run a command on the tiny tokenizer; (exit code, stdout, stderr)."""

    def call(command, *arguments, tokenizers=(tiny_directory / "tokenizer.json",)):
        named = [part for name in tokenizers for part in ("-t", str(name))]
        try:
            code = main([command, *named, *arguments])
        except SystemExit as exit:
            code = exit.code
        return code, *capfd.readouterr()

    return call


def test_docs_show_what_the_commands_print(genuine, capsys, monkeypatch):
    """Each command of docs/surprising-texts.md, on the genuine tokenizers."""
    monkeypatch.setattr(bpe.__main__, "load", lambda name: genuine(FIXTURE.get(name, name)))
    page = (ROOT / "docs" / "surprising-texts.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 10
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            words = shlex.split(command)
            assert words[:3] == ["python", "-m", "bpe"]
            assert main(words[3:]) == 0
            assert capsys.readouterr().out == expected, command


def test_explain_prints_every_stage(run, tiny):
    code, out, err = run("explain", TEXT)
    assert (code, err) == (0, "")
    assert [line[0] for line in out.splitlines() if re.match(r"\d ", line)] == [*"123456"]
    assert " ".join(map(str, tiny.encode(TEXT))).split()[0] in out
    assert "⟨ZWJ⟩" in out
    assert "⟨NUL⟩" in out
    assert "\x1b" not in out
    plain = json.loads(run("explain", "--json", TEXT)[1])
    assert plain["ids"] == tiny.encode(TEXT)
    assert "boundary" in run("explain", "--at", "3", "x")[1]
    assert run("explain", "")[1].splitlines()[1].strip().startswith("the text is empty")


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch):
    class Stream:
        def isatty(self):
            return True

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert terminal.Paint.for_stream(Stream()).enabled
    assert not terminal.Paint.for_stream(io.StringIO()).enabled
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.Paint.for_stream(Stream()).enabled
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.Paint.for_stream(Stream()).enabled


def test_colours_change_nothing_but_colour(tiny):
    explanation = bpe.lab.explain(tiny, TEXT)
    plain, coloured = (
        "\n".join(terminal.explain_lines(explanation, terminal.Paint(enabled)))
        for enabled in (False, True)
    )
    assert coloured != plain
    without = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert without.replace("│", "") == plain.replace("│", "")


def test_a_terminal_of_another_encoding(tiny_directory):
    command = [sys.executable, "-m", "bpe", "explain", "-t", str(tiny_directory), "中 x"]
    env = {"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert b"\\u4e2d" in done.stdout


def test_compare(run, tiny_directory, tiny):
    code, out, _ = run("compare")
    assert code == 0
    assert "Ethiopic" in out
    found = json.loads(run("compare", "--json", "a cat")[1])
    assert found["rows"][0]["costs"][0]["num_tokens"] == len(tiny.encode("a cat"))
    same = shutil.copytree(tiny_directory, tiny_directory.parent / "same", dirs_exist_ok=True)
    code, out, _ = run("compare", "a cat", tokenizers=(tiny_directory, same))
    assert "0 parts of 3" in out


def test_diff_is_for_ci(run, tiny_directory, tmp_path):
    other = json.loads((tiny_directory / "tokenizer.json").read_text())
    other["model"]["merges"].pop()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(other))
    code, out, _ = run("diff", "--random", "10", tokenizers=(tiny_directory, tmp_path / "other"))
    assert code == 1
    assert "difference" in out
    code, out, _ = run("diff", "--limit", "1", "--json", tokenizers=(
        tiny_directory, tmp_path / "other"))  # fmt: skip
    assert code == 1
    assert len(json.loads(out)) == 1
    same = shutil.copytree(tiny_directory, tmp_path / "same")
    code, out, _ = run("diff", "--random", "10", tokenizers=(tiny_directory, same))
    assert (code, out) == (0, "no difference was found\n")


def test_audit(run, tiny_directory, tmp_path):
    path = str(tiny_directory)
    code, out, _ = run("audit", path)
    assert code == 0
    assert "reachable by their own text" in out
    found = json.loads(run("audit", "--json", path)[1])
    assert sum(found["counts"].values()) == found["num_entries"]
    assert found["num_rows"] == 320
    assert run("audit", "--strict", path)[0] == (1 if found["faults"] else 0)
    broken = json_of({"merges": ["a b"]})
    broken["model"]["merges"] = ["a b", "b cd"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(broken))
    code, out, err = run("audit", str(tmp_path))
    assert (code, err) == (1, "")
    assert out == "merge 1 ('b' + 'cd') needs 'cd', which is not in the vocabulary\n"


def test_roundtrip(run, tmp_path):
    (tmp_path / "good.txt").write_bytes("ok\r\nre\u0301\n".encode())
    (tmp_path / "bad.bin").write_bytes(b"ab\xff")
    code, out, _ = run("roundtrip", str(tmp_path / "good.txt"))
    assert code == 0
    assert out.endswith("8 characters, nothing lost (1 change by declared normalization)\n")
    files = [str(tmp_path / "bad.bin"), str(tmp_path / "good.txt")]
    code, out, _ = run("roundtrip", *files)
    assert code == 1
    assert out.splitlines()[0].endswith("bad.bin is not UTF-8 at byte 2")
    assert "nothing lost" in out
    token = added_token(256, "<x>", lstrip=True)
    data = json_of({"top": {"added_tokens": [token]}})
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    (tmp_path / "loss.txt").write_text("a\nb  <x>")
    arguments = ("roundtrip", str(tmp_path / "loss.txt"))
    code, out, _ = run(*arguments, tokenizers=(tmp_path,))
    assert code == 1
    assert "loss.txt:2:2: swallowed: U+0020 SPACE, U+0020 SPACE -> nothing" in out
    code, out, _ = run(*arguments, "--json", tokenizers=(tmp_path,))
    assert json.loads(out)[0]["losses"][0]["code_points"] == ["U+0020", "U+0020"]


def test_cases(run, genuine, capfd, monkeypatch):
    code, out, _ = run("cases", "--reference", "gpt2")
    assert code == 1
    assert "letters_run" in out
    monkeypatch.setattr(bpe.__main__, "load", lambda name: genuine(name))
    assert main(["cases", "-t", "gpt2"]) == 0
    assert capfd.readouterr().out == "58 of 58 hard texts as in gpt2\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("explain", "x" * 10_001), 1, "10,001 characters, and explain shows every step of"),
        (("explain", "-f", "nowhere.txt"), 1, "nowhere.txt"),
        (("explain", "--html", "/nowhere/x.html", "x"), 1, "there is no directory /nowhere"),
        (("explain", "--at", "x", "x"), 2, "invalid int value"),
        (("diff",), 1, "diff takes two tokenizers, and 1 are given; pass -t A -t B"),
        (("cases", "--reference", "bert"), 1, "there is no file or directory 'bert'"),
        (("audit", "nowhere.json"), 1, "there is no file or directory"),
        (("roundtrip",), 2, "required: FILE"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, code, message):
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_files_that_are_none(run, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    assert run("explain", "-f", str(tmp_path / "bad.txt"))[2].endswith("not UTF-8 at byte 0\n")
    other = json_of({}) | {"model": {"type": "Unigram", "vocab": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    err = run("explain", "x", tokenizers=(tmp_path,))[2]
    assert "bytepair runs byte-level BPE only" in err


# --- pages ---------------------------------------------------------------------------------------


@pytest.fixture
def pages(run, tmp_path, tiny_directory):
    """The three pages, written by the commands."""
    nasty = TEXT + "<script>alert(1)</script>&\u202e\ufffe\x1b"
    for command, arguments in (
        ("explain", [nasty, ""]), ("compare", [nasty]), ("audit", [str(tiny_directory)]),
    ):  # fmt: skip
        path = tmp_path / f"{command}.html"
        code, out, _ = run(command, *arguments, "--html", str(path))
        assert (code, out) == (0, f"wrote {path}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "audit.html", "compare.html", "explain.html",
    ]  # fmt: skip
    return sorted(tmp_path.glob("*.html"))


def test_pages_are_well_formed_and_need_nothing(pages):
    for path in pages:
        page = path.read_text(encoding="utf-8")
        root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "link", "img", "iframe"}
        assert "prefers-color-scheme: dark" in page
        assert "default-src 'none'" in page
        names = {name for element in root.iter() for name in element.attrib}
        assert not names & {"src", "href", "onclick"}
        HTMLParser().feed(page)


def test_a_page_that_can_not_be_written_leaves_nothing(run, tmp_path):
    text = tmp_path / "text"
    text.write_text("x")
    code, _, err = run("explain", "-f", str(text), "--html", str(text))
    assert (code, "is there and is no HTML page" in err, text.read_text()) == (1, True, "x")
    text.unlink()
    (tmp_path / "folder.html").mkdir()
    code, _, err = run("explain", "x", "--html", str(tmp_path / "folder.html"))
    assert code == 1
    assert "can't be written" in err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_pages_in_a_browser(pages, tmp_path):
    """A headless browser draws each page, and what it has read back is the text we wrote."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser here: chromium, chromium-browser or google-chrome draws the pages")
    for path in pages:
        picture = tmp_path / f"{path.stem}.png"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                   f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]  # fmt: skip
        done = subprocess.run(command, capture_output=True, timeout=120)
        dom = done.stdout.decode()
        assert "<h1>" in dom, done.stderr.decode()[-500:]
        assert "alert(1)" not in re.findall(r"<script>(.*?)</script>", dom)
        command[4] = f"--screenshot={picture}"
        subprocess.run(command, capture_output=True, timeout=120, check=True)
        assert picture.stat().st_size > 10_000
