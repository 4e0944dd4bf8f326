"""Methods that change or expose the memory of a tensor, or apply a function to each element.

Comes in: a tensor, and sizes, a storage, or a Python function. `resize_` and `set_` give a tensor
other memory or another view of it; `apply_` and `map_` call a function for each element. Methods
that compare in place are here too. `tapegrad/storage.py` has the storages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtypes, inplace, storage
from ..core.conversion import as_array
from ..core.device import as_device, to_device
from ..core.layouts import layout, strided
from ..core.modes import GRAD, STATE, capturing
from ..core.tensor import Size, Tensor, not_recorded, own, wrap
from .creation import CREATION, creation, finished, numpy_dtype, valid_shape
from .elementwise import comparison, functions
from .table import TABLE, attach, in_place

if TYPE_CHECKING:
    from .annotations import DeviceLike, DTypeLike


def _resize(self: Tensor, *sizes: int | Sequence[int], memory_format: object = None) -> Tensor:
    """Give the tensor another shape, in place; elements keep their positions in memory.

    Additional elements are not set. Other tensors that share the memory do not change.
    """
    shape = valid_shape(sizes)
    if capturing() and self._array.size and shape != self._array.shape:
        for tape in STATE.tapes:
            tape.refuse_read(self, "resize_()")
    return inplace.resize(self, shape)


def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: object = None) -> Tensor:
    """Give the tensor the shape of another one, in place."""
    return _resize(self, the_template._array.shape)


def _set(
    self: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Any = None,
    stride: Any = None,
) -> Tensor:
    """Make the tensor a view of the memory of another tensor or of a storage."""
    from ..storage import TypedStorage, UntypedStorage, storage_of, view_of

    if STATE.mode & GRAD and self.requires_grad and self._edge is None:
        raise RuntimeError("set_() would change a leaf that requires gradients; use .data = ...")
    if source is None:
        array: Any = np.empty(0, self._array.dtype)
    elif isinstance(source, Tensor) and size is None:
        own(source)
        array = source._array
    elif isinstance(source, (Tensor, TypedStorage, UntypedStorage)):
        memory = storage_of(source) if isinstance(source, Tensor) else source.untyped()
        shape = (memory.nbytes() // self.dtype.itemsize,) if size is None else valid_shape((size,))
        array = view_of(memory, self.dtype, storage_offset, shape, stride)
    else:
        raise TypeError(f"set_() needs a Tensor or a storage, got {type(source).__name__}")
    if array.dtype != self._array.dtype:
        raise RuntimeError(f"set_() of a {self.dtype} tensor to memory of {array.dtype}")
    for tape in STATE.tapes:
        tape.note_replaced(self, "set_()")
    value = wrap(array)
    self._array = array
    self._view = None
    for tape in STATE.tapes:
        tape.rebind(self, value)
    return self


def _is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors have the same memory, offset, shape and strides."""
    a, b = self._array, tensor._array
    same = storage.owner_of(a) is storage.owner_of(b) and a.dtype == b.dtype
    at = [x.__array_interface__["data"][0] for x in (a, b)] if same else [0, 1]
    return bool(at[0] == at[1] and a.shape == b.shape and a.strides == b.strides)


def _untyped_storage(self: Tensor) -> Any:
    """The bytes of the memory that the tensor is a view of."""
    from ..storage import storage_of

    return storage_of(self)


def _storage(self: Tensor) -> Any:
    """The elements of the memory that the tensor is a view of."""
    from ..storage import TypedStorage, storage_of

    return TypedStorage(wrap_storage=storage_of(self), dtype=self.dtype)


def _storage_type(self: Tensor) -> Any:
    """The class of the tensor's storage."""
    from ..storage import TypedStorage

    return TypedStorage


def _new(self: Tensor, *args: Any, device: DeviceLike | None = None) -> Tensor:
    """A tensor of this one's dtype: from sizes, with unset values, or from data."""
    if device is not None:
        if as_device(device).type != self.device.type:
            raise RuntimeError(f"new() makes tensors on {self.device}, not on {device}; use .to()")
        if args and isinstance(args[0], Tensor):
            raise RuntimeError("new(tensor) takes no device; use .to()")
    if args and not all(isinstance(a, (int, np.integer)) for a in args):
        (data,) = args
        if isinstance(data, Size):
            return self.new_empty(data)
        return self.new_tensor(data.detach() if isinstance(data, Tensor) else data)
    return self.new_empty(args if args else (0,))


