"""Convolution layers."""

from __future__ import annotations

import math
import operator
from typing import Any

from . import functional as F
from . import init
from .linear import checked_size, new_parameter
from .module import Module
from .parameter import Parameter


def as_tuple(value: Any, n: int, name: str, least: int) -> tuple[int, ...]:
    """One integer for all dimensions, or one for each."""
    items = list(value) if isinstance(value, (tuple, list)) else [value] * n
    numbers = tuple(operator.index(v) for v in items)
    if len(numbers) != n or min(numbers) < least:
        raise ValueError(f"{name} needs {n} integers of at least {least}, got {value!r}")
    return numbers


class _Conv(Module):
    """What Conv1d and Conv2d share; `dims` is the number of dimensions of the window."""

    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_channels = checked_size(in_channels, "in_channels", self, 1)
        self.out_channels = checked_size(out_channels, "out_channels", self, 1)
        self.groups = checked_size(groups, "groups", self, 1)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups = {groups} must divide in_channels = {in_channels} and out_channels = "
                f"{out_channels}"
            )
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                "padding_mode must be 'zeros', 'reflect', 'replicate' or 'circular', got "
                f"{padding_mode!r}"
            )
        self.kernel_size = as_tuple(kernel_size, self.dims, "kernel_size", 1)
        self.stride = as_tuple(stride, self.dims, "stride", 1)
        self.dilation = as_tuple(dilation, self.dims, "dilation", 1)
        self.padding: str | tuple[int, ...]
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"padding must be 'same', 'valid' or sizes, got {padding!r}")
            if padding == "same" and max(self.stride) > 1:
                raise ValueError(f"padding='same' needs stride 1, got {self.stride}")
            self.padding = padding
        else:
            self.padding = as_tuple(padding, self.dims, "padding", 0)
        self.padding_mode = padding_mode
        options = {"device": device, "dtype": dtype}
        self.weight = new_parameter(
            out_channels, in_channels // groups, *self.kernel_size, **options
        )
        self.bias: Parameter | None
        self.register_parameter("bias", new_parameter(out_channels, **options) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(fan in), weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def _borders(self) -> list[int]:
        """Widths for `pad`: before and after the last dimension, then the one before it."""
        widths: list[int] = []
        for i in reversed(range(self.dims)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                widths += [total // 2, total - total // 2]
            else:
                width = 0 if isinstance(self.padding, str) else self.padding[i]
                widths += [width, width]
        return widths

    def forward(self, input: Any) -> Any:
        convolve = F.conv1d if self.dims == 1 else F.conv2d
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._borders(), mode=self.padding_mode)
            padding = 0
        return convolve(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        shown = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * self.dims:
            shown += f", padding={self.padding}"
        if self.dilation != (1,) * self.dims:
            shown += f", dilation={self.dilation}"
        if self.groups != 1:
            shown += f", groups={self.groups}"
        if self.bias is None:
            shown += ", bias=False"
        if self.padding_mode != "zeros":
            shown += f", padding_mode={self.padding_mode}"
        return shown


class Conv1d(_Conv):
    """Cross-correlation of sequences (batch, channels, length) with learned filters."""

    dims = 1


class Conv2d(_Conv):
    """Cross-correlation of images (batch, channels, height, width) with learned filters.

    >>> import tapegrad
    >>> layer = tapegrad.nn.Conv2d(1, 16, kernel_size=3, padding=1)
    >>> layer(tapegrad.ones(8, 1, 28, 28)).shape
    Size([8, 16, 28, 28])
    """

    dims = 2
