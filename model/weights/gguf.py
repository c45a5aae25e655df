"""A .gguf file -> metadata, tensor descriptions and, one at a time, tensors.

A tensor comes in float32, or repacked for MLX's quantized products where MLX has the same kind of
groups (`packed_bits`). What formats there are and how their blocks look is gguf_blocks.py's.
Arrays that describe the tokenizer are stepped over, not read: `bpe` has its own small metadata
reader, because the two packages must not know each other.

Blind spot: it doesn't know what the tensors mean; names are GGUF's until `checkpoint_name`.

Source: the GGUF specification in ggml's docs/gguf.md.
"""

import mmap
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

from model.weights.gguf_blocks import FORMATS, OTHER_FORMATS, Format, dequantize, format_of, repack

# metadata value type -> struct code
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class TensorInfo:
    """One tensor's place in its file. shape is row-major (GGUF stores it reversed)."""

    file: Path
    name: str
    format: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    num_bytes: int


class GGUF:
    """A GGUF file, its header mapped into memory.

    metadata: key -> value, without the arrays under `tokenizer.`. tensors: name -> TensorInfo.
    Raises ValueError if the file is not GGUF, is truncated, or holds an unsupported format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            if file.seek(0, 2) < 24:
                raise ValueError(f"{self.path} is too short for a GGUF header: {file.tell()} bytes")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._position = 0
        num_tensors, num_entries = self._read_header()
        self.metadata: dict[str, Any] = dict(self._read_entry() for _ in range(num_entries))
        self.metadata = {k: v for k, v in self.metadata.items() if v is not None}
        self.tensors = self._read_tensor_infos(num_tensors)

    def read(self, name: str) -> mx.array:
        """The tensor in float32, dequantized by its format's formula; lazy until evaluated."""
        info = self.tensors[name]
        return dequantize(info.format, self._blocks(info)).reshape(info.shape)

    def read_packed(self, name: str) -> dict[str, mx.array]:
        """`weight`, `scales` and `biases` (float32) as mx.quantize would give them for the same
        values in groups of 32, of a tensor whose format has `packed_bits`. Lazy."""
        info = self.tensors[name]
        parts = repack(info.format, self._blocks(info))
        return {part: array.reshape(*info.shape[:-1], -1) for part, array in parts.items()}

    def _blocks(self, info: TensorInfo) -> mx.array:
        """(blocks, bytes per block) uint8."""
        # Not from the mapping: its pages would count as the process's memory.
        with info.file.open("rb") as file:
            file.seek(info.start)
            content = file.read(info.num_bytes)
        return mx.array(memoryview(content)).reshape(-1, format_of(info.format).block_bytes)

    def _read_header(self) -> tuple[int, int]:
        magic, version = self._unpack("4sI")
        if magic != b"GGUF":
            raise ValueError(f"{self.path} is not a GGUF file: it begins with {magic!r}")
        if version not in (2, 3):
            raise ValueError(
                f"{self.path} is GGUF version {version}, and only 2 and 3 (little-endian) are"
                " supported; convert it anew"
            )
        return self._unpack("QQ")

    def _read_entry(self) -> tuple[str, Any]:
        return self._read_string(), self._read_value(*self._unpack("I"))

    def _read_value(self, kind: int) -> Any:
        """A scalar, a string, or a tuple; None for an array that isn't for us."""
        if kind == _STRING:
            return self._read_string()
        if kind == _ARRAY:
            return self._read_array(*self._unpack("IQ"))
        if kind not in _SCALARS:
            raise ValueError(f"{self.path}: unknown metadata type {kind}; the file is damaged")
        return self._unpack(_SCALARS[kind])[0]

    def _read_array(self, kind: int, count: int) -> tuple | None:
        if kind in _SCALARS and count <= 4096:
            return self._unpack(f"{count}{_SCALARS[kind]}")
        if kind in _SCALARS:
            self._skip(count * struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(count):
                self._skip(*self._unpack("Q"))
        else:
            raise ValueError(f"{self.path}: arrays of metadata type {kind} are not supported")
        return None

    def _read_string(self) -> str:
        start = self._skip(*self._unpack("Q"))
        return self._bytes[start : self._position].decode("utf-8", "replace")

    def _read_tensor_infos(self, count: int) -> dict[str, TensorInfo]:
        """All descriptions, each checked against the file's size before anything is read."""
        entries = [self._read_tensor_entry() for _ in range(count)]
        alignment = self._alignment()
        data = -(-self._position // alignment) * alignment
        infos = {}
        for name, shape, kind, offset in entries:
            stored = self._format(name, kind)
            if not shape or shape[-1] % stored.per_block:
                raise ValueError(f"{self.path}: {name} has shape {shape}, not whole blocks")
            if name in infos or offset % alignment:
                what = f"at {offset}, not aligned to {alignment}"
                what = "twice in it" if name in infos else what
                raise ValueError(f"{self.path}: tensor {name} is {what}; the file is damaged")
            size = prod(shape) // stored.per_block * stored.block_bytes
            infos[name] = TensorInfo(self.path, name, stored.name, shape, data + offset, size)
        end = max((info.start + info.num_bytes for info in infos.values()), default=0)
        self._check_size(end)
        placed = sorted(infos.values(), key=lambda info: info.start)
        for one, other in zip(placed, placed[1:]):
            if one.start + one.num_bytes > other.start:
                raise ValueError(
                    f"{self.path}: tensors {one.name} and {other.name} overlap; the file is damaged"
                )
        return infos

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(
                f"{self.path}: general.alignment must be a power of two, found {alignment!r}; the"
                " file is damaged"
            )
        return alignment

    def _read_tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._read_string()
        (num_dims,) = self._unpack("I")
        if not 1 <= num_dims <= 4:
            raise ValueError(f"{self.path}: {name} has {num_dims} dimensions; damaged file")
        shape = self._unpack(f"{num_dims}Q")[::-1]
        return name, shape, *self._unpack("IQ")

    def _format(self, name: str, kind: int) -> Format:
        if kind not in FORMATS:
            found = OTHER_FORMATS.get(kind, f"ggml type {kind}")
            supported = ", ".join(known.name for known in FORMATS.values())
            raise ValueError(
                f"{self.path}: tensor {name} is stored as {found}, which can't be read; use a file"
                f" with {supported}"
            )
        return FORMATS[kind]

    def _unpack(self, code: str) -> tuple:
        start = self._skip(struct.calcsize("<" + code))
        return struct.unpack_from("<" + code, self._bytes, start)

    def _skip(self, num_bytes: int) -> int:
        """Step over so many bytes; -> where they start."""
        start, self._position = self._position, self._position + num_bytes
        if self._position > len(self._bytes):
            self._check_size(self._position)
        return start

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > len(self._bytes):
            raise ValueError(
                f"{self.path} is truncated: it needs at least {num_bytes} bytes and has"
                f" {len(self._bytes)}; download it again"
            )


def open_whole(path: str | Path) -> GGUF:
    """A file, or all the parts of a model that was split, whichever of them is named: the first
    one's metadata and the tensors of all.

    Raises what GGUF does, and FileNotFoundError for a part that isn't there.
    """
    opened = GGUF(path)
    count = opened.metadata.get("split.count", 1)
    if type(count) is not int or count < 2:
        return opened
    name = re.fullmatch(r"(.*-)\d{5}-of-(\d{5}\.gguf)", opened.path.name)
    if not name or int(name[2][:5]) != count:
        raise ValueError(
            f"{path} is one of {count} parts, and only names like m-00001-of-{count:05d}.gguf say"
            " where the others are; give them back their names"
        )
    files = [opened.path.with_name(f"{name[1]}{i + 1:05d}-of-{name[2]}") for i in range(count)]
    if missing := [file for file in files if not file.exists()]:
        raise FileNotFoundError(f"{missing[0]} is not there, one of {count} parts; download it")
    whole, *others = map(GGUF, files)
    for other in others:
        if twice := sorted(whole.tensors.keys() & other.tensors.keys()):
            raise ValueError(f"{other.path}: tensor {twice[0]} is in another part as well")
        whole.tensors |= other.tensors
    return whole


# --- names and row order -------------------------------------------------------------------------

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",  # the router
    "ffn_gate_exps": "mlp.experts.gate_proj",  # all experts in one tensor, from here on
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}


def checkpoint_name(name: str) -> str:
    """GGUF's name of a tensor -> the checkpoint's; an unknown name stays as it is.

    >>> checkpoint_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if not match or match[2] not in _NAMES:
        return name
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{_NAMES[match[2]]}.{match[3]}"


def unpermute(rows: mx.array, heads: int) -> mx.array:
    """Llama's q and k rows in GGUF (pairs side by side) -> the checkpoint's (halves apart).

    rows: (heads * D, ...). Other architectures are stored as the checkpoint has them.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
