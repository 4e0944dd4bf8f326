"""`torch.sparse`: names that `tapegrad.sparse` lacks: classes by dtype; the others raise."""

from __future__ import annotations

from typing import Any

from ...core import dtypes
from ...core.dtypes import DType
from ...core.tensor import Tensor
from ...ops.sparse.creation import sparse_coo_tensor
from ..absent import absent, absent_class


class _SparseTyped(type):
    """The metaclass of the typed constructors below."""

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        if args and isinstance(args[0], int):
            return sparse_coo_tensor(args, dtype=cls.dtype, device=device)
        return sparse_coo_tensor(*args, dtype=cls.dtype, device=device)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.is_sparse and value.dtype is cls.dtype


def _sparse_typed(name: str, dtype: DType) -> Any:
    doc = f"A sparse tensor of {dtype} from coordinates and elements, or without any from sizes."
    return _SparseTyped(name, (), {"dtype": dtype, "__doc__": doc, "__module__": "torch.sparse"})


FloatTensor = _sparse_typed("FloatTensor", dtypes.float32)
DoubleTensor = _sparse_typed("DoubleTensor", dtypes.float64)
HalfTensor = _sparse_typed("HalfTensor", dtypes.float16)
BFloat16Tensor = _sparse_typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor = _sparse_typed("LongTensor", dtypes.int64)
IntTensor = _sparse_typed("IntTensor", dtypes.int32)

_DENSE = "use to_dense() and the function of dense tensors"
sampled_addmm = absent("torch.sparse.sampled_addmm", _DENSE)
spsolve = absent("torch.sparse.spsolve", _DENSE)
to_sparse_semi_structured = absent("torch.sparse.to_sparse_semi_structured", _DENSE)
SparseSemiStructuredTensor = absent_class("torch.sparse.SparseSemiStructuredTensor", _DENSE)
