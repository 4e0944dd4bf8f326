"""Methods that change dtype or device, fill in place, or return sizes."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..core import dtypes, inplace, numeric, source, storage, xp
from ..core.batch_rules import leading
from ..core.complexes import OWN, fitting
from ..core.device import CPU, as_device, cupy, device, to_device
from ..core.dtypes import DType
from ..core.modes import STATE
from ..core.naming import shown
from ..core.pinning import is_pinned, keep_for, pinned_copy
from ..core.primitive import OPAQUE, Primitive, define
from ..core.tensor import Size, Tensor, not_recorded, wrap
from .drawing import as_chance, random_array
from .elementwise.complexes import is_complex, refuse_complex
from .elementwise.copies import cast, clone_
from .shape.dims import normal_dim
from .shape.reordering import t, transpose
from .shape.reshaping import squeeze, unsqueeze
from .table import In, Sample, attach, op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .annotations import DeviceLike, DTypeLike, Operand

move_: Primitive = define(
    "to_device",
    lambda x, *, target, source, waits: to_device(x, as_device(target), waits),
    kind=OPAQUE,
    vjp=lambda g, target, source, waits: move_(g, target=source, source=target, waits=waits),
    batch=leading,
    linear=True,
    complex=OWN,
    stores=True,
)


def _moved(x: Tensor, target: device, waits: bool = True) -> Tensor:
    given = x.device
    if given is target or given == target:
        return x
    if target.type == "meta":
        from ..core.meta import meta_tensor

        return meta_tensor(x._array.shape, x._array.dtype)
    out: Tensor = move_(x, target=str(target), source=str(x.device), waits=waits)
    return out


@op(
    samples=lambda: [
        Sample((3,), dtypes.float64),
        Sample(In(3, grad=False), dtypes.float32),
        Sample(In(3, kind="int", low=0, high=5), dtypes.float32),
    ],
    function=False,
    torch=None,
)
def to(
    input: Tensor,
    *args: DTypeLike | DeviceLike | Tensor | bool | None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool = False,
    non_blocking: bool = False,
    memory_format: object = None,
) -> Any:
    """This tensor with another dtype and/or on another device: `to(dtype)`, `to(device)`, ...

    `to(other)` takes dtype and device of another tensor. If nothing changes, the result is the
    tensor itself, unless `copy=True`. With `non_blocking=True` Python does not wait for a copy from
    pinned memory to a GPU; that memory must not change before the copy is done.

    >>> import tapegrad
    >>> tapegrad.tensor([1.5, 2.5]).to(tapegrad.int64)
    tensor([1, 2])
    """
    a: Any
    for a in args:
        if isinstance(a, DType):
            dtype = a
        elif isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, bool):
            non_blocking = a
        elif a in (float, int, bool, complex) or isinstance(a, (np.dtype, type)):
            dtype = a
        elif a is not None:
            device = a
    out = input
    if device is not None:
        out = _moved(out, as_device(device), not non_blocking)
    target = None if dtype is None else dtypes.as_dtype(dtype)
    if target is not None and out._array.dtype != target.numpy:
        if is_complex(out) and dtypes.BOOL < target.category < dtypes.COMPLEX:
            warnings.warn(
                "a complex tensor became real, and its imaginary part is lost; take .real where "
                "that is meant",
                stacklevel=source.stacklevel(),
            )
        out = cast.direct(out, {"dtype": target})
    return clone_(out) if copy and out is input else out


def _caster(name: str, dtype: DType) -> None:
    def method(self: Tensor, memory_format: object = None) -> Tensor:
        out: Tensor = to(self, dtype)
        return out

    method.__name__ = name
    method.__doc__ = f"This tensor as {dtype}."
    setattr(Tensor, name, method)


for _name, _dtype in {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "short": dtypes.int16,
    "char": dtypes.int8,
    "byte": dtypes.uint8,
    "bool": dtypes.bool_,
    "chalf": dtypes.complex32,
    "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}.items():
    _caster(_name, _dtype)


#: names of the types of tensors in older code
_TYPE_NAMES = {
    "float32": "FloatTensor",
    "float64": "DoubleTensor",
    "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor",
    "int64": "LongTensor",
    "int32": "IntTensor",
    "int16": "ShortTensor",
    "int8": "CharTensor",
    "uint8": "ByteTensor",
    "bool": "BoolTensor",
    "uint16": "UInt16Tensor",
    "uint32": "UInt32Tensor",
    "uint64": "UInt64Tensor",
    "complex64": "ComplexFloatTensor",
    "complex128": "ComplexDoubleTensor",
}


@overload
def type_(self: Tensor, dtype: None = None) -> str: ...
@overload
def type_(self: Tensor, dtype: DTypeLike) -> Tensor: ...
def type_(self: Tensor, dtype: DTypeLike | None = None) -> Any:
    """The name of this tensor's type, or this tensor with another dtype or type.

    >>> import tapegrad
    >>> tapegrad.tensor([1, 2]).type(), tapegrad.tensor([1, 2]).type(tapegrad.float32)
    ('tapegrad.LongTensor', tensor([1., 2.]))
    >>> tapegrad.tensor([1, 2]).type("tapegrad.DoubleTensor").dtype
    tapegrad.float64
    """
    if dtype is None:
        kind = (".cuda" if self.is_cuda else "") + (".sparse" if self.is_sparse else "")
        return f"{shown.package}{kind}.{_TYPE_NAMES[self.dtype.name]}"
    if isinstance(dtype, str) and dtype.endswith("Tensor"):
        package, _, name = dtype.rpartition(".")
        known = package.removesuffix(".cuda") in ("tapegrad", "torch")
        wanted = next((d for d, n in _TYPE_NAMES.items() if n == name), None) if known else None
        if wanted is None:
            raise ValueError(f"invalid type: {dtype!r}; expected one such as 'torch.FloatTensor'")
        on = "cuda" if package.endswith(".cuda") else "cpu"
        return to(self, dtypes.dtype_named(wanted), on)
    return to(self, dtypes.as_dtype(getattr(dtype, "dtype", dtype)))


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor with the dtype of another.

    >>> import tapegrad
    >>> tapegrad.tensor([1, 2]).type_as(tapegrad.tensor(0.5))
    tensor([1., 2.])
    """
    out: Tensor = to(self, other.dtype)
    return out


