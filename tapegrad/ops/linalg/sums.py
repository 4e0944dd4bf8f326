"""Sums of products that are added to a tensor: batches of matrices, and outer products.

Made of the products in `matmul.py`. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.tensor import Tensor
from ..elementwise.arithmetic import is_floating
from ..reduce.reductions import sum_
from ..table import Sample, op
from .matmul import _blend, bmm, outer

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
    return _blend(input, outer(vec1, vec2), beta, alpha)
