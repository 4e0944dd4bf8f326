"""A GPU as a `GridDevice`: the driver, cuBLASLt, and CuPy for memory and arrays.

Comes in: what `executable.py` asks of a device. Goes out: graphs of the driver. Steps are recorded
in a stream of their own and run in the one that CuPy has as its current stream, so they come after
what eager code has put there, and nobody waits. Called by `target.py`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...core import locks
from ...core.device import cupy
from ...core.switches import switches
from ..ir.program import Product, View
from . import blaslt, driver, modules, tuning
from .device import DeviceMemory
from .gemm import matrix_products
from .grid import DeviceGrid, Grid
from .limits import Limits


class GPUMemory:
    """Bytes of a GPU, from CuPy's pool."""

    def __init__(self, size: int) -> None:
        self._pointer = cupy().cuda.alloc(max(size, 1))
        self.address = int(self._pointer.ptr)


class Graph:
    """Recorded steps; `parts` are what they need as long as they exist."""

    def __init__(self, handle: int, parts: list[Any]) -> None:
        self.handle, self._parts = handle, parts

    def __del__(self) -> None:
        if not sys.is_finalizing():
            driver.drop_graph(self.handle)


class GPU:
    """One GPU of this computer."""

    def __init__(self, index: int) -> None:
        self._cupy = cupy()
        self.index = index
        with self._cupy.cuda.Device(index) as device:
            self._cupy.cuda.runtime.free(0)  # makes the context, if nothing has yet
            self._context = driver.current_context()
            major, minor = divmod(int(device.compute_capability), 10)
            self._stream = driver.new_stream()
            self._products = blaslt.new_handle()
        self._capability = (major, minor)
        self._version = int(self._cupy.cuda.runtime.driverGetVersion())
        self._lock = locks.new()
        #: of what is being recorded: its steps, what they need as long as they exist, how many
        #: bytes products leave between their kernels, and where
        self._steps: list[Callable[[], None]] = []
        self._parts: list[Any] = []
        self._workspace = self._scratch = 0

    # -- what programs need ------------------------------------------------------------------

    def make_grid(self, threads: int) -> Grid:
        return DeviceGrid(threads)

    def computes(self, product: Product) -> bool:
        return blaslt.computes(product.x.value.dtype) and blaslt.computes(product.out.value.dtype)

    def functions(self, texts: Iterable[str]) -> dict[str, Any]:
        driver.use_context(self._context)
        return dict(modules.functions(texts, self._capability, self._version))

    def memory(self, size: int) -> GPUMemory:
        with self._cupy.cuda.Device(self.index):
            return GPUMemory(size)

    def upload(self, array: Any) -> DeviceMemory:
        memory = self.memory(array.nbytes)
        if array.nbytes:
            driver.to_device(memory.address, array.ctypes.data, array.nbytes, self.stream())
            driver.synchronize(self.stream())
        return memory

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def view(self, address: int, view: View) -> Any:
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        # CuPy asks for the bytes of memory only to refuse what is too small.
        memory = self._cupy.cuda.UnownedMemory(address, 1 << 48, self, self.index)
        pointer = self._cupy.cuda.MemoryPointer(memory, view.offset * size)
        strides = tuple(s * size for s in view.strides)
        return self._cupy.ndarray(view.shape, dtype, pointer, strides)

    def stream(self) -> int:
        """The stream that eager code uses now."""
        return int(self._cupy.cuda.get_current_stream().ptr)

    # -- what can be recorded ----------------------------------------------------------------

    def clear(self, memory: DeviceMemory, size: int) -> None:
        self._steps.append(functools.partial(driver.clear, memory.address, size, self._stream))

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        def work() -> None:
            driver.launch(function.handle, blocks, threads, words, self._stream)

        self._steps.append(work)
        self._parts.append(function)

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        operands = blaslt.Operands(y, x, out, product.x.value.dtype, product.out.value.dtype)
        for call in matrix_products(product):
            prepared = blaslt.Prepared(call, operands, switches.precision)
            choice = self._choice(prepared)
            self._workspace = max(self._workspace, choice.workspace)
            self._steps.append(functools.partial(self._multiply, prepared, choice))

    def _multiply(self, prepared: blaslt.Prepared, choice: blaslt.Algorithm) -> None:
        prepared.run(self._products, choice, self._scratch, self._stream)

    def _choice(self, prepared: blaslt.Prepared) -> blaslt.Algorithm:
        """The algorithm for a product."""
        found = prepared.choices(self._products, 1)
        if not found:
            raise RuntimeError(f"cuBLAS has no algorithm for {prepared.call}")
        return found[0]

    # -- running -----------------------------------------------------------------------------

    def record(self, work: Callable[[], None]) -> Graph:
        with self._lock:
            driver.use_context(self._context)
            self._steps, self._parts, self._workspace = [], [], 0
            work()
            scratch = self.memory(self._workspace)
            self._scratch = scratch.address
            driver.begin_capture(self._stream)
            try:
                for step in self._steps:
                    step()
            finally:
                handle = driver.end_capture(self._stream)
                made = Graph(handle, [*self._parts, scratch])
                self._steps = []
            return made

    def fill(self, table: Any, memory: DeviceMemory) -> None:
        driver.to_device(memory.address, table.ctypes.data, table.nbytes, self.stream())

    def run(self, recorded: Graph) -> None:
        driver.run_graph(recorded.handle, self.stream())

    def limits(self) -> Limits:
        facts = self._cupy.cuda.Device(self.index).attributes
        # Kilohertz; memory moves twice in each cycle of its clock.
        moved = 2e3 * facts["MemoryClockRate"] * facts["GlobalMemoryBusWidth"] / 8
        return Limits(
            moved, 1e3 * facts["ClockRate"] * facts["MultiProcessorCount"], self._capability
        )

    def seconds(self, recorded: Graph) -> float:
        stream = self.stream()
        times = []
        for _ in range(tuning.MEASURING_ROUNDS + 1):  # the first one comes too early: it wakes up
            with driver.Stopwatch(stream) as stopwatch:
                driver.run_graph(recorded.handle, stream)
            times.append(stopwatch.seconds())
        return min(times)

    def read(self, memory: DeviceMemory, words: int) -> list[int]:
        found = np.zeros(words, np.int64)
        driver.to_host(found.ctypes.data, memory.address, found.nbytes, self.stream())
        return found.tolist()


@functools.cache
def gpu(index: int) -> GPU:
    """The GPU of an index."""
    return GPU(index)
