r"""tokenizer.ggml.pre -> how the models of that name split text; a GGUF file says no more.

A name stands for what its model's own tokenizer.json has, where that is known, since a model was
trained with those ids: Falcon's digits are cut behind the byte alphabet, GPT-4o's pattern tells
upper from lower case beyond ASCII, and the texts of GPT-NeoX's, Qwen's and Command-R's kin are
normalized. llama.cpp does the first two only nearly and the third not at all. Where the file is
not known the pattern is llama.cpp's. Text between the matches of a pattern is a piece as well.
Blind spot: files.

Sources: the names and patterns that llama.cpp lists, and the models' published files.
"""

from __future__ import annotations

from typing import NamedTuple

from bpe.encoding.oniguruma import to_common_syntax
from bpe.encoding.unicode16 import parse_ranges
from bpe.formats.steps import PUNCTUATION
from bpe.spec import (
    GPT2_PATTERN,
    GPT4O_PATTERN,
    LLAMA3_PATTERN,
    NUMERIC,
    QWEN_PATTERN,
    ByteAlphabet,
    Normalize,
    Split,
    Step,
)


class Named(NamedTuple):
    """What a name says; the tokens and merges are in the file."""

    steps: tuple[Step, ...]
    normalizer: tuple[Normalize, ...]
    ignore_merges: bool
    adds_bos: bool  # unless the file says otherwise
    mask: str  # a token that takes the white space in front of it


class _Rule(NamedTuple):
    names: str
    steps: tuple[str | Step, ...]  # a text is a regex as tokenizer.json has it
    is_nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False
    mask: str = ""


def _class(ranges: str) -> str:
    return "".join(f"{chr(span[0])}-{chr(span[-1])}" for span in parse_ranges(ranges))


# The letters that DeepSeek-LLM joins: of scripts with upper and lower case.
_DEEPSEEK_LETTERS = "A-Za-z" + _class(
    """
    B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C
    38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF
    1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B
    1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC
    1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134
    2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D
    A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A
    10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943
    """
)
_DEEPSEEK_MARKS = "!-/:-~" + _class("FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DEEPSEEK_CJK = f"[{_class('4E00-9FA5 800-4E00 AC00-D7FF')}]+"
_CJK = f"[{_class('4E00-9FA5 3040-309F 30A0-30FF')}]+"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_AFMOE_SCRIPTS = _class(
    "4E00-9FFF 3400-4DBF 8C48-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF "
    "1780-17FF 1000-109F AA60-AA7F A9E0-A9FF AC00-D7AF 1100-11FF"
)
_YOUTU_SCRIPTS = (
    f"[{_class('AC00-D7A3 3131-318E')}]+"
    f"|[{_class('FF01 2026 2018-2019 201C-201D 2014 FF1A-FF1B FF0C 3001-303F FE30-FE4F')}]+"
    f"|[{_class('3105-312F')}]+|{_CJK}"
)
_QWEN35_PATTERN = QWEN_PATTERN.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(
    r" ?[^\s\p{L}\p{N}]", r" ?[^\s\p{L}\p{M}\p{N}]"
)
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_KIMI_PATTERN = r"[\p{Han}]+|" + GPT4O_PATTERN.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(
    r"[\r\n/]*", r"[\r\n]*"
)
_BLOOM_PATTERN = r" ?[^(\s|.,!?…。，、।۔،)]+"
_FALLING_RUNS = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))

_DIGIT, _DIGITS = Split(NUMERIC), Split(f"{NUMERIC}+")  # the step Digits

