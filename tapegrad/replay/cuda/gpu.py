"""A GPU as a `GridDevice`: the driver, cuBLASLt, and CuPy for memory and arrays.

Comes in: the calls of `executable.py` and `direct.py`. Goes out: graphs of the driver. Steps are
recorded in a stream of their own and run in CuPy's current stream, so they run after eager code's
earlier work there, and the host need not wait. Called by `target.py`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import locks
from ...core.device import cupy
from ...core.switches import switches
from ..ir.program import Attention, Product, View
from . import blaslt, cudnn, driver, modules, tuning
from .device import DeviceMemory
from .gemm import matrix_products
from .grid import DeviceGrid, Grid, KernelParameter
from .limits import Limits


class GPUMemory:
    """GPU memory from CuPy's pool."""

    def __init__(self, size: int) -> None:
        self._pointer = cupy().cuda.alloc(max(size, 1))
        self.address = int(self._pointer.ptr)


class Graph:
    """Recorded steps; `parts` are the objects that they need as long as they exist."""

    def __init__(self, handle: int, parts: list[Any]) -> None:
        self.handle, self._parts = handle, parts

    def __del__(self) -> None:
        if not sys.is_finalizing():
            driver.drop_graph(self.handle)


class Turn(NamedTuple):
    """The stream of some work, and a mark after the work.

    The mark is made at once, because the stream may be gone later; the default stream needs none,
    because it always exists.
    """

    stream: int
    mark: driver.StreamMark | None


class RecordedStep(NamedTuple):
    """Work for the stream of recordings; its argument is scratch memory if it has a slot."""

    work: Callable[[int], None]
    waits: list[int]
    slot: int | None


