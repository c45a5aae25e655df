"""weights/config_json.py: what each family leaves unsaid, both spellings of rope, every refusal."""

import json

import pytest
from compare import REFERENCE

from model.config import Config
from model.rope import Rope
from model.weights.config_json import config_from_json


def description(name: str, **changes) -> dict:
    """A reference config.json; a key changed to ... is removed."""
    raw = json.loads((REFERENCE / name / "config.json").read_text()) | changes
    return {key: value for key, value in raw.items() if value is not ...}


def read(name: str = "qwen3-tied", **changes) -> Config:
    return config_from_json(description(name, **changes))


def test_every_field_of_a_dense_model():
    assert read() == Config(
        model_type="qwen3",
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
        rope=Rope(theta=1e6, original_context=256),
        tie_word_embeddings=True,
        qk_norm=True,
        dtype="float32",
        bos_token_ids=(1,),
        eos_token_ids=(2,),
    )


@pytest.mark.parametrize(
    ("model_type", "missing", "null"),  # heads of queries, of keys, size of a head
    [  # as transformers 5.24 makes of the same keys
        ("llama", (4, 4, 16), (4, 4, 16)),
        ("mistral", (8, 8, 8), (8, 8, 8)),
        ("qwen2", (32, 32, 2), (32, 32, 2)),
        ("qwen3", (32, 32, 128), (32, 32, 2)),
        ("qwen3_moe", (8, 4, 8), (8, 8, 8)),
    ],
)
def test_heads_that_are_left_out(model_type, missing, null):
    for value, expected in ((..., missing), (None, null)):
        config = read(
            "qwen3-moe",
            model_type=model_type,
            num_attention_heads=expected[0],
            num_key_value_heads=value,
            head_dim=value,
        )
        found = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        assert found == expected


def test_other_words_for_the_same():
    """Transformers 5 renames the experts, and knows SiLU under two names."""
    assert read("qwen3-moe", num_experts=..., num_local_experts=8) == read("qwen3-moe")
    assert read("qwen3-tied", hidden_act="swish") == read("qwen3-tied")
    rope = {"rope_type": "yarn", "factor": 4.0}
    moved = read("qwen3-tied", rope_scaling=rope, original_max_position_embeddings=64)
    rope["original_max_position_embeddings"] = 64
    assert moved == read("qwen3-tied", rope_scaling=rope)
    assert moved.rope.original_context == 64


@pytest.mark.parametrize(
    ("name", "given", "expected"),  # expected: qk_norm, qkv_bias, o_bias, mlp_bias
    [
        ("llama-llama3rope", {}, (False, False, False, False)),
        ("llama-llama3rope", {"attention_bias": True}, (False, True, True, False)),
        ("llama-llama3rope", {"mlp_bias": True}, (False, False, False, True)),
        ("qwen2-bias", {}, (False, True, False, False)),
        ("qwen2-bias", {"attention_bias": False}, (False, True, False, False)),
        ("qwen3-tied", {}, (True, False, False, False)),
        ("qwen3-tied", {"attention_bias": True}, (True, True, True, False)),
        ("qwen3-moe", {"attention_bias": None}, (True, False, False, False)),
    ],
)
def test_norms_and_biases_by_family(name, given, expected):
    config = read(name, **given)
    assert (config.qk_norm, config.qkv_bias, config.o_bias, config.mlp_bias) == expected


@pytest.mark.parametrize("value", [..., None])
def test_what_may_be_left_out(value):
    config = read("qwen2-bias", tie_word_embeddings=value, rms_norm_eps=value)
    assert config.head_dim == 16, "the file has none: hidden_size 64 / 4 heads"
    assert config.tie_word_embeddings is False
    assert config.rms_norm_eps == 1e-6
    assert read(rope_theta=value).rope.theta == 10000.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": ..., "torch_dtype": "float16"}, "float16"),
        ({"dtype": ..., "torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"dtype": ...}, None),
    ],
)
def test_dtype(given, expected):
    assert read(**given).dtype == expected


def test_token_ids_are_tuples():
    config = read(bos_token_id=None, eos_token_id=[2, 7])
    assert (config.bos_token_ids, config.eos_token_ids) == ((), (2, 7))


