"""Simulation: programs for a GPU run on the CPU, to be tested without a GPU.

Comes in: a recorded program. Goes out: a `GridProgram` on a `HostDevice`. Registered as a target by
tests.
"""

from __future__ import annotations

from ..cpu import jit
from ..ir.program import Program
from .device import HostDevice
from .executable import GridProgram


class SimulatedGPU:
    """A target that builds programs for a GPU and runs them on the CPU."""

    name = "simulated"

    def __init__(self, deterministic: bool = False) -> None:
        self._deterministic = deterministic
        self._device = HostDevice()

    def missing(self) -> str | None:
        return None if jit.available() else "llvmlite is not installed"

    def build(self, program: Program, name: str = "a program") -> GridProgram:
        return GridProgram(program, self._device, lambda: self._deterministic)
