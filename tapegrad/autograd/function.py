"""Function and Context: operations whose gradients the user writes.

Comes in: a class with `forward` and `backward`, and its inputs. Goes out: results with one entry.
`MyFunction.apply(...)` runs `forward` without recording; the engine calls the user's `backward`
with the saved tensors. With `create_graph` the saved tensors lead back to where they came from, so
a backward written in tensor operations can be differentiated. Called by users and by `nn/hooks.py`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..core import casting, inplace, numeric, storage
from ..core.batch_rules import leading
from ..core.complexes import OWN
from ..core.modes import (
    GRAD,
    HOOKS,
    LISTENING,
    STATE,
    TAPE,
    TRANSFORM,
    capturing,
    no_grad,
    switched,
)
from ..core.numeric import is_differentiable
from ..core.packing import pack
from ..core.primitive import MOVEMENT, OPAQUE, PRIMITIVES, Primitive, define, record
from ..core.tensor import Tensor, wrap
from ..core.wrapped import Wrapped

#: The last movement of a view that a Function has returned. It has no gradient: the history of such
#: a view is the user's backward, and cannot be re-derived from its base.
SHOWN: Primitive = define(
    "shown",
    lambda x: x[...],
    kind=MOVEMENT,
    view=True,
    batch=leading,
)


class Context:
    """Carries values from `forward` to `backward`. Any attribute may be set on it too."""

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = None
        self._slots: tuple[Any, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._not_differentiable: tuple[Tensor, ...] = ()
        self._materialize = True
        self._materialize_non_diff_grads = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors for backward; changing one in place before backward is an error."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward keeps tensors, got {type(t).__name__}; set other values as "
                    "attributes: ctx.name = value"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `jvp`, which gets them as `saved_tensors`."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to `save_for_backward`."""
        return self._to_save if self._saved is None else self._saved

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Declare that these outputs have no gradient."""
        self._not_differentiable = outputs

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Declare that forward changed these inputs in place (and returns them)."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """With False, backward gets None instead of zeros for outputs that were not used."""
        self._materialize = value


FunctionCtx = Context  # PyTorch's name


class KeepingContext(Context):
    """A context that keeps its saved tensors for `jvp`; others hand them over to the entry."""

    def __init__(self) -> None:
        super().__init__()
        self.for_backward: tuple[Any, ...] = ()
        self.for_forward: tuple[Any, ...] = ()
        self.marked: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        super().save_for_backward(*tensors)
        self.for_backward = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        self.for_forward = tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        super().mark_non_differentiable(*outputs)
        self.marked = outputs


class Function:
    """Base of operations with hand-written gradients.

    >>> import tapegrad
    >>> class Square(tapegrad.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * g
    >>> x = tapegrad.tensor(3.0, requires_grad=True)
    >>> Square.apply(x).backward()[x]
    tensor(6.)
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients for each argument of forward, given those of its outputs."""
        raise NotImplementedError("a Function needs a static method backward(ctx, ...)")

    #: whether vmap may derive a batch rule from forward and backward
    generate_vmap_rule = False

    #: another name of `backward`, for classes that define `jvp` too
    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs, given those of the arguments, for forward mode."""
        raise NotImplementedError(
            "forward mode needs the derivative of this Function: write a static method jvp(ctx, "
            "*tangents)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """The outputs of a whole batch, and the dimension of the batch in each."""
        raise NotImplementedError(
            "vmap needs to know how to run this Function: write a static method vmap, or set "
            "generate_vmap_rule=True"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "forward and backward must be static methods that take ctx first; call "
            f"{type(self).__name__}.apply(...)"
        )

    #: if defined, forward takes no ctx, and `setup_context(ctx, inputs, output)` fills it
    setup_context: Callable[..., None] | None = None

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run the function and record it."""
        return applied(cls, Context(), args, kwargs)

    @classmethod
    def _apply(cls, ctx: Context, args: Any, kwargs: Any) -> Any:
        on_watching_tape = bool(STATE.mode & GRAD) and any(tape.watches for tape in STATE.tapes)
        ctx.needs_input_grad = tuple(
            isinstance(a, Tensor)
            and (a.requires_grad or (on_watching_tape and is_differentiable(a._array.dtype)))
            for a in args
        )
        mode, inlined = STATE.mode, capturing()
        # A tape logs the function as one entry; a capture that inlines it logs the parts.
        with switched(off=GRAD if inlined else GRAD | LISTENING):
            if cls.setup_context is None:
                out = cls.forward(ctx, *args, **kwargs)
            else:
                out = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, out)
        for changed in ctx._dirty:
            if not any(changed is a for a in args):
                if changed._view is not None:
                    raise RuntimeError(
                        f"{cls.__name__}: mark_dirty takes inputs that forward has changed, and "
                        "this tensor is not an input"
                    )
                warnings.warn(
                    "mark_dirty is for inputs that forward changes in place; other tensors need "
                    "not be given to it",
                    stacklevel=2,
                )
                continue
            inplace.check_writable(changed, f"{cls.__name__} (mark_dirty)")
        ctx._dirty = tuple(t for t in ctx._dirty if any(t is a for a in args))
        several = isinstance(out, (tuple, list))
        outs = tuple(out) if several else (out,)
        if ctx._dirty:
            _check_dirty(cls, ctx, outs)
        results = _record(cls, ctx, args, outs, mode, inlined)
        if not several:
            return results[0]
        return type(out)(*results) if hasattr(out, "_fields") else type(out)(results)


def _check_dirty(cls: type[Function], ctx: Context, outs: tuple[Any, ...]) -> None:
    """Refuse in-place changes of inputs whose new history would be unknown."""
    if not all(any(t is o for o in outs) for t in ctx._dirty):
        raise RuntimeError(
            f"{cls.__name__}: forward must return every input that it gave to mark_dirty; its "
            "history would not show the change otherwise"
        )
    views = any(t._view is not None for t in ctx._dirty)
    recorded = STATE.mode & GRAD and any(ctx.needs_input_grad)
    if views and recorded and sum(isinstance(o, Tensor) for o in outs) > 1:
        raise RuntimeError(
            f"{cls.__name__} changes a view of another tensor in place and has several results, so "
            "the other tensor's history cannot be told; return the view alone, or change a clone()"
        )


def applied(cls: type[Function], ctx: Context, args: Any, kwargs: Any) -> Any:
    """Run a function with this context and record it, on the level of its arguments."""
    if cls.setup_context is not None:
        args, kwargs = _with_defaults(cls.forward, args, kwargs)
    if STATE.mode & TRANSFORM:
        found = STATE.levels[-1].apply_function(cls, ctx, args, kwargs)
        if found is not NotImplemented:
            return found
    return cls._apply(ctx, args, kwargs)


def backward_of(cls: type[Function]) -> Callable[..., Any]:
    """The user's gradient function, `backward` or `vjp`."""
    if cls.backward is Function.backward and cls.vjp is not Function.vjp:
        return cls.vjp
    if cls.backward is not Function.backward and cls.vjp is not Function.vjp:
        raise RuntimeError(
            f"{cls.__name__} has both backward and vjp, which mean the same: keep one of them"
        )
    return cls.backward


class InplaceFunction(Function):
    """A Function with an `inplace` flag; legacy PyTorch."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


def _with_defaults(forward: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """All arguments of a `forward`, in order, as `setup_context` gets them."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _record(
    cls: type[Function],
    ctx: Context,
    args: tuple[Any, ...],
    outs: tuple[Any, ...],
    mode: int,
    inlined: bool,
) -> list[Any]:
    """Write one entry for a function that has run; returns the results for the caller."""
    inputs = tuple(a for a in args if isinstance(a, Tensor))
    made = [o for o in outs if isinstance(o, Tensor)]
    if not made:
        return list(outs)
    dirty = {id(t) for t in ctx._dirty}
    for t in made:
        if id(t) in dirty:
            storage.note(t._array)  # before the entry, which may save the changed value
    owners = {id(storage.owner_of(x._array)) for x in inputs}
    # A capture would differentiate through the view instead of the user's backward, so copy.
    copies = inlined and any(ctx.needs_input_grad)
    fresh = tuple(
        _shown(t, inputs, copies)
        if id(storage.owner_of(t._array)) in owners and id(t) not in dirty
        else wrap(t._array)
        for t in made
    )
    p = _primitive(cls, ctx, args, outs)
    arrays = [x._array for x in inputs]
    outputs = tuple(t._array for t in fresh)
    entry = record(p, {}, inputs, arrays, outputs, fresh, mode & ~TAPE if inlined else mode)
    if entry is not None and any(e is not None for e in entry.edges):
        p.slots, entry.saved = _saved(ctx, inputs, made)
        ctx._slots = p.slots
        if mode & HOOKS:
            pack(entry)
    replaced: dict[int, Tensor] = {}
    for old, new in zip(made, fresh, strict=True):
        undifferentiable = any(old is t for t in ctx._not_differentiable)
        if undifferentiable or not is_differentiable(new._array.dtype):
            new._edge, new._requires = None, False
        if inlined:
            for tape in STATE.tapes:
                tape.rebind(new, old)
        if id(old) in dirty:
            inplace.rebind(old, new)
            new = old
        replaced[id(old)] = new
    # Drop the context's references: the entry has saved what backward needs.
    ctx._to_save, ctx._dirty, ctx._not_differentiable = (), (), ()
    return [replaced.get(id(o), o) for o in outs]


