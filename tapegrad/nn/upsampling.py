"""Layers that change the size of images, or turn channels into pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    from ..ops.annotations import Ints


class Upsample(Module):
    """`F.interpolate` with fixed options.

    >>> import tapegrad
    >>> tapegrad.nn.Upsample(scale_factor=2)(tapegrad.ones(1, 3, 4, 4)).shape
    Size([1, 3, 8, 8])
    """

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | tuple[float, ...] | list[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor = tuple(float(s) for s in scale_factor)
        elif scale_factor is not None:
            self.scale_factor = float(scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        given = f"size={self.size}"
        if self.scale_factor is not None:
            given = f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode "nearest"."""

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | tuple[float, ...] | list[float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode "bilinear" and aligned corners."""

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | tuple[float, ...] | list[float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Module):
    """Groups of channels become squares of pixels."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Squares of pixels become groups of channels."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of groups: the first of each group, then the second of each."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
