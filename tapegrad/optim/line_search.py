"""A line search for a step that meets the strong Wolfe conditions, as in PyTorch's LBFGS.

Comes in: a function of the step's length that returns loss and gradient. Goes out: the length that
was found, with loss and gradient there. Used by `lbfgs.py`; everything but gradients is a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.tensor import Tensor

#: the share of the expected descent that is required, and the share of the slope that may remain
DESCENT, SLOPE = 1e-4, 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """What is known at one length: the loss, its gradient, and the slope along the direction."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def cubic_minimum(a: Point, b: Point, lowest: float, highest: float) -> float:
    """Where the cubic through two points with their slopes is smallest, within bounds."""
    if a.length > b.length:
        a, b = b, a
    mixed = a.slope + b.slope - 3 * _divided(a.loss - b.loss, a.length - b.length)
    square = mixed * mixed - a.slope * b.slope
    if not square >= 0:
        return (lowest + highest) / 2
    root = math.sqrt(square)
    ratio = _divided(b.slope + root - mixed, b.slope - a.slope + 2 * root)
    found = b.length - (b.length - a.length) * ratio
    return min(max(found, lowest), highest)


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    length: float,
    largest: float,
    tolerance: float,
    most: int,
) -> tuple[Point, int]:
    """A point that meets both conditions, or the best one of `most` further evaluations.

    `start` is the point at length 0, `largest` the largest element of the direction; a bracket
    narrower than `tolerance` ends the search. The second result counts the evaluations.
    """
    search = _Search(evaluate, start, most)
    bracket, found = search.bracket(length)
    best = bracket[0] if found else search.zoom(bracket, largest, tolerance)
    return best, search.evaluations


class _Search:
    def __init__(self, evaluate: Callable[[float], Point], start: Point, most: int) -> None:
        self.evaluate, self.start, self.most = evaluate, start, most
        self.evaluations = 0
        self.rounds = 0

    def at(self, length: float) -> Point:
        self.evaluations += 1
        return self.evaluate(length)

    def too_high(self, point: Point) -> bool:
        start = self.start
        return point.loss > start.loss + DESCENT * point.length * start.slope

    def flat(self, point: Point) -> bool:
        return abs(point.slope) <= -SLOPE * self.start.slope

    def bracket(self, length: float) -> tuple[list[Point], bool]:
        """Two points around an acceptable one, or an acceptable one alone and True."""
        before, new = self.start, self.at(length)
        while self.rounds < self.most:
            if self.too_high(new) or (self.rounds > 1 and new.loss >= before.loss):
                return [before, new], False
            if self.flat(new):
                return [new], True
            if new.slope >= 0:
                return [before, new], False
            nearest = new.length + 0.01 * (new.length - before.length)
            length = cubic_minimum(before, new, nearest, 10 * new.length)
            before, new = new, self.at(length)
            self.rounds += 1
        return [self.start, new], False

    def zoom(self, bracket: list[Point], largest: float, tolerance: float) -> Point:
        """The lower end of the bracket, narrowed until it is acceptable or evaluations run out."""
        slow = False
        low, high = _order(bracket)
        while self.rounds < self.most:
            lengths = sorted(p.length for p in bracket)
            if (lengths[1] - lengths[0]) * largest < tolerance:
                break
            length, slow = _inside(cubic_minimum(bracket[0], bracket[1], *lengths), lengths, slow)
            new = self.at(length)
            self.rounds += 1
            if self.too_high(new) or new.loss >= bracket[low].loss:
                bracket[high] = new
                low, high = _order(bracket)
                continue
            done = self.flat(new)
            if not done and new.slope * (bracket[high].length - bracket[low].length) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
            if done:
                break
        return bracket[low]


def _order(bracket: list[Point]) -> tuple[int, int]:
    """The indices of the lower and the higher of two points."""
    return (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)


def _inside(length: float, lengths: list[float], slow: bool) -> tuple[float, bool]:
    """The length, moved away from an end of the bracket if it stays near one."""
    low, high = lengths
    margin = 0.1 * (high - low)
    if min(high - length, length - low) >= margin:
        return length, False
    if not slow and low < length < high:
        return length, True
    nearer_to_high = abs(length - high) < abs(length - low)
    return (high - margin if nearer_to_high else low + margin), False


def _divided(x: Any, y: Any) -> float:
    """A quotient of floats: infinite or NaN instead of an error."""
    if y != 0:
        return float(x / y)
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)
