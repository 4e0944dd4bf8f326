"""Gradients of complex numbers: how a rule that is written for real numbers serves complex ones.

The gradient of a real loss with respect to z = x + iy is dL/dx + i dL/dy, as in PyTorch. For a
holomorphic f the gradient of its input is g times the conjugate of f'(z), and the conjugate of that
is conj(g) f'(z), which is what the rule for real numbers computes from conj(g). So conjugates
before and after a rule are all that it needs, whatever it does with saved values in between, and
its derivatives are right for the same reason.

A primitive says with `complex=` how it takes complex numbers:

    None          not at all: it raises an error
    HOLOMORPHIC   its rule is that of real numbers
    OWN           its rule takes and returns gradients as they are: it moves or adds elements, or it
                  was written for complex numbers, as those of `abs` and `conj` were

The entry of a holomorphic operation with complex results gets a copy of its primitive, made here,
that conjugates: entries of real ones have nothing to ask. The real part is taken where an input is
real. `primitive.py` and the functions that `shortpaths.py` writes call `conjugating`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes, numeric, shortpaths

if TYPE_CHECKING:
    from .primitive import Primitive

HOLOMORPHIC = "holomorphic"
OWN = "own"

_made: dict[tuple[str, tuple[bool, ...]], Primitive] = {}


def conjugating(p: Primitive, arrays: Sequence[Any]) -> Primitive:
    """A copy of a primitive whose rule gets the gradients of complex results from these inputs."""
    real = tuple([hasattr(a, "dtype") and not numeric.is_complex(a.dtype) for a in arrays])
    found = _made.get((p.name, real))
    if found is not None and found.plain is p:
        return found
    found = replace(p, composite=False, plain=p)
    found.native_size = shortpaths.NEVER
    found.loads, found.release = p.loads, p.release
    found._pull = _conjugated(p, real)
    _made[p.name, real] = found
    return found


def _conjugated(p: Primitive, real: tuple[bool, ...]) -> Any:
    from .primitive import PRIMITIVES

    rules = shortpaths.pull(p, None, {}) if p.registered else p.pull
    conj, real_part = PRIMITIVES["conj"], PRIMITIVES["real"]

    def back(r: Any, is_real: bool) -> Any:
        if r is None or not numeric.is_complex(_numpy_dtype(r)):
            return r
        return real_part(r) if is_real else conj(r)

    def pull(g: Any, edges: Any, saved: Any, params: Any) -> Any:
        if isinstance(g, list):
            given: Any = [None if part is None else conj(part) for part in g]
        else:
            given = conj(g)
        results = rules(given, edges, saved, params)
        return tuple(map(back, results, real))

    return pull


def _numpy_dtype(x: Any) -> Any:
    return x.dtype if not hasattr(x, "_array") else x._array.dtype


def refuse(p: Primitive, arrays: Sequence[Any]) -> None:
    """Raise an error if one of the operands has a dtype that the primitive does not take."""
    for a in arrays:
        if not p.stores and hasattr(a, "dtype"):
            dtype = dtypes.from_numpy_dtype(a.dtype)
            if dtype.stored:
                raise NotImplementedError(
                    f'"{p.name}" not implemented for {dtype}, which is a dtype of storage; convert '
                    "with .to() first"
                )
        if p.complex is not None:
            continue
        if isinstance(a, complex) or (hasattr(a, "dtype") and numeric.is_complex(a.dtype)):
            raise RuntimeError(
                f"{p.name} is not implemented for complex numbers; use abs(), .real or .imag"
            )


def converted(array: Any, dtype: dtypes.DType) -> Any:
    """An array in another dtype; of complex numbers, real ones keep the real part."""
    if array.dtype.kind in numeric.COMPLEX and dtypes.BOOL < dtype.category < dtypes.COMPLEX:
        array = array.real
    if dtype is dtypes.float8_e4m3fn:  # has no infinity: PyTorch takes the largest number
        array = array.astype(np.float32).clip(-448, 448)
    return array.astype(dtype.numpy)


def fitting(number: Any, dtype: Any) -> Any:
    """A number to be stored as a NumPy dtype: one with an imaginary part must be complex there."""
    return number if numeric.is_complex(dtype) else without_imaginary(number)


def real_number(tensor: Any) -> Any:
    """The number in a tensor, for `int` and `float`; ValueError where it is not one."""
    try:
        number = tensor.item()
    except RuntimeError:
        if tensor._array.size == 1:
            raise
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} is not one number; use .tolist()"
        ) from None
    return without_imaginary(number) if number.__class__ is complex else number


def without_imaginary(number: Any) -> Any:
    """A number that must be real, for `int` and `float`."""
    if not isinstance(number, complex):
        return number
    if number.imag:
        raise RuntimeError(f"{number} has an imaginary part; use complex(x), or x.real or x.imag")
    return number.real
