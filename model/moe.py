"""hidden states -> the weighted sum of a few experts' answers for each token.

Many tokens are sorted by expert, so that a GPU reads each expert once. Blind spot: it doesn't
balance the load between experts (that is training), and on a CPU MLX still runs one small product
per token and expert.

Source: the Qwen3-MoE layer of the Hub's checkpoints (softmax over all experts, then the top k).
"""

import mlx.core as mx
from mlx import nn

from model.config import Config
from model.ops import silu

MANY = 64  # tokens times experts, from which on sorting them pays (mlx-lm's number, for GPUs)


class ExpertLinear(nn.Module):
    """E linear maps, stacked; each token picks its own."""

    def __init__(self, num_experts: int, dims_in: int, dims_out: int) -> None:
        super().__init__()
        self.weight = mx.zeros((num_experts, dims_out, dims_in))

    def __call__(self, x: mx.array, experts: mx.array, *, in_order: bool) -> mx.array:
        """x (..., 1, in), experts (...), which may ascend -> (..., 1, out)."""
        weight = self.weight.swapaxes(-1, -2)
        return mx.gather_mm(x, weight, rhs_indices=experts, sorted_indices=in_order)


class Experts(nn.Module):
    """The SwiGLU of MLP, once per expert."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        E, width, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_proj = ExpertLinear(E, width, inner)
        self.up_proj = ExpertLinear(E, width, inner)
        self.down_proj = ExpertLinear(E, inner, width)

    def __call__(self, x: mx.array, experts: mx.array) -> mx.array:
        """x (B, L, width), experts (B, L, k) -> their answers (B, L, k, width)."""
        if experts.size < MANY:
            return self._answers(x[..., None, None, :], experts, in_order=False).squeeze(-2)
        order = mx.argsort(experts.reshape(-1))  # (B * L * k,), tokens of one expert together
        tokens = x.reshape(-1, 1, x.shape[-1])[order // experts.shape[-1]]  # (B * L * k, 1, width)
        answers = self._answers(tokens, experts.reshape(-1)[order], in_order=True)
        return answers[mx.argsort(order)].reshape(*experts.shape, -1)

    def _answers(self, x: mx.array, experts: mx.array, *, in_order: bool) -> mx.array:
        gate = self.gate_proj(x, experts, in_order=in_order)  # (..., 1, inner)
        inner = silu(gate) * self.up_proj(x, experts, in_order=in_order)
        return self.down_proj(inner, experts, in_order=in_order)  # (..., 1, width)


class SparseMLP(nn.Module):
    """Router and experts, in the place of MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_chosen = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = Experts(config)
        self.weigh = _sum_to_one if config.norm_topk_prob else _as_they_are

    def __call__(self, x: mx.array) -> mx.array:
        # float32: in bfloat16 two experts' probabilities are often equal.
        probabilities = mx.softmax(self.gate(x).astype(mx.float32), axis=-1)  # (B, L, E)
        ranked = mx.argpartition(-probabilities, self.num_chosen - 1, axis=-1)
        chosen = ranked[..., : self.num_chosen]  # (B, L, k)
        weights = self.weigh(mx.take_along_axis(probabilities, chosen, axis=-1))
        answers = self.experts(x, chosen)  # (B, L, k, width)
        return (answers * weights[..., None].astype(x.dtype)).sum(axis=-2)


def _sum_to_one(weights: mx.array) -> mx.array:
    return weights / weights.sum(axis=-1, keepdims=True)


def _as_they_are(weights: mx.array) -> mx.array:
    return weights


def checkpoint_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """The tensors of a checkpoint that make one parameter: itself, or one per stacked expert.

    >>> checkpoint_names("mlp.experts.up_proj.weight", (2, 48, 64))
    ['mlp.experts.0.up_proj.weight', 'mlp.experts.1.up_proj.weight']
    """
    if ".experts." not in name:
        return [name]
    return [name.replace(".experts.", f".experts.{expert}.") for expert in range(shape[0])]
