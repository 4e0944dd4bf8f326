"""Element types and how they are promoted.

A `DType` is an element type of tapegrad and knows the NumPy type that stores it. Comes in: the
dtypes of operands. Goes out: the dtype of the result (`result_type`), as in PyTorch: tensors with
dimensions decide first, then 0-d tensors, then Python numbers, and a later group matters only if
its category is higher (bool < integer < float < complex). Called by `primitive.py` before a kernel
runs, and by the operations that make tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import numeric
from .naming import shown

BOOL, INTEGER, FLOAT, COMPLEX = range(4)


class DType:
    """An element type, such as `tapegrad.float32`.

    >>> import tapegrad
    >>> tapegrad.float32, tapegrad.float32.itemsize, tapegrad.int64.is_floating_point
    (tapegrad.float32, 4, False)
    """

    __slots__ = ("_numpy", "category", "is_signed", "itemsize", "name", "stored")

    def __init__(
        self,
        name: str,
        category: int,
        itemsize: int,
        is_signed: bool = True,
        stored: bool = False,
    ) -> None:
        self.name = name
        self.category = category
        self.itemsize = itemsize
        self.is_signed = is_signed
        #: tensors of it can be made, cast, copied and indexed, but not computed with
        self.stored = stored
        # ml_dtypes costs 6 ms to import, so bfloat16 finds its NumPy type at first use.
        foreign = name.startswith(("bfloat16", "complex32", "float8"))
        self._numpy = None if foreign else np.dtype(name)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that stores this one."""
        if self._numpy is None:
            if self.category == COMPLEX:
                raise TypeError(
                    "complex32 is a name only: there are no tensors of complex half precision; use "
                    "complex64"
                )
            import ml_dtypes

            self._numpy = np.dtype(getattr(ml_dtypes, self.name))
            _FROM_NUMPY[self._numpy] = self
        return self._numpy

    @property
    def is_floating_point(self) -> bool:
        """Whether it is one of the float types."""
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        """Whether it is one of the complex types."""
        return self.category == COMPLEX

    def to_real(self) -> DType:
        """The type of the real and the imaginary part; a type that is not complex is its own."""
        return _REAL.get(self, self)

    def to_complex(self) -> DType:
        """The complex type whose parts have this one; a complex type is its own."""
        if self.category < FLOAT:
            raise RuntimeError(f"{self} has no complex type; use a floating type")
        return _COMPLEX.get(self, self)

    def __repr__(self) -> str:
        return f"{shown.package}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...] | str:
        if shown.package != "tapegrad":
            return self.name  # found by name in the module that is shown: torch.float32
        return dtype_named, (self.name,)


bool_ = DType("bool", BOOL, 1, is_signed=False)
uint8 = DType("uint8", INTEGER, 1, is_signed=False)
int8 = DType("int8", INTEGER, 1)
int16 = DType("int16", INTEGER, 2)
int32 = DType("int32", INTEGER, 4)
int64 = DType("int64", INTEGER, 8)
float16 = DType("float16", FLOAT, 2)
bfloat16 = DType("bfloat16", FLOAT, 2)
float32 = DType("float32", FLOAT, 4)
float64 = DType("float64", FLOAT, 8)
complex32 = DType("complex32", COMPLEX, 4)
complex64 = DType("complex64", COMPLEX, 8)
complex128 = DType("complex128", COMPLEX, 16)

ALL = (
    *(bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64),
    *(complex64, complex128),
)
uint16 = DType("uint16", INTEGER, 2, is_signed=False, stored=True)
uint32 = DType("uint32", INTEGER, 4, is_signed=False, stored=True)
uint64 = DType("uint64", INTEGER, 8, is_signed=False, stored=True)
float8_e4m3fn = DType("float8_e4m3fn", FLOAT, 1, stored=True)
float8_e4m3fnuz = DType("float8_e4m3fnuz", FLOAT, 1, stored=True)
float8_e5m2 = DType("float8_e5m2", FLOAT, 1, stored=True)
float8_e5m2fnuz = DType("float8_e5m2fnuz", FLOAT, 1, stored=True)
float8_e8m0fnu = DType("float8_e8m0fnu", FLOAT, 1, is_signed=False, stored=True)

STORED = (
    *(uint16, uint32, uint64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz),
    float8_e8m0fnu,
)
_BY_NAME = {d.name: d for d in (*ALL, *STORED)}
_FROM_NUMPY: dict[Any, DType] = {d._numpy: d for d in _BY_NAME.values() if d._numpy is not None}
_REAL = {complex32: float16, complex64: float32, complex128: float64}
_COMPLEX = {float16: complex32, bfloat16: complex64, float32: complex64, float64: complex128}
_DEFAULT = [float32]


def dtype_named(name: str) -> DType:
    return complex32 if name == "complex32" else _BY_NAME[name]


def from_numpy_dtype(dtype: np.dtype[Any]) -> DType:
    """The `DType` stored as the NumPy type `dtype`; TypeError where tapegrad has none."""
    try:
        return _FROM_NUMPY[dtype]
    except KeyError:
        found = _BY_NAME.get(dtype.name)
        if found is None:
            raise TypeError(
                f"tapegrad has no tensors of NumPy type {dtype.name!r}; "
                f"convert to one of {', '.join(_BY_NAME)} first"
            ) from None
        return from_numpy_dtype(found.numpy) if found._numpy is None else found


def as_dtype(dtype: Any) -> DType:
    """Accept a `DType`, a NumPy type, a name, or Python's bool, int, float and complex."""
    if isinstance(dtype, DType):
        return dtype
    if dtype is float:
        return float64
    if dtype is int:
        return int64
    if dtype is bool:
        return bool_
    if dtype is complex:
        return _DEFAULT[0].to_complex()
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    try:
        return from_numpy_dtype(np.dtype(dtype))
    except TypeError:
        raise TypeError(
            f"expected a dtype such as tapegrad.float32, got {dtype!r}; "
            f"tapegrad has {', '.join(_BY_NAME)}"
        ) from None


