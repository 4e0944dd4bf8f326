"""Functions that make tensors: from data, filled with a value, or like another tensor.

Comes in: data or a size, with dtype and device. Goes out: a new tensor without history. `@creation`
enters such a function in `CREATION`, which becomes part of the main namespace; `ranges.py` and
`drawing.py` use it too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core import dtypes, numeric, overriding
from ..core.complexes import converted, fitting
from ..core.conversion import as_array
from ..core.device import ASKED, MetaArray, as_device, cupy, get_default_device, to_device
from ..core.handles import InferenceExtra
from ..core.layouts import LAYOUTS, strided
from ..core.modes import INFERENCE, INFERRED, STATE, TAPE
from ..core.outputs import created_into
from ..core.sparse import SparseArray, refusal
from ..core.tensor import Tensor, wrap
from ..core.tree import NUMBERS
from ..core.unset import UnsetArray
from ..core.unset import refusal as unset_refusal
from .checks import check_constant
from .shape.dims import as_shape
from .table import attach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .annotations import DeviceLike, DTypeLike, Number

    F = TypeVar("F", bound=Callable[..., Any])


_SPARSE = LAYOUTS["sparse_coo"]

#: functions of the main namespace that make tensors, by name
CREATION: dict[str, Callable[..., Any]] = {}


def creation(function: F) -> F:
    """Enter a function that makes tensors into the main namespace."""
    CREATION[function.__name__.rstrip("_")] = function
    return function


def _let_creation_ask() -> None:
    """Replace public functions that make tensors by wrappers that check for overrides."""
    public = sys.modules[__package__.partition(".")[0]].__dict__
    for name, function in CREATION.items():
        if public.get(name) is function and name != "is_tensor":  # asks only for the class
            public[name] = _asking(function)


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = overriding.override(call, args, kwargs)
        return function(*args, **kwargs) if found is NotImplemented else found

    return call


overriding.on_install.append(_let_creation_ask)


def made(array: Any) -> Tensor:
    """A new tensor around an array, marked if it is made inside of inference_mode."""
    out = wrap(array)
    if INFERRED and STATE.mode & INFERENCE:
        out._extra = InferenceExtra()
    return out


def finished(array: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """A tensor of the array, converted to a dtype and moved to a device."""
    if dtype is not None and array.dtype != dtypes.as_dtype(dtype).numpy:
        array = converted(array, dtypes.as_dtype(dtype))
    if device is not None or ASKED:
        array = to_device(array, get_default_device() if device is None else as_device(device))
        if isinstance(array, MetaArray):
            return without_values(array, requires_grad)
    out = wrap(array)
    if INFERRED and STATE.mode & INFERENCE:
        out._extra = InferenceExtra()
    return out.requires_grad_() if requires_grad else out


def without_values(array: Any, requires_grad: bool) -> Tensor:
    """A tensor on the device "meta", of the shape and dtype of an array."""
    from ..core.meta import meta_tensor

    out = meta_tensor(array.shape, array.dtype)
    return out.requires_grad_() if requires_grad else out


def numpy_dtype(dtype: Any) -> Any:
    """NumPy's dtype for `dtype`, or for the default one."""
    return (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).numpy


# -- from data ---------------------------------------------------------------------------------


@creation
def tensor(
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested lists, arrays or tensors.

    >>> import tapegrad
    >>> tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1, 2]).dtype
    (tensor([1., 2.]), tapegrad.int64)
    """
    array = as_array(data, dtype, device)
    if array.__class__ is MetaArray:
        return without_values(array, requires_grad)
    plain = data.__class__ in NUMBERS or data.__class__ is list
    if not plain and (
        isinstance(data, (Tensor, np.ndarray)) or hasattr(data, "__cuda_array_interface__")
    ):
        source = data._array if isinstance(data, Tensor) else data
        on_cpu = isinstance(array, np.ndarray) and isinstance(source, np.ndarray)
        if np.may_share_memory(array, source) if on_cpu else array is source:
            array = array.copy()
    out = made(array)
    return out.requires_grad_() if requires_grad else out


@creation
def as_tensor(
    data: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """`data` as a tensor, without a copy where possible."""
    if isinstance(data, Tensor):
        out = data if dtype is None else data.to(dtypes.as_dtype(dtype))
        return out if device is None else out.to(as_device(device))
    array = as_array(data, dtype, device)
    return without_values(array, False) if array.__class__ is MetaArray else made(array)


@creation
def from_numpy(array: np.ndarray[Any, Any], requires_grad: bool = False) -> Tensor:
    """A tensor that shares memory with a NumPy array: writing to one changes the other."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy needs a NumPy array, got {type(array).__name__}")
    dtypes.from_numpy_dtype(array.dtype)
    # A separate array object: setting flags on the user's array does not change this one.
    out = made(array.view(np.ndarray))
    return out.requires_grad_() if requires_grad else out


