"""float modules <-> quantized ones, in place; headers and config.json's `quantization` block ->
each module's scheme.

A quantized matrix is three tensors of a checkpoint: `weight` (packed), `scales` and, in mode
affine, `biases`. Their shapes say how it was packed, so the block of config.json is only checked
against them, and says it where they leave a choice.

Blind spot: it doesn't know which modules tolerate few bits; it takes every matrix whose rows are
whole groups, and gives routers eight bits.

Sources: the modes are those of mx.quantize; the block and its overrides per module are mlx-lm's;
mxfp4 and mxfp8 are the OCP Microscaling formats, version 1.0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from model.moe import ExpertLinear

MODES = {  # mode -> (group sizes, bits) that it has, the default first
    "affine": ((64, 32, 128), (4, 2, 3, 5, 6, 8)),
    "mxfp4": ((32,), (4,)),
    "nvfp4": ((16,), (4,)),
    "mxfp8": ((32,), (8,)),
}
ROUTER_BITS = 8  # as mlx-lm: a router with few bits sends tokens to other experts


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How a matrix is packed: `bits` a value, one scale for each `group_size` values of a row.

    Raises ValueError for what the mode doesn't have; `check_supported` asks this MLX as well.
    """

    group_size: int
    bits: int
    mode: str = "affine"

    def __post_init__(self) -> None:
        if type(self.mode) is not str or self.mode not in MODES:
            raise ValueError(f"quantization mode {self.mode!r} is not one of {', '.join(MODES)}")
        for name, allowed in zip(("group_size", "bits"), MODES[self.mode], strict=True):
            value = getattr(self, name)
            if type(value) is not int or value not in allowed:
                options = ", ".join(map(str, sorted(allowed)))
                raise ValueError(
                    f"quantization mode {self.mode} has no {name} {value!r}; it has {options}"
                )

    @classmethod
    def of(cls, mode: str = "affine", group_size: int | None = None, bits: int | None = None):
        """A scheme whose open choices are the mode's defaults.

        >>> Scheme.of("mxfp8")
        Scheme(group_size=32, bits=8, mode='mxfp8')
        """
        known = type(mode) is str and mode in MODES
        sizes, widths = MODES[mode] if known else ((0,), (0,))  # an unknown one is refused below
        return cls(
            group_size=sizes[0] if group_size is None else group_size,
            bits=widths[0] if bits is None else bits,
            mode=mode,
        )

    def __str__(self) -> str:
        return f"{self.mode} {self.bits} bits in groups of {self.group_size}"

    @property
    def has_biases(self) -> bool:
        return self.mode == "affine"

    def options(self) -> dict[str, Any]:
        """As keyword arguments of mx.quantize, and as an entry of config.json."""
        return asdict(self)


@cache
def check_supported(scheme: Scheme) -> None:
    """Raises ValueError where the installed MLX doesn't have the scheme, or computes it wrongly:
    MLX 0.29 takes mxfp8 and nvfp4 on CPUs and gives products of something else."""
    rows = mx.sin(mx.arange(8 * 128)).reshape(8, 128)
    try:
        packed = pack(rows, scheme)
        product = mx.quantized_matmul(rows, *packed.values(), **scheme.options())  # (8, 8)
        gap = mx.abs(product - rows @ unpack(packed, scheme).T).max().item()
        why = "its products are wrong" if not gap < 1 else ""  # of up to 64
    except (ValueError, TypeError, RuntimeError) as error:
        why = str(error)
    if why:
        raise ValueError(f"this MLX ({mx.__version__}) can't run {scheme}: {why}; upgrade mlx")


# --- modules -------------------------------------------------------------------------------------


class QuantizedExpertLinear(nn.Module):
    """ExpertLinear with packed weights."""

    def __init__(self, num_experts: int, dims_in: int, dims_out: int, scheme: Scheme) -> None:
        super().__init__()
        self.group_size, self.bits, self.mode = scheme.group_size, scheme.bits, scheme.mode
        weight = mx.zeros((num_experts, dims_out, dims_in))
        self.weight, self.scales, *biases = mx.quantize(weight, **scheme.options())
        self.biases = biases[0] if biases else None
        self.freeze()

    def __call__(self, x: mx.array, experts: mx.array, *, in_order: bool) -> mx.array:
        """x (..., 1, in), experts (...), which may ascend -> (..., 1, out)."""
        return mx.gather_qmm(
            x,
            self["weight"],
            self["scales"],
            self.get("biases"),
            rhs_indices=experts,
            sorted_indices=in_order,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )


