"""rules -> Spec: what a tokenizer *is*, as plain frozen data: no file format, no algorithm.

A Spec is what formats/ reads from a file and what Tokenizer runs. Its blind spot: it does not
know where it came from, nor how text is cut or merged; it only says with which rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Any

# GPT-2's released encoder; ByteLevel(use_regex=True) means this pattern.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # Qwen2, Qwen2.5 and Qwen3: Llama 3's pattern with digits one by one

LLAMA3_PATTERN = QWEN_PATTERN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")  # GPT-4's (cl100k) as well

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # GPT-4o and gpt-oss (o200k): words are cut where lower case turns to upper case

# What counts as a digit where a file asks for digits by name: the numbers of Unicode 17, of which
# the tables of the regexes lack these.
NUMERIC = rf"[\p{{N}}{''.join(map(chr, (*range(0x11DE0, 0x11DEA), 0x16FF4, 0x16FF5, 0x16FF6)))}]"

PATTERNS = {  # the names that callers may use
    "gpt2": GPT2_PATTERN,
    "qwen": QWEN_PATTERN,
    "llama3": LLAMA3_PATTERN,
    "gpt4o": GPT4O_PATTERN,
}

# Every byte of ordinary UTF-8 text. A vocabulary must have them all; vocabularies that were trained
# without a full alphabet (SmolLM2's) lack some of the others: controls, C0, C1, F1, F2, F5-FF.
TEXT_BYTES = (*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1), 0xF3)

MAX_ID = (1 << 32) - 1  # of ids and lengths, as everywhere in the ecosystem

BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")


@dataclass(frozen=True)
class Split:
    """Cut each piece at the matches of a regex (in the common syntax; see oniguruma.py).

    behavior says what becomes of a match: a piece of its own (Isolated), dropped (Removed), joined
    with its neighbours of the same kind (Contiguous) or with the text before or after it.
    invert swaps matches and the text between them.
    """

    pattern: str
    behavior: str = "Isolated"
    invert: bool = False

    def __post_init__(self) -> None:
        if self.behavior not in BEHAVIORS:
            raise ValueError(f"split behavior {self.behavior!r} is none of {', '.join(BEHAVIORS)}")


@dataclass(frozen=True)
class PrefixSpace:
    """Put one U+0020 in front of each piece that does not begin with one."""


@dataclass(frozen=True)
class ByteAlphabet:
    """Write each piece in the byte alphabet already here, in front of other steps (Falcon).

    These see one printable character for each byte, so that they may cut within a character.
    """


Step = Split | PrefixSpace | ByteAlphabet


@dataclass(frozen=True)
class Normalize:
    """Unicode normalization: form is NFC, NFD, NFKC or NFKD."""

    form: str

    def __post_init__(self) -> None:
        if self.form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise ValueError(f"normalizer {self.form!r} is none of NFC, NFD, NFKC and NFKD")


@dataclass(frozen=True)
class Lowercase:
    """Lowercase each character by itself (no final-sigma rule)."""


@dataclass(frozen=True)
class Replace:
    """Replace each match of a regex by a literal text."""

    pattern: str
    content: str


@dataclass(frozen=True)
class Prepend:
    """Put a text in front of every non-empty segment."""

    content: str


@dataclass(frozen=True)
class AddedToken:
    """A token matched as a whole in the text, before any regex or merge sees it.

    special tokens are control tokens: `encode` leaves their text alone unless it is allowed them.
    lstrip and rstrip swallow the white space beside a match, single_word refuses a match inside a
    word, normalized searches the normalized text instead of the raw one.
    """

    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False

    @property
    def is_word(self) -> bool:
        """Whether it is only a word or white space, so that it may come out of anybody's text."""
        return not self.special and re.fullmatch(r"[\w\s]+", self.content) is not None


@dataclass(frozen=True)
class Truncation:
    """Keep at most max_length ids of a text, its post-processing ids included."""

    max_length: int
    direction: str = "Right"


@dataclass(frozen=True)
class Padding:
    """Fill up to a multiple of multiple_of that holds length ids, with pad_id.

    length None stands for the longest of the texts that are encoded together.
    """

    pad_id: int
    length: int | None = None
    multiple_of: int | None = None
    direction: str = "Right"


