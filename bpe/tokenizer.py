"""text -> ids and ids -> text: the Tokenizer, which joins the stages that the other files hold.

    text --added--> stretches --pretokenize--> pieces --merge--> ids       (encode)
                    stretches --words--> ids                 (what was met before)
    ids --token bytes--> bytes --UTF-8--> text                             (decode)

Blind spot: it does not know file formats (formats/) nor how a template is rendered (chat.py).
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from os import PathLike
from typing import TYPE_CHECKING, Any

from bpe import formats
from bpe.encoding.added import AddedTokens, Stretch
from bpe.encoding.byte_pieces import BytePieceCache
from bpe.encoding.pieces import PieceCache
from bpe.encoding.post_process import pad_batch, post_process
from bpe.encoding.pretokenize import PreTokenizer
from bpe.encoding.words import WordCache
from bpe.garbage import no_garbage_collection
from bpe.spec import AddedToken, Spec

if TYPE_CHECKING:
    from bpe.encoding.inside import Inside
    from bpe.encoding.workers import Workers

DECODED_AT_ONCE = 4096  # ids; more would go through main memory


class Tokenizer:
    """A byte-level BPE tokenizer; see from_file, from_pretrained, encode and decode."""

    def __init__(self, spec: Spec, *, unicode: str = "huggingface") -> None:
        """unicode: "huggingface" (the tables models are trained with) or "current" (Python's)."""
        self.spec = spec
        self._unicode = unicode
        self._workers: Workers | None = None  # of encode_batch, started when first needed
        self._pre_tokenizer = PreTokenizer(spec, unicode=unicode)
        self._added = AddedTokens(
            spec.added_tokens, self._pre_tokenizer.normalize, self._pre_tokenizer.as_classed
        )
        self._special_ids = frozenset(token.id for token in self._added.special)
        self._control_tokens = frozenset(t for t in spec.added_tokens if not t.is_word)
        self._control_texts = frozenset(token.content for token in self._control_tokens)
        if self._pre_tokenizer.cuts_bytes:
            self._pieces: PieceCache = BytePieceCache(spec, self._pre_tokenizer.split_bytes)
        else:
            self._pieces = PieceCache(spec)
        self._words: WordCache | None = None
        if self._pre_tokenizer.cuts_before_words:
            self._words = WordCache(self._pre_tokenizer, self._pieces, self._encode_pieces)
        self._token_bytes = dict(spec.token_bytes)  # id -> its bytes
        self._token_bytes |= {token.id: token.content.encode() for token in spec.added_tokens}
        self._vocab_size = max(self._token_bytes) + 1

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        normalizer: str | None = None,
        unicode: str = "huggingface",
    ) -> Tokenizer:
        """Load a tokenizer.json, a .gguf, a rank table (.tiktoken) or a vocab.json and merges.txt.

        pattern: how text is split: "gpt2", "qwen", "llama3", "gpt4o" or a regex in tiktoken's
        syntax (Rust's), read as tiktoken reads it; but what it leaves between its matches is kept.
        special_tokens: text -> id. normalizer: "nfc" or none. These three are for rank tables and
        vocab.json alone, where nothing is guessed; the other files hold them.

        Raises FileNotFoundError, or ValueError with what was found and is not supported.
        """
        with no_garbage_collection():  # a quarter of the time
            spec = formats.read_file(
                path, pattern=pattern, special_tokens=special_tokens, normalizer=normalizer
            )
            with formats.errors_of(path):
                return cls(spec, unicode=unicode)

    @classmethod
    def from_pretrained(
        cls, name: str | PathLike[str], *, unicode: str = "huggingface"
    ) -> Tokenizer:
        """Load what people name: a model directory, with its chat template, or a file as from_file
        reads it; a Hub id (ORG/NAME); or a family's name, such as "qwen3".

        Raises FileNotFoundError where there is none, RuntimeError where the Hub can't give it.
        """
        from bpe.formats.named import read_named

        with no_garbage_collection():
            spec = read_named(name)
            with formats.errors_of(name):
                return cls(spec, unicode=unicode)

    def __repr__(self) -> str:
        spec = self.spec
        templates = f", chat templates: {', '.join(spec.chat_templates)}"
        return (
            f"<Tokenizer of {self.vocab_size:,} ids, {len(spec.added_tokens)} of them added"
            f"{templates if spec.chat_templates else ''}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: what it is made from; no cache, no process of encode_batch."""
        return {"spec": self.spec, "unicode": self._unicode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with no_garbage_collection():
            self.__init__(**state)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id: the ids of a complete tokenizer are range(vocab_size)."""
        return self._vocab_size

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of the control tokens, which decode(skip_special_tokens=True) leaves out."""
        return self._special_ids

    @property
    def inside(self) -> Inside:
        """The stages of encode, to be looked at one by one; lab explains ids with them."""
        from bpe.encoding.inside import Inside

        return Inside.of(self._added, self._pre_tokenizer, self._pieces)

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of a token given as its text or bytes (" the", not "Ġthe"), or None."""
        token = token.encode() if isinstance(token, str) else token
        added = self._added.by_bytes.get(token)
        if added:
            return added.id
        id = self.spec.vocab.get(token)
        return self.spec.dead_tokens.get(token.decode("utf-8", "replace")) if id is None else id

    def get_vocab(self) -> dict[bytes, int]:
        """token -> id for all tokens, each as its bytes; an added token's are its text in UTF-8."""
        return {**self.spec.vocab, **{token: one.id for token, one in self._added.by_bytes.items()}}

    @property
    def bos_id(self) -> int | None:
        """The id of what the files name bos_token (eos_token, ...), or None if they name none."""
        return self._named_id("bos_token")

    @property
    def eos_id(self) -> int | None:
        return self._named_id("eos_token")

    @property
    def unk_id(self) -> int | None:
        return self._named_id("unk_token")

    @property
    def pad_id(self) -> int | None:
        return self._named_id("pad_token")

    def id_to_token(self, id: int) -> bytes:
        """The bytes of a token; an added token's are its text in UTF-8. ValueError if unknown."""
        return self.decode_bytes([id])

    def encode(
        self,
        text: str,
        *,
        allowed_special: str | Collection[str] = "none",
        added_tokens: bool = True,
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The ids of text.

        allowed_special: which special tokens may be matched in the text. "none", "all" (what
            Hugging Face tokenizers does) or a collection of their texts. The others stay ordinary
            text, so that a user's "<|im_end|>" does not end a turn.
        added_tokens: False matches no added token at all, not even those that are not special.
        add_special_tokens: put in what the file's post-processor adds (such as a BOS token).

        Raises TypeError if text is not a str, ValueError if it holds a lone surrogate.
        """
        _check_text(text)
        if added_tokens:
            stretches = self._added.cut(text, self._added.forbidden(allowed_special))
        else:
            stretches = (self._pre_tokenizer.normalize(text),)
        ids = self._encode_stretches(stretches, text)
        return post_process(ids, self.spec, add_special_tokens=add_special_tokens)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: str | Collection[str] = "none",
        added_tokens: bool = True,
    ) -> list[tuple[int, int, int]]:
        """(id, start, end) for each id: where in text it came from, in characters as given.

        The ids are those of encode with the same options. A character whose bytes are shared by
        several tokens is in the span of each. Where the file asks for trim_offsets, the spaces at
        both ends of a token are left out.
        """
        from bpe.encoding.offsets import encode_with_offsets

        _check_text(text)
        spans = encode_with_offsets(
            text,
            self._added if added_tokens else AddedTokens((), self._pre_tokenizer.normalize),
            self._added.forbidden(allowed_special),
            self._pre_tokenizer,
            self._pieces,
            self._token_bytes,
            self.spec.trim_offsets,
        )
        try:
            return list(spans)
        except UnicodeEncodeError as error:
            raise _surrogate_error(text) from error

    def encode_batch(
        self, texts: Iterable[str], *, workers: int | None = None, **options: Any
    ) -> list[list[int]]:
        """encode for each text, in order, with encode's options.

        workers: how many processes share the work. None: as many as there are cores, if there is
        enough text to be worth it. They are kept for the next batch and end with this tokenizer;
        a process that is forked from this one starts its own.
        """
        from bpe.encoding import workers as batch

        if isinstance(texts, str):
            raise TypeError("encode_batch takes a list of texts, not one; pass [text], or encode")
        texts = list(texts)
        for text in texts:
            _check_text(text)
        if workers is None:
            is_small = sum(map(len, texts)) < batch.SMALL_BATCH_CHARACTERS
            workers = 1 if is_small else batch.available_cores()
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if workers == 1:
            return pad_batch([self.encode(text, **options) for text in texts], self.spec.padding)
        processes = self._workers  # of this thread, whatever another one puts there meanwhile
        if processes is None or not processes.are_ours(workers):
            processes = self._workers = batch.Workers(workers, self)
        try:
            return pad_batch(processes.encode(texts, options), self.spec.padding)
        except RuntimeError:  # one of them died: the next batch starts new ones
            self._workers = None
            raise

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that ids stand for, exactly. ValueError names an id that is no token."""
        if isinstance(ids, (str, bytes, int)):
            raise TypeError(f"decode takes a list of ids, not {_shown(ids)}")
        ids = list(ids)
        parts = (ids[i : i + DECODED_AT_ONCE] for i in range(0, len(ids), DECODED_AT_ONCE))
        try:
            return b"".join([b"".join(self._bytes_of(part)) for part in parts])
        except (KeyError, TypeError):
            raise self._unknown_id(ids) from None

    def decode(
        self,
        ids: Iterable[int],
        *,
        skip_special_tokens: bool = False,
        errors: str = "replace",
    ) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD (or as errors says).

        skip_special_tokens leaves special tokens out; the bytes on both sides of one then join.
        """
        if skip_special_tokens and not isinstance(ids, (str, bytes, int)):
            ids = [id for id in ids if id not in self._special_ids]
        return self.decode_bytes(ids).decode("utf-8", errors)

    def stream(self, *, skip_special_tokens: bool = False) -> Stream:
        """A decoder that takes ids one by one and gives text as soon as it is complete."""
        return Stream(self, skip_special_tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        tokenize: bool = True,
        *,
        template: str | None = None,
        allowed_special: str = "none",
        continue_final_message: bool = False,
        **template_variables: Any,
    ) -> list[int] | str:
        """A conversation in the model's own format, as ids or (tokenize=False) as text.

        messages: mappings with "role", "content" and whatever else the template reads.
        template: the name of one of several templates, or a Jinja source.
        continue_final_message: end inside the last message, so that a model goes on with it.
        template_variables: more of what the template reads, such as documents.
        allowed_special: "none" keeps the text of control tokens text inside messages, tools and all
            other variables, so only the template itself writes them; "all" matches them there too,
            as Hugging Face does.

        Raises ValueError where there is no template or it fails, with its line.
        """
        from bpe import chat  # jinja2 is imported only by who needs it

        if allowed_special not in ("none", "all"):
            raise ValueError(
                f'allowed_special={allowed_special!r} is neither "none" nor "all" here'
            )
        rendered = chat.render(
            chat.choose_template(self.spec.chat_templates, template, has_tools=bool(tools)),
            {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
            | template_variables,
            self.spec.named_tokens,
            controls=self._control_texts if tokenize and allowed_special == "none" else (),
            continue_final_message=continue_final_message,
        )
        if not tokenize:
            return rendered.text
        if allowed_special == "all":
            stretches = self._added.cut(rendered.text)
        else:
            stretches = self._added.cut_at(rendered.controls, rendered.text, self._control_tokens)
        return self._encode_stretches(stretches, rendered.text)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a tokenizer.json that Hugging Face tokenizers loads with the same ids."""
        formats.write_tokenizer_json(self.spec, path)

    def _named_id(self, name: str) -> int | None:
        token = self.spec.named_tokens.get(name)
        return None if token is None else self.token_to_id(token)

    def _encode_stretches(self, stretches: Iterable[Stretch], text: str) -> list[int]:
        """The ids of what text was cut into."""
        ids: list[int] = []
        try:
            for stretch in stretches:
                if isinstance(stretch, AddedToken):
                    ids.append(stretch.id)
                else:
                    ids += self._encode_normalized(stretch)
        except UnicodeEncodeError as error:
            raise _surrogate_error(text) from error
        return ids

    def _encode_normalized(self, text: str) -> Iterable[int]:
        return self._encode_pieces(text) if self._words is None else self._words.encode(text)

    def _encode_pieces(self, text: str) -> Iterator[int]:
        chunks = map(self._pre_tokenizer.split, self._pre_tokenizer.chunks(text))
        return chain.from_iterable(map(self._pieces.__getitem__, chain.from_iterable(chunks)))

    def _bytes_of(self, ids: list[int]) -> Iterable[bytes]:
        """The bytes of each id; itemgetter looks all of them up in one call of C code."""
        return itemgetter(*ids)(self._token_bytes) if len(ids) > 1 else [self._token_bytes[ids[0]]]

    def _unknown_id(self, ids: list[int]) -> ValueError:
        is_id = [isinstance(id, int) and id in self._token_bytes for id in ids]
        position = is_id.index(False)
        id, last = ids[position], self.vocab_size - 1
        if not isinstance(id, int) or id < 0:
            why = "is not a token id"
        elif id > last:
            why = f"is beyond the last token, {last}; it can only pad a model's embedding"
        else:
            why = "has no token: it is a hole in the vocabulary"
        return ValueError(f"id {id!r} at position {position} {why}")


class Stream:
    """Ids in, text out, never half a character: push each id, then finish.

    All pushes and finish joined equal decode of all the ids. Python's incremental UTF-8 decoder
    holds back only bytes that may still begin a character, so text comes as early as it can.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        """The text that becomes complete with this id; often a word, sometimes nothing."""
        if id in self._skipped:
            return ""
        return self._decoder.decode(self._tokenizer.decode_bytes([id]))

    def finish(self) -> str:
        """What was held back: U+FFFD if the last character never became complete."""
        return self._decoder.decode(b"", final=True)


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        hint = "; decode the bytes first" if isinstance(text, (bytes, bytearray)) else ""
        raise TypeError(f"encode takes a str, not {type(text).__name__}{hint}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _surrogate_error(text: str) -> ValueError:
    position, char = next((i, c) for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")
    return ValueError(
        f"character {position} of the text is a lone surrogate (U+{ord(char):04X}), which UTF-8 "
        'cannot hold; text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") repairs it'
    )
