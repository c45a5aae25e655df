"""rng -> random byte-level tokenizer.json objects, and random texts for them.

Each field takes any value that the format allows and byte-level files use, in any combination: what
the peer is asked to load is as odd as it may be, and still valid. Blind spot: which ids are right.
"""

from collections import Counter

from tiny import BYTE_ORDER, GLYPH, added_token, merge_word

from bpe.spec import BEHAVIORS, PATTERNS

SCRIPTS = (
    "the The cat CAT don't DON'T we'll I'M x1 12345 3.14 foo_bar fooBar HTTPServer é É ß İ ſ"
    " \u212a naïve ﬁ Å \u212b ΑΣ ὈΔΥΣ Привет мир שלום مرحبا नमस्ते ไทย 한국어 \u1112\u1161\u11ab"
    " 日本語 カタカナ がぎ か\u3099 中文分词 😀 👩\u200d👧 🏴\U000e0067 ① ½ Ⅷ ٣"
    " e\u0301 a\u0323\u0301 \u0338"
    " ... // == != -- -> \" ' ’ ` ~ # _ __ a/b \ufeff \u00ad \x00 \x1c \x7f ｆｕｌｌ ㍿ ǅ ª ʰ"
).split(" ")
SPACES = (
    " ", "  ", "   ", " \n", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2028", "\x85", "\u3000",
    "\u2009", "\u200b", "\u200d", "\x0b", " \t ", "\r", "\u1680 ",
)  # fmt: skip
EVERY = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
BLOCKS = [EVERY[start : start + 128] for start in range(0, 0x20000, 128)]  # where letters live
CONTRACTIONS = "'s 'S '\u017f 't 'LL 'll 're 'RE 've 'd 'M '\u212a 'x ''s".split(" ")


def chance(rng, probability):
    return rng.random() < probability


def random_word(rng):
    kind = rng.randrange(12)
    if kind < 6:
        return rng.choice(SCRIPTS)
    if kind == 6:
        return rng.choice(CONTRACTIONS)
    if kind == 7:
        return "".join(rng.choices(rng.choice(BLOCKS), k=rng.randint(1, 3)))
    if kind == 8:
        return rng.choice(EVERY)
    if kind == 9:
        return "".join(rng.choice(SCRIPTS) for _ in range(2))
    if kind == 10:
        return rng.choice("abAB19 .-\n'é中") * rng.choice((1, 2, 3, 4, 9))
    return rng.choice(SPACES)


def random_text(rng, tokens=(), longest=10):
    """Words of all scripts, white space and look-alikes of added tokens, side by side."""
    parts = []
    for _ in range(rng.randint(0, longest)):
        parts.append(random_word(rng))
        if chance(rng, 0.4):
            parts.append(rng.choice(SPACES))
        if tokens and chance(rng, 0.35):
            parts.append(look_alike(rng, rng.choice(tokens)))
    return "".join(parts)


def look_alike(rng, token):
    kind = rng.randrange(10)
    if kind < 6:
        return token
    if kind == 6:
        return token[: rng.randint(0, len(token))]
    if kind == 7:
        return token.upper() if chance(rng, 0.5) else token.lower()
    if kind == 8:
        return token + rng.choice("\u0338\u0301_a1\u200d\u200c")
    return token + token


def long_text(rng):
    """Pieces about as long as the caches' limits."""
    length = rng.choice((127, 128, 129, 255, 256, 257, 1999, 2000, 2001))
    unit = rng.choice(("a", "ab", " ", "é", "中", "=", "中文分", "\u0301", "-", "1", "😀"))
    return (unit * length)[:length] + rng.choice(("", " x", "\n"))


# --- the parts of a file ------------------------------------------------------------------------


