"""Convolutions of many kinds: GFLOP/s of tapegrad and of torch (oneDNN), in float32.

A cell is one of `LAYERS` with one of three computations: the result, the gradient of the input or
that of the filter. tapegrad runs a compiled function of native kernels, called without arguments. A
cell's ratio is the rate of tapegrad divided by that of torch. Cells below `LOW` are measured again,
in both libraries, up to `AGAIN` times; the shortest time of each library counts.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .grow_cells import Times, thread_counts
from .measure import Report, alone, check_native


class Layer(NamedTuple):
    """A convolution: batch, channels, input size and window."""

    batch: int
    channels: int
    outs: int
    inside: tuple[int, ...]
    window: int
    stride: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def padding(self) -> int:
        return 0 if self.transposed else self.window // 2

    @property
    def outside(self) -> tuple[int, ...]:
        if self.transposed:
            return tuple((n - 1) * self.stride + self.window for n in self.inside)
        return tuple((n + 2 * self.padding - self.window) // self.stride + 1 for n in self.inside)

    @property
    def filter(self) -> tuple[int, ...]:
        first, second = (
            (self.channels, self.outs) if self.transposed else (self.outs, self.channels)
        )
        return (first, second // self.groups, *(self.window for _ in self.inside))

    @property
    def operations(self) -> int:
        """Multiplications and additions, including those with the padding."""
        positions = math.prod(self.inside if self.transposed else self.outside)
        return 2 * self.batch * positions * math.prod(self.filter)


LAYERS: dict[str, Layer] = {
    # ResNet-18 on images of 64x64
    "ResNet, 64, 3x3, 16x16": Layer(8, 64, 64, (16, 16), 3),
    "ResNet, 128, 3x3, 8x8": Layer(8, 128, 128, (8, 8), 3),
    "ResNet, 512, 3x3, 2x2": Layer(8, 512, 512, (2, 2), 3),
    # ResNet-18 on images of 224x224
    "ResNet, 3>64, 7x7/2, 224x224": Layer(8, 3, 64, (224, 224), 7, 2),
    "ResNet, 64, 3x3, 56x56": Layer(8, 64, 64, (56, 56), 3),
    "ResNet, 64>128, 3x3/2, 56x56": Layer(8, 64, 128, (56, 56), 3, 2),
    "ResNet, 64>128, 1x1/2, 56x56": Layer(8, 64, 128, (56, 56), 1, 2),
    "ResNet, 128, 3x3, 28x28": Layer(8, 128, 128, (28, 28), 3),
    "ResNet, 256, 3x3, 14x14": Layer(8, 256, 256, (14, 14), 3),
    "ResNet, 256>512, 3x3/2, 14x14": Layer(8, 256, 512, (14, 14), 3, 2),
    "ResNet, 512, 3x3, 7x7": Layer(8, 512, 512, (7, 7), 3),
    # bottlenecks of ResNet-50
    "ResNet, 64>256, 1x1, 56x56": Layer(8, 64, 256, (56, 56), 1),
    "ResNet, 512>128, 1x1, 28x28": Layer(8, 512, 128, (28, 28), 1),
    # U-Net on images of 128x128
    "U-Net, 64, 3x3, 128x128": Layer(2, 64, 64, (128, 128), 3),
    "U-Net, 256>128, 3x3, 64x64": Layer(2, 256, 128, (64, 64), 3),
    "U-Net, 128>64, 2x2/2 transposed": Layer(2, 128, 64, (64, 64), 2, 2, transposed=True),
    "GAN, 256>128, 4x4/2 transposed": Layer(8, 256, 128, (16, 16), 4, 2, transposed=True),
    # MobileNet, and grouped convolutions
    "MobileNet, 64, depthwise, 56x56": Layer(8, 64, 64, (56, 56), 3, groups=64),
    "MobileNet, 256, depthwise/2, 28x28": Layer(8, 256, 256, (28, 28), 3, 2, groups=256),
    "ResNeXt, 128 in 32, 3x3, 28x28": Layer(8, 128, 128, (28, 28), 3, groups=32),
    "groups, 256 in 4, 3x3, 14x14": Layer(8, 256, 256, (14, 14), 3, groups=4),
    # sequences and volumes
    "audio, 64, 9, 4096": Layer(8, 64, 64, (4096,), 9),
    "audio, 256, 3, 1000": Layer(8, 256, 256, (1000,), 3),
    "video, 64, 3x3x3, 8x28x28": Layer(2, 64, 64, (8, 28, 28), 3),
}
#: the layers of --small
FEW: dict[str, Layer] = {
    "2d": Layer(2, 3, 5, (9, 9), 3, 2),
    "1d in groups": Layer(2, 4, 6, (11,), 3, groups=2),
    "3d transposed": Layer(1, 3, 2, (3, 4, 5), 2, transposed=True),
}
RESULT, INPUT, FILTER = WHAT = ("result", "input gradient", "filter gradient")
LIBRARIES = ("tapegrad", "torch")

MEAN, LOW, WORST = 1.0, 1.0, 0.8
AGAIN = 2
#: seconds of timed calls of a cell, after a third of that for warm-up; slow calls take longer
SECONDS = 0.1

Cell = tuple[str, str]


# -- in a process of one library ------------------------------------------------------------------


def measured(library: str, threads: int, cells: Sequence[Cell], seconds: float) -> dict[str, Any]:
    """Seconds of one call of each cell."""
    prepare = {"tapegrad": _tapegrad, "torch": _torch}[library]
    layers = LAYERS | FEW
    times = [alone(prepare(threads, layers[name], what), seconds) for name, what in cells]
    return {"seconds": times}


def operands(layer: Layer) -> tuple[Any, Any, Any]:
    """The input, the filter and a gradient of the result."""
    rng = np.random.default_rng(0)
    shapes = (
        (layer.batch, layer.channels, *layer.inside),
        layer.filter,
        (layer.batch, layer.outs, *layer.outside),
    )
    return tuple(rng.standard_normal(shape, np.float32) for shape in shapes)  # type: ignore[return-value]


def _torch(threads: int, layer: Layer, what: str) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    x, weight, g = map(torch.from_numpy, operands(layer))
    dims = len(layer.inside)
    steps, borders, ones, none = ([n] * dims for n in (layer.stride, layer.padding, 1, 0))
    geometry = (steps, borders, ones, layer.transposed, none, layer.groups)
    if what == RESULT:
        return lambda: torch.ops.aten.convolution(x, weight, None, *geometry)
    wanted = [what == INPUT, what == FILTER, False]
    return lambda: torch.ops.aten.convolution_backward(g, x, weight, None, *geometry, wanted)


def _tapegrad(threads: int, layer: Layer, what: str) -> Callable[[], Any]:
    import tapegrad
    from tapegrad.nn import functional

    tapegrad.set_num_threads(threads)
    x, weight, g = map(tapegrad.from_numpy, operands(layer))
    kind = "_transpose" if layer.transposed else ""
    convolution = getattr(functional, f"conv{kind}{len(layer.inside)}d")
    given = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    of = {RESULT: None, INPUT: x, FILTER: weight}[what]
    if of is not None:
        of.requires_grad_()

    def call() -> Any:
        out = convolution(x, weight, **given)
        return out if of is None else tapegrad.autograd.grad(out, of, g)

    compiled = tapegrad.compile(call)
    for _ in range(4):
        compiled()
    check_native(compiled)
    return compiled


# -- the table ------------------------------------------------------------------------------------


def run(report: Report, ask: Callable[..., Any]) -> None:
    """Time all cells; `ask` runs a job in a process of its own and returns its answer."""
    small = "--small" in sys.argv
    words = [a.removeprefix("--only=") for a in sys.argv if a.startswith("--only=")]
    names = [n for n in (FEW if small else LAYERS) if all(word in n for word in words)]
    cells: list[Cell] = [(name, what) for name in names for what in WHAT]
    for threads in thread_counts():
        seconds = 0.002 if small else SECONDS
        times = Times(ask, "convolutions", LIBRARIES, _operations, threads=threads, seconds=seconds)
        times.measure(cells)
        times.measure_low(cells, LOW, AGAIN)
        _print(report, times, times.ratios(cells))


def _operations(cell: Cell) -> float:
    return (LAYERS | FEW)[cell[0]].operations


def _print(report: Report, times: Times[Cell], ratios: dict[Cell, float]) -> None:
    if not ratios:
        report.say(f"convolutions, {times.title}", "-")
        return
    print(f"\n{times.title}: {len(ratios)} cells, rate by that of torch")
    mean = statistics.geometric_mean(ratios.values())
    report.add("geometric mean", "", mean, MEAN, at_least=True)
    for what in WHAT:
        some = [ratio for cell, ratio in ratios.items() if cell[1] == what]
        report.say(f"  {what}", f"{statistics.geometric_mean(some):.3g}")
    report.add("worst cell", "", min(ratios.values()), WORST, at_least=True)
    times.show(ratios, ", ".join, few=8, width=54)