@dataclass(frozen=True)
class Spec:
    """Everything that decides which ids a text gets, and which bytes an id gives back.

    vocab holds the byte-level tokens only; added tokens stand in added_tokens with their own ids
    (where a file lists one in both, the two agree). merges are pairs of ids, best rank first.
    dead_tokens are in the file's vocabulary and not in the byte alphabet: no text gives them, and
    their ids stand for their own text.
    """

    vocab: Mapping[bytes, int]  # token bytes -> id
    merges: tuple[tuple[int, int], ...]  # (left id, right id) in rank order; a repeat re-ranks
    pre_tokenizer: tuple[Step, ...]
    normalizer: tuple[Normalize | Lowercase | Replace | Prepend, ...] = ()
    added_tokens: tuple[AddedToken, ...] = ()
    dead_tokens: Mapping[str, int] = field(default_factory=dict)  # text -> id
    equal_ranks: bool = False  # all merges that give one token share one rank (tiktoken)
    ignore_merges: bool = False  # a whole piece that is a token is never merged (Llama 3)
    prefix_ids: tuple[int, ...] = ()  # what add_special_tokens=True puts in front (BOS) ...
    suffix_ids: tuple[int, ...] = ()  # ... and behind
    # Places leave out the spaces at both ends of a token, once for each; True: but for a single
    # one at the start of a text, which may have been put there.
    trim_offsets: tuple[bool, ...] = ()
    truncation: Truncation | None = None
    padding: Padding | None = None
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # name -> Jinja source
    named_tokens: Mapping[str, str] = field(default_factory=dict)  # "bos_token" -> its text
    # What follows from the above, found once:
    token_bytes: Mapping[int, bytes] = field(init=False, repr=False, compare=False)  # id -> token
    merged: tuple[int, ...] = field(init=False, repr=False, compare=False)  # what each merge gives

    def __post_init__(self) -> None:
        missing = [f"{byte:02X}" for byte in TEXT_BYTES if bytes([byte]) not in self.vocab]
        if missing:
            shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
            raise ValueError(
                f"the vocabulary has no token for {len(missing)} of the bytes that text is made of "
                f"({shown}), so it can't encode all text, as a byte-level vocabulary does"
            )
        owners: dict[int, str] = {}
        for token in self.added_tokens:
            if not token.content:
                raise ValueError(f"added token {token.id} is empty, so it would match everywhere")
            if owners.setdefault(token.id, token.content) != token.content:
                raise ValueError(
                    f"id {token.id} is given to {owners[token.id]!r} and {token.content!r}"
                )
        if len({token.content for token in self.added_tokens}) < len(self.added_tokens):
            raise ValueError("the same added token is listed twice")
        if len(set(self.vocab.values())) < len(self.vocab):
            raise ValueError("two tokens of the vocabulary have the same id")
        token_bytes = self._find_token_bytes()
        object.__setattr__(self, "token_bytes", token_bytes)
        ids = [*token_bytes, *owners]
        if min(ids) < 0 or max(ids) > MAX_ID:
            wrong = min(ids) if min(ids) < 0 else max(ids)
            raise ValueError(f"a token has the id {wrong}, which is not one of 0 to {MAX_ID}")
        for token in self.added_tokens:
            other = token_bytes.get(token.id)
            if other not in (None, token.content.encode()):
                raise ValueError(
                    f"id {token.id} is given to the added token {token.content!r} and to the "
                    f"vocabulary's {other!r}, so it can't be decoded"
                )
        object.__setattr__(self, "merged", self._find_merged())

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without what is sooner found again than read."""
        return {name: value for name, value in self.__dict__.items() if name != "token_bytes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        object.__setattr__(self, "token_bytes", self._find_token_bytes())

    def __deepcopy__(self, memo: object) -> Spec:
        return self  # nothing in it ever changes

    def _find_token_bytes(self) -> dict[int, bytes]:
        dead = {id: text.encode() for text, id in self.dead_tokens.items()}
        return dict(zip(self.vocab.values(), self.vocab)) | dead

    def _find_merged(self) -> tuple[int, ...]:
        halves = zip(*self.merges) if self.merges else ((), ())
        left, right = (map(self.token_bytes.__getitem__, ids) for ids in halves)
        try:
            return tuple(map(self.vocab.__getitem__, map(add, left, right)))
        except KeyError as error:
            raise ValueError(
                f"the merges use the token {error.args[0]!r}, which is not in the vocabulary"
            ) from None