def cpu(self: Tensor) -> Tensor:
    """This tensor in host memory."""
    return _moved(self, CPU)


def cuda(self: Tensor, index: int | None = None) -> Tensor:
    """This tensor on a GPU."""
    return _moved(self, device("cuda", 0 if index is None else int(index)))


class Extent(int):
    """`x.size` is the number of elements, as in NumPy; `x.size()` is the shape, as in PyTorch.

    >>> import tapegrad
    >>> x = tapegrad.zeros(2, 3)
    >>> x.size, x.size(), x.size(0)
    (6, Size([2, 3]), 2)
    """

    shape: Size

    def __new__(cls, shape: tuple[int, ...]) -> Extent:
        self = super().__new__(cls, math.prod(shape))
        self.shape = Size(shape)
        return self

    @overload
    def __call__(self, dim: None = None) -> Size: ...
    @overload
    def __call__(self, dim: int) -> int: ...
    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        if dim is None:
            return self.shape
        if not self.shape:
            raise IndexError("a 0-d tensor has no dimensions; size() without dim is its shape")
        return self.shape[normal_dim(dim, len(self.shape))]


def size(self: Tensor) -> Extent:
    """The number of elements; `size()` is the shape and `size(dim)` the size of one dimension."""
    return Extent(self._array.shape)


def numel(self: Tensor) -> int:
    """The number of elements.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3).numel()
    6
    """
    return int(self._array.size)


