"""Products of many shapes and layouts: GFLOP/s of tapegrad, of torch (MKL) and NumPy (OpenBLAS).

A cell is (batch, rows, inner, columns, layout); all libraries write into an existing result.
tapegrad's product is a native kernel in a compiled function. A call of that costs 8 µs, whatever is
in it, and a call of the others about 1 µs. Below `LONG` operations a cell is therefore `SEVERAL`
products of different matrices: in one compiled function, or one call after another. A cell's ratio
is the rate of tapegrad divided by the better rate of the other two. Cells below `LOW` are measured
again, in all libraries, up to `AGAIN` times; the shortest time of each library counts.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .measure import Columns, Report, alone

#: (batch, rows, inner, columns)
SHAPES: tuple[tuple[int, int, int, int], ...] = (
    # squares
    *((1, n, n, n) for n in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)),
    # odd sizes
    *((1, n, n, n) for n in (33, 65, 100, 129, 255, 517, 1000)),
    (1, 517, 1000, 33),
    (1, 1000, 33, 517),
    # tall, flat and long inside
    (1, 4096, 64, 64),
    (1, 4096, 512, 16),
    (1, 2048, 1024, 128),
    (1, 64, 64, 4096),
    (1, 16, 512, 4096),
    (1, 16, 4096, 4096),
    (1, 64, 4096, 64),
    (1, 128, 4096, 1000),
    (1, 4096, 32, 4096),
    (1, 512, 128, 2048),
    # batched
    (8, 64, 64, 64),
    (64, 32, 32, 32),
    (32, 128, 64, 128),
    (8, 512, 64, 512),
    (8, 512, 512, 64),
    (4, 517, 33, 100),
    (256, 16, 16, 16),
)
#: added by --large: minutes more
LARGE = ((1, 4096, 4096, 4096),)
#: the shapes of --small
FEW = ((1, 16, 16, 16), (1, 33, 17, 20), (3, 16, 8, 16))
LAYOUTS = ("plain", "x.T", "y.T", "x.T y.T")
LIBRARIES = ("tapegrad", "torch", "numpy")
DTYPES = ("float32", "float64")

MEAN, LOW, SHARE_LOW, WORST = 0.95, 0.8, 0.03, 0.65
AGAIN = 3
#: from this many operations on, the cost of a call is small; below, so many are measured at once
LONG = 2e7
SEVERAL = 32
#: of counted calls in a cell; a third more goes by before, and large products take longer
SECONDS = 0.06

Cell = tuple[int, ...]


# -- in a process of one library ------------------------------------------------------------------


def measured(
    library: str, threads: int, dtype: str, cells: Sequence[Cell], seconds: float
) -> dict[str, Any]:
    """Seconds of one product of each cell."""
    prepare = {"tapegrad": _tapegrad, "torch": _torch, "numpy": _numpy}[library](threads)
    found = []
    for cell in cells:
        count = SEVERAL if operations(cell) < LONG else 1
        products = [operands(dtype, *cell) for _ in range(count)]
        found.append(alone(prepare(products), seconds) / count)
    return {"seconds": found}


def operations(cell: Cell) -> float:
    """Multiplications and additions of a cell."""
    return 2.0 * math.prod(cell[:4])


def operands(
    dtype: str, batch: int, rows: int, inner: int, columns: int, layout: int
) -> tuple[Any, Any, Any]:
    """x and y in the layout, and where the result goes; matrices where the batch is one."""
    rng = np.random.default_rng(0)

    def matrix(height: int, width: int, transposed: bool) -> Any:
        shape = (batch, width, height) if transposed else (batch, height, width)
        x = rng.random(shape, np.float32).astype(dtype)
        x = x.swapaxes(1, 2) if transposed else x
        return x[0] if batch == 1 else x

    x, y = matrix(rows, inner, bool(layout & 1)), matrix(inner, columns, bool(layout & 2))
    return x, y, np.empty((*x.shape[:-1], columns), dtype)


def _numpy(threads: int) -> Callable[..., Callable[[], Any]]:
    if os.environ.get("OPENBLAS_NUM_THREADS") != str(threads):
        raise ValueError("NumPy takes its number of threads from OPENBLAS_NUM_THREADS at its start")

    def prepare(products: Sequence[Any]) -> Callable[[], Any]:
        def run() -> None:
            for x, y, out in products:
                np.matmul(x, y, out=out)

        return run

    return prepare


def _torch(threads: int) -> Callable[..., Callable[[], Any]]:
    import torch

    torch.set_num_threads(threads)

    def prepare(products: Sequence[Any]) -> Callable[[], Any]:
        tensors = [[torch.from_numpy(array) for array in arrays] for arrays in products]
        product = torch.mm if tensors[0][0].ndim == 2 else torch.bmm

        def run() -> None:
            for x, y, out in tensors:
                product(x, y, out=out)

        return run

    return prepare


def _tapegrad(threads: int) -> Callable[..., Callable[[], Any]]:
    import tapegrad

    tapegrad.set_num_threads(threads)

    def prepare(products: Sequence[Any]) -> Any:
        tensors = [[tapegrad.from_numpy(array) for array in arrays] for arrays in products]

        @tapegrad.compile
        def product() -> None:
            for x, y, out in tensors:
                out.copy_(x @ y)

        for _ in range(4):
            product()
        said = product.explain(full=True)
        if " and 0 callbacks" not in said:
            raise ValueError(f"a product is not native code:\n{said}")
        return product

    return prepare


# -- the table ------------------------------------------------------------------------------------


def run(report: Report, ask: Callable[..., Any]) -> None:
    """Time all cells; `ask` runs a job in a process of its own and returns what that prints."""
    small = "--small" in sys.argv
    shapes = FEW if small else SHAPES + (LARGE if "--large" in sys.argv else ())
    cells: list[Cell] = [(*shape, layout) for shape in shapes for layout in range(len(LAYOUTS))]
    cores = len(os.sched_getaffinity(0))
    for threads in sorted({1, cores}):
        for dtype in DTYPES:
            times = Times(ask, threads, dtype, 0.002 if small else SECONDS)
            times.measure(cells)
            times.measure(cells)
            for _ in range(AGAIN):
                if low := [cell for cell in cells if times.ratio(cell) < LOW]:
                    times.measure(low)
            _print(report, times, [c for c in cells if not math.isnan(times.ratio(c))])


class Times:
    """The shortest seconds of every library and cell, for one dtype and number of threads."""

    def __init__(self, ask: Callable[..., Any], threads: int, dtype: str, seconds: float) -> None:
        self.ask, self.threads, self.dtype, self.seconds = ask, threads, dtype, seconds
        self.best: dict[tuple[str, Cell], float] = {}

    @property
    def title(self) -> str:
        return f"{self.dtype}, {self.threads} thread{'s' if self.threads > 1 else ''}"

    def measure(self, cells: list[Cell]) -> None:
        """One turn of every library."""
        for library in LIBRARIES:
            job = {"threads": self.threads, "dtype": self.dtype, "cells": cells}
            label = f"products, {library}, {self.title}"
            found = self.ask(label, job="products", library=library, seconds=self.seconds, **job)
            for cell, seconds in zip(cells, found["seconds"] if found else (), strict=False):
                key = (library, cell)
                self.best[key] = min(self.best.get(key, math.inf), seconds)

    def rate(self, library: str, cell: Cell) -> float:
        """GFLOP/s; NaN where nothing was measured."""
        return 1e-9 * operations(cell) / self.best.get((library, cell), math.nan)

    def ratio(self, cell: Cell) -> float:
        """The rate of tapegrad by the better one of its peers; NaN where one is missing."""
        peers = [self.rate(library, cell) for library in LIBRARIES[1:]]
        known = [rate for rate in peers if not math.isnan(rate)]
        return self.rate("tapegrad", cell) / max(known) if known else math.nan


def _print(report: Report, times: Times, cells: list[Cell]) -> None:
    if not cells:
        report.say(f"products, {times.title}", "-")
        return
    ratios = {cell: times.ratio(cell) for cell in cells}
    low = sum(ratio < LOW for ratio in ratios.values()) / len(cells)
    mean, worst = statistics.geometric_mean(ratios.values()), min(ratios.values())
    print(f"\n{times.title}: {len(cells)} cells, rate by the better of torch and NumPy")
    report.add("geometric mean", "", mean, MEAN, at_least=True)
    report.add(f"share of cells below {LOW:g}", "", low, SHARE_LOW)
    report.add("worst cell", "", worst, WORST, at_least=True)
    if long := [ratios[cell] for cell in cells if operations(cell) >= LONG]:
        what = f"geometric mean of {len(long)} cells from {LONG / 1e6:g} MFLOP on"
        report.say(what, f"{statistics.geometric_mean(long):.3g}")
    order = cells if "--all" in sys.argv else sorted(cells, key=ratios.__getitem__)[:5]
    table = Columns("cell (GFLOP/s)", *LIBRARIES, "ratio", width=12, first=34)
    for cell in order:
        rates = (f"{times.rate(library, cell):.1f}" for library in LIBRARIES)
        table.row(name(cell), *rates, f"{ratios[cell]:.2f}")


def name(cell: Cell) -> str:
    """A cell in words: (batch of) rows x inner x columns, layout."""
    batch, *sizes, layout = cell
    many = f"{batch} of " if batch > 1 else ""
    return f"{many}{' x '.join(map(str, sizes))}, {LAYOUTS[layout]}"
