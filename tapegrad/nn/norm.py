"""Normalization layers."""

from __future__ import annotations

import operator
import warnings
from typing import TYPE_CHECKING, Any

from ..core.modes import STATE, TAPE
from ..ops.creation import CREATION
from . import functional as F
from . import init
from .linear import new_parameter
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    from ..ops.annotations import DeviceLike, DTypeLike, Ints


class _Affine(Module):
    """A layer that ends in x * weight + bias, where each of the two may be missing."""

    weight: Parameter | None
    bias: Parameter | None

    def _register_affine(
        self, shape: tuple[int, ...], weight: bool, bias: bool, **options: Any
    ) -> None:
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            self.register_parameter(name, new_parameter(*shape, **options) if wanted else None)

    def reset_parameters(self) -> None:
        """Weights of 1, biases of 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _NormBase(_Affine):
    """Base of batch and instance norm: weights and running statistics for each channel."""

    running_mean: Any
    running_var: Any
    num_batches_tracked: Any
    _version = 2  # the first had no num_batches_tracked

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self._register_affine((num_features,), affine, bias, **options)
        tracked = track_running_stats
        zeros, ones = CREATION["zeros"], CREATION["ones"]
        self.register_buffer("running_mean", zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **options) if tracked else None)
        count = CREATION["tensor"](0, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running statistics."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked.zero_()

    def _upgrade_state(self, state_dict: Any, prefix: str, version: int | None) -> None:
        if (version is None or version < 2) and self.track_running_stats:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Weights of 1, biases of 0, no statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Base of the batch norms; `ranks` are the numbers of dimensions they take."""

    ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def _check_rank(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            expected = " or ".join(map(str, self.ranks))
            raise ValueError(
                f"{type(self).__name__} expects an input of {expected} dimensions, got shape "
                f"{tuple(input.shape)}"
            )

    def _factor(self) -> Any:
        """The weight of this batch in the running statistics."""
        if self.momentum is not None:
            return self.momentum
        if not self._tracks():
            return 0.0
        # Without a momentum the statistics are the mean over all batches. On a tape the count stays
        # a tensor, because its value differs in later runs.
        count = self.num_batches_tracked
        return 1.0 / ((count.double() if STATE.mode & TAPE else float(count)) + 1.0)

    def _tracks(self) -> bool:
        """Whether this call changes the running statistics; `track_running_stats` may be set."""
        return self.training and self.track_running_stats and self.num_batches_tracked is not None

    def forward(self, input: Tensor) -> Tensor:
        self._check_rank(input)
        known = not self.training or self.track_running_stats
        out = F.batch_norm(
            input,
            self.running_mean if known else None,
            self.running_var if known else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._factor(),
            self.eps,
        )
        if self._tracks():
            self.num_batches_tracked.add_(1)
        return out


class BatchNorm1d(_BatchNorm):
    """Batch norm of (batch, channels) or (batch, channels, length)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (batch, channels, height, width).

    y = (x - mean) / sqrt(var + eps) * weight + bias, with statistics of each channel: those of the
    batch in training, else the running ones.

    >>> import tapegrad
    >>> layer = tapegrad.nn.BatchNorm2d(3)
    >>> layer(tapegrad.ones(2, 3, 4, 4)).shape
    Size([2, 3, 4, 4])
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (batch, channels, depth, height, width)."""

    ranks = (5,)


class _InstanceNorm(_NormBase):
    """Base of the instance norms; `rank` counts the batch dimension."""

    rank: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def _get_no_batch_dim(self) -> int:
        """How many dimensions an input without a batch has."""
        return self.rank - 1

    def _check_channels(self, input: Tensor) -> None:
        dim = input.ndim - self._get_no_batch_dim()
        found = input.shape[dim]
        if found == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"dimension {dim} must have num_features = {self.num_features} elements, got "
                f"{found}"
            )
        warnings.warn(
            f"dimension {dim} does not have num_features elements; that changes nothing, because "
            "without affine=True num_features is not used",
            stacklevel=3,
        )

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.rank - 1, self.rank):
            raise ValueError(
                f"{type(self).__name__} expects an input of {self.rank} dimensions (or one less, "
                f"without a batch), got shape {tuple(input.shape)}"
            )
        self._check_channels(input)
        batched = input if input.ndim == self.rank else input.unsqueeze(0)
        out = F.instance_norm(
            batched,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out if input.ndim == self.rank else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of (batch, channels, length)."""

    rank = 3


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of (batch, channels, height, width)."""

    rank = 4


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of (batch, channels, depth, height, width)."""

    rank = 5


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    sizes = normalized_shape if hasattr(normalized_shape, "__iter__") else (normalized_shape,)
    return tuple(operator.index(n) for n in sizes)


class LayerNorm(_Affine):
    """Normalizes the last dimensions of each sample.

    y = (x - mean) / sqrt(var + eps) * weight + bias. `normalized_shape` is the shape of these
    dimensions.

    >>> import tapegrad
    >>> layer = tapegrad.nn.LayerNorm(2)
    >>> layer(tapegrad.tensor([[1.0, 3.0], [10.0, 30.0]])).detach()
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    def __init__(
        self,
        normalized_shape: Ints,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register_affine(
            self.normalized_shape, elementwise_affine, bias, device=device, dtype=dtype
        )
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """Divides the last dimensions of each sample by their root mean square."""

    def __init__(
        self,
        normalized_shape: Ints,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register_affine(
            self.normalized_shape, elementwise_affine, False, device=device, dtype=dtype
        )
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(_Affine):
    """Normalizes groups of channels of each sample."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_groups = {num_groups} must divide num_channels = {num_channels}")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._register_affine((num_channels,), affine, bias, device=device, dtype=dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class _AcrossChannels(Module):
    """Base of the norms over neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_AcrossChannels):
    """x / (k + alpha * mean of x * x over neighbouring channels) ** beta."""


class CrossMapLRN2d(_AcrossChannels):
    """`LocalResponseNorm` of images, under an older name of PyTorch's."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
