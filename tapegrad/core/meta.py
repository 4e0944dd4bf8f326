"""Tensors on the device "meta": a shape and a dtype, and no values.

Large models are first built there, and get their memory when weights are loaded. A `MetaTensor`
has one element of memory, whatever its shape. Functions of it return meta tensors; to find their
shapes, the functions run on zeros, so large tensors are refused. In-place writes do nothing, and
reading values is an error. Made by `to_device`'s callers: `ops/creation.py`, `ops/convert.py`,
`nn/`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .device import META, MetaArray, as_device, device
from .overriding import DisableTorchFunctionSubclass, name_of, overridable_members
from .tensor import Tensor, wrap

#: most elements of a meta tensor on which a function runs, to find the shape of its result
MOST_ELEMENTS = 1 << 22

_READS = {
    *("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__"),
    *("__dlpack__", "cpu", "cuda", "untyped_storage", "storage", "__contains__", "is_nonzero"),
}
#: functions that read no elements, so that tensors of any size are allowed
_FREE = {
    *("view", "reshape", "transpose", "permute", "t", "expand", "expand_as", "view_as", "flatten"),
    *("squeeze", "unsqueeze", "detach", "requires_grad_", "size", "dim", "numel", "stride"),
    *("empty_like", "new_empty", "is_contiguous", "element_size", "nelement", "register_hook"),
    *("__getitem__", "select", "narrow", "split", "chunk", "unbind", "movedim", "data_ptr"),
    *("is_floating_point", "is_complex", "ndimension", "__len__", "__hash__", "__format__", "type"),
}


class MetaTensor(Tensor):
    """A tensor without values."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a plain tensor: `type(parameter)(data)` of a meta parameter keeps data's values."""
        return plain_kind(cls)(*args, **kwargs)

    @property
    def device(self) -> device:
        """The device `meta`."""
        return META

    @property
    def is_meta(self) -> bool:
        """Always true."""
        return True

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, options = _method_names().get(func) or name_of(func), dict(kwargs or {})
        if name.endswith(("__get__", "__set__")) or name in ("requires_grad_", "register_hook"):
            return _property(func, name, args)
        if name in _READS:
            raise NotImplementedError(
                f"{name} needs values, and this tensor is on the device 'meta', which has none; "
                "load weights first, or move the module with to_empty()"
            )
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            return args[0]  # nothing to write to
        where = _given_device(name, args, options)
        if name == "to" and where is not None and where != META:
            raise NotImplementedError(
                "a meta tensor has no elements to copy; Module.to_empty(device=...) allocates a "
                "module's parameters and buffers, and an initialization fills them"
            )
        if where == META:
            options.pop("device", None)
            args = tuple(a for a in args if not (name == "to" and _is_device(a)))
        largest = max((t._array.size for t in _tensors((args, options))), default=0)
        if largest > MOST_ELEMENTS and name not in _FREE and not name.endswith("_like"):
            raise NotImplementedError(
                f"{name} of a tensor of {largest} elements on the device 'meta' is not computed; "
                "use a real device"
            )
        with DisableTorchFunctionSubclass():
            result = func(*_plain(args), **_plain(options))
        made = name.endswith("_like") or name.startswith("new_")
        return result if made and where not in (None, META) else _as_meta(result)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shape = tuple(self._array.shape)
        return f"tensor(..., device='meta', size={shape}, dtype={self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = meta_tensor(self._array.shape, self._array.dtype, plain_kind(type(self)))
        copy._requires = self._requires
        memo[id(self)] = copy
        return copy


@cache
def _method_names() -> dict[Any, str]:
    """The name of each method, which may differ from its function's own name."""
    return {m: name for name, m in overridable_members().items() if not isinstance(m, property)}


def meta_tensor(shape: Any, dtype: Any, kind: type[Tensor] = Tensor) -> Tensor:
    """A tensor of a shape and a NumPy type, without values."""
    array = np.broadcast_to(np.zeros((), dtype), tuple(shape)).view(MetaArray)
    tensor: Tensor = wrap(array, meta_kind(kind))
    return tensor


#: the class of meta tensors for each class of tensors
_KINDS: dict[Any, Any] = {Tensor: MetaTensor}


def meta_kind(kind: type[Tensor]) -> Any:
    """The class of meta tensors that derives from another class too, such as Parameter."""
    if issubclass(kind, MetaTensor):
        return kind
    if kind not in _KINDS:
        about = {"__module__": kind.__module__}
        _KINDS[kind] = type(kind.__name__, (MetaTensor, kind), about)
    return _KINDS[kind]


def plain_kind(kind: type[Tensor]) -> type[Tensor]:
    """The class of tensors with values that corresponds to a class of meta tensors."""
    if kind is MetaTensor:
        return Tensor
    return kind.__bases__[1] if issubclass(kind, MetaTensor) else kind


def replace_data(tensor: Tensor, value: Tensor) -> None:
    """`tensor.data = value` where one of them is on the device "meta"."""
    kind = plain_kind(type(tensor))
    tensor.__class__ = meta_kind(kind) if isinstance(value._array, MetaArray) else kind
    tensor._array = value._array
    tensor._view = None


def _property(func: Any, name: str, args: tuple[Any, ...]) -> Any:
    if name == "data.__set__":
        return replace_data(*args)
    with DisableTorchFunctionSubclass():
        result = func(*args)
    return _as_meta(result) if name == "data.__get__" else result


def _is_device(value: Any) -> bool:
    return isinstance(value, (device, str))


def _given_device(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> device | None:
    given = options.get("device")
    if given is None and name == "to":
        given = next((a for a in args[1:] if _is_device(a)), None)
        other = next((a for a in args[1:] if isinstance(a, Tensor)), None)
        given = other.device if other is not None else given
    return None if given is None else as_device(given)


def _tensors(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


def _plain(tree: Any) -> Any:
    """The arguments with meta tensors replaced by tensors of zeros."""
    if isinstance(tree, MetaTensor):
        return wrap(tree._array.view(np.ndarray))
    if isinstance(tree, (list, tuple)) and any(True for _ in _tensors(tree)):
        return type(tree)(_plain(item) for item in tree)
    return {k: _plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _as_meta(result: Any) -> Any:
    if isinstance(result, Tensor):
        return meta_tensor(result._array.shape, result._array.dtype)
    if isinstance(result, (list, tuple)) and any(True for _ in _tensors(result)):
        make: Any = getattr(type(result), "_make", type(result))
        return make([_as_meta(item) for item in result])
    return result
