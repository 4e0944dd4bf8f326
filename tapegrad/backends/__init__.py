"""`tapegrad.backends`: switches that scripts set before they train.

PyTorch chooses among libraries with these. There is nothing to choose here, so they keep what they
are given and change nothing; `is_available` says honestly what is there. Each library is a module,
as in PyTorch, so that `import tapegrad.backends.cudnn as cudnn` works.
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
    """How exact products of float32 matrices are on a GPU; on the CPU they are always exact.

    "high" and "medium" let it round the factors to TensorFloat32, which has 10 bits.
    """
    if precision not in _PRECISIONS:
        raise RuntimeError(f"the precision must be one of {_PRECISIONS}, got {precision!r}")
    switches.precision = precision


def get_float32_matmul_precision() -> str:
    """What was asked for."""
    return switches.precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keep what is asked for; on the CPU a run repeats bit for bit in any case."""
    switches.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """What was asked for."""
    return switches.deterministic
