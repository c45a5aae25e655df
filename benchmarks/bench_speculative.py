"""SmolLM2-135M, prompts with and without something to copy -> decode speed with and without drafts.

    python -m benchmarks.bench_speculative [--rounds N] [--tokens N]

Equality first: the ids with drafts must be those without. Both run in turn in one process, since
nothing but the draft differs. Blind spot: other libraries, and draft models, for want of a small
one with the same vocabulary.
"""

from __future__ import annotations

import argparse
import json
import statistics
from time import perf_counter

from benchmarks.harness import Figures, machine, run_alone, say, table, versions

STORY = (
    "The harbour master opened the north gate at six in the morning, and the first three boats"
    " left before the fog had lifted. By noon the fog was gone and eleven more boats had followed."
    " The harbour master wrote their names into the book, closed the gate, and walked home along"
    " the old sea wall. In the evening, when the boats came back, he counted fourteen names and"
    " only thirteen boats."
)
CODE = """def mean(values):
    total = 0
    for value in values:
        total = total + value
    return total / len(values)


def variance(values):
    center = mean(values)
    total = 0
    for value in values:
        total = total + (value - center) ** 2
    return total / len(values)
"""
TABLE = "\n".join(
    f"item {i}: name=part-{i * 37 % 101}, price={i * 13 % 47}.{i * 7 % 90 + 10}, stock={i * 11}"
    for i in range(1, 9)
)
COPYING = {  # name -> what is asked
    "repeat a text": f"Repeat the following text exactly, word for word:\n\n{STORY}",
    "edit a text": f'Rewrite this text with "boats" replaced by "ships":\n\n{STORY}',
    "summarise a text": f"Summarise this text in two sentences, using its own words:\n\n{STORY}",
    "copy a table": f"Copy this table, keep every line:\n\n{TABLE}",
    "rename in code": f"Rename `values` to `numbers` in this file:\n\n```python\n{CODE}```",
}
OTHERS = {
    "explain": "Why is the sky blue?",
    "story": "Write a short story about a clockmaker who cannot sleep.",
    "letter": "Write an email to my landlord about a broken heater.",
    "poem": "Write a poem about the sea in autumn.",
    "advice": "How do I learn to play the piano as an adult?",
}


def decode(num_tokens: str, num_rounds: str) -> Figures:
    """Seconds a decoded token of each prompt, plain and drafted, in turn."""
    import bpe
    import model
    from pipeline import source

    path = source.packaged_model(say)
    m, tok = model.load(path), bpe.Tokenizer.from_file(path)
    list(model.generate(m, [1, 2, 3], max_tokens=3))
    figures = {}
    for name, text in (COPYING | OTHERS).items():
        ids = tok.apply_chat_template([{"role": "user", "content": text}])
        say(f"  {name}")
        figures[name] = compare(m, ids, int(num_tokens), int(num_rounds))
    return figures


def compare(m, ids: list[int], num_tokens: int, num_rounds: int) -> Figures:
    """Medians over rounds of one prompt, and whether the ids were the same."""
    seconds, produced = {None: [], "ngram": []}, {}
    for number in range(num_rounds):
        order = list(seconds) if number % 2 else list(reversed(seconds))
        for draft in order:  # neither is always the one that runs second
            produced[draft] = until_end(m, ids, num_tokens, draft)
            seconds[draft].append(produced[draft].pop())
    plain, drafted = (statistics.median(times) for times in seconds.values())
    return {
        "plain_tokens_per_second": 1 / plain,
        "drafted_tokens_per_second": 1 / drafted,
        "ratio": plain / drafted,
        "num_tokens": len(produced[None]),
        "equal": produced[None] == produced["ngram"],
    }


def until_end(m, ids: list[int], num_tokens: int, draft: str | None) -> list:
    """The ids up to the model's end, and last the seconds of each after the first."""
    import model

    produced, start = [], 0.0
    for one in model.generate(m, ids, max_tokens=num_tokens, draft=draft):
        start = start or perf_counter()
        produced.append(one)
        if one in m.config.eos_token_ids:
            break
    return [*produced, (perf_counter() - start) / max(len(produced) - 1, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128, help="at most so many (default: 128)")
    options = parser.parse_args()
    figures = run_alone(
        "benchmarks.bench_speculative", "decode", str(options.tokens), str(options.rounds)
    )
    if isinstance(figures, str):
        raise SystemExit(figures)
    rows = [
        [
            name,
            str(one["num_tokens"]),
            "yes" if one["equal"] else "NO",
            f"{one['plain_tokens_per_second']:.1f}",
            f"{one['drafted_tokens_per_second']:.1f}",
            f"{one['ratio']:.2f}x",
        ]
        for name, one in figures.items()
    ]
    print(table(["", "tokens", "equal ids", "plain, tokens/s", "n-gram drafts", "ratio"], rows))
    groups = {"copying": COPYING, "others": OTHERS}
    medians = {
        group: statistics.median(figures[name]["ratio"] for name in names)
        for group, names in groups.items()
    }
    lowest = min(figures[name]["ratio"] for name in OTHERS)
    print(f"\ncopying {medians['copying']:.2f}x, others {medians['others']:.2f}x (medians)")
    print(f"the lowest of the others: {lowest:.2f}x")
    record = {"suite": "speculative", "machine": machine(), "versions": versions("mlx")}
    print(json.dumps(record | {"medians": medians, "lowest": lowest, "prompts": figures}))


if __name__ == "__main__":
    main()
