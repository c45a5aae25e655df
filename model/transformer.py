"""ids -> logits: one decoder for every family.

What differs between families (biases, QK-norm, rotary scaling, tied head, experts) is chosen in
__init__ from the Config; no __call__ asks for it again. Attribute names are the checkpoint's, so
a parameter's path here is its name in the file.

Blind spot: it doesn't know where weights come from, nor what is done with the logits.

Sources: grouped-query attention, arXiv:2305.13245; SwiGLU, arXiv:2002.05202; RMSNorm,
arXiv:1910.07467; QK-norm before rotation as in the Qwen3 report, arXiv:2505.09388; sliding
windows that count the query's own position, as in Mistral 7B, arXiv:2310.06825.
"""

from operator import attrgetter
from typing import Any

import mlx.core as mx
from mlx import nn

from model.arguments import shown
from model.cache import KVCache, Mask, make_layers
from model.config import Config
from model.cpu.layout import Joined, lay_out
from model.moe import SparseMLP
from model.ops import RMSNorm, attend, silu
from model.rope import Rotary, Rotate


class Attention(nn.Module):
    """Causal self-attention: H query heads share K key/value heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, H = config.hidden_size, config.num_attention_heads
        K, D = config.num_key_value_heads, config.head_dim
        self.heads, self.kv_heads = H, K
        self.q_proj = nn.Linear(width, H * D, bias=config.qkv_bias)
        self.k_proj = nn.Linear(width, K * D, bias=config.qkv_bias)
        self.v_proj = nn.Linear(width, K * D, bias=config.qkv_bias)
        self.o_proj = nn.Linear(H * D, width, bias=config.o_bias)
        self.q_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(D, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self._qkv = Joined()
        # YaRN scales queries and keys alike; their product takes the square, once.
        self.scale = config.rope.attention_factor**2 / D**0.5

    def lay_out(self, dtype: mx.Dtype) -> None:
        """Store the weights in that type, as layout.py says."""
        self._qkv.join(self.q_proj, self.k_proj, self.v_proj, dtype=dtype)
        lay_out(self.o_proj, dtype)

    def __call__(self, x: mx.array, mask: Mask, cache: KVCache, rotate: Rotate) -> mx.array:
        B, L, _ = x.shape
        q, k, v = self._qkv(x, self.q_proj, self.k_proj, self.v_proj)
        q = self.q_norm(q.reshape(B, L, self.heads, -1)).transpose(0, 2, 1, 3)  # (B, H, L, D)
        k = self.k_norm(k.reshape(B, L, self.kv_heads, -1)).transpose(0, 2, 1, 3)  # (B, K, L, D)
        v = v.reshape(B, L, self.kv_heads, -1).transpose(0, 2, 1, 3)  # (B, K, L, D)
        q, k = rotate(q), rotate(k)
        k, v = cache.update(k, v)  # (B, K, S, D)
        out = attend(q, k, v, scale=self.scale, mask=mask)  # (B, H, L, D)
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(B, L, -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(width, inner, bias=bias)
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self._gate_up = Joined()

    def lay_out(self, dtype: mx.Dtype) -> None:
        """Store the weights in that type, as layout.py says."""
        self._gate_up.join(self.gate_proj, self.up_proj, dtype=dtype)
        lay_out(self.down_proj, dtype)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = self._gate_up(x, self.gate_proj, self.up_proj)
        return self.down_proj(silu(gate) * up)


class Block(nn.Module):
    """Attention and MLP, each on a normalised copy of the residual stream."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.window = config.window(layer)
        self.self_attn = Attention(config)
        self.mlp = SparseMLP(config) if config.is_sparse(layer) else MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def lay_out(self, dtype: mx.Dtype) -> None:
        """Store the weights in that type, as layout.py says; experts stay as they are."""
        self.self_attn.lay_out(dtype)
        if isinstance(self.mlp, MLP):
            self.mlp.lay_out(dtype)

    def __call__(self, x: mx.array, mask: Mask, cache: KVCache, rotate: Rotate) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), mask, cache, rotate)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, blocks, final norm: everything a checkpoint keeps under `model.`"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, layer) for layer in range(config.num_hidden_layers)]
        self.windows = frozenset(block.window for block in self.layers)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(config.rope, config.head_dim)

    def __call__(self, ids: mx.array, cache: list[KVCache]) -> mx.array:
        masks = {w: cache[0].mask(ids.shape[1], w) for w in self.windows}
        rotate = self.rotary.at(cache[0].offset, ids.shape[1])
        x = self.embed_tokens(ids)
        for block, layer_cache in zip(self.layers, cache, strict=True):
            x = block(x, masks[block.window], layer_cache, rotate)
        return self.norm(x)


class Transformer(nn.Module):
    """The whole model. `m(ids)` is `m.head(m.hidden(ids))`; prefill calls the two apart."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        # Looked up at each call: quantizing replaces the modules.
        tied = config.tie_word_embeddings
        self._head = attrgetter("model.embed_tokens.as_linear" if tied else "lm_head")

    def __call__(self, ids: mx.array, cache: list[KVCache] | None = None) -> mx.array:
        """ids (B, L) int -> logits (B, L, V). With a cache, the ids follow those it holds."""
        if not isinstance(ids, mx.array) or ids.ndim != 2:
            raise TypeError(f"ids must be an mx.array of (batch, length), got {shown(ids)}")
        return self.head(self.hidden(ids, cache))

    def hidden(self, ids: mx.array, cache: list[KVCache] | None = None) -> mx.array:
        """ids (B, L) int -> final hidden states (B, L, hidden_size). Ids aren't range-checked."""
        return self.model(ids, self.make_cache() if cache is None else cache)

    def head(self, hidden: mx.array) -> mx.array:
        """hidden (..., hidden_size) -> logits (..., V)."""
        return self._head(self)(hidden)

    def make_cache(self, **options: Any) -> list[KVCache]:
        """An empty cache for each layer; cache.make_layers tells of max_size, keep and bits."""
        return make_layers(self.config, **options)
