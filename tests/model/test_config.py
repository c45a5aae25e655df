"""model/config.py: a Config can't be changed, can't be wrong, and knows how far it reaches."""

from dataclasses import FrozenInstanceError, replace

import pytest
from compare import ALL

from tests.model.weights.test_config_json import read


@pytest.mark.parametrize("name", ALL)
def test_a_config_does_not_change(name):
    config = read(name)
    with pytest.raises(FrozenInstanceError):
        config.hidden_size = 1
    assert hash(config) == hash(read(name))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported; supported: llama, qwen2"),
        ({"hidden_size": 64.0}, "hidden_size must be a positive integer .* found 64.0"),
        ({"num_hidden_layers": 2**16}, r"below 2\*\*16, found 65536"),
        ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({"head_dim": 31}, "head_dim must be even"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps must be above 0"),
        ({"dtype": "int8"}, "dtype 'int8' is not one of float32"),
        ({"sliding_layers": (0,)}, "sliding_window must be a positive integer .* found 0"),
        ({"sparse_layers": (0,)}, "num_experts must be a positive integer .* found 0"),
    ],
)
def test_refused_whoever_made_it(given, message):
    with pytest.raises(ValueError, match=message):
        replace(read(), **given)


def test_yarn_reaches_further_than_max_position_embeddings():
    """Model cards add YaRN and leave max_position_embeddings as it was."""
    assert read("qwen3-untied-yarn", max_position_embeddings=100).context == 256
    assert read("qwen3-untied-yarn", max_position_embeddings=300).context == 300
    assert read("llama-llama3rope").context == 256, "llama3 raises max_position_embeddings itself"
