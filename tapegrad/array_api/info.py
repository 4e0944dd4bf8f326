"""`__array_namespace_info__`: what the namespace supports, in the form of the standard."""

from __future__ import annotations

from typing import Any

from ..core import dtypes
from ..core.device import as_device
from ..core.dtypes import DType
from .types import DTYPES, isdtype


class NamespaceInfo:
    """Capabilities, devices and dtypes of `tapegrad.array_api`.

    >>> from tapegrad import array_api as xp
    >>> xp.__array_namespace_info__().default_dtypes()["real floating"]
    tapegrad.float32
    """

    def capabilities(self) -> dict[str, Any]:
        """The optional behaviour that is supported."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new tensors."""
        return as_device("cpu")

    def devices(self) -> tuple[Any, ...]:
        """The devices that tensors can be on."""
        return (as_device("cpu"),)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of new tensors, by kind."""
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The dtypes by name, or those of a kind."""
        if kind is None:
            return dict(DTYPES)
        return {name: d for name, d in DTYPES.items() if isdtype(d, kind)}


__all__ = ["NamespaceInfo"]
