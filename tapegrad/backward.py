"""The reverse walk over entries.

Comes in: outputs and their gradients. Goes out: gradients of leaves (and of whatever else was
asked for). Entries are visited from the highest number down, off a heap, so an entry is visited
only when everything that used its result has been. Un-broadcasting and accumulation live here and
nowhere else.

With raw arrays nothing is wrapped or recorded. With `create_graph`, and while a capturing tape
listens, the same rules run on Tensors.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from . import mutation, source
from .dtypes import bfloat16
from .gradients import Gradients
from .primitive import PRIMITIVES, Primitive
from .state import ANOMALY, GRAD, STATE, numbers
from .tape import FREED, Entry, Freed, Handle, Output, Packed, Tape
from .tensor import Extra, Tensor, own, wrap

_ndarray = np.ndarray
_accumulate_lock = threading.Lock()


class Walk:
    """One backward call: what it has found so far."""

    def __init__(self, retain: bool, create_graph: bool) -> None:
        self.retain = retain
        self.create_graph = create_graph
        #: whether rules run on Tensors instead of raw arrays
        self.on_tensors = create_graph or any(tape.logs_backward for tape in STATE.tapes)
        self.heap: list[tuple[int, Entry]] = []
        self.pending: dict[Entry, Any] = {}
        #: by tensor id: the leaf, its gradient, and whether nobody else can see that array
        self.leaves: dict[int, tuple[Tensor, Any, bool]] = {}
        #: entries whose pending gradient is an array made here, so that it may be added to in place
        self.owned: set[Entry] = set()
        #: by (entry number, output index): gradients wanted of results in between
        self.wanted: dict[tuple[int, int], Any] | None = None
        #: id() of the entries and leaves on the way to what is wanted; None for all
        self.needed: set[int] | None = None
        #: by tensor id: gradients of results that retain them
        self.retained: dict[int, Any] = {}
        #: by value number: every gradient, for explicit tapes
        self.watched: dict[int, Any] | None = None

    def send(self, edge: Any, g: Any, fresh: bool) -> None:
        """Add `g` to what waits at `edge`."""
        if edge.__class__ is Entry:
            entry = edge
        elif edge.__class__ is Output:
            entry, index = edge.entry, edge.index
            waiting = self.pending.get(entry)
            if waiting is None:
                waiting = self.pending[entry] = [None] * len(entry.primitive.outputs)
                heappush(self.heap, (-entry.number, entry))
            waiting[index] = g if waiting[index] is None else _array(waiting[index] + g)
            return
        else:
            found = self.leaves.get(edge.id)
            if found is not None:
                total = found[1]
                if found[2] and total.__class__ is _ndarray and _is_whole(total):
                    np.add(total, g, out=total)
                else:
                    total = _array(total + g)
                self.leaves[edge.id] = (edge, total, True)
            else:
                self.leaves[edge.id] = (edge, g, fresh)
            return
        pending = self.pending
        if entry in pending:
            if entry in self.owned:
                total = pending[entry]
                np.add(total, g, out=total)
            else:
                total = pending[entry] = _array(pending[entry] + g)
                if total.__class__ is _ndarray:
                    self.owned.add(entry)
        else:
            pending[entry] = g
            heappush(self.heap, (-entry.number, entry))

    def run(self) -> None:
        """Visit every entry that a gradient reaches."""
        heap, pending, needed = self.heap, self.pending, self.needed
        retain, on_tensors = self.retain, self.on_tensors
        special = self.wanted is not None or self.watched is not None
        anomaly = STATE.mode & ANOMALY
        # bfloat16 has a NumPy type from its first use on; until then nothing needs rounding.
        rounds = bfloat16._numpy is not None and not on_tensors
        while heap:
            entry = heappop(heap)[1]
            g = pending.pop(entry)
            if special or entry.hooks is not None:
                g = self.arrived(entry, g)
            edges = entry.edges
            if needed is not None:
                edges = tuple(e if id(_node(e)) in needed else None for e in edges)
                if all(e is None for e in edges):
                    continue  # the way ends here: what the entry saved stays
            saved = entry.saved
            if saved.__class__ is not tuple:
                saved = _unpack(entry, saved)
            elif entry.number < mutation.latest:
                _check_versions(entry, saved)
            if on_tensors:
                saved = _as_tensors(entry, saved)
            p = entry.primitive
            results = (p._pull or p.pull)(g, edges, saved, entry.params)
            if rounds:
                results = _rounded(p, g, edges, results)
            if not retain and saved:
                entry.saved = FREED
            if anomaly:
                _check_nan(entry, g, results)
            shapes = entry.shapes
            i = -1
            for r in results:
                i += 1
                if r is None:
                    continue
                edge = edges[i]
                if edge is None:
                    continue
                if r.__class__ is not _ndarray:
                    r = _array(r)
                if shapes is not None and r.shape != shapes[i]:
                    r = unbroadcast(r, shapes[i])
                if edge.__class__ is Entry and edge not in pending:
                    pending[edge] = r
                    heappush(heap, (-edge.number, edge))
                else:
                    self.send(edge, r, _is_fresh(p, g, r, results))

    def arrived(self, entry: Entry, g: Any) -> Any:
        """The whole gradient of an entry's results is known: run hooks, keep what is wanted."""
        several = isinstance(g, list)
        parts = g if several else [g]
        # Tensors that retain their gradient keep what the other hooks have made of it.
        for index, hook in sorted(entry.hooks or (), key=lambda h: hasattr(h[1], "retains")):
            if parts[index] is not None:
                parts[index] = _run_hook(hook, parts[index], self.on_tensors)
                if hasattr(hook, "retains"):
                    self.retained[hook.retains] = parts[index]
        if self.wanted is not None:
            for index, part in enumerate(parts):
                if (entry.number, index) in self.wanted:
                    self.wanted[entry.number, index] = part
        if self.watched is not None and entry.log is not None:
            for value, part in zip(entry.log[1], parts, strict=True):
                if part is not None:
                    self.watched[value.number] = part
        return parts if several else parts[0]


