"""The backward calls of users, built on the walk over entries.

Comes in: outputs and their gradients. Goes out: a mapping of gradients, `.grad` of leaves, or the
gradients of chosen inputs. Only this module adds gradients to `.grad`. Called by
`Tensor.backward`, `Tape.backward`, `autograd.grad`, `func.py` and `replay/use/compiled_entry.py`.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from ..core import locks, numeric, storage
from ..core.modes import AUTOCAST, GRAD, STATE, TAPE, TRANSFORM, restore_saved_hooks, switched
from ..core.sparse import SparseArray
from ..core.tape import Entry, Output, Tape, node_of
from ..core.tensor import Extra, Tensor, own, refresh, wrap
from .engine import Walk, is_whole
from .gradients import Gradients

_accumulate_lock = locks.new()
_by_number = attrgetter("number")

C = TypeVar("C", bound=Callable[..., Any])


def _placed(tensors: Any) -> Any:
    """A list of tensors; each `GradientEdge` is replaced by a tensor with the same edge."""
    if isinstance(tensors, Tensor):
        return [tensors]
    if hasattr(tensors, "ownership_token"):
        return [_tensor_at(tensors)]
    return [t if isinstance(t, Tensor) else _tensor_at(t) for t in tensors]


def _tensor_at(place: Any) -> Any:
    if not hasattr(place, "ownership_token"):
        return place  # not an edge: the caller raises the error
    node = getattr(place.node, "_entry", place.node)
    if not isinstance(node, Entry):
        variable: Tensor = node.variable
        return variable
    tensor = wrap(None)
    several = len(node.primitive.outputs) > 1
    tensor._edge = Output(node, place.output_nr) if several else node
    tensor._requires = True
    return tensor


def _settle(tensors: Iterable[Any]) -> None:
    """Refresh the histories of views, even if recording is off."""
    for t in tensors:
        if isinstance(t, Tensor) and t._view is not None:
            with switched(on=GRAD):
                refresh(t)


def _start(walk: Walk, outputs: Sequence[Tensor], gradients: Sequence[Any], taped: bool) -> None:
    """Check the outputs and send their gradients to their edges."""
    prepared = []
    for output, gradient in zip(outputs, gradients, strict=True):
        if not output._requires and not (taped and output._edge is not None):
            raise RuntimeError(
                "backward needs a tensor that requires gradients and was made by recorded "
                "operations, this one is neither: create its inputs with requires_grad=True "
                "and compute it outside no_grad"
            )
        array = output._array
        if gradient is None:
            if array.size != 1:
                raise RuntimeError(
                    "backward without a gradient needs a tensor of one element, this one has "
                    f"shape {tuple(array.shape)}; reduce it (for example with .sum()) or pass "
                    "its gradient (grad_outputs= of autograd.grad)"
                )
            if array.dtype.kind in numeric.COMPLEX:
                raise RuntimeError(
                    "backward without a gradient needs a real tensor, this one is "
                    f"{output.dtype}; take .real or .abs(), or pass its gradient"
                )
            gradient = wrap(np.ones_like(array))
        elif not isinstance(gradient, Tensor):
            raise TypeError(f"gradient must be a Tensor or None, got {type(gradient).__name__}")
        elif gradient._array.shape != array.shape:
            raise RuntimeError(
                f"the gradient of an output of shape {tuple(array.shape)} must have the same "
                f"shape, got {tuple(gradient.shape)}"
            )
        elif numeric.is_complex(gradient._array.dtype) != numeric.is_complex(array.dtype):
            raise RuntimeError(
                f"the gradient of a {output.dtype} output cannot be {gradient.dtype}: both must be "
                "complex or none"
            )
        elif gradient._array.dtype != array.dtype:
            gradient = gradient.to(output.dtype)
        prepared.append((output, gradient))
    for output, gradient in prepared:
        edge = output if output._edge is None else output._edge
        walk.starts.append(edge)
        walk.send(edge, gradient if walk.on_tensors else gradient._array, False)


def _mark_needed(walk: Walk, outputs: Iterable[Tensor], targets: Sequence[Tensor]) -> None:
    """Find the entries that lie between the outputs and the targets."""
    ends: set[int] = set()
    for t in targets:
        ends.add(id(t) if t._edge is None else id(node_of(t._edge)))
    reached: dict[int, Entry] = {}
    stack = [node_of(o._edge) for o in outputs if o._edge is not None]
    while stack:
        entry = stack.pop()
        if id(entry) in reached:
            continue
        reached[id(entry)] = entry
        for edge in entry.edges:
            node = edge.entry if edge.__class__ is Output else edge
            if node.__class__ is Entry and id(node) not in reached:
                stack.append(node)
    needed = set(ends)  # ids; never that of None
    for entry in sorted(reached.values(), key=_by_number):
        for edge in entry.edges:
            if id(edge.entry if edge.__class__ is Output else edge) in needed:
                needed.add(id(entry))
                break
    walk.needed = needed


def _accumulate(owner: Gradients, create_graph: bool, leaf: Tensor, g: Any, fresh: bool) -> None:
    """Add a gradient to `.grad` and to a mapping. No two `.grad` share memory."""
    if not leaf._requires:
        return  # only a tape uses it
    node = None if leaf._extra is None else getattr(leaf._extra, "accumulator", None)
    if node is not None and node.prehooks:
        for hook in list(node.prehooks.values()):
            returned = hook((g if isinstance(g, Tensor) else wrap(g),))
            if returned is not None:
                changed = returned[0] if isinstance(returned, (tuple, list)) else returned
                as_tensor = isinstance(g, Tensor) or changed.is_sparse
                g, fresh = (changed if as_tensor else changed._array), False
    with _accumulate_lock:
        grad = leaf._grad
        first = grad is None
        if isinstance(g, Tensor):
            # Rules may return the same tensor for several inputs, so copy it for each .grad.
            if grad is None:
                leaf._grad = g.clone()
            elif grad.is_sparse and not g.is_sparse:
                leaf._grad = g + grad
            elif create_graph:
                leaf._grad = grad + g
            else:
                grad += g  # recording is off, so a .grad with a history keeps its history
        elif grad is None:
            if fresh:
                grad = wrap(g)
                grad._extra = Extra(weakref.ref(owner._lease))
            else:
                grad = wrap(_contiguous_copy(g, leaf._array))
            leaf._grad = grad
        elif grad._array.__class__ is SparseArray:
            leaf._grad = wrap(g) + grad
        else:
            own(grad)
            np.add(grad._array, g, out=grad._array)
            storage.note(grad._array)
    if leaf._extra is not None:
        for hook in list(leaf._extra.post_hooks.values()):
            if hook(leaf) is not None:
                raise RuntimeError(
                    "a hook after accumulation must return None: .grad is filled already; change "
                    "it in place there"
                )
    if node is not None:
        # A first gradient is .grad itself, so they see what earlier hooks have changed there.
        shown = leaf._grad.detach() if first and leaf._grad is not None else g
        shown = shown if isinstance(shown, Tensor) else wrap(shown)
        for hook in list(node.posthooks.values()):
            hook((), (shown,))
    if leaf._grad is not None:  # else a hook consumed it and freed its memory
        owner._items[leaf.id] = g


def _contiguous_copy(g: Any, like: Any) -> Any:
    if like.flags.c_contiguous:
        return g.copy()
    copy = np.empty_like(like)
    copy[...] = g
    return copy


#: most nested backward calls in one thread: each takes about ten frames of Python's stack, whose
#: default limit is 1000
DEEPEST = 30


def _bounded(call: C) -> C:
    """A backward call that continues in a new thread when too many are nested in this one."""

    @functools.wraps(call)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        state = STATE.__dict__  # of this thread: found once
        outer = state.get("walk")
        if outer is not None and outer.depth >= DEEPEST:
            return _in_another_thread(call, args, kwargs)
        hooks = STATE.saved_hooks
        try:
            return call(*args, **kwargs)
        finally:
            state["walk"] = outer
            if STATE.saved_hooks is not hooks:
                restore_saved_hooks(hooks)

    return bounded  # type: ignore[return-value]  # wraps keeps the signature


def _in_another_thread(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    before = {name: getattr(STATE, name) for name in ("mode", "tapes", "saved_hooks", "autocast")}
    outcome: dict[str, Any] = {}

    def run() -> None:
        for name, value in before.items():
            setattr(STATE, name, value)
        try:
            outcome["result"] = _bounded(call)(*args, **kwargs)
        except BaseException as error:
            outcome["error"] = error

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="tapegrad-backward")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


@_bounded
def backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Any],
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> Gradients:
    """Add gradients of `outputs` to `.grad` of the leaves (of `inputs` only, if given).

    The returned mapping leaves out leaves for which a hook has set `.grad` to None.
    """
    walk = Walk(create_graph if retain_graph is None else retain_graph, create_graph)
    if walk.transforms and any(level.is_function for level in STATE.levels):
        raise RuntimeError(
            "backward() does not work inside of vmap or jvp: call it outside of them, or use "
            "func.grad, func.vjp or autograd.grad inside"
        )
    state = STATE.__dict__  # of this thread: found once
    state["walk"] = walk
    walk.fills = True
    _settle(outputs)
    targets: list[Tensor] | None = None
    if inputs is not None:
        targets = _placed(inputs)
        if not targets:
            raise RuntimeError("backward(inputs=[]) asks for no gradients at all")
        _prepare_targets(walk, outputs, targets)
    result = Gradients()
    accumulate = functools.partial(_accumulate, result, create_graph)
    walk.deliver = accumulate
    if targets is not None:
        chosen = targets

        def deliver(leaf: Tensor, g: Any, fresh: bool) -> None:
            if any(leaf is t for t in chosen):
                accumulate(leaf, g, fresh)

        walk.deliver = deliver
    endings: list[Callable[[], Any]] = []
    outer, state["endings"] = state.get("endings"), endings
    try:
        with switched(*_modes_of(walk)):
            _start(walk, outputs, gradients, taped=False)
            walk.run()
            for tensor_id, g in walk.retained.items():
                result._adopt(tensor_id, g)
            walk.finish()
            for target, g in _wanted_gradients(walk, targets) if targets else ():
                if target._array is None:
                    continue  # a GradientEdge, which has no .grad
                if target._edge is not None and g is not None and target.id not in walk.retained:
                    accumulate(target, g, False)
            for ending in endings:
                ending()
    finally:
        state["endings"] = outer
    return result


def queue_callback(function: Callable[[], Any]) -> None:
    """Run a function when the backward pass of this thread has filled every `.grad`."""
    if STATE.endings is None:
        raise RuntimeError("queue_callback() needs a backward pass that runs in this thread")
    STATE.endings.append(function)


def _prepare_targets(walk: Walk, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    _settle(targets)
    for target in targets:
        if not isinstance(target, Tensor):
            raise TypeError(f"inputs must be Tensors, got {type(target).__name__}")
        if not target.requires_grad:
            raise RuntimeError(
                "one of the inputs does not require gradients; call requires_grad_() on it before "
                "the outputs are computed"
            )
    walk.wanted = {_output_key(t): None for t in targets if t._edge is not None}
    _mark_needed(walk, outputs, targets)


def _output_key(tensor: Tensor) -> tuple[int, int]:
    edge = tensor._edge
    return (edge.entry.number, edge.index) if isinstance(edge, Output) else (edge.number, 0)


def _wanted_gradients(walk: Walk, targets: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
    return [
        (t, None if t._edge is None or walk.wanted is None else walk.wanted[_output_key(t)])
        for t in targets
    ]


def _modes_of(walk: Walk) -> tuple[int, int]:
    """The modes to turn off and on during a walk: autocast off, recording on for create_graph."""
    return AUTOCAST | GRAD, GRAD if walk.create_graph else 0


@_bounded
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` for each of `inputs`; `.grad` stays untouched.

    >>> import tapegrad
    >>> x = tapegrad.tensor(3.0, requires_grad=True)
    >>> (g,) = tapegrad.autograd.grad(x**3, x, create_graph=True)
    >>> tapegrad.autograd.grad(g, x)
    (tensor(18.),)
    """
    if not only_inputs:
        raise TypeError("only_inputs=False is not supported; use backward() to fill .grad")
    if is_grads_batched:
        options = (retain_graph, create_graph, allow_unused, materialize_grads)
        return _batched_grad(outputs, inputs, grad_outputs, *options)
    outs, ins = _placed(outputs), _placed(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "materialize_grads=True gives zeros for inputs that were not used, so allow_unused "
            "cannot be False"
        )
    if grad_outputs is None:
        starts: list[Any] = [None] * len(outs)
    else:
        starts = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(starts) != len(outs):
        raise RuntimeError(f"got {len(outs)} outputs but {len(starts)} grad_outputs")
    walk = STATE.walk = Walk(create_graph if retain_graph is None else retain_graph, create_graph)
    _settle(outs)
    _prepare_targets(walk, outs, ins)
    leaves: dict[int, Any] = {}
    walk.deliver = lambda leaf, g, fresh: leaves.update({leaf.id: g})
    with switched(*_modes_of(walk)):
        _start(walk, outs, starts, taped=False)
        walk.run()
        walk.finish()
    results: list[Tensor | None] = []
    for target, g in _wanted_gradients(walk, ins):
        g = leaves.get(target.id) if target._edge is None else g
        if g is None:
            if materialize_grads:
                if target._array is None:
                    raise RuntimeError(
                        "materialize_grads needs tensors as inputs: the shape of the zeros is "
                        "not known for a GradientEdge"
                    )
                g = wrap(np.zeros_like(target._array)).requires_grad_(create_graph)
            elif not allow_unused:
                raise RuntimeError(
                    "one of the inputs was not used to compute the outputs; pass "
                    "allow_unused=True to get None for it"
                )
        if g is None or isinstance(g, Tensor):
            results.append(g)
        else:
            results.append(wrap(g if is_whole(g) else g.copy()))
    return tuple(results) if create_graph else _separate(results, starts)


