"""`torch.optim.lbfgs`: its line search, which optimization packages call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....optim.line_search import DESCENT, SLOPE, Point, cubic_minimum, strong_wolfe


def _cubic_interpolate(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: Any = None
) -> float:
    """The minimum of the cubic through two points with slopes, between them or in `bounds`."""
    none: Any = None  # gradients are not used
    a = Point(float(x1), float(f1), none, float(g1))
    b = Point(float(x2), float(f2), none, float(g2))
    lowest, highest = sorted((a.length, b.length)) if bounds is None else map(float, bounds)
    return cubic_minimum(a, b, lowest, highest)


def _strong_wolfe(
    obj_func: Callable[[Tensor, float, Tensor], tuple[float, Tensor]],
    x: Tensor,
    t: float,
    d: Tensor,
    f: float,
    g: Tensor,
    gtd: Any,
    c1: float = DESCENT,
    c2: float = SLOPE,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, Tensor, float, int]:
    """Search along `d`: loss, gradient and length of the step, and number of evaluations."""
    if (c1, c2) != (DESCENT, SLOPE):
        raise NotImplementedError(
            f"the line search has the conditions c1={DESCENT} and c2={SLOPE}, got {c1} and {c2}"
        )

    def evaluate(length: float) -> Point:
        loss, gradient = obj_func(x, length, d)
        return Point(length, float(loss), gradient, gradient.dot(d).item())

    start = Point(0.0, float(f), g, float(gtd))
    largest = float(d.abs().max())
    best, evaluations = strong_wolfe(
        evaluate, start, float(t), largest, float(tolerance_change), max_ls
    )
    return best.loss, best.gradient, best.length, evaluations
