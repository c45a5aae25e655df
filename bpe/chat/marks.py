"""a chat template -> where in its rendering the template wrote a control token itself.

A rendering does not tell who wrote "<|im_end|>": the template, or somebody whose message it puts
in. So it is rendered a second time, with marks around the control tokens in the template's own
literals, which no text of people holds:

    <|im_start|>{{ role }}      becomes      ⟨<|im_start|>⟩{{ role }}

People's texts stay as they are, so the template sees them and takes the branches that it takes
anyway. Without its marks the second rendering must be the first one, letter by letter: that proves
that marking changed nothing. Where it does change something (the template compares or measures what
it wrote), the marks at fault are left out. So an oversight here loses a control token, which is an
error; it never makes one. Blind spot: what a template may use, and ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from jinja2 import Environment, nodes

from bpe.chat.tree import Replacer, chains, is_role, literal, read_only, runs

Span = tuple[int, int]
Render = Callable[[Any, Mapping[str, Any]], str]  # template, variables -> text; raises ValueError

FIRST_MARK = 0x10F000  # marks are characters of the end of the last private-use plane
_BEGIN = b"\xf4\x8f"  # of all of them in UTF-8, where bytes are found many times as fast
_SITE = "bytepair_site_{}"  # the variable that stands for a literal


class _Mark(NamedTuple):
    """A control token, or its two ends with a role between them, in the template's literals."""

    opening: tuple[int, int]  # number of the site, place in its text
    closing: tuple[int, int]
    prefix: str
    suffix: str | None  # None: prefix is the whole token


class _Site(NamedTuple):
    """A literal or variable of the template, whose text may be given with marks or without."""

    key: str  # the variable that gives its text
    text: str  # what the template has there
    name: str | None  # the variable that it is in the template, if it is one


