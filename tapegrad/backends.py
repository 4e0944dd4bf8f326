"""`tapegrad.backends`: switches that scripts set before they train.

PyTorch chooses among libraries with these. There is nothing to choose here, so they keep what they
are given and change nothing; `is_available` says honestly what is there.
"""

from __future__ import annotations

from types import SimpleNamespace

from .cuda import is_available as _has_gpu


class _Library(SimpleNamespace):
    """The switches of one library of PyTorch."""

    def __init__(self, available: bool = False, **switches: object) -> None:
        super().__init__(**switches)
        self._available = available

    def is_available(self) -> bool:
        """Whether the library does the work here."""
        return self._available


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
