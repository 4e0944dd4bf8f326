"""A GPU as a `Machine`: what passes ask before they write a loop or a product.

Comes in: the sizes of a product, a dtype. Goes out: that libraries divide sums of products, and
what they cannot compute. `native/machine.py` answers questions about elements.
"""

from __future__ import annotations

from typing import Any

from ...core import numeric
from ..ir.expressions import NoLowering
from ..native.machine import NativeMachine


class GPUMachine(NativeMachine):
    """Leaves products whole: libraries divide them.

    `without` says why there is no library for attention; None if there is one.
    """

    def __init__(self, without: str | None = None) -> None:
        self._without = without

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        return 0

    def is_better_sideways(self, rows: int, inner: int, columns: int, size: int) -> bool:
        return False

    def parts_at_a_time(self) -> int:
        return 1

    def check_attention(self, dtype: Any, is_plain: bool) -> None:
        if not is_plain or not numeric.is_half(dtype):
            raise NoLowering("attention with a mask or dropout, or of this dtype, is in no library")
        if self._without is not None:
            raise NoLowering(self._without)
