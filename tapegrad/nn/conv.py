"""Convolution layers and their transposes, over one, two and three dimensions."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from . import functional as F
from . import init
from .linear import checked_size, new_parameter
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.tensor import Tensor
    from ..ops.annotations import DeviceLike, DTypeLike, Ints


def as_tuple(value: Any, n: int, name: str, least: int) -> tuple[int, ...]:
    """One integer for all dimensions, or one for each; a list of one stays as it is."""
    items = list(value) if isinstance(value, (tuple, list)) else [value] * n
    try:
        numbers = tuple(operator.index(v) for v in items)
    except TypeError:
        raise TypeError(f"{name} must be an integer or {n} of them, got {value!r}") from None
    enough = len(numbers) == n or (len(numbers) == 1 and name != "kernel_size")
    if not enough or min(numbers) < least:
        raise ValueError(f"{name} needs {n} integers of at least {least}, got {value!r}")
    return numbers


class _ConvNd(Module):
    """Base of all of them; `dims` is the number of dimensions of the window."""

    dims: int
    transposed = False
    #: the least number of input channels; 0 for lazy layers, which learn it later

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints | str,
        output_padding: Ints,
        dilation: Ints,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        super().__init__()
        self.in_channels = checked_size(in_channels, "in_channels", self)
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
        self.output_padding = as_tuple(output_padding, self.dims, "output_padding", 0)
        self.padding_mode = padding_mode
        self.weight: Parameter
        self.bias: Parameter | None
        self._make_parameters(bias, device=device, dtype=dtype)

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _make_parameters(self, bias: bool, **options: Any) -> None:
        self.weight = new_parameter(*self._weight_shape(), **options)
        made = new_parameter(self.out_channels, **options) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(fan in), weight and bias."""
        if self.weight.numel():
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = init.fans(self.weight)[0]
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        shown = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * self.dims:
            shown += f", padding={self.padding}"
        if self.dilation != (1,) * self.dims:
            shown += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.dims:
            shown += f", output_padding={self.output_padding}"
        if self.groups != 1:
            shown += f", groups={self.groups}"
        if self.bias is None:
            shown += ", bias=False"
        if self.padding_mode != "zeros":
            shown += f", padding_mode={self.padding_mode}"
        return shown


class _Conv(_ConvNd):
    """Base of Conv1d, Conv2d and Conv3d."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            0,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

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

    def forward(self, input: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.dims - 1]
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._borders(), mode=self.padding_mode)
            padding = 0
        return convolve(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """Cross-correlation of sequences (batch, channels, length) with learned filters."""

    dims = 1


class Conv2d(_Conv):
    """Cross-correlation of images (batch, channels, height, width) with learned filters.

    `weight` is (out_channels, in_channels / groups, height, width) of the kernel. Each dimension of
    the output has floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1 elements.

    >>> import tapegrad
    >>> layer = tapegrad.nn.Conv2d(1, 16, kernel_size=3, padding=1)
    >>> layer(tapegrad.ones(8, 1, 28, 28)).shape
    Size([8, 16, 28, 28])
    """

    dims = 2


class Conv3d(_Conv):
    """Cross-correlation of volumes (batch, channels, depth, height, width) with learned filters."""

    dims = 3


class _ConvTransposeNd(_ConvNd):
    """Base of the transposed convolutions."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ValueError(f"{name} takes padding_mode 'zeros' only, got {padding_mode!r}")
        if isinstance(padding, str):
            raise ValueError(f"{name} needs padding as sizes, got {padding!r}")
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _more(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """The output padding that gives the requested size."""
        wanted = tuple(operator.index(n) for n in output_size)
        if len(wanted) == input.ndim:
            wanted = wanted[-self.dims :]
        if len(wanted) != self.dims:
            raise ValueError(
                f"{type(self).__name__}: output_size needs {self.dims} or {input.ndim} sizes, "
                f"got {tuple(output_size)}"
            )
        given = tuple(input.shape[-self.dims :])
        assert not isinstance(self.padding, str)
        least = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                given, self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        )
        more = tuple(n - m for n, m in zip(wanted, least, strict=True))
        if any(not 0 <= n < s for n, s in zip(more, self.stride, strict=True)):
            most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
            raise ValueError(
                f"{type(self).__name__}: from an input of size {given} the output may have sizes "
                f"from {least} to {most}, not {wanted}"
            )
        return more

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        convolve: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.dims - 1]
        more = self.output_padding if output_size is None else self._more(input, output_size)
        out: Tensor = convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            more,
            self.groups,
            self.dilation,
        )
        return out


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of `Conv1d`: it lengthens sequences where `Conv1d` shortens them."""

    dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of `Conv2d`, with learned filters.

    >>> import tapegrad
    >>> layer = tapegrad.nn.ConvTranspose2d(16, 1, kernel_size=2, stride=2)
    >>> layer(tapegrad.ones(8, 16, 14, 14)).shape
    Size([8, 1, 28, 28])
    """

    dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of `Conv3d`."""

    dims = 3
