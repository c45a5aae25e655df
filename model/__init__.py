"""ids -> ids: a decoder-only language model on MLX.

    checkpoint --load--> Transformer --generate--> stream of ids

Blind spot: this package knows nothing of text. Tokenizers live in `bpe`; `pipeline` joins the two.

Shapes stand at the end of the line that makes them, in these letters:

    B batch, L new tokens, S cached tokens (new ones included), H query heads, K key/value heads,
    D head size, E experts, V vocabulary rows
"""

from model.cache import KVCache
from model.config import Config
from model.generation.batch import Batch, generate_batch
from model.generation.cache_file import load_cache, save_cache
from model.generation.generate import generate
from model.generation.loop import Token
from model.generation.sample import make_processors, make_sampler
from model.generation.session import Session
from model.transformer import Transformer
from model.weights.load import load

__version__ = "0.1.0"

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


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
