"""The machine of native code: what it can compute on any processor, as passes ask for it.

Comes in: a dtype, or a primitive with operands. Goes out: its cost, or `NoLowering` if native code
cannot compute it. The machines of targets inherit from this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.primitive import Primitive
from ..ir.target import Cost
from . import scalar
from .code import Code, Register, type_of


class NativeMachine:
    """Answers by generating the instructions in question."""

    def check_dtype(self, dtype: Any) -> None:
        type_of(dtype)

    def examine(
        self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
    ) -> Cost:
        return scalar.examine(primitive, params, operands, dtype)

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        scalar.start_of(primitive, dtype)
        scalar.combine(Code(), primitive, Register("%a", dtype), Register("%x", dtype), "")
