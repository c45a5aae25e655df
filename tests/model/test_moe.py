"""model/moe.py against running every expert for every token. Every axis has its own size."""

import math

import mlx.core as mx
import pytest
from compare import assert_close

from model.config import Config
from model.moe import MANY, SparseMLP, checkpoint_names

B, L, E, CHOSEN = 2, 5, 7, 3


def layer(norm_topk_prob: bool) -> SparseMLP:
    config = Config(
        model_type="qwen3_moe",
        vocab_size=31,
        hidden_size=20,
        intermediate_size=14,
        num_hidden_layers=1,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=50,
        rms_norm_eps=1e-6,
        sparse_layers=(0,),
        num_experts=E,
        num_experts_per_tok=CHOSEN,
        moe_intermediate_size=11,
        norm_topk_prob=norm_topk_prob,
    )
    sparse = SparseMLP(config)
    for number, linear in enumerate(
        (sparse.experts.gate_proj, sparse.experts.up_proj, sparse.experts.down_proj)
    ):
        linear.weight = mx.random.normal(linear.weight.shape, key=mx.random.key(number)) * 0.3
    sparse.gate.weight = mx.random.normal(sparse.gate.weight.shape, key=mx.random.key(9))
    return sparse


def every_expert(sparse: SparseMLP, x: mx.array, norm_topk_prob: bool) -> mx.array:
    """The dense form: all experts answer, and all but the chosen ones are weighted 0."""
    weights = sparse.experts
    answers = []
    for e in range(E):
        gate, up = x @ weights.gate_proj.weight[e].T, x @ weights.up_proj.weight[e].T
        answers.append((gate / (1 + mx.exp(-gate)) * up) @ weights.down_proj.weight[e].T)

    def shares(logits: list[float]) -> list[float]:
        odds = [math.exp(value) for value in logits]
        odds = [value / sum(odds) for value in odds]
        floor = sorted(odds)[-CHOSEN]
        odds = [value if value >= floor else 0.0 for value in odds]
        return [value / sum(odds) for value in odds] if norm_topk_prob else odds

    share = mx.array([[shares(token) for token in row] for row in sparse.gate(x).tolist()])
    return sum(share[..., e : e + 1] * answers[e] for e in range(E))


@pytest.mark.parametrize("norm_topk_prob", [True, False])
@pytest.mark.parametrize("length", [L, MANY])  # as they come, and sorted by expert
def test_sparse_is_the_dense_form(norm_topk_prob, length):
    sparse = layer(norm_topk_prob)
    x = mx.random.normal((B, length, 20), key=mx.random.key(5))
    assert_close(sparse(x), every_expert(sparse, x, norm_topk_prob), atol=1e-5)


def test_checkpoints_keep_experts_apart():
    name = "model.layers.4.mlp.experts.down_proj.weight"
    assert checkpoint_names(name, (3, 20, 11)) == [
        f"model.layers.4.mlp.experts.{e}.down_proj.weight" for e in range(3)
    ]
    assert checkpoint_names("model.layers.4.mlp.gate.weight", (7, 20)) == [
        "model.layers.4.mlp.gate.weight"
    ]
