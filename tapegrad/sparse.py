"""`tapegrad.sparse`: PyTorch's functions of sparse tensors. Loaded at first use.

Sparse tensors have coordinates and elements here (`sparse_coo`). They exist for gradients of
embeddings, and for products with sparse matrices.
"""

from __future__ import annotations

from typing import Any

from .core import dtypes
from .core.tensor import Tensor
from .ops.linalg.matmul import matmul
from .ops.sparse import creation
from .ops.sparse.functions import log_softmax, softmax, spdiags
from .ops.table import TABLE

__all__ = [
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "softmax",
    "spdiags",
    "sum",
]


def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, sparse if both are; gradients reach their elements too.

    >>> import tapegrad
    >>> a = tapegrad.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    >>> tapegrad.sparse.mm(a, tapegrad.tensor([[1.0], [10.0]]))
    tensor([[20.],
            [ 3.]])
    """
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"sparse.mm needs two matrices, got {mat1.ndim}-D and {mat2.ndim}-D")
    out: Tensor = matmul(mat1, mat2)
    return out


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """beta input + alpha mat1 @ mat2, where mat1 is sparse."""
    product = mm(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements, or along dimensions: dense if no sparse dimension is left.

    >>> import tapegrad
    >>> tapegrad.sparse.sum(tapegrad.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,)))
    tensor(3.)
    """
    x = input if dtype is None else input.to(dtypes.as_dtype(dtype))
    out: Tensor = TABLE["sum"].function(x) if dim is None else TABLE["sum"].function(x, dim)
    return out


class check_sparse_tensor_invariants:
    """Whether the coordinates of new sparse tensors are checked against the size; on by default.

    `enable()`, `disable()` and `with check_sparse_tensor_invariants(False):` choose.
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether coordinates are checked."""
        return creation.checks

    @staticmethod
    def enable() -> None:
        """Check coordinates from now on."""
        creation.checks = True

    @staticmethod
    def disable() -> None:
        """Do not check coordinates from now on."""
        creation.checks = False

    def __enter__(self) -> None:
        self.before.append(creation.checks)
        creation.checks = self.state

    def __exit__(self, *exc: object) -> None:
        creation.checks = self.before.pop()


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    raise missing(__name__, name, __all__)
