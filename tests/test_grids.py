"""Kernels of a GPU without a GPU: grids run on the CPU, texts that the GPU's assembler takes."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fuzz_replay
import numpy as np
import pytest
from replaying import close, randn, replayed
from sweep import NAMES
from test_targets import compare_operation, trained

import tapegrad as tg
from tapegrad.replay import register_target, unregister_target
from tapegrad.replay.cuda import tuning
from tapegrad.replay.cuda.emit import KernelLaunch, emit
from tapegrad.replay.cuda.executable import GridProgram
from tapegrad.replay.cuda.grid import DeviceGrid
from tapegrad.replay.cuda.loops import FoldShape, GridSettings
from tapegrad.replay.cuda.order import MemoryOrder
from tapegrad.replay.cuda.ptx import libdevice, ptx_of
from tapegrad.replay.cuda.simulation import SimulatedGPU
from tapegrad.replay.ir.program import Compute, Loop


@pytest.fixture(autouse=True, scope="module")
def simulated() -> Iterator[None]:
    register_target(SimulatedGPU())
    yield
    unregister_target("simulated")


def test_training_is_the_same_as_on_the_cpu() -> None:
    for a, b in zip(trained("native"), trained("simulated"), strict=True):
        close(a, b, 1e-4)


TOLERANCE = {tg.float64: 1e-8, tg.float32: 2e-3}


@pytest.mark.sweep(keep=1 / 6, some="name")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["double", "single"])
@pytest.mark.parametrize("name", NAMES)
def test_every_operation(name: str, dtype: Any) -> None:
    compare_operation(name, "simulated", dtype, TOLERANCE[dtype], samples=3)


@pytest.mark.filterwarnings("ignore:a complex tensor became real")
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_replay, "BACKEND", "simulated")
    _, outcome, text, _ = fuzz_replay.trial(2_300_000 + seed, "mixed")
    assert outcome not in ("different", "crashed"), text


# -- reductions ------------------------------------------------------------------------------------

SHAPES = [(1,), (5,), (300,), (5000,), (70_000,), (3, 700), (700, 3), (2, 5, 33), (40, 600), (1, 1)]
SHAPES += [(2100, 700), (2000, 40), (4, 3, 5, 6), (0, 4), (4, 0), (7, 1, 900)]


def dims_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    every = range(len(shape))
    return [(d,) for d in every] + [tuple(every), tuple(every[::2]), tuple(every[1:]) or (0,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_of_all_shapes(shape: tuple[int, ...]) -> None:
    x = randn(*shape).double()
    for dims in dict.fromkeys(dims_of(shape)):

        def reduced(x: Any, dims: Any = dims) -> Any:
            found = [(x * 2).sum(dims), (x * x).mean(dims), (x > 0).any(dims[0])]
            return found + ([x.amax(dims), (x + 1).amin(dims)] if 0 not in shape else [])

        fast = tg.compile(reduced, fullgraph=True, backend="simulated")
        for _ in range(3):
            found = fast(x)
        for a, b in zip(found, reduced(x), strict=True):
            close(a, b, 1e-9)


def test_shapes_of_reductions_cover_every_way() -> None:
    """One result by all threads in parts, by a block, by a warp; neighbours with their own."""
    whole, block = FoldShape(1, 70_000, along=True), FoldShape(2000, 7000, along=True)
    many = FoldShape(4000, 700, along=True)
    warp, columns = FoldShape(700, 3, along=True), FoldShape(40, 2000, along=False)
    assert whole.parts > 1
    assert columns.parts > 1
    assert (block.parts, block.lanes) == (1, tuning.FOLD_THREADS)
    assert (warp.parts, warp.lanes) == (1, tuning.WARP)
    assert (many.parts, many.lanes) == (1, tuning.WARP)
    for shape in (whole, block, warp, many, columns):
        assert shape.results * shape.groups >= shape.kept
        assert shape.parts * shape.part_length >= shape.folded
        assert shape.threads == shape.lanes * shape.results


# -- order -----------------------------------------------------------------------------------------


def test_steps_wait_for_the_memory_that_they_need_and_no_longer() -> None:
    order = MemoryOrder()
    assert order.add([], [(0, 10)]) == []
    assert order.add([], [(10, 20)]) == []
    assert order.add([(5, 15)], [(20, 30)]) == [0, 1]
    assert order.add([(25, 26)], []) == [2]  # which has waited for the others
    assert order.add([(0, 1)], []) == [0]
    assert order.add([], [(0, 1)]) == [4]  # what others still read is not written
    assert order.add([], [(0, 40)]) == [3, 5]
    for _ in range(200):
        order.add([], [(50, 60)])
    assert order.add([(55, 56)], []) == [206]


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [(6, 5, 7), (9, 16, 3), (5, 3, 8), (1, 5, 6), (17, 1, 1)], ids=str
)
def test_odd_products_are_filled_up(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_TO_PAD", 1)
    rows, inner, columns = sizes
    w = randn(columns, inner).bfloat16().requires_grad_()

    def step(x: Any) -> Any:
        w.grad = None
        found = x @ w.mT
        (found.float() ** 2).sum().backward()
        return found.detach(), w.grad.detach().clone()

    fast = tg.compile(step, fullgraph=True, backend="simulated")
    for seed in range(5):
        x = randn(rows, inner, seed=seed).bfloat16()
        for a, b in zip(fast(x), step(x), strict=True):
            close(a.float(), b.float(), 2e-2)


class Head:
    """The end of a language model: logits of half precision, one of each row by its label."""

    def __init__(self, words: int, width: int) -> None:
        self.weight = randn(words, width).requires_grad_()

    def __call__(self, x: Any, labels: Any) -> Any:
        self.weight.grad = None
        x = x.detach().requires_grad_()
        with tg.autocast("cpu", dtype=tg.bfloat16):
            logits = tg.nn.functional.linear(x, self.weight)
            loss = tg.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        return loss.detach(), x.grad, self.weight.grad.detach().clone()


@pytest.mark.parametrize("words", [11, 16, 33])
def test_matrices_with_odd_rows_have_gaps_instead_of_copies(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_TO_PAD", 1)
    monkeypatch.setattr(tuning, "MIN_BYTES_TO_ALIGN", 1)
    step = Head(words, 24)
    fast = tg.compile(step, fullgraph=True, backend="simulated")
    for seed in range(6):
        x, labels = randn(2, 8, 24, seed=seed), (tg.arange(16) % 11).reshape(2, 8)
        if seed == 4:
            x[0, 1, 2] = math.inf  # must not reach other rows by way of what is in the gaps
        for a, b in zip(fast(x, labels), step(x, labels), strict=True):
            close(a.float(), b.float(), 2e-2)
    steps = fast.replays[-1].executable.emitted.steps
    copied = [s for s in steps if isinstance(s, KernelLaunch) and moves(s, 16 * words)]
    assert not copied


def moves(step: KernelLaunch, count: int) -> bool:
    """Whether a kernel does nothing but copy so many elements."""
    loop = step.instruction
    if not isinstance(loop, Loop) or math.prod(loop.shape) != count:
        return False
    computed = {n.primitive.name for n in loop.nodes if isinstance(n, Compute)}
    return computed == {"copy"} and len(loop.stores) == 1


def test_what_goes_on_from_row_to_row_has_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second use reads across the ends of rows, so the product writes a copy as before."""
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_TO_PAD", 1)
    monkeypatch.setattr(tuning, "MIN_BYTES_TO_ALIGN", 1)

    def step(x: Any, y: Any) -> Any:
        found = x @ y
        return found.reshape(7, 6).float().sum(1), (found * 2).amax(0), found.T @ x

    fast = tg.compile(step, fullgraph=True, backend="simulated")
    for seed in range(4):
        x, y = (randn(6, 7, seed=seed).bfloat16(), randn(7, 7, seed=seed + 9).bfloat16())
        for a, b in zip(fast(x, y), step(x, y), strict=True):
            close(a.float(), b.float(), 2e-2)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (1, 4)], ids=str)
