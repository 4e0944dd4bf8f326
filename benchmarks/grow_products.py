"""Products of many shapes and layouts: GFLOP/s of tapegrad, of torch (MKL) and NumPy (OpenBLAS).

A cell is (batch, rows, inner, columns, layout); all libraries write into an existing result.
tapegrad's product is a native kernel in a compiled function. A call of that function costs 8 µs,
whatever it contains; a call of the others costs about 1 µs. So a cell of fewer than `LONG`
operations has `SEVERAL` products of different matrices, in one compiled function or in one call
after another. A larger cell has as many products as give each thread `LONG` operations, at most
`SEVERAL`. A cell's ratio is the rate of tapegrad divided by the better rate of the other two. Cells
below `LOW` are measured again, in all libraries, up to `AGAIN` times; the shortest time of each
library counts.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .grow_cells import Times, thread_counts
from .measure import Report, alone, check_native

#: (batch, rows, inner, columns)
SHAPES: tuple[tuple[int, int, int, int], ...] = (
    # squares
    *((1, n, n, n) for n in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)),
    # odd sizes
    *((1, n, n, n) for n in (33, 65, 100, 129, 255, 517, 1000)),
    (1, 517, 1000, 33),
    (1, 1000, 33, 517),
    # tall, wide, and with a long inner dimension
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
#: added by --large, which takes minutes more
LARGE = ((1, 4096, 4096, 4096),)
#: the shapes of --small
FEW = ((1, 16, 16, 16), (1, 33, 17, 20), (3, 16, 8, 16))
LAYOUTS = ("plain", "x.T", "y.T", "x.T y.T")
LIBRARIES = ("tapegrad", "torch", "numpy")
DTYPES = ("float32", "float64")

MEAN, LOW, SHARE_LOW, WORST = 0.95, 0.8, 0.03, 0.65
AGAIN = 3
#: with at least `LONG` operations for each thread, the cost of a call is small; `SEVERAL` is the
#: number of products in a cell of fewer
LONG = 2e7
SEVERAL = 32
#: seconds of timed calls of a cell, after a third of that for warm-up; slow calls take longer
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
        count = products_of(cell, threads)
        products = [operands(dtype, *cell) for _ in range(count)]
        found.append(alone(prepare(products), seconds) / count)
    return {"seconds": found}


def products_of(cell: Cell, threads: int) -> int:
    """The number of products of a cell, chosen so that the cost of a call is small."""
    if operations(cell) < LONG:
        return SEVERAL
    return min(SEVERAL, math.ceil(threads * LONG / operations(cell)))


def operations(cell: Cell) -> float:
    """Multiplications and additions of a cell."""
    return 2.0 * math.prod(cell[:4])


def operands(
    dtype: str, batch: int, rows: int, inner: int, columns: int, layout: int
) -> tuple[Any, Any, Any]:
    """x and y in the layout, and an array for the result; matrices if the batch is 1."""
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
        check_native(product)
        return product

    return prepare


# -- the table ------------------------------------------------------------------------------------


def run(report: Report, ask: Callable[..., Any]) -> None:
    """Time all cells; `ask` runs a job in a process of its own and returns its answer."""
    small = "--small" in sys.argv
    shapes = FEW if small else SHAPES + (LARGE if "--large" in sys.argv else ())
    cells: list[Cell] = [(*shape, layout) for shape in shapes for layout in range(len(LAYOUTS))]
    for threads in thread_counts():
        for dtype in DTYPES:
            settings: dict[str, Any] = {"threads": threads, "dtype": dtype}
            settings["seconds"] = 0.002 if small else SECONDS
            times = Times(ask, "products", LIBRARIES, operations, **settings)
            times.measure(cells)
            times.measure(cells)
            times.measure_low(cells, LOW, AGAIN)
            _print(report, times, times.ratios(cells))


def _print(report: Report, times: Times[Cell], ratios: dict[Cell, float]) -> None:
    if not ratios:
        report.say(f"products, {times.title}", "-")
        return
    low = sum(ratio < LOW for ratio in ratios.values()) / len(ratios)
    mean, worst = statistics.geometric_mean(ratios.values()), min(ratios.values())
    print(f"\n{times.title}: {len(ratios)} cells, rate by the better of torch and NumPy")
    report.add("geometric mean", "", mean, MEAN, at_least=True)
    report.add(f"share of cells below {LOW:g}", "", low, SHARE_LOW)
    report.add("worst cell", "", worst, WORST, at_least=True)
    if long := [ratio for cell, ratio in ratios.items() if operations(cell) >= LONG]:
        what = f"geometric mean of {len(long)} cells from {LONG / 1e6:g} MFLOP on"
        report.say(what, f"{statistics.geometric_mean(long):.3g}")
    times.show(ratios, name, few=5, width=34)


def name(cell: Cell) -> str:
    """A cell in words: (batch of) rows x inner x columns, layout."""
    batch, *sizes, layout = cell
    many = f"{batch} of " if batch > 1 else ""
    return f"{many}{' x '.join(map(str, sizes))}, {LAYOUTS[layout]}"