def _rounded(p: Any, g: Any, edges: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
    """Gradients on their way through bfloat16 operations, as bfloat16.

    NumPy makes float32 of bfloat16 times a Python float. Leaves round the sum of what they get, and
    rules that ask for a dtype have chosen one.
    """
    known = next((part for part in g if part is not None), None) if isinstance(g, list) else g
    if known is None or known.dtype.kind != "V" or any(slot[0] == "dtype" for slot in p.slots):
        return results
    return [
        r if r is None or edge is None or isinstance(edge, Tensor) else r.astype(known.dtype)
        for r, edge in zip(results, edges, strict=True)
    ]


def _is_fresh(p: Primitive, g: Any, r: Any, results: Sequence[Any]) -> bool:
    """Whether nobody else can see the array `r` that a rule has returned."""
    if r.__class__ is not _ndarray or r.base is not None or not p.pure:
        return False  # a rule that is not ours may return anything
    if p.joint is None:
        return r is not g
    parts = g if g.__class__ is list else (g,)
    return all(r is not part for part in parts) and sum(r is other for other in results) == 1


def _node(edge: Any) -> Any:
    return edge.entry if edge.__class__ is Output else edge


def _array(value: Any) -> Any:
    """Operations on 0-d arrays return NumPy scalars; make them arrays again."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _is_whole(array: Any) -> bool:
    """Whether an array has memory of its own that may be written to."""
    return array.base is None and (array.__class__ is not _ndarray or array.flags.writeable)


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the dimensions along which its operand was repeated."""
    extra = len(g.shape) - len(shape)
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1
    )
    if dims:
        g = PRIMITIVES["sum"](g, dims=dims, keepdim=False)
    return _array(g if tuple(g.shape) == tuple(shape) else PRIMITIVES["reshape"](g, shape=shape))


def _unpack(entry: Entry, saved: Any) -> tuple[Any, ...]:
    if isinstance(saved, Freed):
        raise RuntimeError(
            "backward went through this graph before and freed what it had saved "
            f"({entry.name()}, recorded at {entry.line}); "
            "call the first backward with retain_graph=True to keep it"
        )
    assert isinstance(saved, Packed)
    return tuple(_unpacked(value) for value in saved.values)


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, Handle):
        return value
    tensor = value.unpack(value.packed)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"an unpack hook must return a Tensor, got {type(tensor).__name__}")
    return tensor._array


def _check_versions(entry: Entry, saved: tuple[Any, ...]) -> None:
    for value in saved:
        for item in value if value.__class__ is list else (value,):
            if hasattr(item, "nbytes"):
                change = mutation.changed_since(item, entry.number)
                if change is not None:
                    raise RuntimeError(
                        "a value that backward needs was changed in place.\n"
                        f"  saved by {entry.primitive.name} at {entry.line}\n"
                        f"  changed at {source.describe(change.place)}\n"
                        "Use the operation that returns a new tensor there, or clone() first."
                    )


