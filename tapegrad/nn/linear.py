"""Linear layers, and layers that change shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from ..ops.creation import CREATION
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.tensor import Tensor
    from ..ops.annotations import DeviceLike, DTypeLike

P = ParamSpec("P")

_empty = CREATION["empty"]


def new_parameter(*shape: int, device: Any = None, dtype: Any = None) -> Parameter:
    """A parameter whose values are not set yet."""
    return Parameter(_empty(shape, device=device, dtype=dtype))


def checked_size(value: Any, name: str, owner: Module, least: int = 0) -> int:
    """Check a size given to a layer; the error names it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = type(owner).__name__
        raise ValueError(f"{kind}: {name} must be an integer of at least {least}, got {value!r}")
    return value


class Identity(Module):
    """Returns its input; takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Joins dimensions, by default all but the first."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one dimension into several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)
        for size in self.unflattened_size:
            if not isinstance(size, int):
                raise TypeError(f"Unflatten: sizes are integers, got {size!r}")

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


def _accept_sizes(init: Callable[P, None]) -> Callable[P, None]:
    """Accept GT's names for the sizes of `Linear`; `help` shows PyTorch's names."""

    @wraps(init)
    def __init__(*args: P.args, **kwargs: P.kwargs) -> None:
        for theirs, ours in (("input_size", "in_features"), ("output_size", "out_features")):
            if theirs in kwargs:
                if ours in kwargs:
                    raise TypeError(f"got both {ours} and {theirs}, which are the same thing")
                kwargs[ours] = kwargs.pop(theirs)
        init(*args, **kwargs)

    return __init__


class Linear(Module):
    """y = x @ weight.T + bias.

    Inputs (..., in_features) give (..., out_features); `weight` is (out_features, in_features).

    >>> import tapegrad
    >>> layer = tapegrad.nn.Linear(4, 2)
    >>> layer(tapegrad.ones(3, 4)).shape
    Size([3, 2])
    """

    @_accept_sizes
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.in_features = checked_size(in_features, "in_features", self)
        self.out_features = checked_size(out_features, "out_features", self)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = new_parameter(self.out_features, self.in_features, **options)
        self.bias: Parameter | None
        self.register_parameter(
            "bias", new_parameter(self.out_features, **options) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(in_features), weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """y[k] = x1 @ weight[k] @ x2 + bias[k]."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.in1_features = checked_size(in1_features, "in1_features", self, 1)
        self.in2_features = checked_size(in2_features, "in2_features", self, 1)
        self.out_features = checked_size(out_features, "out_features", self, 1)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = new_parameter(out_features, in1_features, in2_features, **options)
        self.bias: Parameter | None
        self.register_parameter("bias", new_parameter(out_features, **options) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(in1_features), weight and bias."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
