"""paths or Python iterables -> chunks of text, in a fixed order, without holding the corpus.

Files are plain, .gz or .zst, or streams (stdin, pipes), each opened once and read from its start;
.jsonl holds one document a line. A chunk is some documents, or a part of a long one that ends where
the pieces are cut anyway. The same corpus gives the same chunks every time. Blind spot: it does not
know where a text may be cut (it is told), nor what becomes of it.
"""

from __future__ import annotations

import codecs
import glob
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from bpe.training.opening import COMPRESSED, opened

CHUNK_SIZE = 1 << 15  # bytes read at once, and characters of small documents put together
SNIFFED = 1 << 13  # bytes that tell whether a file in a directory is text
ERRORS = ("strict", "replace", "ignore")

LastCut = Callable[[str, int], int]  # text, start -> the last safe cut after start, or 0


@dataclass(frozen=True)
class Chunk:
    """Texts, and their size in UTF-8."""

    texts: list[str]
    num_bytes: int

    def crc(self, before: int) -> int:
        """Goes on from the CRC of the chunks before: equal ones were most likely equal texts."""
        ended = [text.encode() + b"\xff" for text in self.texts]  # a byte that UTF-8 doesn't use
        return zlib.crc32(b"".join(ended), before)


@dataclass(frozen=True)
class Documents:
    """Texts from a Python iterable, each one document."""

    texts: Iterable[str]
    num_bytes: int | None = None  # unknown before they have been read

    def parts(self, last_cut: LastCut) -> Iterator[Chunk]:
        for number, text in enumerate(self.texts, start=1):
            if not isinstance(text, str):
                raise TypeError(f"document {number} is {type(text).__name__}, not str; pass texts")
            yield from _parts_of(text, last_cut, f"document {number}")

    def describe(self) -> list[Any]:
        """What a checkpoint compares, to see that it belongs to this corpus."""
        return ["documents"]


@dataclass(frozen=True)
class Source:
    """One file, or stdin; size is in bytes, None where it is compressed or not known.

    A stream gives its bytes once: stdin, a FIFO, what `<(...)` names, a device.
    """

    path: Path | None
    size: int | None = None
    is_stream: bool = False

    @property
    def name(self) -> str:
        return "stdin" if self.path is None else str(self.path)

    @property
    def has_documents(self) -> bool:
        suffixes = self.path.suffixes if self.path else []
        return ".jsonl" in suffixes[-2:]


@dataclass(frozen=True)
class Files:
    """Files in order. field: the key of a .jsonl line's text. errors: of the UTF-8 decoder."""

    sources: tuple[Source, ...]
    field: str = "text"
    errors: str = "strict"
    skipped: tuple[str, ...] = dataclass_field(default=(), compare=False)  # no text, in a directory
    folders: tuple[Path, ...] = dataclass_field(default=(), compare=False)  # all of whose text is

    def __post_init__(self) -> None:
        if self.errors not in ERRORS:
            raise ValueError(f"errors={self.errors!r} is none of {', '.join(ERRORS)}")

    @property
    def num_bytes(self) -> int | None:
        sizes = [source.size for source in self.sources]
        return None if None in sizes else sum(sizes)

    def parts(self, last_cut: LastCut) -> Iterator[Chunk]:
        for source in self.sources:
            read = self._read_documents if source.has_documents else self._read_text
            with opened(source.path) as file:
                yield from read(file, source.name, last_cut)

    def check_apart(self, written: Iterable[Path]) -> None:
        """ValueError if a path to be written is read, or would be by the same run another day."""
        for path in written:
            for source in self.sources if path.exists() else ():
                if _is_same_file(path, source.path):
                    raise ValueError(
                        f"{path} is to be written, but {source.name} is that file and is to be "
                        "read, so it would be lost; write to another one"
                    )
            for folder in self.folders:
                if _is_read_in(folder, path):
                    raise ValueError(
                        f"{path} is to be written into {folder}, all of which is read, so the next "
                        "run would read it too; write it elsewhere, or name files or 'patterns*'"
                    )

    def describe(self) -> list[Any]:
        """What a checkpoint compares, to see that it belongs to this corpus."""
        files = [["a stream" if s.is_stream else s.name, s.size] for s in self.sources]
        return [*files, self.field, self.errors]

    def _read_text(self, file: BinaryIO, name: str, last_cut: LastCut) -> Iterator[Chunk]:
        """A file that is one document, in parts."""
        waiting: list[str] = []  # read, but not yet cut
        for text in decoded_blocks(file, name, self.errors):
            before = waiting[-1][-CONTEXT:] if waiting else ""
            cut = last_cut(before + text, len(before)) - len(before)
            if cut > 0:
                yield _chunk("".join([*waiting, text[:cut]]))
                waiting = []
            waiting.append(text[max(cut, 0) :])
        yield _chunk("".join(waiting))

    def _read_documents(self, file: BinaryIO, name: str, last_cut: LastCut) -> Iterator[Chunk]:
        offset = 0
        for number, line in enumerate(file, start=1):
            start, offset = offset, offset + len(line)
            if not line.strip():
                continue
            where = f"{name}, line {number}"
            text = self._document(line, where, name, start)
            yield from _parts_of(text, last_cut, where)

    def _document(self, line: bytes, where: str, name: str, offset: int) -> str:
        try:
            entry = json.loads(line.decode("utf-8", self.errors))
        except UnicodeDecodeError as error:
            raise _not_utf8(name, offset + error.start) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where} is not valid JSON: {error}") from None
        return _text_in(entry, self.field, where)


