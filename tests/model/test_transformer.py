"""model/transformer.py against recorded logits of transformers and a textbook attention."""

import io
import json
import math
import shutil

import mlx.core as mx
import pytest
from compare import ALL, DENSE, REFERENCE, assert_close, assert_same_ids, golden
from mlx.utils import tree_flatten

from model.cache import causal_mask
from model.config import Config
from model.generation.generate import generate
from model.rope import Rotary
from model.transformer import MLP, Attention, Transformer
from model.weights.load import load


@pytest.fixture(scope="module", params=ALL)
def case(request):
    return load(REFERENCE / request.param), golden(request.param)


def small(**changes) -> Config:
    """Every size is different from every other."""
    sizes = {
        "model_type": "qwen3",
        "vocab_size": 31,
        "hidden_size": 20,
        "intermediate_size": 14,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 50,
        "rms_norm_eps": 1e-6,
    }
    return Config(**(sizes | changes))


def test_logits_at_both_ends(case):
    m, expected = case
    logits = m(mx.array([expected["ids"]]))[0]  # (L, V)
    assert_close(logits[0], expected["logits_first"], atol=2e-4)
    assert_close(logits[-1], expected["logits_last"], atol=2e-4)


def test_greedy_ids_without_a_cache(case):
    m, expected = case
    ids = list(expected["ids"])
    for _ in expected["greedy"]:
        ids.append(m(mx.array([ids]))[0, -1].argmax().item())
    assert_same_ids(ids[len(expected["ids"]) :], expected["greedy"])


@pytest.mark.parametrize("chunk", [1, 3, 7, 23, 24, 64])
def test_logits_through_the_cache_in_chunks(case, chunk):
    m, expected = case
    ids, cache = expected["ids"], m.make_cache()
    logits = [m(mx.array([ids[i : i + chunk]]), cache)[0] for i in range(0, len(ids), chunk)]
    logits = mx.concatenate(logits)  # (L, V)
    assert [layer.offset for layer in cache] == [len(ids)] * m.config.num_hidden_layers
    assert_close(logits[-1], expected["logits_last"], atol=2e-4)
    assert_close(logits, m(mx.array([ids]))[0], atol=2e-4)


def test_greedy_ids_through_the_cache_token_by_token(case):
    m, expected = case
    cache, produced = m.make_cache(), []
    for one in expected["ids"]:
        logits = m(mx.array([[one]]), cache)
    for _ in expected["greedy"]:
        produced.append(logits[0, -1].argmax().item())
        logits = m(mx.array([produced[-1:]]), cache)
    assert_same_ids(produced, expected["greedy"])


def test_rows_of_a_batch_do_not_meet(case):
    m, expected = case
    ids = expected["ids"][:9]
    batch = mx.array([ids, ids[::-1]])
    logits = m(batch)
    assert_close(logits[:1], m(batch[:1]), atol=1e-4)
    assert_close(logits[1:], m(batch[1:]), atol=1e-4)


def test_head_of_hidden_is_the_whole(case):
    m, expected = case
    ids = mx.array([expected["ids"]])
    last = m.hidden(ids)[:, -1]  # (1, hidden_size)
    assert_close(m.head(last), m(ids)[:, -1], atol=1e-4)


@pytest.mark.parametrize("name", DENSE)  # rounding may send a token to other experts
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_short_types_stay_short_and_near(name, dtype):
    m, expected = load(REFERENCE / name, dtype), golden(name)
    cache = m.make_cache()
    logits = m(mx.array([expected["ids"]]), cache)
    assert {logits.dtype, *(buffer.dtype for buffer in cache[0].state)} == {dtype}
    assert_close(logits[0, -1], expected["logits_last"], atol=0.15)


def textbook_attention(attention: Attention, x: mx.array, config: Config, window=99) -> list:
    """One query at a time: scores, softmax and weighted sum in Python floats."""
    B, L, _ = x.shape
    H, K, D = config.num_attention_heads, config.num_key_value_heads, config.head_dim

    def heads(projection, count):
        split = projection(x).reshape(B, L, count, D)
        return split.transpose(0, 2, 1, 3)

    rotate = Rotary(config.rope, D).at(0, L)
    q = rotate(attention.q_norm(heads(attention.q_proj, H))).tolist()
    k = rotate(attention.k_norm(heads(attention.k_proj, K))).tolist()
    v = heads(attention.v_proj, K).tolist()

    def attend(b, h, t):
        shared = h // (H // K)
        seen = range(max(0, t + 1 - window), t + 1)
        scores = [math.fsum(map(math.prod, zip(q[b][h][t], k[b][shared][s]))) for s in seen]
        weights = [math.exp(score / math.sqrt(D)) for score in scores]
        mixed = zip(*(v[b][shared][s] for s in seen), strict=True)
        total = sum(weights)
        return [math.fsum(map(math.prod, zip(weights, c))) / total for c in mixed]

    def token(b, t):
        return [value for h in range(H) for value in attend(b, h, t)]

    return [[token(b, t) for t in range(L)] for b in range(B)]


