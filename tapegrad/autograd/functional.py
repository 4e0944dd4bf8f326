"""Derivatives as in `torch.autograd.functional`: of a function at given inputs.

Comes in: a function, and `inputs`, a tensor or a tuple of tensors. Goes out: Jacobians, Hessians or
their products, in the same form. Called by users; `tapegrad.func` has the same derivatives as
functions of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import func as _func
from ..core.tensor import Tensor
from ..ops.creation import ones_like

Function = Callable[..., Any]


def _each(inputs: Any) -> tuple[tuple[Any, ...], bool]:
    single = isinstance(inputs, Tensor)
    return ((inputs,) if single else tuple(inputs)), single


def _same_form(results: Any, single: bool) -> Any:
    return results[0] if single else tuple(results)


def jacobian(func: Function, inputs: Any, create_graph: bool = False) -> Any:
    """The Jacobian of `func` at `inputs`.

    >>> import tapegrad
    >>> tapegrad.autograd.functional.jacobian(lambda x: x**2, tapegrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    points, single = _each(inputs)
    found = _func.jacrev(func, argnums=tuple(range(len(points))))(*_kept(points, create_graph))
    return (
        _same_form(found, single)
        if isinstance(found, tuple) and _flat(found)
        else tuple(_same_form(row, single) for row in found)
    )


def _flat(found: tuple[Any, ...]) -> bool:
    return all(isinstance(part, Tensor) for part in found)


def _kept(points: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Results stay differentiable only if asked for."""
    return points if create_graph else tuple(p.detach() for p in points)


def hessian(func: Function, inputs: Any, create_graph: bool = False) -> Any:
    """The second derivatives of a function whose result is one number."""
    points, single = _each(inputs)
    argnums = tuple(range(len(points)))
    found = _func.hessian(func, argnums=argnums)(*_kept(points, create_graph))
    return found[0][0] if single else found


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """The value, and `v` times the Jacobian (v is 1 for a function with one number as result)."""
    points, single = _each(inputs)
    value, pull = _func.vjp(func, *_kept(points, create_graph))
    start = ones_like(value) if v is None else v
    return value, _same_form(pull(start), single)


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """The value, and the Jacobian times `v`."""
    points, _ = _each(inputs)
    directions = tuple(ones_like(p) for p in points) if v is None else _each(v)[0]
    return _func.jvp(func, _kept(points, create_graph), directions)


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """The value, and the Hessian times `v`."""
    points, single = _each(inputs)
    directions = tuple(ones_like(p) for p in points) if v is None else _each(v)[0]
    value, found = _func.hvp(func, _kept(points, create_graph), directions)
    return value, _same_form(found, single)


vhp = hvp  # the Hessian is symmetric

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
