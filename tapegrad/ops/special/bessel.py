"""Bessel and Airy functions, computed by SciPy, which compiled functions call too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core.primitive import Primitive
from ..elementwise.comparison import equal, isinf, where
from ..elementwise.functions import sinc_, special_kernel
from ..elementwise.rounding import sign
from ..families import unary
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor

S = "special"


def _over(a: Any, x: Any, limit: float = 0.5) -> Any:
    """a / x, and `limit` at 0."""
    flat = equal(x, 0)
    return where(flat, limit, a / where(flat, 1.0, x))


# -- first and second kind ---------------------------------------------------------------------

bessel_j0: Primitive = unary(
    "bessel_j0",
    special_kernel("j0"),
    lambda g, x: -g * bessel_j1(x),
    None,
    scipy=True,
    module=S,
    doc="Bessel's function of the first kind and order 0.",
    example=("tapegrad.special.bessel_j0(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 0.7652])"),
)
bessel_j1: Primitive = unary(
    "bessel_j1",
    special_kernel("j1"),
    lambda g, x, out: g * (bessel_j0(x) - _over(out, x)),
    None,
    scipy=True,
    module=S,
    doc="Bessel's function of the first kind and order 1.",
    example=("tapegrad.special.bessel_j1(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.4401])"),
)
bessel_y0: Primitive = unary(
    "bessel_y0",
    special_kernel("y0"),
    lambda g, x: -g * bessel_y1(x),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="Bessel's function of the second kind and order 0; NaN below 0.",
    example=("tapegrad.special.bessel_y0(tapegrad.tensor([1.0, 2.0]))", "tensor([0.0883, 0.5104])"),
)
bessel_y1: Primitive = unary(
    "bessel_y1",
    special_kernel("y1"),
    lambda g, x, out: g * (bessel_y0(x) - out / x),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="Bessel's function of the second kind and order 1; NaN below 0.",
    example=(
        "tapegrad.special.bessel_y1(tapegrad.tensor([1.0, 2.0]))",
        "tensor([-0.7812, -0.1070])",
    ),
)

# -- modified ----------------------------------------------------------------------------------

i0: Primitive = unary(
    "i0",
    special_kernel("i0"),
    lambda g, x: g * i1(x),
    None,
    scipy=True,
    doc="The modified Bessel function of the first kind and order 0.",
    example=("tapegrad.i0(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 1.2661])"),
)
i1: Primitive = unary(
    "i1",
    special_kernel("i1"),
    lambda g, x, out: g * (i0(x) - _over(out, x)),
    None,
    scipy=True,
    module=S,
    doc="The modified Bessel function of the first kind and order 1.",
    example=("tapegrad.special.i1(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.5652])"),
)
i0e: Primitive = unary(
    "i0e",
    special_kernel("i0e"),
    lambda g, x, out: g * (i1e(x) - sign(x) * out),
    None,
    scipy=True,
    module=S,
    doc="e^-|x| times the modified Bessel function of the first kind and order 0.",
    example=("tapegrad.special.i0e(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 0.4658])"),
)
i1e: Primitive = unary(
    "i1e",
    special_kernel("i1e"),
    lambda g, x, out: g * (i0e(x) - sign(x) * out - _over(out, x)),
    None,
    scipy=True,
    module=S,
    doc="e^-|x| times the modified Bessel function of the first kind and order 1.",
    example=("tapegrad.special.i1e(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.2079])"),
)
modified_bessel_k0: Primitive = unary(
    "modified_bessel_k0",
    special_kernel("k0"),
    lambda g, x: -g * modified_bessel_k1(x),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="The modified Bessel function of the second kind and order 0; NaN below 0.",
    example=(
        "tapegrad.special.modified_bessel_k0(tapegrad.tensor([1.0, 2.0]))",
        "tensor([0.4210, 0.1139])",
    ),
)
modified_bessel_k1: Primitive = unary(
    "modified_bessel_k1",
    special_kernel("k1"),
    lambda g, x, out: -g * (modified_bessel_k0(x) + out / x),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="The modified Bessel function of the second kind and order 1; NaN below 0.",
    example=(
        "tapegrad.special.modified_bessel_k1(tapegrad.tensor([1.0, 2.0]))",
        "tensor([0.6019, 0.1399])",
    ),
)
scaled_modified_bessel_k0: Primitive = unary(
    "scaled_modified_bessel_k0",
    special_kernel("k0e"),
    lambda g, x, out: g * (out - scaled_modified_bessel_k1(x)),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="e^x times the modified Bessel function of the second kind and order 0.",
    example=(
        "tapegrad.special.scaled_modified_bessel_k0(tapegrad.tensor([1.0, 2.0]))",
        "tensor([1.1445, 0.8416])",
    ),
)
scaled_modified_bessel_k1: Primitive = unary(
    "scaled_modified_bessel_k1",
    special_kernel("k1e"),
    lambda g, x, out: g * (out - scaled_modified_bessel_k0(x) - out / x),
    None,
    low=0.5,
    high=3.0,
    scipy=True,
    module=S,
    doc="e^x times the modified Bessel function of the second kind and order 1.",
    example=(
        "tapegrad.special.scaled_modified_bessel_k1(tapegrad.tensor([1.0, 2.0]))",
        "tensor([1.6362, 1.0335])",
    ),
)


@op(casts=True, module=S, samples=lambda: [Sample((3, 4)), Sample(())])
def modified_bessel_i0(input: Tensor) -> Any:
    """The modified Bessel function of the first kind and order 0, as `i0`.

    >>> import tapegrad
    >>> tapegrad.special.modified_bessel_i0(tapegrad.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """
    return i0(input)


@op(casts=True, module=S, samples=lambda: [Sample((3, 4)), Sample(())])
def modified_bessel_i1(input: Tensor) -> Any:
    """The modified Bessel function of the first kind and order 1, as `i1`.

    >>> import tapegrad
    >>> tapegrad.special.modified_bessel_i1(tapegrad.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """
    return i1(input)


@op(
    casts=True,
    module=S,
    samples=lambda: [Sample(In(3, 4, low=0.2)), Sample(In(values=[0.0], grad=False))],
)
def spherical_bessel_j0(x: Tensor) -> Any:
    """The spherical Bessel function of order 0: sin(x) / x, 1 at 0 and 0 at infinity.

    >>> import tapegrad
    >>> tapegrad.special.spherical_bessel_j0(tapegrad.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8415])
    """
    far = isinf(x)
    return where(far, 0.0, sinc_(where(far, 1.0, x / math.pi)))


# -- Airy functions ----------------------------------------------------------------------------


def _airy(which: int) -> Any:
    def kernel(x: Any) -> Any:
        from ...core import xp

        wide = xp.widened(x) if hasattr(x, "dtype") else x
        out = xp.special(x).airy(wide)[which]
        return out.astype(x.dtype) if wide is not x else out

    return kernel


airy_slope: Primitive = unary(
    "airy_slope", _airy(1), lambda g, x: g * (x * airy_ai(x)), None, scipy=True, public=False
)
airy_ai: Primitive = unary(
    "airy_ai",
    _airy(0),
    lambda g, x: g * airy_slope(x),
    None,
    scipy=True,
    module=S,
    doc="Airy's function Ai.",
    example=("tapegrad.special.airy_ai(tapegrad.tensor([0.0, 1.0]))", "tensor([0.3550, 0.1353])"),
)
