"""cuBLASLt: products of matrices on a GPU, called through ctypes so that graphs can record them.

Comes in: a `MatrixProduct` with the addresses and dtypes of its operands. Goes out: a call that is
put into a stream. Called by `gpu.py`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import dtypes
from . import tuning
from .gemm import Matrix, MatrixProduct

_Handle = ctypes.c_void_p
_Size = ctypes.c_size_t


class _AlgorithmData(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class Algorithm(ctypes.Structure):
    """An algorithm that the library proposes for a product."""

    _fields_ = (
        ("algorithm", _AlgorithmData),
        ("workspace", _Size),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (ctypes.POINTER(_Handle),),
    "cublasLtMatmulDescCreate": (ctypes.POINTER(_Handle), ctypes.c_int, ctypes.c_int),
    "cublasLtMatmulDescDestroy": (_Handle,),
    "cublasLtMatmulDescSetAttribute": (_Handle, ctypes.c_int, _Handle, _Size),
    "cublasLtMatrixLayoutCreate": (
        *(ctypes.POINTER(_Handle), ctypes.c_int),
        *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    ),
    "cublasLtMatrixLayoutDestroy": (_Handle,),
    "cublasLtMatrixLayoutSetAttribute": (_Handle, ctypes.c_int, _Handle, _Size),
    "cublasLtMatmulPreferenceCreate": (ctypes.POINTER(_Handle),),
    "cublasLtMatmulPreferenceDestroy": (_Handle,),
    "cublasLtMatmulPreferenceSetAttribute": (_Handle, ctypes.c_int, _Handle, _Size),
    "cublasLtMatmulAlgoGetHeuristic": (
        *(_Handle,) * 7,
        *(ctypes.c_int, ctypes.POINTER(Algorithm), ctypes.POINTER(ctypes.c_int)),
    ),
    "cublasLtMatmul": (
        *(_Handle, _Handle, _Handle, ctypes.c_uint64, _Handle, ctypes.c_uint64, _Handle, _Handle),
        *(ctypes.c_uint64, _Handle, ctypes.c_uint64, _Handle, ctypes.POINTER(_AlgorithmData)),
        *(ctypes.c_uint64, _Size, _Handle),
    ),
}

# Constants of the library's interface.
_TRANSPOSE_LEFT, _TRANSPOSE_RIGHT = 3, 4
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MAX_WORKSPACE, _FIRST_ALIGNMENT = 1, 5
_FLOAT32, _FLOAT64, _FLOAT16, _BFLOAT16 = 0, 1, 2, 14
_SUMS_FLOAT32, _SUMS_FLOAT64, _SUMS_TENSOR_FLOAT32 = 68, 70, 77
#: the largest alignment in bytes that the library distinguishes
_MAX_ALIGNMENT = 256


@functools.cache
def _kinds() -> dict[Any, int]:
    return {
        np.dtype(np.float32): _FLOAT32,
        np.dtype(np.float64): _FLOAT64,
        np.dtype(np.float16): _FLOAT16,
        dtypes.bfloat16.numpy: _BFLOAT16,
    }


def computes(dtype: Any) -> bool:
    """Whether the library has products of a dtype."""
    return dtype in _kinds()


def _paths() -> Iterator[str]:
    """Where the library may be: in wheels, or on the system's search path."""
    windows = sys.platform == "win32"
    pattern = "cublasLt64_*.dll" if windows else "libcublasLt.so.*"
    spec = find_spec("nvidia")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        yield from map(str, sorted(Path(folder).glob(f"*/lib/{pattern}"), reverse=True))
        yield from map(str, sorted(Path(folder).glob(f"*/bin/**/{pattern}"), reverse=True))
    for version in (13, 12):
        yield f"cublasLt64_{version}.dll" if windows else f"libcublasLt.so.{version}"


@functools.cache
def _library() -> Any:
    tried = []
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, types in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
        library.cublasLtGetVersion.restype = _Size
        return library
    raise OSError("; ".join(tried))


def missing() -> str | None:
    """Why the library cannot be used; None if it can."""
    try:
        _library()
    except (OSError, AttributeError) as error:
        return f"cuBLAS does not load ({error}): pip install 'tapegrad[cuda]'"
    return None


def version() -> int:
    """The version of the library, as a number."""
    return int(_library().cublasLtGetVersion())


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"cuBLAS could not {what} (status {code})")


class Places(NamedTuple):
    """Addresses of a product's operands, by columns: out = left @ right."""

    left: int
    right: int
    out: int

    @property
    def alignment(self) -> int:
        """The largest power of two that divides all of them, up to `_MAX_ALIGNMENT`."""
        together = self.left | self.right | self.out | _MAX_ALIGNMENT
        return together & -together


