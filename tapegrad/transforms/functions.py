"""Functions of users (`autograd.Function`) inside of transforms.

Comes in: a Function and arguments, some of them wrapped. Goes out: its wrapped results. In forward
mode the user's `jvp` computes the tangents; without one, the user's backward is differentiated. On
a batch the user's `vmap` runs, or with `generate_vmap_rule` the Function itself runs on batched
tensors, forward and backward. Called by `Function.apply`, through the innermost level.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..autograd import function as functions
from ..core import source
from ..core.batch_rules import with_batch
from ..core.modes import GRAD, STATE, numbers, switched, transforming
from ..core.numeric import is_differentiable
from ..core.tape import Entry, Output, new_entry, node_of
from ..core.tensor import Tensor
from ..core.wrapped import Wrapped, batched, dual, requires_somewhere
from .batching import BatchLevel, summed_batch
from .forward import DualLevel, tangents_by_rule, zeros_like
from .levels import Level, level_of
from .vmap import moved_dim, spread_dims
from .writes import rebind


class VmapInfo(NamedTuple):
    """The `info` argument of a Function's static method `vmap`."""

    batch_size: int
    randomness: str


def apply_function(cls: Any, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a Function on wrapped arguments; NotImplemented if none is wrapped."""
    level = level_of([*args, *kwargs.values()])
    if level is None:
        return NotImplemented
    if isinstance(level, BatchLevel):
        return _on_batch(level, cls, ctx, args, kwargs)
    return _on_duals(level, cls, ctx, args, kwargs)


def _below(level: Level) -> transforming:
    """A context with only the levels below this one, which see its values."""
    return transforming(tuple([other for other in STATE.levels if other.depth < level.depth]))


def _each(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def _like(out: Any, results: Sequence[Any]) -> Any:
    if not isinstance(out, (tuple, list)):
        return results[0]
    return type(out)(*results) if hasattr(out, "_fields") else type(out)(results)


# -- batches -----------------------------------------------------------------------------------


def _on_batch(
    level: BatchLevel, cls: Any, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    own = getattr(cls, "vmap", None) is not functions.Function.vmap
    name = cls.__name__
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"vmap: {name} has a vmap method and generate_vmap_rule=True: keep one of the two"
        )
    if not own and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"vmap: {name} cannot run on a batch: write a static method vmap for it, or set "
            "generate_vmap_rule=True"
        )
    values = [level.value(a) for a in args]
    flags = tuple([level.has(a) for a in args])
    _set_needs(ctx, args)
    if own:
        out = _by_users_rule(level, cls, values, flags)
        with switched(off=GRAD):
            if cls.setup_context is not None:
                cls.setup_context(ctx, args, out)
    elif any(requires_somewhere(v) for v in values):
        physical = _generated(cls, flags, level).apply(*values, **kwargs)
        out = _like(physical, [_wrapped(y, level) for y in _each(physical)])
        # Run forward again to fill the context for the inner history.
        _exchange(ctx, _each(_run(cls, ctx, args, kwargs)), _each(out))
    else:
        out = _run(cls, ctx, args, kwargs)
    return _like(out, _record(level, cls, ctx, args, _each(out)))


def _by_users_rule(
    level: BatchLevel, cls: Any, values: Sequence[Any], flags: tuple[bool, ...]
) -> Any:
    info = VmapInfo(level.size, level.randomness)
    in_dims = tuple([0 if b else None for b in flags])
    with _below(level):
        found = cls.vmap(info, in_dims, *values)
    if not isinstance(found, tuple) or len(found) != 2:
        raise RuntimeError(
            f"Expected {cls.__name__}.vmap to return (output, out_dims), got {type(found).__name__}"
        )
    out, out_dims = found
    outs = _each(out)
    dims = spread_dims(out_dims, outs if isinstance(out, (tuple, list)) else outs[0])
    if dims is None or len(dims) != len(outs):
        raise RuntimeError(
            f"Expected {cls.__name__}.vmap to return out_dims that fit its outputs, got {out_dims}"
        )
    results = []
    for y, d in zip(outs, dims, strict=True):
        if d is None or not isinstance(y, Tensor):
            results.append(y)
        else:
            results.append(batched(moved_dim(y, d % y.ndim, 0), level))
    return _like(out, results)


def _run(cls: Any, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`forward` on wrapped tensors, which fills the context."""
    with switched(off=GRAD):
        if cls.setup_context is None:
            return cls.forward(ctx, *args, **kwargs)
        out = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, out)
        return out


