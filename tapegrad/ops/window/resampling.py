"""Resampling: resize a dimension; each new element is a weighted sum of a few old ones.

A `Rule` has the method and the sizes, and `table` computes indices and weights. The transpose of a
rule is a table too, so one primitive is its own gradient, of any order, without scatter-adds.
`interpolate` resamples one dimension after the other; adaptive means are the rule "area".
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.primitive import OPAQUE, Primitive, define
from ..precision import check_floating
from ..table import Sample, op
from .convolution_primitives import in_float32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.tensor import Tensor

# Sums of more terms are products with a mostly zero matrix: a loop's code grows with its terms.
_FEW = 8


class Rule(NamedTuple):
    """How to resample `inside` elements to `outside`; with `back`, the transpose for gradients."""

    kind: str
    inside: int
    outside: int
    scale: float | None = None  # old elements per new one, if not inside / outside
    corners: bool = False  # whether the first and last elements keep their positions
    back: bool = False
    fixed: bool = False  # whether weights are rounded to 16 bits, for uint8 pixels

    @property
    def ratio(self) -> float:
        """Old elements per new one."""
        if self.corners:
            return (self.inside - 1) / (self.outside - 1) if self.outside > 1 else 0.0
        return self.inside / self.outside if self.scale is None else self.scale


def _nearest(rule: Rule) -> Any:
    """Positions are computed in float32 for all dtypes, as in PyTorch."""
    half = np.float32(0.5 if rule.kind == "nearest-exact" else 0.0)
    scale = (
        np.float32(rule.inside) / np.float32(rule.outside)
        if rule.scale is None
        else np.float32(rule.scale)
    )
    positions = np.arange(rule.outside, dtype=np.float32)
    index = np.minimum(np.floor((positions + half) * scale).astype(np.int64), rule.inside - 1)
    return index[None], np.ones((1, rule.outside))


def _centers(rule: Rule) -> Any:
    """The positions of new elements among the old ones."""
    positions = np.arange(rule.outside)
    return positions * rule.ratio if rule.corners else (positions + 0.5) * rule.ratio - 0.5


def _linear(rule: Rule) -> Any:
    position = np.maximum(_centers(rule), 0.0)
    first = np.minimum(position.astype(np.int64), rule.inside - 1)
    part = np.clip(position - first, 0.0, 1.0)
    return np.stack([first, np.minimum(first + 1, rule.inside - 1)]), np.stack([1 - part, part])


def cubic(distance: Any, a: float) -> Any:
    """The weight of an element at a distance; 0 from a distance of 2."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _cubic(rule: Rule) -> Any:
    position = _centers(rule)
    index = np.floor(position).astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(index, 0, rule.inside - 1), cubic(position - index, -0.75)


