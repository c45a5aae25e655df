"""A PyTorch checkpoint (.pth, .pt, .bin) -> its tensors, without PyTorch and without running it.

The file is a zip: data.pkl describes the tensors, data/0, data/1 ... hold their numbers. A pickle
is a program, and Python's own reader calls whatever it names. The reader here has no way to call
anything: it keeps names as text, knows the five that make tensors, and refuses all others by name.

Blind spot: it doesn't know what a tensor is for. Quantized, sparse and float8 tensors, and files
from before PyTorch 1.6, are refused.

Sources: opcodes as in Python's pickletools; the layout and the arguments of the rebuild functions
as in torch/serialization.py and torch/_utils.py.
"""

import pickletools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

from model.weights import memory
from model.weights.archive import Archive
from model.weights.files import NUM_BYTES, Stored, to_array

_MAX_PICKLE = 20_000_000  # bytes; the largest published models have a few MB
_STORAGES = {  # PyTorch's class -> header name of its dtype
    "torch.FloatStorage": "F32",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.DoubleStorage": "F64",
    "torch.LongStorage": "I64",
    "torch.IntStorage": "I32",
    "torch.ShortStorage": "I16",
    "torch.CharStorage": "I8",
    "torch.ByteStorage": "U8",
    "torch.BoolStorage": "BOOL",
}
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")  # where trainers put the tensors