def _batched_grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """`grad` for each row of `grad_outputs`, whose first dimension counts them."""
    from ..transforms.vmap import vmap

    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(given) != len(outs):
        raise RuntimeError(f"got {len(outs)} outputs but {len(given)} grad_outputs")
    for y, g in zip(outs, given, strict=True):
        if tuple(g.shape[1:]) != tuple(y.shape) or not g.ndim:
            raise RuntimeError(
                "with is_grads_batched=True, a gradient has one more dimension in front than "
                f"its output: expected (batch, *{tuple(y.shape)}), got {tuple(g.shape)}"
            )
    found: list[bool] = []

    def rows(*starts: Any) -> Any:
        results = grad(
            outs,
            inputs,
            list(starts),
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )
        found[:] = [g is not None for g in results]
        return tuple([g for g in results if g is not None])

    parts = iter(vmap(rows)(*given))
    return tuple([next(parts) if there else None for there in found])


def _separate(
    results: Sequence[Tensor | None], given: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Copy results that share memory: rules may pass one array on to several inputs.

    During capture results are Tensors, and may be views as well.
    """
    seen = {id(g._array) for g in given if g is not None}
    separate: list[Tensor | None] = []
    for r in results:
        if r is not None:
            if r._view is not None or id(r._array) in seen:
                copies = STATE.mode & (TAPE | TRANSFORM)
                r = r.clone() if copies else wrap(r._array.copy())
            seen.add(id(r._array))
        separate.append(r)
    return tuple(separate)


def tape_backward(
    tape: Tape, loss: Tensor, gradient: Tensor | None, retain: bool, create_graph: bool
) -> Gradients:
    """Gradients for every tensor on an explicit tape."""
    walk = Walk(retain, create_graph)
    _settle([loss])
    walk.value_gradients = {}
    outside = [t for t in tape.externals.values() if t._requires and t._edge is not None]
    walk.wanted = {_output_key(t): None for t in outside}
    result = Gradients()
    found: dict[int, Any] = {}

    def deliver(leaf: Tensor, g: Any, fresh: bool) -> None:
        found[leaf.id] = g
        _accumulate(result, create_graph, leaf, g, fresh)

    walk.deliver = deliver
    with switched(*_modes_of(walk)):
        _start(walk, [loss], [gradient], taped=True)
        walk.run()
        walk.finish()
        for tensor, g in _wanted_gradients(walk, outside):
            if g is not None:
                result._adopt(tensor.id, g)
        for number, g in (*walk.value_gradients.items(), *sorted(found.items())):
            result._adopt(number, g)
        for tensor_id, number in tape.values.items():
            if number in walk.value_gradients:
                result._adopt(tensor_id, walk.value_gradients[number])
    return result


def autograd_backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> Gradients:
    """Add gradients of one or several tensors to `.grad` of their leaves."""
    outs = _placed(tensors)
    if grad_tensors is None:
        starts: list[Any] = [None] * len(outs)
    else:
        starts = [grad_tensors] if isinstance(grad_tensors, Tensor) else list(grad_tensors)
    if len(starts) != len(outs):
        raise RuntimeError(f"got {len(outs)} tensors but {len(starts)} grad_tensors")
    return backward(outs, starts, retain_graph, create_graph, inputs)
