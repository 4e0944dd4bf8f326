"""Sampling of images and volumes at given places: `grid_sample`, and `affine_grid` for its places.

Both are made of other operations. A place lies between elements; those around it are gathered with
weights that depend on the place, so gradients reach the image and the places.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.dtypes import int64
from ...core.tensor import wrap
from ..elementwise import arithmetic as e
from ..elementwise import comparison as c
from ..index.gather import gather_
from ..linalg.matmul import matmul
from ..precision import check_floating, check_same_dtype, rounded, widened
from ..shape.movement import expand_, reshape_, swapped
from ..table import In, Sample, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.tensor import Tensor

# -- places --------------------------------------------------------------------------------------


def _unnormalized(place: Any, n: int, corners: bool) -> Any:
    """A place in -1..1 as one among n elements."""
    return (place + 1) * ((n - 1) / 2) if corners else ((place + 1) * n - 1) / 2


def _clipped(place: Any, n: int) -> Any:
    """A place kept within the elements; one on the border has no gradient, as outside."""
    limited = place.detach().clamp(0, n - 1)
    return c.where(c.logical_and(place > 0, place < n - 1), place, limited)


def _reflected(place: Any, n: int, corners: bool) -> Any:
    """A place thrown back at the borders as often as needed."""
    low, span = (0.0, float(n - 1)) if corners else (-0.5, float(n))
    if span == 0:
        return place * 0
    far = place - low
    far = c.where(far < 0, -far, far)
    flips = (far.detach() / span).floor()
    rest = far - flips * span
    back = c.equal(flips - 2 * (flips / 2).floor(), 1)
    return c.where(back, span - rest, rest) + low


def _within(place: Any, n: int, padding_mode: str, corners: bool) -> Any:
    """A place after the padding mode."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        place = _reflected(place, n, corners)
    return _clipped(place, n)


# -- elements ------------------------------------------------------------------------------------


