"""The CPU as a `Target`: programs become native code that runs on all cores.

Comes in: a recorded program. Goes out: a `NativeProgram` (`executable.py`). Registered by
`use/targets.py` under the name "cpu".
"""

from __future__ import annotations

from ..ir.program import Program
from . import jit
from .executable import NativeProgram, build


class CPU:
    """Builds programs through LLVM."""

    name = "cpu"

    def missing(self) -> str | None:
        return None if jit.available() else "llvmlite is not installed"

    def build(self, program: Program, name: str = "a program") -> NativeProgram:
        return build(program, name=name)
