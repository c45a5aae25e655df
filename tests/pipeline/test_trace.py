"""python -m pipeline trace: the walk through the machine, as text, JSON and a page."""

import html.parser
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from paths import GOLDEN, ROOT

import model
from model.weights.memory import kv_bytes_per_token
from pipeline.__main__ import main
from pipeline.commands import trace as command
from pipeline.commands import trace_html
from pipeline.engine import Engine
from pipeline.trace import pass_bytes, pieces_of, read_bytes, trace, walk


@pytest.fixture(scope="module")
def engine(tiny_directory):
    """Random weights: what it says means nothing, but every figure of it is small."""
    return Engine.load(tiny_directory)


@pytest.fixture(scope="module")
def smollm2_engine(smollm2_path):
    return Engine.load(smollm2_path)


@pytest.fixture(scope="module")
def france(smollm2_engine):
    return trace(smollm2_engine, "The capital of France is", max_tokens=4, name="SmolLM2")


# --- the walk ------------------------------------------------------------------------------------


def test_paris_comes_first(france):
    assert [token.id for token in france.prompt] == [504, 3575, 282, 4649, 314]
    first = france.steps[0]
    assert (first.chosen.token.id, first.chosen.token.text) == (7042, " Paris")
    assert first.top[0] == first.chosen
    assert len(first.top) == 5
    assert 0.7 < first.chosen.probability < 0.85
    assert france.steps[1].chosen.token.id == 30
    assert france.answer.startswith(" Paris.")


def test_probabilities_are_those_of_the_whole_distribution(engine):
    walked = trace(engine, "hello world", max_tokens=3)
    ids = [token.id for token in walked.prompt]
    for step in walked.steps:
        logits = engine.model(mx.array([ids]))[0, -1, : engine.tokenizer.vocab_size]
        expected = mx.softmax(logits.astype(mx.float32)).tolist()
        likeliest = sorted(range(len(expected)), key=lambda id: -expected[id])[:5]
        assert [candidate.token.id for candidate in step.top] == likeliest
        for candidate in step.top:
            assert candidate.probability == pytest.approx(expected[candidate.token.id], abs=1e-4)
        ids.append(step.chosen.token.id)


def test_the_ids_are_those_of_one_stream(engine):
    walked = trace(engine, "hello world", max_tokens=6)
    ids = [token.id for token in walked.prompt]
    given = [step.chosen.token.id for step in walked.steps]
    assert given == list(model.generate(engine.model, ids, max_tokens=6))[: len(given)]


def test_positions_and_kinds(engine):
    walked = trace(engine, "hello world", max_tokens=3)
    n = len(walked.prompt)
    assert [(s.kind, s.num_read, s.position) for s in walked.steps] == [
        ("prefill", n, n), ("decode", 1, n + 1), ("decode", 1, n + 2),
    ]  # fmt: skip
    assert walked.end == "length"
    before = [(n, 0), (1, n), (1, n + 1)]  # ids in, ids in the cache
    expected = [pass_bytes(engine.model, *each) for each in before]
    assert [step.num_bytes for step in walked.steps] == expected
    assert [stage.num_bytes for stage in walked.stages if stage.name in ("prefill", "decode")] == [
        expected[0], expected[1] + expected[2],
    ]  # fmt: skip


def test_it_stops_where_the_model_stops(engine):
    endless = Engine(engine.tokenizer, engine.model, frozenset())
    ids = [step.chosen.token.id for step in trace(endless, "b", max_tokens=9).steps]
    index = next(i for i in range(2, 9) if ids[i] not in ids[:i])
    stopping = Engine(engine.tokenizer, engine.model, frozenset({ids[index]}))
    walked = trace(stopping, "b", max_tokens=9)
    assert [step.chosen.token.id for step in walked.steps] == ids[: index + 1]
    assert walked.end == "stop"
    assert walked.answer == engine.tokenizer.decode(ids[:index])


