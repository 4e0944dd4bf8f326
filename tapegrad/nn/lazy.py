"""Lazy layers: they learn how many features or channels there are from their first input.

Until then their parameters have no shape. The first call, or a state dict, gives them one, and the
layer becomes an ordinary one: `LazyLinear` turns into `Linear`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from .uninitialized import UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike, Ints


class LazyModuleMixin:
    """Makes a module lazy: `class LazyThing(LazyModuleMixin, Thing)`.

    `initialize_parameters(*args)` of the class gives shapes to parameters that it has made as
    `UninitializedParameter`. It is called before the first `forward`; then the module becomes one
    of the class `cls_to_become`, if that is given.
    """

    cls_to_become: type[Module] | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self, _Lazy):
            self._initialize_hook = self.register_forward_pre_hook(  # type: ignore[attr-defined]
                LazyModuleMixin._infer_parameters, with_kwargs=True
            )

    def _infer_parameters(self, args: Any, kwargs: Any = None) -> None:
        """The hook before the first call."""
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(
                f"module {type(self).__name__} has not been fully initialized: its "
                "initialize_parameters has left parameters without a shape"
            )
        self._initialize_hook.remove()
        del self._initialize_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Set shapes and initial values of the parameters, from the arguments of a call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(
            is_lazy(x) for group in (self._parameters, self._buffers) for x in group.values()
        )


class _Lazy(LazyModuleMixin, Module):
    """Base of lazy layers; `becomes` is the class of the finished layer."""

    becomes: type[Module]

    def reset_parameters(self) -> None:
        """Set the initial values, once there are shapes."""
        if self.has_uninitialized_params():
            return
        # In the constructor the parameters are still empty.
        if all(p is None or p.numel() for p in self._parameters.values()):
            self.becomes.reset_parameters(self)  # type: ignore[attr-defined]

    def _make_lazy(self, names: tuple[str, ...], **options: Any) -> None:
        for name in names:
            self.register_parameter(name, UninitializedParameter(**options))

    def _materialize(self, **shapes: tuple[int, ...]) -> None:
        for name, shape in shapes.items():
            value: Any = getattr(self, name)
            if value is not None:
                value.materialize(shape)

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        self.__class__ = self.becomes  # type: ignore[assignment]
        return self.forward(input, *args, **kwargs)


class LazyLinear(_Lazy, Linear):
    """`Linear` that finds out `in_features`.

    >>> import tapegrad
    >>> layer = tapegrad.nn.LazyLinear(2)
    >>> layer(tapegrad.ones(3, 4)).shape
    Size([3, 2])
    >>> layer
    Linear(in_features=4, out_features=2, bias=True)
    """

    becomes = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(0, out_features, False)
        self._make_lazy(("weight", "bias") if bias else ("weight",), device=device, dtype=dtype)

    def initialize_parameters(self, input: Any) -> None:
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self._materialize(
                weight=(self.out_features, self.in_features), bias=(self.out_features,)
            )
            self.reset_parameters()
        self.in_features = self.in_features or input.shape[-1]


class _LazyFilters(_Lazy):
    """Base of lazy convolutions."""

    dims: int
    groups: int
    in_channels: int
    out_channels: int

    def _make_parameters(self, bias: bool, **options: Any) -> None:
        self._make_lazy(("weight", "bias") if bias else ("weight",), **options)
        if not bias:
            self.register_parameter("bias", None)

    def _weight_shape(self) -> tuple[int, ...]:
        return self.becomes._weight_shape(self)  # type: ignore[attr-defined,no-any-return]

    def initialize_parameters(self, input: Any) -> None:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"{type(self).__name__} expects an input of {self.dims + 2} dimensions (or one "
                f"less, without a batch), got shape {tuple(input.shape)}"
            )
        channels = input.shape[-self.dims - 1]
        if self.has_uninitialized_params():
            if channels % self.groups:
                raise ValueError(f"groups = {self.groups} must divide the {channels} channels")
            self.in_channels = channels
            self._materialize(weight=self._weight_shape(), bias=(self.out_channels,))
            self.reset_parameters()
        self.in_channels = self.in_channels or channels


class _LazyConv(_LazyFilters):
    def __init__(
        self,
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
            0,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )


class _LazyConvTranspose(_LazyFilters):
    def __init__(
        self,
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
        super().__init__(
            0,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,
            padding_mode,
            device,
            dtype,
        )


class LazyConv1d(_LazyConv, Conv1d):
    """`Conv1d` that finds out `in_channels`."""

    becomes = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """`Conv2d` that finds out `in_channels`."""

    becomes = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """`Conv3d` that finds out `in_channels`."""

    becomes = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """`ConvTranspose1d` that finds out `in_channels`."""

    becomes = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """`ConvTranspose2d` that finds out `in_channels`."""

    becomes = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """`ConvTranspose3d` that finds out `in_channels`."""

    becomes = ConvTranspose3d


class _LazyNorm(_Lazy):
    """Base of lazy batch and instance norms."""

    num_features: int

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: Any = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self._make_lazy((("weight", "bias") if bias else ("weight",)) if affine else (), **options)
        if track_running_stats:
            for name in ("running_mean", "running_var"):
                self.register_buffer(name, UninitializedBuffer(**options))

    def _channels(self, input: Any) -> int:
        return int(input.shape[1])

    def initialize_parameters(self, input: Any) -> None:
        if self.has_uninitialized_params():
            self.num_features = self._channels(input)
            shape = (self.num_features,)
            self._materialize(weight=shape, bias=shape, running_mean=shape, running_var=shape)
            self.reset_parameters()
        self.num_features = self.num_features or self._channels(input)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` that finds out `num_features`."""

    becomes = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` that finds out `num_features`."""

    becomes = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` that finds out `num_features`."""

    becomes = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    rank: int

    def _channels(self, input: Any) -> int:
        return int(input.shape[1 if input.ndim == self.rank else 0])


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """`InstanceNorm1d` that finds out `num_features`."""

    becomes = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """`InstanceNorm2d` that finds out `num_features`."""

    becomes = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """`InstanceNorm3d` that finds out `num_features`."""

    becomes = InstanceNorm3d
