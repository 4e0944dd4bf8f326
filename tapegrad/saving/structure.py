"""Nested values as JSON, with names instead of arrays: the plan of a file.

`Encoder` turns a value into JSON and named arrays, `Decoder` does the reverse. None, booleans,
numbers, text and lists stay as they are in JSON; everything else is an object with one item,
`{"kind": content}`. Nothing in a file is ever run: a kind names one of the functions below. Called
by `files.py`.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.device import device
from ..core.dtypes import DType
from ..core.tensor import Size, Tensor, not_recorded, own, wrap
from ..nn.parameter import Buffer, Parameter
from ..nn.state import SavedState
from ..nn.uninitialized import UninitializedBuffer, UninitializedParameter
from .errors import SavingError
from .memory import dtype_named, name_of_dtype
from .objects import (
    decode_again,
    decode_function,
    decode_object,
    encode_object,
    function_name,
    is_object,
)

#: deeper structures are refused on saving, so that everything saved can be loaded
DEEPEST = 128

#: default factories that a defaultdict may have
FACTORIES: dict[str, Any] = {f.__name__: f for f in (int, float, str, bool, list, dict, set)}

_SMALL = 1 << 63  # other readers of JSON cannot represent larger integers

_HINTS = (
    ("state_dict", "save its state_dict() instead"),
    ("_fields", "save it as a plain tuple or as a dict (`_asdict()`)"),
    ("__dataclass_fields__", "save it as a dict (`dataclasses.asdict`)"),
    (
        "__dict__",
        "save the tensors, numbers and containers in it that matter, or allow its class with "
        "tapegrad.serialization.add_safe_globals",
    ),
)


class Encoder:
    """JSON for a value, and the arrays in it by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}  # names of tensors and arrays met so far, by identity
        self._taken = {"__metadata__"}
        self._open: set[int] = set()  # containers that are being encoded
        self._kept: list[Any] = []  # keeps values alive, so that no identity is reused
        self.objects: dict[int, int] = {}  # numbers of objects met so far, by identity

    def keep(self, value: Any) -> None:
        """Keep a value alive until all is encoded, so that no other value gets its identity."""
        self._kept.append(value)

    @staticmethod
    def shown(path: tuple[Any, ...]) -> str:
        """A path as Python would write it."""
        return shown(path)

    def encode(self, value: Any, path: tuple[Any, ...] = ()) -> Any:
        """The JSON of the value at `path`."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_SMALL <= value < _SMALL else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if kind in _CONTAINERS:
            return self._container(value, path)
        if kind in _VALUES:
            name, taken_apart = _VALUES[kind]
            return {name: taken_apart(value)}
        if isinstance(value, np.generic):
            return {"scalar": [self._dtype(value.dtype, value, path), value.tobytes().hex()]}
        if isinstance(value, np.dtype):
            return {"numpy.dtype": self._dtype(value, value, path)}
        if kind is np.ndarray or kind is np.memmap:
            self._dtype(value.dtype, value, path)
            return {"array": self._named(value, np.asarray(value), path)}
        if kind is bytes or kind is bytearray:
            return {kind.__name__: self._named(value, np.frombuffer(value, np.uint8), path)}
        if is_object(value):
            self._check_depth(path)
            return encode_object(self, value, path)
        function = function_name(value)
        if function is not None:
            return {"function": function}
        raise _refusal(value, path)

    def _tensor(self, tensor: Tensor, path: tuple[Any, ...]) -> Any:
        not_recorded(tensor, "saving")
        if tensor.is_sparse:
            parts, unique = tensor._array, tensor._array.unique
            both = self._items((parts.coordinates, parts.elements), path)
            return {"sparse": [*both, list(parts.shape), unique]}
        own(tensor)
        marks = {
            "requires_grad": tensor.requires_grad or None,
            "parameter": isinstance(tensor, Parameter) or None,
            "buffer": tensor.persistent if isinstance(tensor, Buffer) else None,
            "unset": hasattr(tensor, "materialize") or None,
            "device": None if tensor.device.type == "cpu" else str(tensor.device),
        }
        content = {key: mark for key, mark in marks.items() if mark is not None}
        return {"tensor": {"name": self._named(tensor, tensor._array, path), **content}}

    def _container(self, value: Any, path: tuple[Any, ...]) -> Any:
        if id(value) in self._open:
            raise SavingError(f"cannot save {shown(path)}: it contains itself")
        self._check_depth(path)
        self._open.add(id(value))
        try:
            return _CONTAINERS[type(value)](self, value, path)
        finally:
            self._open.remove(id(value))

    def _check_depth(self, path: tuple[Any, ...]) -> None:
        if len(path) >= DEEPEST:
            raise SavingError(
                f"cannot save {shown(path[:4])}...: more than {DEEPEST} containers in each other"
            )

    def _items(self, values: Any, path: tuple[Any, ...]) -> list[Any]:
        return [self.encode(value, (*path, i)) for i, value in enumerate(values)]

    def _pairs(self, mapping: Any, path: tuple[Any, ...]) -> list[Any]:
        return [
            [self.encode(key, (*path, key)), self.encode(value, (*path, key))]
            for key, value in mapping.items()
        ]

    def _dict(self, mapping: Any, path: tuple[Any, ...]) -> Any:
        if all(type(key) is str for key in mapping):
            return {"dict": {key: self.encode(v, (*path, key)) for key, v in mapping.items()}}
        return {"pairs": self._pairs(mapping, path)}

    def _state(self, state: SavedState, path: tuple[Any, ...]) -> Any:
        """The state dict of a module, with the versions of the modules."""
        versions = self.encode(getattr(state, "_metadata", {}), (*path, "_metadata"))
        return {"state": [versions, self._pairs(state, path)]}

    def _defaultdict(self, mapping: Any, path: tuple[Any, ...]) -> Any:
        factory = mapping.default_factory
        name = None if factory is None else getattr(factory, "__name__", "")
        if name is not None and FACTORIES.get(name) is not factory:
            raise SavingError(
                f"cannot save {shown(path)}: defaultdict with the factory {factory!r}; "
                "save it as a dict"
            )
        return {"defaultdict": [name, self._pairs(mapping, path)]}

    def _dtype(self, dtype: np.dtype[Any], value: Any, path: tuple[Any, ...]) -> str:
        name = name_of_dtype(dtype)
        if name is None:
            raise SavingError(
                f"cannot save {shown(path)}: {type(value).__name__} of NumPy type {dtype}, "
                "which is not numbers, text or dates"
            )
        return name

    def _named(self, value: Any, array: Any, path: tuple[Any, ...]) -> str:
        """The name of an array in the file: its path with dots, made unique."""
        found = self._names.get(id(value))
        if found is not None:
            return found
        plain = ".".join(str(part) for part in path) or "tensor"
        plain = name = plain.encode("utf-8", "replace").decode()
        suffix = 1
        while name in self._taken:
            suffix += 1
            name = f"{plain}~{suffix}"
        self._taken.add(name)
        self._names[id(value)] = name
        self._kept.append(value)
        self.arrays[name] = array
        return name


def _sorted(values: Any) -> list[Any]:
    """The elements of a set in an order that does not change from run to run."""
    return sorted(values, key=repr)


#: containers by their exact type: a subclass would come back as something else
_CONTAINERS: dict[Any, Callable[[Encoder, Any, tuple[Any, ...]], Any]] = {
    list: Encoder._items,
    dict: Encoder._dict,
    tuple: lambda e, v, path: {"tuple": e._items(v, path)},
    set: lambda e, v, path: {"set": e._items(_sorted(v), path)},
    frozenset: lambda e, v, path: {"frozenset": e._items(_sorted(v), path)},
    deque: lambda e, v, path: {"deque": [v.maxlen, e._items(v, path)]},
    OrderedDict: lambda e, v, path: {"ordered": e._pairs(v, path)},
    SavedState: Encoder._state,
    Counter: lambda e, v, path: {"counter": e._pairs(v, path)},
    defaultdict: Encoder._defaultdict,
}

_VALUES: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    complex: ("complex", lambda v: [v.real.hex(), v.imag.hex()]),
    DType: ("dtype", lambda v: v.name),
    device: ("device", str),
    Size: ("size", list),
    range: ("range", lambda v: [v.start, v.stop, v.step]),
}


def shown(path: tuple[Any, ...]) -> str:
    """A path as Python would write it: ['optimizer']['state'][0]."""
    if not path:
        return "the object"
    return "".join(f"[{part!r:.80}]" for part in path)


def _refusal(value: Any, path: tuple[Any, ...]) -> SavingError:
    name = type(value).__name__
    hint = next((text for attribute, text in _HINTS if hasattr(value, attribute)), "leave it out")
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        hint = "code is not saved; leave it out"
    return SavingError(
        f"cannot save {shown(path)}: {name} is neither a tensor nor a plain value; {hint}"
    )


class Decoder:
    """Values from JSON; `array(name)` gives arrays, and `on_device(name, device)` moves them."""

    def __init__(
        self,
        array: Callable[[str], Any],
        on_device: Callable[[str, str], Any],
        trusted: bool = False,
    ) -> None:
        self.trusted = trusted  # whether objects of any module class are allowed
        self._array = array
        self._on_device = on_device
        self._tensors: dict[str, Tensor] = {}
        self._bytes: dict[tuple[str, Any], Any] = {}
        self.objects: list[Any] = []

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(v) for v in value]
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            raise SavingError(f"expected one item, got {len(value)}")
        ((kind, content),) = value.items()
        if kind not in _KINDS:
            raise SavingError(f"unknown kind of value {kind[:40]!r}")
        expected, build = _KINDS[kind]
        if not isinstance(content, expected):
            raise SavingError(f"a {kind} cannot be made of a {type(content).__name__}")
        return build(self, content)

    def _tensor(self, content: dict[str, Any]) -> Tensor:
        name = content["name"]
        if name in self._tensors:
            return self._tensors[name]
        array = self._on_device(name, str(content.get("device", "cpu")))
        dtypes.from_numpy_dtype(array.dtype)
        tensor = wrap(array, _tensor_class(content))
        if isinstance(tensor, Buffer):
            tensor.persistent = content["buffer"] is True
        if content.get("requires_grad") is True:
            tensor.requires_grad_()
        self._tensors[name] = tensor
        return tensor

    def _pairs(self, content: list[Any]) -> Iterator[tuple[Any, Any]]:
        for key, value in content:
            yield self.decode(key), self.decode(value)

    def _bytes_of(self, name: str, kind: Any) -> Any:
        """Bytes or a bytearray, made once: a file could ask for it a million times."""
        if (name, kind) not in self._bytes:
            array = self._array(name)
            if array.dtype != np.uint8 or not array.flags.c_contiguous:
                raise SavingError(f"{name!r} should be bytes, and is {array.dtype}")
            self._bytes[name, kind] = kind(memoryview(array))
        return self._bytes[name, kind]


def _sparse(d: Decoder, content: list[Any]) -> Tensor:
    from ..ops.sparse.creation import sparse_coo_tensor

    coordinates, elements, shape, unique = content
    parts = d.decode(coordinates), d.decode(elements)
    if not all(isinstance(part, Tensor) for part in parts):
        raise SavingError("the parts of a sparse tensor must be tensors")
    made = sparse_coo_tensor(*parts, shape, check_invariants=True)
    # A file may be wrong about its coordinates, so this checks them.
    return made.coalesce() if unique is True else made


def _tensor_class(content: dict[str, Any]) -> type[Tensor]:
    """The class of a tensor, by its flags."""
    unset = content.get("unset") is True
    if content.get("parameter") is True:
        return UninitializedParameter if unset else Parameter
    if "buffer" in content:
        return UninitializedBuffer if unset else Buffer
    return Tensor


def _deque(d: Decoder, content: list[Any]) -> Any:
    longest, items = content
    return deque(d.decode(items), longest)


def _defaultdict(d: Decoder, content: list[Any]) -> Any:
    name, pairs = content
    return defaultdict(None if name is None else FACTORIES[name], d._pairs(pairs))


def _state(d: Decoder, content: list[Any]) -> SavedState:
    versions, pairs = content
    state = SavedState(d._pairs(pairs))
    state._metadata = d.decode(versions)
    if not isinstance(state._metadata, dict):
        raise SavingError(f"versions of modules cannot be a {type(state._metadata).__name__}")
    return state


def _scalar(d: Decoder, content: list[Any]) -> Any:
    name, digits = content
    dtype, data = dtype_named(name), bytes.fromhex(digits)
    if dtype.itemsize != len(data):
        raise SavingError(f"a number of type {dtype} cannot have {len(data)} bytes")
    return np.frombuffer(data, dtype)[0]


def _float(d: Decoder, content: str) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise SavingError(f"{content[:40]!r} is no number")
    return float(content)


def _complex(d: Decoder, content: list[Any]) -> complex:
    real, imaginary = content
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _dtype(d: Decoder, content: str) -> DType:
    try:
        return dtypes.dtype_named(content)
    except KeyError:
        raise SavingError(f"{content[:40]!r} is no dtype of tapegrad") from None


#: for each kind of value: the JSON type that it is stored as, and the function that makes it
_KINDS: dict[str, tuple[type, Callable[[Decoder, Any], Any]]] = {
    "int": (str, lambda d, c: int(c, 16)),
    "float": (str, _float),
    "complex": (list, _complex),
    "dict": (dict, lambda d, c: {key: d.decode(value) for key, value in c.items()}),
    "pairs": (list, lambda d, c: dict(d._pairs(c))),
    "ordered": (list, lambda d, c: OrderedDict(d._pairs(c))),
    "sparse": (list, _sparse),
    "state": (list, _state),
    "counter": (list, lambda d, c: Counter(dict(d._pairs(c)))),
    "defaultdict": (list, _defaultdict),
    "deque": (list, _deque),
    "tuple": (list, lambda d, c: tuple(d.decode(c))),
    "set": (list, lambda d, c: set(d.decode(c))),
    "frozenset": (list, lambda d, c: frozenset(d.decode(c))),
    "size": (list, lambda d, c: Size(c)),
    "range": (list, lambda d, c: range(*c)),
    "dtype": (str, _dtype),
    "device": (str, lambda d, c: device(c)),
    "scalar": (list, _scalar),
    "numpy.dtype": (str, lambda d, c: dtype_named(c)),
    "array": (str, lambda d, c: d._array(c)),
    "bytes": (str, lambda d, c: d._bytes_of(c, bytes)),
    "bytearray": (str, lambda d, c: d._bytes_of(c, bytearray)),
    "tensor": (dict, Decoder._tensor),
    "object": (dict, decode_object),
    "again": (int, decode_again),
    "function": (str, decode_function),
}
