"""ids -> ids: a decoder-only language model on MLX.

    checkpoint --load--> Transformer --generate--> stream of ids

Blind spot: this package knows nothing of text. Tokenizers live in `bpe`; `pipeline` joins the two.

Shapes stand at the end of the line that makes them, in these letters:

    B batch, L new tokens, S cached tokens (new ones included), H query heads, K key/value heads,
    D head size, E experts, V vocabulary rows
"""

from model.batch import Batch, generate_batch
from model.cache import KVCache
from model.cache_file import load_cache, save_cache
from model.config import Config
from model.generate import Token, generate
from model.load import load
from model.sample import make_processors, make_sampler
from model.session import Session
from model.transformer import Transformer

__all__ = [
    "Batch",
    "Config",
    "KVCache",
    "Session",
    "Token",
    "Transformer",
    "generate",
    "generate_batch",
    "load",
    "load_cache",
    "make_processors",
    "make_sampler",
    "save_cache",
]
