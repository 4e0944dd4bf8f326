"""Copies of a tensor's values: in another dtype, without history, or in separate memory.

Comes in: one tensor or raw array. Goes out: one of the same shape. `cast` carries gradients between
dtypes wherever operands are promoted and half precision is widened; `detach` stops them; `clone`
copies. Used by operations of every family.
"""

from __future__ import annotations

from typing import Any

from ...core.complexes import OWN, converted
from ...core.dtypes import DType, as_dtype
from ...core.primitive import ELEMENTWISE, NO_PARAMS, Primitive, define
from ...core.tensor import Tensor
from ..table import Sample, op


def _cast(x: Any, *, dtype: Any) -> Any:
    return converted(x, dtype if dtype.__class__ is DType else as_dtype(dtype))


cast: Primitive = define(
    "cast",
    _cast,
    kind=ELEMENTWISE,
    complex=OWN,
    stores=True,
    vjp=lambda g, x_dtype: cast(g, dtype=as_dtype(x_dtype)),
    expression="cast(x)",
)

detach: Primitive = define(
    "detach", lambda x: x, kind=ELEMENTWISE, inputs=("x",), expression="x", complex=OWN, stores=True
)
clone_: Primitive = define(
    "clone",
    lambda x: x.copy(),
    kind=ELEMENTWISE,
    vjp=lambda g: g,
    expression="x",
    complex=OWN,
    stores=True,
)


@op(samples=lambda: [Sample((3, 4)), Sample(())])
def clone(input: Tensor, *, memory_format: object = None) -> Any:
    """A copy in its own memory; gradients flow through.

    >>> import tapegrad
    >>> tapegrad.clone(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return clone_.direct(input, NO_PARAMS)
