"""The CPU as a `Machine`: what passes ask before they write a loop or a product.

Comes in: the sizes of a product. Goes out: how threads share its sums. `native/machine.py` answers
questions about elements. Made by `budget.py`, called by the passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.expressions import NoLowering
from ..native.machine import NativeMachine
from . import pool, products, tuning


class CPUMachine(NativeMachine):
    """Divides sums of products among the threads of the pool."""

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        return products.steps_of_part(rows, inner, columns, along, pool.get_num_threads())

    def is_better_sideways(self, rows: int, inner: int, columns: int, size: int) -> bool:
        return products.is_better_sideways(rows, inner, columns, size)

    def parts_at_a_time(self) -> int:
        return tuning.MAX_SUM_PARTS

    def check_attention(self, dtype: Any, is_plain: bool) -> None:
        if dtype not in (np.float32, np.float64):
            raise NoLowering(f"attention of {dtype}")
