"""Devices: they run the steps of a program for a GPU.

A `GridDevice` is the interface between programs, which `executable.py` lays out and runs, and the
driver and libraries of a GPU. A part of a program is recorded once, with all addresses in it, and
run many times; only the contents of memory may differ between runs. `HostDevice` does the same on a
CPU, with NumPy in place of libraries, so that all of this can be tested without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ..cpu import jit
from ..ir.program import Access, Attention, Product, View
from . import tuning
from .gemm import Matrix, MatrixProduct, matrix_products
from .grid import Grid, HostGrid
from .limits import Limits


class DeviceMemory(Protocol):
    """Bytes of a device."""

    address: int


class GridDevice(Protocol):
    """A GPU, or a simulation of one."""

    #: whether `run` returns only when everything is done
    is_synchronous: bool

    def make_grid(self, threads: int) -> Grid:
        """A grid that writes kernels for this device."""

    def functions(self, texts: Iterable[str]) -> dict[str, Any]:
        """The compiled kernels of some texts."""

    def memory(self, size: int) -> DeviceMemory:
        """New, uninitialised memory."""

    def shared_words(self, count: int) -> Any:
        """Words of host memory, initially zero, that the device can write at any time."""

    def zero(self, address: int, size: int) -> None:
        """Fill memory with zeros, before the next run."""

    def address(self, array: Any) -> int:
        """The address of an array in the memory of the device."""

    def without_attention(self) -> str | None:
        """Why `attend` cannot compute attention; None if it can."""

    def computes(self, product: Product) -> bool:
        """Whether `multiply` supports the dtypes of a product."""

    def upload(self, array: Any) -> DeviceMemory:
        """A copy of a contiguous host array."""

    def view(self, address: int, view: View) -> Any:
        """Memory as an array of the device."""

    # Steps that can be recorded.

    def after(self, steps: Sequence[int]) -> None:
        """Let the next step wait for these; steps are counted from the first recorded one."""

    def clear(self, memory: DeviceMemory, size: int) -> None:
        """Fill memory with zeros."""

    def count_good(self, status: DeviceMemory, count: DeviceMemory) -> None:
        """Add 1 to a count if the first word of a status is 0."""

    def copy_out(self, memory: DeviceMemory, words: Any) -> None:
        """Copy memory into words that the host shares."""

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        """Run a kernel; `words` are its arguments."""

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        """Compute a product of matrices at some addresses."""

    def attend(self, attention: Attention, addresses: Sequence[int], deterministic: bool) -> None:
        """Compute attention; the addresses are those of operands and results."""

    # Running at once, after earlier work of eager code.

    def enter(self) -> bool:
        """Whether this thread uses the device now; called before the other methods here."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new, uninitialised array."""

    def launcher(
        self, function: Any, blocks: int, threads: int, count: int, numbers: Sequence[int] = ()
    ) -> Callable[[Sequence[int]], None]:
        """A function that runs a kernel on `count` words and `numbers`; keep `function` alive."""

    def multiplier(self, product: Product) -> Callable[[int, int, int], None]:
        """A function that computes a product, given the addresses of out, x and y."""

    def attender(
        self, attention: Attention, deterministic: bool
    ) -> Callable[[Sequence[int]], None]:
        """A function that computes attention, given the addresses of operands and results."""

    # Running a recording.

    def record(self, work: Callable[[], None]) -> Any:
        """Record the steps that `work` calls for, to run them later."""

    def begin(self, turn: Any) -> None:
        """Let the next runs wait for an earlier turn, which `end` returned, or for none (None)."""

    def end(self, turn: Any) -> Any:
        """A turn that stands for all work so far; `turn` is the last one, and may be reused."""

    def fill(self, table: Any, memory: DeviceMemory) -> None:
        """Copy host words into memory; they may change as soon as this returns."""

    def run(self, recorded: Any) -> None:
        """Run a recording."""

    def limits(self) -> Limits | None:
        """The device's peak rates; None if they are not known."""

    def seconds(self, recorded: Any) -> float:
        """The time of a recording: that of the fastest of some runs."""

    def read(self, address: int, words: int) -> list[int]:
        """Words of memory, when all earlier work is done."""


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class HostMemory:
    """Bytes of the host."""

    def __init__(self, size: int) -> None:
        # Reads of uninitialised memory should not find zeros, so that tests notice them.
        self.bytes = np.full(size + 64, 0xA5, np.uint8)
        self.address = int(self.bytes.ctypes.data)