_RULES = (
    _Rule("gpt-2 phi-2 gigachat a.x-4.0 mellum jais trillion granite-docling exaone4",
          (GPT2_PATTERN,)),
    _Rule("mpt olmo", (GPT2_PATTERN,), is_nfc=True),
    _Rule("modern-bert", (GPT2_PATTERN,), is_nfc=True, mask="[MASK]"),
    _Rule("roberta-bpe jina-v1-en jina-es jina-de jina-v2-es jina-v2-de jina-v2-code",
          (GPT2_PATTERN,), mask="<mask>"),
    _Rule("starcoder refact smollm codeshell exaone minerva-7b mellum2", (_DIGIT, GPT2_PATTERN)),
    _Rule("command-r", (_DIGIT, GPT2_PATTERN), is_nfc=True),
    _Rule("falcon", (Split(PUNCTUATION, "Contiguous"), GPT2_PATTERN, ByteAlphabet(), _DIGITS,
                     "[0-9][0-9][0-9]")),
    _Rule("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
          (LLAMA3_PATTERN,), ignore_merges=True, adds_bos=True),
    _Rule("dbrx smaug-bpe chatglm-bpe", (LLAMA3_PATTERN,)),
    _Rule("glm4 glm5", (LLAMA3_PATTERN,), ignore_merges=True),
    _Rule("jais-2", (LLAMA3_PATTERN.replace(r"\s+(?!\S)|\s+", rf"{_FALLING_RUNS}|\s"),)),
    _Rule("minicpm5", (r"\p{N}{1,3}", LLAMA3_PATTERN.replace("{1,3}", "+")), ignore_merges=True),
    _Rule("qwen2", (QWEN_PATTERN,), is_nfc=True),
    _Rule("qwen35", (_QWEN35_PATTERN,), is_nfc=True),
    _Rule("deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
          (QWEN_PATTERN,)),
    _Rule("ufakzeka", (QWEN_PATTERN.removeprefix(f"{_CONTRACTION}|"),)),
    _Rule("laguna", (r"[^\n]+|[\n]+", QWEN_PATTERN)),
    _Rule("seed-coder", (QWEN_PATTERN.replace(r"\p{L}\p{N}]+[\r\n]*", r"\p{L}\p{N}\r\n]+"),)),
    _Rule("bailingmoe bailingmoe2 llada-moe",
          (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
           r"|\s*[\r\n]|\s+(?!\S)|\s+",)),
    _Rule("exaone-moe",
          (_CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)),
    _Rule("gpt-4o llama4 kanana2 talkie minimax-m2", (GPT4O_PATTERN,)),
    _Rule("granite-embed-multi-97m", (GPT4O_PATTERN,), ignore_merges=True),
    _Rule("tekken",
          (GPT4O_PATTERN.replace(f"{_CONTRACTION}?", "").replace(r"\p{N}{1,3}", r"\p{N}"),),
          ignore_merges=True, adds_bos=True),
    _Rule("tiny_aya cohere2moe", (r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O_PATTERN)),
    _Rule("youtu", (_YOUTU_SCRIPTS, GPT4O_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")),
          ignore_merges=True),
    _Rule("kimi-k2", (_KIMI_PATTERN,)),
    _Rule("deepseek-llm",
          (r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_MARKS}]+", r"\s+$",
           _DEEPSEEK_CJK, _DIGIT)),
    _Rule("deepseek-coder", (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, _DIGIT)),
    _Rule("deepseek-v3 hunyuan-dense joyai-llm hy_v4", (r"\p{N}{1,3}", _CJK, _DEEPSEEK3)),
    _Rule("spark2_5",
          (r"\p{N}{1,3}", _CJK, _DEEPSEEK3.replace(r"+[\r\n]*|\s*[\r\n]+", r"+|[\r\n]"),
           r"\p{N}")),
    _Rule("afmoe",
          (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", f"[{_AFMOE_SCRIPTS}]+", _DEEPSEEK3)),
    _Rule("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    _Rule("bloom poro-chat gpt3-finnish", (_BLOOM_PATTERN,)),
    _Rule("viking", (_BLOOM_PATTERN, r"\p{N}")),
    _Rule("chameleon",
          ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
           _DIGIT, Split(PUNCTUATION), GPT2_PATTERN), adds_bos=True),
    _Rule("default",
          (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")),
)  # fmt: skip
_RULE_OF = {name: rule for rule in _RULES for name in rule.names.split()}
_NOT_BYTE_LEVEL = ("gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace")


def named(pre: str) -> Named:
    """What a name says. ValueError where it is not known, or not of byte-level tokens."""
    if pre in _NOT_BYTE_LEVEL:
        raise ValueError(
            f"tokenizer.ggml.pre is {pre!r}, whose tokens are of characters, not of bytes, so this "
            "is not byte-level BPE"
        )
    if pre not in _RULE_OF:
        raise ValueError(f"tokenizer.ggml.pre is {pre!r}; we know {', '.join(sorted(_RULE_OF))}")
    rule = _RULE_OF[pre]
    return Named(
        steps=tuple(
            Split(to_common_syntax(step)) if isinstance(step, str) else step for step in rule.steps
        ),
        normalizer=(Normalize("NFC"),) if rule.is_nfc else (),
        ignore_merges=rule.ignore_merges,
        adds_bos=rule.adds_bos,
        mask=rule.mask,
    )
