"""Pooling layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.tensor import Tensor
    from ..ops.annotations import Ints


class _MaxPoolNd(Module):
    """Base of the max pools."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _options(self) -> tuple[Any, ...]:
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of a sequence."""

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = F.max_pool1d(input, *self._options())
        return out


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of an image."""

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = F.max_pool2d(input, *self._options())
        return out


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of a volume."""

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = F.max_pool3d(input, *self._options())
        return out


class _MaxUnpoolNd(Module):
    """Base of the inverses of max pools."""

    dims: int

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size = _each(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else _each(stride, self.dims)
        self.padding = _each(padding, self.dims)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self.dims - 1]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _each(value: Any, dims: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * dims


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool1d(..., return_indices=True)` back, with zeros between."""

    dims = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool2d(..., return_indices=True)` back, with zeros between."""

    dims = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool3d(..., return_indices=True)` back, with zeros between."""

    dims = 3


class _AvgPoolNd(Module):
    """Base of the average pools."""

    kernel_size: Ints
    stride: Ints
    padding: Ints

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of a sequence."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _each(kernel_size, 1)
        self.stride = self.kernel_size if stride is None else _each(stride, 1)
        self.padding = _each(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolOfImages(_AvgPoolNd):
    """Base of the average pools over two and three dimensions."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _options(self) -> tuple[Any, ...]:
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolOfImages):
    """The mean of each window of an image."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(input, *self._options())


class AvgPool3d(_AvgPoolOfImages):
    """The mean of each window of a volume."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(input, *self._options())


class _LPPoolNd(Module):
    """Base of the pools by p-norms."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def _options(self) -> tuple[Any, ...]:
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of a sequence."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, *self._options())


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of an image."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, *self._options())


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of a volume."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, *self._options())


class _AdaptiveAvgPoolNd(Module):
    """Base of the adaptive averages."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over windows such that the output has the given length."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over a grid of windows such that the output has the given size."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over windows of volumes such that the output has the given size."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(Module):
    """Base of the adaptive maxima."""

    def __init__(
        self, output_size: int | Sequence[int | None], return_indices: bool = False
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima over windows such that the output has the given length."""

    def forward(self, input: Tensor) -> Tensor:
        pool: Any = F.adaptive_max_pool1d
        out: Tensor = pool(input, self.output_size, self.return_indices)
        return out


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima over a grid of windows such that the output has the given size."""

    def forward(self, input: Tensor) -> Tensor:
        pool: Any = F.adaptive_max_pool2d
        out: Tensor = pool(input, self.output_size, self.return_indices)
        return out


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima over windows of volumes such that the output has the given size."""

    def forward(self, input: Tensor) -> Tensor:
        pool: Any = F.adaptive_max_pool3d
        out: Tensor = pool(input, self.output_size, self.return_indices)
        return out


class _FractionalMaxPoolNd(Module):
    """Base of the fractional pools."""

    dims: int

    def __init__(
        self,
        kernel_size: Ints,
        output_size: Ints | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{name} needs either output_size or output_ratio, and not both")
        self.kernel_size = _each(kernel_size, self.dims)
        self.output_size = None if output_size is None else _each(output_size, self.dims)
        self.output_ratio = None if output_ratio is None else _each(output_ratio, self.dims)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"{name}: output_ratio must lie between 0 and 1, got {output_ratio}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Tensor:
        pool: Any = F.fractional_max_pool2d if self.dims == 2 else F.fractional_max_pool3d
        out: Tensor = pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )
        return out


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima of windows that begin at random places, drawn anew in each call."""

    dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima of windows of volumes that begin at random places, drawn anew in each call."""

    dims = 3


class _Windows(Module):
    """Base of Unfold and Fold."""

    def __init__(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Unfold(_Windows):
    """Every window of an image as a column."""

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """Columns summed into images: the transpose of `Unfold`."""

    def __init__(
        self,
        output_size: Ints,
        kernel_size: Ints,
        dilation: Ints = 1,
        padding: Ints = 0,
        stride: Ints = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