def _text_in(entry: Any, field: str, where: str) -> str:
    if not isinstance(entry, dict):
        raise ValueError(
            f"{where} is {_json_kind(entry)}, not an object with a text in a field {field!r}"
        )
    if field not in entry:
        keys = ", ".join(repr(key)[:60] for key in list(entry)[:8]) or "no field"
        raise ValueError(
            f"{where} has no text in a field {field!r} (it has {keys}); name the field with --field"
        )
    if not isinstance(entry[field], str):
        raise ValueError(
            f"{where} has {_json_kind(entry[field])} in its field {field!r}, which must hold a text"
        )
    return entry[field]


def _json_kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return {dict: "an object", list: "a list", str: "a text"}.get(type(value), "a number")


CONTEXT = 1 << 10  # characters before a block that the search for a cut may look at


def find_files(
    paths: Iterable[str | PathLike[str]], *, field: str = "text", errors: str = "strict"
) -> Files:
    """Files from paths, "-" for stdin, directories (all text files in them) and glob patterns.

    Nothing but files in directories is opened here. Raises FileNotFoundError for a path or pattern
    that names nothing, ValueError for a stream that is named twice.
    """
    sources: list[Source] = []
    skipped: list[str] = []
    folders: list[Path] = []
    for name in [paths] if isinstance(paths, str | PathLike) else paths:
        if os.fspath(name) == "-":
            sources.append(Source(None, is_stream=True))
            continue
        path = Path(name).expanduser()
        found, left_out = _expand(path)
        sources += map(_source, found)
        skipped += map(str, left_out)
        folders += [path] if path.is_dir() else []
    _check_streams(sources)
    return Files(tuple(sources), field, errors, tuple(skipped), tuple(folders))


def _source(path: Path) -> Source:
    about = path.stat()
    is_stream = not stat.S_ISREG(about.st_mode)
    is_known = not is_stream and path.suffix not in COMPRESSED
    return Source(path, about.st_size if is_known else None, is_stream)


def _check_streams(sources: list[Source]) -> None:
    """The second reader of a pipe would wait for ever."""
    streams = [source for source in sources if source.is_stream]
    for number, source in enumerate(streams):
        if any(_is_same_file(source.path, other.path) for other in streams[:number]):
            raise ValueError(f"{source.name} is a stream and can be read only once; name it once")


