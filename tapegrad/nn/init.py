"""Filling parameters with their first values, in place and without recording."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..state import no_grad
from ..tensor import wrap


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before an activation should be larger."""
    if nonlinearity in ("linear", "conv1d", "conv2d", "sigmoid"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(
        f"unknown nonlinearity {nonlinearity!r}: expected linear, conv1d, conv2d, sigmoid, tanh, "
        "relu, leaky_relu or selu"
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

    def below(x: float) -> float:
        """The normal distribution function, from -1 to 1."""
        return math.erf((x - mean) / std / math.sqrt(2.0))

    with no_grad():
        tensor.uniform_(below(a), below(b), generator=generator)
        tensor.copy_(tensor.erfinv() * (std * math.sqrt(2.0)) + mean)
        return tensor.clamp_(a, b)


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


def fans(tensor: Any) -> tuple[int, int]:
    """How many inputs each output of a weight reads, and how many outputs each input reaches."""
    if tensor.ndim < 2:
        raise ValueError(
            f"fan in and fan out need a weight of at least 2 dimensions, got {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Uniform in ±gain sqrt(6 / (fan in + fan out))."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Normal with standard deviation gain sqrt(2 / (fan in + fan out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Uniform in ±gain sqrt(3 / fan)."""
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
