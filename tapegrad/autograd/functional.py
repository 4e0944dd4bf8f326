"""Derivatives as in `torch.autograd.functional`: of a function at given inputs.

Comes in: a function, and `inputs`, a tensor or a tuple of tensors. Goes out: Jacobians, Hessians or
their products, in the same form. Called by users; `tapegrad.func` has the same derivatives as
functions of functions, and computes them here too: rows and columns as a batch, with or without
`vectorize`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .. import func as _func
from ..core.modes import enable_grad
from ..core.tensor import Tensor
from ..core.wrapped import Wrapped
from ..func.jacobians import unit_vectors
from ..ops.creation import ones_like
from .api import grad as _grad

Function = Callable[..., Any]

_STRATEGIES = ("forward-mode", "reverse-mode")


# -- arguments and results ---------------------------------------------------------------------


def _each(values: Any, what: str, name: str) -> tuple[tuple[Any, ...], bool]:
    """One or several tensors as a tuple, and whether a tuple was given."""
    single = not isinstance(values, tuple)
    found = (values,) if single else values
    for i, x in enumerate(found):
        if not isinstance(x, Tensor):
            where = "" if single else f" at index {i}"
            raise TypeError(
                f"{name}: {what} must be a Tensor or a tuple of Tensors; the value{where} is a "
                f"{type(x).__name__}"
            )
    return found, single


def _same_form(results: Any, single: bool) -> Any:
    return results[0] if single else tuple(results)


def _kept(points: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """With `create_graph`, points that require gradients; else points without history."""
    if create_graph:
        return tuple(p if p.requires_grad else p.detach().requires_grad_() for p in points)
    return tuple(p.stripped() if isinstance(p, Wrapped) else p.detach() for p in points)


def _plain(values: Any, create_graph: bool) -> Any:
    """Drop histories unless `create_graph`: the function may use parameters with histories."""
    if isinstance(values, tuple):
        return tuple(_plain(v, create_graph) for v in values)
    return values if create_graph or isinstance(values, Wrapped) else values.detach()


def _vector(name: str, v: Any, like: tuple[Any, ...], several: bool, why: str) -> tuple[Any, ...]:
    """The vector of a product, checked; 1 if it was left out and may be."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"{name}: v can be left out only where {why} one tensor of one element"
            )
        return (ones_like(like[0]),)
    given, _ = _each(v, "v", name)
    if len(given) != len(like):
        if several:
            raise RuntimeError(f"{name}: v must have {len(like)} tensors, got {len(given)}")
        raise RuntimeError(f"{name}: v must be one tensor, got {len(given)}")
    for i, (t, x) in enumerate(zip(given, like, strict=True)):
        if tuple(t.shape) != tuple(x.shape):
            where = f"[{i}]" if several else ""
            raise RuntimeError(
                f"{name}: v{where} must have the shape {tuple(x.shape)}, got {tuple(t.shape)}"
            )
    return given


def _one_number(name: str, function: Function) -> Function:
    def checked(*args: Any) -> Any:
        found, single = _each(function(*args), "the outputs", name)
        if not single:
            raise RuntimeError(
                f"{name}: the function must return one tensor, got a tuple of {len(found)}"
            )
        if found[0].numel() != 1:
            raise RuntimeError(
                f"{name}: the function must return one element, got the shape "
                f"{tuple(found[0].shape)}"
            )
        return found[0].reshape(())

    return checked


def _check_strict(
    name: str,
    function: Function,
    points: tuple[Any, ...],
    create_graph: bool = False,
    second: bool = False,
) -> None:
    """Raise if a result of the function does not depend on one of its inputs.

    With `create_graph` its derivative must depend on them, and for a `second` derivative too.
    """
    with enable_grad():
        leaves = [p.detach().requires_grad_() for p in points]
        found = _each(function(*leaves), "the outputs", name)[0]
        for i, y in enumerate(found):
            if not y.requires_grad:
                raise RuntimeError(
                    f"{name} with strict=True: output {i} has no gradient, because it was not "
                    "computed from the inputs"
                )
        for i, y in enumerate(found):
            slopes = _grad(y.sum(), leaves, create_graph=True, allow_unused=True)
            for j, slope in enumerate(slopes):
                if second and (slope is None or not slope.requires_grad):
                    if slope is None and name != "hessian":
                        raise RuntimeError(_independent("the output", j))
                    raise RuntimeError(
                        f"{name} with strict=True: the first derivative by input {j} is "
                        "constant, so the second does not exist or is 0 everywhere"
                    )
                if slope is None:
                    which = f"output {i}" if name == "jacobian" else "the output"
                    raise RuntimeError(_independent(which, j))
                if create_graph and not slope.requires_grad:
                    what = _independent("the Jacobian", j)
                    raise RuntimeError(f"{what} when create_graph=True")


def _independent(what: str, index: int) -> str:
    return f"{what} does not depend on input {index}, and strict=True refuses that"


def _recording(create_graph: bool) -> Any:
    """A context that records for `create_graph`, even under `no_grad`."""
    return enable_grad() if create_graph else contextlib.nullcontext()