class QuantizedEmbedding(nn.QuantizedEmbedding):
    """MLX's, but its answers have the type of the model's other activations: MLX unpacks all modes
    but affine to bfloat16, which next to float16 would make everything float32."""

    def __init__(self, rows: int, dims: int, scheme: Scheme, dtype: mx.Dtype) -> None:
        super().__init__(rows, dims, **scheme.options())
        self.dtype = dtype

    def __call__(self, ids: mx.array) -> mx.array:
        return super().__call__(ids).astype(self.dtype)


QUANTIZED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedExpertLinear)


def matrices(m: nn.Module) -> dict[str, nn.Module]:
    """Path -> every module that can be quantized."""
    return _modules(m, (nn.Linear, nn.Embedding, ExpertLinear))


def _modules(m: nn.Module, kinds: tuple[type, ...]) -> dict[str, nn.Module]:
    leaves = tree_flatten(m.leaf_modules(), is_leaf=lambda node: isinstance(node, nn.Module))
    return {path: module for path, module in leaves if isinstance(module, kinds)}


def quantize(
    m: nn.Module,
    *,
    bits: int | None = None,
    group_size: int | None = None,
    mode: str = "affine",
    choose: Callable[[str, nn.Module], bool] | None = None,
) -> None:
    """Replace matrices by quantized ones, weights included.

    choose(path, module) says which; every one where None. One whose rows aren't whole groups stays
    as it is. Raises ValueError for a scheme that there isn't, or where nothing is left to quantize.
    """
    scheme = Scheme.of(mode, group_size, bits)
    check_supported(scheme)
    schemes = plan(m, scheme, choose)
    if not schemes:
        raise ValueError(
            f"no matrix was quantized: none that was chosen has rows of whole groups of"
            f" {scheme.group_size}"
        )
    for path, module in matrices(m).items():
        if path in schemes:
            arrays = pack(module.weight, schemes[path])
            biases = [("bias", module.bias)] if "bias" in module else []
            prepare(m, {path: schemes[path]}, module.weight.dtype)
            _modules(m, QUANTIZED)[path].load_weights([*arrays.items(), *biases])
    mx.eval(m.parameters())


def plan(
    m: nn.Module, scheme: Scheme, choose: Callable[[str, nn.Module], bool] | None = None
) -> dict[str, Scheme]:
    """Path -> the scheme of each matrix that `scheme` can be used for; routers get eight bits."""
    schemes = {}
    for path, module in matrices(m).items():
        wanted = scheme
        if path.endswith("mlp.gate"):
            wanted = Scheme.of("affine", bits=ROUTER_BITS)
        whole = module.weight.shape[-1] % wanted.group_size == 0
        if whole and (choose is None or choose(path, module)):
            schemes[path] = wanted
    return schemes


def pack(weight: mx.array, scheme: Scheme) -> dict[str, mx.array]:
    """A matrix (..., out, in) as the tensors of its quantized form."""
    parts = mx.quantize(weight, **scheme.options())
    return dict(zip(("weight", "scales", "biases"), parts))


def unpack(parts: Mapping[str, mx.array], scheme: Scheme) -> mx.array:
    """The inverse of `pack`, but for what packing lost; in the type of the scales if affine, else
    in float32."""
    array = mx.dequantize(parts["weight"], parts["scales"], parts.get("biases"), **scheme.options())
    return array if scheme.has_biases else array.astype(mx.float32)


def prepare(m: nn.Module, schemes: Mapping[str, Scheme], dtype: mx.Dtype) -> None:
    """Replace modules by quantized ones of the same size, their weights still to be loaded.

    dtype: of the activations.
    """
    modules = matrices(m)
    new = [(path, _quantized_form(modules[path], each, dtype)) for path, each in schemes.items()]
    m.update_modules(tree_unflatten(new))


def _quantized_form(module: nn.Module, scheme: Scheme, dtype: mx.Dtype) -> nn.Module:
    *experts, dims_out, dims_in = module.weight.shape
    options = scheme.options()
    if isinstance(module, ExpertLinear):
        return QuantizedExpertLinear(*experts, dims_in, dims_out, scheme)
    if isinstance(module, nn.Embedding):
        return QuantizedEmbedding(dims_out, dims_in, scheme, dtype)
    return nn.QuantizedLinear(dims_in, dims_out, bias="bias" in module, **options)


def dequantize(m: nn.Module, dtype: mx.Dtype | None = None) -> None:
    """Replace quantized modules by float ones of the same values, in `dtype` if it is given."""
    for path, module in _modules(m, QUANTIZED).items():
        scheme = Scheme(group_size=module.group_size, bits=module.bits, mode=module.mode)
        weight = unpack(module, scheme)
        weight = weight if dtype is None else weight.astype(dtype)
        biases = [("bias", module.bias)] if "bias" in module else []
        new = _float_form(module, *weight.shape)
        new.load_weights([("weight", weight), *biases])
        m.update_modules(tree_unflatten([(path, new)]))
    mx.eval(m.parameters())


