"""What training reads, where texts are cut, and how pieces are counted by several processes."""

import gzip
import itertools
import json
import os
import random
import sys
from collections import Counter

import pytest

import bpe
from bpe.encoding.pretokenize import PreTokenizer
from bpe.spec import PATTERNS, AddedToken, Normalize, Split
from bpe.training import corpus, spill
from bpe.training.corpus import Chunk, Documents, chunks, find_files
from bpe.training.counts import Counting, PieceCounter, read_counts, write_counts
from bpe.training.splitting import Cutting, Splitter

ALPHABET = ("a", "'s", "1", "!", "/", " ", "\n", "\r", "\t", "\u3000", "é", "你", "\u0301", "\x1c")


def cutting(pattern, **options):
    return Cutting((Split(PATTERNS.get(pattern, pattern)),), **options)


def pieces(cut, text):
    return [piece for part in Splitter(cut).pieces(text) for piece in part if piece]


# --- where texts are cut -------------------------------------------------------------------------


@pytest.mark.parametrize("normalizer", [(), (Normalize("NFC"),)])
@pytest.mark.parametrize("pattern", list(PATTERNS))
def test_a_safe_cut_changes_no_piece(pattern, normalizer):
    cut = cutting(pattern, normalizer=normalizer)
    splitter = Splitter(cut)
    plain = PreTokenizer(cut)
    num_cuts = 0
    for text in short_texts():
        place = splitter.last_cut(text)
        if place:
            num_cuts += 1
            parts = [plain.split(plain.normalize(part)) for part in (text[:place], text[place:])]
            assert parts[0] + parts[1] == plain.split(plain.normalize(text)), repr(text)
    assert num_cuts > 1000


def short_texts():
    """All of 2 or 3 of the characters, and some longer ones."""
    for length in (2, 3):
        yield from map("".join, itertools.product(ALPHABET, repeat=length))
    rng = random.Random(1)
    yield from ("".join(rng.choices(ALPHABET, k=rng.choice([4, 5, 12]))) for _ in range(3000))


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\s+|[^\w\s]+"])
def test_lines_are_split_alone(pattern):
    cut = cutting(pattern, lines=True)
    plain = PreTokenizer(cutting(pattern))
    splitter = Splitter(cut)
    for text in short_texts():
        lines = [line + "\n" for line in text.split("\n")]
        lines[-1] = lines[-1][:-1]
        expected = [piece for line in lines for piece in plain.split(line)]
        found = [piece for part in splitter.pieces(text) for piece in part if piece]
        assert found == [piece for piece in expected if piece], repr(text)


def test_a_cut_is_never_in_an_added_token():
    tokens = (AddedToken(0, "<|a b c|>", special=True), AddedToken(1, "x y", special=True))
    splitter = Splitter(cutting("qwen", added_tokens=tokens))
    text = "one two<|a b c|>one x y" + "." * 20
    places = [splitter.last_cut(text[:end]) for end in range(len(text) + 1)]
    safe = {0, text.index(" two"), text.index(" x")}
    assert set(places) <= safe
    assert text.index(" x") in places


def test_a_stretch_without_a_cut_does_not_end_the_cutting():
    text = "." * 3 * corpus.CHUNK_SIZE + " one two" * corpus.CHUNK_SIZE
    found = read(Documents([text]))
    assert "".join(texts_of(found)) == text
    assert sum(len(chunk.texts[0]) < 2 * corpus.CHUNK_SIZE for chunk in found) > 4


def test_no_cut_where_the_pattern_is_not_known():
    assert Splitter(cutting(r"a b|\w+")).last_cut("a b a b a b") == 0


# --- reading -------------------------------------------------------------------------------------


def read(files, cut=None, limit=None):
    """All chunks of a corpus."""
    splitter = Splitter(cut or cutting("qwen"))
    found = list(chunks(files.parts(splitter.last_cut), limit))
    assert all(
        chunk.num_bytes == sum(len(text.encode()) for text in chunk.texts) for chunk in found
    )
    return found


def texts_of(found):
    return [text for chunk in found for text in chunk.texts]


