"""`tapegrad.fft`: Fourier transforms, with PyTorch's names.

Loaded at first use; SciPy is loaded when a transform runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .core.outputs import created_into
from .ops import late, public_functions
from .ops.creation import finished, numpy_dtype

if TYPE_CHECKING:
    from .core.tensor import Tensor
    from .ops.annotations import DeviceLike, DTypeLike

late.load_all("fourier.")
_FUNCTIONS = public_functions("fft")
globals().update(_FUNCTIONS)

__all__ = sorted((*_FUNCTIONS, "fftfreq", "rfftfreq"))  # the names are those of the table


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the elements of `fft` of n values that lie `d` apart.

    >>> import tapegrad
    >>> tapegrad.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    if out is not None:
        return created_into(out, fftfreq, n, d, dtype=dtype, requires_grad=requires_grad)
    steps = np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    return _frequencies(steps, n, d, dtype, device, requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the elements of `rfft` of n values that lie `d` apart.

    >>> import tapegrad
    >>> tapegrad.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    if out is not None:
        return created_into(out, rfftfreq, n, d, dtype=dtype, requires_grad=requires_grad)
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, device, requires_grad)


def _frequencies(steps: Any, n: int, d: float, dtype: Any, device: Any, requires_grad: bool) -> Any:
    array = (steps * (1.0 / (n * d))).astype(numpy_dtype(dtype))
    return finished(array, None, device, requires_grad)


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    raise missing(__name__, name, __all__)
