"""Layers that put borders around sequences, images and volumes."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from ..core.tensor import Tensor


class _Pad(Module):
    """Base of these layers: `dims` dimensions, counted from the last, and the mode of `F.pad`."""

    dims: int
    mode: str

    def __init__(self, padding: int | tuple[int, ...] | list[int]) -> None:
        super().__init__()
        items = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2 * self.dims
        if len(items) != 2 * self.dims:
            raise ValueError(
                f"{type(self).__name__} needs one width or {2 * self.dims} of them, got {padding!r}"
            )
        self.padding = tuple(operator.index(n) for n in items)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"{type(self).__name__} expects an input of {self.dims + 2} dimensions (or one "
                f"less, without a batch), got shape {tuple(input.shape)}"
            )
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    """Borders of one number, around an input of any number of dimensions."""

    mode = "constant"
    value: float

    def __init__(self, padding: int | tuple[int, ...] | list[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Borders of one number around sequences."""

    dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Borders of one number around images: left, right, top, bottom."""

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Borders of one number around volumes."""

    dims = 3


class ZeroPad1d(ConstantPad1d):
    """Borders of zeros around sequences."""

    def __init__(self, padding: int | tuple[int, ...] | list[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Borders of zeros around images: left, right, top, bottom."""

    def __init__(self, padding: int | tuple[int, ...] | list[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Borders of zeros around volumes."""

    def __init__(self, padding: int | tuple[int, ...] | list[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Borders that mirror a sequence at its ends."""

    dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Borders that mirror an image at its edges."""

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Borders that mirror a volume at its faces."""

    dims = 3


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Borders that repeat the ends of a sequence."""

    dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Borders that repeat the edges of an image."""

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Borders that repeat the faces of a volume."""

    dims = 3


class CircularPad1d(_Pad):
    """Borders that continue a sequence from its other end."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Borders that continue an image from its opposite edge."""

    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Borders that continue a volume from its opposite face."""

    dims, mode = 3, "circular"
