"""Names for the types of parameters, which the public functions and the stub files use.

For type checkers alone: nothing imports this file at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core.device import device
from ..core.dtypes import DType
from ..core.tensor import Tensor

#: a Python number; Python's bool is an int
Number: TypeAlias = int | float
#: an operand of arithmetic
Operand: TypeAlias = Tensor | int | float | np.generic | np.ndarray[Any, Any]
#: one dimension or several
Dims: TypeAlias = int | Sequence[int]
#: an integer for all dimensions, or one for each
Ints: TypeAlias = int | Sequence[int]
#: an element type or its name: `tapegrad.float32`, `"float32"`, `np.float32`, `float`
DTypeLike: TypeAlias = DType | str | type[Any] | np.dtype[Any]
#: a device or its name: `tapegrad.device("cpu")`, `"cpu"`
DeviceLike: TypeAlias = device | str
