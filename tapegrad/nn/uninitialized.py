"""Parameters and buffers of lazy layers: a dtype and a device, and no shape yet.

`materialize` gives them a shape, and they stay the same objects. Loading a state dict does so too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from ..core import dtypes
from ..core.tensor import Tensor
from ..core.unset import refusal, unset
from ..ops.creation import CREATION
from .parameter import Buffer, Parameter

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike


class UninitializedTensorMixin:
    """Base of parameters and buffers without a shape."""


def _no_shape(self: Tensor) -> NoReturn:
    raise refusal("shape")


def _refused(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal(name)

    method.__name__ = name
    return method


_CONVERSIONS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64,
    "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
}  # fmt: skip


def _conversion(name: str, dtype: Any) -> Any:
    def method(self: Any) -> Any:
        return self.to(dtype)

    method.__name__ = name
    return method


def _refuse_more(kind: Any) -> Any:
    """Make methods raise that read no elements, because no operation would refuse them."""
    for name in (
        *("__len__", "data_ptr", "dim", "element_size", "is_contiguous", "item", "ndimension"),
        *("nelement", "numel", "numpy", "storage", "stride", "tolist"),
        *("untyped_storage", "__bool__", "__float__", "__int__", "backward", "__format__"),
        *("__getitem__", "__setitem__"),
    ):
        setattr(kind, name, _refused(name))
    for name, dtype in _CONVERSIONS.items():
        setattr(kind, name, _conversion(name, dtype))
    return kind


def _converted(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The device and dtype after `.to(...)`."""
    nothing: Any = CREATION["empty"]((0,), device=self.device, dtype=self.dtype)
    made = nothing.to(*args, **kwargs)
    return made.device, made.dtype


def _materialize(self: Tensor, shape: Any, device: Any, dtype: Any) -> None:
    """Give a tensor a shape, with uninitialized values."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    made = CREATION["empty"](sizes, device=device or self.device, dtype=dtype or self.dtype)
    self._array = made._array


def _forget_shape(self: Any) -> None:
    array = self._array
    if array.__class__ is np.ndarray:  # on other devices, the array just stays empty
        self._array = unset(array)


@_refuse_more
class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter of a lazy layer that does not know its shape yet."""

    shape = property(_no_shape)

    def __new__(
        cls,
        requires_grad: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        nothing = CREATION["empty"]((0,), device=device, dtype=dtype)
        self = super().__new__(cls, nothing, requires_grad=requires_grad)
        _forget_shape(self)
        return self

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter of a shape, with uninitialized values."""
        _materialize(self, shape, device, dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def detach(self) -> Tensor:
        return self

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Nothing yet, of another dtype or on another device."""
        device, dtype = _converted(self, *args, **kwargs)
        inexact = dtype.is_floating_point or dtype.is_complex
        return UninitializedParameter(self.requires_grad and inexact, device, dtype)

    def share_memory_(self) -> NoReturn:
        """Refused: there is no memory yet."""
        raise RuntimeError("a parameter without a shape has no memory to share")

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return "<UninitializedParameter>"


@_refuse_more
class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer of a lazy layer that does not know its shape yet."""

    shape = property(_no_shape)

    def __new__(
        cls,
        requires_grad: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        persistent: bool = True,
    ) -> Self:
        nothing = CREATION["empty"]((0,), device=device, dtype=dtype)
        self = super().__new__(cls, nothing, persistent=persistent)
        self.requires_grad = requires_grad
        _forget_shape(self)
        return self

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a buffer of a shape, with uninitialized values."""
        _materialize(self, shape, device, dtype)
        self.__class__ = Buffer  # type: ignore[assignment]

    def detach(self) -> Tensor:
        return self

    def share_memory_(self) -> NoReturn:
        """Refused: there is no memory yet."""
        raise RuntimeError("a buffer without a shape has no memory to share")

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Nothing yet, of another dtype or on another device."""
        device, dtype = _converted(self, *args, **kwargs)
        return UninitializedBuffer(False, device, dtype, self.persistent)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return "<UninitializedBuffer>"


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, (UninitializedParameter, UninitializedBuffer))


def check_initialized(param: Any) -> None:
    """Refuse a parameter that has no shape yet."""
    if is_lazy(param):
        raise ValueError(
            "The module passed can't have uninitialized parameters.: call a lazy layer once before "
            "its weights are normalized"
        )