class Marked:
    """A template with marks that can be switched on, for one set of control tokens."""

    def __init__(self, environment: Environment, source: str, controls: Iterable[str]) -> None:
        """controls: the texts of the control tokens. Raises jinja2.TemplateSyntaxError."""
        tree = environment.parse(source)
        self._source = source
        self._controls = frozenset(controls)
        self._sites: list[_Site] = []
        self._marks: list[_Mark] = []
        literals = "".join(map(literal, tree.find_all((nodes.TemplateData, nodes.Const))))
        self._in_literals = frozenset(text for text in self._controls if text in literals)
        self._place_marks(tree)
        self.template = environment.from_string(tree)
        self._enabled = frozenset(range(len(self._sites)))  # the sites that were right last time

    # --- reading the template ------------------------------------------------------------------

    def _place_marks(self, tree: nodes.Template) -> None:
        read = read_only(tree)
        assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        replaced: dict[int, nodes.Expr] = {}  # id() of a node -> what stands for it
        sites: dict[int | str, int] = {}  # id() of a node, or a variable -> number of its site

        def site(node: nodes.Expr) -> int:
            name = node.name if isinstance(node, nodes.Name) else None
            is_set = name in assigned  # then its value is marked before, once for all places
            number = sites.setdefault(name if is_set else id(node), len(self._sites))
            if number == len(self._sites):
                key = name if is_set else _SITE.format(number)
                self._sites.append(_Site(key, literal(node), name))
            if not is_set:
                key = self._sites[number].key
                replaced[id(node)] = nodes.Name(key, "load", lineno=node.lineno)
            return number

        for chain in chains(tree):
            chain = [None if id(node) in read else node for node in chain]
            for run in runs(chain):
                self._mark_tokens(run, site)
            for before, role, after in zip(chain, chain[1:], chain[2:]):
                if literal(before) and is_role(role) and literal(after):
                    self._mark_ends(before, after, site)
            for node in chain:
                if isinstance(node, nodes.Name) and node.name.endswith("_token"):
                    site(node)
        Replacer(replaced).visit(tree)

    def _mark_tokens(self, run: Sequence[nodes.Expr], site: Callable[[nodes.Expr], int]) -> None:
        """Mark the tokens in literals that stand one after the other."""
        starts, text = [], ""
        for node in run:
            starts.append(len(text))
            text += literal(node)
        for match in _alternation(self._in_literals).finditer(text):
            first = max(i for i, start in enumerate(starts) if start <= match.start())
            last = max(i for i, start in enumerate(starts) if start < match.end())
            opening = site(run[first]), match.start() - starts[first]
            closing = site(run[last]), match.end() - starts[last]
            self._marks.append(_Mark(opening, closing, match[0], None))

    def _mark_ends(
        self, before: nodes.Expr, after: nodes.Expr, site: Callable[[nodes.Expr], int]
    ) -> None:
        """Mark what may become a token with a role in the middle: "<|" and "|>"."""
        left, right = literal(before), literal(after)
        whole = max(
            (match.end() for match in _alternation(self._in_literals).finditer(left)), default=0
        )
        ends = [
            (len(prefix), len(suffix))
            for token in self._controls
            if (prefix := _overlap(left[whole:], token)) and len(prefix) < len(token)
            if (suffix := _overlap(token[len(prefix) :], right)) and suffix != token[len(prefix) :]
        ]
        if ends:
            head, tail = max(ends)
            self._marks.append(
                _Mark(
                    (site(before), len(left) - head), (site(after), tail),
                    left[len(left) - head :], right[:tail],
                )
            )  # fmt: skip

    # --- rendering -----------------------------------------------------------------------------

    def spans(
        self,
        render: Render,
        variables: Mapping[str, Any],
        named: Mapping[str, str],
        plain: str,
        texts: Iterable[str],
    ) -> list[Span]:
        """Where in `plain` the template wrote a control token: (start, stop) of each.

        plain: the template's own rendering with these variables. named: those of the variables that
        hold a token of the template's (bos_token). texts: all that people wrote.

        Raises ValueError where the template treats a token so that it can't be told whose it is.
        """
        texts = list(texts)
        marks = self._free_marks([self._source, plain, *texts])

        def attempt(enabled: frozenset[int]) -> _Cut | None:
            """The marked rendering, or None if it is another one without its marks."""
            sites = self._site_variables(enabled, marks, named, variables)
            try:
                cut = _cut_at(marks, render(self.template, {**variables, **sites}))
            except ValueError:
                return None
            return cut if "".join(cut.texts) == plain else None

        marked = attempt(self._enabled)
        if marked is None:
            enabled, marked = self._enable_most(attempt)
            if marked is None:
                raise ValueError(
                    "the chat template gives another text each time it is rendered, so its control "
                    "tokens can't be told from those that people write; if you trust the texts, "
                    'pass allowed_special="all"'
                )
            self._enabled = enabled
        found = list(self._find(marked))
        if lost := self._lost(plain, found, named, texts):
            raise ValueError(
                f"the chat template writes {lost!r} and reads it again, so that it can't be told "
                "from one that people write; if you trust the texts, pass "
                'allowed_special="all"'
            )
        return found

    def _free_marks(self, texts: Iterable[str]) -> list[str]:
        """Two characters for each mark, and two for named tokens, that no text holds."""
        suspects = [text for text in texts if _BEGIN in _utf8(text)]
        taken = {char for text in suspects for char in text}
        free = (chr(code) for code in range(FIRST_MARK, 0x110000) if chr(code) not in taken)
        marks = list(islice(free, 2 * len(self._marks) + 2))
        if len(marks) < 2 * len(self._marks) + 2:
            raise ValueError("the chat template writes too many control tokens to be told apart")
        return marks

    def _site_variables(
        self,
        enabled: frozenset[int],
        marks: Sequence[str],
        named: Mapping[str, str],
        variables: Mapping[str, Any],
    ) -> dict[str, Any]:
        """What stands for each literal: with its marks where its site is enabled."""
        inserted: dict[int, list[tuple[int, int, str]]] = {}  # site -> place, order, mark
        for number, mark in enumerate(self._marks):
            if mark.opening[0] in enabled and mark.closing[0] in enabled:
                for (site, place), order in ((mark.opening, 1), (mark.closing, 0)):
                    char = marks[2 * number + 1 - order]
                    inserted.setdefault(site, []).append((place, order, char))
        values: dict[str, Any] = {}
        for site, (key, text, name) in enumerate(self._sites):
            if name is None:
                value = _inserted(text, inserted.get(site, ()))
            elif name not in variables:
                continue
            elif site in enabled and name in named and variables[name] in self._controls:
                value = marks[-2] + variables[name] + marks[-1]
            else:
                value = variables[name]
            values[key] = value
        return values

    def _enable_most(
        self, attempt: Callable[[frozenset[int]], _Cut | None]
    ) -> tuple[frozenset[int], _Cut | None]:
        """The sites whose marks change nothing, and the rendering with them."""
        enabled: frozenset[int] = frozenset()
        marked = attempt(enabled)
        waiting = [range(len(self._sites))] if marked is not None else []  # to be tried together
        while waiting:
            sites = waiting.pop()
            trial = attempt(enabled.union(sites))
            if trial is not None:
                enabled, marked = enabled.union(sites), trial
            elif len(sites) > 1:
                half = len(sites) // 2
                waiting += [sites[half:], sites[:half]]
        return enabled, marked

    def _find(self, marked: _Cut) -> Iterator[Span]:
        """The spans, without marks, of tokens between two marks that belong together."""
        opened, place = -1, 0
        for text, number in zip(marked.texts, marked.numbers):
            start, place = place, place + len(text)  # of the text in front of the mark
            if opened >= 0 and number == opened + 1 and self._is_token(text, number):
                yield start, place
            opened = number if number % 2 == 0 else -1

    def _is_token(self, text: str, number: int) -> bool:
        if text not in self._controls:
            return False
        if number // 2 == len(self._marks):
            return True  # a named token
        mark = self._marks[number // 2]
        if mark.suffix is None:
            return text == mark.prefix
        return text.startswith(mark.prefix) and text.endswith(mark.suffix)

    def _lost(
        self, plain: str, found: Sequence[Span], named: Mapping[str, str], texts: Sequence[str]
    ) -> str | None:
        """A token of the template's in the rendering that is nobody's text and was not found."""
        places = set(found)
        tokens = self._in_literals | self._controls.intersection(named.values())
        for match in _alternation(tokens).finditer(plain):
            if match.span() not in places and not any(match[0] in text for text in texts):
                return match[0]
        return None


# --- texts -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _alternation(texts: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _overlap(left: str, right: str) -> str:
    """The longest end of left that is a beginning of right.

    >>> _overlap("x<|", "<|user|>")
    '<|'
    """
    lengths = range(min(len(left), len(right)), 0, -1)
    return next((right[:n] for n in lengths if left.endswith(right[:n])), "")


def _inserted(text: str, marks: Iterable[tuple[int, int, str]]) -> str:
    """text with each mark at its place; of two at one place the closing one comes first."""
    for place, _, char in sorted(marks, reverse=True):
        text = text[:place] + char + text[place:]
    return text


class _Cut(NamedTuple):
    """A marked text: what stands between the marks, and their numbers."""

    texts: list[str]
    numbers: list[int]  # one fewer


def _cut_at(marks: Sequence[str], text: str) -> _Cut:
    number_of = {mark.encode(): number for number, mark in enumerate(marks)}
    first, *others = _utf8(text).split(_BEGIN)
    parts, numbers = [first], []
    for part in others:
        number = number_of.get(_BEGIN + part[:2])
        if number is None:  # a character of somebody's text
            parts[-1] += _BEGIN + part
        else:
            parts.append(part[2:])
            numbers.append(number)
    return _Cut([part.decode("utf-8", "surrogatepass") for part in parts], numbers)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