@creation
def from_dlpack(source: Any) -> Tensor:
    """A tensor that shares memory with any object that speaks DLPack."""
    kind = source.__dlpack_device__()[0]
    array = np.from_dlpack(source) if kind == 1 else cupy().from_dlpack(source)
    return made(array)


# -- filled ------------------------------------------------------------------------------------


@creation
def zeros(
    *size: int | Sequence[int],
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """A tensor of zeros: `zeros(2, 3)` and `zeros((2, 3))` have the shape (2, 3)."""
    if out is not None:
        return created_into(out, zeros, *size, dtype=dtype, requires_grad=requires_grad, **unused)
    if unused and unused.get("layout") is _SPARSE:
        return _without_elements(size, unused, dtype, device, requires_grad)
    shape = as_size(size, unused)
    return finished(np.zeros(shape, numpy_dtype(dtype)), None, device, requires_grad)


@creation
def ones(
    *size: int | Sequence[int],
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """A tensor of ones: `ones(2, 3)` and `ones((2, 3))` have the shape (2, 3)."""
    if out is not None:
        return created_into(out, ones, *size, dtype=dtype, requires_grad=requires_grad, **unused)
    shape = as_size(size, unused)
    return finished(np.ones(shape, numpy_dtype(dtype)), None, device, requires_grad)


@creation
def empty(
    *size: int | Sequence[int],
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """A tensor whose values are not set."""
    if out is not None:
        return created_into(out, empty, *size, dtype=dtype, requires_grad=requires_grad, **unused)
    if unused and unused.get("layout") is _SPARSE:
        return _without_elements(size, unused, dtype, device, requires_grad)
    shape = as_size(size, unused)
    if device is not None or ASKED:
        place = get_default_device() if device is None else as_device(device)
        if place.type == "meta":
            return without_values(
                np.broadcast_to(np.zeros((), numpy_dtype(dtype)), shape), requires_grad
            )
    # On a tape unset values are zeros, because two recordings of a function must be equal.
    unset = np.zeros if STATE.mode & TAPE else np.empty
    try:
        array = unset(shape, numpy_dtype(dtype))
    except ValueError as error:  # more bytes than the address space has
        raise RuntimeError(f"a tensor of shape {shape} is too large: {error}") from None
    return finished(array, None, device, requires_grad)


def _without_elements(
    size: tuple[Any, ...], options: dict[str, Any], dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    """A sparse tensor of zeros."""
    from .sparse.creation import sparse_coo_tensor

    shape = as_size(size, options | {"layout": strided})
    return sparse_coo_tensor(size=shape, dtype=dtype, device=device, requires_grad=requires_grad)


def as_size(size: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, ...]:
    """The shape, given as positional arguments or as `size=`.

    PyTorch's memory options have no meaning here; any other keyword is a mistake.
    """
    if options:
        if "size" in options and not size:
            size = (options.pop("size"),)
        for name in options:
            if name not in ("layout", "pin_memory", "memory_format"):
                raise TypeError(f"unexpected keyword argument {name!r}")
        if options.get("layout") not in (None, strided):
            raise NotImplementedError(
                f"a tensor of layout {options['layout']} is not made here; use sparse_coo_tensor, "
                "or to_sparse() on a dense one"
            )
    return valid_shape(size)


def valid_shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes as a shape, if none is negative."""
    shape = as_shape(size)
    if shape and min(shape) < 0:
        raise RuntimeError(f"sizes must not be negative, got {shape}")
    return shape


@creation
def full(
    size: int | Sequence[int],
    fill_value: Number | Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """A tensor filled with one value, which gives the dtype: `full((2,), 7)` is int64 [7, 7]."""
    if out is not None:
        return created_into(out, full, size, fill_value, dtype=dtype, requires_grad=requires_grad)
    value = fill_value
    if isinstance(fill_value, Tensor):
        check_constant(fill_value, "full: fill_value")
        value = fill_value.item()
    if not isinstance(value, (int, float, complex, np.generic)):
        raise TypeError(f"full needs a number, got {type(value).__name__}")
    kind = dtypes.number_dtype(value) if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(value, complex):
        value = fitting(value, kind.numpy)
    elif value != value and numeric.is_exact(kind.numpy) and kind is not dtypes.bool_:
        raise RuntimeError(f"full: NaN is no number of {kind}")
    array = np.full(as_size((size,), unused), value, kind.numpy)
    return finished(array, None, device, requires_grad)


@creation
def scalar_tensor(
    s: Number,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    **unused: Any,
) -> Tensor:
    """A number as a tensor of no dimensions, of the default dtype unless one is given."""
    as_size((), unused)
    return finished(np.full((), s, numpy_dtype(dtype)), None, device, requires_grad)


@creation
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    **unused: Any,
) -> Tensor:
    """A tensor with unset values and the memory order of dimensions in `physical_layout`."""
    shape, order = as_size((size,), unused), as_shape((physical_layout,))
    if sorted(order) != list(range(len(shape))):
        raise RuntimeError(
            f"empty_permuted: {order} does not name each of {len(shape)} dimensions once"
        )
    unset = np.zeros if STATE.mode & TAPE else np.empty
    array = unset([shape[d] for d in order], numpy_dtype(dtype))
    return finished(array.transpose(np.argsort(order)), None, device, requires_grad)


def made_like(function: Callable[..., Tensor], input: Tensor, options: dict[str, Any]) -> Tensor:
    """The result of `function` for the shape, dtype and device of a tensor."""
    options.pop("memory_format", None)
    if input._array.__class__ is not np.ndarray:
        if input._array.__class__ is UnsetArray:
            raise unset_refusal("a tensor like it")
        if input._array.__class__ is SparseArray and options.get("layout") is not strided:
            return _sparse_like(function, input, options)
    options.setdefault("dtype", input.dtype)
    if input.is_cuda or ASKED:
        options.setdefault("device", input.device)
    return function(tuple(input._array.shape), **options)


def _sparse_like(function: Callable[..., Tensor], input: Tensor, options: dict[str, Any]) -> Tensor:
    """A sparse tensor of the same shape, without elements."""
    if function is not zeros and function is not empty:
        raise refusal("a tensor of other values than 0, like a sparse one,")
    dtype, device = options.get("dtype"), options.get("device")
    made = input.detach().clone().zero_().to(dtype=dtype, device=device)
    return made.requires_grad_(options.get("requires_grad", False))


@creation
def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Zeros with the shape, dtype and device of a tensor; `dtype=` and `device=` override them."""
    return made_like(zeros, input, options)


@creation
def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Ones with the shape, dtype and device of a tensor; `dtype=` and `device=` override them."""
    return made_like(ones, input, options)


@creation
def empty_like(input: Tensor, **options: Any) -> Tensor:
    """Unset values with the shape, dtype and device of a tensor."""
    return made_like(empty, input, options)


@creation
def full_like(input: Tensor, fill_value: Number | Tensor, **options: Any) -> Tensor:
    """One value with the shape, dtype and device of a tensor."""
    return made_like(lambda size, **o: full(size, fill_value, **o), input, options)


# -- of a tensor -------------------------------------------------------------------------------


def _options(self: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    options.setdefault("dtype", self.dtype)
    if self.is_cuda or ASKED:
        options.setdefault("device", self.device)
    return options


def _new_zeros(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """Zeros of the given size, with this tensor's dtype and device."""
    return zeros(*size, **_options(self, options))


def _new_ones(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """Ones of the given size, with this tensor's dtype and device."""
    return ones(*size, **_options(self, options))


def _new_empty(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """Unset values of the given size, with this tensor's dtype and device."""
    return empty(*size, **_options(self, options))


def _new_full(
    self: Tensor, size: int | Sequence[int], value: Number | Tensor, **options: Any
) -> Tensor:
    """One value in the given size, with this tensor's dtype and device."""
    return full(size, value, **_options(self, options))


def _new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """A tensor of `data`, with this tensor's dtype and device."""
    return tensor(data, **_options(self, options))


attach(
    new_zeros=_new_zeros,
    new_ones=_new_ones,
    new_empty=_new_empty,
    new_full=_new_full,
    new_tensor=_new_tensor,
)
