"""Derivatives as in `torch.autograd.functional`: of a function at given inputs.

Comes in: a function, and `inputs`, a tensor or a tuple of tensors. Goes out: Jacobians, Hessians or
their products, in the same form. Called by users; `tapegrad.func` has the same derivatives as
functions of functions, and computes them here too: rows and columns as a batch, with or without
`vectorize`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import func as _func
from ..core.modes import enable_grad
from ..core.tensor import Tensor
from ..core.wrapped import Wrapped
from ..ops.creation import ones_like
from .api import grad as _grad

Function = Callable[..., Any]

_STRATEGIES = ("forward-mode", "reverse-mode")


# -- arguments and results ---------------------------------------------------------------------


def _each(values: Any, what: str, name: str) -> tuple[tuple[Any, ...], bool]:
    """A tensor or several, as a tuple, and whether it was one."""
    single = not isinstance(values, tuple)
    found = (values,) if single else values
    for i, x in enumerate(found):
        if not isinstance(x, Tensor):
            where = "" if single else f" at index {i}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but "
                f"the value{where} has type {type(x)}"
            )
    return found, single


def _same_form(results: Any, single: bool) -> Any:
    return results[0] if single else tuple(results)


def _kept(points: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Results stay differentiable only if asked for."""
    if create_graph:
        return points
    return tuple(p.stripped() if isinstance(p, Wrapped) else p.detach() for p in points)


def _plain(values: Any, create_graph: bool) -> Any:
    """Without history unless asked for: the function may use parameters that have one."""
    if isinstance(values, tuple):
        return tuple(_plain(v, create_graph) for v in values)
    return values if create_graph or isinstance(values, Wrapped) else values.detach()


def _outputs(name: str, function: Function) -> Function:
    """The function, with its results checked and as a tuple."""

    def checked(*args: Any) -> tuple[Any, ...]:
        what = "outputs of the user-provided function"
        return _each(function(*args), what, name)[0]

    return checked


def _vector(name: str, v: Any, like: tuple[Any, ...], whose: str) -> tuple[Any, ...]:
    """The vector of a product, checked; ones if it may be left out."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"{name}: the vector v can only be None if {whose} is a single Tensor with a "
                "single element"
            )
        return (ones_like(like[0]),)
    given, _ = _each(v, "v", name)
    if len(given) != len(like):
        raise RuntimeError(f"{name}: v is a tuple of invalid length, {len(given)} for {len(like)}")
    for i, (t, x) in enumerate(zip(given, like, strict=True)):
        if tuple(t.shape) != tuple(x.shape):
            raise RuntimeError(
                f"{name}: entry {i} in v has invalid size: should be {tuple(x.shape)} but got "
                f"{tuple(t.shape)}"
            )
    return given


def _one_number(name: str, function: Function) -> Function:
    def checked(*args: Any) -> Any:
        found, single = _each(function(*args), "outputs of the user-provided function", name)
        if not single or found[0].numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {name} should contain a single "
                "element"
            )
        return found[0].reshape(())

    return checked


def _check_strict(name: str, function: Function, points: tuple[Any, ...], what: str) -> None:
    """Raise if a result of the function does not depend on one of its inputs."""
    with enable_grad():
        leaves = [p.detach().requires_grad_() for p in points]
        found = _each(function(*leaves), "outputs of the user-provided function", name)[0]
        for i, y in enumerate(found):
            if not y.requires_grad:
                raise RuntimeError(
                    f"{name}: {what} {i} of the user-provided function does not require "
                    "gradients. It must be computed in a differentiable manner from the input when "
                    "running in strict mode"
                )
            slopes = _grad(y.sum(), leaves, retain_graph=True, allow_unused=True)
            for j, slope in enumerate(slopes):
                if slope is None:
                    raise RuntimeError(
                        f"{name}: {what} {i} of the user-provided function is independent of input "
                        f"{j}. This is not allowed in strict mode"
                    )


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
            f"Expected strategy to be either 'forward-mode' or 'reverse-mode', got {strategy!r}; "
            "prefer forward-mode if there are more outputs than inputs"
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "jacobian: create_graph=True and strategy='forward-mode' are not supported "
                "together; use tapegrad.func.jacfwd"
            )
        if not vectorize:
            raise NotImplementedError(
                "Computing Jacobian using forward-AD is only implemented for vectorize=True"
            )
    if strict and vectorize:
        raise RuntimeError("jacobian: strict=True and vectorize=True are not supported together")
    points, single = _each(inputs, "inputs", "jacobian")
    several: list[bool] = []

    def checked(*args: Any) -> Any:
        found, alone = _each(func(*args), "outputs of the user-provided function", "jacobian")
        several[:] = [not alone]
        return found

    if strict:
        _check_strict("jacobian", checked, points, "Output")
    argnums = tuple(range(len(points)))
    make = _func.jacfwd if strategy == "forward-mode" else _func.jacrev
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
    """The second derivatives of a function whose result is one number."""
    points, single = _each(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in _STRATEGIES:
        raise AssertionError(
            "Expected strategy to be either 'forward-mode' or 'reverse-mode', got "
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
            "Computing forward-over-reverse Hessian is only implemented for vectorize=True"
        )
    if strict and vectorize:
        raise RuntimeError("hessian: strict=True and vectorize=True are not supported together")
    number = _one_number("hessian", func)
    argnums = tuple(range(len(points)))
    slopes = _func.grad(number, argnums=argnums)
    if strict:
        _check_strict("hessian", number, points, "Output")
        _check_strict("hessian", slopes, points, "The gradient")
    make = _func.jacfwd if forward else _func.jacrev
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
    """The value, and `v` times the Jacobian (v is 1 for a function with one number as result)."""
    points, single = _each(inputs, "inputs", "vjp")
    checked = _outputs("vjp", func)
    if strict:
        _check_strict("vjp", checked, points, "Output")
    form: list[bool] = []

    def called(*args: Any) -> Any:
        found, alone = _each(func(*args), "outputs of the user-provided function", "vjp")
        form[:] = [alone]
        return found

    values, pull = _func.vjp(called, *_kept(points, create_graph))
    start = _vector("vjp", v, values, "the result of the user-provided function")
    found = pull(start)
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
    points, _ = _each(inputs, "inputs", "jvp")
    directions = _vector("jvp", v, points, "the input of the user-provided function")
    if strict:
        _check_strict("jvp", _outputs("jvp", func), points, "Output")

    def called(*args: Any) -> Any:
        found, alone = _each(func(*args), "outputs of the user-provided function", "jvp")
        return found[0] if alone else found

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
    points, single = _each(inputs, "inputs", name)
    directions = _vector(name, v, points, "the input of the user-provided function")
    number = _one_number(name, func)
    if strict:
        _check_strict(name, number, points, "Output")
        slopes = _func.grad(number, argnums=tuple(range(len(points))))
        _check_strict(name, slopes, points, "The gradient")
    value, found = _func.hvp(number, _kept(points, create_graph), directions)
    return (
        _plain(value, create_graph),
        _plain(_same_form(found, single), create_graph),
    )


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
