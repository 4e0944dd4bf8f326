"""`tapegrad.backends`: switches that scripts set before they train.

The precision of float32 products and deterministic algorithms take effect on a GPU. Most other
switches choose among libraries in PyTorch; here they only store their value. Each library is a
module, as in PyTorch, so that `import tapegrad.backends.cudnn as cudnn` works.
"""

from __future__ import annotations

from ..core.switches import switches
from . import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = [
    "are_deterministic_algorithms_enabled",
    "cuda",
    "cudnn",
    "get_float32_matmul_precision",
    "mkl",
    "mkldnn",
    "mps",
    "openmp",
    "set_float32_matmul_precision",
    "use_deterministic_algorithms",
]

_PRECISIONS = ("highest", "high", "medium")


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 matrix products on a GPU; the CPU always uses float32.

    "high" and "medium" let the GPU round the factors to TensorFloat32, with 10 bits of mantissa.
    """
    if precision not in _PRECISIONS:
        raise RuntimeError(f"the precision must be one of {_PRECISIONS}, got {precision!r}")
    switches.precision = precision


def get_float32_matmul_precision() -> str:
    """The precision that was set."""
    return switches.precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Set whether runs on a GPU must repeat bit for bit; on the CPU they always do."""
    switches.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """The setting of `use_deterministic_algorithms`."""
    return switches.deterministic