class GPU:
    """One GPU of this computer."""

    is_synchronous = False

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
        #: of the current recording: its steps, those that the next one waits for, objects that they
        #: need as long as they exist, and the largest workspace of a library call in bytes
        self._steps: list[RecordedStep] = []
        self._waits: list[int] = []
        self._parts: list[Any] = []
        self._workspace = 0
        #: the last step that uses each workspace; -1 if none does
        self._users: list[int] = []
        #: plans of attention, by all that they depend on
        self._plans: dict[Any, cudnn.AttentionPlan] = {}
        #: handles of cuDNN, by stream
        self._handles: dict[int, Any] = {}
        self._threads = threading.local()

    # -- what programs need ------------------------------------------------------------------

    def make_grid(self, threads: int) -> Grid:
        return DeviceGrid(threads)

    def computes(self, product: Product) -> bool:
        return blaslt.computes(product.x.value.dtype) and blaslt.computes(product.out.value.dtype)

    def without_attention(self) -> str | None:
        if self._capability < (8, 0):
            return "cuDNN has attention for GPUs of compute capability 8.0 and above"
        return cudnn.missing()

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

    def shared_words(self, count: int) -> Any:
        memory = self._cupy.cuda.alloc_pinned_memory(8 * count)
        words = np.frombuffer(memory, np.int64, count)
        words[...] = 0
        return words

    def zero(self, address: int, size: int) -> None:
        driver.clear(address, size, self.stream())

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def view(self, address: int, view: View) -> Any:
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        # CuPy uses the size only to check that memory is large enough.
        memory = self._cupy.cuda.UnownedMemory(address, 1 << 48, self, self.index)
        pointer = self._cupy.cuda.MemoryPointer(memory, view.offset * size)
        strides = tuple(s * size for s in view.strides)
        return self._cupy.ndarray(view.shape, dtype, pointer, strides)

    def stream(self) -> int:
        """The stream that eager code uses now."""
        return int(self._cupy.cuda.get_current_stream().ptr)

    # -- steps that can be recorded ----------------------------------------------------------

    def after(self, steps: Sequence[int]) -> None:
        self._waits = list(steps)

    def clear(self, memory: DeviceMemory, size: int) -> None:
        self._add(lambda scratch: driver.clear(memory.address, size, self._stream))

    def count_good(self, status: DeviceMemory, count: DeviceMemory) -> None:
        (function,) = self.functions([_counting()]).values()
        self.launch(function, 1, tuning.WARP, [status.address, count.address])

    def copy_out(self, memory: DeviceMemory, words: Any) -> None:
        host, size = words.ctypes.data, words.nbytes
        self._add(lambda scratch: driver.copy_out(host, memory.address, size, self._stream))
        self._parts.append(words)

    def launch(self, function: Any, blocks: int, threads: int, words: Sequence[int]) -> None:
        def work(scratch: int) -> None:
            driver.launch(function.handle, blocks, threads, words, self._stream)

        self._add(work)
        self._parts.append(function)

    def multiply(self, product: Product, out: int, x: int, y: int) -> None:
        calls = []
        for prepared in self._prepared(product):
            places = prepared.places(x, y, out)
            calls.append((prepared, places, self._choice(prepared, places.alignment)))

        def work(scratch: int) -> None:
            for prepared, places, choice in calls:
                prepared.run(self._products, choice, places, scratch, self._stream)

        self._add(work, max(choice.workspace for _, _, choice in calls))

    def _prepared(self, product: Product) -> list[blaslt.Prepared]:
        """The library calls that compute a product."""
        dtypes = (product.x.value.dtype, product.out.value.dtype)
        return [
            blaslt.Prepared(call, *dtypes, switches.precision) for call in matrix_products(product)
        ]

    def _choice(self, prepared: blaslt.Prepared, alignment: int) -> blaslt.Algorithm:
        """The algorithm for a product, for addresses of this alignment."""
        found = prepared.choices(self._products, 1, alignment)
        if not found:
            raise RuntimeError(f"cuBLAS has no algorithm for {prepared.call}")
        return found[0]

    def attend(self, attention: Attention, addresses: Sequence[int], deterministic: bool) -> None:
        plan = self._plan(attention, deterministic)
        places, handle = _places(attention, addresses), self._attention_handle(self._stream)
        self._add(functools.partial(plan.run, places, handle), plan.workspace)
        self._parts.append(plan)

    def _plan(self, attention: Attention, deterministic: bool) -> cudnn.AttentionPlan:
        key = (deterministic, *cudnn.key_of(attention))
        if key not in self._plans:
            handle = self._attention_handle(self._stream)
            self._plans[key] = cudnn.AttentionPlan(attention, handle, deterministic)
        return self._plans[key]

    def _attention_handle(self, stream: int) -> Any:
        """The handle of cuDNN for a stream."""
        if stream not in self._handles:
            self._handles[stream] = cudnn.new_handle(stream)
        return self._handles[stream]

    def _add(self, work: Callable[[int], None], workspace: int = 0) -> None:
        """Record a step; if it needs a workspace, it waits for the last user of the oldest one."""
        waits, number = set(self._waits), len(self._steps)
        slot = None
        if workspace:
            slot = min(range(tuning.WORKSPACES), key=lambda i: self._users[i])
            if self._users[slot] >= 0:
                waits.add(self._users[slot])
            self._users[slot] = number
            self._workspace = max(self._workspace, workspace)
        self._steps.append(RecordedStep(work, sorted(waits), slot))

    # -- running at once ---------------------------------------------------------------------

    def enter(self) -> bool:
        if self._cupy.cuda.runtime.getDevice() != self.index:
            return False
        if getattr(self._threads, "context", None) is None:
            driver.use_context(self._context)
            self._threads.context = self._context
        return True

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._cupy.ndarray(shape, dtype)

    def launcher(
        self, function: Any, blocks: int, threads: int, count: int, numbers: Sequence[int] = ()
    ) -> Callable[[Sequence[int]], None]:
        launch = driver.Launcher(function.handle, blocks, threads, count, numbers)
        return lambda words: launch(words, self.stream())

    def multiplier(self, product: Product) -> Callable[[int, int, int], None]:
        calls: list[tuple[blaslt.Prepared, dict[int, blaslt.Algorithm]]]
        calls = [(prepared, {}) for prepared in self._prepared(product)]

        def run(out: int, x: int, y: int) -> None:
            stream = self.stream()
            for prepared, choices in calls:
                places = prepared.places(x, y, out)
                alignment = places.alignment
                if alignment not in choices:
                    choices[alignment] = self._choice(prepared, alignment)
                choice = choices[alignment]
                scratch = GPUMemory(choice.workspace)
                prepared.run(self._products, choice, places, scratch.address, stream)

        return run

    def attender(
        self, attention: Attention, deterministic: bool
    ) -> Callable[[Sequence[int]], None]:
        plan = self._plan(attention, deterministic)

        def run(addresses: Sequence[int]) -> None:
            scratch = GPUMemory(plan.workspace)
            handle = self._attention_handle(self.stream())
            plan.run(_places(attention, addresses), handle, scratch.address)

        return run

    # -- running a recording -----------------------------------------------------------------

    def record(self, work: Callable[[], None]) -> Graph:
        with self._lock:
            driver.use_context(self._context)
            self._steps, self._parts, self._workspace = [], [], 0
            self._users = [-1] * tuning.WORKSPACES
            work()
            steps, self._steps = self._steps, []
            used = [step.slot for step in steps if step.slot is not None]
            scratch = [self.memory(self._workspace) for _ in range(max(used, default=-1) + 1)]
            driver.begin_capture(self._stream)
            try:
                nodes: list[list[int]] = []
                for step in steps:
                    driver.wait_for([n for other in step.waits for n in nodes[other]], self._stream)
                    step.work(0 if step.slot is None else scratch[step.slot].address)
                    nodes.append(driver.newest_nodes(self._stream))
                driver.wait_for([n for made in nodes for n in made], self._stream)
            finally:
                handle = driver.end_capture(self._stream)
                made = Graph(handle, [*self._parts, *scratch])
            return made

    def begin(self, turn: Turn | None) -> None:
        stream = self.stream()
        if turn is None or turn.stream == stream:
            return
        mark = turn.mark
        if mark is None:
            mark = driver.StreamMark()
            mark.put(turn.stream)
        mark.hold(stream)

    def end(self, turn: Turn | None) -> Turn:
        stream = self.stream()
        if not stream:
            return turn if turn is not None and not turn.stream else Turn(0, None)
        mark = turn.mark if turn is not None and turn.mark is not None else driver.StreamMark()
        mark.put(stream)
        return turn if turn is not None and turn.stream == stream else Turn(stream, mark)

    def fill(self, table: Any, memory: DeviceMemory) -> None:
        driver.to_device(memory.address, table.ctypes.data, table.nbytes, self.stream())

    def run(self, recorded: Graph) -> None:
        driver.run_graph(recorded.handle, self.stream())

    def limits(self) -> Limits:
        facts = self._cupy.cuda.Device(self.index).attributes
        # Clock rates are in kHz; memory transfers data twice per cycle.
        moved = 2e3 * facts["MemoryClockRate"] * facts["GlobalMemoryBusWidth"] / 8
        return Limits(
            moved, 1e3 * facts["ClockRate"] * facts["MultiProcessorCount"], self._capability
        )

    def seconds(self, recorded: Graph) -> float:
        stream = self.stream()
        times = []
        for _ in range(tuning.MEASURING_ROUNDS + 1):  # one more, because the first is a warm-up
            with driver.Stopwatch(stream) as stopwatch:
                driver.run_graph(recorded.handle, stream)
            times.append(stopwatch.seconds())
        return min(times)

    def read(self, address: int, words: int) -> list[int]:
        found = np.zeros(words, np.int64)
        driver.to_host(found.ctypes.data, address, found.nbytes, self.stream())
        return found.tolist()


def _places(attention: Attention, addresses: Sequence[int]) -> list[int]:
    """The addresses of attention's operands and results, given those of their values."""
    accesses = (*attention.operands, *attention.results)
    return [
        address + access.offset * int(access.value.dtype.itemsize)
        for address, access in zip(addresses, accesses, strict=True)
    ]


@functools.cache
def _counting() -> str:
    """A kernel that adds 1 to a count unless bad data were found."""
    grid = DeviceGrid(tuning.WARP)
    grid.guard()
    with grid.phase() as lane, grid.code.when(grid.code.value(f"icmp eq i64 {lane}, 0")):
        before = grid.code.value("load i64, ptr %count")
        after = grid.code.value(f"add i64 {before}, 1")
        grid.code.line(f"store i64 {after}, ptr %count")
    return grid.text([KernelParameter("%failed"), KernelParameter("%count")])


@functools.cache
def gpu(index: int) -> GPU:
    """The GPU with an index."""
    return GPU(index)
