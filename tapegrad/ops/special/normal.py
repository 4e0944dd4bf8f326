"""The normal distribution and entropies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.primitive import Primitive
from ..elementwise.comparison import equal, less_equal, logical_and, where
from ..elementwise.exponentials import exp, log, log1p
from ..elementwise.functions import normal_cdf, special_kernel
from ..families import binary, unary
from ..table import Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor

S = "special"


@op(casts=True, module=S, samples=lambda: [Sample((3, 4)), Sample(())])
def ndtr(input: Tensor) -> Any:
    """The distribution function of the standard normal: (1 + erf(x / sqrt(2))) / 2.

    >>> import tapegrad
    >>> tapegrad.special.ndtr(tapegrad.tensor([0.0, 1.0]))
    tensor([0.5000, 0.8413])
    """
    return normal_cdf(input)


erfcx: Primitive = unary(
    "erfcx",
    special_kernel("erfcx"),
    lambda g, x, out: g * (2 * x * out - 2 / math.sqrt(math.pi)),
    None,
    scipy=True,
    module=S,
    doc="e^(x^2) erfc(x), which does not vanish for large x.",
    example=("tapegrad.special.erfcx(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 0.4276])"),
)
ndtri: Primitive = unary(
    "ndtri",
    special_kernel("ndtri"),
    lambda g, out: g * (math.sqrt(2 * math.pi) * exp(out * out * 0.5)),
    None,
    low=0.2,
    high=0.8,
    scipy=True,
    module=S,
    doc="The x below which a share of the standard normal distribution lies: `ndtr` backwards.",
    example=("tapegrad.special.ndtri(tapegrad.tensor([0.5, 0.9]))", "tensor([0.0000, 1.2816])"),
)
log_ndtr: Primitive = unary(
    "log_ndtr",
    special_kernel("log_ndtr"),
    lambda g, x: g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5))),
    None,
    scipy=True,
    module=S,
    doc="log(ndtr(x)), exact far below 0.",
    example=(
        "tapegrad.special.log_ndtr(tapegrad.tensor([0.0, -10.0]))",
        "tensor([ -0.6931, -53.2313])",
    ),
)

# -- entropies ---------------------------------------------------------------------------------


def _entr(x: Any) -> Any:
    inside = np.where(x > 0, x, 1)
    return np.where(np.isnan(x) | (x > 0), -x * np.log(inside), np.where(x == 0, 0, -math.inf))


entr: Primitive = unary(
    "entr",
    xp.rounded_once(lambda x: _entr(x).astype(x.dtype)),
    lambda g, x: g * (-1 - log(x)),
    "where(x != x or x > 0, -x * log(where(x > 0, x, 1)), where(x == 0, 0, -inf))",
    low=0.2,
    module=S,
    doc="-x log(x), 0 at 0 and -inf below.",
    example=(
        "tapegrad.special.entr(tapegrad.tensor([-1.0, 0.0, 0.5]))",
        "tensor([  -inf, 0.0000, 0.3466])",
    ),
)


def _xlog1py(x: Any, y: Any) -> Any:
    given = x if hasattr(x, "dtype") else y
    # A Python number must not widen the result.
    y = xp.module(given).asarray(y, np.result_type(x, y))
    out = x * np.log1p(y)
    return np.where((x == 0) & ~np.isnan(y), 0, out).astype(out.dtype)


def _xlog1py_slope(g: Any, x: Any, y: Any) -> Any:
    """g log1p(y), but 0 where x is 0 and y is at most -1."""
    lost = logical_and(equal(x, 0), less_equal(y, -1))
    return where(lost, 0.0, g * log1p(where(lost, 0.0, y)))


xlog1py: Primitive = binary(
    "xlog1py",
    xp.rounded_once(_xlog1py),
    (_xlog1py_slope, lambda g, x, y: g * (x / (y + 1))),
    "where(x == 0 and y == y, 0, x * log1p(y))",
    promote="float",
    low=0.3,
    module=S,
    inplace=False,
    numbers="both",
    doc="input * log1p(other), and 0 where input is 0.",
    example=(
        "tapegrad.special.xlog1py(tapegrad.tensor([0.0, 2.0]), tapegrad.tensor([-1.0, 1.0]))",
        "tensor([0.0000, 1.3863])",
    ),
)