@overload
def stride(self: Tensor, dim: None = None) -> tuple[int, ...]: ...
@overload
def stride(self: Tensor, dim: int) -> int: ...
def stride(self: Tensor, dim: int | None = None) -> Any:
    """The strides, in elements.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3).stride(), tapegrad.zeros(2, 3).t().stride()
    ((3, 1), (1, 3))
    """
    array = self._array
    itemsize = array.itemsize
    steps = tuple([s // itemsize for s in array.strides])
    if array.size == 0 and not any(steps):
        steps = _steps_of(array.shape)  # NumPy's strides of empty arrays differ
    return steps if dim is None else steps[normal_dim(dim, self._array.ndim)]


def _steps_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


def storage_offset(self: Tensor) -> int:
    """The offset of a view's first element in its storage, in elements.

    >>> import tapegrad
    >>> tapegrad.arange(4)[1:].storage_offset()
    1
    """
    for tape in STATE.tapes:
        tape.refuse_offset(self)
    array = self._array
    whole = storage.owner_of(array) if self._view is None else self._view[0]._array
    if array is whole or not array.size:
        return 0
    if self._view is not None and self._view[0]._array.base is not None:
        whole = storage.owner_of(whole)
    return (xp.address(array) - xp.address(whole)) // int(array.itemsize)


def _filling(value: Any, dtype: Any) -> Any:
    """A number as an array; integers that are too large keep their low bits."""
    return np.asarray(value).astype(dtype) if type(value) is int else np.asarray(value, dtype)


def fill_(self: Tensor, value: Operand) -> Tensor:
    """Fill with one value, in place.

    >>> import tapegrad
    >>> tapegrad.zeros(2).fill_(3.0)
    tensor([3., 3.])
    """
    tracked = self._requires
    if isinstance(value, Tensor):
        tracked = tracked or value._requires
        if value._array.ndim:
            raise RuntimeError(f"fill_ takes one number, got shape {tuple(value.shape)}")
    inplace.check_writable(self, "fill_", tracked)  # else elements may share memory
    dtype = self._array.dtype
    if isinstance(value, complex):
        value = fitting(value, dtype)
    if isinstance(value, Tensor):
        filling = value
    else:
        array = _filling(value, dtype)
        on_cpu = isinstance(self._array, np.ndarray)
        filling = wrap(array if on_cpu else to_device(array, self.device))
    return inplace.assign(self, filling, "fill_", given=filling is value, whole=tracked)


def copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy the values of another tensor into this one, converted and broadcast.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 2).copy_(tapegrad.tensor([1, 2]))
    tensor([[1., 2.],
            [1., 2.]])
    """
    inplace.check_writable(self, "copy_")
    if not isinstance(source, Tensor):
        raise TypeError(f"copy_ needs a Tensor, got {type(source).__name__}")
    value = to(source, self.dtype, device=self.device)
    return inplace.assign(self, value, "copy_", given=value is source)


def _zero(self: Tensor) -> Tensor:
    """Fill with zeros, in place."""
    return fill_(self, 0)


def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return int(self._array.ndim)


def _element_size(self: Tensor) -> int:
    """The size of one element in bytes."""
    return int(self._array.itemsize)


def _is_shared(self: Tensor) -> bool:
    """Whether forked processes share the memory with this one."""
    return self.is_cuda or bool(self.untyped_storage().is_shared())


def _share_memory(self: Tensor) -> Tensor:
    """Move the tensor to memory that forked processes share with this one.

    >>> import tapegrad
    >>> tapegrad.ones(2).share_memory_().is_shared()
    True
    """
    if not _is_shared(self):
        self.data = wrap(storage.shared_copy(self._array))
    return self


def _is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether another tensor has the same shape."""
    return bool(self._array.shape == other._array.shape)


def _is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is one of the float types."""
    return self.dtype.is_floating_point


def _is_complex(self: Tensor) -> bool:
    """Whether the dtype is one of the complex types."""
    return self.dtype.is_complex


def _is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype.is_signed


def _is_cpu(self: Tensor) -> bool:
    """Whether the elements are in host memory."""
    return not self.is_cuda


def _get_device(self: Tensor) -> int:
    """The index of the GPU that holds the elements, or -1."""
    return self.device.index or 0 if self.is_cuda else -1


def _is_contiguous(self: Tensor, memory_format: object = None) -> bool:
    """Whether the elements are contiguous in memory, in C order."""
    return bool(self._array.flags.c_contiguous)


def _data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    not_recorded(self, "data_ptr()")
    return xp.address(self._array)


def _turning(name: str, movement: Callable[..., Any]) -> None:
    """Attach the in-place method of a movement, such as `transpose_`."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return inplace.turn(self, lambda x: movement(x, *args, **kwargs), f"{name}_")

    method.__name__ = f"{name}_"
    method.__wrapped__ = movement  # type: ignore[attr-defined]  # gives the signature
    method.__doc__ = f"In-place version of `{name}`: the same memory, seen in another shape."
    setattr(Tensor, f"{name}_", method)


_turning("squeeze", squeeze)
_turning("unsqueeze", unsqueeze)
for _name in ("transpose", "swapaxes", "swapdims"):
    _turning(_name, transpose)
_turning("t", t)


def _as_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    out: Tensor = self.as_strided(size, stride, storage_offset)
    return out


_turning("as_strided", _as_strided)


def _is_nonzero(self: Tensor) -> bool:
    """Whether the only element is not 0."""
    return bool(self)


def _false(self: Tensor) -> bool:
    """False: such tensors do not exist here."""
    return False


def _is_pinned(self: Tensor, device: DeviceLike | None = None) -> bool:
    """Whether the memory is pinned, so that a GPU can copy from it asynchronously."""
    return isinstance(self._array, np.ndarray) and is_pinned(self._array)


def _pin_memory(self: Tensor, device: DeviceLike | None = None) -> Tensor:
    """A copy in pinned memory; the tensor itself if it is pinned, or if there is no GPU."""
    if not isinstance(self._array, np.ndarray):
        raise RuntimeError(f"only memory of the CPU can be pinned, and this is on {self.device}")
    if is_pinned(self._array) or not _has_gpu():
        return self
    return wrap(pinned_copy(self._array))


def _has_gpu() -> bool:
    try:
        cupy()
    except RuntimeError:
        return False
    return True


def _record_stream(self: Tensor, stream: Any) -> None:
    """Keep the memory alive until the work now queued on a stream is done."""
    if isinstance(self._array, np.ndarray):
        raise RuntimeError("record_stream() is for tensors on a GPU")
    keep_for(stream, self._array)


def _random_in_place(name: str, make: Any, what: str) -> None:
    def method(self: Tensor, *args: float | Tensor, **kwargs: Any) -> Tensor:
        inplace.check_writable(self, name)
        if name not in ("uniform_", "normal_"):
            refuse_complex(self, name)
        generator = kwargs.pop("generator", None)
        value = make(self, generator, *args, **kwargs)
        return inplace.assign(self, value, name)

    method.__name__ = name
    method.__doc__ = what
    setattr(Tensor, name, method)


def _like(kind: str, x: Tensor, generator: Any) -> Any:
    given = x._array.dtype
    dtype = given if given == np.float64 or numeric.is_complex(given) else np.float32
    out = random_array(kind, tuple(x._array.shape), dtype, generator, device=x.device)
    return to(out, x.dtype)


def _above_zero(what: str, number: Any, least: bool = False) -> Any:
    """A parameter of a distribution, checked to be positive, or with `least` not negative."""
    if not isinstance(number, Tensor) and not (number > 0 or (least and number == 0)):
        raise RuntimeError(f"{what} must be {'at least' if least else 'above'} 0, got {number}")
    return number


def _chance_of_success(p: Any) -> Any:
    if not isinstance(p, Tensor) and not 0 < p < 1:
        raise RuntimeError(f"geometric_ needs a probability between 0 and 1, got {p}")
    return p


def _between(x: Tensor, generator: Any, low: Any, high: Any) -> Any:
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and low > high:
        raise RuntimeError(f"uniform_ needs a range from low to high, got {low} to {high}")
    if not numeric.is_inexact(x._array.dtype):
        raise NotImplementedError(f"uniform_ needs a floating tensor, got {x.dtype}")
    if not isinstance(high - low, Tensor) and high - low > dtypes.finfo(x.dtype).max:
        raise RuntimeError(f"uniform_: the range from {low} to {high} is too wide for {x.dtype}")
    first = complex(low, low) if is_complex(x) else low  # the limit of both parts
    return _like("uniform", x, generator) * (high - low) + first


_random_in_place(
    "uniform_",
    lambda x, g, a=0.0, b=1.0, **k: _between(x, g, k.get("from", a), k.get("to", b)),
    "Draw every element evenly between `from` (0) and `to` (1), in place.",
)
_random_in_place(
    "normal_",
    lambda x, g, mean=0.0, std=1.0: (
        _like("normal", x, g) * _above_zero("std of normal_", std, least=True) + mean
    ),
    "Draw every element from a normal distribution (`mean=0`, `std=1`), in place.",
)
_random_in_place(
    "bernoulli_",
    lambda x, g, p=0.5: to(_like("uniform", x, g) < as_chance("bernoulli_", p), x.dtype),
    "Make every element 1 with the probability `p` (0.5), else 0, in place.",
)
_random_in_place(
    "exponential_",
    lambda x, g, lambd=1.0: -(1 - _like("uniform", x, g)).log() / _above_zero("lambd", lambd),
    "Draw every element from an exponential distribution with the rate `lambd` (1), in place.",
)


def _check_limits(dtype: DType, low: int, high: int, digits: int | None) -> None:
    """Raise if a dtype cannot hold the limits; warn if it cannot hold them exactly."""
    if low >= high:
        raise RuntimeError(
            f"random_ draws from `from` up to `to`, which must be larger: got {low} and {high}"
        )
    if dtype.category == dtypes.FLOAT:
        limits: Any = dtypes.finfo(dtype)
    else:
        limits = dtypes.iinfo(dtype) if dtype is not dtypes.bool_ else None
    least, most = (0, 1) if limits is None else (limits.min, limits.max)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
        if digits is not None and abs(value) > 1 << digits:
            warnings.warn(
                f"{name} is beyond 2^{digits}, up to where {dtype} has all whole numbers: some "
                "numbers will not be drawn",
                UserWarning,
                stacklevel=4,
            )


def _whole_numbers(x: Tensor, generator: Any, *limits: Any, **named: Any) -> Any:
    """Draw integers from 0, or the first of two limits, up to but not including the last."""
    low, high = (0, None) if not limits else (0, limits[0]) if len(limits) == 1 else limits
    low, high = named.get("from", low), named.get("to", high)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(x.dtype.name)
    if high is None:
        whole = x.dtype.category == dtypes.INTEGER
        high = dtypes.iinfo(x.dtype).max if whole else 2 if digits is None else (1 << digits) + 1
    elif limits or named:
        _check_limits(x.dtype, int(low), int(high), digits)
    shape, ends = tuple(x._array.shape), (int(low), int(high))
    out = random_array("integers", shape, np.int64, generator, *ends, device=x.device)
    return to(out, x.dtype)


_random_in_place(
    "random_",
    _whole_numbers,
    "Draw integers from `from` (0) up to but without `to`, in place.",
)
_random_in_place(
    "log_normal_",
    lambda x, g, mean=1.0, std=2.0: (
        _like("normal", x, g) * _above_zero("std of log_normal_", std) + mean
    ).exp(),
    "Draw elements whose logarithms are normal (`mean=1`, `std=2`), in place.",
)
_random_in_place(
    "geometric_",
    lambda x, g, p: (
        ((1 - _like("uniform", x, g)).log() / math.log1p(-_chance_of_success(p))).floor() + 1
    ),
    "Draw the number of tries up to the first success, which has the probability `p`, in place.",
)
_random_in_place(
    "cauchy_",
    lambda x, g, median=0.0, sigma=1.0: (
        ((_like("uniform", x, g) - 0.5) * math.pi).tan() * _above_zero("sigma", sigma) + median
    ),
    "Draw every element from a Cauchy distribution (`median=0`, `sigma=1`), in place.",
)

attach(
    type=type_,
    type_as=type_as,
    cpu=cpu,
    cuda=cuda,
    size=property(size),
    numel=numel,
    nelement=numel,
    storage_offset=storage_offset,
    stride=stride,
    fill_=fill_,
    copy_=copy_,
    zero_=_zero,
    dim=_dim,
    ndimension=_dim,
    element_size=_element_size,
    is_same_size=_is_same_size,
    is_shared=_is_shared,
    share_memory_=_share_memory,
    is_floating_point=_is_floating_point,
    is_complex=_is_complex,
    is_signed=_is_signed,
    is_cpu=property(_is_cpu),
    get_device=_get_device,
    is_contiguous=_is_contiguous,
    data_ptr=_data_ptr,
    is_nonzero=_is_nonzero,
    is_meta=property(_false),
    is_quantized=property(_false),
    is_nested=property(_false),
    is_pinned=_is_pinned,
    record_stream=_record_stream,
    pin_memory=_pin_memory,
)
