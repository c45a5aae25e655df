"""messages -> text in the model's own chat format, knowing which of it the template wrote itself.

The template is the model's, in Jinja, run in jinja2's immutable sandbox. Before it runs, each added
token's text inside the messages is masked: its first character is replaced by a private-use one. So
after rendering, a control token that stands there was written by the template, never by a user.
Blind
spot: it does not know ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_RENDERED_CHARACTERS = 64_000_000  # a template that loops for ever must not fill the memory
FIRST_MASK = 0x10F000  # masks are characters of the last private-use plane


@dataclass(frozen=True)
class Rendered:
    """A rendered conversation: masked as the template left it, text with the masks undone."""

    masked: str
    masks: Mapping[int, str] = field(default_factory=dict)  # code point of a mask -> what it hides

    def unmask(self, text: str) -> str:
        """text with its masks undone; the same object where there are none."""
        if not self.masks or not any(chr(mask) in text for mask in self.masks):
            return text
        return text.translate(self.masks)

    @property
    def text(self) -> str:
        """The whole conversation as the template meant it."""
        return self.unmask(self.masked)

    def ending_with(self, content: str) -> Rendered:
        """Cut off what the template wrote after the last message, for a model to continue it."""
        stripped = content.strip()
        start = self.text.rfind(stripped)  # masks are one for one, so positions agree
        if start < 0 or not stripped:
            raise ValueError("the chat template does not keep the last message to be continued")
        whole = content.lstrip()  # its trailing white space stays where the template kept it
        kept = whole if self.text.startswith(whole, start) else stripped
        return Rendered(self.masked[: start + len(kept)], self.masks)


def choose_template(templates: Mapping[str, str], name: str | None, *, has_tools: bool) -> str:
    """The Jinja source to use: a template by name, a source as given, or the default one.

    With several, "tool_use" is the default when there are tools, as elsewhere in the ecosystem.
    """
    if name is not None and name in templates:
        return templates[name]
    if name is not None and "{" in name:
        return name
    if name is not None:
        raise ValueError(f"there is no chat template {name!r}; there are: {_names(templates)}")
    if has_tools and "tool_use" in templates:
        return templates["tool_use"]
    if "default" in templates:
        return templates["default"]
    if templates:
        raise ValueError(f"no chat template is the default one; choose from {_names(templates)}")
    raise ValueError("this tokenizer has no chat template; pass one as template=")


def _names(templates: Mapping[str, str]) -> str:
    return ", ".join(sorted(templates)) or "none"


def render(source: str, variables: Mapping[str, Any], *, masked: Collection[str]) -> Rendered:
    """Render a template on messages and tools, with the texts in `masked` masked inside them.

    Raises ValueError with the template's line when the template fails or refuses the messages.
    """
    _check_messages(variables["messages"])
    variables = dict(variables, messages=[_as_template_sees(m) for m in variables["messages"]])
    mask = _Mask(masked, variables)
    variables |= {name: mask.apply(variables[name]) for name in ("messages", "tools")}
    try:
        chunks = _compile(source).generate(**variables)
        return Rendered(_join_bounded(chunks), mask.undo)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the chat template is broken in line {error.lineno}: {error}") from error
    except ValueError:
        raise
    except Exception as error:  # whatever a template's own code can raise, from any type
        line = _template_line(error)
        raise ValueError(f"the chat template failed{line}: {error}") from error


def _check_messages(messages: Any) -> None:
    if isinstance(messages, (str, bytes, Mapping)) or not messages:
        raise ValueError("messages must be a non-empty list of {'role': ..., 'content': ...}")
    for message in messages:
        if not isinstance(message, Mapping):
            raise ValueError(f"a message is {message!r}, not a mapping with role and content")


def _as_template_sees(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as transformers hands it over: no None fields, reasoning under its usual name."""
    message = {key: value for key, value in message.items() if value is not None}
    for alias in ("reasoning", "thinking"):
        if alias in message:
            message.setdefault("reasoning_content", message[alias])
    return message


def _join_bounded(chunks: Iterator[str]) -> str:
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MAX_RENDERED_CHARACTERS:
            raise ValueError(f"the chat template wrote over {MAX_RENDERED_CHARACTERS} characters")
        parts.append(chunk)
    return "".join(parts)


def _template_line(error: Exception) -> str:
    """Where in the template the error arose, from the traceback that jinja2 rewrites."""
    traceback, line = error.__traceback__, ""
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = f" in line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


# --- masking -----------------------------------------------------------------------------------