def random_merges(rng, num_merges):
    """Pairs that neighbour in some text, as [left, right]; frequent ones first or at random."""
    words = Counter()
    for _ in range(rng.choice((0, 20, 60))):
        word = random_text(rng, longest=3)
        words[tuple(GLYPH[byte] for byte in word.encode()[:24])] += 1
    merges = []
    for _ in range(num_merges):
        pairs = Counter(pair for word in words for pair in zip(word, word[1:]))
        for pair in merges:
            pairs.pop(pair, None)
        if not pairs:
            break
        pair = rng.choice(sorted(pairs)) if chance(rng, 0.5) else pairs.most_common(1)[0][0]
        merges.append(pair)
        words = Counter(merge_word(word, pair) for word in words)
    if chance(rng, 0.15):
        rng.shuffle(merges)
    return merges


DEAD = (
    "😀",
    "é中",
    "中",
    " a",
    "\u3000",
    "a\n",
    "Ġthe ",
    "\u0144",
    "👩\u200d👧",
)  # no byte alphabet


def random_vocab(rng, merges):
    tokens = [GLYPH[byte] for byte in BYTE_ORDER] + ["".join(merge) for merge in merges]
    for _ in range(rng.choice((0, 0, 3))):  # that no merge makes
        tokens.append("".join(GLYPH[byte] for byte in rng.choice(SCRIPTS).encode()))
    tokens += rng.sample(DEAD, rng.choice((0, 0, 3)))
    tokens = list(dict.fromkeys(token for token in tokens if token))
    if chance(rng, 0.5):
        rng.shuffle(tokens)
    ids = list(range(len(tokens)))
    if chance(rng, 0.15):  # holes
        ids = [id + 700 * (id >= rng.choice((100, len(ids) - 3))) for id in ids]
    return dict(zip(tokens, ids))


ATOMS = (
    "a", "b", " ", "\\s", "\\S", "\\p{L}", "\\p{N}", "\\d", ".", "[a-z]", "[^\\s]", "\\p{P}", "'",
    "\\p{Lu}", "\\p{Ll}", "[^\\r\\n\\p{L}\\p{N}]", "é", "中", "\\n", "[\\r\\n]", "(?i:s)", "\\p{M}",
    "[\u4e00-\u9fff]", "\\p{Han}", "\\-", "x|y", "(?:ab|c)", "\\P{L}", "\\p{^L}", "[\\d.]", "\\t",
)  # fmt: skip
ODD_ATOMS = (
    "\\w", "\\W", "\\b", "\\B", "^", "$", "\\A", "\\z", "\\Z", "\\h", "\\R", "\\X", "[[:alpha:]]",
    "[[:space:]]", "[^[:punct:]]", "[a-z&&[^b]]", "[a[bc]]", "(?<=a)", "(?<!\\s)", "(?m:.)", "\\e",
    "(?i)k", "(?<n>a)", "(a)\\1", "(?>a+)", "\\x41", "\\x{4e2d}", "\\u4e2d", "\\G", "[\\w-]", "\\K",
    "(?x: a b )", "(?s:.)", "[[:^alpha:]]", "[\\h]", "\\H", "\\N", "\\O", "\\p{Alphabetic}",
    "\\p{Hiragana}", "(?i:ß)", "(?i:é)", "(?i:[a-k])", "[--/]", "[]a]", "\\a", "\\v", "\\f", "\\0",
    "[a||b]", "[a~~b]", "\\Qa.b\\E", "(?#c)", "\\p{Script=Greek}", "\\p{L}&&a", "(a)(?=\\s)",
    "[\\b]", "\\M", "(?<a>b)\\k<a>", "(?P<n>a)", "\\p{Greek}", "(?~ab)", "\\y", "[\\p{L}--[a]]",
)  # fmt: skip
QUANTIFIERS = ("", "", "", "+", "*", "?", "{1,3}", "{2}", "+?", "*?")
ODD_QUANTIFIERS = ("++", "*+", "?+", "{1,3}+", "{,2}", "{2,}", "{2}?", "{1,2}?", "??", "{2}+")
KNOWN_PATTERNS = (
    *PATTERNS.values(),
    "\\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "\\d(?=(?:\\d{3})*\\b)",
)