class PyTorchFile:
    """One checkpoint file. tensors: name -> Stored, from data.pkl alone; no number is read.

    Raises ValueError where the file is damaged or holds anything but tensors.
    """

    def __init__(self, path: Path) -> None:
        self._archive = Archive(path)
        self._prefix = self._find_prefix()
        self._check_byte_order()
        content = bytes(self._archive.read(self._prefix + "data.pkl"))
        self._refs = _state_dict(path, _run(path, content))  # name -> TensorRef
        self.tensors = {
            name: Stored(path, ref.storage.dtype, ref.shape, ref.num_bytes)
            for name, ref in self._refs.items()
        }
        for name, ref in self._refs.items():
            self._check_storage(name, ref)

    def read(self, name: str) -> mx.array:
        """The tensor in its own type; its storage may be larger and ordered otherwise."""
        ref = self._refs[name]
        member = self._member(ref)
        if ref.is_contiguous:
            start = ref.offset * NUM_BYTES[ref.storage.dtype]
            view = self._archive.read(member, start, ref.num_bytes)
            return to_array(view, ref.storage.dtype, ref.shape)
        size = NUM_BYTES[ref.storage.dtype]
        memory.check(ref.span * size, f"the numbers in {self._archive.path} that {name} picks from")
        view = self._archive.read(member, ref.offset * size, ref.span * size)
        span = to_array(view, ref.storage.dtype, (ref.span,))
        return mx.contiguous(mx.as_strided(span, ref.shape, ref.strides, 0))

    def _find_prefix(self) -> str:
        """The folder inside the zip, whose name is the file's name when it was saved."""
        found = [n for n in self._archive.sizes if n == "data.pkl" or n.endswith("/data.pkl")]
        if len(found) != 1:
            raise ValueError(
                f"{self._archive.path} is a zip file with {len(found)} data.pkl; a PyTorch"
                " checkpoint has one"
            )
        if self._archive.sizes[found[0]] > _MAX_PICKLE:
            raise ValueError(
                f"{self._archive.path}: data.pkl has {self._archive.sizes[found[0]]} bytes, too"
                " many to describe tensors; the numbers belong into files of their own"
            )
        return found[0].removesuffix("data.pkl")

    def _check_byte_order(self) -> None:
        name = self._prefix + "byteorder"
        size = self._archive.sizes.get(name)  # a lie may be gigabytes, so it is looked at first
        if size is not None and (size != 6 or bytes(self._archive.read(name)) != b"little"):
            raise ValueError(f"{self._archive.path} was saved big-endian, which isn't supported")

    def _check_storage(self, name: str, ref: "TensorRef") -> None:
        """The numbers are there, and all of them: before anything is read."""
        self._archive.check(self._member(ref), ref.storage.num_bytes)
        if ref.span and ref.offset + ref.span > ref.storage.count:
            raise ValueError(
                f"{self._archive.path}: tensor {name} reaches beyond its storage of"
                f" {ref.storage.count} values; the file is damaged"
            )

    def _member(self, ref: "TensorRef") -> str:
        return f"{self._prefix}data/{ref.storage.key}"


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file data/<key>."""

    dtype: str
    key: str
    count: int

    @property
    def num_bytes(self) -> int:
        return self.count * NUM_BYTES[self.dtype]


@dataclass(frozen=True)
class TensorRef:
    """A tensor as data.pkl describes it. offset and strides count values, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * NUM_BYTES[self.storage.dtype]

    @property
    def span(self) -> int:
        """From its first value to its last in the storage, both included."""
        steps = sum((size - 1) * step for size, step in zip(self.shape, self.strides))
        return steps + 1 if prod(self.shape) else 0

    @property
    def is_contiguous(self) -> bool:
        """Row-major; where there is only one index, its stride means nothing."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


def _state_dict(path: Path, content: Any) -> dict[str, TensorRef]:
    """The mapping from names to tensors, which trainers wrap in another one."""
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} holds a {_kind(content)}, not a mapping from names to tensors; save the"
            " model's state_dict()"
        )
    wrapped = [key for key in _WRAPPERS if isinstance(content.get(key), dict)]
    if wrapped and not any(isinstance(value, TensorRef) for value in content.values()):
        content = content[wrapped[0]]
    for name, value in content.items():
        if not isinstance(value, TensorRef) or not isinstance(name, str):
            raise ValueError(
                f"{path} holds {name!r}, a {_kind(value)}, among its tensors; save the model's"
                " state_dict() alone"
            )
    return content


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, TensorRef) else type(value).__name__


# --- the pickle machine --------------------------------------------------------------------------


class _Refused(ValueError):
    pass


_DAMAGE = (  # what opcodes in a wrong order or with wrong arguments end in
    *(ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
)


@dataclass(frozen=True)
class _Name:
    """What a pickle calls a class or function. Only ever text here."""

    text: str


class _Mark:
    pass


def _run(path: Path, content: bytes) -> Any:
    """The value that the pickle builds out of dicts, lists, tuples, texts, numbers and tensors."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(content):
            machine.step(opcode.name, argument)
        (result,) = machine.stack
        return result
    except _Refused as error:
        raise ValueError(f"{path}: {error}; nothing of it was run") from None
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path}: data.pkl is damaged ({reason}); download it again") from None


