"""`FloatTensor`, `LongTensor` and the others: constructors of one dtype, for older code.

A call makes a tensor from data or from sizes; `isinstance` checks the dtype. `_LAZY` in the main
namespace loads them at first use.
"""

from __future__ import annotations

from typing import Any

from .core import dtypes
from .core.dtypes import DType
from .core.tensor import Tensor
from .ops.creation import CREATION


class _Typed(type):
    """The class of the constructors below."""

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        if not args or isinstance(args[0], int):
            return CREATION["empty"](args or (0,), dtype=cls.dtype, device=device)
        if len(args) != 1:
            raise TypeError(f"{cls.__name__} takes data, or sizes, got {len(args)} arguments")
        if isinstance(args[0], Tensor) and args[0].dtype is not cls.dtype:
            raise TypeError(f"expected {cls.dtype}, got {args[0].dtype}; use .to({cls.dtype})")
        return CREATION["as_tensor"](args[0], dtype=cls.dtype, device=device)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype


def _typed(name: str, dtype: DType) -> Any:
    doc = f"A tensor of {dtype} from data, or with unset values from sizes."
    return _Typed(name, (), {"dtype": dtype, "__doc__": doc, "__module__": __name__})


FloatTensor = _typed("FloatTensor", dtypes.float32)
DoubleTensor = _typed("DoubleTensor", dtypes.float64)
HalfTensor = _typed("HalfTensor", dtypes.float16)
BFloat16Tensor = _typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor = _typed("LongTensor", dtypes.int64)
IntTensor = _typed("IntTensor", dtypes.int32)
ShortTensor = _typed("ShortTensor", dtypes.int16)
CharTensor = _typed("CharTensor", dtypes.int8)
ByteTensor = _typed("ByteTensor", dtypes.uint8)
BoolTensor = _typed("BoolTensor", dtypes.bool_)


def set_default_tensor_type(t: Any) -> None:
    """Make the dtype of a type such as `DoubleTensor`, or of its name, the default one.

    >>> import tapegrad
    >>> tapegrad.set_default_tensor_type("tapegrad.FloatTensor")
    >>> tapegrad.get_default_dtype()
    tapegrad.float32
    """
    name = t if isinstance(t, str) else f"torch.{t.__name__}"
    try:
        dtype = Tensor(()).type(name).dtype
    except ValueError as error:
        raise TypeError(str(error)) from None
    dtypes.set_default_dtype(dtype)