def random_regex(rng, odd=0.0):
    if chance(rng, 0.2):
        return rng.choice(KNOWN_PATTERNS)
    branches = []
    for _ in range(rng.randint(1, 3)):
        branch = ""
        for _ in range(rng.randint(1, 3)):
            branch += rng.choice(ODD_ATOMS if chance(rng, odd) else ATOMS)
            branch += rng.choice(ODD_QUANTIFIERS if chance(rng, odd) else QUANTIFIERS)
        branches.append(branch + rng.choice(("", "", "", "(?=\\S)", "(?!\\S)", "(?= )")))
    return "|".join(branches)


LITERALS = (" ", "a", "-", ".", "中", "é", "  ", "'s", "[", "\n", "ab", "e\u0301")


def random_pattern(rng, odd=0.0):
    if chance(rng, 0.35):
        return {"String": rng.choice(LITERALS)}
    return {"Regex": random_regex(rng, odd)}


NORMALIZERS = "NFC NFC NFD NFKC NFKD Lowercase Replace Replace Prepend".split()


def random_normalizer(rng, odd=0.0):
    def one():
        kind = rng.choice(NORMALIZERS)
        if kind == "Replace":
            content = rng.choice(("", " ", "a", "_", "XY", "é", "\u0301", "<s>", "\\1"))
            return {"type": kind, "pattern": random_pattern(rng, odd), "content": content}
        if kind == "Prepend":
            return {"type": kind, "prepend": rng.choice(("_", " ", "ab", "\u2581"))}
        return {"type": kind}

    if chance(rng, 0.35):
        return None
    if chance(rng, 0.6):
        return one()
    return {"type": "Sequence", "normalizers": [one() for _ in range(rng.randint(0, 3))]}


def random_byte_level(rng):
    step = {
        "type": "ByteLevel",
        "add_prefix_space": chance(rng, 0.3),
        "trim_offsets": chance(rng, 0.5),
    }
    return step | rng.choice(({}, {"use_regex": True}, {"use_regex": False}, {"use_regex": False}))


NAMED_STEPS = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")


def random_pre_tokenizer(rng, odd=0.0):
    def one():
        kind = rng.randrange(10)
        if kind < 2:
            return {"type": "Digits", "individual_digits": chance(rng, 0.5)}
        if kind == 2:
            behavior = {"behavior": rng.choice(BEHAVIORS)} if chance(rng, 0.9) else {}
            return {"type": "Punctuation"} | behavior
        if kind == 3 and chance(rng, 0.3):
            return {"type": rng.choice(NAMED_STEPS)}
        return {
            "type": "Split", "pattern": random_pattern(rng, odd), "behavior": rng.choice(BEHAVIORS),
            "invert": chance(rng, 0.3),
        }  # fmt: skip

    if chance(rng, 0.2):
        return random_byte_level(rng)
    steps = [one() for _ in range(rng.randint(0, 3))]
    behind = [one() for _ in range(rng.randint(1, 3))] if chance(rng, 0.3) else []
    if steps and chance(rng, 0.1):
        steps = [{"type": "Sequence", "pretokenizers": steps}]
    return {"type": "Sequence", "pretokenizers": [*steps, random_byte_level(rng), *behind]}


CONTENTS = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_", "|>", "<think>", "<tool call>", "a", "ab",
    "abc", "the", "THE", " ", "  ", "\n", "\n\n", " the", "'s", "e\u0301", "\u212b", "中文", "中",
    "1", "\ufb01", "[MASK]", "123", "x", "<S>", "<s>a", "\u0301", "-", "_", "\uff21", "\u3000",
    "cat ", "\u200d", "😀",
)  # fmt: skip


FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def random_added_tokens(rng, vocab):
    contents = rng.sample(CONTENTS, rng.choice((0, 1, 2, 4, 8)))
    if chance(rng, 0.2):
        contents.append(rng.choice(sorted(token for token in vocab if token.isascii())))
    next_id, tokens = len(vocab), []
    for content in dict.fromkeys(contents):
        flags = {name: chance(rng, 0.3) for name in FLAGS}
        id = vocab.get(content, next_id)
        next_id += content not in vocab
        tokens.append(added_token(id, content, special=chance(rng, 0.5), **flags))
    return tokens