def _element(flat: Any, whole: list[Any], sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """The elements at whole places, and whether the places exist; others give element 0."""
    inside: Any = None
    for place, n in zip(whole, sizes, strict=True):
        here = c.logical_and(place >= 0, place <= n - 1)
        inside = here if inside is None else c.logical_and(inside, here)
    index: Any = 0
    for place, n in zip(whole, sizes, strict=True):
        index = index * n + e.cast(c.where(inside, place, 0.0), dtype=int64)
    shape = (*flat._array.shape[:2], index._array.shape[-1])
    return gather_(flat, expand_(index, shape=shape), dim=2), inside


def _linear(flat: Any, places: list[Any], sizes: tuple[int, ...]) -> Any:
    """The elements around each place, weighted by nearness."""
    below = [p.detach().floor() for p in places]
    total: Any = None
    for steps in itertools.product((0, 1), repeat=len(places)):
        whole = [p + step for p, step in zip(below, steps, strict=True)]
        value, inside = _element(flat, whole, sizes)
        weight: Any = None
        for place, low, step in zip(places, below, steps, strict=True):
            near = place - low if step else low + 1 - place
            weight = near if weight is None else weight * near
        part = value * c.where(inside, weight, 0.0)
        total = part if total is None else total + part
    return total


def _nearest(flat: Any, places: list[Any], sizes: tuple[int, ...]) -> Any:
    """The element at the nearest place. The places have the gradient 0, not none."""
    value, inside = _element(flat, [p.detach().round() for p in places], sizes)
    still: Any = 1
    for place in places:
        still = still + place * 0
    return value * c.where(inside, still, 0.0)


def _cubic_weights(part: Any) -> list[Any]:
    """Of the two elements before and the two after, for a place `part` behind the second."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _cubic(flat: Any, places: list[Any], sizes: tuple[int, ...], mode: str, corners: bool) -> Any:
    """Sixteen elements around each place; the padding mode is applied to each of them."""
    below = [p.detach().floor() for p in places]
    weights = [_cubic_weights(p - low) for p, low in zip(places, below, strict=True)]
    total: Any = None
    for steps in itertools.product(range(4), repeat=2):
        whole = [
            _within(low + (step - 1), n, mode, corners)
            for low, step, n in zip(below, steps, sizes, strict=True)
        ]
        value, inside = _element(flat, whole, sizes)
        weight = weights[0][steps[0]] * weights[1][steps[1]]
        part = value * c.where(inside, weight, 0.0)
        total = part if total is None else total + part
    return total


def _check_sampling(input: Any, grid: Any, mode: str, padding_mode: str) -> int:
    """The number of dimensions that are sampled."""
    shape, places = tuple(input._array.shape), tuple(grid._array.shape)
    dims = len(shape) - 2
    if dims not in (2, 3) or len(places) != dims + 2 or places[-1] != dims:
        raise RuntimeError(
            "grid_sample needs an input (batch, channels, height, width) with a grid (batch, "
            "height, width, 2), or a volume with a grid of 5 dimensions and places of 3 numbers; "
            f"got shapes {shape} and {places}"
        )
    if shape[0] != places[0] or 0 in shape[1:]:
        raise RuntimeError(
            f"grid_sample: input {shape} and grid {places} need the same batch, and the input "
            "needs elements"
        )
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"grid_sample: mode must be 'bilinear', 'nearest' or 'bicubic', got {mode!r}"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "grid_sample: padding_mode must be 'zeros', 'border' or 'reflection', got "
            f"{padding_mode!r}"
        )
    if mode == "bicubic" and dims == 3:
        raise RuntimeError("grid_sample: mode 'bicubic' is for images, not volumes")
    check_floating(input, "grid_sample")
    check_same_dtype("grid_sample", input, grid=grid)
    return dims


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 2, 3, 4), In(2, 2, 3, 2, low=-1.3, high=1.3), align_corners=False),
        Sample((1, 2, 3, 4), In(1, 3, 2, 2, low=-1.3, high=1.3), "nearest", "border", True),
        Sample((1, 1, 4, 3), In(1, 2, 2, 2), "bilinear", "reflection", True),
        Sample((1, 1, 4, 3), In(1, 2, 2, 2, low=-1.3, high=1.3), "bicubic", "border", False),
        Sample((1, 1, 3, 3), In(1, 2, 2, 2), "bicubic", "reflection", align_corners=False),
        Sample((1, 1, 2, 3, 2), In(1, 2, 1, 2, 3, low=-1.2, high=1.2), align_corners=True),
    ],
    autocast={"cpu": "full", "cuda": "widest"},
)
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """The input at places (x, y) or (x, y, z) from -1 to 1, which a grid gives for each output."""
    dims = _check_sampling(input, grid, mode, padding_mode)
    corners = bool(align_corners)
    n, channels, *rest = input._array.shape
    sizes = tuple(rest)
    outside = tuple(grid._array.shape[1:-1])
    count = math.prod(outside)
    flat = reshape_(widened(input), shape=(n, channels, math.prod(sizes)))
    rows = reshape_(widened(grid), shape=(n, 1, count, dims))
    places = [
        _unnormalized(rows.select(3, dims - 1 - axis), size, corners)
        for axis, size in enumerate(sizes)
    ]
    if mode == "bicubic":
        out = _cubic(flat, places, sizes, padding_mode, corners)
    else:
        places = [
            _within(p, size, padding_mode, corners) for p, size in zip(places, sizes, strict=True)
        ]
        out = (_linear if mode == "bilinear" else _nearest)(flat, places, sizes)
    return reshape_(rounded(out, input), shape=(n, channels, *outside))


# -- grids ---------------------------------------------------------------------------------------


def _axis(n: int, corners: bool) -> Any:
    """Places of n elements in -1..1."""
    places = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    return places if corners or n == 0 else places * ((n - 1) / n)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 2, 3), [2, 1, 3, 4], align_corners=False),
        Sample((1, 2, 3), [1, 1, 2, 3], align_corners=True),
        Sample((1, 3, 4), [1, 2, 2, 3, 2], False),
    ],
)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """The places that affine maps (batch, 2, 3) or (batch, 3, 4) give to elements of `size`."""
    shape = tuple(theta._array.shape)
    sizes = tuple(int(n) for n in size)
    dims = len(sizes) - 2
    if dims not in (2, 3) or shape != (sizes[0], dims, dims + 1):
        raise ValueError(
            "affine_grid needs maps (batch, 2, 3) with a size (batch, channels, height, width), "
            f"or (batch, 3, 4) with that of volumes; got {shape} and {sizes}"
        )
    if min(sizes) < 1:
        raise ValueError(f"affine_grid needs sizes of at least 1, got {sizes}")
    check_floating(theta, "affine_grid")
    axes = [_axis(n, bool(align_corners)) for n in sizes[2:]]
    grids = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*(g.ravel() for g in grids[::-1]), np.ones(grids[0].size)], axis=-1)
    places = wrap(xp.module(theta._array).asarray(base).astype(theta._array.dtype))
    return reshape_(matmul(places, swapped(theta)), shape=(sizes[0], *sizes[2:], dims))
