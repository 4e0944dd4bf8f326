"""Parameter: a tensor that a Module lists among its parameters when it becomes an attribute."""

from __future__ import annotations

from typing import Any, Self

from ..core.device import MetaArray
from ..core.overriding import disabled_torch_function
from ..core.tensor import Tensor, own


class Parameter(Tensor):
    """A leaf that is trained: it requires gradients unless told otherwise.

    >>> import tapegrad
    >>> tapegrad.nn.Parameter(tapegrad.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Self:
        if isinstance(data, Tensor) and data._array.__class__ is MetaArray:
            empty: Self = _without_values(cls, data, requires_grad)
            return empty
        given = () if data is None else data
        return super().__new__(cls, given, requires_grad=requires_grad)


def _without_values(kind: Any, data: Tensor, requires_grad: bool) -> Any:
    from ..core.meta import meta_tensor

    parameter = meta_tensor(data._array.shape, data._array.dtype, kind)
    parameter._requires = requires_grad
    return parameter


class Buffer(Tensor):
    """A tensor that a Module lists among its buffers when it becomes an attribute."""

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Self:
        if isinstance(data, Tensor):
            own(data)
        self = super().__new__(cls, () if data is None else data)
        self.persistent = persistent
        return self


def __getattr__(name: str) -> Any:
    if name in (
        *("UninitializedParameter", "UninitializedBuffer", "UninitializedTensorMixin"),
        "is_lazy",
    ):
        from . import uninitialized

        return getattr(uninitialized, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
