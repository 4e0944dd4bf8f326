"""Sampling of images and volumes at given positions: `grid_sample` and `affine_grid`.

Both are made of other operations. The elements around a position are gathered, with weights that
depend on the position, so gradients reach the image and the positions.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.dtypes import int64
from ...core.tensor import wrap
from ..elementwise import comparison as c
from ..elementwise.copies import cast
from ..index.gather import gather_
from ..linalg.matmul import matmul
from ..precision import check_floating, check_same_dtype, rounded, widened
from ..shape.expanding import expand_
from ..shape.reordering import swapped
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.tensor import Tensor

# -- positions -----------------------------------------------------------------------------------


def _unnormalized(position: Any, n: int, corners: bool) -> Any:
    """A position in [-1, 1], converted to a fractional index of n elements."""
    return (position + 1) * ((n - 1) / 2) if corners else ((position + 1) * n - 1) / 2


def _clipped(position: Any, n: int) -> Any:
    """A position clamped to the elements; at and beyond the ends it has no gradient."""
    limited = position.detach().clamp(0, n - 1)
    return c.where(c.logical_and(position > 0, position < n - 1), position, limited)


def _reflected(position: Any, n: int, corners: bool) -> Any:
    """A position reflected at the borders as often as needed."""
    low, span = (0.0, float(n - 1)) if corners else (-0.5, float(n))
    if span == 0:
        return position * 0
    far = position - low
    far = c.where(far < 0, -far, far)
    flips = (far.detach() / span).floor()
    rest = far - flips * span
    back = c.equal(flips - 2 * (flips / 2).floor(), 1)
    return c.where(back, span - rest, rest) + low


def _within(position: Any, n: int, padding_mode: str, corners: bool) -> Any:
    """A position after the padding mode is applied."""
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        position = _reflected(position, n, corners)
    return _clipped(position, n)


# -- elements ------------------------------------------------------------------------------------


def _element(flat: Any, whole: list[Any], sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """The elements at integer positions, and whether they are inside; others give element 0."""
    inside: Any = None
    for position, n in zip(whole, sizes, strict=True):
        here = c.logical_and(position >= 0, position <= n - 1)
        inside = here if inside is None else c.logical_and(inside, here)
    index: Any = 0
    for position, n in zip(whole, sizes, strict=True):
        index = index * n + cast(c.where(inside, position, 0.0), dtype=int64)
    shape = (*flat._array.shape[:2], index._array.shape[-1])
    return gather_(flat, expand_(index, shape=shape), dim=2), inside


def _linear(flat: Any, positions: list[Any], sizes: tuple[int, ...]) -> Any:
    """The elements around each position, with linear weights."""
    below = [p.detach().floor() for p in positions]
    total: Any = None
    for steps in itertools.product((0, 1), repeat=len(positions)):
        whole = [p + step for p, step in zip(below, steps, strict=True)]
        value, inside = _element(flat, whole, sizes)
        weight: Any = None
        for position, low, step in zip(positions, below, steps, strict=True):
            near = position - low if step else low + 1 - position
            weight = near if weight is None else weight * near
        part = value * c.where(inside, weight, 0.0)
        total = part if total is None else total + part
    return total


def _nearest(flat: Any, positions: list[Any], sizes: tuple[int, ...]) -> Any:
    """The element nearest to each position. The gradient of positions is 0, not None."""
    value, inside = _element(flat, [p.detach().round() for p in positions], sizes)
    still: Any = 1
    for position in positions:
        still = still + position * 0
    return value * c.where(inside, still, 0.0)


def _cubic_weights(part: Any) -> list[Any]:
    """The weights of two elements before and two after a position, `part` after the second."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _cubic(
    flat: Any, positions: list[Any], sizes: tuple[int, ...], mode: str, corners: bool
) -> Any:
    """Sixteen weighted elements around each position; padding is applied to each element."""
    below = [p.detach().floor() for p in positions]
    weights = [_cubic_weights(p - low) for p, low in zip(positions, below, strict=True)]
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
    """Check the arguments; return the number of dimensions that are sampled."""
    shape, given = tuple(input._array.shape), tuple(grid._array.shape)
    dims = len(shape) - 2
    if dims not in (2, 3) or len(given) != dims + 2 or given[-1] != dims:
        raise RuntimeError(
            "grid_sample needs an input (batch, channels, height, width) with a grid (batch, "
            "height, width, 2), or a volume with a grid of 5 dimensions and points of 3 numbers; "
            f"got shapes {shape} and {given}"
        )
    if shape[0] != given[0] or 0 in shape[2:]:
        raise RuntimeError(
            f"grid_sample: input {shape} and grid {given} need the same batch, and the input "
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
    """The input at positions (x, y) or (x, y, z) in [-1, 1], which `grid` has for each output.

    For images `input` is (batch, channels, height, width), `grid` (batch, out height, out width, 2)
    and the result (batch, channels, out height, out width). (-1, -1) is the upper left corner: the
    centre of its element with `align_corners`, else its outer edge. `mode` is "bilinear", "nearest"
    or "bicubic"; `padding_mode` gives what is outside: "zeros", the "border" or a "reflection".

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> image = tapegrad.arange(4.0).reshape(1, 1, 2, 2)
    >>> grid = tapegrad.tensor([[[[-1.0, -1.0], [0.0, 0.0]]]])
    >>> F.grid_sample(image, grid, align_corners=True)
    tensor([[[[0.0000, 1.5000]]]])
    """
    dims = _check_sampling(input, grid, mode, padding_mode)
    corners = bool(align_corners)
    n, channels, *rest = input._array.shape
    sizes = tuple(rest)
    outside = tuple(grid._array.shape[1:-1])
    count = math.prod(outside)
    flat = reshape_(widened(input), shape=(n, channels, math.prod(sizes)))
    rows = reshape_(widened(grid), shape=(n, 1, count, dims))
    positions = [
        _unnormalized(rows.select(3, dims - 1 - axis), size, corners)
        for axis, size in enumerate(sizes)
    ]
    if mode == "bicubic":
        out = _cubic(flat, positions, sizes, padding_mode, corners)
    else:
        positions = [
            _within(p, size, padding_mode, corners)
            for p, size in zip(positions, sizes, strict=True)
        ]
        out = (_linear if mode == "bilinear" else _nearest)(flat, positions, sizes)
    return reshape_(rounded(out, input), shape=(n, channels, *outside))


# -- grids ---------------------------------------------------------------------------------------


def _axis(n: int, corners: bool) -> Any:
    """The positions of n elements in [-1, 1]."""
    positions = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    return positions if corners or n == 0 else positions * ((n - 1) / n)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 2, 3), [2, 1, 3, 4], align_corners=False),
        Sample((1, 2, 3), [1, 1, 2, 3], align_corners=True),
        Sample((1, 3, 4), [1, 2, 2, 3, 2], False),
    ],
)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """The grid for `grid_sample` that applies affine maps (batch, 2, 3) or (batch, 3, 4).

    `size` is that of the output: (batch, channels, height, width) for maps (batch, 2, 3), with the
    result (batch, height, width, 2).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> identity = tapegrad.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> F.affine_grid(identity, (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
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
    positions = wrap(xp.module(theta._array).asarray(base).astype(theta._array.dtype))
    return reshape_(matmul(positions, swapped(theta)), shape=(sizes[0], *sizes[2:], dims))
