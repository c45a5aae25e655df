"""messages -> text in the model's own chat format, knowing which of it the template wrote itself.

The template is the model's, in Jinja, run in jinja2's immutable sandbox on what people wrote, as it
is. Where it wrote a control token itself, marks.py finds out. Blind spot: it does not know ids.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bpe.chat.marks import FIRST_MARK, Marked, Span

MAX_RENDERED_CHARACTERS = 64_000_000  # a template that loops for ever must not fill the memory


@dataclass(frozen=True)
class Rendered:
    """A rendered conversation, and where in it the template wrote a control token itself."""

    text: str
    controls: Sequence[Span] = ()


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


def render(
    source: str,
    variables: Mapping[str, Any],
    named_tokens: Mapping[str, str],
    *,
    controls: Collection[str] = (),
    continue_final_message: bool = False,
) -> Rendered:
    """Render a template on messages, tools and whatever else the variables hold.

    named_tokens: more variables, which hold tokens of the template's (bos_token). controls: the
    texts of the tokens to be found where the template wrote them. continue_final_message: the text
    ends inside the last message, so that a model goes on with it.

    Raises ValueError with the template's line when the template fails or refuses the messages.
    """
    variables = {name: _as_plain_data(value) for name, value in variables.items()}
    _check_messages(variables["messages"])
    variables["messages"] = [_as_template_sees(m) for m in variables["messages"]]
    end_mark = _mark_the_end(variables["messages"]) if continue_final_message else ""
    named_tokens = {name: t for name, t in named_tokens.items() if name not in variables}
    now = datetime.now()  # one moment for both renderings
    known = {"strftime_now": now.strftime, **named_tokens, **variables}
    text = _run(_compile(source), known)
    found: Sequence[Span] = ()
    if controls:
        marked = _marked(source, frozenset(controls))
        found = marked.spans(_run, known, named_tokens, text, _strings(variables))
    if end_mark:
        stop = _end_of_message(text, end_mark)
        return Rendered(text[:stop], [span for span in found if span[1] <= stop])
    return Rendered(text, found)


def _run(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    try:
        return _join_bounded(template.generate(**variables))
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


def _as_plain_data(value: Any) -> Any:
    """value made of dicts, lists and JSON's scalars alone, which a template can't do harm with.

    Objects that know their fields (dataclasses, pydantic's) become dicts; others stay unknown to a
    template but for the name of their type.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, Mapping):
        return {_as_plain_data(key): _as_plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_as_plain_data, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _as_plain_data(getattr(value, field.name)) for field in fields}
    if callable(getattr(value, "model_dump", None)):
        return _as_plain_data(value.model_dump())
    if isinstance(value, Iterator):
        return list(map(_as_plain_data, value))
    return f"<{type(value).__name__}>"


_REASONING = ("reasoning_content", "thinking", "reasoning")


def _as_template_sees(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as transformers hands it over: no None fields, reasoning under all its names."""
    message = {key: value for key, value in message.items() if value is not None}
    given = [message[name] for name in _REASONING if name in message]  # "" is given as well
    return {"thinking": given[0], **message, "reasoning_content": given[0]} if given else message


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_strings, chain(value, value.values())))
    elif isinstance(value, (list, tuple)):
        yield from chain.from_iterable(map(_strings, value))


def _mark_the_end(messages: Sequence[dict[str, Any]]) -> str:
    """Put a character that no message holds behind the last message's text, and a space."""
    last = messages[-1]
    content = last.get("content")
    if isinstance(content, (list, tuple)):
        last = next((block for block in reversed(content) if "text" in block), {})
    name = "content" if last is messages[-1] else "text"
    if not isinstance(last.get(name), str):
        raise ValueError("the last message has no text to be continued")
    taken = {char for text in _strings(messages) for char in text}
    free = (chr(code) for code in range(FIRST_MARK - 1, 0, -1) if chr(code) not in taken)
    mark = next(free)
    last[name] += mark + " "
    return mark


def _end_of_message(text: str, mark: str) -> int:
    """Where the marked message ends in the rendering."""
    stop = text.rfind(mark)
    if stop < 0:
        raise ValueError("the chat template does not keep the last message to be continued")
    if text.startswith(mark + " ", stop):
        return stop
    return len(text[:stop].rstrip())  # the template strips messages


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


# --- the template's world ----------------------------------------------------------------------


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks what a model wrote; here it only passes on."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


@lru_cache(maxsize=8)
def _compile(source: str) -> jinja2.Template:
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the chat template is broken in line {error.lineno}: {error}") from error


@lru_cache(maxsize=8)
def _marked(source: str, controls: frozenset[str]) -> Marked:
    return Marked(_environment(), source, controls)


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