def test_experts():
    config = read("qwen3-moe")
    assert (config.num_experts, config.num_experts_per_tok) == (8, 2)
    assert (config.moe_intermediate_size, config.norm_topk_prob) == (48, True)
    assert config.sparse_layers == (0, 2)  # layer 1 is in mlp_only_layers
    assert not config.is_sparse(1)
    step = read("qwen3-moe", num_hidden_layers=6, decoder_sparse_step=3, mlp_only_layers=[])
    assert step.sparse_layers == (2, 5)


# --- rope ----------------------------------------------------------------------------------------

YARN = {"factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "given",
    [
        {"rope_scaling": YARN | {"rope_type": "yarn"}},
        {"rope_scaling": YARN | {"type": "yarn"}},
        {"rope_scaling": YARN | {"type": "yarn", "rope_type": "yarn"}},
        {
            "rope_scaling": ...,
            "rope_theta": ...,
            "rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 1e6},
        },
        {"rope_scaling": None, "rope_parameters": YARN | {"rope_type": "yarn"}},
    ],
)
def test_all_spellings_of_rope_are_one(given):
    expected = Rope(
        type="yarn",
        theta=1e6,
        factor=4.0,
        original_context=64,
        attention_factor=1.138629436111989,  # 0.1 ln 4 + 1
    )
    assert read("qwen3-untied-yarn", **given).rope == expected


def test_llama3_rope():
    assert read("llama-llama3rope").rope == Rope(
        type="llama3",
        theta=500000.0,
        factor=8.0,
        original_context=64,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, 1.2772588722 / 1.1386294361),
        ({"mscale": 2.0}, 1.1386294361),
    ],
)
def test_yarn_attention_factor(given, expected):
    scaling = YARN | {"rope_type": "yarn"} | given
    config = read("qwen3-untied-yarn", rope_scaling=scaling)
    assert config.rope.attention_factor == pytest.approx(expected)


# --- sliding windows -----------------------------------------------------------------------------

SLIDING = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
SLIDING |= {"sliding_window": 9, "use_sliding_window": True}
UPPER = {"layer_types": ..., "sliding_window": 9, "use_sliding_window": True}


@pytest.mark.parametrize(
    ("name", "given", "expected"),  # expected: what each of the three layers sees
    [
        ("qwen2-bias", {}, [None] * 3),
        ("qwen2-bias", UPPER | {"max_window_layers": 1}, [None, 9, 9]),
        ("qwen3-tied", UPPER | {"max_window_layers": 0}, [9, 9, 9]),
        ("qwen3-tied", UPPER | {"max_window_layers": ...}, [None] * 3),  # 28 where it isn't given
        ("qwen3-tied", UPPER | {"use_sliding_window": False, "max_window_layers": 0}, [None] * 3),
        ("qwen3-tied", UPPER | {"sliding_window": None, "max_window_layers": 0}, [None] * 3),
        ("qwen3-tied", UPPER | {"sliding_window": ..., "max_window_layers": 2}, [None, None, 4096]),
        ("qwen3-tied", SLIDING, [9, None, 9]),
        ("qwen3-tied", SLIDING | {"max_window_layers": 3}, [9, None, 9]),
        ("qwen3-moe", UPPER | {"max_window_layers": 2}, [9, 9, 9]),  # as transformers has it
        ("llama-llama3rope", {"sliding_window": 9}, [None] * 3),
        ("llama-llama3rope", SLIDING, [9, None, 9]),
        ("llama-llama3rope", {"model_type": "mistral", "sliding_window": 9}, [9, 9, 9]),
        ("llama-llama3rope", {"model_type": "mistral", "sliding_window": None}, [None] * 3),
        ("llama-llama3rope", {"model_type": "mistral", "sliding_window": ...}, [4096] * 3),
    ],
)
def test_windows(name, given, expected):
    config = read(name, **given)
    assert [config.window(layer) for layer in range(3)] == expected


# --- refusals ------------------------------------------------------------------------------------

YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("qwen3-tied", {"model_type": "mamba"}, "'mamba' is not supported; .*llama, qwen2, qwen3"),
        ("qwen3-tied", {"model_type": ...}, "model_type None"),
        ("qwen3-tied", {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ("qwen2-bias", UPPER | {"use_sliding_window": 1}, "use_sliding_window must be true or"),
        ("qwen3-tied", {"layer_types": ["chunked_attention"] * 3}, "'chunked_attention' is not"),
        ("qwen3-tied", {"layer_types": ["full_attention"] * 2}, "lists 2 layers, .* there are 3"),
        ("qwen3-tied", SLIDING | {"use_sliding_window": False}, "use_sliding_window is false"),
        ("qwen3-tied", SLIDING | {"sliding_window": None}, "there is no sliding_window"),
        ("llama-llama3rope", SLIDING | {"sliding_window": ...}, "there is no sliding_window"),
        ("qwen3-tied", SLIDING | {"sliding_window": 0}, "sliding_window must be a positive"),
        ("qwen2-bias", UPPER | {"max_window_layers": -1}, "max_window_layers must be a number of"),
        ("qwen3-tied", {"layer_types": 3}, "layer_types must be a list, found 3"),
        ("qwen3-moe", {"mlp_only_layers": "1"}, "mlp_only_layers must be a list"),
        ("qwen3-tied", {"num_hidden_layers": 2**31}, "num_hidden_layers .* found 2147483648"),
        ("qwen3-tied", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("qwen3-tied", {"dtype": "float8_e4m3fn"}, "dtype 'float8_e4m3fn'"),
        ("qwen3-tied", {"hidden_size": ...}, "hidden_size is missing"),
        ("qwen3-tied", {"vocab_size": 0}, "vocab_size must be a positive integer .* found 0"),
        ("qwen3-tied", {"num_hidden_layers": "3"}, "num_hidden_layers .* found '3'"),
        ("qwen3-tied", {"num_attention_heads": True}, "num_attention_heads .* found True"),
        ("qwen3-tied", {"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ("qwen3-tied", {"head_dim": 31}, "head_dim must be even"),
        ("qwen3-tied", {"rms_norm_eps": "x"}, "rms_norm_eps must be a finite number"),
        ("qwen3-tied", {"rms_norm_eps": -1.0}, "rms_norm_eps must be above 0, found -1.0"),
        ("qwen3-tied", {"rms_norm_eps": 0}, "rms_norm_eps must be above 0, found 0"),
        ("qwen3-tied", {"rms_norm_eps": 10**400}, "rms_norm_eps must be a finite number"),
        ("qwen3-tied", {"rope_theta": 1e39}, "rope_theta must be a finite number, found 1e"),
        ("qwen3-tied", {"head_dim": 2**30}, r"num_attention_heads \* head_dim must be a positive"),
        ("qwen3-tied", {"num_hidden_layers": 2**16}, r"below 2\*\*16, found 65536"),
        ("qwen3-moe", {"num_experts": 2**16}, r"num_experts .* below 2\*\*16, found 65536"),
        ("qwen3-tied", {"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false"),
        ("qwen3-tied", {"eos_token_id": "2"}, "eos_token_id must be an id"),
        ("qwen3-moe", {"num_experts_per_tok": 9}, "exceeds"),
        ("qwen3-moe", {"num_experts": ...}, "num_experts is missing"),
        ("qwen3-moe", {"decoder_sparse_step": 0}, "decoder_sparse_step must be a positive"),
        ("qwen3-tied", {"rope_scaling": [1]}, "must be an object"),
        ("qwen3-untied-yarn", {"rope_parameters": {"rope_theta": 1e6}}, "both given and differ"),
        ("qwen3-tied", {"rope_scaling": {"type": "longrope"}}, "rope type 'longrope'"),
        ("qwen3-tied", {"rope_scaling": {"type": "linear"}}, "factor is missing"),
        (
            "qwen3-tied",
            {"rope_scaling": {"type": "linear", "factor": "2"}},
            "factor must be a finite number, found '2'",
        ),
        (
            "qwen3-tied",
            {"rope_scaling": {"type": "default", "mrope_section": [16]}},
            "'mrope_section'. of type 'default' are not supported",
        ),
        (
            "qwen3-tied",
            {"rope_scaling": None, "rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor",
        ),
        ("qwen3-tied", {"rope_theta": -1}, "theta must be above 0"),
        ("qwen3-untied-yarn", {"rope_theta": 1}, "'yarn' needs a theta above 1, found 1"),
        (
            "qwen3-untied-yarn",
            {"original_max_position_embeddings": 65},
            "is 64 in the rope parameters and 65 outside",
        ),
        (
            "qwen3-tied",
            {"rope_scaling": YARN | {"original_max_position_embeddings": 0.5}},
            "original_max_position_embeddings must be at least 1, found 0.5",
        ),
        (
            "qwen3-tied",
            {"rope_scaling": YARN | {"mscale": 1, "mscale_all_dim": -1}},
            "mscale must not be negative",
        ),
    ],
)
def test_refused_by_name(name, given, message):
    with pytest.raises(ValueError, match=message):
        read(name, **given)
