"""named tensors -> PyTorch checkpoint files, by hand: a zip of pickle opcodes and numbers.

PyTorch isn't a dependency. golden/torch_zip.pth, which it wrote itself, shows that these are alike.
"""

import struct
import zipfile
from math import prod
from pathlib import Path

import mlx.core as mx

STORAGES = {mx.float32: b"Float", mx.float16: b"Half", mx.bfloat16: b"BFloat16"}


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def numbers(values) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key: str, count: int, kind: bytes = b"Float") -> bytes:
    return (
        b"(" + text("storage") + b"ctorch\n" + kind + b"Storage\n" + text(key) + text("cpu")
        + number(count) + b"tQ"
    )  # fmt: skip


def tensor(key: str, count: int, shape, strides=None, offset=0, kind: bytes = b"Float") -> bytes:
    """Opcodes that rebuild a tensor; row-major strides where none are given."""
    if strides is None:
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(key, count, kind) + number(offset)
        + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def mapping(items: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def write_zip(path: Path, pickle: bytes, storages: dict[str, bytes], **options) -> Path:
    """pickle: opcodes without protocol and stop."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + pickle + b".")
        archive.writestr("archive/byteorder", "little")
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", "3\n")
    return path


def write_torch(path: Path, arrays: dict[str, mx.array]) -> Path:
    """A state_dict of whole, contiguous tensors."""
    items, storages = {}, {}
    for key, (name, array) in enumerate(arrays.items()):
        items[name] = tensor(str(key), array.size, array.shape, kind=STORAGES[array.dtype])
        storages[str(key)] = bytes(memoryview(mx.contiguous(array).reshape(-1).view(mx.uint8)))
    return write_zip(path, mapping(items), storages)