@pytest.mark.parametrize("sizes", [(4, 5, 6), (1, 5, 6), (4, 1, 6), (4, 5, 1), (1, 1, 1)], ids=str)
def test_products_of_all_layouts(sizes: tuple[int, ...], batch: tuple[int, ...]) -> None:
    rows, inner, columns = sizes
    x, y = randn(*batch, rows, inner), randn(*batch, inner, columns)
    x2, y2 = randn(*batch, inner, rows), randn(*batch, columns, inner)
    single, strided = randn(rows, inner), randn(*batch, rows, 2 * inner)

    def products(x: Any, y: Any, x2: Any, y2: Any, single: Any, strided: Any) -> Any:
        swapped = x.transpose(0, -3) if len(batch) > 1 else x
        right = y.transpose(0, -3) if len(batch) > 1 else y
        return (
            *(x @ y, x2.mT @ y, x @ y2.mT, x2.mT @ y2.mT, single @ y, strided[..., ::2] @ y),
            *(strided[..., :inner] @ y, swapped @ right, x[..., :1].expand(x.shape) @ y),
        )

    fast = tg.compile(products, fullgraph=True, backend="simulated")
    given = (x, y, x2, y2, single, strided)
    for _ in range(3):
        found = fast(*given)
    for a, b in zip(found, products(*given), strict=True):
        close(a, b, 1e-4)


# -- memory ----------------------------------------------------------------------------------------


def test_each_run_finds_its_arguments_and_has_results_of_its_own() -> None:
    """What is recorded has fixed addresses; arguments and results have others in each run."""
    w = randn(6, 5)
    fast = tg.compile(lambda x: (x @ w, x.sum(0), x.T @ x), fullgraph=True, backend="simulated")
    kept = []
    for i in range(8):
        x = randn(4 + 0 * i, 6, seed=i)
        kept.append((x, fast(x)))
    for x, (product, total, square) in kept:
        close(product, x @ w)
        close(total, x.sum(0))
        close(square, x.T @ x)
    assert replayed(fast) >= 5


