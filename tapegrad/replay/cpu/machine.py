"""The CPU as a `Machine`: what passes ask before they write a loop.

Comes in: a dtype, or a primitive with operands. Goes out: whether native code can compute it, and
its cost; `NoLowering` if it cannot. Made by `executable.py`, called by the passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.primitive import Primitive
from ..ir.target import Cost
from . import pool, products, scalar, tuning
from .llvm import Code, Register, type_of


class CPUMachine:
    """Answers by writing the instructions in question."""

    def check_dtype(self, dtype: Any) -> None:
        type_of(dtype)

    def examine(
        self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
    ) -> Cost:
        return scalar.examine(primitive, params, operands, dtype)

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        return products.steps_of_part(rows, inner, columns, along, pool.get_num_threads())

    def parts_at_a_time(self) -> int:
        return tuning.MAX_SUM_PARTS

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        scalar.start_of(primitive, dtype)
        scalar.combine(Code(), primitive, Register("%a", dtype), Register("%x", dtype), "")