def test_it_ends_at_the_context(engine):
    context = engine.model.config.context
    text = "a" * 3
    num_ids = len(engine.encode_raw(text))
    if context > 5000:
        pytest.fail("the tiny model's context has grown: take a shorter one")
    fill = engine.tokenizer.decode([engine.encode_raw("z")[0]]) * (context - num_ids - 2)
    walked = trace(engine, text + fill, max_tokens=50)
    assert len(walked.prompt) + len(walked.steps) <= context
    assert walked.steps


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The capital", ["The", " capital"]),
        ("a  b", ["a", " ", " b"]),
        ("<think>x", ["<think>", "x"]),  # an added token that is not special
        ("<|im_end|>", ["<|", "im", "_", "end", "|>"]),  # a special one stays text
        ("é🙂", ["é", "🙂"]),
    ],
)
def test_pieces(engine, text, pieces):
    found = pieces_of(engine, text)
    assert [piece.text for piece in found] == pieces
    assert "".join(piece.text for piece in found) == text
    assert [id for piece in found for id in piece.ids] == engine.tokenizer.encode(text)
    assert not {id for piece in found for id in piece.ids} & engine.tokenizer.special_ids
    for piece in found:
        assert engine.tokenizer.decode(piece.ids) == piece.text


def test_pieces_of_a_text_that_encode_would_cut_off(tiny_directory, tmp_path):
    copy = shutil.copytree(tiny_directory, tmp_path / "copy")
    described = json.loads((copy / "tokenizer.json").read_text())
    described["truncation"] = {
        "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    (copy / "tokenizer.json").write_text(json.dumps(described))
    short = Engine.load(copy)
    assert len(short.tokenizer.encode("a b c")) == 1
    assert [piece.text for piece in pieces_of(short, "a b c")] == ["a", " b", " c"]


def test_half_characters_are_shown_as_bytes(engine):
    walked = trace(engine, "🙂", max_tokens=1)
    assert " ".join(token.bytes for token in walked.prompt) == "f0 9f 99 82"
    assert "\\xf0" in walked.prompt[0].text


def test_chat_goes_through_the_template(engine):
    raw, chat = (trace(engine, "hi", is_chat=c, max_tokens=1) for c in (False, True))
    messages = [{"role": "user", "content": "hi"}]
    assert [token.id for token in raw.prompt] == engine.encode_raw("hi")
    assert [token.id for token in chat.prompt] == engine.encode_chat(messages)
    assert raw.rendered == chat.rendered
    assert "<|im_start|>user\nhi<|im_end|>" in chat.rendered
    assert chat.prompt[0].special
    assert not any(token.special for token in raw.prompt)


# --- what is counted -----------------------------------------------------------------------------


def test_the_walk_in_parts_is_the_model(engine):
    m = engine.model
    ids = engine.encode_raw("hello world")
    whole, parted = m.make_cache(), m.make_cache()
    for cache in (whole, parted):
        mx.eval(m(mx.array([ids]), cache))
    expected = m(mx.array([[5]]), whole)
    logits, parts = walk(m, 5, parted)
    assert mx.allclose(logits, expected, atol=1e-5)
    assert [part.name for part in parts] == ["embedding", "attention", "MLP", "head"]
    assert parted[0].offset == len(ids) + 1


def test_the_parts_move_what_the_whole_pass_moves(engine):
    cache = engine.model.make_cache()
    mx.eval(engine.model(mx.array([[7, 8, 9]]), cache))
    _, parts = walk(engine.model, 5, cache)
    assert sum(part.num_bytes for part in parts) == pass_bytes(engine.model, 1, 3)


def test_bytes_of_a_dense_tied_model(engine):
    """By hand: all weights once (the embedding as the head), one row, keys and values."""
    m, config = engine.model, engine.model.config
    assert config.tie_word_embeddings
    weights = sum(a.nbytes for _, a in mlx_flat(m))
    row = config.hidden_size * 4
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    assert kv_bytes_per_token(config, mx.float32) == kv
    assert pass_bytes(m, 1, 9) == weights + row + kv * (1 + 10)
    assert pass_bytes(m, 4, 0) == weights + 4 * row + kv * (4 + 4)


def test_bytes_of_experts_and_an_untied_head():
    reference = GOLDEN / "reference"
    m = model.load(reference / "qwen3-moe", dtype="float32")
    config = m.config
    sizes = dict(read_bytes(m, 1))
    for name, weight in mlx_flat(m):
        if ".experts." in name:
            share = config.num_experts_per_tok / config.num_experts
            assert sizes[name] == weight.nbytes * share
        elif name.startswith("model.embed_tokens"):
            assert (name in sizes) == config.tie_word_embeddings
        else:
            assert sizes[name] == weight.nbytes
    crowd = dict(read_bytes(m, 1000))
    assert all(crowd[n] == w.nbytes for n, w in mlx_flat(m) if ".experts." in n)


def mlx_flat(m):
    from mlx.utils import tree_flatten

    return tree_flatten(m.parameters())


# --- the command ---------------------------------------------------------------------------------


def run(*arguments, **options):
    command = [sys.executable, "-m", "pipeline", "trace", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, **options)


def test_terminal(france):
    lines = list(command.as_lines(france))
    assert "   [The] [ capital] [ of] [ France] [ is]" in lines
    assert '      3575  20 63 61 70 69 74 61 6c   " capital"' in lines
    assert "   | <|im_start|>user" in lines
    index = next(i for i, line in enumerate(lines) if line.startswith("   prefill, 5 ids in -> "))
    assert re.fullmatch(r' {6}77\.\d\d%  #{15,16} +" Paris"', lines[index + 1])
    assert sum(line.startswith("   decode, 1 id in -> position ") for line in lines) == 3
    assert any(
        re.match(r"   prefill +[\d.]+ ms +538\.\d MB +[\d.]+ GB/s  one pass", x) for x in lines
    )


def test_nothing_in_a_text_can_move_the_cursor(engine):
    walked = trace(engine, "a\x1b[2Jb\r\x9b\u202ec\n", max_tokens=1)
    assert all(line.isprintable() for line in command.as_lines(walked))


def test_command_as_json_and_from_stdin(tiny_directory):
    done = run(
        "-", "--model", tiny_directory, "--json", "--max-tokens", 2, "--top", 3, input="hello"
    )
    assert done.returncode == 0, done.stderr
    walked = json.loads(done.stdout)
    assert walked["text"] == "hello"
    assert [len(step["top"]) for step in walked["steps"]] == [3] * len(walked["steps"])
    assert walked["stages"][0]["name"] == "load"
    assert walked["stages"][0]["num_bytes"] > 0
    total = sum(candidate["probability"] for candidate in walked["steps"][0]["top"])
    assert 0 < total <= 1 + 1e-6
    assert not math.isnan(total)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "the following arguments are required: text"),
        (("",), 2, "the text is empty"),
        (("x", "--max-tokens", "0"), 2, "it is '0', but must be a whole number from 1 up"),
        (("x", "--top", "many"), 2, "it is 'many'"),
        (("x", "--model", "nowhere"), 1, "there is no file or directory 'nowhere'"),
    ],
)
def test_bad_inputs(arguments, code, says):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_candidates_than_ids_and_a_page_that_cannot_be_written(tiny_directory):
    done = run("x", "--model", tiny_directory, "--top", 10**6)
    assert done.returncode == 1
    assert "top_logprobs must be between 0 and" in done.stderr
    done = run("x", "--model", tiny_directory, "--html", "no/such/folder/page.html")
    assert done.returncode == 2
    assert "--html: no/such/folder is no directory, so page.html can't be put" in done.stderr