def _as_tensors(entry: Entry, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved arrays as Tensors that lead back to where they came from."""
    rebuilt: list[Any] = []
    for (what, index, _), value in zip(entry.primitive.slots, saved, strict=True):
        if value is None or what in ("shape", "dtype", "shapes"):
            rebuilt.append(value)
        elif what == "value":
            rebuilt.append(wrap(value))
        elif what == "rest":
            rebuilt.append([_rebuilt(entry, index + i, a) for i, a in enumerate(value)])
        elif not hasattr(value, "nbytes"):
            rebuilt.append(value)
        elif what == "in":
            rebuilt.append(_rebuilt(entry, index, value))
        else:
            tensor = wrap(value)
            if index < len(entry.primitive.outputs) and value.dtype.kind in "fV":
                several = len(entry.primitive.outputs) > 1
                tensor._edge = Output(entry, index) if several else entry
                tensor._requires = True
            _same_value(entry, tensor, entry.log and entry.log[1], index)
            rebuilt.append(tensor)
    return tuple(rebuilt)


def _rebuilt(entry: Entry, index: int, array: Any) -> Any:
    edge = entry.edges[index]
    if isinstance(edge, Tensor) and edge._array is array:
        return edge
    tensor = wrap(array)
    if isinstance(edge, Tensor):
        tensor._edge = _copy_of(edge, entry)  # a hook brought back another array of the leaf
        tensor._requires = True
    elif edge is not None:
        tensor._edge = edge
        tensor._requires = True
    _same_value(entry, tensor, entry.log and entry.log[0], index)
    return tensor


def _copy_of(leaf: Tensor, entry: Entry) -> Entry:
    """An entry that passes gradients on to a leaf unchanged."""
    copied = Entry()
    copied.primitive = PRIMITIVES["clone"]
    copied.params = {}
    copied.edges = (leaf,)
    copied.saved = ()
    copied.number = next(numbers)
    copied.place = entry.place
    copied.hooks = copied.log = copied.shapes = None
    return copied


def _same_value(entry: Entry, tensor: Tensor, values: Any, index: int) -> None:
    """On a capturing tape a rebuilt tensor is the value that was logged, not a new one."""
    if values and index < len(values):
        for tape in STATE.tapes:
            if values[index].number in tape.known:
                tape.values[tensor.id] = values[index].number


def _check_nan(entry: Entry, g: Any, results: Sequence[Any]) -> None:
    for i, r in enumerate(results):
        array = r._array if isinstance(r, Tensor) else r
        if array is not None and bool(np.isnan(array).any()):
            incoming = g._array if isinstance(g, Tensor) else g
            if isinstance(incoming, list) or not bool(np.isnan(incoming).any()):
                raise RuntimeError(
                    f"{entry.name()} made the first NaN of the backward pass, in the gradient of "
                    f"its input {i}; the operation was recorded at {entry.line}"
                )


def _run_hook(hook: Any, g: Any, on_tensors: bool) -> Any:
    tensor = g if isinstance(g, Tensor) else _lent(g)
    replacement = hook(tensor)
    if replacement is None:
        return g
    if not isinstance(replacement, Tensor):
        raise TypeError(
            f"a gradient hook must return a Tensor or None, got {type(replacement).__name__}"
        )
    if replacement._array.shape != tensor._array.shape:
        raise RuntimeError(
            f"a gradient hook got a gradient of shape {tuple(tensor.shape)} and returned one of "
            f"shape {tuple(replacement.shape)}"
        )
    return replacement if on_tensors else replacement._array


def _lent(array: Any) -> Tensor:
    """A Tensor around an array that others read; it is copied before the first write."""
    tensor = wrap(array)
    tensor._extra = Extra()
    tensor._extra.lender = _always
    return tensor


def _always() -> bool:
    return True


# -- entry points ------------------------------------------------------------------------------


def _start(walk: Walk, outputs: Sequence[Tensor], gradients: Sequence[Any], taped: bool) -> None:
    """Check the outputs and put their gradients in place."""
    prepared = []
    for output, gradient in zip(outputs, gradients, strict=True):
        requires = output.requires_grad
        if not requires and not (taped and output._edge is not None):
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
            gradient = wrap(np.ones_like(array))
        elif not isinstance(gradient, Tensor):
            raise TypeError(f"gradient must be a Tensor or None, got {type(gradient).__name__}")
        elif gradient._array.shape != array.shape:
            raise RuntimeError(
                f"the gradient of an output of shape {tuple(array.shape)} must have the same "
                f"shape, got {tuple(gradient.shape)}"
            )
        elif gradient._array.dtype != array.dtype:
            gradient = gradient.to(output.dtype)
        prepared.append((output, gradient))
    for output, gradient in prepared:
        edge = output if output._edge is None else output._edge
        walk.send(edge, gradient if walk.on_tensors else gradient._array, False)


def _mark_needed(walk: Walk, outputs: Iterable[Tensor], targets: Sequence[Tensor]) -> None:
    """Find the entries that lie between the outputs and the targets."""
    ends: set[int] = set()
    for t in targets:
        ends.add(id(t) if t._edge is None else id(_node(t._edge)))
    reached: dict[int, Entry] = {}
    stack = [_node(o._edge) for o in outputs if o._edge is not None]
    while stack:
        entry = stack.pop()
        if id(entry) in reached:
            continue
        reached[id(entry)] = entry
        for edge in entry.edges:
            node = _node(edge)
            if isinstance(node, Entry) and id(node) not in reached:
                stack.append(node)
    needed = set(ends)
    for entry in sorted(reached.values(), key=lambda e: e.number):
        if any(edge is not None and id(_node(edge)) in needed for edge in entry.edges):
            needed.add(id(entry))
    walk.needed = needed


def _leaf_gradients(walk: Walk) -> list[tuple[Tensor, Any, bool]]:
    """Leaves in order of creation with their gradients, hooks run, of the leaf's dtype."""
    found = []
    for number in sorted(walk.leaves):
        leaf, g, fresh = walk.leaves[number]
        extra = leaf._extra
        if extra is not None:
            for hook in list(extra.hooks.values()):
                g = _run_hook(hook, g, walk.on_tensors)
                fresh = False  # the hook may have kept it
        if isinstance(g, Tensor):
            if g._array.dtype != leaf._array.dtype:
                g = g.to(leaf.dtype)
        elif g.dtype != leaf._array.dtype:
            g, fresh = g.astype(leaf._array.dtype), True
        assert g.shape == leaf._array.shape, f"gradient {g.shape} for a leaf {leaf.shape}"
        found.append((leaf, g, fresh))
    return found


def _accumulate(leaf: Tensor, g: Any, fresh: bool, owner: Gradients, create_graph: bool) -> None:
    """Add a gradient to `.grad`. No two `.grad` share memory."""
    with _accumulate_lock:
        grad = leaf._grad
        if isinstance(g, Tensor):
            # Rules hand the same tensor to several inputs, so each .grad is a copy.
            if grad is None:
                leaf._grad = g.clone()
            elif create_graph or grad._requires:
                leaf._grad = grad + g
            else:
                grad += g
        elif grad is None:
            if fresh:
                grad = wrap(g)
                grad._extra = Extra()
                grad._extra.lender = weakref.ref(owner._lease)
            else:
                grad = wrap(_contiguous_copy(g, leaf._array))
            leaf._grad = grad
        elif grad._requires:
            leaf._grad = wrap(_array(grad._array + g))
        else:
            own(grad)
            np.add(grad._array, g, out=grad._array)
            mutation.note(grad._array)
    if leaf._extra is not None:
        for hook in list(leaf._extra.post_hooks.values()):
            hook(leaf)


def _contiguous_copy(g: Any, like: Any) -> Any:
    copy = np.empty_like(like)
    copy[...] = g
    return copy


def backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Any],
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> Gradients:
    """Add gradients of `outputs` to `.grad` of the leaves (of `inputs` only, if given)."""
    walk = Walk(create_graph if retain_graph is None else retain_graph, create_graph)
    targets: list[Tensor] | None = None
    if inputs is not None:
        targets = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if not targets:
            raise RuntimeError("backward(inputs=[]) asks for no gradients at all")
        _prepare_targets(walk, outputs, targets)
    with _walking(walk):
        _start(walk, outputs, gradients, taped=False)
        walk.run()
        result = Gradients()
        for number, g in walk.retained.items():
            result._adopt(number, g)
        for leaf, g, fresh in _leaf_gradients(walk):
            if leaf._requires and (targets is None or any(leaf is t for t in targets)):
                result._adopt(leaf.id, g)
                _accumulate(leaf, g, fresh, result, create_graph)
        for target, g in _wanted_gradients(walk, targets or ()):
            if target._edge is not None and g is not None and target.id not in walk.retained:
                result._adopt(target.id, g)
                _accumulate(target, g, False, result, create_graph)
    return result


