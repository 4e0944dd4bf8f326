"""Parameters and buffers of lazy layers: a dtype and a device, and no shape yet.

`materialize` gives them a shape; they stay the same objects then. Loading a state dict does it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from ..core.tensor import Tensor
from ..ops.creation import CREATION
from .parameter import Buffer, Parameter

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike


class UninitializedTensorMixin:
    """What parameters and buffers without a shape share."""


def _no_shape(self: Tensor) -> NoReturn:
    raise RuntimeError(
        "this parameter or buffer of a lazy layer has no shape yet: can't access the shape of an "
        "uninitialized parameter or buffer; call the layer once, or load a state dict into it"
    )


def _materialize(self: Tensor, shape: Any, device: Any, dtype: Any) -> None:
    """Unset values of a shape, in place of nothing."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    made = CREATION["empty"](sizes, device=device or self.device, dtype=dtype or self.dtype)
    self._array = made._array


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
        return super().__new__(cls, nothing, requires_grad=requires_grad)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter of a shape, with unset values."""
        _materialize(self, shape, device, dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def detach(self) -> Tensor:
        return self

    def share_memory_(self) -> NoReturn:
        """Refused: there is no memory yet."""
        raise RuntimeError("can't share memory on an uninitialized parameter or buffer")

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return "<UninitializedParameter>"


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
        self.requires_grad_(requires_grad)
        return self

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a buffer of a shape, with unset values."""
        _materialize(self, shape, device, dtype)
        self.__class__ = Buffer  # type: ignore[assignment]

    def detach(self) -> Tensor:
        return self

    def share_memory_(self) -> NoReturn:
        """Refused: there is no memory yet."""
        raise RuntimeError("can't share memory on an uninitialized parameter or buffer")

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Nothing yet, of another dtype or on another device."""
        converted: Any = CREATION["empty"]((0,), device=self.device, dtype=self.dtype)
        converted = converted.to(*args, **kwargs)
        return UninitializedBuffer(
            device=converted.device, dtype=converted.dtype, persistent=self.persistent
        )

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
