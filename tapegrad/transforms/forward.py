"""Forward mode: values that carry a tangent, the derivative along a direction.

Comes in: a primitive and inputs, some of them `Dual`. Goes out: dual results. The tangent of an
elementwise primitive is its gradient rule applied to the tangents, because the rule multiplies each
element by a slope; linear primitives (movements, sums) are applied to the tangents; a product has a
term for each side. For all others the gradient rule is differentiated again, unless the primitive
has a rule (`jvp=`). Used by `func.jvp`, `func.jacfwd` and `autograd.forward_ad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import inplace, numeric, storage, xp
from ..core.complexes import HOLOMORPHIC
from ..core.modes import AUTOCAST, GRAD, STATE, switched
from ..core.primitive import CONTRACTION, ELEMENTWISE, PRIMITIVES, Primitive
from ..core.tensor import Tensor, wrap
from ..core.wrapped import Dual, Wrapping, dual, requires_somewhere, whole_of
from .levels import Level, rules_of, saved_of


class DualLevel(Level):
    """A run of forward mode."""

    def __init__(self, strict: bool = True) -> None:
        super().__init__()
        #: refuse writes that would give a tangent to a tensor from outside
        self.strict = strict

    def run(self, p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        primals = [self.value(x) for x in inputs]
        tangents = [self.tangent_of(x) for x in inputs]
        out = p(*primals, **params)
        outs = out if isinstance(out, tuple) else (out,)
        if not p.differentiable:
            return outs
        found = tangents_of(p, primals, tangents, outs, params)
        results = []
        for y, t in zip(outs, found, strict=True):
            made = y if t is None else dual(y, t, self)
            if t is not None and not p.view:
                owner = _memory_of(t)
                made._extra.lent = any(s is not None and _memory_of(s) is owner for s in tangents)
            results.append(made)
        return tuple(results)

    def tangent_of(self, x: Any) -> Any:
        """The tangent of an input, or None.

        The tangent of a view is a view of its base's tangent, which a write may have replaced.
        """
        if not self.has(x):
            return None
        made = x._extra
        if x._view is not None:
            base, chain, _ = x._view
            if self.has(base) and _memory_of(base._extra.tangent) is not _memory_of(made.tangent):
                made.tangent = inplace.through(chain, base._extra.tangent)
        return made.tangent

    def adopt(self, tensor: Any, what: str) -> None:
        """Give a tensor, and the base if it is a view, a tangent of zeros."""
        base = tensor if tensor._view is None else tensor._view[0]
        for t in (tensor, base):
            if type(t) is not Tensor and not self.has(t):
                raise RuntimeError(
                    f"{what}: a {type(t).__name__} cannot get a tangent by being written to; use a "
                    "clone() of it"
                )
        if self.strict and base.id < self.started:
            raise RuntimeError(
                f"{what} would write a tangent into a tensor from outside of the function that is "
                "differentiated; write into a clone() of it"
            )
        if type(base) is Tensor:
            self._widen(base, zeros_like(base))
        if tensor is not base:
            self._widen(tensor, inplace.through(tensor._view[1], base._extra.tangent))

    def _widen(self, tensor: Any, tangent: Tensor) -> None:
        value = wrap(tensor._array)
        value._edge, value._requires, value._view = tensor._edge, tensor._requires, tensor._view
        for tape in STATE.tapes:
            tape.values[value.id] = tape.value_of(tensor).number
        tensor._extra = Wrapping(self, value, tangent)
        tensor.__class__ = Dual

    def refuse(self, x: Any) -> None:
        """Do not refuse: after the level has ended, a dual tensor is just its value."""


def _memory_of(x: Any) -> Any:
    return storage.owner_of(whole_of(x)._array)


def zeros_like(x: Any) -> Any:
    """Zeros in the shape of a tensor, without a batch or a tangent."""
    array = x._array
    return wrap(xp.module(array).zeros(array.shape, array.dtype))


def is_differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and numeric.is_differentiable(x._array.dtype)


def is_complex(x: Any) -> bool:
    return isinstance(x, Tensor) and numeric.is_complex(x._array.dtype)


def tangents_of(
    p: Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: tuple[Any, ...],
    params: dict[str, Any],
) -> Sequence[Any]:
    """The tangents of the results, or None for results without one."""
    rules = p.rules
    kept = [None if rules and rules[i] is None else t for i, t in enumerate(tangents)]
    if all(t is None for t in kept):
        return [None] * len(outs)
    with switched(off=AUTOCAST):
        if p.jvp is not None:
            found = p.jvp(primals, kept, outs, **params)
            return found if isinstance(found, tuple) else (found,)
        if p.linear:
            return _of_linear(p, primals, kept, outs, params)
        plain = p.complex == HOLOMORPHIC or not _any_complex((*primals, *outs))
        if p.kind == ELEMENTWISE and len(outs) == 1 and plain:
            return [_of_elements(p, primals, kept, outs, params)]
        if p.kind == CONTRACTION:
            return [_of_product(p, primals, kept, params)]
        return _by_double_vjp(p, primals, kept, outs, params)


def _any_complex(operands: Sequence[Any]) -> bool:
    """Whether an operand is complex: then the gradient rule may not be a product with a slope."""
    return any(is_differentiable(x) and not numeric.is_floating(x._array.dtype) for x in operands)


def _of_linear(
    p: Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: tuple[Any, ...],
    params: dict[str, Any],
) -> Sequence[Any]:
    given = []
    for i, (x, t) in enumerate(zip(primals, tangents, strict=True)):
        if t is not None:
            given.append(t)
        elif is_differentiable(x) and not (p.rules and p.rules[i] is None):
            given.append(zeros_like(x))
        elif isinstance(x, (int, float, complex)) and not (p.rules and p.rules[i] is None):
            given.append(0.0)  # the tangent of a constant
        else:
            given.append(x)
    out = p(*given, **params)
    found = out if isinstance(out, tuple) else (out,)
    return [t if is_differentiable(y) else None for y, t in zip(outs, found, strict=True)]


def _of_elements(
    p: Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: tuple[Any, ...],
    params: dict[str, Any],
) -> Any:
    """Apply the gradient rules of an elementwise primitive, which multiply by a slope."""
    (y,) = outs
    if not is_differentiable(y):
        return None
    shape = tuple(y.shape)
    total = None
    for i, t in enumerate(tangents):
        if t is None:
            continue
        edges = tuple([True if k == i else None for k in range(len(tangents))])
        saved = saved_of(p, primals, outs, edges, _as_it_is)
        g = t if tuple(t.shape) == shape else PRIMITIVES["expand"](t, shape=shape)
        part = p.pull(g, edges, saved, params)[i]
        if part is None:
            continue
        if tuple(part.shape) != shape:
            part = PRIMITIVES["expand"](part, shape=shape)
        total = part if total is None else total + part
    return zeros_like(y) if total is None else _in_dtype(total, y)


def _of_product(
    p: Primitive, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> Any:
    x, y = primals
    left = None if tangents[0] is None else p(tangents[0], y, **params)
    right = None if tangents[1] is None else p(x, tangents[1], **params)
    return right if left is None else left if right is None else left + right


def _by_double_vjp(
    p: Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: tuple[Any, ...],
    params: dict[str, Any],
) -> Sequence[Any]:
    """Differentiate the gradient rule: it is linear in g, and its transpose maps tangents."""
    from ..autograd.api import grad
    from ..autograd.engine import unbroadcast

    recording = bool(STATE.mode & GRAD)
    several = len(outs) > 1
    edges = tuple([None if t is None else True for t in tangents])
    with switched(on=GRAD):
        dummies: list[Any] = [
            zeros_like(y).requires_grad_() if is_differentiable(y) else None for y in outs
        ]
        saved = saved_of(p, primals, outs, edges, _as_it_is)
        rules = rules_of(p, primals, outs)
        pulled = rules.pull(dummies if several else dummies[0], edges, saved, params)
        pairs = [
            (unbroadcast(r, tuple(x.shape)) if tuple(r.shape) != tuple(x.shape) else r, t)
            for r, t, x in zip(pulled, tangents, primals, strict=True)
            if t is not None and r is not None
        ]
        pairs = [(r, t) for r, t in pairs if r.requires_grad]
        wanted = [d for d in dummies if d is not None]
        if not pairs:
            return [
                None if d is None else zeros_like(y) for d, y in zip(dummies, outs, strict=True)
            ]
        nested = recording and any(
            requires_somewhere(x) for x in (*primals, *tangents) if isinstance(x, Tensor)
        )
        found = iter(
            grad(
                [r for r, _ in pairs],
                wanted,
                [_in_dtype(t, r) for r, t in pairs],
                retain_graph=True,
                create_graph=nested,
                allow_unused=True,
            )
        )
    results: list[Any] = []
    for y, d in zip(outs, dummies, strict=True):
        t = None if d is None else next(found)
        results.append(zeros_like(y) if t is None and d is not None else t)
    return results


def _as_it_is(x: Any) -> Any:
    return x


def _in_dtype(t: Any, like: Any) -> Any:
    return t if t._array.dtype == like._array.dtype else t.to(like.dtype)


def parts_of(x: Any, level: DualLevel) -> tuple[Any, Any]:
    """The value of a tensor, and its tangent or None."""
    if level.has(x):
        return x._extra.value, level.tangent_of(x)
    return level.value(x), None


def tangents_by_rule(
    cls: Any, leaves: Sequence[Any], tangents: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any]:
    """The tangents of a Function's results, by differentiating its backward."""
    from ..autograd.api import grad

    recording = bool(STATE.mode & GRAD)
    nested = recording and any(requires_somewhere(t) for t in tangents)
    with switched(on=GRAD):
        out = cls.apply(*leaves, **kwargs)
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        found: list[Any] = [None] * len(outs)
        kept = [i for i, y in enumerate(outs) if isinstance(y, Tensor) and y.requires_grad]
        if not kept:
            return found
        dummies = [zeros_like(outs[i]).requires_grad_() for i in kept]
        wanted = [(x, t) for x, t in zip(leaves, tangents, strict=True) if t is not None]
        pulled = grad(
            [outs[i] for i in kept],
            [x for x, _ in wanted],
            dummies,
            create_graph=True,
            allow_unused=True,
        )
        pairs = [
            (r, t)
            for r, (_, t) in zip(pulled, wanted, strict=True)
            if r is not None and r.requires_grad
        ]
        pushed: Any = (None,) * len(dummies)
        if pairs:
            pushed = grad(
                [r for r, _ in pairs],
                dummies,
                [t for _, t in pairs],
                create_graph=nested,
                allow_unused=True,
            )
    for i, t in zip(kept, pushed, strict=True):
        found[i] = zeros_like(outs[i]) if t is None else t
    return found
