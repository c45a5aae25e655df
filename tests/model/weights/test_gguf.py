"""weights/gguf.py against a slow decoder, and models written to GGUF against their checkpoints."""

import math
import random
import shutil
import struct
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE, assert_close, assert_same_ids, golden
from mlx import nn
from mlx.utils import tree_flatten

from model.generation.generate import generate
from model.weights.checkpoint import open_checkpoint
from model.weights.gguf import GGUF, checkpoint_name, unpermute
from model.weights.load import load

F32, F16, Q4_0, Q4_1, Q8_0, BF16, MXFP4 = 0, 1, 2, 3, 8, 30, 39  # ggml's numbers


# --- a writer ------------------------------------------------------------------------------------


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(content) -> bytes:
    """A metadata value after its type: whole numbers are uint32, floats float32."""
    if isinstance(content, bool):
        return struct.pack("<IB", 7, content)
    if isinstance(content, int):
        return struct.pack("<II", 4, content)
    if isinstance(content, float):
        return struct.pack("<If", 6, content)
    if isinstance(content, str):
        return struct.pack("<I", 8) + string(content)
    items = [value(item) for item in content]
    return (
        struct.pack("<I", 9)
        + items[0][:4]
        + struct.pack("<Q", len(items))
        + b"".join(item[4:] for item in items)
    )


