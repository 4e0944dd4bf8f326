"""Windows for short-time transforms, by the formulas of PyTorch: `hann_window` and others.

In comes a length. Out comes a tensor of that many weights. With `periodic` the last element of a
longer symmetric window is left out, so that it repeats. Imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtypes
from ..creation import finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.tensor import Tensor
    from ..annotations import DeviceLike, DTypeLike


def _made(
    name: str,
    length: int,
    periodic: bool,
    formula: Callable[[Any, int], Any],
    dtype: DTypeLike | None,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Any:
    """A window from a formula of positions and the last position."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if not kind.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {kind}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got {length}")
    if length < 2:
        array = np.ones(length)
    else:
        size = length + 1 if periodic else length
        array = formula(np.arange(size, dtype=np.float64), size - 1)[:length]
    return finished(array.astype(kind.numpy), None, device, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle: 1 - |2 i / (n - 1) - 1|.

    >>> import tapegrad
    >>> tapegrad.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """

    def formula(i: Any, last: int) -> Any:
        return 1 - np.abs(2 * i / last - 1)

    return _made("bartlett_window", window_length, periodic, formula, dtype, device, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2 pi i / (n - 1)) + 0.08 cos(4 pi i / (n - 1)).

    >>> import tapegrad
    >>> tapegrad.blackman_window(4).abs()
    tensor([0.0000, 0.3400, 1.0000, 0.3400])
    """

    def formula(i: Any, last: int) -> Any:
        angle = 2 * np.pi * i / last
        return 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)

    return _made("blackman_window", window_length, periodic, formula, dtype, device, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(2 pi i / (n - 1)).

    >>> import tapegrad
    >>> tapegrad.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """

    def formula(i: Any, last: int) -> Any:
        return alpha - beta * np.cos(2 * np.pi * i / last)

    return _made("hamming_window", window_length, periodic, formula, dtype, device, requires_grad)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(2 pi i / (n - 1)).

    >>> import tapegrad
    >>> tapegrad.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """

    def formula(i: Any, last: int) -> Any:
        return 0.5 - 0.5 * np.cos(2 * np.pi * i / last)

    return _made("hann_window", window_length, periodic, formula, dtype, device, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - (2 i / (n - 1) - 1)^2)) / I0(beta).

    >>> import tapegrad
    >>> tapegrad.kaiser_window(4, beta=2.0)
    tensor([0.4387, 0.8519, 1.0000, 0.8519])
    """

    def formula(i: Any, last: int) -> Any:
        inside = 1 - (2 * i / last - 1) ** 2
        return np.i0(beta * np.sqrt(np.maximum(inside, 0))) / np.i0(beta)

    return _made("kaiser_window", window_length, periodic, formula, dtype, device, requires_grad)
