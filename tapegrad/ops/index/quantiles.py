"""Quantiles: the values below which given fractions of a tensor lie.

Computed by sorting and interpolation between neighbours. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import int64
from ...core.tensor import Tensor
from ..checks import checked
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..elementwise.copies import cast
from ..precision import check_floating
from ..reduce.reductions import sum_
from ..reduce.sorting import sort
from ..shape.dims import normal_dim
from ..shape.expanding import expand_
from ..shape.reordering import movedim
from ..shape.reshaping import reshape_, unsqueeze
from ..shape.slicing import narrow, select
from ..table import In, Sample, op
from .gather import gather_

if TYPE_CHECKING:
    from ..annotations import Operand


def _quantile_samples() -> list[Sample]:
    return [
        Sample(In(3, 5, distinct=True), 0.3),
        Sample(In(3, 5, distinct=True), 0.6, 1, True),
        Sample(In(5, 3, distinct=True), 0.3, 0, interpolation="nearest"),
        Sample(In(7, distinct=True), In(values=[0.0, 0.31, 1.0], grad=False)),
        Sample(In(2, 7, distinct=True), In(values=[0.2, 0.9], grad=False), -1, False),
        Sample(In(), 0.5, 0),
    ]


@op(samples=_quantile_samples, autocast={"cpu": "full"})
def quantile(
    input: Tensor,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """The value below which a fraction q of a dimension lies; a vector q adds a first dimension.

    `interpolation` is "linear", "lower", "higher", "nearest" or "midpoint".

    >>> import tapegrad
    >>> tapegrad.quantile(tapegrad.tensor([0.0, 1.0, 2.0, 3.0]), 0.5)
    tensor(1.5000)
    """
    return _quantile_of("quantile", input, q, dim, keepdim, interpolation)


@op(samples=_quantile_samples, autocast={"cpu": "full"})
def nanquantile(
    input: Tensor,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:
    """The quantile of the values that are not NaN, if there are any.

    >>> import tapegrad
    >>> tapegrad.nanquantile(tapegrad.tensor([0.0, tapegrad.nan, 1.0, 2.0]), 0.5)
    tensor(1.)
    """
    return _quantile_of("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile_of(
    what: str, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str
) -> Any:
    check_floating(input, what)
    modes = ("linear", "lower", "higher", "midpoint", "nearest")
    if interpolation not in modes:
        raise RuntimeError(f"{what}: interpolation must be one of {modes}, got {interpolation!r}")
    if not input._array.size:
        raise RuntimeError(f"{what} needs a tensor that is not empty")
    shares = q if isinstance(q, Tensor) else input.new_tensor(q)
    if shares._array.ndim > 1:
        raise RuntimeError(f"{what}: q must be a number or a vector, got {tuple(shares.shape)}")
    if shares.dtype is not input.dtype:
        raise RuntimeError(f"{what}: q must be of the tensor's dtype {input.dtype}")
    shares = checked(shares, low=0, high=1, message=f"{what}: q must lie between 0 and 1, got {{}}")
    rank = input._array.ndim
    d = normal_dim(0 if dim is None else dim, rank)
    x = reshape_(input, shape=(input._array.size,)) if dim is None or not rank else input
    ordered = sort(movedim(x, d if dim is not None else 0, -1), -1).values
    row = reshape_(shares, shape=(shares._array.size,))
    last = ordered._array.ndim - 1
    size = ordered._array.shape[last]
    if what == "nanquantile":
        known = sum_(cast(c.equal(ordered, ordered), dtype=int64), dims=(last,), keepdim=True)
        most = extremes.clamp_low(known - 1, 0).to(input.dtype)
        found = _at_places(ordered, most * row, interpolation)
    else:
        place = expand_(row * (size - 1), shape=(*ordered._array.shape[:last], *row._array.shape))
        found = _at_places(ordered, place, interpolation)
        end = narrow(ordered, -1, size - 1, 1)  # NaN if there is one, as NaN is sorted last
        found = c.where(c.isnan(end), end, found)
    found = movedim(found, -1, 0)
    if keepdim:
        for i in range(rank) if dim is None else (d,) if rank else ():
            found = unsqueeze(found, i + 1)
    return found if shares._array.ndim else select(found, 0, 0)


def _at_places(ordered: Any, place: Any, interpolation: str) -> Any:
    """Values of the sorted last dimension at fractional positions, between two neighbours."""
    d = ordered._array.ndim - 1
    if interpolation == "nearest":
        return gather_(ordered, place.round().long(), dim=d)
    low, high = place.floor(), place.ceil()
    below, above = (gather_(ordered, at.long(), dim=d) for at in (low, high))
    if interpolation == "lower":
        return below
    if interpolation == "higher":
        return above
    weight: Any = 0.5 if interpolation == "midpoint" else place - low
    return below + (above - below) * weight