def _is_same_file(path: Path | None, other: Path | None) -> bool:
    """Also through links. None is stdin."""
    try:
        a, b = (os.stat(sys.stdin.fileno() if p is None else p) for p in (path, other))
    except (OSError, ValueError, AttributeError):  # it isn't there; stdin is closed or not a file's
        return path is other
    return os.path.samestat(a, b)


def _is_read_in(folder: Path, path: Path) -> bool:
    """Whether _expand(folder) finds path, once it is there."""
    inside, folder = path.parent.resolve() / path.name, folder.resolve()
    return folder in inside.parents and not _is_hidden(inside.relative_to(folder))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _expand(path: Path) -> tuple[list[Path], list[Path]]:
    """(files, files in a directory that are not text) that a path, directory or pattern names."""
    if path.is_dir():
        files = [
            file for file in sorted(path.rglob("*"))
            if file.is_file() and not _is_hidden(file.relative_to(path))
        ]  # fmt: skip
        binary = {file: None for file in files if _is_binary(file)}
        return [file for file in files if file not in binary], list(binary)
    if path.exists():
        return [path], []
    names = glob.glob(str(path), recursive=True) if glob.has_magic(str(path)) else []
    files = [Path(name) for name in sorted(names) if os.path.isfile(name)]
    if not files:
        raise FileNotFoundError(f"there is no file, directory or pattern {str(path)!r} to read")
    return files, []


def _is_binary(path: Path) -> bool:
    if path.suffix in COMPRESSED:
        return False
    with path.open("rb") as file:
        return b"\0" in file.read(SNIFFED)


# --- decoding -----------------------------------------------------------------------------------


def decoded_blocks(file: BinaryIO, name: str, errors: str) -> Iterator[str]:
    """Text of about CHUNK_SIZE at a time. What is not UTF-8 is an error with its byte's offset."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    while True:
        block = file.read(CHUNK_SIZE)  # as much, also where a pipe gives less at a time
        waiting = len(decoder.getstate()[0])  # bytes of a character that the last block began
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise _not_utf8(name, offset - waiting + error.start) from None
        offset += len(block)
        if text:
            yield text
        if not block:
            return


def _not_utf8(name: str, offset: int) -> ValueError:
    return ValueError(
        f"{name} is not UTF-8 at byte {offset}, and nothing is trained on a guess; pass "
        "--errors replace to read such bytes as U+FFFD, or --errors ignore to leave them out"
    )


# --- cutting and putting together --------------------------------------------------------------


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _chunk(text: str) -> Chunk:
    return Chunk([text], utf8_length(text))


def _parts_of(text: str, last_cut: LastCut, where: str) -> Iterator[Chunk]:
    """A document in parts of about CHUNK_SIZE."""
    start, length = 0, CHUNK_SIZE
    try:
        while len(text) - start > 2 * length:
            cut = last_cut(text[start : start + length], 0)
            if not cut:
                length *= 2
                continue
            yield _chunk(text[start : start + cut])
            start, length = start + cut, CHUNK_SIZE
        yield _chunk(text[start:])
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds the lone surrogate U+{ord(error.object[error.start]):04X}, which has "
            "no UTF-8 form; replace or remove it"
        ) from None


def chunks(parts: Iterable[Chunk], limit: int | None = None) -> Iterator[Chunk]:
    """Small parts put together, until limit bytes of text have been given out."""
    texts: list[str] = []
    num_bytes = 0
    for part in _limited(parts, limit):
        texts += filter(None, part.texts)
        num_bytes += part.num_bytes
        if num_bytes >= CHUNK_SIZE // 2:
            yield Chunk(texts, num_bytes)
            texts, num_bytes = [], 0
    if texts:
        yield Chunk(texts, num_bytes)


def _limited(parts: Iterable[Chunk], limit: int | None) -> Iterator[Chunk]:
    left = limit
    for part in parts:
        if left is not None and part.num_bytes >= left:
            if part.texts:
                yield _chunk(part.texts[0].encode()[:left].decode("utf-8", "ignore"))
            return
        yield part
        left = left and left - part.num_bytes