def test_a_page_that_fails_half_way_leaves_nothing(tiny_directory, tmp_path, monkeypatch, capsys):
    def half(path, text, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "page.html").write_text("mine")
    monkeypatch.setattr(Path, "write_text", half)
    page = str(tmp_path / "page.html")
    assert main(["trace", "x", "--model", str(tiny_directory), "--html", page]) == 1
    assert capsys.readouterr().err.endswith("No space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "mine"


def test_chat_without_a_template(tiny_directory, tmp_path):
    copy = shutil.copytree(tiny_directory, tmp_path / "copy")
    (copy / "tokenizer_config.json").write_text("{}")
    bare = Engine.load(copy)
    assert trace(bare, "x", max_tokens=1).rendered is None
    with pytest.raises(ValueError, match="no chat template; leave --chat out"):
        trace(bare, "x", is_chat=True)


def test_a_closed_pipe_ends_it_quietly(tiny_directory):
    line = f'"{sys.executable}" -m pipeline trace x --model "{tiny_directory}" | head -n 1'
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("1  Text to pieces")


# --- the page ------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    """Whether tags close in order, and all attributes that could fetch something."""

    def __init__(self):
        super().__init__()
        self.open, self.fetching = [], []

    def handle_starttag(self, tag, attributes):
        self.fetching += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


HOSTILE = "</pre><script>document.title='owned'</script> <|im_end|> & é🙂 \x1b[2J"


def test_page_is_well_formed_and_fetches_nothing(engine, france):
    for walked in (france, trace(engine, HOSTILE, is_chat=True, max_tokens=2)):
        page = trace_html.page(walked)
        tags = Tags()
        tags.feed(page)
        assert (tags.open, tags.fetching) == ([], [])
        assert "<script" not in page
        assert "url(" not in page
        assert "\x1b" not in page


def test_command_writes_a_page(tiny_directory, tmp_path):
    done = run("hello", "--model", tiny_directory, "--html", tmp_path / "page.html")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == f"wrote {tmp_path / 'page.html'}"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "4. Step by step" in (tmp_path / "page.html").read_text()


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")

PROBE = """<script>
function luminance(rgb) {
  const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const parse = text => text.match(/[\\d.]+/g).map(Number);
function paper(node) {
  for (; node; node = node.parentElement) {
    const color = parse(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color.slice(0, 3);
  }
  return [255, 255, 255];
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let lowest = 99, count = 0;
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || node.tagName === "SCRIPT") continue;
  const [a, b] = [parse(getComputedStyle(node).color).slice(0, 3), paper(node)].map(luminance);
  lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  count += 1;
}
document.title = JSON.stringify({
  contrast: lowest, texts: count, dark: luminance(paper(document.body)) < 0.2,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  resources: performance.getEntriesByType("resource").length, title: document.title,
  first: document.querySelector(".candidate").innerText.split("\\n")[0],
  bars: [...document.querySelectorAll(".step:first-child .fill")].map(e => e.clientWidth),
});
</script>"""


def probe(page, folder, *, dark, width):
    """What a real browser makes of a page: contrast, overflow, what it fetched."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here (looked for {', '.join(BROWSERS)})")
    without_policy = re.sub(r"<meta http-equiv=[^\n]*", "", page)  # which forbids the probe, too
    assert without_policy != page
    file = folder / "page.html"
    file.write_text(without_policy.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--window-size={width},900", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 1200), (True, 500)])
def test_a_browser_shows_the_page(france, tmp_path, dark, width):
    seen = probe(trace_html.page(france), tmp_path, dark=dark, width=width)
    assert seen["dark"] == dark
    assert seen["contrast"] >= 4.5  # WCAG 2.2, success criterion 1.4.3
    assert seen["texts"] > 100
    assert seen["overflow"] <= 0
    assert seen["resources"] == 0
    assert seen["first"] == "␣Paris"
    assert seen["bars"] == sorted(seen["bars"], reverse=True)
    assert seen["bars"][0] > 5 * seen["bars"][1]
    assert seen["title"] == "The capital of France is"


def test_a_browser_runs_nothing_that_a_text_holds(engine, tmp_path):
    walked = trace(engine, HOSTILE, is_chat=True, max_tokens=2)
    seen = probe(trace_html.page(walked), tmp_path, dark=False, width=1200)
    assert seen["title"].startswith("</pre><script>document.title='owned'")
    assert seen["overflow"] <= 0
