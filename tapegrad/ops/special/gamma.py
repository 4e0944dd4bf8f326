"""Incomplete gamma functions, the Hurwitz zeta function, and the multivariate gamma function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core import numeric, xp
from ...core.primitive import Primitive
from ..elementwise.exponentials import exp, log
from ..elementwise.functions import lgamma, polygamma
from ..families import binary, without_gradient
from ..precision import as_floating
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor

S = "special"


def special_pair(name: str) -> Any:
    """A kernel that calls a function of scipy.special; half precision is computed in float32."""

    def kernel(x: Any, y: Any) -> Any:
        arrays = [z for z in (x, y) if hasattr(z, "dtype")]
        if numeric.is_exact(arrays[0].dtype):
            raise NotImplementedError(f"{name} needs floating tensors; use .float() first")
        function = getattr(xp.special(arrays[0]), name)
        if any(numeric.is_half(z.dtype) for z in arrays):
            wide = [xp.widened(z) if hasattr(z, "dtype") else z for z in (x, y)]
            return function(*wide).astype(arrays[0].dtype)
        out = function(x, y)
        dtype = arrays[0].dtype
        return out if out.dtype == dtype or len(arrays) > 1 else out.astype(dtype)

    return kernel


def _density(x: Any, y: Any) -> Any:
    """y^(x - 1) e^-y / gamma(x), the derivative of `igamma` in y."""
    return exp((x - 1) * log(y) - y - lgamma(x))


def _samples() -> list[Sample]:
    first: dict[str, Any] = {"low": 0.5, "high": 3.0, "grad": False}
    return [
        Sample(In(3, 4, **first), In(3, 4, low=0.5, high=3.0)),
        Sample(In(3, 1, **first), In(4, low=0.5, high=3.0)),
        Sample(In(**first), In(0, 3, low=0.5)),
    ]


igamma: Primitive = binary(
    "igamma",
    special_pair("gammainc"),
    (
        without_gradient("igamma in its first argument", "a constant there"),
        lambda g, x, y: g * _density(x, y),
    ),
    None,
    promote="same",
    samples=_samples,
    numbers="none",
    doc="The lower incomplete gamma function of orders `input`, divided by gamma.\n\n"
    "integral of t^(a - 1) e^-t from 0 to x, divided by gamma(a); its gradient is that in x alone.",
    example=(
        "tapegrad.igamma(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 1.0]))",
        "tensor([0.6321, 0.2642])",
    ),
)
igammac: Primitive = binary(
    "igammac",
    special_pair("gammaincc"),
    (
        without_gradient("igammac in its first argument", "a constant there"),
        lambda g, x, y: -g * _density(x, y),
    ),
    None,
    promote="same",
    samples=_samples,
    numbers="none",
    doc="The upper incomplete gamma function, divided by gamma: 1 - `igamma`.",
    example=(
        "tapegrad.igammac(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 1.0]))",
        "tensor([0.3679, 0.7358])",
    ),
)
zeta: Primitive = binary(
    "zeta",
    special_pair("zeta"),
    (
        without_gradient("special.zeta in its first argument", "a constant there"),
        lambda g, x, y: -g * x * zeta(x + 1, y),
    ),
    None,
    promote="float",
    module=S,
    inplace=False,
    samples=lambda: [
        Sample(In(3, 4, low=1.5, high=3.0, grad=False), In(3, 4, low=0.5, high=3.0)),
        Sample(In(3, 1, low=1.5, high=3.0, grad=False), In(4, low=0.5, high=3.0)),
        Sample(2.0, In(3, low=0.5, high=3.0)),
    ],
    numbers="both",
    doc="Hurwitz's zeta function: the sum of (k + other)^-input over k from 0.\n\n"
    "Its gradient is that in `other` alone.",
    example=(
        "tapegrad.special.zeta(tapegrad.tensor([2.0, 4.0]), tapegrad.tensor([1.0, 1.0]))",
        "tensor([1.6449, 1.0823])",
    ),
)


@op(
    casts=True,
    samples=lambda: [Sample(In(3, 4, low=1.2, high=3.0), 2), Sample(In(low=1.2, high=3.0), p=3)],
    inplace=True,
)
def mvlgamma(input: Tensor, p: int) -> Any:
    """The logarithm of the p-dimensional gamma function, for input above (p - 1) / 2.

    p (p - 1) / 4 log(pi) + the sum of lgamma(input - i / 2) over i from 0 to p - 1

    >>> import tapegrad
    >>> tapegrad.mvlgamma(tapegrad.tensor([2.0, 3.0]), 2)
    tensor([0.4516, 1.5502])
    """
    if p < 1:
        raise RuntimeError(f"mvlgamma needs p of at least 1, got {p}")
    x = as_floating(input, "mvlgamma")
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for i in range(p):
        total = lgamma(x - i / 2) + total
    return total


@op("polygamma", casts=True, module=S, samples=lambda: [Sample(1, In(3, low=0.5, high=3.0))])
def _polygamma(n: int, input: Tensor) -> Any:
    """The n-th derivative of digamma, as `tapegrad.polygamma`.

    >>> import tapegrad
    >>> tapegrad.special.polygamma(1, tapegrad.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    return polygamma(n, input)
