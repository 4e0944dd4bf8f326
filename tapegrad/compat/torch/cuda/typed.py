"""`torch.cuda.FloatTensor` and the others: tensors of one dtype on a GPU, for older code."""

from __future__ import annotations

from typing import Any

from ....core import dtypes
from ....core.dtypes import DType
from ....core.tensor import Tensor
from ....ops.creation import CREATION


class _TypedOnGpu(type):
    """A metaclass: calling a class makes a GPU tensor; `isinstance` checks dtype and device."""

    dtype: DType

    def __call__(cls, *args: Any) -> Any:
        if not args or isinstance(args[0], int):
            return CREATION["empty"](args or (0,), dtype=cls.dtype, device="cuda")
        return CREATION["as_tensor"](args[0], dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, value: Any) -> bool:
        on_gpu = isinstance(value, Tensor) and value.device.type == "cuda"
        return on_gpu and value.dtype is cls.dtype


#: the classes by name
TYPED: dict[str, Any] = {
    name: _TypedOnGpu(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in (
        ("FloatTensor", dtypes.float32),
        ("DoubleTensor", dtypes.float64),
        ("HalfTensor", dtypes.float16),
        ("BFloat16Tensor", dtypes.bfloat16),
        ("LongTensor", dtypes.int64),
        ("IntTensor", dtypes.int32),
        ("ShortTensor", dtypes.int16),
        ("CharTensor", dtypes.int8),
        ("ByteTensor", dtypes.uint8),
        ("BoolTensor", dtypes.bool_),
    )
}
