"""GPUs as a `Target`: a program becomes kernels and library calls, recorded as one graph.

Comes in: a recorded program on a GPU. Goes out: a `DividedProgram` (`divide.py`). Registered by
`use/targets.py` under the name "cuda".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.device import cupy
from ...core.switches import switches
from ..cpu import jit
from ..cpu.executable import build as build_for_host
from ..ir.program import Program

if TYPE_CHECKING:
    from .device import GridDevice
    from .divide import DividedProgram
    from .executable import GridProgram


class CUDA:
    """Builds programs through LLVM, NVIDIA's driver and cuBLAS."""

    name = "cuda"
    devices = ("cuda",)

    def missing(self) -> str | None:
        try:
            cupy()
        except RuntimeError as error:
            return str(error)
        if not jit.available():
            return "llvmlite is not installed"
        from . import blaslt, driver

        return driver.missing() or blaslt.missing()

    def device(self, index: int) -> GridDevice:
        """The device that runs programs on the GPU with an index."""
        from .gpu import gpu

        return gpu(index)

    def build(self, program: Program, name: str = "a program") -> DividedProgram:
        from .divide import DividedProgram
        from .executable import GridProgram

        device = self.device(program.device.index or 0)

        def build(part: Program, cells: Sequence[int]) -> GridProgram:
            return GridProgram(part, device, lambda: switches.deterministic, cells)

        return DividedProgram(program, build, lambda part: build_for_host(part, name=name))
