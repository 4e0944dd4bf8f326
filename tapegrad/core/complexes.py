"""Gradients of complex numbers, by rules that are written for real numbers.

The gradient of a real loss with respect to z = x + iy is dL/dx + i dL/dy, as in PyTorch. For a
holomorphic f the gradient of its input is g times the conjugate of f'(z), and the conjugate of that
is conj(g) f'(z), which is what the rule for real numbers computes from conj(g). So it is enough to
conjugate before and after the rule, whatever it does with saved values in between; its derivatives
are right for the same reason.

A primitive declares with `complex=` how it treats complex numbers:

    None          it refuses them with an error
    HOLOMORPHIC   its rule is that of real numbers
    OWN           its rule takes and returns gradients as they are: it moves or adds elements, or it
                  was written for complex numbers, like the rules of `abs` and `conj`

The entry of a holomorphic operation with complex results gets a conjugating copy of its primitive,
so entries of real operations need no check. If an input is real, the copy takes the real part of
its gradient. `primitive.py` and the functions that `shortpaths.py` generates call `conjugating`.
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
    """A copy of a primitive with gradient rules for complex results of these inputs."""
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
    """An array in another dtype; from complex to real, the real part."""
    if array.dtype.kind in numeric.COMPLEX and dtypes.BOOL < dtype.category < dtypes.COMPLEX:
        array = array.real
    if dtype is dtypes.float8_e4m3fn:  # has no infinity: saturate, as PyTorch does
        array = array.astype(np.float32).clip(-448, 448)
    return array.astype(dtype.numpy)


def fitting(number: Any, dtype: Any) -> Any:
    """A number to be stored in a NumPy dtype; an imaginary part needs a complex dtype."""
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