def _float_form(module: nn.Module, *shape: int) -> nn.Module:
    if isinstance(module, QuantizedExpertLinear):
        experts, dims_out, dims_in = shape
        return ExpertLinear(experts, dims_in, dims_out)
    dims_out, dims_in = shape
    if isinstance(module, nn.QuantizedEmbedding):
        return nn.Embedding(dims_out, dims_in)
    return nn.Linear(dims_in, dims_out, bias="bias" in module)


# --- headers and the block of config.json --------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Block:
    """config.json's `quantization`: a scheme for all, and what it says of single modules."""

    default: Scheme
    overrides: Mapping[str, Scheme | bool]  # path -> its own scheme; True: the default


def read_block(raw: Mapping[str, Any]) -> Block | None:
    """The block, validated; None where there is none. Raises ValueError naming what is wrong.

    mlx-lm writes it twice, as `quantization` and as `quantization_config`. Under the second name
    alone transformers keeps the settings of other methods, which have `quant_method`.
    """
    block = raw.get("quantization") or raw.get("quantization_config")
    if not block:
        return None
    if not isinstance(block, Mapping):
        raise ValueError(f"quantization must be an object, found {block!r}")
    if method := block.get("quant_method"):
        raise ValueError(
            f"quantization_config: weights quantized by {method!r} are not supported; use the"
            " unquantized model, a GGUF file or an MLX one"
        )
    if "bits" not in block and "mode" not in block:
        raise ValueError("quantization has neither bits nor mode, so nothing says how to unpack")
    own = {key: block[key] for key in ("group_size", "bits", "mode") if key in block}
    rest = {path: given for path, given in block.items() if path not in own}
    default = _scheme("quantization", own)
    return Block(default=default, overrides=dict(_read_overrides(rest)))


def _read_overrides(rest: Mapping[str, Any]) -> Iterator[tuple[str, Scheme | bool]]:
    for path, given in rest.items():
        if isinstance(given, bool):
            yield path, given
        elif isinstance(given, Mapping):
            yield path, _scheme(f"quantization of {path}", given)
        else:
            raise ValueError(f"quantization: {path} = {given!r} is not supported")


def _scheme(where: str, given: Mapping[str, Any]) -> Scheme:
    if unknown := sorted(given.keys() - {"group_size", "bits", "mode"}):
        raise ValueError(f"{where}: {unknown[0]} = {given[unknown[0]]!r} is not supported")
    try:
        return Scheme.of(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def schemes_of(m: nn.Module, tensors: Mapping[str, Any], block: Block | None) -> dict[str, Scheme]:
    """Path -> scheme of each matrix of m that the tensors hold in packed form.

    tensors: name -> anything with `dtype` ("U8", "F16", ...) and `shape`. Raises ValueError where
    shapes and block disagree, or fit no scheme.
    """
    schemes = {}
    for path, module in matrices(m).items():
        weight, scales = (tensors.get(f"{path}.{part}") for part in ("weight", "scales"))
        if weight is not None and scales is not None:
            schemes[path] = _inferred(path, module.weight.shape[-1], weight, scales)
            _check_agreement(path, schemes[path], block)
    for scheme in set(schemes.values()):
        check_supported(scheme)
    return schemes


def _inferred(path: str, dims_in: int, weight: Any, scales: Any) -> Scheme:
    """The one scheme that packs rows of dims_in values into these shapes."""
    num_groups, num_words = (part.shape[-1] if part.shape else 0 for part in (scales, weight))
    group_size = dims_in // max(1, num_groups)
    bits = num_words * 32 // dims_in
    whole = dims_in == num_groups * group_size
    floating = scales.dtype not in ("U8", "U32")
    modes = [mode for mode in MODES if (mode == "affine") == floating]
    for mode in modes:
        if whole and group_size in MODES[mode][0] and bits in MODES[mode][1]:
            return Scheme(group_size=group_size, bits=bits, mode=mode)
    raise ValueError(
        f"{path} has packed weights {weight.shape} and scales {scales.shape} ({scales.dtype}),"
        f" which is no scheme for rows of {dims_in} values: {bits} bits in groups of {group_size}"
    )


def _check_agreement(path: str, found: Scheme, block: Block | None) -> None:
    """Only what the block says of this very module: mlx-lm, too, lets shapes decide elsewhere."""
    said = None if block is None else block.overrides.get(path)
    said = block.default if said is True else said
    if said is False or (said is not None and said != found):
        raise ValueError(
            f"config.json says of {path} {said or 'that it is not quantized'}, but its tensors are"
            f" {found}; they belong to different models"
        )
