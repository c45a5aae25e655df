"""corpus -> a tiny tokenizer.json, by the textbook; and small files that golden/formats.jsonl
describes.

Slow and obvious on purpose: it recounts every pair after every merge. It shares nothing with bpe
but the file format, so it can be wrong only in its own way.
"""

import re
from collections import Counter

VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
GLYPH = {byte: chr(byte) for byte in VISIBLE} | {b: chr(256 + i) for i, b in enumerate(HIDDEN)}
BYTE_ORDER = [*VISIBLE, *HIDDEN]  # the order of the 256 first ids in Hugging Face's trainer

CORPUS = (
    "The capital of France is Paris. The capital of Germany is Berlin. The cat is on the mat.\n"
    "Once upon a time there was a tokenizer that knew only the bytes, and it was exact.\n"
) * 3
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
THINK = "<think>"  # an added token that is not special
TINY_VOCAB_SIZE = 320  # as the checkpoints in golden/reference


def train(corpus, num_merges):
    """Merges as pairs of glyph strings: most frequent pair first, ties to the smaller pair."""
    words = Counter(
        tuple(GLYPH[byte] for byte in word.encode())
        for word in re.findall(r" ?\w+|\s|[^\w\s]+", corpus)
    )
    merges = []
    for _ in range(num_merges):
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({merge_word(word, best): count for word, count in words.items()})
    return merges


def merge_word(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def added_token(id, content, **flags):
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": id, "content": content} | dict.fromkeys(names, False) | flags


BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def tiny_tokenizer_json():
    """320 tokens: three specials, 256 bytes, 60 merges and <think>."""
    vocab = {content: id for id, content in enumerate(SPECIALS)}
    for byte in BYTE_ORDER:
        vocab[GLYPH[byte]] = len(vocab)
    merges = train(CORPUS, TINY_VOCAB_SIZE - len(vocab) - 1)
    for left, right in merges:
        vocab[left + right] = len(vocab)
    added = [added_token(id, content, special=True) for id, content in enumerate(SPECIALS)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*added, added_token(len(vocab), THINK)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": BYTE_LEVEL | {"trim_offsets": False},
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": [" ".join(merge) for merge in merges]},
    }


TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def json_of(spec):
    """The tokenizer.json object that a "spec" of golden/formats.jsonl stands for.

    merges; extra (strings appended to the vocabulary); vocab_del, vocab_add; model, top (fields put
    over the model and the top level); model_del, top_del (fields removed); pre (the pre_tokenizer).
    """
    vocab = {GLYPH[byte]: id for id, byte in enumerate(BYTE_ORDER)}
    for merge in spec.get("merges", []):
        vocab.setdefault(
            "".join(merge if isinstance(merge, list) else merge.split(" ")), len(vocab)
        )
    for token in spec.get("extra", []):
        vocab.setdefault(token, len(vocab))
    vocab |= spec.get("vocab_add", {})
    for token in spec.get("vocab_del", []):
        del vocab[token]
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": vocab, "merges": spec.get("merges", []),
    } | spec.get("model", {})  # fmt: skip
    data = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": spec.get("pre", BYTE_LEVEL), "post_processor": None,
        "decoder": BYTE_LEVEL, "model": model,
    } | spec.get("top", {})  # fmt: skip
    for name in spec.get("model_del", []):
        del model[name]
    for name in spec.get("top_del", []):
        del data[name]
    return data