def _new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    **unused: Any,
) -> Tensor:
    """Unset values of this tensor's dtype, with a given size and strides."""
    return empty_strided(
        size, stride, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad
    )


@creation
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    **unused: Any,
) -> Tensor:
    """A tensor with unset values and the given strides, in elements.

    >>> import tapegrad
    >>> tapegrad.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    shape, steps = valid_shape((size,)), tuple(stride)
    if len(shape) != len(steps) or min(steps, default=0) < 0:
        raise RuntimeError(f"empty_strided needs a stride of at least 0 for each of {shape}")
    count = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if count > np.iinfo(np.int64).max // 16:
        raise RuntimeError(f"a tensor of shape {shape} with strides {steps} is too large")
    memory = np.zeros(0 if 0 in shape else count, numpy_dtype(dtype))
    item = memory.itemsize
    raw = memory.view(np.uint8)
    array: Any = np.ndarray(shape, memory.dtype, raw, 0, [s * item for s in steps])
    return finished(array, None, device, requires_grad)


@creation
def from_file(
    filename: str,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The first `size` elements of a file as a 1-d tensor, read on use.

    If `shared`, the file is extended to that size if needed, and writes change the file.
    """
    from ..storage import UntypedStorage

    kind = np.dtype(numpy_dtype(dtype))
    memory = UntypedStorage.from_file(filename, bool(shared), size * kind.itemsize)
    return finished(memory._bytes.view(kind), None, device, requires_grad)


