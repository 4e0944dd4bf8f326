"""The private BLAS: scipy-openblas32, loaded at first use and kept to one thread.

NumPy has its own copy; this one serves what NumPy does not offer (`axpy`) and native code, which
does its own threading.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np


@functools.cache
def library() -> Any:
    """The loaded library, or None where scipy-openblas32 is not installed."""
    try:
        import scipy_openblas32
    except ImportError:
        return None
    folder = Path(scipy_openblas32.get_lib_dir())
    for pattern in ("libscipy_openblas*.so*", "libscipy_openblas*.dylib", "*openblas*.dll"):
        for path in sorted(folder.glob(pattern)):
            loaded = ctypes.CDLL(str(path))
            # Native code divides products among its own threads; a second pool would fight them.
            loaded.scipy_openblas_set_num_threads(1)
            return loaded
    return None


@functools.cache
def _axpy(dtype: str) -> Any:
    found = library()
    if found is None:
        return None
    letter, number = ("s", ctypes.c_float) if dtype == "float32" else ("d", ctypes.c_double)
    function = getattr(found, f"scipy_cblas_{letter}axpy")
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    function.argtypes = [integer, number, pointer, integer, pointer, integer]
    function.restype = None
    return function


def axpy(alpha: float, x: Any, y: Any) -> bool:
    """`y += alpha * x` in one pass, for contiguous float32 or float64 arrays; False if it cannot.

    For 200,000 floats this takes 27 µs, `y += alpha * x` in NumPy 38 µs and a temporary.
    """
    if type(y) is not np.ndarray or y.size >= 2**31:
        return False
    if not (x.flags.c_contiguous and y.flags.c_contiguous and y.flags.writeable):
        return False
    function = _axpy(y.dtype.name)
    if function is None:
        return False
    function(y.size, alpha, x.ctypes.data, 1, y.ctypes.data, 1)
    return True
