"""Reads tensors and plain values from PyTorch's files (.pt, .pth); runs nothing in them.

Comes in: a file. Goes out: the value in it. Such a file is a zip archive: `data.pkl`, a pickle of
the structure, and one member for each storage. A pickle is a program that may call anything, so it
is read by an interpreter here. It knows the opcodes that build containers, and only the functions
of the table below; any other name is an error. Called by `files.py`.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes, numeric
from ..core.device import device
from ..core.tensor import Size, Tensor, wrap
from ..nn.parameter import Parameter
from .container import ReadSource, bytes_of
from .errors import SavingError
from .structure import FACTORIES

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}


class _Name(NamedTuple):
    """A function or class that the pickle names; only `_Reader.call` calls it."""

    module: str
    name: str


class _Storage(NamedTuple):
    """The memory of tensors: all elements, and the device they were saved on."""

    array: Any
    device: str


class _MemberFile:
    """A source with a position, for zipfile to read."""

    def __init__(self, source: ReadSource) -> None:
        self._source = source
        self._position = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._source.size)[whence]
        if base + offset < 0:
            raise OSError("position before the beginning of the file")
        self._position = base + offset
        return self._position

    def read(self, count: int = -1) -> bytes:
        left = max(self._source.size - self._position, 0)
        count = left if count is None or count < 0 else min(count, left)
        data = self._source.read(self._position, count) if count else b""
        self._position += len(data)
        return data


class Archive:
    """The members of a file of PyTorch, by their names within its folder."""

    def __init__(self, source: ReadSource) -> None:
        self.source = source
        file: Any = _MemberFile(source)
        self._zip = self._guarded(lambda: zipfile.ZipFile(file))
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            self._members[info.filename.partition("/")[2]] = info
        if "data.pkl" not in self._members:
            raise self.error("is a zip archive, but not one that PyTorch has saved")
        if "byteorder" in self._members and self.member("byteorder") != b"little":
            raise self.error("was saved on a machine with the other byte order")

    def error(self, reason: str) -> SavingError:
        return SavingError(f"{self.source.name}: {reason}")

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Raise any error as SavingError: a damaged archive makes zipfile raise nearly anything."""
        try:
            return action()
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise self.error(f"the archive is damaged: {error}") from None

    def size(self, name: str) -> int:
        info = self._members.get(name)
        if info is None:
            raise self.error(f"the archive is damaged: {name[:80]!r} is missing")
        # Uncompressed members cannot be larger than the file, so no file can demand much memory.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self.source.size:
            raise self.error(f"the archive is damaged: {name[:80]!r} is not stored as it should be")
        return info.file_size

    def member(self, name: str) -> bytes:
        self.size(name)
        data: bytes = self._guarded(lambda: self._zip.read(self._members[name]))
        return data

    def storage(self, name: str, dtype: np.dtype[Any]) -> Any:
        """A member as an array with its own memory; zipfile compares its checksum."""
        size = self.size(name)
        array = np.empty(size // dtype.itemsize, dtype)
        data = bytes_of(array)

        def fill() -> None:
            position = 0
            with self._zip.open(self._members[name]) as member:
                while part := member.read(1 << 24):
                    data[position : position + len(part)] = part
                    position += len(part)
            if position != size:
                raise ValueError(f"{name!r} was cut off")

        if size % dtype.itemsize:
            raise self.error(f"the archive is damaged: {name[:80]!r} has {size} bytes")
        self._guarded(fill)
        if numeric.is_boolean(array.dtype) and array.size and array.view(np.uint8).max() > 1:
            raise self.error(f"the archive is damaged: {name[:80]!r} has booleans that are not")
        return array


def load_pytorch(source: ReadSource, devices: Any) -> Any:
    """The value in a file of PyTorch; `devices.put(array, device)` says where tensors go."""
    archive = Archive(source)
    reader = _Reader(archive, devices)
    try:
        return reader.read(archive.member("data.pkl"))
    except SavingError as error:
        if str(error).startswith(source.name):
            raise
        raise archive.error(str(error)) from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
    ) as error:
        raise archive.error(f"the pickle in it is damaged: {str(error)[:200]}") from None


