"""Switches of `torch.backends.cuda`: `matmul.allow_tf32` counts, others keep what they get."""

from __future__ import annotations

from ..core.switches import switches


class MatmulSwitches:
    """How products of matrices are computed on a GPU."""

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """Whether factors of float32 may be rounded: see `set_float32_matmul_precision`."""
        return switches.precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        switches.precision = "high" if allowed else "highest"


matmul = MatmulSwitches()


def is_built() -> bool:
    """Whether tensors can live on a GPU here."""
    from ..cuda import is_available

    return is_available()