def _prepare_targets(walk: Walk, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for target in targets:
        if not isinstance(target, Tensor):
            raise TypeError(f"inputs must be Tensors, got {type(target).__name__}")
        if not target.requires_grad:
            raise RuntimeError(
                "one of the inputs does not require gradients; call requires_grad_() on it before "
                "the outputs are computed"
            )
    walk.wanted = {_place(t): None for t in targets if t._edge is not None}
    _mark_needed(walk, outputs, targets)


def _place(tensor: Tensor) -> tuple[int, int]:
    edge = tensor._edge
    return (edge.entry.number, edge.index) if isinstance(edge, Output) else (edge.number, 0)


def _wanted_gradients(walk: Walk, targets: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
    return [
        (t, None if t._edge is None or walk.wanted is None else walk.wanted[_place(t)])
        for t in targets
    ]


class _walking:
    """Modes during a walk: recording is on only for create_graph."""

    def __init__(self, walk: Walk) -> None:
        self.create_graph = walk.create_graph

    def __enter__(self) -> None:
        self.before = STATE.mode
        STATE.mode = self.before | GRAD if self.create_graph else self.before & ~GRAD

    def __exit__(self, *exc: object) -> None:
        STATE.mode = (STATE.mode & ~GRAD) | (self.before & GRAD)


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
        raise TypeError("is_grads_batched is not supported; loop over grad_outputs instead")
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if grad_outputs is None:
        starts: list[Any] = [None] * len(outs)
    else:
        starts = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(starts) != len(outs):
        raise RuntimeError(f"got {len(outs)} outputs but {len(starts)} grad_outputs")
    walk = Walk(create_graph if retain_graph is None else retain_graph, create_graph)
    _prepare_targets(walk, outs, ins)
    with _walking(walk):
        _start(walk, outs, starts, taped=False)
        walk.run()
        leaves = {leaf.id: g for leaf, g, _ in _leaf_gradients(walk)}
    results: list[Tensor | None] = []
    for target, g in _wanted_gradients(walk, ins):
        g = leaves.get(target.id) if target._edge is None else g
        if g is None:
            if materialize_grads:
                g = np.zeros_like(target._array)
            elif not allow_unused:
                raise RuntimeError(
                    "one of the inputs was not used to compute the outputs; pass "
                    "allow_unused=True to get None for it"
                )
        if g is None or isinstance(g, Tensor):
            results.append(g)
        else:
            results.append(wrap(g if _is_whole(g) else g.copy()))
    return _separate(tuple(results))


def _separate(results: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Two inputs may get the same gradient array (the rules of `+`): give each its own."""
    seen: set[int] = set()
    for r in results:
        if r is not None and r._edge is None:
            if id(r._array) in seen:
                r._array = r._array.copy()
            seen.add(id(r._array))
    return results


def tape_backward(
    tape: Tape, loss: Tensor, gradient: Tensor | None, retain: bool, create_graph: bool
) -> Gradients:
    """Gradients for every tensor on an explicit tape."""
    walk = Walk(retain, create_graph)
    walk.watched = {}
    outside = [t for t in tape.externals.values() if t._requires and t._edge is not None]
    walk.wanted = {_place(t): None for t in outside}
    with _walking(walk):
        _start(walk, [loss], [gradient], taped=True)
        walk.run()
        result = Gradients()
        for tensor, g in _wanted_gradients(walk, outside):
            if g is not None:
                result._adopt(tensor.id, g)
        for number, g in walk.watched.items():
            result._adopt(number, g)
        for leaf, g, fresh in _leaf_gradients(walk):
            result._adopt(leaf.id, g)
            if leaf._requires:
                _accumulate(leaf, g, fresh, result, create_graph)
        for tensor_id, number in tape.values.items():
            if number in walk.watched:
                result._adopt(tensor_id, walk.watched[number])
    return result


def autograd_backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> Gradients:
    """Add gradients of one or several tensors to `.grad` of their leaves."""
    outs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if grad_tensors is None:
        starts: list[Any] = [None] * len(outs)
    else:
        starts = [grad_tensors] if isinstance(grad_tensors, Tensor) else list(grad_tensors)
    if len(starts) != len(outs):
        raise RuntimeError(f"got {len(outs)} tensors but {len(starts)} grad_tensors")
    return backward(outs, starts, retain_graph, create_graph, inputs)
