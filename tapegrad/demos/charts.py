"""The demos' pictures: curves over steps, grids of small images, fields of two variables.

Comes in: numbers. Each function draws into a box of a `Picture` that the demo saves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .picture import CURVES, GREY, INK, PALE, Picture


class Box(NamedTuple):
    """An area of a picture, in pixels."""

    left: int
    top: int
    right: int
    bottom: int


def curves(
    picture: Picture,
    box: Box,
    title: str,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    log: bool = False,
) -> None:
    """Curves {name: (xs, ys)} in one pair of axes, optionally with a logarithmic vertical axis."""
    picture.text(box.left, box.top, title, INK, 20, bold=True)
    left, top, right, bottom = box.left + 76, box.top + 52, box.right - 12, box.bottom - 56
    shape = (lambda y: np.log10(np.maximum(y, 1e-300))) if log else np.asarray
    drawn = [(name, np.asarray(xs, float), shape(ys)) for name, (xs, ys) in lines.items()]
    first, last = min(xs.min() for _, xs, _ in drawn), max(xs.max() for _, xs, _ in drawn)
    xticks = ticks(first, last)
    last = max(last, xticks[1])  # the curves end at the right edge, wherever the last tick is
    low, high = min(ys.min() for *_, ys in drawn), max(ys.max() for *_, ys in drawn)
    yticks = ticks(low, high, 1.0 if log and high - low > 1.5 else None)

    def across(x: Any) -> Any:
        return left + (x - xticks[0]) / (last - xticks[0]) * (right - left)

    def down(y: Any) -> Any:
        return bottom - (y - yticks[0]) / (yticks[-1] - yticks[0]) * (bottom - top)

    for y in yticks:
        picture.line([(left, down(y)), (right, down(y))], PALE)
        picture.text(left - 12, down(y) - 7, shown(10**y if log else y), GREY, 14, align=1)
    for x in (x for x in xticks if x - last <= 0.01 * (last - first)):
        picture.line([(across(x), bottom), (across(x), bottom + 6)], GREY)
        picture.text(across(x), bottom + 14, shown(x), GREY, 14, align=0.5)
    picture.line([(left, bottom), (right, bottom)], GREY)
    picture.text((left + right) / 2, bottom + 40, xlabel, GREY, 14, align=0.5)
    at = right
    for i, (name, xs, ys) in reversed(list(enumerate(drawn))):
        colour = CURVES[i % len(CURVES)]
        points = zip(across(xs).tolist(), down(ys).tolist(), strict=True)
        picture.line(list(points), colour, 2.5)
        if len(drawn) > 1:  # write the names above the axes, from the right
            picture.text(at, box.top + 28, name, colour, 14, align=1, bold=True)
            at -= int(len(name) * 11 + 24)


def ticks(low: float, high: float, least: float | None = None) -> list[float]:
    """Round numbers, at most seven, that enclose a range; at least `least` apart."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5, high + 0.5
    size = 10 ** math.floor(math.log10((high - low) / 6))
    step = next(size * s for s in (1, 2, 2.5, 5, 10) if size * s * 6 >= high - low)
    step = max(step, least or 0.0)
    if least is not None:
        step = math.ceil(step / least) * least
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """The text of a number beside an axis."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.4g}"


def gallery(
    picture: Picture,
    left: int,
    top: int,
    images: Any,
    columns: int,
    scale: int,
    gap: int = 6,
    marks: Sequence[str] = (),
) -> tuple[int, int]:
    """Draw small images from 0 (paper) to 1 (ink) in rows, each with a mark below; returns the
    end."""
    images = np.asarray(images, np.float32)
    height, width = images.shape[1] * scale, images.shape[2] * scale
    below = 24 if marks else 0
    for i, image in enumerate(images):
        x, y = left + i % columns * (width + gap), top + i // columns * (height + gap + below)
        picture.image(x, y, paper(image), scale)
        if marks:
            picture.text(x + width / 2, y + height + 6, marks[i], GREY, 13, align=0.5)
    rows = -(-len(images) // columns)
    return left + columns * (width + gap) - gap, top + rows * (height + gap + below) - gap


def paper(image: Any) -> Any:
    """Dark blue ink on light paper."""
    ink, sheet = np.array([0.07, 0.12, 0.28]), np.array([0.955, 0.955, 0.97])
    return sheet + np.asarray(image, np.float32).clip(0, 1)[..., None] * (ink - sheet)


#: colours of a field from its lowest to its highest value
_FIELD = np.array([
    (0.19, 0.21, 0.50), (0.20, 0.44, 0.68), (0.28, 0.66, 0.68),
    (0.62, 0.82, 0.62), (0.95, 0.90, 0.55), (0.93, 0.55, 0.27), (0.72, 0.17, 0.20),
])  # fmt: skip


def field(
    picture: Picture, box: Box, title: str, values: Any, low: float, high: float, xlabel: str
) -> None:
    """Values (rows from the bottom up, columns) as colours between low and high, with a scale."""
    picture.text(box.left, box.top, title, INK, 18, bold=True)
    left, top, right, bottom = box.left, box.top + 38, box.right - 92, box.bottom - 32
    height, width = bottom - top, right - left
    values = np.asarray(values, np.float64)
    rows = np.linspace(values.shape[0] - 1, 0, height)
    columns = np.linspace(0, values.shape[1] - 1, width)
    fine = np.stack([np.interp(columns, np.arange(values.shape[1]), row) for row in values])
    lower = np.floor(rows).astype(int).clip(0, values.shape[0] - 2)
    share = (rows - lower)[:, None]
    fine = fine[lower] * (1 - share) + fine[lower + 1] * share
    picture.image(left, top, coloured((fine - low) / (high - low)))
    picture.rectangle(left, top, right, bottom, GREY)
    picture.text((left + right) / 2, bottom + 12, xlabel, GREY, 14, align=0.5)
    scale = np.linspace(1, 0, height)[:, None].repeat(16, axis=1)
    picture.image(right + 14, top, coloured(scale))
    for part in (0.0, 0.5, 1.0):
        value = low + part * (high - low)
        picture.text(right + 38, bottom - part * height - 6, f"{value:.2g}", GREY, 13)


def coloured(shares: Any) -> Any:
    """Numbers from 0 to 1 as colours."""
    shares = np.asarray(shares, np.float64).clip(0, 1)
    places = np.linspace(0, 1, len(_FIELD))
    return np.stack([np.interp(shares, places, _FIELD[:, i]) for i in range(3)], axis=-1)