def random_template(rng, tokens, vocab):
    names = [(token["content"], token["id"]) for token in tokens] or [("a", vocab["a"])]
    chosen = [rng.choice(names) for _ in range(rng.randint(0, 3))]
    specials = {}
    for name, id in dict.fromkeys(chosen):
        ids = [id] if chance(rng, 0.8) else [id, vocab["b"]]
        specials[name] = {"id": name, "ids": ids, "tokens": [name] * len(ids)}
    items = [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in chosen]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    cut = rng.randint(0, len(items))
    single = [*items[:cut], text, *items[cut:]]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": specials,
    }


def random_ends(rng, vocab):
    """RoBERTa's or BERT's post-processor; the ids may be those of no token."""
    ids = [rng.choice((0, 7, max(vocab.values()), max(vocab.values()) + 900)) for _ in range(2)]
    ends = {"sep": ["</s>", ids[0]], "cls": ["<s>", ids[1]]}
    if chance(rng, 0.3):
        return {"type": "BertProcessing"} | ends
    flags = {name: chance(rng, 0.5) for name in ("trim_offsets", "add_prefix_space")}
    return {"type": "RobertaProcessing"} | ends | flags


def random_post_processor(rng, tokens, vocab):
    def one():
        kind = rng.randrange(4)
        if kind < 2:
            return random_byte_level(rng)
        return random_ends(rng, vocab) if kind == 2 else random_template(rng, tokens, vocab)

    if chance(rng, 0.3):
        return None
    if chance(rng, 0.5):
        return one()
    return {"type": "Sequence", "processors": [one() for _ in range(rng.randint(0, 3))]}


def random_truncation(rng):
    if chance(rng, 0.85):
        return None
    return {
        "direction": rng.choice(("Left", "Right")), "max_length": rng.choice((5, 9, 30)),
        "strategy": rng.choice(("LongestFirst", "OnlyFirst")), "stride": 0,
    }  # fmt: skip


def random_padding(rng):
    if chance(rng, 0.85):
        return None
    return {
        "strategy": rng.choice(("BatchLongest", {"Fixed": 12})), "pad_id": 3, "pad_type_id": 0,
        "direction": rng.choice(("Left", "Right")), "pad_token": "x",
        "pad_to_multiple_of": rng.choice((None, 4)),
    }  # fmt: skip


def random_tokenizer_json(rng, *, odd=0.0):
    """One file. odd: how often a regex has syntax that engines read differently."""
    merges = random_merges(rng, rng.choice((0, 10, 40, 120)))
    vocab = random_vocab(rng, merges)
    tokens = random_added_tokens(rng, vocab)
    as_pairs = chance(rng, 0.5)
    if merges and chance(rng, 0.1):  # listed twice
        merges.insert(rng.randint(0, len(merges)), rng.choice(merges))
    return {
        "version": "1.0",
        "truncation": random_truncation(rng),
        "padding": random_padding(rng),
        "added_tokens": tokens,
        "normalizer": random_normalizer(rng, odd),
        "pre_tokenizer": random_pre_tokenizer(rng, odd),
        "post_processor": random_post_processor(rng, tokens, vocab),
        "decoder": random_byte_level(rng),
        "model": {
            "type": "BPE", "dropout": rng.choice((None, None, 0.0)), "unk_token": None,
            "continuing_subword_prefix": rng.choice((None, "")),
            "end_of_word_suffix": rng.choice((None, "")), "fuse_unk": chance(rng, 0.3),
            "byte_fallback": False, "ignore_merges": chance(rng, 0.4), "vocab": vocab,
            "merges": [list(pair) if as_pairs else " ".join(pair) for pair in merges],
        },
    }  # fmt: skip