def _area(rule: Rule) -> Any:
    positions = np.arange(rule.outside)
    start = positions * rule.inside // rule.outside
    stop = -(-(positions + 1) * rule.inside // rule.outside)
    steps = np.arange((stop - start).max())[:, None]
    inside = start + steps < stop
    return np.where(inside, start + steps, start), inside / (stop - start)


def _smooth(rule: Rule) -> Any:
    """Antialiasing: windows widen with the ratio, so that no element is skipped."""
    ratio, reach = rule.ratio, 1.0 if rule.kind == "smooth-linear" else 2.0
    support = reach * max(ratio, 1.0)
    center = (np.arange(rule.outside) + 0.5) * ratio
    start = np.maximum((center - support + 0.5).astype(np.int64), 0)
    stop = np.minimum((center + support + 0.5).astype(np.int64), rule.inside)
    steps = np.arange((stop - start).max())[:, None]
    distance = (start + steps - center + 0.5) / max(ratio, 1.0)
    inside = start + steps < stop
    weight = np.maximum(1 - np.abs(distance), 0) if reach == 1 else cubic(distance, -0.5)
    weight = np.where(inside, weight, 0.0)
    return np.where(inside, start + steps, start), weight / weight.sum(axis=0)


_TABLES = {
    "nearest": _nearest,
    "nearest-exact": _nearest,
    "linear": _linear,
    "cubic": _cubic,
    "area": _area,
    "smooth-linear": _smooth,
    "smooth-cubic": _smooth,
}


def _fixed(index: Any, weight: Any) -> Any:
    """16-bit weights, as in PyTorch for uint8; weights of the same element are added first."""
    weight = weight.copy()
    for later, earlier in itertools.combinations(reversed(range(len(index))), 2):
        same = index[later] == index[earlier]
        weight[earlier] += np.where(same, weight[later], 0.0)
        weight[later] = np.where(same, 0.0, weight[later])
    bits = 0
    while int(0.5 + weight.max() * 2.0 ** (bits + 1)) < 1 << 15:
        bits += 1
    return np.trunc(weight * 2.0**bits + np.copysign(0.5, weight)) / 2.0**bits


@functools.lru_cache(512)
def table(rule: Rule) -> tuple[Any, Any]:
    """Indices and weights, both (terms, results): result i is the sum over terms of column i."""
    if not rule.back:
        index, weight = _TABLES[rule.kind](rule)
        weight = _fixed(index, weight) if rule.fixed else weight
        return np.ascontiguousarray(index), np.ascontiguousarray(weight)
    index, weight = table(rule._replace(back=False))
    taps = [[] for _ in range(rule.inside)]  # type: list[list[tuple[int, float]]]
    for term, position in np.argwhere(weight):
        taps[index[term, position]].append((int(position), float(weight[term, position])))
    terms = max(1, *map(len, taps))
    even = [row + [(row[0][0] if row else 0, 0.0)] * (terms - len(row)) for row in taps]
    pairs = np.array(even).reshape(rule.inside, terms, 2)
    return pairs[..., 0].T.astype(np.int64).copy(), pairs[..., 1].T.copy()


@functools.lru_cache(512)
def _matrix(rule: Rule) -> Any:
    """The table as a matrix (results, elements)."""
    index, weight = table(rule)
    rows = np.zeros((index.shape[1], rule.outside if rule.back else rule.inside))
    np.add.at(rows, (np.arange(index.shape[1]), index), weight)
    return rows


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """A shape as three dimensions, with `axis` in the middle."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _resample(x: Any, *, axis: int, rule: Rule) -> Any:
    module = xp.module(x)
    index, weight = table(rule)
    shape = (*x.shape[:axis], index.shape[1], *x.shape[axis + 1 :])
    if len(index) == 1 and (weight == 1).all():
        return module.take(x, module.asarray(index[0]), axis)
    wide = xp.widened(x)
    if len(index) > _FEW:
        matrix = module.asarray(_matrix(rule)).astype(wide.dtype)
        before, n, after = _around(x.shape, axis)
        if after == 1:
            return (wide.reshape(before, n) @ matrix.T).reshape(shape).astype(x.dtype)
        return (matrix @ wide.reshape(before, n, after)).reshape(shape).astype(x.dtype)
    weights = module.asarray(weight).astype(wide.dtype)
    weights = weights.reshape(*weight.shape, *[1] * (x.ndim - 1 - axis))
    out = module.zeros(shape, wide.dtype)
    for positions, factors in zip(index, weights, strict=True):
        out += module.take(wide, module.asarray(positions), axis) * factors
    return out.astype(x.dtype, copy=False)


def _resample_in_loops(b: Any, out: Any, x: Any, *, axis: int, rule: Rule) -> None:
    index, weight = table(rule)
    if len(index) == 1 and (weight == 1).all():
        b.copy(out, b.index(x, [b.constant(index[0])], [axis]))
        return
    if len(index) > _FEW:
        matrix = b.constant(_matrix(rule).astype(out.dtype))
        before, n, after = _around(x.shape, axis)
        x = b.ordered(x)
        if after == 1:
            b.product(out.reshape(before, len(matrix)), x.reshape(before, n), matrix.T)
        else:
            to = out.reshape(before, len(matrix), after)
            b.product(to, matrix, x.reshape(before, n, after))
        return
    body = b.over(out.shape)
    total = None
    for positions, factors in zip(index, weight.astype(out.dtype), strict=True):
        given = {
            "x": body.read(b.index(x, [b.constant(positions)], [axis])),
            "w": body.read(b.constant(factors.reshape(-1, *[1] * (x.ndim - 1 - axis)))),
        }
        if total is not None:
            given["t"] = total
        total = body.compute("x * w" if total is None else "t + x * w", out.dtype, **given)
    body.store(out, total)
    body.done()


resample_: Primitive = define(
    "resample",
    _resample,
    kind=OPAQUE,
    lower=in_float32(_resample_in_loops),
    vjp=lambda g, axis, rule: resample_(g, axis=axis, rule=rule._replace(back=not rule.back)),
    batch=adapted(axis=shifted),
    linear=True,
)


def resampled(x: Any, rules: list[Rule]) -> Any:
    """Resample the last dimensions of `x`, with one rule each; skip rules that change nothing."""
    first = x._array.ndim - len(rules)
    for axis, rule in enumerate(rules, first):
        index, weight = table(rule)
        same = rule.inside == rule.outside and (np.arange(rule.inside) == index[0]).all()
        if not (same and (weight[0] == 1).all()):
            x = resample_(x, axis=axis, rule=rule)
    return x


def _in_bytes(x: Any, rules: list[Rule]) -> Any:
    """Resample uint8 pixels: first the width, then the height, rounded after each."""
    out = x.float()
    for rule in reversed(rules):
        axis = out._array.ndim - 1 if rule is rules[-1] else out._array.ndim - 2
        out = (
            (resample_(out, axis=axis, rule=rule._replace(fixed=True)) + 0.5).floor().clamp(0, 255)
        )
    return out.to(x.dtype)


# -- interpolate ---------------------------------------------------------------------------------

#: by mode: the rule, and the number of dimensions that it needs, None for any
_MODES: dict[str, tuple[str, int | None]] = {
    "nearest": ("nearest", None),
    "nearest-exact": ("nearest-exact", None),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "bicubic": ("cubic", 2),
    "trilinear": ("linear", 3),
    "area": ("area", None),
}


def _target(input: Any, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The output size, and a factor for each dimension, which is None if a size was given."""
    inside = input._array.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate needs either size or scale_factor, and not both")
    given = size if scale_factor is None else scale_factor
    items = list(given) if isinstance(given, (tuple, list)) else [given] * len(inside)
    if len(items) != len(inside):
        raise ValueError(
            f"interpolate: an input of shape {tuple(input.shape)} needs {len(inside)} sizes or "
            f"factors, got {given!r}"
        )
    if scale_factor is None:
        return tuple(operator.index(n) for n in items), [None] * len(items)
    factors = [float(s) for s in items]
    found = tuple(math.floor(n * s) for n, s in zip(inside, factors, strict=True))
    if math.prod(found) >= 1 << 60:
        raise RuntimeError(f"interpolate: no memory can hold a result of size {found}")
    return found, list(factors)


def _check_mode(input: Any, mode: str, align_corners: bool | None, antialias: bool) -> str:
    """The rule of a mode; raises if the mode does not fit the input."""
    if mode not in _MODES:
        raise NotImplementedError(f"interpolate: mode must be one of {list(_MODES)}, got {mode!r}")
    kind, dims = _MODES[mode]
    rank = input._array.ndim
    if rank not in (3, 4, 5) or dims not in (None, rank - 2):
        raise NotImplementedError(
            f"interpolate: mode {mode!r} needs an input of "
            f"{'3, 4 or 5' if dims is None else dims + 2} dimensions, got shape "
            f"{tuple(input.shape)}"
        )
    if dims is None and align_corners is not None:
        raise ValueError(f"interpolate: mode {mode!r} takes no align_corners")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("interpolate: antialias needs mode 'bilinear' or 'bicubic'")
    bytes_too = mode in ("bilinear", "bicubic") and input._array.dtype == np.uint8
    if kind in ("nearest", "nearest-exact"):
        bytes_too = input._array.dtype == np.uint8
    if not bytes_too:
        check_floating(input, f"interpolate with mode {mode!r}")
    return f"smooth-{kind}" if antialias else kind


def _choice_on_gpu(
    input: Any, size: Any, scale_factor: Any, mode: str, *options: Any
) -> str | None:
    """As in PyTorch: float32, but any dtype for mode "area"."""
    return None if mode == "area" else "full"


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 3, 4), 7),
        Sample((1, 2, 4, 5), scale_factor=[2.0, 0.6], mode="nearest-exact"),
        Sample((2, 2, 5), [8], mode="linear"),
        Sample((1, 2, 4, 3), scale_factor=1.7, mode="bilinear"),
        Sample((1, 2, 4, 3), [3, 6], mode="bilinear", align_corners=True),
        Sample((1, 1, 5, 4), scale_factor=1.5, mode="bicubic", recompute_scale_factor=True),
        Sample((1, 1, 12, 4), [3, 5], mode="bicubic", antialias=True),
        Sample((1, 1, 7, 4), [3, 5], mode="bilinear", antialias=True),
        Sample((1, 1, 3, 2, 4), 4, mode="trilinear"),
        Sample((1, 2, 20, 5), [2, 2], mode="area"),
        Sample((2, 1, 3, 3), [3, 3], mode="bilinear"),
    ],
    autocast={"cuda": _choice_on_gpu},
)
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """The input (batch, channels, ...) resampled to `size`, or by `scale_factor`.

    One to three dimensions follow the channels. `mode` is "nearest", "nearest-exact", "linear" (one
    dimension), "bilinear" or "bicubic" (two), "trilinear" (three) or "area". With `align_corners`
    the centres of the outermost elements coincide, else their outer edges.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.interpolate(tapegrad.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    >>> F.interpolate(tapegrad.tensor([[[1.0, 3.0]]]), size=3, mode="linear", align_corners=True)
    tensor([[[1., 2., 3.]]])
    """
    kind = _check_mode(input, mode, align_corners, antialias)
    wanted, factors = _target(input, size, scale_factor)
    inside = tuple(input._array.shape[2:])
    if min(wanted) < 1 or min(inside) < 1 or input._array.shape[1] < 1:
        raise RuntimeError(
            f"interpolate needs sizes of at least 1: input {tuple(input.shape)}, output {wanted}"
        )
    if recompute_scale_factor and scale_factor is None:
        raise ValueError("interpolate: recompute_scale_factor needs a scale_factor")
    if recompute_scale_factor or kind == "area":
        factors = [None] * len(factors)
    rules = [
        Rule(kind, n, k, None if f is None else 1.0 / f, bool(align_corners))
        for n, k, f in zip(inside, wanted, factors, strict=True)
    ]
    if kind not in ("nearest", "nearest-exact") and input._array.dtype == np.uint8:
        return _in_bytes(input, rules)
    out = resampled(input, rules)
    return input.clone() if out is input else out


@op(
    module="nn.functional",
    torch="torch.nn.functional.interpolate",
    samples=lambda: [Sample((1, 2, 3, 3), scale_factor=2)],
    autocast={"cuda": _choice_on_gpu},
)
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """`interpolate` by its old name.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.upsample(tapegrad.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


@op(
    module="nn.functional",
    torch="torch.nn.functional.interpolate",
    samples=lambda: [Sample((1, 2, 3, 3), scale_factor=2)],
)
def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Any:
    """`interpolate` with mode "nearest".

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.upsample_nearest(tapegrad.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor, "nearest")


@op(module="nn.functional", torch=None, samples=lambda: [Sample((1, 2, 3, 3), [5, 4])])
def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Any:
    """`interpolate` with mode "bilinear" and `align_corners`.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.upsample_bilinear(tapegrad.arange(4.0).reshape(1, 1, 2, 2), size=(2, 3))
    tensor([[[[0.0000, 0.5000, 1.0000],
              [2.0000, 2.5000, 3.0000]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)
