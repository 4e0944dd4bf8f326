"""A GPU as a `Machine`: what passes ask before they write a loop or a product.

Comes in: the sizes of a product, a dtype. Goes out: that libraries divide sums of products, and
what they do not compute. Elements are answered for by `native/machine.py`.
"""

from __future__ import annotations

from typing import Any

from ..ir.expressions import NoLowering
from ..native.machine import NativeMachine


class GPUMachine(NativeMachine):
    """Leaves products whole: libraries divide them."""

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        return 0

    def parts_at_a_time(self) -> int:
        return 1

    def check_attention(self, dtype: Any) -> None:
        raise NoLowering("attention in tiles has no kernel for a GPU")
