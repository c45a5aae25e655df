"""python -m benchmarks: what is remembered, compared, printed, drawn and put into the README."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import chain

import pytest
from paths import GOLDEN, ROOT

from benchmarks import plot, report
from benchmarks.__main__ import main
from benchmarks.history import Change, append, compare, latest, machine_of, read
from benchmarks.suites import SUITES, Suite, Unavailable, flatten, measure

HISTORY = GOLDEN / "history.jsonl"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def records():
    """Two records of generate and encode on one machine (the first's prefill is 1.25 times as
    fast), one each of train, batch, speculative and generate-qwen3-0.6b, and one of generate on
    another machine."""
    return read(HISTORY)


def record(suite="batch", machine=None, **figures):
    machine = machine or {"system": "Linux", "processor": "x", "cores": 2, "python": "3.12"}
    names = ("form", "commit", "date", "versions")
    return dict.fromkeys(names, "") | {"suite": suite, "machine": machine, "figures": figures}


# --- measuring -----------------------------------------------------------------------------------

FAKE = Suite("benchmarks.bench_batch", {"": ()}, {"8/": ("--rows", "8"), "9/": ("--rows", "9")})


def last_line(**figures):
    return {"suite": "fake", "machine": {}, "versions": {"mlx": "1"}, **figures}


def test_a_record_holds_every_round_of_every_run():
    values = iter([1.0, 2.0, 3.0, 4.0])
    calls = []

    def run(module, arguments):
        calls.append((module, *arguments))
        return last_line(ours={"seconds": next(values), "equal": True})

    [made] = measure("fake", FAKE, "full", 2, run)
    assert calls[0] == ("benchmarks.bench_batch", "--rows", "8", "--rounds", "1")
    assert made["figures"] == {
        "8/ours/seconds": [1.0, 3.0], "8/ours/equal": [True, True],
        "9/ours/seconds": [2.0, 4.0], "9/ours/equal": [True, True],
    }  # fmt: skip
    assert made["suite"] == "fake"
    assert made["form"] == "full"
    assert made["versions"] == {"mlx": "1"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["date"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Unavailable("broke", is_expected=False)])
def test_what_was_measured_before_an_interruption_is_kept(error, tmp_path):
    def run(module, arguments):
        if "9" in arguments:
            raise error
        return last_line(seconds=1.5)

    def measure_and_keep():
        for made in measure("fake", FAKE, "full", 3, run):
            append(tmp_path / "history.jsonl", made)

    with pytest.raises(type(error)):
        measure_and_keep()
    assert [r["figures"] for r in read(tmp_path / "history.jsonl")] == [{"8/seconds": [1.5]}]


def test_a_suite_that_is_not_there_is_left_out_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SUITES, "absent", Suite("benchmarks.bench_absent", {"": ()}, {}))
    assert main(["absent", "--history", str(tmp_path / "h")]) == 0
    assert "absent is left out: there is no benchmarks.bench_absent here" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()


def test_a_suite_that_fails_is_named_with_its_reason_and_fails_the_command(
    tmp_path, monkeypatch, capsys
):
    broken = Suite("benchmarks.bench_batch", {"": ("--rows", "many")}, {})
    monkeypatch.setitem(SUITES, "broken", broken)
    assert main(["broken", "--history", str(tmp_path / "h")]) == 1
    assert "invalid int value: 'many'" in capsys.readouterr().err


def test_a_real_suite_in_its_shortest_form(smollm2_path, tmp_path, monkeypatch, capfd):
    tiny = Suite("benchmarks.bench_batch", {"": ("--rows", "2", "--tokens", "2")}, {})
    monkeypatch.setitem(SUITES, "batch", tiny)
    file = tmp_path / "history.jsonl"
    assert main(["batch", "--short", "--history", str(file)]) == 0
    [made] = read(file)
    assert made["figures"]["equal"] == [2]
    assert made["figures"]["together"][0] > 0
    assert made["machine"]["cores"] >= 1
    assert "| 2 together |" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["encoed"], "'encoed' is no suite; there are encode, train, generate"),
        (["report", "encode"], "report stands alone"),
        (["--rounds", "0"], "--rounds is 0, but must be at least 1"),
        (["--short", "--full"], "not allowed with"),
    ],
)
def test_usage_errors(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_help_in_a_process_of_its_own():
    command = [sys.executable, "-m", "benchmarks", "--help"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0
    assert "speculative" in run.stdout


def test_every_suite_s_module_is_here_or_known_to_come():
    missing = [name for name, suite in SUITES.items() if not module_file(suite).exists()]
    assert missing == []


def module_file(suite):
    return ROOT / (suite.module.replace(".", "/") + ".py")


# --- history -------------------------------------------------------------------------------------


def test_append_then_read(tmp_path, records):
    file = tmp_path / "history.jsonl"
    for each in records:
        append(file, each)
    assert read(file) == records
    assert file.read_text() == HISTORY.read_text()


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text('{"suite": "ba')
    append(file, record(alone=[1.0]))
    cut_off, whole = file.read_text().splitlines()
    assert cut_off == '{"suite": "ba'
    assert json.loads(whole)["figures"] == {"alone": [1.0]}
    with pytest.raises(ValueError, match=r"line 1 of .*history.jsonl is no record.*remove it"):
        read(file)


def test_a_line_without_figures_is_named(tmp_path):
    (tmp_path / "h").write_text('{"suite": "batch"}\n')
    with pytest.raises(ValueError, match="line 1 of .* lacks commit, date, figures"):
        read(tmp_path / "h")


def test_no_history_yet(tmp_path, capsys):
    assert read(tmp_path / "none") == []
    assert main(["report", "--history", str(tmp_path / "none")]) == 1
    assert "holds no records; measure first" in capsys.readouterr().err


def test_records_of_another_machine_are_not_compared(records):
    here = machine_of(records[0])
    dates = [each["date"] for each in latest(records, "generate", here)]
    assert dates == ["2026-11-03T10:00:00Z", "2026-11-01T10:00:00Z"]


@pytest.mark.parametrize(
    ("path", "before", "after", "verdict"),
    [
        ("a/warm", [10.0], [9.0], "slower"),  # more is better
        ("a/warm", [10.0], [11.5], "faster"),
        ("a/seconds", [10.0], [11.5], "slower"),  # less is better
        ("a/seconds", [10.0], [9.0], "faster"),
        ("a/warm", [10.0], [9.6], ""),  # 4 %: below what counts at all
        ("a/warm", [9.0, 10.0, 11.0], [8.2], ""),  # 18 % below, but the rounds differ by 20 %
        ("a/warm", [9.0, 10.0, 11.0], [7.9], "slower"),
        ("a/warm", [10.0], [7.5, 8.2, 9.9], ""),  # the noise of the later one counts as well
    ],
)
def test_slower_by_more_than_the_noise(path, before, after, verdict):
    [change] = compare(record(**{path: after}), record(**{path: before}))
    assert (change.is_slower, change.is_faster) == (verdict == "slower", verdict == "faster")


def test_only_speeds_that_both_records_hold_are_compared():
    after = record(**{"a/warm": [1.0], "a/equal_ids": [1], "new/warm": [2.0], "n/cold": [0.0]})
    before = record(**{"a/warm": [1.0], "a/equal_ids": [48], "old/warm": [2.0], "n/cold": [1.0]})
    assert [change.path for change in compare(after, before)] == ["a/warm"]


def test_whose_figure_it_is():
    paths = ("256/mlx-lm float32/decode_tokens_per_second", "HF tokenizers/english/warm")
    assert all(Change(path, 1, 1, 1, 0).is_peer for path in paths)
    assert not Change("256/bytepair float32/decode_tokens_per_second", 1, 1, 1, 0).is_peer


# --- the report ----------------------------------------------------------------------------------


def test_the_table_of_generation(records):
    found = latest(records, "generate", machine_of(records[0]))
    lines = report.generate_table(found).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == [
        "", "prefill 256, tokens/s", "decode, tokens/s", "equal greedy ids",
    ]  # fmt: skip
    # 314 tokens/s, of which the second record has four fifths; decode at 256: 23.8 * 0.9488
    assert lines[2].split() == "| bytepair float32 | 251 | 22.6 | |".split()
    assert lines[4].split() == "| mlx-lm float32 | 11.2 (22.4x) | 7.9 (2.9x) | 48 of 48 |".split()
    assert lines[7].split() == "| our matrix products alone | | 33.5 (0.67x) | |".split()


def test_the_table_of_the_larger_model_says_how_many_ids_were_compared(records):
    found = latest(records, "generate-qwen3-0.6b", machine_of(records[0]))
    lines = report.TABLES["generate-qwen3-0.6b"](found).splitlines()
    assert lines[3].split() == "| mlx-lm float32 | 2.5 (24.0x) | 2.0 (4.0x) | 64 of 64 |".split()
    assert lines[4].split() == "| our matrix products alone | | 10.0 (0.80x) | |".split()


def test_a_gpu_makes_another_machine():
    machine = {"system": "Linux", "processor": "x", "cores": 2}
    on_cpu, on_gpu = record(machine=machine), record(machine=machine | {"gpu": "H"})
    assert latest([on_cpu, on_gpu], "batch", machine_of(on_cpu)) == [on_cpu]
    assert "On Linux, H, 2 cores" in report.as_text([on_gpu])


def test_unequal_ids_in_one_round_are_not_outvoted():
    found = [
        record("generate", **{
            "256/bytepair float32/prefill_tokens_per_second": [1.0] * 3,
            "256/bytepair float32/decode_tokens_per_second": [1.0] * 3,
            "256/mlx-lm float32/prefill_tokens_per_second": [1.0] * 3,
            "256/mlx-lm float32/decode_tokens_per_second": [1.0] * 3,
            "256/mlx-lm float32/equal_ids": [48, 3, 48],
        })
    ]  # fmt: skip
    assert "| 3 of 48" in report.generate_table(found)


def test_the_report_says_what_got_slower_and_what_the_peers_did(records):
    text = report.as_text(records)
    line = "256/bytepair float32/prefill_tokens_per_second 314 -> 251.2 (0.80x, noise 5%)"
    assert f"  slower: {line}" in text
    assert "the peers, which say how the machine felt: 1.00x" in text
    assert "nothing changed by more than the noise (14 figures)" in text  # of encode
    assert text.count("There is no earlier record") == 4
    assert "slower: 256/mlx-lm" not in text


def test_a_suite_that_was_never_measured_here_is_named(records):
    text = report.as_text([each for each in records if each["suite"] != "train"])
    assert "train: not measured on this machine" in text


def test_report_command_prints_draws_and_rewrites(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("# Speed\n\n<!-- bench:batch -->\nold\n<!-- /bench -->\n\nThe end.\n")
    assert not main([
        "report", "--history", str(HISTORY), "--pictures", str(tmp_path), "--readme", str(readme),
    ])  # fmt: skip
    text = readme.read_text()
    assert text.startswith("# Speed\n\n<!-- bench:batch -->\n| 8 prompts  | tokens/s")
    assert text.endswith("|\n<!-- /bench -->\n\nThe end.\n")
    assert "old" not in text
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "README.md", "decode.svg", "encode.svg", "history.svg", "prefill.svg", "train.svg",
    ]  # fmt: skip
    assert "| bytepair float32" in capsys.readouterr().out


def test_a_mark_that_names_no_table_is_refused_and_the_readme_left_alone(tmp_path, records):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:speed -->\n<!-- /bench -->\n")
    with pytest.raises(ValueError, match="'speed'; there are generate"):
        report.rewrite(readme, records)
    assert readme.read_text() == "<!-- bench:speed -->\n<!-- /bench -->\n"


def test_a_table_without_figures_stays_as_it_was(tmp_path, records):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:train -->\nkept\n<!-- /bench -->\n")
    report.rewrite(readme, [each for each in records if each["suite"] != "train"])
    assert "kept" in readme.read_text()


# --- pictures ------------------------------------------------------------------------------------


def test_each_picture_is_well_formed_and_inside_its_frame(records, tmp_path):
    paths = report.draw(records, tmp_path)
    assert len(paths) == len(report.PICTURES)
    for path in paths:
        svg = ElementTree.parse(path).getroot()
        width, height = (float(svg.get(name)) for name in ("width", "height"))
        assert "prefers-color-scheme: dark" in svg.find(f"{SVG}style").text
        assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")
        for text in svg.iter(f"{SVG}text"):
            assert 0 <= float(text.get("x")) <= width
            assert 0 <= float(text.get("y")) <= height
        for line in svg.iter(f"{SVG}polyline"):
            for point in line.get("points").split():
                x, y = map(float, point.split(","))
                assert 0 < x < width
                assert 0 < y < height


def test_lines_place_values_by_their_logarithm():
    series = {"a": [plot.Point(x, y, y, y) for x, y in ((1, 1), (10, 10), (100, 100))]}
    svg = ElementTree.fromstring(plot.lines("t", "x", series, log_x=True, log_y=True))
    [line] = svg.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, p.split(",")) for p in line.get("points").split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # up is more


def test_bars_are_as_long_as_their_values():
    svg = ElementTree.fromstring(plot.bars("t", {"g": {"a": 10.0, "b": 40.0}}))
    widths = [float(r.get("width")) for r in svg.iter(f"{SVG}rect") if "mark" in r.get("class")]
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01)


def test_names_are_escaped():
    svg = plot.bars("a < b & c", {"<g>": {"<x>": 1.0}})
    assert "a < b & c" in [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_more_series_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="9 series"):
        plot.bars("t", {"g": {str(i): 1.0 for i in range(9)}})


def test_flatten_keeps_order():
    assert list(flatten({"b": {"x": 1}, "a": 2})) == [("b/x", 1), ("a", 2)]


# --- the README's tables -------------------------------------------------------------------------

ROWS = {  # table -> what its rows may be called
    "generate": {*report.GENERATORS, report.CEILING},
    "generate-qwen3-0.6b": {*report.GENERATORS, report.CEILING},
    "encode": {*report.ENCODERS},
    "train": {*chain(*report.TRAINERS)},
    "batch": {"one by one", "together"},
    "speculative": {"text to copy", "nothing to copy", "equal ids"},
}
CELL = re.compile(r"-||yes|NO|[\d,.]+( of \d+)?|[\d,.]+ \([\d.e+]+x\)|[\d.]+x")


def stale(text, records):
    """What is wrong with the form of a text's marked tables; values may differ."""
    problems = []
    for name, shown in report.marked(text):
        if name not in report.TABLES:
            problems.append(f"{name}: no such table")
            continue
        found = [each for each in records if each["suite"] == name][::-1]
        wanted = cells(report.TABLES[name](found).splitlines()[0])
        header, rule, *rows = (cells(line) for line in shown.splitlines() or ["", ""])
        if header != wanted:
            problems.append(f"{name}: the columns are {header}, now {wanted}")
        if not all(cell and set(cell) == {"-"} for cell in rule):
            problems.append(f"{name}: no rule under the header")
        for row in rows:
            if row[0] not in ROWS[name]:
                problems.append(f"{name}: there is no row {row[0]!r} any more")
            problems += [f"{name}: {c!r} is no figure" for c in row[1:] if not CELL.fullmatch(c)]
    return problems


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_readme_s_tables_are_in_the_form_that_report_prints(records):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- bench:" in text
    assert text.count("<!-- bench:") == text.count("<!-- /bench -->") == len([*report.marked(text)])
    assert stale(text, records) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("decode, tokens/s", "decode", "generate: the columns are"),
        ("| mlx-lm float32 ", "| mlx-lm fp32    ", "generate: there is no row 'mlx-lm fp32'"),
        ("11.2 (22.4x)", "fast      ", "generate: 'fast' is no figure"),
        ("bench:generate -->", "bench:speed -->", "speed: no such table"),
    ],
)
def test_a_stale_table_is_noticed(records, tmp_path, old, new, says):
    fresh = "".join(f"<!-- bench:{name} -->\n<!-- /bench -->\n" for name in report.TABLES)
    (tmp_path / "README.md").write_text(fresh)
    report.rewrite(tmp_path / "README.md", records)
    text = (tmp_path / "README.md").read_text()
    assert stale(text, records) == []
    assert old in text
    [problem] = stale(text.replace(old, new, 1), records)
    assert problem.startswith(says)