def _wrapped(y: Any, level: BatchLevel) -> Any:
    return batched(y, level) if isinstance(y, Tensor) else y


def _generated(cls: Any, flags: tuple[bool, ...], outer: BatchLevel) -> Any:
    """A Function of whole batches: forward and backward of `cls` on batched tensors."""

    class Whole(functions.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            level = BatchLevel(outer.size, outer.randomness)
            inner = functions.Context()
            examples = [batched(a, level) if b else a for a, b in zip(args, flags, strict=True)]
            _set_needs(inner, args)
            with level.entered():
                out = _run(cls, inner, tuple(examples), kwargs)
            found = [_unwrapped(y, level) for y in _each(out)]
            ctx.save_for_backward(*[_inner(t, level) for t in inner._to_save])
            ctx.with_batch = [level.has(t) for t in inner._to_save]
            inner._to_save = ()
            ctx.inner = inner
            level.alive = False
            return _like(out, found)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            level = BatchLevel(outer.size, outer.randomness)
            inner = ctx.inner
            inner._saved = tuple(
                batched(t, level) if b else t
                for t, b in zip(ctx.saved_tensors, ctx.with_batch, strict=True)
            )
            received = [None if g is None else batched(g, level) for g in gradients]
            with level.entered():
                returned = functions.backward_of(cls)(inner, *received)
                results = [
                    None if r is None else summed_batch(r, i < len(flags) and flags[i], level)
                    for i, r in enumerate(_each(returned))
                ]
            level.alive = False
            return tuple(results)

    Whole.__name__ = Whole.__qualname__ = f"Vmapped{cls.__name__}"
    return Whole


def _inner(t: Any, level: BatchLevel) -> Any:
    return t._extra.value if level.has(t) else t


def _unwrapped(y: Any, level: BatchLevel) -> Any:
    if not isinstance(y, Tensor):
        return y
    return y._extra.value if level.has(y) else with_batch(y, level.size)


# -- forward mode ------------------------------------------------------------------------------


def _on_duals(
    level: DualLevel, cls: Any, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    primals = tuple([level.value(a) for a in args])
    tangents = [level.tangent_of(a) for a in args]
    has_rule = getattr(cls, "jvp", None) is not functions.Function.jvp
    if not has_rule:
        return _like_backward(level, cls, ctx, args, primals, tangents, kwargs)
    keeping = functions.KeepingContext()
    with _below(level):
        out = functions.applied(cls, keeping, primals, kwargs)
        keeping._saved = keeping.for_forward
        given = [_or_zeros(keeping, t, x) for t, x in zip(tangents, primals, strict=True)]
        found = cls.jvp(keeping, *given)
        keeping._saved = None
    outs, pushed = _each(out), _each(found)
    if len(pushed) != len(outs):
        raise RuntimeError(
            f"{cls.__name__}.jvp returned {len(pushed)} tangents for {len(outs)} outputs; return "
            "None for those without one"
        )
    marked = keeping.marked
    results: list[Any] = []
    for y, t in zip(outs, pushed, strict=True):
        if t is not None and (
            not isinstance(y, Tensor) or any(y._array is m._array for m in marked)
        ):
            raise RuntimeError(
                f"{cls.__name__}.jvp returned a tangent for an output without gradient; return "
                "None in its stead"
            )
        if t is None or not isinstance(y, Tensor):
            results.append(y)
            continue
        changed = [a for a, x in zip(args, primals, strict=True) if x is y and level.has(a)]
        if changed:  # in place
            if changed[0]._extra.tangent is not t:
                raise RuntimeError(
                    f"{cls.__name__}: forward changes an input in place, so jvp must change its "
                    "tangent in place too"
                )
            results.append(changed[0])
            continue
        results.append(dual(y, t, level))
    if any(r is a for r in results for a in args if isinstance(a, Tensor)):
        made = zip((*primals, *outs), (*args, *results), strict=True)
        replaced = {id(old): new for old, new in made}
        return _like(out, _record_changed(level, cls, keeping, args, results, replaced))
    if isinstance(ctx, functions.KeepingContext):  # a level above has a jvp to call
        _run(cls, ctx, args, kwargs)
    return _like(out, _record_again(level, cls, args, kwargs, results))


def _or_zeros(ctx: Any, tangent: Any, x: Any) -> Any:
    """The tangent of an argument: zeros for a tensor without one, None for anything else."""
    if tangent is not None or not isinstance(x, Tensor) or not ctx._materialize:
        return tangent
    return zeros_like(x) if is_differentiable(x._array.dtype) else None


def _record_again(
    level: Level,
    cls: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    results: list[Any],
) -> list[Any]:
    """If a gradient is taken inside the level, run forward again and record an entry there."""
    if not _inside(level, args):
        return results
    ctx = functions.Context()
    _set_needs(ctx, args)
    _exchange(ctx, _each(_run(cls, ctx, args, kwargs)), results)
    return _record(level, cls, ctx, args, tuple(results))


def _record_changed(
    level: Level,
    cls: Any,
    keeping: Any,
    args: tuple[Any, ...],
    results: list[Any],
    replaced: dict[int, Any],
) -> list[Any]:
    """`_record_again` for a forward that changed its inputs, which must not run twice."""
    if not _inside(level, args):
        return results
    ctx = copy.copy(keeping)
    _set_needs(ctx, args)
    ctx._to_save = tuple([replaced.get(id(t), t) for t in keeping.for_backward])
    ctx._not_differentiable = tuple([replaced.get(id(t), t) for t in keeping.marked])
    recorded = _record(level, cls, ctx, args, tuple(results))
    for i, (old, new) in enumerate(zip(results, recorded, strict=True)):
        if any(old is a for a in args):
            rebind(level, old, new)
            recorded[i] = old
    return recorded


def _like_backward(
    level: DualLevel,
    cls: Any,
    ctx: Any,
    args: tuple[Any, ...],
    primals: tuple[Any, ...],
    tangents: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Tangents, by differentiating the user's backward."""
    fresh = [
        a.detach().requires_grad_() if t is not None else a
        for a, t in zip(primals, tangents, strict=True)
    ]
    with _below(level):
        out = functions.applied(cls, ctx, primals, kwargs)
        outs = _each(out)
        found = tangents_by_rule(cls, fresh, tangents, kwargs)
    results = [
        y if t is None or not isinstance(y, Tensor) else dual(y, t, level)
        for y, t in zip(outs, found, strict=True)
    ]
    return _like(out, _record_again(level, cls, args, kwargs, results))


# -- the entry on the level --------------------------------------------------------------------


def _exchange(ctx: Any, made: Sequence[Any], results: Sequence[Any]) -> None:
    """Replace forward's outputs in a context by the results, which have the history below."""
    replaced = {id(old): new for old, new in zip(made, results, strict=True)}
    ctx._to_save = tuple([replaced.get(id(t), t) for t in ctx._to_save])
    marked = [replaced.get(id(t), t) for t in ctx._not_differentiable]
    ctx._not_differentiable = tuple(marked)


def _set_needs(ctx: Any, args: Sequence[Any]) -> None:
    ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])


def _inside(level: Level, args: Sequence[Any]) -> bool:
    """Whether a gradient is taken inside the level."""
    if not STATE.mode & GRAD:
        return False
    for a in args:
        if isinstance(a, Tensor) and a.requires_grad:
            node = node_of(a._edge or a)
            number = node.number if isinstance(node, Entry) else node.id
            if number > level.started or not level.is_function:
                return True
    return False


def _record(
    level: Level, cls: Any, ctx: Any, args: tuple[Any, ...], outs: tuple[Any, ...]
) -> list[Any]:
    """Write one entry for gradients inside the level, whose rule is the user's backward."""
    if not _inside(level, args):
        return list(outs)
    inputs = tuple([a for a in args if isinstance(a, Tensor)])
    made = [o for o in outs if isinstance(o, Tensor)]
    p = functions._primitive(cls, ctx, args, outs)
    edges = tuple([(a._edge or a) if a.requires_grad else None for a in inputs])
    p.slots, saved = functions._saved(ctx, inputs, made)
    ctx._slots = p.slots
    line = source.outside(sys._getframe(1))
    entry = new_entry(p, {}, edges, saved, next(numbers), line)
    results: list[Any] = []
    index = 0
    for o in outs:
        if not isinstance(o, Tensor):
            results.append(o)
            continue
        fresh = o.stripped() if isinstance(o, Wrapped) else o.detach()
        marked = any(o is t for t in ctx._not_differentiable)
        if not marked and is_differentiable(fresh._array.dtype):
            fresh._edge = Output(entry, index) if len(made) > 1 else entry
            fresh._requires = True
        index += 1
        results.append(fresh)
    ctx._to_save = ()
    return results
