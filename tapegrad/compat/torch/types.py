"""`torch.types`: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any, Union

from ...core.device import device as _device_class
from ...core.dtypes import DType
from ...core.layouts import layout
from ...core.tensor import Size, Tensor

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_complex = builtins.complex
_dtype = DType
_device = _device_class
_layout = layout
_size = Union[Size, list[builtins.int], tuple[builtins.int, ...]]  # noqa: UP007
_symsize = Union[Size, Sequence[builtins.int]]  # noqa: UP007
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrTensorsOrGradEdge = _TensorOrTensors

Number = Union[builtins.int, builtins.float, builtins.bool]  # noqa: UP007
Device = Union[_device_class, str, builtins.int, None]  # noqa: UP007
FileLike = Union[str, os.PathLike[str], Any]  # noqa: UP007
IntLikeType = builtins.int
FloatLikeType = builtins.float
BoolLikeType = builtins.bool
PySymType = Union[builtins.int, builtins.float, builtins.bool]  # noqa: UP007
py_sym_types = (builtins.int, builtins.float, builtins.bool)
