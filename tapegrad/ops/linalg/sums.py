"""Sums of products that are added to a tensor: batches of matrices, and outer products.

Made of the products in `matmul.py`. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import bool_, int8, int32
from ...core.tensor import Tensor
from ..elementwise.arithmetic import is_floating
from ..nn.activation import gelu
from ..nn.piecewise import relu
from ..reduce.reductions import sum_
from ..table import In, Sample, op
from .matmul import _blend, addmm, bmm, mm, outer

if TYPE_CHECKING:
    from ..annotations import Number


@op(
    samples=lambda: [
        Sample((3, 5), (2, 3, 4), (2, 4, 5)),
        Sample((3, 5), (2, 3, 4), (2, 4, 5), beta=0.5, alpha=2),
    ],
    inplace=True,
    autocast="lower",
)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Any:
    """beta * input + alpha * the sum of batch1[i] @ batch2[i].

    >>> import tapegrad
    >>> tapegrad.addbmm(tapegrad.ones(2, 2), tapegrad.ones(4, 2, 3), tapegrad.ones(4, 3, 2))
    tensor([[13., 13.],
            [13., 13.]])
    """
    return _blend(input, sum_(bmm(batch1, batch2), dims=(0,), keepdim=False), beta, alpha)


@op(
    casts=True,
    samples=lambda: [Sample((3, 4), (3,), (4,)), Sample((3, 4), (3,), (4,), beta=0.5, alpha=2)],
    inplace=True,
    autocast={"cpu": "keep", "cuda": "lower"},
)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * outer(vec1, vec2).

    >>> import tapegrad
    >>> tapegrad.addr(tapegrad.ones(2, 2), tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor([[4., 5.],
            [7., 9.]])
    """
    whole = not is_floating(input) and not input.dtype.is_complex
    if whole and any(isinstance(n, float) for n in (beta, alpha)):
        raise RuntimeError(f"addr of {input.dtype} needs beta and alpha without a fraction")
    if input.dtype is not bool_ and any(isinstance(n, bool) for n in (beta, alpha)):
        raise RuntimeError(f"addr of {input.dtype} needs numbers for beta and alpha, got a bool")
    return _blend(input, outer(vec1, vec2), beta, alpha)


_BYTES = In(values=[[100, -50, 3], [-128, 127, 1]], kind="int8")


@op(
    method=False,
    differentiable=False,
    samples=lambda: [Sample(_BYTES, In(values=[[1], [-100], [7]], kind="int8"))],
)
def _int_mm(input: Tensor, mat2: Tensor) -> Any:
    """The product of matrices of int8, as int32.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[100, 100]], dtype=tapegrad.int8)
    >>> tapegrad._int_mm(x, x.t())
    tensor([[20000]], dtype=tapegrad.int32)
    """
    for x in (input, mat2):
        if x.dtype is not int8:
            raise RuntimeError(f"_int_mm needs matrices of int8, got {x.dtype}")
    return mm(input.to(int32), mat2.to(int32))


@op(
    method=False,
    samples=lambda: [
        Sample((4,), (3, 2), (2, 4)),
        Sample((3, 4), (3, 2), (2, 4), beta=0.5, alpha=2, use_gelu=True),
    ],
)
def _addmm_activation(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    use_gelu: bool = False,
) -> Any:
    """relu(`addmm`), or gelu of it.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0, -2.0]])
    >>> tapegrad._addmm_activation(tapegrad.zeros(2), tapegrad.ones(1, 1), x)
    tensor([[1., 0.]])
    """
    out = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return gelu(out) if use_gelu else relu(out)