def _construct_standard_basis_for(tensors: Any, tensor_numels: Any) -> tuple[Tensor, ...]:
    """Unit vectors over all tensors together, as rows: (all elements, its elements) for each."""
    units = unit_vectors(tensors)
    sizes = zip(units, tensor_numels, strict=True)
    return tuple(unit.reshape(unit.shape[0], n) for unit, n in sizes)


# -- Jacobians ---------------------------------------------------------------------------------


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func` at `inputs`.

    With `strict`, an output that does not depend on an input is an error, not zeros.

    >>> import tapegrad
    >>> tapegrad.autograd.functional.jacobian(lambda x: x**2, tapegrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in _STRATEGIES:
        raise AssertionError(
            f"strategy must be 'forward-mode' or 'reverse-mode', got {strategy!r}; forward mode "
            "is faster if there are more outputs than inputs"
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "jacobian: forward mode keeps no graph here; take create_graph=False, "
                "strategy='reverse-mode' or tapegrad.func.jacfwd"
            )
        if not vectorize:
            raise NotImplementedError("jacobian: strategy='forward-mode' needs vectorize=True")
    if strict and vectorize:
        raise RuntimeError(
            "jacobian: strict=True checks one row at a time, so it needs vectorize=False"
        )
    points, single = _each(inputs, "the inputs", "jacobian")
    several: list[bool] = []

    def checked(*args: Any) -> Any:
        found, alone = _each(func(*args), "the outputs", "jacobian")
        several[:] = [not alone]
        return found

    if strict:
        _check_strict("jacobian", checked, points, create_graph)
    argnums = tuple(range(len(points)))
    make = _func.jacfwd if strategy == "forward-mode" else _func.jacrev
    with _recording(create_graph):
        found = make(checked, argnums=argnums)(*_kept(points, create_graph))
    rows = tuple(_same_form(row, single) for row in found)
    return _plain(rows if several[0] else rows[0], create_graph)


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that returns one number."""
    points, single = _each(inputs, "the inputs", "hessian")
    if outer_jacobian_strategy not in _STRATEGIES:
        raise AssertionError(
            "outer_jacobian_strategy must be 'forward-mode' or 'reverse-mode', got "
            f"{outer_jacobian_strategy!r}"
        )
    forward = outer_jacobian_strategy == "forward-mode"
    if forward and (create_graph or strict):
        raise NotImplementedError(
            "hessian: outer_jacobian_strategy='forward-mode' takes neither create_graph nor "
            "strict; use tapegrad.func.hessian"
        )
    if forward and not vectorize:
        raise NotImplementedError(
            "hessian: outer_jacobian_strategy='forward-mode' needs vectorize=True"
        )
    if strict and vectorize:
        raise RuntimeError(
            "hessian: strict=True checks one row at a time, so it needs vectorize=False"
        )
    number = _one_number("hessian", func)
    argnums = tuple(range(len(points)))
    slopes = _func.grad(number, argnums=argnums)
    if strict:
        _check_strict("hessian", number, points, second=True)
    make = _func.jacfwd if forward else _func.jacrev
    with _recording(create_graph):
        found = make(slopes, argnums=argnums)(*_kept(points, create_graph))
    return _plain(found[0][0] if single else found, create_graph)


# -- products ----------------------------------------------------------------------------------


def vjp(
    func: Function,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value, and `v` times the Jacobian (v may be left out if the value is one number)."""
    points, single = _each(inputs, "the inputs", "vjp")
    if strict:
        _check_strict("vjp", func, points, create_graph)
    form: list[bool] = []

    def called(*args: Any) -> Any:
        found, alone = _each(func(*args), "the outputs", "vjp")
        form[:] = [alone]
        return found

    with _recording(create_graph):
        values, pull = _func.vjp(called, *_kept(points, create_graph))
        why = "the function returns"
        found = pull(tuple(_vector("vjp", v, values, not form[0], why)))
    return (
        _plain(_same_form(values, form[0]), create_graph),
        _plain(_same_form(found, single), create_graph),
    )


def jvp(
    func: Function,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value, and the Jacobian times `v`."""
    points, _ = _each(inputs, "the inputs", "jvp")
    why = "the input is"
    directions = _vector("jvp", v, points, isinstance(inputs, tuple), why)
    if strict:
        _check_strict("jvp", func, points, create_graph)

    def called(*args: Any) -> Any:
        found, alone = _each(func(*args), "the outputs", "jvp")
        return found[0] if alone else found

    with _recording(create_graph):
        value, found = _func.jvp(called, _kept(points, create_graph), directions)
    return _plain(value, create_graph), _plain(found, create_graph)


def hvp(
    func: Function,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value, and the Hessian times `v`."""
    return _product("hvp", func, inputs, v, create_graph, strict)


def vhp(
    func: Function,
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """The value, and `v` times the Hessian, which is symmetric."""
    return _product("vhp", func, inputs, v, create_graph, strict)


def _product(
    name: str, func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> Any:
    points, single = _each(inputs, "the inputs", name)
    why = "the input is"
    directions = _vector(name, v, points, not single, why)
    number = _one_number(name, func)
    if strict:
        _check_strict(name, number, points, second=True)
    with _recording(create_graph):
        value, found = _func.hvp(number, _kept(points, create_graph), directions)
    return (
        _plain(value, create_graph),
        _plain(_same_form(found, single), create_graph),
    )


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