class _Mask:
    """Replaces the first character of each token's text in strings by a mask character."""

    def __init__(self, tokens: Collection[str], variables: Mapping[str, Any]) -> None:
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if tokens else None
        used = _strings([variables["messages"], variables["tools"]]) if tokens else iter(())
        taken = {char for text in used for char in text if char >= chr(FIRST_MASK)}
        free = (code for code in range(FIRST_MASK, 0x110000) if chr(code) not in taken)
        self._mask_of = {char: chr(next(free)) for char in sorted({t[0] for t in tokens})}
        self.undo = {ord(mask): char for char, mask in self._mask_of.items()}

    def text(self, plain: str) -> str:
        """plain with its tokens masked: a Masked where there are any, else as it was."""
        if self._pattern is None or not self._pattern.search(plain):
            return plain
        masked = self._pattern.sub(lambda m: self._mask_of[m[0][0]] + m[0][1:], plain)
        return Masked(masked, plain, self)

    def apply(self, value: Any) -> Any:
        """value with every string in it masked, keys included, mappings and lists rebuilt."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.apply(item) for item in value)
        return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _strings(pair)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


class Masked(str):
    """A string that a template writes masked but reads plain.

    The characters are the masked ones, and there are as many as in the plain text. So whatever
    asks or searches (in, ==, startswith, split ...) works on the plain text, whatever cuts takes
    the same slice of both, and whatever ends up in the output is masked. A template thus takes
    the same branches as on the plain text.
    """

    plain: str

    def __new__(cls, masked: str, plain: str, mask: _Mask) -> Masked:
        self = super().__new__(cls, masked)
        self.plain = plain
        self._mask = mask
        return self

    def _slice(self, start: int, stop: int) -> Masked:
        return Masked(str.__getitem__(self, slice(start, stop)), self.plain[start:stop], self._mask)

    def __eq__(self, other: object) -> bool:
        return self.plain == _plain(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.plain)

    def __contains__(self, part: str) -> bool:
        return _plain(part) in self.plain

    def __getitem__(self, index: Any) -> str:
        return Masked(str.__getitem__(self, index), self.plain[index], self._mask)

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: str) -> Masked:
        return Masked(str.__add__(self, other), self.plain + _plain(other), self._mask)

    def __radd__(self, other: str) -> Masked:
        return Masked(str.__add__(other, self), _plain(other) + self.plain, self._mask)

    def __str__(self) -> Masked:
        return self

    def __repr__(self) -> str:
        return str.__str__(self._mask.text(repr(self.plain)))

    def startswith(self, prefix: Any, *bounds: int) -> bool:
        return self.plain.startswith(_plain(prefix), *bounds)

    def endswith(self, suffix: Any, *bounds: int) -> bool:
        return self.plain.endswith(_plain(suffix), *bounds)

    def find(self, part: str, *bounds: int) -> int:
        return self.plain.find(_plain(part), *bounds)

    def rfind(self, part: str, *bounds: int) -> int:
        return self.plain.rfind(_plain(part), *bounds)

    def index(self, part: str, *bounds: int) -> int:
        return self.plain.index(_plain(part), *bounds)

    def rindex(self, part: str, *bounds: int) -> int:
        return self.plain.rindex(_plain(part), *bounds)

    def count(self, part: str, *bounds: int) -> int:
        return self.plain.count(_plain(part), *bounds)

    def strip(self, chars: str | None = None) -> Masked:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> Masked:
        return self._slice(len(self) - len(self.plain.lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None) -> Masked:
        return self._slice(0, len(self.plain.rstrip(chars)))

    def removeprefix(self, prefix: str) -> Masked:
        return self._slice(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str) -> Masked:
        return self._slice(0, len(self) - (len(suffix) if self.endswith(suffix) else 0))

    def _locate(self, parts: list[str]) -> list[str]:
        """The same parts of the masked text: they stand in the plain text in this order."""
        located, start = [], 0
        for part in parts:
            start = self.plain.index(part, start)
            located.append(self._slice(start, start + len(part)))
            start += len(part)
        return located

    def split(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        return self._cut_at(sep, self.plain.split(_plain(sep), maxsplit))

    def rsplit(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        return self._cut_at(sep, self.plain.rsplit(_plain(sep), maxsplit))

    def _cut_at(self, sep: str | None, parts: list[str]) -> list[str]:
        if sep is None:  # parts are separated by runs of white space and never empty
            return self._locate(parts)
        located, start = [], 0
        for part in parts:
            located.append(self._slice(start, start + len(part)))
            start += len(part) + len(sep)
        return located

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines, start = [], 0
        for whole, line in zip(self.plain.splitlines(True), self.plain.splitlines(keepends)):
            lines.append(self._slice(start, start + len(line)))
            start += len(whole)
        return lines

    def partition(self, sep: str) -> tuple[str, str, str]:
        return tuple(self._locate(list(self.plain.partition(_plain(sep)))))

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        return tuple(self._locate(list(self.plain.rpartition(_plain(sep)))))

    def replace(self, old: str, new: str, count: int = -1) -> str:
        if not old:
            return self._mask.text(self.plain.replace(old, _plain(new), count))
        parts = self.split(old, count)
        joined = str.join(str.__str__(new), map(str.__str__, parts))
        return Masked(joined, _plain(new).join(map(_plain, parts)), self._mask)

    def join(self, parts: Any) -> str:
        parts = list(parts)
        joined = str.join(str.__str__(self), map(str.__str__, parts))
        return Masked(joined, self.plain.join(map(_plain, parts)), self._mask)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.plain if isinstance(value, Masked) else value


# --- the template's world ----------------------------------------------------------------------


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks what a model wrote; here it only passes on."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _compile(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment.from_string(source)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja2's own filter escapes HTML and sorts keys, as no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
