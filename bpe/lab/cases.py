"""nothing -> CASES: the named hard texts, each with the reason it is hard and each family's ids.

The ids are those of Hugging Face tokenizers 0.23.3 on the families' genuine files, with the text of
special tokens kept as text. Tests and benchmarks read this list too. Blind spot: decoding and chat
templates (tests/golden/ has those).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

FAMILIES = ("qwen3", "qwen2_5", "llama3", "gpt4o", "gptoss", "deepseek_v3", "gpt2")


@dataclass(frozen=True)
class Case:
    """A hard text: why it is hard, and family -> its ids."""

    name: str
    text: str
    why: str
    ids: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Mismatch:
    """A case that a tokenizer encodes otherwise than the reference; ids is None if it can't."""

    case: Case
    expected: tuple[int, ...]
    ids: tuple[int, ...] | None


class Encoder(Protocol):
    def encode(self, text: str) -> Sequence[int]: ...


def check(tokenizer: Encoder, family: str | Encoder) -> list[Mismatch]:
    """The cases that tokenizer encodes otherwise than a family (or another tokenizer) does.

    Raises ValueError for an unknown family.
    """
    if isinstance(family, str) and family not in FAMILIES:
        raise ValueError(f"{family!r} is no family of the cases; they are {', '.join(FAMILIES)}")
    found = []
    for case in CASES:
        expected = case.ids[family] if isinstance(family, str) else _ids(family, case.text)
        ids = _ids(tokenizer, case.text)
        if ids != expected:
            found.append(Mismatch(case, expected, ids))
    return found


def closest_family(tokenizer: Encoder) -> tuple[str, int]:
    """(the family with the same ids on most cases, on how many)."""
    same = {family: len(CASES) - len(check(tokenizer, family)) for family in FAMILIES}
    best = max(same, key=same.__getitem__)
    return best, same[best]


def _ids(tokenizer: Encoder, text: str) -> tuple[int, ...] | None:
    try:
        return tuple(tokenizer.encode(text))
    except ValueError:  # a byte that it has no token for
        return None


def _case(name: str, text: str, why: str, ids: Mapping[str, str]) -> Case:
    """ids: names of families -> their ids, both written with spaces between."""
    each = {
        family: tuple(map(int, numbers.split()))
        for families, numbers in ids.items()
        for family in families.split()
    }
    return Case(name, text, why, each)


