"""Levels: the transforms that run, and how a primitive passes through them.

Comes in: a primitive with inputs, some of them wrapped (`core/wrapped.py`). Goes out: its results,
wrapped. The innermost level that has wrapped an input unwraps the inputs, runs the primitive on the
values by its own rule, and wraps the results; the levels below do the same with the values. `bind`
calls this while the mode `TRANSFORM` is on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from ..core import source
from ..core.complexes import HOLOMORPHIC, conjugating, refuse
from ..core.modes import GRAD, STATE, numbers, transforming
from ..core.numeric import COMPLEX, DIFFERENTIABLE
from ..core.operands import check_broadcast
from ..core.primitive import (
    CONTRACTION,
    ELEMENTWISE,
    Primitive,
    _as_operand,
    _promote,
    note_view,
)
from ..core.tape import Entry, Output, new_entry, node_of
from ..core.tensor import Tensor, refresh
from ..core.wrapped import Wrapped

_PLAIN = (Tensor, int, float, complex, type(None))


class Level:
    """One run of a transform."""

    #: whether it runs a function; if not, the user entered it by hand
    is_function = True

    def __init__(self) -> None:
        self.depth = len(STATE.levels) + 1
        #: tensors with a higher sequence number were made inside the level
        self.started = next(numbers)
        self.alive = True

    def entered(self) -> transforming:
        """A context in which this level runs, on top of the running ones."""
        return transforming((*STATE.levels, self))

    def bind(self, p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run a primitive on the innermost level of its inputs; NotImplemented without one."""
        level = level_of(inputs)
        if level is None:
            return NotImplemented
        return _bound(level, p, inputs, params)

    def assign(self, tensor: Any, value: Any, what: str, since: float, given: bool) -> Any:
        """An in-place operation on wrapped tensors, on their innermost level."""
        from . import writes

        return writes.assign(tensor, value, what, since, given)

    def apply_function(self, cls: Any, ctx: Any, args: Any, kwargs: Any) -> Any:
        """A user's Function, on the innermost level of its arguments."""
        from .functions import apply_function

        return apply_function(cls, ctx, args, kwargs)

    def check_leaf(self, tensor: Any, what: str) -> None:
        """Refuse to overwrite a leaf of a level."""
        from . import writes

        writes.check_leaf(tensor, what)

    def turn(self, tensor: Any, movement: Any, what: str) -> Any:
        """An in-place movement of a wrapped tensor."""
        from . import writes

        return writes.turn(tensor, movement, what)

    def adopt(self, tensor: Any, what: str) -> None:
        """Wrap a tensor that is about to get a value of this level."""
        raise NotImplementedError

    def run(self, p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        """The results of a primitive on inputs some of which this level has wrapped."""
        raise NotImplementedError

    def has(self, x: Any) -> TypeGuard[Wrapped]:
        """Whether this level has wrapped `x`."""
        return isinstance(x, Wrapped) and x._extra.level is self

    def value(self, x: Any) -> Any:
        """The value of an input for the levels below, for which a leaf from inside is no leaf."""
        if not isinstance(x, Tensor):
            return x
        if self.has(x):
            return x._extra.value
        if x._requires and x._edge is None and x.id > self.started:
            return without_history(x)
        return x


def without_history(x: Any) -> Any:
    """The same tensor without its history on its own level."""
    return x.stripped() if isinstance(x, Wrapped) else x.detach()


def level_of(inputs: Sequence[Any]) -> Any:
    """The innermost level that has wrapped one of the inputs."""
    found = None
    for x in inputs:
        if isinstance(x, Wrapped):
            level = x._extra.level
            if not level.alive:
                level.refuse(x)
            elif found is None or level.depth > found.depth:
                found = level
    return found


def _bound(level: Any, p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
    tensors: list[Any] = [x if isinstance(x, _PLAIN) else _as_operand(x) for x in inputs]
    for x in tensors:
        if isinstance(x, Tensor) and x._view is not None:
            refresh(x)
    if p.promote is not None and not _is_uniform(tensors):
        _promote(p, tensors)
        if not any(level.has(x) for x in tensors):  # a cast has removed the last one
            return p(*tensors, **params)
    elif p.complex is None:
        refuse(p, [x._array if isinstance(x, Tensor) else x for x in tensors])
    if p.kind == ELEMENTWISE:
        check_broadcast(p, [x._array if isinstance(x, Tensor) else x for x in tensors])
    results = level.run(p, tensors, params)
    if p.view and level.has(results[0]):
        note_view(p, params, tensors[0], results[0], STATE.mode)
    if p.differentiable:
        record_on(level, p, params, tensors, results)
    return results[0] if len(results) == 1 else results


def _is_uniform(tensors: Sequence[Any]) -> bool:
    """Whether all tensors have one floating dtype, and all others are plain Python numbers."""
    dtypes = {x._array.dtype for x in tensors if isinstance(x, Tensor)}
    numbers = [x for x in tensors if not isinstance(x, Tensor)]
    return (
        len(dtypes) == 1
        and next(iter(dtypes)).char in "fd"
        and all(x is None or x.__class__ in (int, float) for x in numbers)
    )


def record_on(
    level: Any,
    p: Primitive,
    params: dict[str, Any],
    tensors: Sequence[Any],
    results: tuple[Any, ...],
) -> None:
    """Write an entry on the level itself, for gradients taken inside it."""
    if not STATE.mode & GRAD:
        return
    edges: list[Any] = [None] * len(tensors)
    inside = False
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor) or not x._requires or (p.rules and p.rules[i] is None):
            continue
        edges[i] = x._edge or x
        node = node_of(edges[i])
        number = node.number if isinstance(node, Entry) else node.id
        inside = inside or number > level.started or not level.is_function
    if not inside:
        return
    saved = saved_of(p, tensors, results, edges, _kept)
    line = source.outside(sys._getframe(1))
    rules = rules_of(p, tensors, results)
    entry = new_entry(rules, params, tuple(edges), saved, next(numbers), line)
    if len(tensors) > 1 and p.kind in (ELEMENTWISE, CONTRACTION):
        entry.shapes = tuple([tuple(x.shape) if isinstance(x, Tensor) else () for x in tensors])
    for i, result in enumerate(results):
        if result._array.dtype.kind in DIFFERENTIABLE:
            result._edge = entry if len(results) == 1 else Output(entry, i)
            result._requires = True


def rules_of(p: Primitive, tensors: Sequence[Any], results: Sequence[Any]) -> Primitive:
    """The primitive with rules for these operands; for complex ones, a conjugating copy."""
    if p.complex == HOLOMORPHIC and results[0]._array.dtype.kind in COMPLEX:
        return conjugating(p, [x._array if isinstance(x, Tensor) else x for x in tensors])
    return p


def saved_of(
    p: Primitive,
    tensors: Sequence[Any],
    results: Sequence[Any],
    edges: Sequence[Any],
    kept: Callable[[Any], Any],
) -> tuple[Any, ...]:
    """The values that a primitive's rules need, as `Primitive.saver` returns them."""
    if p.extras:
        raise NotImplementedError(
            f"{p.name} has results for its gradient rule alone, which transforms do not know"
        )
    saved: list[Any] = []
    for what, index, users in p.slots:
        if users is not None and all(edges[i] is None for i in users):
            saved.append(None)
        elif what == "rest":
            saved.append([kept(x) for x in tensors[index:]])
        elif what == "shapes":
            saved.append([tuple(x.shape) for x in tensors[index:]])
        elif what == "out":
            saved.append(kept(results[index]))
        elif what == "in":
            saved.append(kept(tensors[index]))
        else:
            array = getattr(tensors[index], "_array", None)
            if what == "shape":
                saved.append(() if array is None else tuple(array.shape))
            else:
                saved.append(None if array is None else array.dtype)
    return tuple(saved)


def _kept(x: Any) -> Any:
    """The saved form of an operand: a wrapped tensor without history, an array, or a number."""
    if isinstance(x, Wrapped):
        return x.stripped()
    return x._array if isinstance(x, Tensor) else x
