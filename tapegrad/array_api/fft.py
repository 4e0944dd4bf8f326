"""The extension `fft` of the standard, based on `tapegrad.fft`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import fft as ours
from ..core import dtypes
from ..core.dtypes import DType
from ..core.tensor import Tensor
from .operands import as_tensor


def _along_one(name: str) -> Callable[..., Tensor]:
    def function(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        out: Tensor = getattr(ours, name)(as_tensor(x, name), n, axis, norm)
        return out

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The transform `{name}` along an axis, of `n` elements if that is given."
    return function


def _along_several(name: str) -> Callable[..., Tensor]:
    def function(
        x: Tensor,
        /,
        *,
        s: tuple[int, ...] | None = None,
        axes: tuple[int, ...] | None = None,
        norm: str = "backward",
    ) -> Tensor:
        out: Tensor = getattr(ours, name)(as_tensor(x, name), s, axes, norm)
        return out

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The transform `{name}` along axes, of sizes `s` if those are given."
    return function


fft = _along_one("fft")
ifft = _along_one("ifft")
rfft = _along_one("rfft")
irfft = _along_one("irfft")
hfft = _along_one("hfft")
ihfft = _along_one("ihfft")
fftn = _along_several("fftn")
ifftn = _along_several("ifftn")
rfftn = _along_several("rfftn")
irfftn = _along_several("irfftn")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of `n` samples with the spacing `d`."""
    out: Tensor = ours.fftfreq(n, d, dtype=_floating(dtype), device=device)
    return out


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """The frequencies of a transform of `n` real samples with the spacing `d`."""
    out: Tensor = ours.rfftfreq(n, d, dtype=_floating(dtype), device=device)
    return out


def _floating(dtype: DType | None) -> DType:
    dtype = dtypes.float32 if dtype is None else dtype
    if not dtype.is_floating_point:
        raise ValueError(f"frequencies need a floating dtype, got {dtype}")
    return dtype


def fftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The zero frequency moved to the centre."""
    return ours.fftshift(as_tensor(x, "fftshift"), axes)


def ifftshift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
    """The zero frequency moved back to the front."""
    return ours.ifftshift(as_tensor(x, "ifftshift"), axes)


__all__ = [
    *("fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft"),
    *("irfft", "irfftn", "rfft", "rfftfreq", "rfftn"),
]