def write_gguf(path: Path, metadata: dict, tensors: dict, *, version=3, alignment=32) -> Path:
    """tensors: name -> (ggml type, shape, bytes)."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(content) for key, content in metadata.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        head += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path


def floats(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


# --- a slow decoder ------------------------------------------------------------------------------


def single(number: float) -> float:
    """Rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def decode(kind: int, block: bytes) -> list[float]:
    """One block, value by value, as the format's description says it."""
    if kind == F32:
        return list(struct.unpack("<f", block))
    if kind == F16:
        return list(struct.unpack("<e", block))
    if kind == BF16:  # the upper half of a float32
        return list(struct.unpack("<f", b"\0\0" + block))
    (scale,) = struct.unpack_from("<e", block)
    if kind == Q8_0:
        return [scale * q for q in struct.unpack_from("<32b", block, 2)]
    start, least = (4, struct.unpack_from("<e", block, 2)[0]) if kind == Q4_1 else (2, -8 * scale)
    packed = block[start:]
    nibbles = [packed[i] % 16 if i < 16 else packed[i - 16] // 16 for i in range(32)]
    return [single(scale * q + least) for q in nibbles]


def random_block(kind: int, draw: random.Random) -> bytes:
    half = struct.pack("<e", draw.uniform(-3, 3))
    if kind == F32:
        return struct.pack("<f", draw.gauss(0, 1))
    if kind in (F16, BF16):
        return half if kind == F16 else struct.pack("<f", draw.gauss(0, 1))[2:]
    least = struct.pack("<e", draw.uniform(-3, 3)) if kind == Q4_1 else b""
    return half + least + draw.randbytes(32 if kind == Q8_0 else 16)


@pytest.mark.parametrize("kind", [F32, F16, BF16, Q4_0, Q4_1, Q8_0])
def test_blocks_decode_exactly(tmp_path, kind):
    draw = random.Random(kind)
    per_block = 32 if kind in (Q4_0, Q4_1, Q8_0) else 1
    shape = (5, 3 * per_block)
    blocks = [random_block(kind, draw) for _ in range(15)]
    path = write_gguf(tmp_path / "t.gguf", {}, {"t": (kind, shape, b"".join(blocks))})
    expected = [number for block in blocks for number in decode(kind, block)]
    array = GGUF(path).read("t")
    assert array.dtype == mx.float32
    assert_close(array, mx.array(expected).reshape(shape), atol=0)


def test_all_values_of_one_block(tmp_path):
    """By hand: scale 0.5, the low halves count 0..15, the high ones 15..0."""
    packed = bytes(i + 16 * (15 - i) for i in range(16))
    block = struct.pack("<e", 0.5) + packed
    path = write_gguf(tmp_path / "t.gguf", {}, {"t": (Q4_0, (32,), block)})
    expected = [(i - 8) / 2 for i in range(16)] + [(7 - i) / 2 for i in range(16)]
    assert GGUF(path).read("t").tolist() == expected


# --- header --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensor_infos(tmp_path, version):
    metadata = {
        "general.alignment": 64,
        "general.name": "näme",
        "flag": True,
        "sizes": [1, 2, 3],
        "eps": 0.5,
        "tokenizer.ggml.tokens": ["a", "bc", ""],
        "after": 7,
    }
    one = (F32, (2, 3), floats([1, 2, 3, 4, 5, 6]))
    path = write_gguf(
        tmp_path / "t.gguf",
        metadata,
        {"one": one, "two": (F32, (1,), floats([9]))},
        version=version,
        alignment=64,
    )
    file = GGUF(path)
    del metadata["tokenizer.ggml.tokens"]  # stepped over
    assert file.metadata == metadata | {"sizes": (1, 2, 3)}
    assert file.tensors["one"].shape == (2, 3)
    assert file.read("one").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert file.read("two").tolist() == [9]


def test_truncated_anywhere_is_one_clear_error(tmp_path):
    metadata = {"general.name": "x", "tokenizer.ggml.tokens": ["a", "b"], "numbers": [1, 2]}
    tensors = {"t": (F32, (2, 3), floats([0] * 6))}
    whole = write_gguf(tmp_path / "whole.gguf", metadata, tensors).read_bytes()
    path = tmp_path / "part.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"part\.gguf is t(runcated|oo short)") as caught:
            GGUF(path)
        assert str(length) in str(caught.value), "the bytes found"


def test_bytes_expected_and_found(tmp_path):
    path = write_gguf(tmp_path / "t.gguf", {}, {"t": (F32, (6,), floats([0] * 6))})
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    message = f"needs at least {len(whole)} bytes and has {len(whole) - 4}"
    with pytest.raises(ValueError, match=message):
        GGUF(path)


@pytest.mark.parametrize(
    ("start", "content", "message"),
    [
        (0, b"GGML", "is not a GGUF file: it begins with b'GGML'"),
        (4, struct.pack("<I", 1), "GGUF version 1"),
        (4, struct.pack(">I", 3), "little-endian"),
        (24 + 8 + 1, struct.pack("<I", 77), "unknown metadata type 77"),
        (24 + 8 + 1 + 4 + 4 + 8 + 1, struct.pack("<I", 5), "t has 5 dimensions"),
    ],
)
def test_damage_is_named(tmp_path, start, content, message):
    path = write_gguf(tmp_path / "t.gguf", {"k": 1}, {"t": (F32, (6,), floats([0] * 6))})
    broken = bytearray(path.read_bytes())
    broken[start : start + len(content)] = content
    path.write_bytes(broken)
    with pytest.raises(ValueError, match=message):
        GGUF(path)


def test_tensors_that_share_bytes_or_a_name(tmp_path):
    two = {name: (F32, (8,), floats([0] * 8)) for name in ("one", "two")}
    whole = write_gguf(tmp_path / "t.gguf", {}, two).read_bytes()
    at = whole.index(b"two") + len(b"two") + 4 + 8 + 4  # dimensions, the size, the type
    assert whole[at : at + 8] == struct.pack("<Q", 32)
    for offset, message in ((0, "one and two overlap"), (20, "two is at 20, not aligned to 32")):
        path = tmp_path / "u.gguf"
        path.write_bytes(whole[:at] + struct.pack("<Q", offset) + whole[at + 8 :])
        with pytest.raises(ValueError, match=message):
            GGUF(path)
    path.write_bytes(whole.replace(b"two", b"one"))
    with pytest.raises(ValueError, match="tensor one is twice in it"):
        GGUF(path)


@pytest.mark.parametrize("alignment", [0, 24, "32", 1.5])
def test_alignments_that_there_are_not(tmp_path, alignment):
    tensors = {"t": (F32, (6,), floats([0] * 6))}
    path = write_gguf(tmp_path / "t.gguf", {"general.alignment": alignment}, tensors)
    with pytest.raises(ValueError, match=r"general\.alignment must be a power of two"):
        GGUF(path)


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        (MXFP4, (256,), "tensor blk.0.ffn_up.weight is stored as MXFP4, .*F32, .*Q6_K"),
        (99, (256,), "is stored as ggml type 99"),
        (Q4_0, (16, 2), r"has shape \(16, 2\), not whole blocks"),
    ],
)
def test_unsupported_formats_are_refused_by_name(tmp_path, kind, shape, message):
    path = write_gguf(tmp_path / "t.gguf", {}, {"blk.0.ffn_up.weight": (kind, shape, bytes(1024))})
    with pytest.raises(ValueError, match=message):
        GGUF(path)