def get_default_dtype() -> DType:
    """The floating type that Python floats become: float32 unless changed."""
    return _DEFAULT[0]


def set_default_dtype(dtype: Any) -> None:
    """Change the floating type that Python floats become."""
    dtype = as_dtype(dtype)
    if not dtype.is_floating_point:
        raise TypeError(f"the default dtype must be a floating type, got {dtype}")
    _DEFAULT[0] = dtype


def promote_types(first: DType, second: DType) -> DType:
    """The smallest type that both fit into, as PyTorch defines it.

    >>> import tapegrad
    >>> tapegrad.promote_types(tapegrad.int64, tapegrad.float16)
    tapegrad.float16
    """
    if first is second:
        return first
    if first.stored or second.stored:
        return _promote_stored(first, second)
    if first.category != second.category:
        high, low = (first, second) if first.category > second.category else (second, first)
        if high.category == COMPLEX and low.category == FLOAT:
            return low.to_complex() if low.itemsize * 2 > high.itemsize else high
        return high
    if first.category >= FLOAT:
        if {first, second} == {float16, bfloat16}:
            return float32
        return first if first.itemsize > second.itemsize else second
    if first.is_signed == second.is_signed:
        return first if first.itemsize > second.itemsize else second
    # uint8 with a signed type: int8 cannot hold it, wider ones can.
    signed = first if first.is_signed else second
    return int16 if signed is int8 else signed


def _promote_stored(first: DType, second: DType) -> DType:
    """Promote unsigned integers with floats or booleans; refuse everything else."""
    stored, other = (first, second) if first.stored else (second, first)
    if stored.category == INTEGER and not other.stored and other.category != INTEGER:
        return stored if other.category == BOOL else other
    kind = "uint16, uint32, uint64" if stored.category == INTEGER else "Float8"
    raise RuntimeError(
        f"{kind} types do not promote: convert {first} and {second} to a common dtype with .to() "
        "first"
    )


def number_dtype(number: bool | int | float | complex) -> DType:
    """The type of a Python number."""
    if isinstance(number, (bool, np.bool_)):
        return bool_
    if isinstance(number, (complex, np.complexfloating)):
        return _DEFAULT[0].to_complex()
    return int64 if isinstance(number, (int, np.integer)) else _DEFAULT[0]


def result_type(*operands: tuple[DType, int]) -> DType:
    """Promote (dtype, rank) pairs; rank 2 = has dimensions, 1 = 0-d tensor, 0 = Python number."""
    result: DType | None = None
    for rank in (2, 1, 0):
        group: DType | None = None
        for dtype, r in operands:
            if r == rank:
                group = dtype if group is None else promote_types(group, dtype)
        if group is None:
            continue
        if result is None or group.category > result.category:
            if group.category == COMPLEX and result is not None and result.category == FLOAT:
                result = result.to_complex()  # the parts are as precise as the floats
            else:
                # A Python float beside integers gives the default type, never float64.
                result = _DEFAULT[0] if rank == 0 and group.category == FLOAT else group
    assert result is not None
    return result


def of_numbers(array: Any, dtype: DType | None) -> Any:
    """Check an array that NumPy made from Python numbers; cast floats to the default dtype.

    A given integer `dtype` must hold all numbers; negative ones wrap around in unsigned types.
    """
    given = array.dtype
    numeric.check_numbers(array)
    if dtype is None:
        if numeric.is_inexact(given):
            kind = _DEFAULT[0].to_complex() if numeric.is_complex(given) else _DEFAULT[0]
            return array.astype(kind.numpy)
        if given == np.uint64:
            raise ValueError("a tensor of integers holds those below 2**63")
    elif (
        dtype.category == INTEGER
        and array.size
        and (numeric.is_integer(given) or numeric.is_floating(given))
    ):
        limits = np.iinfo(dtype.numpy)
        low = limits.min or -int(limits.max)
        if not (low <= array.min() and array.max() <= limits.max):
            raise RuntimeError(f"{dtype} does not hold all of these numbers: {low} to {limits.max}")
    return array


class finfo:
    """Limits of a floating type: eps, max, min, tiny, bits, as `torch.finfo`."""

    def __init__(self, dtype: Any = None) -> None:
        dtype = get_default_dtype() if dtype is None else as_dtype(dtype).to_real()
        if not dtype.is_floating_point:
            raise TypeError(f"finfo needs a floating type, got {dtype}; use iinfo for integers")
        if dtype is bfloat16 or dtype.stored or dtype.name not in np.sctypeDict:
            import ml_dtypes

            limits: Any = ml_dtypes.finfo
            info: Any = limits(dtype.name)
        else:
            info = np.finfo(dtype.numpy)
        self.dtype = dtype.name
        self.bits = dtype.itemsize * 8
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = float(f"1e-{math.floor(-math.log10(self.eps))}")

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        limits = ", ".join(f"{name}={getattr(self, name):.6g}" for name in names)
        return f"finfo({limits}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer type: max, min, bits, as `torch.iinfo`."""

    def __init__(self, dtype: Any) -> None:
        dtype = as_dtype(dtype)
        if dtype.category != INTEGER:
            raise TypeError(f"iinfo needs an integer type, got {dtype}; use finfo for floats")
        info = np.iinfo(dtype.numpy)
        self.dtype = dtype.name
        self.bits = dtype.itemsize * 8
        self.max = int(info.max)
        self.min = int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