class HostDevice:
    """Runs kernels of a GPU on the CPU, one block after another."""

    def __init__(self, is_synchronous: bool = True) -> None:
        self.is_synchronous = is_synchronous
        self._recording: list[Callable[[], None]] | None = None
        #: the steps that each recorded step waits for
        self._waits: list[Sequence[int]] = []

    def make_grid(self, threads: int) -> Grid:
        return HostGrid(threads)

    def functions(self, texts: Iterable[str]) -> dict[str, Any]:
        return dict(jit.functions(texts))

    def memory(self, size: int) -> HostMemory:
        return HostMemory(size)

    def zero(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)

    def address(self, array: Any) -> int:
        first: int = array.__array_interface__["data"][0]
        return first

    def computes(self, product: Product) -> bool:
        return True

    def without_attention(self) -> None:
        return None

    def upload(self, array: Any) -> HostMemory:
        memory = HostMemory(array.nbytes)
        ctypes.memmove(memory.address, array.ctypes.data, array.nbytes)
        return memory

    def view(self, address: int, view: View) -> Any:
        return self._memory_of(address, view)

    def _memory_of(self, address: int, view: View) -> Any:
        """Memory as a NumPy array."""
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

    def after(self, steps: Sequence[int]) -> None:
        self._waits.append(steps)

    def clear(self, memory: DeviceMemory, size: int) -> None:
        def work() -> None:
            ctypes.memset(memory.address, 0, size)

        self._do(work)

    def shared_words(self, count: int) -> Any:
        return np.zeros(count, np.int64)

    def count_good(self, status: DeviceMemory, count: DeviceMemory) -> None:
        found, good = (ctypes.c_int64.from_address(m.address) for m in (status, count))

        def work() -> None:
            good.value += not found.value

        self._do(work)

    def copy_out(self, memory: DeviceMemory, words: Any) -> None:
        def work() -> None:
            ctypes.memmove(words.ctypes.data, memory.address, words.nbytes)

        self._do(work)

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        run = self.launcher(function, blocks, threads, len(words))
        self._do(functools.partial(run, words))

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        self._do(functools.partial(self.multiplier(product), out, x, y))

    def enter(self) -> bool:
        return True

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def launcher(
        self, function: Any, blocks: int, threads: int, count: int, numbers: Sequence[int] = ()
    ) -> Callable[[Sequence[int]], None]:
        call = _FUNCTION(function.address)

        def run(words: Sequence[int]) -> None:
            given = [*words, *numbers, 0]
            table = (ctypes.c_uint64 * len(given))(*given)
            call(0, blocks, 0, ctypes.addressof(table))

        return run

    def multiplier(self, product: Product) -> Callable[[int, int, int], None]:
        calls = matrix_products(product)

        def run(out: int, x: int, y: int) -> None:
            for call in calls:
                self._matrix_product(product, call, out, x, y)

        return run

    def _matrix_product(
        self, product: Product, call: MatrixProduct, out: int, x: int, y: int
    ) -> None:
        """Do the work of a BLAS: read each operand column-major, as the call describes it."""

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

    def attend(self, attention: Attention, addresses: Sequence[int], deterministic: bool) -> None:
        self._do(functools.partial(self.attender(attention, deterministic), addresses))

    def attender(
        self, attention: Attention, deterministic: bool
    ) -> Callable[[Sequence[int]], None]:
        accesses = (*attention.operands, *attention.results)

        def shown(address: int, access: Access, shape: tuple[int, ...]) -> Any:
            return self._memory_of(
                address, View(access.value, access.offset, shape, access.strides)
            )

        of_queries, of_keys = ((*attention.batch, n) for n in (attention.queries, attention.keys))
        wide, narrow = attention.features, attention.value_features
        shapes = [(*of_queries, wide), (*of_keys, wide), (*of_keys, narrow)]
        shapes += [(*of_queries, narrow), (*of_queries, 1), (*of_queries, narrow)]
        shapes = [*shapes[: len(attention.operands)], *attention.shapes()]

        def run(addresses: Sequence[int]) -> None:
            arrays = [shown(*given) for given in zip(addresses, accesses, shapes, strict=True)]
            _attended(attention, arrays)

        return run

    def record(self, work: Callable[[], None]) -> Any:
        recorded: list[Callable[[], None]] = []
        self._recording, self._waits = recorded, []
        try:
            work()
        finally:
            self._recording = None
        return [recorded[i] for i in _latest_first(self._waits)]

    def begin(self, turn: Any) -> None:
        pass

    def end(self, turn: Any) -> None:
        pass

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

    def read(self, address: int, words: int) -> list[int]:
        return list((ctypes.c_int64 * words).from_address(address))


def _latest_first(waits: Sequence[Sequence[int]]) -> list[int]:
    """An order that a GPU could choose, as far from the program's order as possible."""
    followers: list[list[int]] = [[] for _ in waits]
    for step, others in enumerate(waits):
        for other in others:
            followers[other].append(step)
    missing = [len(others) for others in waits]
    ready = [-step for step, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        step = -heapq.heappop(ready)
        found.append(step)
        for other in followers[step]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, -other)
    return found


def _attended(attention: Attention, arrays: Sequence[Any]) -> None:
    """Do the work of a library for attention, with whole matrices."""
    count = len(attention.operands)
    q, k, v = (np.asarray(x, np.float32) for x in arrays[:3])
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(attention.scale)
    if attention.causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    if not attention.backward:
        top = scores.max(-1, keepdims=True)
        powers = np.exp(scores - top)
        total = powers.sum(-1, keepdims=True)
        found = [powers / total @ v, top + np.log(total)]
    else:
        received, lse, out = (np.asarray(x, np.float32) for x in arrays[3:count])
        p = np.exp(scores - lse)
        delta = (received * out).sum(-1, keepdims=True)
        slopes = p * (received @ np.swapaxes(v, -1, -2) - delta) * np.float32(attention.scale)
        found = [slopes @ k, np.swapaxes(slopes, -1, -2) @ q, np.swapaxes(p, -1, -2) @ received]
    for result, values in zip(arrays[count:], found, strict=True):
        result[...] = values