# --- names and rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_output.weight", "model.layers.12.self_attn.o_proj.weight"),
        ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
        ("blk.0.unknown.weight", "blk.0.unknown.weight"),
        ("rope_freqs.weight", "rope_freqs.weight"),
    ],
)
def test_names(name, expected):
    assert checkpoint_name(name) == expected


def test_unpermute_by_hand():
    """One head of size 6: pairs side by side (0, 3), (1, 4), (2, 5) come apart again."""
    assert unpermute(mx.array([0, 3, 1, 4, 2, 5]), 1).tolist() == [0, 1, 2, 3, 4, 5]
    two_heads = mx.array([[0], [2], [1], [3], [10], [12], [11], [13]])
    assert unpermute(two_heads, 2)[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


# --- whole models --------------------------------------------------------------------------------

GGUF_NAMES = {  # last module of a checkpoint's name -> GGUF's
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "gate": "ffn_gate_inp",
}
ARCHITECTURES = {"qwen3_moe": "qwen3moe"}  # model_type -> GGUF's, where they differ


def gguf_name(name: str) -> str:
    parts = name.split(".")
    layer = f"blk.{parts[2]}." if parts[1] == "layers" else ""
    stacked = "_exps" if "experts" in parts else ""
    return f"{layer}{GGUF_NAMES[parts[-2]]}{stacked}.{parts[-1]}"


def permuted(rows: mx.array, heads: int) -> mx.array:
    """Converters' order of Llama's q and k: a head's rows 0, D/2, 1, D/2 + 1, ..."""
    D = rows.shape[0] // heads
    order = [h * D + i + half for h in range(heads) for i in range(D // 2) for half in (0, D // 2)]
    return rows[mx.array(order)]


def q8_0(row: list[float]) -> bytes:
    """Blocks of 32: the scale maps the largest value to 127."""
    content = b""
    for start in range(0, len(row), 32):
        block = row[start : start + 32]
        scale = max(map(abs, block)) / 127 or 1.0
        content += struct.pack("<e32b", scale, *(round(number / scale) for number in block))
    return content


def llama3_divisors(config) -> list[float]:
    """rope_freqs.weight: by what each plain frequency must be divided."""
    rope, divisors = config.rope, []
    for i in range(config.head_dim // 2):
        wave = 2 * math.pi * rope.theta ** (2 * i / config.head_dim)
        smooth = (rope.original_context / wave - rope.low_freq_factor) / (
            rope.high_freq_factor - rope.low_freq_factor
        )
        smooth = min(max(smooth, 0), 1)
        divisors.append(1 / ((1 - smooth) / rope.factor + smooth))
    return divisors


def write_model(path: Path, m, encode=(F32, floats)) -> Path:
    """encode: ggml type and encoder of matrices; vectors stay float32."""
    config, tensors = m.config, {}
    arch = ARCHITECTURES.get(config.model_type, config.model_type)
    for name, array in tree_flatten(m.parameters()):
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        module = name.split(".")[-2]
        if arch == "llama" and module in heads:
            array = permuted(array, heads[module])
        whole = array.ndim > 1 and array.shape[-1] % 32 == 0
        kind, encoder = encode if whole else (F32, floats)
        tensors[gguf_name(name)] = kind, array.shape, encoder(array.reshape(-1).tolist())
    if config.rope.type == "llama3":
        divisors = llama3_divisors(config)
        tensors["rope_freqs.weight"] = F32, (len(divisors),), floats(divisors)
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": config.num_hidden_layers,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.context_length": config.max_position_embeddings,
        f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{arch}.rope.freq_base": float(config.rope.theta),
        "tokenizer.ggml.tokens": ["a"] * config.vocab_size,
    }
    if config.sparse_layers:
        metadata |= {
            f"{arch}.expert_count": config.num_experts,
            f"{arch}.expert_used_count": config.num_experts_per_tok,
            f"{arch}.expert_feed_forward_length": config.moe_intermediate_size,
        }
    if config.rope.type == "yarn":
        metadata |= {
            f"{arch}.rope.scaling.type": "yarn",
            f"{arch}.rope.scaling.factor": float(config.rope.factor),
            f"{arch}.rope.scaling.original_context_length": config.rope.original_context,
        }
    return write_gguf(path, metadata, tensors)


MODELS = ("llama-llama3rope", "qwen2-bias", "qwen3-tied", "qwen3-untied-yarn")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_written_to_gguf_gives_the_recorded_logits(tmp_path, name):
    expected = golden(name)
    m = load(write_model(tmp_path / "m.gguf", load(REFERENCE / name)))
    logits = m(mx.array([expected["ids"]]))[0]
    assert_close(logits[0], expected["logits_first"], atol=2e-4)
    assert_close(logits[-1], expected["logits_last"], atol=2e-4)
    assert_same_ids(generate(m, expected["ids"], max_tokens=12), expected["greedy"])


def test_a_model_in_parts(tmp_path):
    """As gguf-split writes them: the first has the metadata, and every one its share of tensors."""
    expected, writes = golden("qwen3-tied"), []
    real = write_gguf
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "write_gguf", lambda *a: writes.append(a) or a[0])
        write_model(tmp_path / "m.gguf", load(REFERENCE / "qwen3-tied"))
    (_, metadata, tensors), names = writes[0], sorted(writes[0][2])
    files = [tmp_path / f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for i, file in enumerate(files):
        split = {"split.no": i, "split.count": 3, "split.tensors.count": len(names)}
        share = {name: tensors[name] for name in names[i::3]}
        real(file, (metadata if i == 0 else {}) | split, share)
    for file in files:
        logits = load(file)(mx.array([expected["ids"]]))[0, -1]
        assert_close(logits, expected["logits_last"], atol=2e-4)
    files[2].rename(tmp_path / "last.gguf")
    with pytest.raises(FileNotFoundError, match="00003-of-00003.gguf is not there, one of 3 parts"):
        load(files[0])
    with pytest.raises(ValueError, match="is one of 3 parts, and only names like m-00001-of-00003"):
        load(tmp_path / "last.gguf")
    shutil.copy(files[1], files[2])
    with pytest.raises(ValueError, match="is in another part as well"):
        load(files[0])


@pytest.mark.parametrize("name", MODELS)
def test_q8_0_is_near(tmp_path, name):
    expected = golden(name)
    m = load(write_model(tmp_path / "m.gguf", load(REFERENCE / name), (Q8_0, q8_0)))
    logits = m(mx.array([expected["ids"]]))[0]
    assert_close(logits[-1], expected["logits_last"], atol=0.15)


def test_a_tensor_that_is_not_known_is_refused(tmp_path):
    path = write_model(tmp_path / "m.gguf", load(REFERENCE / "llama-llama3rope"))
    path.write_bytes(path.read_bytes().replace(b"rope_freqs.weight", b"rope_freqz.weight"))
    with pytest.raises(ValueError, match=r"rope_freqz\.weight \(8,\) has no place"):
        load(path)


# --- kept packed ---------------------------------------------------------------------------------


def q4_0(row: list[float]) -> bytes:
    """Blocks of 32: the scale maps the value furthest from zero to -8."""
    content = b""
    for start in range(0, len(row), 32):
        block = row[start : start + 32]
        scale = max(block, key=abs) / -8 or 1.0
        numbers = [min(15, max(0, round(number / scale) + 8)) for number in block]
        packed = bytes(low | high << 4 for low, high in zip(numbers[:16], numbers[16:]))
        content += struct.pack("<e", scale) + packed
    return content


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("kind", "encoder", "bits"), [(Q8_0, q8_0, 8), (Q4_0, q4_0, 4)])
def test_kept_packed_the_answers_are_those_of_floats(tmp_path, name, kind, encoder, bits):
    """Llama's rows of q and k are moved while they are packed."""
    path = write_model(tmp_path / "m.gguf", load(REFERENCE / name), (kind, encoder))
    packed, plain = load(path, quantized=True), load(path)
    q_proj = packed.model.layers[0].self_attn.q_proj
    assert (q_proj.bits, q_proj.group_size, q_proj.mode) == (bits, 32, "affine")
    assert isinstance(packed.model.embed_tokens, nn.QuantizedEmbedding)
    ids = mx.array([golden(name)["ids"]])
    assert_close(packed(ids), plain(ids), atol=2e-5)
    assert_same_ids(*(generate(m, golden(name)["ids"], max_tokens=12) for m in (packed, plain)))


def test_quantized_files_are_for_bfloat16(tmp_path):
    """On a GPU: float16 is too small for some activations. Float files say it themselves."""
    m = load(REFERENCE / "qwen3-tied")
    path = write_model(tmp_path / "q.gguf", m, (Q8_0, q8_0))
    assert open_checkpoint(path).dtype == open_checkpoint(path, packed=True).dtype == "bfloat16"
    assert open_checkpoint(write_model(tmp_path / "m.gguf", m)).dtype == "float32"


def test_formats_without_mlxs_groups_become_floats(tmp_path):
    path = write_model(tmp_path / "m.gguf", load(REFERENCE / "qwen3-tied"))  # all float32
    m = load(path, quantized=True)
    assert type(m.model.layers[0].self_attn.q_proj) is nn.Linear


# --- experts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantized", [None, True])
@pytest.mark.parametrize("encode", [(F32, floats), (Q8_0, q8_0)])
def test_experts_in_one_tensor(tmp_path, quantized, encode):
    expected, m = golden("qwen3-moe"), load(REFERENCE / "qwen3-moe")
    told = ("sparse_layers", "num_experts", "num_experts_per_tok", "moe_intermediate_size")
    described = [getattr(m.config, name) for name in (*told, "norm_topk_prob")]
    m = load(write_model(tmp_path / "m.gguf", m, encode), quantized=quantized)
    assert [getattr(m.config, name) for name in (*told, "norm_topk_prob")] == described
    logits = m(mx.array([expected["ids"]]))[0]
    near = 2e-4 if encode[0] == F32 else 0.15
    assert_close(logits[0], expected["logits_first"], atol=near)
    if encode[0] == F32:
        assert_close(logits[-1], expected["logits_last"], atol=near)
        assert_same_ids(generate(m, expected["ids"], max_tokens=12), expected["greedy"])


def test_experts_of_other_architectures_are_refused(tmp_path):
    path = write_model(tmp_path / "m.gguf", load(REFERENCE / "llama-llama3rope"))
    key = b"llama.expert_used_count_xx"  # as long as what it replaces
    path.write_bytes(path.read_bytes().replace(b"llama.attention.key_length", key))
    with pytest.raises(ValueError, match=r"llama\.expert_used_count_xx = 16 is not supported"):
        load(path)
