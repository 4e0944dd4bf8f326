"""Size: the shape of a tensor.

A tuple of integers, as `Tensor.shape` returns it; made by `tensor.py` and `ops/`.
"""

from __future__ import annotations

from typing import Any, SupportsIndex, overload

from .naming import shown


class Size(tuple[int, ...]):
    """A shape: a tuple that can count its elements."""

    __slots__ = ()

    def numel(self) -> int:
        """The product of all sizes."""
        count = 1
        for n in self:
            count *= n
        return count

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other: Any) -> Size:
        return Size(super().__add__(tuple(other)))

    def __radd__(self, other: Any) -> Any:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> Size:
        return Size(super().__mul__(times))

    def __rmul__(self, times: SupportsIndex) -> Size:
        return Size(super().__mul__(times))

    def __repr__(self) -> str:
        return f"{shown.prefix}Size({list(self)})"
