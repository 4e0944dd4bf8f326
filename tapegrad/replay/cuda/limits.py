"""Limits: the peak rates of a GPU, in bytes and operations per second.

Comes in: a GPU's attributes from the driver. Goes out: a `Limits`, with which `explain()` compares
the time of each step. Rates of products are those of NVIDIA's tensor cores without sparsity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import dtypes
from ...core.switches import switches
from ..ir.program import Attention, Instruction, Product

#: operations of one multiprocessor per cycle, by compute capability and kind of factors
_OPERATIONS = {
    (8, 0): {"half": 2048, "tf32": 1024, "float32": 128, "float64": 128},
    (9, 0): {"half": 4096, "tf32": 2048, "float32": 256, "float64": 256},
}


class Limits(NamedTuple):
    """The peak rates of a GPU."""

    bytes_per_second: float
    #: cycles per second, summed over all multiprocessors
    cycles_per_second: float
    capability: tuple[int, int]

    def operations_per_second(self, instruction: Instruction) -> float | None:
        """Multiplications and additions of products per second; None if unknown."""
        rates = _OPERATIONS.get(self.capability)
        if rates is None or not isinstance(instruction, (Product, Attention)):
            return None
        factor = instruction.x if isinstance(instruction, Product) else instruction.operands[0]
        return self.cycles_per_second * rates[_kind(factor.value.dtype)]


def _kind(dtype: Any) -> str:
    if dtype in (np.dtype(np.float16), dtypes.bfloat16.numpy):
        return "half"
    if dtype == np.dtype(np.float64):
        return "float64"
    return "float32" if switches.precision == "highest" else "tf32"
