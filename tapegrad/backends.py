"""`tapegrad.backends`: switches that scripts set before they train.

PyTorch chooses among libraries with these. There is nothing to choose here, so they keep what they
are given and change nothing; `is_available` says honestly what is there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .cuda import is_available as _has_gpu


class _Library(SimpleNamespace):
    """The switches of one library of PyTorch."""

    def __init__(self, available: bool = False, **switches: object) -> None:
        super().__init__(**switches)
        self._available = available

    def is_available(self) -> bool:
        """Whether the library does the work here."""
        return self._available


_PRECISIONS = ("highest", "high", "medium")
_settings: dict[str, Any] = {"precision": "highest", "deterministic": False}


def set_float32_matmul_precision(precision: str) -> None:
    """Keep what is asked for; products of float32 matrices are exact to float32 in any case."""
    if precision not in _PRECISIONS:
        raise RuntimeError(f"the precision must be one of {_PRECISIONS}, got {precision!r}")
    _settings["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What was asked for."""
    return str(_settings["precision"])


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keep what is asked for; on the CPU a run repeats bit for bit in any case."""
    _settings["deterministic"] = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """What was asked for."""
    return bool(_settings["deterministic"])


cudnn = _Library(enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
mps = _Library()
mkl = _Library()
mkldnn = _Library(enabled=False)
openmp = _Library()


class _Cuda(_Library):
    def is_built(self) -> bool:
        """Whether tensors can live on a GPU here."""
        return _has_gpu()


cuda = _Cuda(
    matmul=SimpleNamespace(
        allow_tf32=False,
        allow_fp16_reduced_precision_reduction=True,
        allow_bf16_reduced_precision_reduction=True,
    )
)