CASES = (
    _case("plain", "The capital of France is",
          "the easy one: a word a token, each with the space before it", {
        "qwen3 qwen2_5": "785 6722 315 9625 374",
        "llama3": "791 6864 315 9822 374",
        "gpt4o gptoss": "976 9029 328 10128 382",
        "deepseek_v3": "671 6102 294 8760 344",
        "gpt2": "464 3139 286 4881 318",
    }),
    _case("empty", "",
          "no text, no ids; some libraries give a stray token", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss deepseek_v3 gpt2": "",
    }),
    _case("one_space", " ",
          "a piece of white space alone, with nothing for it to lead", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "220",
        "deepseek_v3": "223",
    }),
    _case("spaces_before_word", "   word",
          "all spaces but the last are one piece, the last goes with the word", {
        "qwen3 qwen2_5": "256 3409",
        "llama3": "256 3492",
        "gpt4o gptoss": "256 2195",
        "deepseek_v3": "262 2004",
        "gpt2": "220 220 1573",
    }),
    _case("spaces_before_digit", "   7",
          "nothing takes a space before a digit, so it stands alone", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss": "256 220 22",
        "deepseek_v3": "361 25",
        "gpt2": "220 220 767",
    }),
    _case("spaces_at_end", "word   ",
          "the lookahead sees no text behind, so all spaces stay together", {
        "qwen3 qwen2_5": "1158 262",
        "llama3": "1178 262",
        "gpt4o gptoss": "1801 271",
        "deepseek_v3": "3899 361",
        "gpt2": "4775 220 220 220",
    }),
    _case("tabs_and_lines", '\tif x:\n\t\treturn\n',
          "line breaks end a piece of white space, tabs begin the next line", {
        "qwen3 qwen2_5": "743 856 510 197 853 198",
        "llama3": "748 865 512 197 862 198",
        "gpt4o gptoss": "1224 1215 734 197 1393 198",
        "deepseek_v3": "5733 1527 1137 200 5562 201",
        "gpt2": "197 361 2124 25 198 197 197 7783 198",
    }),
    _case("blank_lines", 'a\n\n\nb',
          "line breaks join, over any number of empty lines", {
        "qwen3 qwen2_5": "64 1406 65",
        "llama3": "64 1432 65",
        "gpt4o gptoss": "64 2499 65",
        "deepseek_v3": "67 6328 68",
        "gpt2": "64 628 198 65",
    }),
    _case("carriage_returns", 'a\r\nb\rc',
          "CR and LF are line breaks alike and may be one token together", {
        "qwen3 qwen2_5 llama3": "64 319 65 201 66",
        "gpt4o gptoss": "64 370 65 201 66",
        "deepseek_v3": "67 204 201 68 204 69",
        "gpt2": "64 201 198 65 201 66",
    }),
    _case("no_break_space", 'a\xa0b',
          "white space to the regex, but two bytes that few tokens begin with", {
        "qwen3 qwen2_5": "64 4102 65",
        "llama3": "64 115648",
        "gpt4o gptoss": "64 5310 65",
        "deepseek_v3": "67 2162 68",
        "gpt2": "64 1849 65",
    }),
    _case("ideographic_space", '\u4e2d\u3000\u56fd',
          "white space that is three bytes long", {
        "qwen3 qwen2_5": "15946 22441 28404",
        "llama3": "16325 23249 29504",
        "gpt4o gptoss": "1404 1397 3052",
        "deepseek_v3": "525 18524 737",
        "gpt2": "40792 5099 222 32368 121",
    }),
    _case("next_line", 'a\x85b',
          "a control character that is white space to Unicode and not to every engine", {
        "qwen3 qwen2_5 gpt4o gptoss gpt2": "64 126 227 65",
        "llama3": "64 116360 65",
        "deepseek_v3": "67 129 230 68",
    }),
    _case("information_separators", 'a\x1c\x1d\x1e\x1fb',
          "white space to Python's re, not to these tokenizers", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "64 216 217 218 219 65",
        "deepseek_v3": "67 219 220 221 222 68",
    }),
    _case("zero_width_space", 'a\u200bb',
          "no white space, in spite of its name", {
        "qwen3 qwen2_5": "64 15692 65",
        "llama3": "64 16067 65",
        "gpt4o gptoss": "64 3310 65",
        "deepseek_v3": "67 35020 68",
        "gpt2": "64 9525 65",
    }),
    _case("byte_order_mark", '\ufefftext',
          "an invisible character that files begin with; it is text here", {
        "qwen3 qwen2_5": "3225 1318",
        "llama3": "3305 1342",
        "gpt4o gptoss": "5574 919",
        "deepseek_v3": "15251 2067",
        "gpt2": "171 119 123 5239",
    }),
    _case("nul", 'a\x00b',
          "a byte that ends strings in C", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "64 188 65",
        "deepseek_v3": "67 191 68",
    }),
    _case("contractions", "I'll don't we've",
          "a contraction is a piece of its own, or ends its word", {
        "qwen3 qwen2_5": "40 3278 1513 944 582 3003",
        "llama3": "40 3358 1541 956 584 3077",
        "gpt4o gptoss": "67504 4128 24716",
        "deepseek_v3": "43 5922 2090 1664 579 5270",
        "gpt2": "40 1183 836 470 356 1053",
    }),
    _case("contractions_in_capitals", "I'LL DON'T",
          "GPT-2 knows contractions in lower case only", {
        "qwen3 qwen2_5": "40 6 4086 44273 17323",
        "llama3": "40 6 4178 45373 17773",
        "gpt4o gptoss": "40 6 7454 153384",
        "deepseek_v3": "43 9 3699 74524 67322",
        "gpt2": "40 6 3069 23917 6 51",
    }),
    _case("long_s", "it'ſ",
          "ignoring case, the long s is an s, so this is a contraction", {
        "qwen3 qwen2_5": "275 6 144815",
        "llama3": "275 6 129 123",
        "gpt4o gptoss": "278 6 70067",
        "deepseek_v3": "279 9 75929",
        "gpt2": "270 6 129 123",
    }),
    _case("apostrophe_before_word", "'sample",
          "the contraction is tried first and takes the word's first letter", {
        "qwen3 qwen2_5": "594 1516",
        "llama3": "596 1545",
        "gpt4o gptoss": "885 2262",
        "deepseek_v3": "734 5404",
        "gpt2": "338 1403",
    }),
    _case("curly_apostrophe", "don’t",
          "not the apostrophe of the contractions", {
        "qwen3 qwen2_5": "15007 1405",
        "llama3": "15357 1431",
        "gpt4o gptoss": "22130 1573",
        "deepseek_v3": "20385 442 86",
        "gpt2": "9099 447 247 83",
    }),
    _case("digits", "1234567",
          "one by one, by three from the left, or as they come", {
        "qwen3 qwen2_5": "16 17 18 19 20 21 22",
        "llama3": "4513 10961 22",
        "gpt4o gptoss": "7633 19354 22",
        "deepseek_v3": "6895 18009 25",
        "gpt2": "10163 2231 3134",
    }),
    _case("digits_of_scripts", "٣٤ ½ Ⅷ ²",
          "numbers to the regex, though no ASCII digits", {
        "qwen3 qwen2_5": "149 96 149 97 220 26062 220 70467 100 220 29456",
        "llama3": "117413 124079 220 27154 220 71567 100 220 30556",
        "gpt4o gptoss": "81473 98713 220 27124 220 25371 100 220 13848",
        "deepseek_v3": "127056 152 100 223 23951 223 23603 103 223 1628",
        "gpt2": "149 96 149 97 25208 2343 227 100 1587 110",
    }),
    _case("digits_and_letters", "abc123def",
          "a number ends the word, and a word the number", {
        "qwen3 qwen2_5": "13683 16 17 18 750",
        "llama3": "13997 4513 755",
        "gpt4o gptoss": "26682 7633 1314",
        "deepseek_v3": "32372 6895 3465",
        "gpt2": "39305 10163 4299",
    }),
    _case("camel_case", "camelCaseHTTPServer",
          "some patterns cut where lower case turns to upper case", {
        "qwen3 qwen2_5": "93321 4207 9230 5475",
        "llama3": "94421 4301 9412 5592",
        "gpt4o gptoss": "178067 6187 17893 6444",
        "deepseek_v3": "69 31105 15434 10311 77093 20023",
        "gpt2": "66 17983 20448 6535 28820 18497",
    }),
    _case("decomposed", 're\u0301sume\u0301',
          "letters with marks: composed first, or cut before each mark", {
        "qwen3 qwen2_5": "42611 1242 963",
        "llama3": "265 54939 32423 54939",
        "gpt4o gptoss": "264 196970 3095 13430",
        "deepseek_v3": "266 17793 85 3041 17793",
        "gpt2": "260 136 223 82 2454 136 223",
    }),
    _case("composed", "résumé",
          "looks the same as the decomposed text, and has other bytes", {
        "qwen3 qwen2_5": "42611 1242 963",
        "llama3": "43711 1264 978",
        "gpt4o gptoss": "60278 74080",
        "deepseek_v3": "47953 90902",
        "gpt2": "29350 16345 2634",
    }),
    _case("vietnamese", 'ti\xea\u0301ng Vi\xea\u0323t',
          "a letter with two marks, half composed", {
        "qwen3 qwen2_5": "10251 26068 968 128324",
        "llama3": "10462 5615 54939 983 11655 5615 105001 83",
        "gpt4o gptoss": "2832 1172 13430 892 9981 1172 23396 83",
        "deepseek_v3": "9417 3972 17793 992 19239 3972 100819 86",
        "gpt2": "20259 25792 136 223 782 16049 25792 136 96 83",
    }),
    _case("angstrom", "Å K Ω",
          "NFC replaces these signs by letters, one of them by ASCII", {
        "qwen3 qwen2_5": "144044 730 7851 102",
        "llama3": "15284 104 29753 103 29753 99",
        "gpt4o gptoss": "10104 104 23966 103 23966 99",
        "deepseek_v3": "10419 107 14508 106 127051",
        "gpt2": "158 226 104 2343 226 103 2343 226 99",
    }),
    _case("greek_question_mark", "a;b",
          "NFC makes it a semicolon", {
        "qwen3 qwen2_5": "64 54933",
        "llama3 gpt4o gptoss gpt2": "64 137 122 65",
        "deepseek_v3": "67 140 125 68",
    }),
    _case("ligature", "ﬁn Ａ ①",
          "compatibility characters: NFC must leave them alone", {
        "qwen3 qwen2_5": "144300 77 62823 94 220 48312 254",
        "llama3": "171 71831 77 63923 94 220 118075",
        "gpt4o gptoss": "79332 77 60558 94 220 57019",
        "deepseek_v3": "14324 80 223 65503 223 16994",
        "gpt2": "171 105 223 77 27332 120 94 2343 239 254",
    }),
    _case("old_tables", 'a\u07f3\u07fdb',
          "two marks that newer Unicode tables would reorder", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "64 155 111 155 121 65",
        "deepseek_v3": "67 158 114 158 124 68",
    }),
    _case("thai", '\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48',
          "vowels and tones are marks, which some patterns cut from their letters", {
        "qwen3 qwen2_5": "35884 47171 20184 47171",
        "llama3": "36984 48271 20795 48271",
        "gpt4o gptoss": "12144 182260",
        "deepseek_v3": "107465 4695",
        "gpt2": "19567 245 19567 113 31479 230 19567 247 19567 113 31479 230",
    }),
    _case("hindi", '\u0915\u093f\u0924\u093e\u092c\u0947\u0902',
          "vowel signs are marks", {
        "qwen3 qwen2_5": "64704 42311 97 31411 105 54784 224",
        "llama3": "65804 100428 101861 100271",
        "gpt4o gptoss": "1016 4971 15063 2495",
        "deepseek_v3": "11018 24872 4235 108 31647",
        "gpt2": "11976 243 11976 123 11976 97 48077 11976 105 24231 229 11976 224",
    }),
    _case("arabic", '\u0645\u064f\u062d\u064e\u0645\u064e\u0651\u062f',
          "short vowels are marks, in an order that NFC changes", {
        "qwen3 qwen2_5": "10176 64604 29825 27910 10176 27910 73771 13325",
        "llama3": "10386 65704 30925 106202 107344 13628",
        "gpt4o gptoss": "414 8843 949 111034 5376 127404",
        "deepseek_v3": "745 7680 2212 52447 32134 816",
        "gpt2": "25405 149 237 148 255 24333 25405 24333 149 239 38843",
    }),
    _case("hangul_jamo", "한",
          "three jamo, which NFC composes to one syllable", {
        "qwen3 qwen2_5": "23573",
        "llama3 gpt4o gptoss gpt2": "157 226 240 157 227 94 157 228 104",
        "deepseek_v3": "91669 243 160 230 97 77738 107",
    }),
    _case("chinese", "今天天气很好，我们去公园散步。",
          "no spaces: a piece is a clause", {
        "qwen3 qwen2_5": "100644 104307 101243 3837 97639 85336 102077 111261 1773",
        "llama3": "110916 36827 102146 101600 53901 109806 86436 35417 106143 107471 65782 "
            "1811",
        "gpt4o gptoss": "10941 1487 25896 148483 69072 13817 5312 37075 84748 24952 788",
        "deepseek_v3": "5237 16652 12210 303 61835 17781 52843 320",
        "gpt2": "20015 232 25465 25465 36365 242 36181 230 25001 121 171 120 234 22755 239 "
            "20015 105 43889 119 17739 105 32368 255 46763 96 29826 98 16764",
    }),
    _case("rare_chinese", "𠮷野家",
          "a character of four bytes", {
        "qwen3 qwen2_5": "150152 99924 45629",
        "llama3": "172 254 106 115 102212 46729",
        "gpt4o gptoss": "172 254 106 115 28848 6150",
        "deepseek_v3": "175 257 109 118 6230 817",
        "gpt2": "172 254 106 115 34932 236 22522 114",
    }),
    _case("new_letter", '\U000323b0',
          "assigned after Unicode 16, so a letter only to newer tables", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "172 110 236 108",
        "deepseek_v3": "175 113 239 111",
    }),
    _case("emoji_family", '\U0001f468\u200d\U0001f469\u200d\U0001f467',
          "three emoji and two joiners, one picture", {
        "qwen3 qwen2_5": "145367 378 235 145233 378 235 145665",
        "llama3": "9468 239 101 102470 9468 239 102 102470 9468 239 100",
        "gpt4o gptoss": "28823 101 2524 28823 102 2524 28823 100",
        "deepseek_v3": "25730 104 46088 25730 105 46088 25730 103",
        "gpt2": "41840 101 447 235 41840 102 447 235 41840 100",
    }),
    _case("emoji_skin", "👍🏽",
          "an emoji and its colour", {
        "qwen3 qwen2_5": "144349 145375",
        "llama3": "9468 239 235 9468 237 121",
        "gpt4o gptoss": "82514 52622 121",
        "deepseek_v3": "92526 40965 124",
        "gpt2": "41840 235 8582 237 121",
    }),
    _case("flag", "🇫🇷",
          "two letters that are drawn as a flag", {
        "qwen3 qwen2_5": "145919 145070",
        "llama3": "9468 229 104 9468 229 115",
        "gpt4o gptoss": "55506 104 55506 115",
        "deepseek_v3": "43754 107 43754 118",
        "gpt2": "8582 229 104 8582 229 115",
    }),
    _case("keycap", '1\ufe0f\u20e3',
          "a digit, a selector and a keycap", {
        "qwen3 qwen2_5": "16 30543 158 225 96",
        "llama3": "16 31643 158 225 96",
        "gpt4o gptoss": "16 150858",
        "deepseek_v3": "19 53869",
        "gpt2": "16 37929 158 225 96",
    }),
    _case("zalgo", 'a\u0300\u0301\u0302\u0303\u0304\u0305',
          "a letter under a heap of marks", {
        "qwen3 qwen2_5": "6362 53839 136 224 136 225 136 226 136 227",
        "llama3": "64 97649 54939 118739 119074 136 226 136 227",
        "gpt4o gptoss": "64 23168 13430 128886 52279 136 226 136 227",
        "deepseek_v3": "67 45345 17793 75274 59436 70841 139 230",
        "gpt2": "64 136 222 136 223 136 224 136 225 136 226 136 227",
    }),
    _case("right_to_left", "שלום abc עולם",
          "two directions in one line; the bytes know nothing of it", {
        "qwen3 qwen2_5": "126654 39022 123855 124907",
        "llama3": "59511 50391 37769 251 40122 17732 95 37769 250 147 251",
        "gpt4o gptoss": "106154 75094 143896",
        "deepseek_v3": "8793 2328 16467 71490 6166 41141",
        "gpt2": "50227 40010 27072 147 251 450 66 14360 95 27072 40010 147 251",
    }),
    _case("bidi_controls", 'a\u202eb\u202cc',
          "invisible characters that turn the text around", {
        "qwen3 qwen2_5": "64 378 106 65 378 105 66",
        "llama3": "64 378 106 65 102380 66",
        "gpt4o gptoss": "64 152821 65 13067 66",
        "deepseek_v3": "67 300 109 68 124839 69",
        "gpt2": "64 447 106 65 447 105 66",
    }),
    _case("control_token", "<|endoftext|>",
          "text of a control token stays text unless it is allowed", {
        "qwen3 qwen2_5": "27 91 8691 723 427 91 29",
        "llama3": "27 91 8862 728 428 91 29",
        "gpt4o gptoss": "27 91 419 1440 919 91 29",
        "deepseek_v3": "30 94 523 2154 2067 94 32",
        "gpt2": "27 91 437 1659 5239 91 29",
    }),
    _case("chat_markup", '<|im_start|>user\nhi<|im_end|>',
          "the markup of one family is plain text to the others", {
        "qwen3 qwen2_5": "27 91 318 4906 91 29 872 198 6023 27 91 318 6213 91 29",
        "llama3": "27 91 318 5011 91 29 882 198 6151 27 91 318 6345 91 29",
        "gpt4o gptoss": "27 91 321 10949 91 29 1428 198 3686 27 91 321 13707 91 29",
        "deepseek_v3": "30 94 328 37864 94 32 5265 201 6366 30 94 328 42616 94 32",
        "gpt2": "27 91 320 62 9688 91 29 7220 198 5303 27 91 320 62 437 91 29",
    }),
    _case("think", "<think>x</think>",
          "an added token that is not special is matched in any text", {
        "qwen3": "151667 87 151668",
        "qwen2_5": "13708 766 28257 522 26865 29",
        "llama3": "14023 771 29357 524 27963 29",
        "gpt4o gptoss": "33313 881 173405 808 49631 29",
        "deepseek_v3": "30 37947 117306 1718 37947 32",
        "gpt2": "27 14925 29 87 3556 14925 29",
    }),
    _case("ruler", "=" * 60,
          "long runs merge by powers of two, from the left", {
        "qwen3 qwen2_5": "18782 10399",
        "llama3": "19311 10615",
        "gpt4o gptoss": "38551 21985",
        "deepseek_v3": "20971 72900 2802",
        "gpt2": "10052 4770 25609",
    }),
    _case("letters_run", "a" * 33,
          "one merge is applied again and again; which goes first decides", {
        "qwen3 qwen2_5": "69440 69440 69440 69440 64",
        "llama3": "70540 70540 70540 70540 64",
        "gpt4o gptoss": "117525 117525 117525 117525 64",
        "deepseek_v3": "89086 89086 89086 89086 67",
        "gpt2": "24794 24794 24794 24794 24794 24794 24794 24794 64",
    }),
    _case("code", 'def f(x):\n    return x**2  # ok\n',
          "indentation, operators, comments", {
        "qwen3 qwen2_5": "750 282 2075 982 262 470 856 334 17 220 671 5394 198",
        "llama3": "755 282 2120 997 262 471 865 334 17 220 674 5509 198",
        "gpt4o gptoss": "1314 285 4061 1883 271 622 1215 410 17 220 1069 4763 198",
        "deepseek_v3": "3465 285 4042 3395 361 1354 1527 666 20 223 1823 9109 201",
        "gpt2": "4299 277 7 87 2599 198 220 220 220 1441 2124 1174 17 220 1303 12876 198",
    }),
    _case("path", "C:\\Users\\new_file.txt",
          "backslashes that are no escapes", {
        "qwen3 qwen2_5": "34 7190 7137 59 931 2458 3909",
        "llama3": "34 7338 7283 59 943 2517 3996",
        "gpt4o gptoss": "34 16008 10554 59 1389 5933 7186",
        "deepseek_v3": "37 19804 24979 62 2839 19086 16415",
        "gpt2": "34 7479 14490 59 3605 62 7753 13 14116",
    }),
    _case("url", "https://example.com/?q=a%20b&c=1#top",
          "a mark in front of each word", {
        "qwen3 qwen2_5": "2428 1110 8687 905 17763 80 24239 4 17 15 65 5 66 28 16 2 3481",
        "llama3": "2485 1129 8858 916 18236 80 25222 4 508 65 5 66 28 16 2 3565",
        "gpt4o gptoss": "4172 1684 18582 1136 32316 80 53088 4 455 65 5 66 28 16 2 8169",
        "deepseek_v3": "5395 2272 30357 2193 47501 83 34397 7 397 68 8 69 31 19 5 16126",
        "gpt2": "5450 1378 20688 13 785 20924 80 28 64 4 1238 65 5 66 28 16 2 4852",
    }),
    _case("json", "{\"a\": [1, 2.5e-3, null]}",
          "quotes and brackets that merge in pairs", {
        "qwen3 qwen2_5": "4913 64 788 508 16 11 220 17 13 20 68 12 18 11 845 13989",
        "llama3": "5018 64 794 510 16 11 220 17 13 20 68 12 18 11 854 14316",
        "gpt4o gptoss": "10848 64 1243 723 16 11 220 17 13 20 68 12 18 11 1256 28000",
        "deepseek_v3": "24313 67 3362 764 19 14 223 20 16 23 71 15 21 14 5100 48663",
        "gpt2": "4895 64 1298 685 16 11 362 13 20 68 12 18 11 9242 48999",
    }),
    _case("replacement", "a�b",
          "a real U+FFFD, not the sign of a broken decoder", {
        "qwen3 qwen2_5": "64 5691 65",
        "llama3": "64 5809 65",
        "gpt4o gptoss": "64 3251 65",
        "deepseek_v3": "67 2808 68",
        "gpt2": "64 4210 65",
    }),
    _case("private_use", '\ue000\uf8ff',
          "characters that mean nothing to Unicode", {
        "qwen3 qwen2_5 llama3": "170 222 222 171 96 123",
        "gpt4o gptoss": "112593 222 171 169393",
        "deepseek_v3": "97817 225 174 99 126",
        "gpt2": "29773 222 171 96 123",
    }),
    _case("last_code_point", '\U0010ffff',
          "the last one of all, never assigned", {
        "qwen3 qwen2_5 llama3 gpt4o gptoss gpt2": "176 237 123 123",
        "deepseek_v3": "179 240 126 126",
    }),
)  # fmt: skip