def _shown(t: Tensor, inputs: tuple[Tensor, ...], copies: bool) -> Tensor:
    """A result that shares the memory of an input, as a view whose chain ends in `SHOWN`.

    If the chain from the input to the result is unknown, return a copy, so that a later write to
    the result cannot change the input without its history.
    """
    if copies or (t._view is None and not any(t is x for x in inputs)):
        return wrap(t._array.copy())
    base, chain, _ = t._view or (t, (), 0)
    view = wrap(t._array)
    view._view = (base, (*chain, (SHOWN, {})), view.id)
    return view


def _saved(
    ctx: Context, inputs: tuple[Tensor, ...], made: list[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The saved values, and which are inputs or outputs, so that history can be rebuilt.

    For an input without history, the slot also leads to the tensor itself.
    """
    slots: list[tuple[str, int, Any]] = []
    for t in ctx._to_save:
        source = ("value", 0)
        for what, group in (("in", inputs), ("out", made)):
            for i, x in enumerate(group):
                if x is t:
                    source = (what, i)
        plain = source[0] == "in" and not (t._requires or isinstance(t, Wrapped))
        itself = weakref.ref(t) if plain and t._edge is None and t._view is None else None
        slots.append((*source, itself))
    return tuple(slots), tuple(map(_kept, ctx._to_save))


def _kept(t: Any) -> Any:
    return t if t is None else t.stripped() if isinstance(t, Wrapped) else t._array


def _primitive(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], outs: tuple[Any, ...]
) -> Any:
    """A primitive for this one call: its rule is the user's backward."""
    # For each result its shape and dtype, and whether zeros replace a missing gradient; None for a
    # result that is not a tensor.
    shapes = [
        (
            t._array.shape,
            t._array.dtype,
            ctx._materialize_non_diff_grads or not any(t is o for o in ctx._not_differentiable),
        )
        if isinstance(t, Tensor)
        else None
        for t in outs
    ]
    made = [t for t in outs if isinstance(t, Tensor)]
    return Primitive(
        cls.__name__,
        cls.forward,
        OPAQUE,
        inputs=(),
        rest="xs",
        outputs=tuple(f"out{i}" for i in range(len(made))),
        joint=backward_of(cls),
        pure=False,
        complex=OWN,
        context=ctx,
        _pull=functools.partial(_pull, cls, ctx, args_layout(args), shapes),
    )


def args_layout(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """For each tensor argument its shape and whether it is real; None for other arguments."""
    return tuple(
        (a._array.shape, not numeric.is_complex(a._array.dtype)) if isinstance(a, Tensor) else None
        for a in args
    )


def _pull(
    cls: type[Function],
    ctx: Context,
    layout: tuple[Any, ...],
    outputs: list[tuple[Any, Any, bool] | None],
    g: Any,
    edges: tuple[Any, ...],
    saved: tuple[Any, ...],
    params: Any,
) -> list[Any]:
    """Call the user's backward on Tensors and check what it returns."""
    gradients = g if isinstance(g, list) else [g]
    on_tensors = any(isinstance(x, Tensor) for x in gradients)
    parts = iter(gradients)
    given = [None if out is None else _gradient(ctx, next(parts), *out) for out in outputs]
    # A separate context for each call: several threads may walk one graph.
    ctx = copy.copy(ctx)
    ctx._saved = tuple(
        _given(value, slot, edges) for value, slot in zip(saved, ctx._slots, strict=True)
    )
    # A walk turns autocast off for its rules; the user's own rules get it back.
    with casting.restored_settings(STATE.autocast):
        returned = backward_of(cls)(ctx, *given)
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    while len(results) > len(layout) and results[-1] is None:
        results.pop()
    if len(results) != len(layout):
        raise RuntimeError(
            f"{cls.__name__}.backward returned {len(results)} gradients, but forward has "
            f"{len(layout)} arguments; return None for those without a gradient"
        )
    needed = ctx.needs_input_grad  # gradients of other inputs are dropped unchecked
    checked = [
        _checked(cls, i, r, place) if place is None or needed[i] else None
        for i, (r, place) in enumerate(zip(results, layout, strict=True))
    ]
    tensors = [r for r, shape in zip(checked, layout, strict=True) if shape is not None]
    return [r if on_tensors or r is None else r._array for r in tensors]


def _given(value: Any, slot: tuple[Any, ...], edges: tuple[Any, ...]) -> Tensor | None:
    """A saved value as a Tensor. A saved input requires gradients as in forward: a backward that
    recomputes under `enable_grad` may differentiate with respect to it."""
    what, index, itself = slot
    array = value._array if isinstance(value, Tensor) else value
    known = None if itself is None else itself()
    if known is not None and known._array is array:
        return known  # type: ignore[no-any-return]
    if value is None or isinstance(value, Tensor):
        return value
    edge = edges[index] if what == "in" else None
    if isinstance(edge, Tensor) and edge._array is array:
        return edge
    tensor = wrap(array)
    if edge is not None and not isinstance(edge, Tensor):
        tensor._edge, tensor._requires = edge, True
    return tensor


def _gradient(ctx: Context, g: Any, shape: Any, dtype: Any, materialize: bool) -> Any:
    if g is None:
        import numpy as np

        return wrap(np.zeros(shape, dtype)) if ctx._materialize and materialize else None
    return g if isinstance(g, Tensor) else wrap(g)


def _checked(cls: type[Function], index: int, result: Any, place: Any) -> Any:
    if result is None:
        return None
    if place is None:
        raise RuntimeError(
            f"{cls.__name__}.backward returned a gradient for argument {index} of forward, which "
            "is not a tensor; return None for it"
        )
    if not isinstance(result, Tensor):
        raise TypeError(
            f"{cls.__name__}.backward must return Tensors or None, got {type(result).__name__} "
            f"for argument {index}"
        )
    shape, is_real = place
    if is_real and numeric.is_complex(result._array.dtype):
        result = PRIMITIVES["real"](result)
    if result._array.shape != shape:
        from .engine import unbroadcast

        try:
            result = unbroadcast(result, shape)
        except (ValueError, RuntimeError, IndexError):
            raise RuntimeError(
                f"{cls.__name__}.backward returned a gradient of shape {tuple(result.shape)} for "
                f"argument {index}, which has shape {tuple(shape)}"
            ) from None
    return result


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `backward` that does not consist of differentiable operations."""

    @functools.wraps(backward)
    def call(ctx: Any, *gradients: Any) -> Any:
        recording = STATE.mode & GRAD
        with no_grad():
            out = backward(ctx, *gradients)
        if not recording:
            return out
        outs = out if isinstance(out, (tuple, list)) else (out,)
        sources = [g for g in (*gradients, *ctx.saved_tensors) if isinstance(g, Tensor)]
        marked = tuple(_refusing(o, sources) if isinstance(o, Tensor) else o for o in outs)
        return marked if isinstance(out, (tuple, list)) else marked[0]

    return call


def _refusing(result: Tensor, sources: list[Tensor]) -> Tensor:
    """The same values, with a history that raises an error when differentiated."""

    class Once(Function):
        @staticmethod
        def forward(ctx: Any, *xs: Tensor) -> Tensor:
            return wrap(result._array)

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            raise RuntimeError(
                "this backward is marked once_differentiable, so its result cannot be "
                "differentiated again"
            )

    out: Tensor = Once.apply(*sources)
    return out


def custom_op(
    forward: Callable[[list[Tensor]], Tensor],
    backward: Callable[[Tensor, list[Tensor]], Any],
) -> Callable[..., Tensor]:
    """A differentiable function from two plain ones.

    `forward(inputs)` gets a list of tensors; `backward(grad_output, inputs)` returns a list with a
    gradient (or None) for each.

    >>> import tapegrad
    >>> double = tapegrad.custom_op(lambda xs: xs[0] * 2, lambda g, xs: [g * 2])
    >>> x = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    >>> double(x).sum().backward()[x]
    tensor([2., 2.])
    """

    class CustomOp(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return forward(list(inputs))

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            out = backward(grad_outputs[0], list(ctx.saved_tensors))
            return tuple(out) if isinstance(out, (list, tuple)) else out

    apply: Callable[..., Tensor] = CustomOp.apply
    return apply
