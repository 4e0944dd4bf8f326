"""A stand-in for a GPU that runs compiled programs: CPU kernels over stand-in arrays."""

from __future__ import annotations

from typing import Any

from stand_in_cupy import shown

from tapegrad.replay.cuda.device import HostDevice


class StandInGPU(HostDevice):
    """Runs kernels over the memory of the stand-in for CuPy."""

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def empty(self, shape: Any, dtype: Any) -> Any:
        return shown(super().empty(shape, dtype))

    def view(self, address: int, view: Any) -> Any:
        return shown(super().view(address, view))


DEVICE = StandInGPU()