@creation
def frombuffer(
    buffer: Any,
    *,
    dtype: DTypeLike,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A 1-d tensor on the memory of an object with Python's buffer protocol.

    `offset` counts bytes, `count` elements. Memory of a read-only object cannot be written to.

    >>> import tapegrad
    >>> tapegrad.frombuffer(bytearray([1, 2, 3]), dtype=tapegrad.uint8, offset=1)
    tensor([2, 3], dtype=tapegrad.uint8)
    """
    kind = dtypes.as_dtype(dtype)
    try:
        raw = np.frombuffer(buffer, np.uint8)
    except TypeError:
        raise ValueError(
            f"frombuffer needs an object with a buffer, got {type(buffer).__name__}"
        ) from None
    except ValueError:  # no bytes at all
        raw = np.empty(0, np.uint8)
    if not raw.flags.writeable:
        warnings.warn(
            "the buffer is not writable, and so the tensor is not either; copy the buffer, or "
            "clone() the tensor",
            UserWarning,
            stacklevel=2,
        )
    if not 0 <= offset < max(raw.size, 1):
        raise ValueError(f"offset must lie within the {raw.size} bytes of the buffer, got {offset}")
    rest = raw.size - offset
    if count < 0:
        if rest % kind.itemsize:
            raise ValueError(
                f"{rest} bytes of the buffer are left after the offset {offset}, which is no whole "
                f"number of elements of {kind.itemsize} bytes"
            )
        count = rest // kind.itemsize
    if count == 0 or count * kind.itemsize > rest:
        raise ValueError(
            f"{count} elements of {kind.itemsize} bytes are wanted, and the buffer has "
            f"{rest} bytes after the offset {offset}"
        )
    out = wrap(raw[offset : offset + count * kind.itemsize].view(kind.numpy))
    return out.requires_grad_() if requires_grad else out


@creation
def asarray(
    obj: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Convert anything to a tensor: another tensor, an array, a buffer, numbers.

    The result shares memory if possible. With `copy=True` it never does; with `copy=False` a needed
    copy is an error. History is kept only with `requires_grad=True`.

    >>> import tapegrad
    >>> tapegrad.asarray([1, 2], dtype=tapegrad.float64)
    tensor([1., 2.], dtype=tapegrad.float64)
    """
    kind = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(obj, np.generic) and copy is False:
        raise RuntimeError("asarray(copy=False): a NumPy number has no memory to share")
    if isinstance(obj, Tensor):
        found = obj if requires_grad else obj.detach()
    elif isinstance(obj, np.ndarray) or hasattr(obj, "__cuda_array_interface__"):
        found = wrap(as_array(obj))
    elif hasattr(obj, "__dlpack__") and not isinstance(obj, np.generic):
        found = CREATION["from_dlpack"](obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        found = frombuffer(obj, dtype=dtypes.get_default_dtype() if kind is None else kind)
    else:
        if copy is False:
            raise ValueError(
                "a sequence has no memory to share: asarray(copy=False) needs a tensor, an "
                "array or a buffer"
            )
        found = wrap(as_array(obj, kind, device))
        return found.requires_grad_() if requires_grad else found
    place = found.device if device is None else as_device(device)
    if copy is False and place != found.device:
        raise ValueError(
            f"asarray(copy=False): moving from '{found.device}' to '{place}' needs a copy"
        )
    if copy is False and kind is not None and kind is not found.dtype:
        raise ValueError(f"asarray(copy=False): converting {found.dtype} to {kind} needs a copy")
    made: Any = found.to(place, found.dtype if kind is None else kind)
    if copy and made is found:
        made = found.clone()
    if requires_grad and not made.requires_grad:
        made = (made.detach() if made is obj else made).requires_grad_()
    return made  # type: ignore[no-any-return]  # `to` is from the table


# -- functions of Python -----------------------------------------------------------------------


def _apply(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by the result of a Python function, in place."""
    return _mapped(self, (), callable, "apply_")


def _map(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by a function of it and the element of another tensor, in place."""
    return _mapped(self, (tensor,), callable, "map_")


def _map2(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by a function of it and the elements of two tensors, in place."""
    return _mapped(self, (x, y), callable, "map2_")


def _mapped(self: Tensor, others: tuple[Tensor, ...], function: Any, what: str) -> Tensor:
    if any(t.requires_grad for t in (self, *others)):
        raise RuntimeError(
            f"{what}() does not record what it does, so it needs a tensor without gradients: use "
            "detach() first"
        )
    for t in (self, *others):
        not_recorded(t, f"{what}()")
    inplace.check_writable(self, what)
    shape = self._array.shape
    spread = [np.broadcast_to(t._array, shape).reshape(-1) for t in others]
    columns = [x.tolist() for x in (self._array.reshape(-1), *spread)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    array = np.array(values).reshape(shape).astype(self._array.dtype)
    return inplace.assign(self, wrap(to_device(array, self.device)), what)


# -- in place ----------------------------------------------------------------------------------


#: by file, operations that get their in-place methods here
_IN_PLACE = {
    comparison: ("eq", "ne", "lt", "le", "gt", "ge", "logical_not"),
    functions: ("heaviside", "float_power"),
}

for _name in [name for names in _IN_PLACE.values() for name in names]:
    _entry = TABLE[_name]
    _changing = in_place(_name, _entry.function, None, None)
    attach(**{f"{alias}_": _changing for alias in (_name, *_entry.aliases)})


def _dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions in memory order, the one with the largest stride first.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3).dim_order(), tapegrad.zeros(2, 3).T.dim_order()
    ((0, 1), (1, 0))
    """
    steps = self._array.strides
    return tuple(sorted(range(len(steps)), key=lambda d: -steps[d]))


def _reversed(self: Tensor) -> Any:
    """The slices along the first dimension in reverse order; a single element as it is."""
    return self.flip(0) if self._array.ndim else self


def _layout(self: Tensor) -> layout:
    """`strided`: all tensors are dense."""
    return strided


attach(
    resize_=_resize,
    resize_as_=_resize_as,
    set_=_set,
    is_set_to=_is_set_to,
    untyped_storage=_untyped_storage,
    storage=_storage,
    _typed_storage=_storage,
    storage_type=_storage_type,
    new=_new,
    new_empty_strided=_new_empty_strided,
    apply_=_apply,
    map_=_map,
    map2_=_map2,
    dim_order=_dim_order,
    __reversed__=_reversed,
    layout=property(_layout),
)
