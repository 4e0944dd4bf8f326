"""Functional derivatives: functions of functions, nestable to any order.

Each takes a function of tensors (or of nested lists, tuples and dicts of tensors) and
differentiates it with respect to the arguments that `argnums` names. Inputs that require
gradients already stay connected, so `grad(grad(f))` is the second derivative. Inside of `no_grad`
they do not: the derivative is taken, and leaves no history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.api import grad as _grad
from ..core import numeric
from ..core.modes import enable_grad, is_grad_enabled, numbers
from ..core.tape import Output
from ..core.tensor import Tensor
from ..core.tree import leaves, map_leaves, rebuilt, same_structure
from ..core.wrapped import Wrapped, cut_off, dual, requires_somewhere
from ..ops.creation import zeros_like
from ..ops.elementwise.copies import clone_
from ..transforms.forward import DualLevel, parts_of

Argnums = int | tuple[int, ...]


def _picked(args: tuple[Any, ...], argnums: Argnums) -> tuple[int, ...]:
    if (not argnums and argnums != 0) or not isinstance(argnums, (int, tuple, list)):
        raise RuntimeError(f"argnums must be the number of an argument or several, got {argnums!r}")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"argnums {argnums} does not fit a call with {len(args)} arguments")
    picked = tuple(n % len(args) for n in numbers)
    if len(set(picked)) < len(picked):
        raise RuntimeError(f"argnums {argnums} names an argument twice")
    return picked


def _tracked(x: Any) -> Any:
    """A tensor to differentiate for: connected to `x` if `x` itself is being differentiated."""
    if not isinstance(x, Tensor):
        raise ValueError(f"cannot differentiate with respect to {type(x).__name__}; give a Tensor")
    if not numeric.is_differentiable(x._array.dtype):
        raise RuntimeError(f"cannot differentiate with respect to a tensor of {x.dtype}")
    if x.requires_grad:
        return clone_(x)
    if isinstance(x, Wrapped):  # which stays connected on the levels below
        leaf = x.stripped()
        leaf._requires = True
        return leaf
    return x.detach().requires_grad_()


def _reaches_outside(outputs: Any, inputs: list[Tensor], start: int) -> bool:
    """Whether the function also used a tensor from outside that is being differentiated."""
    own = {id(x) for x in inputs}
    seen: set[int] = set()
    stack = [edge for o in leaves(outputs) for edge in _edges_below(o)]
    while stack:
        edge = stack.pop()
        node = edge.entry if isinstance(edge, Output) else edge
        if node is None or id(node) in own or id(node) in seen:
            continue
        if isinstance(node, Tensor):
            if node.requires_grad:
                return True
        elif node.number < start:
            return True
        else:
            seen.add(id(node))
            stack.extend(node.edges)
    return False


def _without_history(x: Any) -> Any:
    if isinstance(x, Wrapped):
        return x.stripped()
    return x.detach() if isinstance(x, Tensor) and x.requires_grad else x


def _edges_below(x: Any) -> list[Any]:
    """The edges of a tensor and of the values it wraps: each level has its own history."""
    if not isinstance(x, Tensor):
        return []
    edges = [x._edge or x] if x.requires_grad else []
    if isinstance(x, Wrapped):
        edges += _edges_below(x._extra.value) + _edges_below(x._extra.tangent)
    return edges


class _Call:
    """One call of a function with some of its arguments tracked."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, argnums: Argnums, has_aux: bool
    ) -> None:
        picked = _picked(args, argnums)
        start = next(numbers)
        #: whether the caller records; if not, nothing outside this call is connected to it
        self.connected = is_grad_enabled()
        with enable_grad():
            tracked = list(args)
            for n in picked:
                given = args[n] if self.connected else map_leaves(cut_off, args[n])
                tracked[n] = map_leaves(_tracked, given)
            out = function(*tracked, **kwargs)
        self.aux = None
        if has_aux:
            out, self.aux = _with_aux(out)
        self.output = out
        self.structure = (
            tracked[picked[0]] if isinstance(argnums, int) else tuple(tracked[n] for n in picked)
        )
        self.inputs = list(leaves(self.structure))
        #: whether an outer derivative goes through the inputs or through tensors of the function
        self.nested = self.connected and (
            any(x._edge is not None for x in self.inputs)
            or _reaches_outside((self.output, self.aux, self.inputs), self.inputs, start)
        )

    def scalar(self) -> Tensor:
        out = self.output
        if not isinstance(out, Tensor) or out.numel() != 1:
            shown = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise RuntimeError(f"grad needs a function with one number as its result, got {shown}")
        return out

    def pull(self, outputs: Any, cotangents: Any, create_graph: bool | None = None) -> list[Tensor]:
        """Gradients for the inputs, zeros for inputs that do not affect the outputs."""
        outs = [o for o in leaves(outputs) if isinstance(o, Tensor)]
        starts = None if cotangents is None else list(leaves(cotangents))
        keep = create_graph
        if keep is None:  # gradients also depend on the cotangents
            recorded = is_grad_enabled() and any(map(requires_somewhere, starts or ()))
            keep = self.nested or recorded
        linked = [i for i, o in enumerate(outs) if o.requires_grad]
        if not linked:
            return [zeros_like(x) for x in self.inputs]
        found = _grad(
            [outs[i] for i in linked],
            self.inputs,
            None if starts is None else [starts[i] for i in linked],
            retain_graph=True,
            create_graph=keep,
            allow_unused=True,
        )
        return [zeros_like(x) if g is None else g for g, x in zip(found, self.inputs, strict=True)]

    def shaped(self, values: list[Any]) -> Any:
        return rebuilt(self.structure, iter(values))

    def plain(self, value: Any) -> Any:
        """The output for the caller: without history unless the call is nested."""
        if self.nested:
            return value
        return map_leaves(_without_history if self.connected else cut_off, value)


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of a function that returns one number.

    >>> import tapegrad
    >>> tapegrad.func.grad(tapegrad.tanh)(tapegrad.tensor(0.0))
    tensor(1.)
    """
    both = value_and_grad(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Like `grad`, with the function's value too: (value, gradient)."""

    def both(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, args, kwargs, argnums, has_aux)
        found = call.shaped(call.pull(call.scalar(), None))
        value = call.plain(call.output)
        return ((value, call.plain(call.aux)) if has_aux else value), found

    return both


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`value_and_grad` in PyTorch's order: (gradient, value), or (gradient, (value, aux)).

    >>> import tapegrad
    >>> tapegrad.func.grad_and_value(lambda x: x**2)(tapegrad.tensor(3.0))
    (tensor(6.), tensor(9.))
    """
    both = value_and_grad(func, argnums, has_aux)

    def swapped(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return found, value

    return swapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value, and a function from gradients of the output to gradients of the inputs."""
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux)
    check_outputs("vjp", call.output)

    def pullback(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        if not same_structure(call.output, given):
            raise RuntimeError(
                "vjp: expected gradients of the same structure as the output of the function"
            )
        return call.shaped(call.pull(call.output, given))

    value = call.plain(call.output)
    return (value, pullback, call.plain(call.aux)) if has_aux else (value, pullback)


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """The value and its derivative along `tangents`, in forward mode: in one run of the function.

    With `strict`, a result that does not depend on the inputs is an error, not a tangent of zeros.

    >>> import tapegrad
    >>> x, v = tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 0.0])
    >>> tapegrad.func.jvp(lambda x: x * x, (x,), (v,))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError(
            f"jvp takes a tuple of primals and a tuple of tangents, got {type(primals).__name__} "
            f"and {type(tangents).__name__}"
        )
    if not primals:
        raise RuntimeError("jvp: expected primals to have at least one tensor")
    points, directions = list(leaves(primals)), list(leaves(tangents))
    if not same_structure(primals, tangents):
        raise RuntimeError("jvp needs a tangent for each primal, in the same nested form")
    level = DualLevel()
    try:
        duals = [_dual(x, t, level) for x, t in zip(points, directions, strict=True)]
        with level.entered():
            out = func(*rebuilt(primals, iter(duals)))
        aux = None
        if has_aux:
            out, aux = _with_aux(out)
        check_outputs("jvp", out)
        parts = [_parts(y, level, strict) for y in leaves(out)]
        value = rebuilt(out, iter([y for y, _ in parts]))
        tangent = rebuilt(out, iter([t for _, t in parts]))
        if has_aux:
            return value, tangent, map_leaves(lambda y: parts_of(y, level)[0], aux)
        return value, tangent
    finally:
        level.alive = False


def _dual(x: Any, tangent: Any, level: DualLevel) -> Any:
    for what, part in (("primals", x), ("tangents", tangent)):
        if not isinstance(part, Tensor):
            raise RuntimeError(f"jvp: {what} must be tensors, got {type(part).__name__}")
    if not numeric.is_differentiable(x._array.dtype):
        raise RuntimeError(f"jvp cannot differentiate with respect to a tensor of {x.dtype}")
    if tuple(x.shape) != tuple(tangent.shape):
        raise RuntimeError(
            f"jvp: a primal of shape {tuple(x.shape)} has a tangent of the same shape, got "
            f"{tuple(tangent.shape)}"
        )
    return dual(x, tangent if tangent.dtype == x.dtype else tangent.to(x.dtype), level)


def _parts(y: Any, level: DualLevel, strict: bool) -> tuple[Tensor, Tensor]:
    value, tangent = parts_of(y, level)
    if tangent is None:
        if strict:
            raise RuntimeError("jvp: an output does not depend on the inputs (strict=True)")
        tangent = zeros_like(value)
    return value, tangent


def check_outputs(what: str, out: Any) -> None:
    """Raise unless a function has returned tensors, at least one, and nothing else."""
    found = list(leaves(out))
    if not found:
        raise RuntimeError(f"{what}: the function must return at least one tensor, got {out!r}")
    for y in found:
        if not isinstance(y, Tensor):
            raise RuntimeError(
                f"{what}: expected the function to return only tensors, got {type(y).__name__}"
            )


def _with_aux(out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError("with has_aux=True the function must return (output, aux)")
    return out


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value at `primals`, and the function's derivative there as a function of tangents.

    The function runs once. The returned function is linear, and takes tangents as `jvp` does.

    >>> import tapegrad
    >>> value, along = tapegrad.func.linearize(lambda x: x**3, tapegrad.tensor([1.0, 2.0]))
    >>> along(tapegrad.tensor([1.0, 1.0]))
    tensor([ 3., 12.])
    """
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux=False)
    outs = [o for o in leaves(call.output) if isinstance(o, Tensor)]
    with enable_grad():
        dummies = [zeros_like(o).requires_grad_() for o in outs]
        pulled = call.pull(call.output, dummies, create_graph=True)

    def along(*tangents: Any) -> Any:
        if not same_structure(primals, tangents):
            raise RuntimeError("linearize: expected tangents of the same structure as primals")
        directions = list(leaves(tangents))
        for x, t in zip(call.inputs, directions, strict=True):
            if tuple(x.shape) != tuple(t.shape) or x.dtype != t.dtype:
                raise RuntimeError(
                    f"linearize: expected a tangent of shape {tuple(x.shape)} and {x.dtype}, got "
                    f"{tuple(t.shape)} and {t.dtype}"
                )
        linked = [(g, t) for g, t in zip(pulled, directions, strict=True) if g.requires_grad]
        found: Any = (None,) * len(dummies)
        if linked:
            found = _grad(
                [g for g, _ in linked],
                dummies,
                [t for _, t in linked],
                create_graph=call.nested or any(t.requires_grad for t in directions),
                retain_graph=True,
                allow_unused=True,
            )
        pushed = [zeros_like(o) if g is None else g for g, o in zip(found, outs, strict=True)]
        return rebuilt(call.output, iter(pushed))

    return call.plain(call.output), along


def hvp(func: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The value and the Hessian times `tangents`, without forming the Hessian."""
    single = isinstance(primals, Tensor)
    points = (primals,) if single else tuple(primals)
    directions = (tangents,) if single else tuple(tangents)
    call = _Call(func, points, {}, tuple(range(len(points))), has_aux=False)
    gradients = call.pull(call.scalar(), None, create_graph=True)
    with enable_grad():
        terms = [
            (g * t).sum()
            for g, t in zip(gradients, leaves(directions), strict=True)
            if g.requires_grad
        ]
        total = terms[0] if terms else None
        for term in terms[1:]:
            total = total + term
    if total is None:
        found: list[Any] = [zeros_like(x) for x in call.inputs]
    else:
        found = call.pull(total, None)
    value = call.plain(call.output)
    result = call.shaped(found)
    return value, result[0] if single else result
