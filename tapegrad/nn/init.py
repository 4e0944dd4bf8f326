"""Fills parameters with their initial values, in place and without recording."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from ..core.dtypes import float64
from ..core.modes import no_grad
from ..core.tensor import wrap
from ..ops.creation import CREATION

#: functions that roughly keep the scale of their input
_LINEAR = (
    *("linear", "sigmoid", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before an activation should be larger."""
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"the slope of leaky_relu must be a number, got {param!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(
        f"unknown nonlinearity {nonlinearity!r}: expected tanh, relu, leaky_relu, selu, "
        f"{', '.join(_LINEAR)}"
    )


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Uniform numbers in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Normal numbers."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Normal numbers, those outside [a, b] drawn again."""

    if std <= 0 or a >= b:
        raise ValueError(f"trunc_normal_ needs std > 0 and a < b, got {std}, {a} and {b}")
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"the mean {mean} is more than 2 std from [{a}, {b}]: few normal numbers lie there",
            stacklevel=2,
        )
    low, high = (math.erf((x - mean) / std / math.sqrt(2.0)) for x in (a, b))
    with no_grad():
        if high - low < _SMALL_SHARE:
            drawn = _tail(tensor.numel(), mean, std, a, b, generator).reshape(tensor.shape)
        else:
            # In float64, where uniform numbers almost never equal the ends, which map to infinity.
            drawn = CREATION["rand"](tensor.shape, generator=generator, dtype=float64)
            drawn = (drawn * (high - low) + low).erfinv() * (std * math.sqrt(2.0)) + mean
        return tensor.copy_(drawn.clamp(a, b))


#: share of the normal distribution below which its inverse is too coarse
_SMALL_SHARE = 1e-9


def _tail(count: int, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """Normal numbers far from their mean, by rejection from an exponential distribution."""
    peak = min(max(mean, a), b)
    out = np.empty(0)
    while out.size < count:
        x, chance = (
            CREATION["rand"](count, generator=generator, dtype=float64).numpy() for _ in "xy"
        )
        # Close to the peak the density falls like an exponential with this rate.
        rate = abs(peak - mean) / std**2
        step = -np.log1p(-x * -np.expm1(-rate * (b - a))) / rate
        away = step if peak == a else -step
        kept = chance < np.exp(-0.5 * (away / std) ** 2)
        out = np.concatenate([out, (peak + away)[kept]])
    return wrap(out[:count])


def constant_(tensor: Any, val: float) -> Any:
    """One value everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Any) -> Any:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_ needs a matrix, got shape {tuple(tensor.shape)}")
    with no_grad():
        return tensor.copy_(wrap(np.eye(*tensor.shape, dtype=np.float32)))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Weights of a convolution that pass channels through, as far as there are as many."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_ needs 3, 4 or 5 dimensions, got shape {tuple(tensor.shape)}")
    rows, columns, *sizes = tensor.shape
    if groups < 1 or rows % groups:
        raise ValueError(f"dirac_: groups = {groups} must divide the {rows} out channels")
    each = rows // groups
    weights = np.zeros(tuple(tensor.shape), np.float32)
    centre = tuple(n // 2 for n in sizes)
    for group in range(groups):
        for channel in range(min(each, columns)):
            weights[(group * each + channel, channel, *centre)] = 1.0
    with no_grad():
        return tensor.copy_(wrap(weights))


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Normal numbers, of which a share of each column is 0."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_ needs a matrix, got shape {tuple(tensor.shape)}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[CREATION["randperm"](rows, generator=generator)[:zeros], column] = 0.0
    return tensor


def fans(tensor: Any) -> tuple[int, int]:
    """How many inputs each output of a weight reads, and how many outputs each input reaches."""
    if tensor.ndim < 2:
        raise ValueError(
            f"fan in and fan out need a weight of at least 2 dimensions, got {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = fans


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    """The number that Kaiming's rules divide by."""
    wanted = str(mode).lower()
    if wanted not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return fans(tensor)[wanted == "fan_out"]


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Uniform in ±gain sqrt(6 / (fan in + fan out))."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Normal with standard deviation gain sqrt(2 / (fan in + fan out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def _is_empty(tensor: Any) -> bool:
    if 0 not in tensor.shape:
        return False
    warnings.warn("a tensor without elements has nothing to initialize", stacklevel=3)
    return True


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Uniform in ±gain sqrt(3 / fan)."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Normal with standard deviation gain / sqrt(fan)."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Orthonormal rows or columns, times gain; dimensions after the first count as columns."""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ needs at least 2 dimensions, got {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = tensor.new_empty(rows, columns).normal_(generator=generator).double().cpu().numpy()
    q, r = np.linalg.qr(drawn if rows >= columns else drawn.T)
    # The signs of r make the distribution uniform over all orthogonal matrices.
    q = q * np.sign(np.diag(r))
    q = q if rows >= columns else q.T
    with no_grad():
        return tensor.copy_(wrap(np.ascontiguousarray(q * gain)).reshape(tensor.shape))


def _older(function: Any) -> Any:
    """A function under its older name, without the underscore."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"nn.init.{call.__name__} is deprecated; use nn.init.{function.__name__}",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = function.__name__.rstrip("_")
    return call


uniform = _older(uniform_)
normal = _older(normal_)
constant = _older(constant_)
eye = _older(eye_)
dirac = _older(dirac_)
xavier_uniform = _older(xavier_uniform_)
xavier_normal = _older(xavier_normal_)
kaiming_uniform = _older(kaiming_uniform_)
kaiming_normal = _older(kaiming_normal_)
orthogonal = _older(orthogonal_)
sparse = _older(sparse_)
