"""Switches of `torch.backends.cuda`; only `matmul.allow_tf32` has an effect."""

from __future__ import annotations

from ..core.switches import switches


class MatmulSwitches:
    """Switches of matrix products on a GPU."""

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 factors may be rounded: see `set_float32_matmul_precision`."""
        return switches.precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        switches.precision = "high" if allowed else "highest"


matmul = MatmulSwitches()


def is_built() -> bool:
    """Whether there is a GPU that CuPy can use."""
    from ..cuda import is_available

    return is_available()
