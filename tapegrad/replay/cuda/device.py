"""Devices: what runs the steps of a program for a GPU.

A `GridDevice` is the border between programs, which `executable.py` lays out and runs, and the
driver and libraries of a GPU. A part of a program is recorded once, with all addresses in it, and
run many times; only what is in memory may differ between runs. `HostDevice` does the same on a CPU,
with NumPy in the place of libraries, so that all of this is tested where there is no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ..cpu import jit
from ..ir.program import Product, View
from . import tuning
from .gemm import Matrix, MatrixProduct, matrix_products
from .grid import Grid, HostGrid
from .limits import Limits


class DeviceMemory(Protocol):
    """Bytes of a device."""

    address: int


class GridDevice(Protocol):
    """A GPU, or what takes its place."""

    def make_grid(self, threads: int) -> Grid:
        """A grid that writes kernels for this device."""

    def functions(self, texts: Iterable[str]) -> dict[str, Any]:
        """The compiled kernels of some texts."""

    def memory(self, size: int) -> DeviceMemory:
        """New memory, with anything in it."""

    def address(self, array: Any) -> int:
        """Where an array begins in the memory of the device."""

    def computes(self, product: Product) -> bool:
        """Whether `multiply` knows the dtypes of a product."""

    def upload(self, array: Any) -> DeviceMemory:
        """A copy of a contiguous array of the host."""

    def view(self, address: int, view: View) -> Any:
        """Memory as an array of the device."""

    # What can be recorded.

    def clear(self, memory: DeviceMemory, size: int) -> None:
        """Fill memory with zeros."""

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        """Run a kernel, which is given addresses."""

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        """Compute a product of matrices at some addresses."""

    # Running.

    def record(self, work: Callable[[], None]) -> Any:
        """What the methods above are asked for, to be run later."""

    def fill(self, table: Any, memory: DeviceMemory) -> None:
        """Copy words of the host into memory; they may change as soon as this returns."""

    def run(self, recorded: Any) -> None:
        """Run what was recorded."""

    def limits(self) -> Limits | None:
        """What it can reach at most; None if that is not known."""

    def seconds(self, recorded: Any) -> float:
        """How long it takes to run what was recorded: the shortest of some runs."""

    def read(self, memory: DeviceMemory, words: int) -> list[int]:
        """Words of memory, when everything before is done."""


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class HostMemory:
    """Bytes of the host."""

    def __init__(self, size: int) -> None:
        # Whoever reads what nothing has written yet should not find zeros.
        self.bytes = np.full(size + 64, 0xA5, np.uint8)
        self.address = int(self.bytes.ctypes.data)


class HostDevice:
    """Runs kernels of a GPU on the CPU, one block after another."""

    def __init__(self) -> None:
        self._recording: list[Callable[[], None]] | None = None

    def make_grid(self, threads: int) -> Grid:
        return HostGrid(threads)

    def functions(self, texts: Iterable[str]) -> dict[str, Any]:
        return dict(jit.functions(texts))

    def memory(self, size: int) -> HostMemory:
        return HostMemory(size)

    def address(self, array: Any) -> int:
        first: int = array.__array_interface__["data"][0]
        return first

    def computes(self, product: Product) -> bool:
        return True

    def upload(self, array: Any) -> HostMemory:
        memory = HostMemory(array.nbytes)
        ctypes.memmove(memory.address, array.ctypes.data, array.nbytes)
        return memory

    def view(self, address: int, view: View) -> Any:
        return self._memory_of(address, view)

    def _memory_of(self, address: int, view: View) -> Any:
        """Memory as an array of NumPy's."""
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        start = address + (view.offset + low) * size
        memory: Any = (ctypes.c_char * ((high - low + 1) * size)).from_address(start)
        strides = tuple(s * size for s in view.strides)
        return np.ndarray(view.shape, dtype, memory, -low * size, strides)

    def _do(self, work: Callable[[], None]) -> None:
        assert self._recording is not None, "this can only be recorded"
        self._recording.append(work)

    def clear(self, memory: DeviceMemory, size: int) -> None:
        def work() -> None:
            ctypes.memset(memory.address, 0, size)

        self._do(work)

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        table = np.array([*words, 0], np.int64)
        call = _FUNCTION(function.address)
        self._do(lambda: call(0, blocks, 0, table.ctypes.data))

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        for call in matrix_products(product):
            self._do(functools.partial(self._matrix_product, product, call, out, x, y))

    def _matrix_product(
        self, product: Product, call: MatrixProduct, out: int, x: int, y: int
    ) -> None:
        """What a BLAS does: each operand is seen by columns, as the call tells it."""

        def seen(address: int, value: Any, matrix: Matrix, rows: int, columns: int) -> Any:
            if matrix.transposed:
                shape, strides = (call.count, columns, rows), (matrix.batch, 1, matrix.column)
            else:
                shape, strides = (call.count, rows, columns), (matrix.batch, 1, matrix.column)
            found = self._memory_of(address, View(value, matrix.offset, shape, strides))
            return found.swapaxes(1, 2) if matrix.transposed else found

        left = seen(y, product.y.value, call.left, call.rows, call.inner)
        right = seen(x, product.x.value, call.right, call.inner, call.columns)
        result = seen(out, product.out.value, call.out, call.rows, call.columns)
        wide = np.float64 if result.dtype == np.float64 else np.float32
        found = np.matmul(left.astype(wide), right.astype(wide))
        result[...] = result + found if call.adds else found

    def record(self, work: Callable[[], None]) -> Any:
        recorded: list[Callable[[], None]] = []
        self._recording = recorded
        try:
            work()
        finally:
            self._recording = None
        return recorded

    def fill(self, table: Any, memory: DeviceMemory) -> None:
        ctypes.memmove(memory.address, table.ctypes.data, table.nbytes)

    def run(self, recorded: Any) -> None:
        for work in recorded:
            work()

    def limits(self) -> None:
        return None

    def seconds(self, recorded: Any) -> float:
        times = []
        for _ in range(tuning.MEASURING_ROUNDS):
            start = time.perf_counter()
            self.run(recorded)
            times.append(time.perf_counter() - start)
        return min(times)

    def read(self, memory: DeviceMemory, words: int) -> list[int]:
        return list((ctypes.c_int64 * words).from_address(memory.address))