@pytest.mark.parametrize("qk_norm", [True, False])
def test_attention_is_the_textbook_softmax(qk_norm):
    config = small(qk_norm=qk_norm, qkv_bias=True)
    m = Transformer(config)
    attention, cache = m.model.layers[0].self_attn, m.make_cache()[0]
    x = mx.random.normal((2, 5, config.hidden_size), key=mx.random.key(3))
    expected = attention.o_proj(mx.array(textbook_attention(attention, x, config)))
    rotate = m.model.rotary.at(0, 5)
    assert_close(attention(x, "causal", cache, rotate), expected, atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 6, 7, 50])
def test_a_sliding_window_is_the_textbook_softmax_of_what_it_holds(window):
    config = small(sliding_layers=(0,), sliding_window=window)
    m = Transformer(config)
    attention, cache = m.model.layers[0].self_attn, m.make_cache()[0]
    x = mx.random.normal((2, 7, config.hidden_size), key=mx.random.key(5))
    expected = attention.o_proj(mx.array(textbook_attention(attention, x, config, window)))
    mask, rotate = causal_mask(7, 0, window), m.model.rotary.at(0, 7)
    assert_close(attention(x, mask, cache, rotate), expected, atol=1e-5)


SLIDING = json.loads((REFERENCE.parent / "sliding_window.json").read_text())


@pytest.mark.parametrize("case", SLIDING, ids=lambda case: case["name"])
@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_sliding_windows_as_transformers_has_them(tmp_path, case, chunk):
    """Recorded with the reference weights and the config's changes; in chunks through the cache."""
    path = shutil.copytree(REFERENCE / case["reference"], tmp_path / "m")
    raw = json.loads((path / "config.json").read_text()) | case["config"]
    (path / "config.json").write_text(json.dumps(raw))
    m, ids = load(path), golden(case["reference"])["ids"]
    cache = m.make_cache()
    logits = [m(mx.array([ids[i : i + chunk]]), cache)[0] for i in range(0, len(ids), chunk)]
    assert_close(mx.concatenate(logits)[-1], case["logits_last"], atol=2e-4)
    produced = generate(m, ids, max_tokens=len(case["greedy"]))
    assert_same_ids(produced, case["greedy"])


def test_mlp_is_the_textbook_swiglu():
    config = small(mlp_bias=True)
    mlp, x = MLP(config), mx.random.normal((2, 5, config.hidden_size), key=mx.random.key(4))
    gate, up = mlp.gate_proj(x).tolist(), mlp.up_proj(x).tolist()

    def swiglu(g, u):
        return [a / (1 + math.exp(-a)) * b for a, b in zip(g, u, strict=True)]

    inner = [[swiglu(*pair) for pair in zip(g, u)] for g, u in zip(gate, up, strict=True)]
    assert_close(mlp(x), mlp.down_proj(mx.array(inner)), atol=1e-5)


def test_parameters_are_what_the_config_asks_for():
    def names(**changes):
        m = Transformer(small(num_hidden_layers=1, **changes))
        return {name for name, _ in tree_flatten(m.parameters())}

    plain = names(tie_word_embeddings=True)
    assert "lm_head.weight" not in plain
    attention = "model.layers.0.self_attn"
    assert names() - plain == {"lm_head.weight"}
    assert names(tie_word_embeddings=True, qk_norm=True) - plain == {
        f"{attention}.q_norm.weight",
        f"{attention}.k_norm.weight",
    }
    assert names(tie_word_embeddings=True, qkv_bias=True) - plain == {
        f"{attention}.{p}_proj.bias" for p in "qkv"
    }
    assert names(tie_word_embeddings=True, o_bias=True) - plain == {f"{attention}.o_proj.bias"}
    assert names(tie_word_embeddings=True, mlp_bias=True) - plain == {
        f"model.layers.0.mlp.{p}_proj.bias" for p in ("gate", "up", "down")
    }


def test_a_forward_pass_compiles_nothing(case):
    """mx.compile calls a C++ compiler on Linux CPUs; users may have none."""
    m, expected = case
    graph = io.StringIO()
    mx.export_to_dot(graph, m(mx.array([expected["ids"]])))
    assert "Matmul" in graph.getvalue()
    assert "Compiled" not in graph.getvalue()