class _Reader:
    """The interpreter: a stack, marks in it, and a memo of values to be reused."""

    def __init__(self, archive: Archive, devices: Any) -> None:
        self.archive = archive
        self.devices = devices
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[tuple[str, str], _Storage] = {}
        self.left = 0  # how many more elements calls may copy

    def read(self, data: bytes) -> Any:
        self.left = 2 * len(data)
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                (value,) = self.stack
                return self._plain(value)
            step = _OPCODES.get(opcode.name)
            if step is None:
                raise SavingError(
                    f"the pickle in it uses {opcode.name}, which saving tensors does not"
                )
            step(self, argument)
        raise SavingError("the pickle in it has no end")

    # -- the stack -----------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    def last(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise SavingError("the pickle in it is damaged: its stack is empty")
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return values

    def memoize(self, index: Any) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def extend(self, values: Any) -> None:
        target = self.stack[-1]
        if type(target) not in (list, deque):
            raise SavingError(f"the pickle in it appends to a {type(target).__name__}")
        target.extend(self._plain(v) for v in values)

    def add(self, values: Any) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise SavingError(f"the pickle in it adds to a {type(target).__name__}")
        target.update(map(_key, values))

    def set_items(self, values: list[Any] | tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, defaultdict, Counter):
            raise SavingError(f"the pickle in it sets items of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[_key(key)] = self._plain(value)

    def build(self) -> None:
        """Give a NumPy type its byte order; a state dict's metadata is left out."""
        target, state = self.last(2)
        if isinstance(target, np.dtype):
            target = target.newbyteorder(state[1])
        elif type(target) is not OrderedDict:
            raise SavingError(f"the pickle in it gives attributes to a {type(target).__name__}")
        self.push(target)

    def _plain(self, value: Any) -> Any:
        """A value that may stand in the result."""
        if isinstance(value, _Name):
            raise _unknown(value)
        if isinstance(value, _Storage):
            raise SavingError("holds a storage outside of a tensor; save tensors")
        return value

    # -- calls ---------------------------------------------------------------------------------

    def global_name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise SavingError("the pickle in it is damaged: a name is not text")
        found = _Name(module.replace("__builtin__", "builtins"), name)
        dtype = next((d for d in dtypes.ALL if found == ("torch", d.name)), None)
        storage = module in ("torch", "torch.storage") and name in _STORAGES
        factory = found.module == "builtins" and name in FACTORIES
        if dtype is None and found not in _CALLS and not storage and not factory:
            raise _unknown(found)
        self.push(found if dtype is None else dtype)

    def call(self) -> None:
        function, arguments = self.last(2)
        if (
            not isinstance(function, _Name)
            or function not in _CALLS
            or type(arguments) is not tuple
        ):
            raise SavingError("the pickle in it calls what is no function")
        self.left -= sum(len(a) for a in arguments if hasattr(a, "__len__"))
        if self.left < 0:
            raise SavingError("the pickle in it copies more than it holds")
        self.push(_CALLS[function](self, *arguments))

    def persistent(self) -> None:
        """A storage: ("storage", type, name, device, number of elements)."""
        ((kind, storage, key, device, *_),) = self.last(1)
        name = storage.name if isinstance(storage, _Name) else ""
        if kind != "storage" or name not in _STORAGES or not isinstance(key, str):
            shown = getattr(storage, "name", storage)
            raise SavingError(
                f"holds elements of type {str(shown)[:60]}, which tapegrad does not have"
            )
        known = (key, name)
        if known not in self.storages:
            dtype = dtypes.dtype_named(_STORAGES[name]).numpy
            array = self.archive.storage(f"data/{key}", dtype)
            self.storages[known] = _Storage(self.devices.put(array, str(device)), str(device))
        self.push(self.storages[known])

    def tensor(self, storage: Any, offset: int, shape: Any, strides: Any, grad: Any = False) -> Any:
        if not isinstance(storage, _Storage):
            raise SavingError("the pickle in it is damaged: a tensor without a storage")
        tensor = wrap(strided_view(storage.array, offset, tuple(shape), tuple(strides)))
        return tensor.requires_grad_() if grad is True else tensor


def strided_view(array: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A strided view of a storage; SavingError if it reaches beyond it."""
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in numbers):
        raise SavingError("the pickle in it is damaged: a tensor's shape is not one")
    if 0 in shape:
        return array[:0].reshape(shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if last >= array.size:
        raise SavingError("the pickle in it is damaged: a tensor reaches beyond its storage")
    if isinstance(array, np.ndarray):
        steps = tuple(step * array.itemsize for step in strides)
        view: Any = np.ndarray(shape, array.dtype, array, offset * array.itemsize, steps)
        return view
    from cupy.lib.stride_tricks import as_strided

    return as_strided(array[offset:], shape, tuple(step * array.itemsize for step in strides))


def _key(key: Any) -> Any:
    """A key of a dict or element of a set: a plain value, or a tuple of such.

    Hashing could take forever for nested tuples that share their parts.
    """
    parts = key if type(key) is tuple else (key,)
    plain = (str, int, float, bool, bytes, complex, type(None))
    if not all(type(part) in plain for part in parts):
        raise SavingError(f"the pickle in it has a key of type {type(key).__name__}")
    return key


def _unknown(name: _Name) -> SavingError:
    shown = f"{name.module}.{name.name}"[:100]
    return SavingError(
        f"holds {shown}, which is neither a tensor nor a plain value (code in files is never run); "
        "in PyTorch, save a state_dict() of tensors instead"
    )


def _rebuilt(r: _Reader, storage: Any, offset: Any, shape: Any, strides: Any, *more: Any) -> Any:
    tensor = r.tensor(storage, offset, shape, strides)
    bits = more[2] if len(more) > 2 and isinstance(more[2], dict) else {}
    # PyTorch may save numbers with a flag that they are to be conjugated or negated.
    if bits.get("conj") is True:
        tensor = wrap(tensor._array.conj())
    if bits.get("neg") is True:
        tensor = wrap(-tensor._array)
    return tensor.requires_grad_() if more and more[0] is True else tensor


def _parameter(r: _Reader, data: Any, requires_grad: Any, *more: Any) -> Any:
    if not isinstance(data, Tensor):
        raise SavingError("the pickle in it is damaged: a parameter without a tensor")
    parameter = wrap(data._array, Parameter)
    return parameter.requires_grad_() if requires_grad is True else parameter


def _sparse(r: _Reader, layout: Any, data: Any) -> Any:
    from ..ops.sparse.creation import sparse_coo_tensor

    if not str(layout).endswith("sparse_coo"):
        raise SavingError(f"it has a tensor of layout {layout}; there is sparse_coo")
    if not isinstance(data, tuple) or len(data) not in (3, 4):
        raise SavingError("the pickle in it is damaged: a sparse tensor without its parts")
    coordinates, elements, size, *unique = data
    if not isinstance(coordinates, Tensor) or not isinstance(elements, Tensor):
        raise SavingError("the pickle in it is damaged: a sparse tensor without its parts")
    # A file may be wrong about its coordinates, so they are checked.
    made = sparse_coo_tensor(coordinates, elements, size, check_invariants=True)
    return made.coalesce() if unique and unique[0] is True else made


def _encoded(r: _Reader, text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise SavingError("the pickle in it is damaged: bytes that are not")
    return text.encode("latin1")


def _pairs(r: _Reader, items: Any = ()) -> dict[Any, Any]:
    items = items.items() if isinstance(items, dict) else items
    return {_key(key): r._plain(value) for key, value in items}


def _numpy_scalar(r: _Reader, dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise SavingError("the pickle in it is damaged: a NumPy number that is not")
    return np.frombuffer(data, dtype)[0]


def _numpy_dtype(r: _Reader, name: Any, *more: Any) -> Any:
    if not isinstance(name, str) or name[:1] not in "biuf" or not name[1:].isdigit():
        raise SavingError(f"holds a NumPy type {str(name)[:40]!r}, which is not of numbers")
    return np.dtype(name)


def _defaultdict(r: _Reader, factory: Any = None) -> Any:
    if factory is None:
        return defaultdict(None)
    if not isinstance(factory, _Name) or factory.name not in FACTORIES:
        raise SavingError("the pickle in it is damaged: a defaultdict of nothing")
    return defaultdict(FACTORIES[factory.name])


#: all that a pickle may call, and what is called instead
_CALLS: dict[_Name, Callable[..., Any]] = {
    _Name("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
    _Name("torch._utils", "_rebuild_tensor"): _rebuilt,
    _Name("torch._utils", "_rebuild_parameter"): _parameter,
    _Name("torch._utils", "_rebuild_sparse_tensor"): _sparse,
    _Name("torch", "device"): lambda r, *where: device(*where),
    _Name("torch", "Size"): lambda r, shape: Size(shape),
    _Name("torch.serialization", "_get_layout"): lambda r, name: str(name),
    _Name("collections", "OrderedDict"): lambda r, *items: OrderedDict(_pairs(r, *items)),
    _Name("collections", "Counter"): lambda r, *items: Counter(_pairs(r, *items)),
    _Name("collections", "defaultdict"): _defaultdict,
    _Name("collections", "deque"): lambda r, items=(), longest=None: deque(items, longest),
    _Name("builtins", "set"): lambda r, items=(): set(map(_key, items)),
    _Name("builtins", "frozenset"): lambda r, items=(): frozenset(map(_key, items)),
    _Name("builtins", "complex"): lambda r, real, imaginary: complex(real, imaginary),
    _Name("builtins", "bytearray"): lambda r, data=b"", *_: bytearray(_as_bytes(data)),
    _Name("builtins", "bytes"): lambda r, data=b"": _as_bytes(data),
    _Name("_codecs", "encode"): _encoded,
    _Name("numpy", "dtype"): _numpy_dtype,
    _Name("numpy.core.multiarray", "scalar"): _numpy_scalar,
    _Name("numpy._core.multiarray", "scalar"): _numpy_scalar,
}


def _as_bytes(data: Any) -> bytes:
    """Bytes from bytes: `bytes(10**12)` would take that much memory."""
    if type(data) is not bytes and data != ():
        raise SavingError("the pickle in it is damaged: bytes that are not")
    return bytes(data)


def _constant(value: Any) -> Callable[[_Reader, Any], None]:
    return lambda r, _: r.push(value)


_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT")
_TEXT = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")

_OPCODES: dict[str, Callable[[_Reader, Any], Any]] = {
    **dict.fromkeys((*_NUMBERS, *_TEXT, *_BYTES), lambda r, argument: r.push(argument)),
    "PROTO": lambda r, _: None,
    "FRAME": lambda r, _: None,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_TUPLE": _constant(()),
    "EMPTY_DICT": lambda r, _: r.push({}),
    "EMPTY_LIST": lambda r, _: r.push([]),
    "EMPTY_SET": lambda r, _: r.push(set()),
    "MARK": lambda r, _: r.marks.append(len(r.stack)),
    "TUPLE1": lambda r, _: r.push(r.last(1)),
    "TUPLE2": lambda r, _: r.push(r.last(2)),
    "TUPLE3": lambda r, _: r.push(r.last(3)),
    "TUPLE": lambda r, _: r.push(tuple(r.since_mark())),
    "FROZENSET": lambda r, _: r.push(frozenset(map(_key, r.since_mark()))),
    "APPEND": lambda r, _: r.extend(r.last(1)),
    "APPENDS": lambda r, _: r.extend(r.since_mark()),
    "ADDITEMS": lambda r, _: r.add(r.since_mark()),
    "SETITEM": lambda r, _: r.set_items(r.last(2)),
    "SETITEMS": lambda r, _: r.set_items(r.since_mark()),
    "GLOBAL": lambda r, argument: r.global_name(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda r, _: r.global_name(*r.last(2)),
    "REDUCE": lambda r, _: r.call(),
    "NEWOBJ": lambda r, _: r.call(),
    "BUILD": lambda r, _: r.build(),
    "BINPERSID": lambda r, _: r.persistent(),
    "BINPUT": lambda r, index: r.memoize(index),
    "LONG_BINPUT": lambda r, index: r.memoize(index),
    "MEMOIZE": lambda r, _: r.memoize(None),
    "BINGET": lambda r, index: r.push(r.memo[index]),
    "LONG_BINGET": lambda r, index: r.push(r.memo[index]),
}