def test_captured_tensors_with_new_memory() -> None:
    w = randn(6, 5).requires_grad_()
    fast = tg.compile(lambda x: (x @ w).sum(), fullgraph=True, backend="simulated")
    for i in range(6):
        w.data = randn(6, 5, seed=i)
        x = randn(4, 6, seed=i)
        close(fast(x), (x @ w).sum())


def test_options_of_an_optimizer_are_read_in_each_run() -> None:
    found = []
    for backend in ("native", "simulated"):
        w = tg.nn.Parameter(randn(40, 30))
        optimizer = tg.optim.AdamW([w], lr=0.1)

        @tg.compile(backend=backend)
        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (x @ w).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for i in range(8):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + i)
            step(randn(7, 40, seed=i))
        found.append(w.detach().clone())
    close(*found, 1e-5)


def test_bad_data_change_nothing() -> None:
    table = tg.nn.Parameter(randn(10, 4))
    optimizer = tg.optim.SGD([table], lr=0.5, momentum=0.9)

    @tg.compile(backend="simulated")
    def step(index: Any) -> Any:
        optimizer.zero_grad()
        loss = table[index].square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for i in range(4):
        step(tg.tensor([i, 1, 2]))
    before = table.detach().clone(), optimizer.state[table]["momentum_buffer"].clone()
    with pytest.raises(IndexError, match="out of range"):
        step(tg.tensor([0, 10, 1]))
    close(table.detach(), before[0], 0)
    close(optimizer.state[table]["momentum_buffer"], before[1], 0)
    step(tg.tensor([0, 3, 1]))


@pytest.mark.parametrize("deterministic", [False, True])
def test_scatters_add_every_repetition(deterministic: bool) -> None:
    unregister_target("simulated")
    register_target(SimulatedGPU(deterministic))
    try:
        fast = tg.compile(
            lambda x, i, v: (x.index_add(0, i, v), x.scatter_add(1, i[:, None].expand(-1, 7), v)),
            fullgraph=True,
            backend="simulated",
        )
        x, v = randn(50, 7), randn(200, 7)
        i = tg.tensor(np.random.default_rng(0).integers(0, 5, 200))
        for _ in range(3):
            found = fast(x[:, :7].repeat(4, 1), i, v)
        y = x.repeat(4, 1)
        close(found[0], y.index_add(0, i, v), 1e-5)
        close(found[1], y.scatter_add(1, i[:, None].expand(-1, 7), v), 1e-5)
    finally:
        unregister_target("simulated")
        register_target(SimulatedGPU())


# -- text for GPUs ---------------------------------------------------------------------------------


def assembler() -> str | None:
    """The GPU's assembler, from a wheel or from the system."""
    spec = find_spec("nvidia")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        for path in Path(folder).glob("cu*/bin/ptxas"):
            return str(path)
    return shutil.which("ptxas")


def texts(monkeypatch: pytest.MonkeyPatch, run: Any) -> list[str]:
    """The kernels for a GPU of all programs that something builds.

    Of compiled functions, where some memory moves, and of eager operations, which are general.
    """
    found: dict[str, None] = {}
    build = GridProgram.__init__

    def built(self: Any, *given: Any) -> None:
        build(self, *given)
        kinds = self.plan.allocations.items()
        moving = frozenset(n for n, a in kinds if a.kind == "result" or a.index % 2)
        changed = {value.number for value, _ in self.program.writes}
        given = {i.value.number for i in self.program.inputs if i.value.shape == ()}
        compiled = GridSettings(DeviceGrid, moving=moving)
        eager = GridSettings(DeviceGrid, held=frozenset(given - changed), general=True)
        for settings in (compiled, eager):
            for step in emit(self.plan, settings).steps:
                if isinstance(step, KernelLaunch):
                    found[step.text] = None

    monkeypatch.setattr(GridProgram, "__init__", built)
    run()
    return list(found)


@pytest.mark.oracle
@pytest.mark.skipif(assembler() is None, reason="needs ptxas")
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
def test_the_gpus_assembler_takes_kernels(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run() -> None:
        trained("simulated")
        for name in NAMES[capability[0] :: 23]:
            for dtype, tolerance in TOLERANCE.items():
                compare_operation(name, "simulated", dtype, tolerance, samples=3)

    kernels = [t for t in texts(monkeypatch, run) if libdevice() or "@__nv_" not in t]
    assert len(kernels) > 100
    chosen = kernels[:: max(len(kernels) // 60, 1)]
    for i, text in enumerate(chosen):
        (tmp_path / "kernel.ptx").write_text(ptx_of(text.replace("@NAME", f"@k{i}"), capability))
        arch = f"-arch=sm_{capability[0]}{capability[1]}"
        command = [str(assembler()), arch, "-o", "/dev/null", str(tmp_path / "kernel.ptx")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{text}"