class Prepared:
    """A product that is described to the library."""

    def __init__(self, call: MatrixProduct, dtype: Any, out_dtype: Any, precision: str) -> None:
        self.call = call
        self._sizes = (int(dtype.itemsize), int(out_dtype.itemsize))
        self._owned: list[tuple[str, Any]] = []
        kind, out_kind = _kinds()[dtype], _kinds()[out_dtype]
        wide = kind == _FLOAT64
        rounds = kind == _FLOAT32 and precision != "highest"
        sums = _SUMS_FLOAT64 if wide else _SUMS_TENSOR_FLOAT32 if rounds else _SUMS_FLOAT32
        self._description = self._made("MatmulDesc", "Create", sums, _FLOAT64 if wide else _FLOAT32)
        for which, matrix in ((_TRANSPOSE_LEFT, call.left), (_TRANSPOSE_RIGHT, call.right)):
            self._set("MatmulDesc", self._description, which, ctypes.c_int(matrix.transposed))
        self._left = self._layout(call.left, call.rows, call.inner, kind)
        self._right = self._layout(call.right, call.inner, call.columns, kind)
        self._out = self._layout(call.out, call.rows, call.columns, out_kind)
        number = ctypes.c_double if wide else ctypes.c_float
        self._one, self._scale = number(1.0), number(float(call.adds))

    def places(self, x: int, y: int, out: int) -> Places:
        """The addresses of the matrices, given those of the operands."""
        size, out_size = self._sizes
        return Places(
            y + self.call.left.offset * size,
            x + self.call.right.offset * size,
            out + self.call.out.offset * out_size,
        )

    def _made(self, kind: str, verb: str, *given: Any) -> Any:
        found = _Handle()
        create = getattr(_library(), f"cublasLt{kind}{verb}")
        _check(create(ctypes.byref(found), *given), "describe a product")
        self._owned.append((f"cublasLt{kind}Destroy", found))
        return found

    def _set(self, kind: str, owner: Any, which: int, value: Any) -> None:
        change = getattr(_library(), f"cublasLt{kind}SetAttribute")
        code = change(owner, which, ctypes.addressof(value), ctypes.sizeof(value))
        _check(code, "describe a product")

    def _layout(self, matrix: Matrix, rows: int, columns: int, kind: int) -> Any:
        if matrix.transposed:
            rows, columns = columns, rows
        found = self._made("MatrixLayout", "Create", kind, rows, columns, matrix.column)
        if self.call.count > 1:
            self._set("MatrixLayout", found, _BATCH_COUNT, ctypes.c_int32(self.call.count))
            self._set("MatrixLayout", found, _BATCH_OFFSET, ctypes.c_int64(matrix.batch))
        return found

    def choices(self, handle: Any, count: int, alignment: int) -> list[Algorithm]:
        """Algorithms for the product, for addresses of this alignment, best guess first."""
        preference = self._made("MatmulPreference", "Create")
        limit = ctypes.c_uint64(tuning.MAX_WORKSPACE_BYTES)
        self._set("MatmulPreference", preference, _MAX_WORKSPACE, limit)
        for i in range(4):
            aligned = ctypes.c_uint32(alignment)
            self._set("MatmulPreference", preference, _FIRST_ALIGNMENT + i, aligned)
        found, returned = (Algorithm * count)(), ctypes.c_int()
        code = _library().cublasLtMatmulAlgoGetHeuristic(
            *(handle, self._description, self._left, self._right, self._out, self._out),
            *(preference, count, found, ctypes.byref(returned)),
        )
        _check(code, f"find an algorithm for {self.call}")
        return [one for one in found[: returned.value] if one.state == 0]

    def run(
        self, handle: Any, choice: Algorithm, places: Places, workspace: int, stream: int
    ) -> None:
        """Enqueue the product in a stream."""
        left, right, out = places
        code = _library().cublasLtMatmul(
            *(handle, self._description, ctypes.byref(self._one), left, self._left),
            *(right, self._right, ctypes.byref(self._scale), out, self._out, out, self._out),
            *(ctypes.byref(choice.algorithm), workspace, choice.workspace, stream),
        )
        _check(code, f"compute {self.call}")

    def __del__(self) -> None:
        if not sys.is_finalizing():
            for name, handle in getattr(self, "_owned", ()):
                getattr(_library(), name)(handle)


def new_handle() -> Any:
    """A handle of the library for the current context."""
    found = _Handle()
    _check(_library().cublasLtCreate(ctypes.byref(found)), "begin")
    return found