def test_files_directories_and_patterns(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", "sub/d.md"):
        (tmp_path / name).write_text(name)
    (tmp_path / "picture").write_bytes(b"\x89PNG\0\0")
    found = find_files(tmp_path)
    assert texts_of(read(found)) == ["a.txt", "b.txt", "sub/c.txt", "sub/d.md"]
    assert found.skipped == (str(tmp_path / "picture"),)
    assert found.num_bytes == 5 + 5 + 9 + 8
    assert texts_of(read(find_files([tmp_path / "b.txt", str(tmp_path / "*.txt")]))) == [
        "b.txt", "a.txt", "b.txt",
    ]  # fmt: skip
    assert texts_of(read(find_files(str(tmp_path / "**/*.md")))) == ["sub/d.md"]
    for nothing in ("nowhere.txt", "no*where"):
        with pytest.raises(FileNotFoundError, match="no file, directory or pattern"):
            find_files([tmp_path / nothing])


def test_a_stream_is_named_once(tmp_path):
    """Opening a pipe a second time would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    assert find_files([tmp_path / "pipe", "-"]).num_bytes is None
    assert find_files(str(tmp_path)).sources == ()
    for paths in (["pipe", "pipe"], ["pipe", "link"], ["pipe", "-", "-"]):
        named = [path if path == "-" else tmp_path / path for path in paths]
        with pytest.raises(
            ValueError, match=rf"{paths[-1]}|stdin is a stream and can be read only"
        ):
            find_files(named)


def test_newlines_and_a_byte_order_mark_stay(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert "".join(texts_of(read(find_files(tmp_path / "a.txt")))) == "\ufeffa\r\nb\rc\n"


def test_compressed_files(tmp_path):
    text = "one two\n" * 30_000
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    found = find_files(tmp_path / "a.txt.gz")
    assert "".join(texts_of(read(found))) == text
    assert found.num_bytes is None
    (tmp_path / "cut.gz").write_bytes(
        gzip.compress(random.Random(0).randbytes(9999).hex().encode())[:5000]
    )
    with pytest.raises(ValueError, match=r"cut.gz is not a whole .gz file"):
        read(find_files(tmp_path / "cut.gz"))
    (tmp_path / "no.gz").write_bytes(b"text")
    with pytest.raises(ValueError, match=r"no.gz is not a whole .gz file"):
        read(find_files(tmp_path / "no.gz"))


def test_zstandard_files(tmp_path):
    """Two frames in one file, as parallel compressors write them."""
    zstandard = pytest.importorskip("zstandard")
    frames = [zstandard.compress(text.encode()) for text in ("one two", " three")]
    (tmp_path / "a.zst").write_bytes(b"".join(frames))
    assert "".join(texts_of(read(find_files(tmp_path / "a.zst")))) == "one two three"
    (tmp_path / "cut.zst").write_bytes(b"".join(frames)[:-3])
    with pytest.raises(ValueError, match=r"cut.zst is not a whole .zst file"):
        read(find_files(tmp_path / "cut.zst"))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has its own zstd")
def test_zstandard_missing_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.zst").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"needs Python 3.14 or the package zstandard; pip install"
    ):
        read(find_files(tmp_path / "a.zst"))


def test_jsonl(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\\u00e9\\n"}\n\n{"id": 2, "text": "two"}\n')
    assert texts_of(read(find_files(path))) == ["oneé\n", "two"]
    path.write_text('{"body": "one"}\n')
    assert texts_of(read(find_files(path, field="body"))) == ["one"]
    with pytest.raises(
        ValueError, match=r"a.jsonl, line 1 has no text in a field 'text' \(it has 'body'\)"
    ):
        read(find_files(path))
    path.write_text('{"text": "one"}\n{"text": \n')
    with pytest.raises(ValueError, match=r"a.jsonl, line 2 is not valid JSON"):
        read(find_files(path))
    path.write_text('{"text": "one"}\n{"text": "\\ud800"}\n')
    with pytest.raises(ValueError, match=r"a.jsonl, line 2 holds the lone surrogate U\+D800"):
        read(find_files(path))
    path.write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n')
    with pytest.raises(ValueError, match="is not UTF-8 at byte 26"):
        read(find_files(path))
    assert texts_of(read(find_files(path, errors="replace"))) == ["one", "\ufffd"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("null", "is null, not an object with a text in a field 'text'$"),
        ("3", "is a number, not an object"),
        ("true", "is true, not an object"),
        ('"text"', "is a text, not an object"),
        ('["text"]', "is a list, not an object"),
        ('{"text": null}', "has null in its field 'text', which must hold a text$"),
        ('{"text": 5}', "has a number in its field 'text'"),
        ('{"text": ["a"]}', "has a list in its field 'text'"),
        ('{"text": {"a": 1}}', "has an object in its field 'text'"),
        ("{}", r"has no text in a field 'text' \(it has no field\); name the field with --field"),
        ('{"body": "a", "id": 2}', r"has no text .*\(it has 'body', 'id'\); name the field"),
        (f'{{"{"k" * 10_000}": 1}}', r"has no text .*\(it has 'k{59}\); name the field"),
        ("9" * 5000, "is not valid JSON: .*digits"),
        ("[" * 200_000, "is not valid JSON: .*recursion"),
    ],
)
def test_what_a_line_of_jsonl_is_instead(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "one"}}\n{line}\n')
    with pytest.raises(ValueError, match=f"a.jsonl, line 2 {message}"):
        read(find_files(path))


@pytest.mark.parametrize("before", [0, 1, *(corpus.CHUNK_SIZE - n for n in range(5)), 100_000])
def test_a_wrong_byte_is_named(before, tmp_path):
    """Also where a block ends inside of a character."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * before + "é".encode() + b"\xe4\xbdx")
    with pytest.raises(ValueError, match=f"a.txt is not UTF-8 at byte {before + 2}, .* --errors"):
        read(find_files(path))
    replaced, ignored = (
        "".join(texts_of(read(find_files(path, errors=e)))) for e in ("replace", "ignore")
    )
    assert replaced == "a" * before + "é\ufffdx"
    assert ignored == "a" * before + "éx"
    with pytest.raises(ValueError, match="errors='guess'"):
        find_files(path, errors="guess")


def test_the_limit_is_in_bytes_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("é" * 100)
    (tmp_path / "b.txt").write_text("x" * 100)
    for limit in (1, 2, 199, 200, 201, 299, 300, 1000):
        text = "".join(texts_of(read(find_files(tmp_path), limit=limit)))
        whole = ("é" * 100 + "x" * 100).encode()
        assert text.encode() == whole[:limit].decode(errors="ignore").encode()


# --- counting ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents():
    rng = random.Random(3)
    words = [
        f"{rng.choice(['', ' ', chr(10)])}{''.join(rng.choices('abcdé你12.', k=5))}"
        for _ in range(9000)
    ]
    return ["".join(rng.choices(words, k=rng.choice([10, 3000, 40_000]))) for _ in range(12)]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_processes_count_the_same_in_the_same_order(num_workers, documents):
    expected = Counter(p for text in documents for p in bpe.split_pieces(text))
    counting = Counting(cutting("qwen"), num_workers, in_order=True, small_corpus=0)
    try:
        for number, chunk in enumerate(chunks(Documents(documents).parts(counting.last_cut))):
            counting.add(chunk)
            if number == 5:  # a table may be asked for in between
                counting.add_up()
        counts = counting.add_up()
    finally:
        counting.close()
    assert counts == expected
    assert list(counts) == list(expected)


def test_a_dead_helper_is_an_error(documents):
    counting = Counting(cutting("qwen"), 2, small_corpus=0)
    counting.add(Chunk(["a"], 1))
    counting._helpers[0]._process.kill()
    counting._helpers[0]._process.wait()
    try:
        with pytest.raises(RuntimeError, match="a counting process ended unexpectedly"):
            add_all(counting, documents)
    finally:
        counting.close()


def add_all(counting, documents):
    for text in documents * 20:
        counting.add(Chunk([text], 1))


def test_count_pieces_is_a_map_reduce(documents):
    parts = [bpe.count_pieces(documents[i::3], workers=1) for i in range(3)]
    added = sum(parts, Counter())
    assert added == bpe.count_pieces(documents, workers=1)
    assert bpe.train_from_counts(added, 400).spec == bpe.train(documents, 400).spec


def test_tables_in_files(tmp_path, documents):
    counts = bpe.count_pieces(['a\tb "q" \\ \n\r\n é 你 \u2028 \x00', *documents[:2]])
    write_counts(counts, tmp_path / "counts.tsv")
    assert read_counts(find_files(tmp_path / "counts.tsv")) == counts
    assert list(read_counts(find_files(tmp_path / "counts.tsv"))) == list(counts)
    twice = read_counts(find_files([tmp_path / "counts.tsv"] * 2))
    assert twice == Counter({piece: 2 * count for piece, count in counts.items()})
    lines = [json.dumps({"piece": piece, "count": count}) for piece, count in counts.items()]
    (tmp_path / "counts.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert read_counts(find_files(tmp_path / "counts.jsonl.gz")) == counts


@pytest.mark.parametrize(
    "line", ["a\t1", '"a"', '"a"\tx', '"a"\t0', '"a"\t-2', "5\t5", '"\\ud800"\t1']
)
def test_a_bad_table_is_refused_with_its_line(line, tmp_path):
    (tmp_path / "counts.tsv").write_text(f'piece\tcount\n"b"\t2\n{line}\n')
    with pytest.raises(
        ValueError, match=r"counts.tsv, line 3 is not a piece in JSON and its count"
    ):
        read_counts(find_files(tmp_path / "counts.tsv"))


# --- a ceiling for memory ------------------------------------------------------------------------


def test_runs_add_up_to_the_whole(tmp_path, documents):
    counter = PieceCounter(cutting("qwen"), 200_000, tmp_path)
    for number, text in enumerate([*documents, "a\\n \\ \n\\\n \t\t"]):
        counter.add(number, [text])
    runs = counter.flush()
    assert len(runs) > 3
    expected = Counter(
        p for text in [*documents, "a\\n \\ \n\\\n \t\t"] for p in bpe.split_pieces(text)
    )
    assert dict(spill.added_up(runs)) == expected
    kept = spill.most_frequent(runs, 1 << 30)
    assert (kept.counts, kept.num_lost) == (expected, 0)


def test_the_rarest_pieces_are_left_out(tmp_path):
    counts = Counter({f"piece{i}": i // 10 + 1 for i in range(1000)}) + Counter({"x": 1})
    spill.write_run(counts, tmp_path / "a.run")
    room = sum(spill.learning_bytes(piece) for piece, count in counts.items() if count > 50)
    kept = spill.most_frequent([tmp_path / "a.run"], room)
    expected = {piece: count for piece, count in counts.items() if count > 50} | {"x": 1}
    assert kept.counts == expected
    assert kept.num_lost == len(counts) - len(expected)
    assert kept.lost_occurrences == counts.total() - sum(expected.values())