class _Machine:
    """A stack and a memo, as the pickle protocol has them, and operations that only build data."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _OPERATIONS:
            _OPERATIONS[name](self, argument)
        elif name not in _IGNORED:
            raise _Refused(f"data.pkl has the operation {name}, which no checkpoint needs")

    def pop_to_mark(self) -> list[Any]:
        start = max(i for i, value in enumerate(self.stack) if value is _Mark)
        values = self.stack[start + 1 :]
        del self.stack[start:]
        return values

    def push_tuple(self, count: int) -> None:
        values = tuple(self.stack[len(self.stack) - count :])
        if len(values) < count:
            raise IndexError("the stack is empty")
        del self.stack[len(self.stack) - count :]
        self.stack.append(values)

    def memoize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def push_name(self, text: str) -> None:
        """GLOBAL: Python would import this."""
        text = text.replace(" ", ".", 1)
        if text not in _REBUILDERS and text not in _STORAGES:
            raise _Refused(f"it asks for {text}, but only tensors are read from PyTorch files")
        self.stack.append(_Name(text))

    def reduce(self) -> None:
        """REDUCE: Python would call this."""
        arguments, function = self.stack.pop(), self.stack.pop()
        rebuild = _REBUILDERS.get(getattr(function, "text", ""))
        if rebuild is None or not isinstance(function, _Name):
            raise _Refused(f"it calls {getattr(function, 'text', _kind(function))!r}")
        self.stack.append(rebuild(*arguments))

    def build(self) -> None:
        """BUILD: Python would set attributes; those of a mapping are versions of its modules."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise _Refused(f"it sets attributes of a {_kind(self.stack[-1])}")

    def set_items(self, pairs: list[Any]) -> None:
        if len(pairs) % 2 or not isinstance(self.stack[-1], dict):
            raise TypeError("items without a mapping")
        self.stack[-1].update(_dict(zip(pairs[::2], pairs[1::2])))

    def append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError("items without a list")
        self.stack[-1].extend(values)

    def push_storage(self) -> None:
        """BINPERSID: ("storage", class, key, device, count)."""
        kind, storage, key, _, count = self.stack.pop()
        if type(kind) is not str or kind != "storage":
            what = repr(kind) if type(kind) is str else f"a {_kind(kind)}"
            raise _Refused(f"it refers to {what} outside of the file")
        if not isinstance(storage, _Name) or storage.text not in _STORAGES:
            raise TypeError(f"a storage of {_kind(storage)}")
        if type(key) is not str or type(count) is not int or count < 0:
            raise TypeError("a storage without name or size")
        self.stack.append(Storage(_STORAGES[storage.text], key, count))


def _tensor(storage: Storage, offset: int, shape: tuple, strides: tuple, *_: Any) -> TensorRef:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise TypeError("a tensor without storage")
    if any(type(number) is not int or number < 0 for number in numbers):
        raise TypeError("a tensor whose shape, strides or offset are no whole numbers from 0 on")
    return TensorRef(storage, offset, tuple(shape), tuple(strides))


def _parameter(data: TensorRef, *_: Any) -> TensorRef:
    return data


def _mapping(pairs: list | tuple = ()) -> dict:
    return _dict(pairs)


def _dict(pairs: Iterable[tuple[Any, Any]]) -> dict:
    """A mapping by texts and numbers. A small pickle can hold tuples within tuples that Python
    would take years to hash, or to print: neither is ever done here."""
    made = {}
    for key, value in pairs:
        if type(key) not in (str, int):
            raise TypeError(f"a mapping by a {_kind(key)}")
        made[key] = value
    return made


_REBUILDERS: Mapping[str, Callable[..., Any]] = {  # what a pickle may name -> what is done for it
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": _mapping,
}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_PUSHED = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING"),
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT"),
    *("BINBYTES", "SHORT_BINBYTES"),
}
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _Mark,
}
_OPERATIONS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.push_tuple(1),
    "TUPLE2": lambda m, _: m.push_tuple(2),
    "TUPLE3": lambda m, _: m.push_tuple(3),
    "LIST": lambda m, _: m.stack.append(m.pop_to_mark()),
    "DICT": lambda m, _: m.stack.append(_dict(zip(*[iter(m.pop_to_mark())] * 2))),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_items(m.pop_to_mark()),
    "POP": lambda m, _: m.stack.pop(),
    "BINPUT": lambda m, index: m.memoize(index),
    "LONG_BINPUT": lambda m, index: m.memoize(index),
    "PUT": lambda m, index: m.memoize(index),
    "MEMOIZE": lambda m, _: m.memoize(len(m.memo)),
    "BINGET": lambda m, index: m.stack.append(m.memo[index]),
    "LONG_BINGET": lambda m, index: m.stack.append(m.memo[index]),
    "GET": lambda m, index: m.stack.append(m.memo[index]),
    "GLOBAL": lambda m, text: m.push_name(text),
    "STACK_GLOBAL": lambda m, _: m.push_name(" ".join([m.stack.pop(), m.stack.pop()][::-1])),
    "BINPERSID": lambda m, _: m.push_storage(),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
}
