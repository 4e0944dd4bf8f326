"""Functional derivatives: functions of functions, nestable to any order.

Each takes a function of tensors (or of nested lists, tuples and dicts of tensors) and
differentiates it with respect to the arguments that `argnums` names. Inputs that require
gradients already stay connected, so `grad(grad(f))` is the second derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.api import grad as _grad
from ..core.modes import enable_grad, numbers
from ..core.tape import Output
from ..core.tensor import Tensor
from ..core.tree import leaves, map_leaves, rebuilt
from ..core.wrapped import Wrapped, requires_somewhere
from ..ops.creation import zeros_like
from ..ops.elementwise.copies import clone_
from ..ops.shape.joining import stack

Argnums = int | tuple[int, ...]


def _picked(args: tuple[Any, ...], argnums: Argnums) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise ValueError(f"argnums {argnums} does not fit a call with {len(args)} arguments")
    return tuple(n % len(args) for n in numbers)


def _tracked(x: Any) -> Any:
    """A tensor to differentiate for: connected to `x` if `x` itself is being differentiated."""
    if not isinstance(x, Tensor):
        raise TypeError(f"cannot differentiate with respect to {type(x).__name__}; give a Tensor")
    if not x.dtype.is_floating_point:
        raise TypeError(f"cannot differentiate with respect to a tensor of {x.dtype}")
    if x.requires_grad:
        return clone_(x)
    if isinstance(x, Wrapped):  # which stays connected on the levels below
        leaf = x.stripped()
        leaf._requires = True
        return leaf
    return x.detach().requires_grad_()


def _reaches_outside(outputs: Any, inputs: list[Tensor], start: int) -> bool:
    """Whether the function also used something from outside that is being differentiated."""
    own = {id(x) for x in inputs}
    seen: set[int] = set()
    stack = [o._edge for o in leaves(outputs) if isinstance(o, Tensor) and o.requires_grad]
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
    return x.detach() if isinstance(x, Tensor) else x


def _reaches_below(x: Any) -> bool:
    """Whether a level below the one of a wrapped tensor records what is done with it."""
    return isinstance(x, Wrapped) and any(
        requires_somewhere(part) for part in (x._extra.value, x._extra.tangent)
    )


class _Call:
    """One call of a function with some of its arguments tracked."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, argnums: Argnums, has_aux: bool
    ) -> None:
        picked = _picked(args, argnums)
        start = next(numbers)
        with enable_grad():
            tracked = list(args)
            for n in picked:
                tracked[n] = map_leaves(_tracked, args[n])
            out = function(*tracked, **kwargs)
        self.aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise TypeError("with has_aux=True the function must return (output, aux)")
            out, self.aux = out
        self.output = out
        self.structure = (
            tracked[picked[0]] if isinstance(argnums, int) else tuple(tracked[n] for n in picked)
        )
        self.inputs = list(leaves(self.structure))
        #: whether some outer derivative goes through the inputs or through what the function holds
        self.nested = (
            any(x._edge is not None for x in self.inputs)
            or _reaches_outside((self.output, self.aux), self.inputs, start)
            or any(_reaches_below(x) for x in (*leaves(self.output), *leaves(self.aux)))
        )

    def scalar(self) -> Tensor:
        out = self.output
        if not isinstance(out, Tensor) or out.numel() != 1:
            shown = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise RuntimeError(f"grad needs a function with one number as its result, got {shown}")
        return out

    def pull(self, outputs: Any, cotangents: Any, create_graph: bool | None = None) -> list[Tensor]:
        """Gradients for the inputs, zeros for those that do not matter."""
        keep = self.nested if create_graph is None else create_graph
        outs = [o for o in leaves(outputs) if isinstance(o, Tensor)]
        starts = None if cotangents is None else list(leaves(cotangents))
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
        """The output as the caller should see it: without history unless it is nested."""
        if self.nested:
            return value
        return map_leaves(_without_history, value)


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of a function whose result is one number.

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
        return ((value, call.aux) if has_aux else value), found

    return both


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value, and a function from gradients of the output to gradients of the inputs."""
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux)

    def pullback(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return call.shaped(call.pull(call.output, given))

    value = call.plain(call.output)
    return (value, pullback, call.aux) if has_aux else (value, pullback)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The value and its derivative along `tangents`, by differentiating a vjp once more."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp got {len(primals)} primals but {len(tangents)} tangents")
    call = _Call(func, tuple(primals), {}, tuple(range(len(primals))), has_aux)
    directions = list(leaves(tuple(tangents)))
    outs = [o for o in leaves(call.output) if isinstance(o, Tensor)]
    with enable_grad():
        dummies = [zeros_like(o).requires_grad_() for o in outs]
        pulled = call.pull(call.output, dummies, create_graph=True)
        linked = [(g, t) for g, t in zip(pulled, directions, strict=True) if g.requires_grad]
        if linked:
            found = _grad(
                [g for g, _ in linked],
                dummies,
                [t for _, t in linked],
                create_graph=call.nested or any(t.requires_grad for t in directions),
                retain_graph=True,
                allow_unused=True,
            )
        else:
            found = (None,) * len(dummies)
    pushed = [zeros_like(o) if g is None else g for g, o in zip(found, outs, strict=True)]
    tangent = rebuilt(call.output, iter(pushed))
    value = call.plain(call.output)
    return (value, tangent, call.aux) if has_aux else (value, tangent)


def _unit_vectors(x: Tensor) -> list[Tensor]:
    units = []
    for i in range(x.numel()):
        unit = zeros_like(x)
        unit._array.reshape(-1)[i] = 1
        units.append(unit)
    return units


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The Jacobian, one row (one backward pass) for each element of the output."""

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, args, kwargs, argnums, has_aux)

        def rows(out: Tensor) -> Any:
            pulled = [call.pull(out, unit) for unit in _unit_vectors(out)]
            columns = [
                stack([row[k] for row in pulled]).reshape(tuple(out.shape) + tuple(x.shape))
                if pulled
                else out.new_zeros(tuple(out.shape) + tuple(x.shape))
                for k, x in enumerate(call.inputs)
            ]
            return call.shaped(columns)

        found = map_leaves(rows, call.output)
        return (found, call.aux) if has_aux else found

    return jacobian


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The Jacobian, one column for each element of the input; for functions with few inputs."""

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        picked = _picked(args, argnums)
        chosen = args[picked[0]] if isinstance(argnums, int) else tuple(args[n] for n in picked)
        inputs = list(leaves(chosen))
        aux: list[Any] = []

        def along(k: int, unit: Tensor) -> Any:
            def inner(x: Tensor) -> Any:
                values = [*inputs[:k], x, *inputs[k + 1 :]]
                given = rebuilt(chosen, iter(values))
                full = list(args)
                for n, value in zip(
                    picked, (given,) if isinstance(argnums, int) else given, strict=True
                ):
                    full[n] = value
                out = func(*full, **kwargs)
                if has_aux:
                    out, extra = out
                    aux[:] = [extra]
                return out

            return jvp(inner, (inputs[k],), (unit,))[1]

        def columns(k: int, x: Tensor) -> Any:
            pushed = [along(k, unit) for unit in _unit_vectors(x)]

            def joined(*parts: Tensor) -> Tensor:
                shape = tuple(parts[0].shape)
                out: Tensor = stack(parts, dim=-1).reshape(shape + tuple(x.shape))
                return out

            flat = [list(leaves(p)) for p in pushed]
            return rebuilt(pushed[0], iter([joined(*parts) for parts in zip(*flat, strict=True)]))

        found = rebuilt(chosen, iter([columns(k, x) for k, x in enumerate(inputs)]))
        return (found, aux[0]) if has_aux else found

    return jacobian


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a function whose result is one number.

    >>> import tapegrad
    >>> tapegrad.func.hessian(lambda x: (x**3).sum())(tapegrad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(grad(func, argnums), argnums)


def hvp(func: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The value and the Hessian times `tangents`, without making the Hessian."""
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
