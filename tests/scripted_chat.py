"""directory of a tiny model -> python -m pipeline with a model that says what a script says.

It is a model like any other, whose cache holds the ids it was fed: so sessions, prefixes and the
generation loop are the real ones. The answer depends on the last message alone.
"""

import sys
import time

import mlx.core as mx

from pipeline.__main__ import main
from pipeline.engine import Engine

ANSWERS = {
    "hello": "Hi, I am a script.",
    "lines\nof text": "Two lines, I see.",
    "think": "<think>\nHm, so.\n</think>\n\nI thought.",
    "/slash": "A slash.",
    "slow": "one two three four five six seven eight nine ten " * 5,
}
ANOTHER = "Did you say something?"


class ScriptedModel:
    """As much of a Transformer as generate() asks for."""

    def __init__(self, m, tokenizer):
        self.config, self._own, self._tokenizer = m.config, m, tokenizer
        self.model = m.model  # for the line about the model

    def make_cache(self, **options):
        return self._own.make_cache(**options)

    def hidden(self, new, cache):
        keys = new.astype(mx.float32)[:, None, :, None]  # (1, 1, L, 1): the ids themselves
        held = [layer.update(keys, keys)[0] for layer in cache]
        ids = held[0].reshape(-1).astype(mx.int32).tolist()
        return mx.full((1, new.shape[1], 1), self._next(ids))

    def head(self, hidden):
        return 10.0 * (mx.arange(self.config.vocab_size) == hidden)

    def _next(self, ids):
        """The id that follows: the script's answer to the last message, then <|im_end|>."""
        encode = self._tokenizer.encode
        start = len(ids) - ids[::-1].index(1)  # behind the last <|im_start|>
        said = ids[start + len(encode("assistant\n")) :]
        question = self._tokenizer.decode(ids[:start]).split("<|im_start|>user\n")[-1]
        question = question.split("<|im_end|>")[0]
        if question == "slow":
            time.sleep(0.03)
        answer = [*encode(ANSWERS.get(question, ANOTHER)), 2]
        return answer[min(len(said), len(answer) - 1)]


def load(path, **options):
    """In place of Engine.load."""
    engine = genuine_load(path, **options)
    scripted = ScriptedModel(engine.model, engine.tokenizer)
    return Engine(
        engine.tokenizer, scripted, engine.stop_ids, engine.sampling, options.get("max_context")
    )


if __name__ == "__main__":
    genuine_load, Engine.load = Engine.load, load
    sys.exit(main())
