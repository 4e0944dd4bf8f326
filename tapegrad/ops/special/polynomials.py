"""Chebyshev, Hermite, Laguerre and Legendre polynomials, computed by SciPy.

Degrees are truncated to integers and may be a tensor; a negative degree gives 0. There are no
gradients, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.primitive import ELEMENTWISE, define
from ..families import without_gradient
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ..annotations import Operand

S = "special"


def _evaluated(name: str) -> Callable[[Any, Any], Any]:
    return lambda n, x: getattr(xp.special(x), f"eval_{name}")(n, x)


def _second(sign: int) -> Callable[[Any, Any], Any]:
    """The third and fourth kind: u(n) - u(n - 1) and u(n) + u(n - 1) of the second kind u."""

    def evaluate(n: Any, x: Any) -> Any:
        u = _evaluated("chebyu")
        return u(n, x) + sign * np.where(n > 0, u(n - 1, x), 0)

    return evaluate


def _polynomial(
    name: str, evaluate: Callable[[Any, Any], Any], doc: str, shifted: bool, shown: str
) -> None:
    """Define an op of points x and degrees; a `shifted` one is evaluated at 2 x - 1."""

    def kernel(x: Any, n: Any) -> Any:
        given = next(z for z in (x, n) if hasattr(z, "dtype"))
        dtype, module = given.dtype, xp.module(given)
        degree = np.trunc(module.asarray(n, np.float64)).astype(np.int64)
        point = module.asarray(x, np.float64)
        out = evaluate(np.maximum(degree, 0), 2 * point - 1 if shifted else point)
        return np.where(degree < 0, 0.0, out).astype(dtype)

    primitive = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        promote="float",
        vjp=(
            without_gradient(f"special.{name}", "powers of the tensor"),
            without_gradient(f"special.{name}", "powers of the tensor"),
        ),
    )

    def body(input: Operand, n: Operand) -> Any:
        return primitive(input, n)

    body.__name__ = name
    example = f"tapegrad.special.{name}(tapegrad.tensor([0.5, 2.0]), 2)"
    body.__doc__ = f"{doc} of degree n; no gradient.\n\n>>> import tapegrad\n>>> {example}\n{shown}"
    op(
        module=S,
        differentiable=False,
        casts=True,
        samples=lambda: [
            Sample(In(3, 4, grad=False), 3),
            Sample(In(2, 1, grad=False), In(values=[0.0, 1.0, 2.0, 5.0], grad=False)),
            Sample(0.5, In(values=[-1.0, 4.0], grad=False)),
        ],
    )(body)


_CHEBYSHEV = {
    "t": (_evaluated("chebyt"), "first", "tensor([-0.5000,  7.0000])", "tensor([-1., 17.])"),
    "u": (_evaluated("chebyu"), "second", "tensor([ 0., 15.])", "tensor([-1., 35.])"),
    "v": (_second(-1), "third", "tensor([-1., 11.])", "tensor([-1., 29.])"),
    "w": (_second(1), "fourth", "tensor([ 1., 19.])", "tensor([-1., 41.])"),
}
for _letter, (_function, _kind, _shown, _moved) in _CHEBYSHEV.items():
    _doc = f"Chebyshev's polynomial of the {_kind} kind"
    _polynomial(f"chebyshev_polynomial_{_letter}", _function, _doc, False, _shown)
    _polynomial(
        f"shifted_chebyshev_polynomial_{_letter}", _function, f"{_doc}, at 2 x - 1,", True, _moved
    )
_polynomial(
    "hermite_polynomial_h",
    _evaluated("hermite"),
    "Hermite's polynomial, as physicists write it,",
    False,
    "tensor([-1., 14.])",
)
_polynomial(
    "hermite_polynomial_he",
    _evaluated("hermitenorm"),
    "Hermite's polynomial, as statisticians write it,",
    False,
    "tensor([-0.7500,  3.0000])",
)
_polynomial(
    "laguerre_polynomial_l",
    _evaluated("laguerre"),
    "Laguerre's polynomial",
    False,
    "tensor([ 0.1250, -1.0000])",
)
_polynomial(
    "legendre_polynomial_p",
    _evaluated("legendre"),
    "Legendre's polynomial",
    False,
    "tensor([-0.1250,  5.5000])",
)
