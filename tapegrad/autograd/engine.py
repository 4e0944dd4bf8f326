"""The reverse walk over entries.

Comes in: gradients sent to edges. Goes out: gradients of leaves, and of other requested tensors.
Entries are taken from a heap, the highest number first, so an entry is visited only after all
entries that used its result. Only here are gradients of broadcast inputs summed.

The gradient of a leaf is final once the last entry that uses the leaf is visited. If hooks wait for
it, the walk counts the remaining uses and delivers each gradient as soon as it is final; otherwise
it delivers all at the end.

On raw arrays nothing is wrapped or recorded. With `create_graph`, and under a capturing tape, the
same rules run on Tensors. Called by `api.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ..core import numeric, source, storage
from ..core.device import GPU_CLASSES
from ..core.dtypes import bfloat16
from ..core.histories import is_excused
from ..core.modes import ANOMALY, CAPTURE, STATE, TRANSFORM, numbers
from ..core.primitive import ARRAY_SIZE, PRIMITIVES, PRODUCT_SIZE, Primitive, accelerator
from ..core.tape import (
    AFTER,
    BEFORE,
    FREED,
    Entry,
    Freed,
    Handle,
    Output,
    Packed,
    Value,
    new_entry,
    node_of,
)
from ..core.tensor import Extra, Tensor, wrap
from ..core.wrapped import Wrapped
from .fused import run as run_fused

_ndarray = np.ndarray
_sum = np.add.reduce
_NOTHING = (None, None, False)


class Walk:
    """The state of one backward call."""

    #: by (entry number, output index): requested gradients of intermediate results
    wanted: dict[tuple[int, int], Any] | None = None
    #: id() of the entries and leaves on paths to requested tensors; None for all
    needed: set[int] | None = None
    #: by number of a value: every gradient, for explicit tapes
    value_gradients: dict[int, Any] | None = None
    #: called with a leaf, its final gradient, and whether nothing else refers to that array
    deliver: Callable[[Tensor, Any, bool], None] | None = None
    #: whether the walk fills `.grad`; then BEFORE hooks also run at the ends of its paths
    fills = False
    #: whether hooks wait for final gradients during the walk
    hurries = False
    #: by tensor id: how often entries not visited yet use a leaf; None until counted
    uses: dict[int, int] | None = None

    def __init__(self, retain: bool, create_graph: bool) -> None:
        self.retain = retain
        self.create_graph = create_graph
        #: whether rules run on Tensors instead of raw arrays
        mode = STATE.mode
        self.on_tensors = create_graph or mode & (CAPTURE | TRANSFORM) != 0
        #: whether the walk runs inside a transform
        self.transforms = mode & TRANSFORM != 0
        self.heap: list[tuple[int, Entry]] = []
        self.pending: dict[Entry, Any] = {}
        #: by tensor id: the leaf, its gradient, and whether nothing else refers to that array
        self.leaves: dict[int, tuple[Tensor, Any, bool]] = {}
        #: entries whose pending gradient is an array of this walk, which may be added to in place
        self.owned: set[Entry] = set()
        #: how many backward calls of this thread enclose this one
        outer = STATE.walk
        self.depth: int = 0 if outer is None else outer.depth + 1
        #: where the walk begins, and id() of all nodes that it reaches, computed on demand
        self.starts: list[Any] = []
        self.reached: set[int] | None = None
        #: by tensor id: gradients of results that retain them
        self.retained: dict[int, Any] = {}

    def send(self, edge: Any, g: Any, fresh: bool) -> None:
        """Add `g` to the pending gradient of `edge`."""
        if edge.__class__ is Entry:
            entry = edge
        elif edge.__class__ is Output:
            entry, index = edge.entry, edge.index
            waiting = self.pending.get(entry)
            if waiting is None:
                waiting = self.pending[entry] = [None] * len(entry.primitive.outputs)
                heappush(self.heap, (-entry.number, entry))
            waiting[index] = g if waiting[index] is None else as_whole_array(waiting[index] + g)
            return
        else:
            found = self.leaves.get(edge.id)
            if found is not None:
                total = found[1]
                if total.__class__ is not _ndarray or g.__class__ is not _ndarray:
                    on_gpu = total.__class__ in GPU_CLASSES and g.__class__ in GPU_CLASSES
                    total = _summed(total, g) if on_gpu else _added(total, g)
                elif total.size >= ARRAY_SIZE:
                    total = _summed(total, g)
                elif found[2] and is_whole(total):
                    np.add(total, g, out=total)
                else:
                    total = as_whole_array(total + g)
                self.leaves[edge.id] = (edge, total, True)
            else:
                self.leaves[edge.id] = (edge, g, fresh)
                if edge._extra is not None and self.deliver is not None and _is_hooked(edge):
                    self.hurries = True
            return
        pending = self.pending
        if entry in pending:
            total = pending[entry]
            if total.__class__ in GPU_CLASSES or (
                total.__class__ is _ndarray and total.size >= ARRAY_SIZE
            ):
                pending[entry] = _summed(total, g)
            elif entry in self.owned:
                np.add(total, g, out=total)
            else:
                total = pending[entry] = as_whole_array(pending[entry] + g)
                if total.__class__ is _ndarray:
                    self.owned.add(entry)
        else:
            pending[entry] = g
            heappush(self.heap, (-entry.number, entry))

    def run(self) -> None:
        """Visit every entry that a gradient reaches."""
        heap, pending, needed = self.heap, self.pending, self.needed
        retain, on_tensors = self.retain, self.on_tensors
        special = self.wanted is not None or self.value_gradients is not None
        anomaly = STATE.mode & ANOMALY
        # bfloat16 gets its NumPy type at its first use; before that nothing needs rounding.
        rounds = bfloat16._numpy is not None and not on_tensors
        chains = not (on_tensors or anomaly or self.value_gradients is not None)
        while heap:
            entry = heappop(heap)[1]
            g = pending.pop(entry)
            if special or entry.hooks is not None:
                g = self.arrived(entry, g)
            edges = entry.edges
            if needed is not None:
                edges = tuple(
                    [
                        e if id(e.entry if e.__class__ is Output else e) in needed else None
                        for e in edges
                    ]
                )
                for edge in edges:
                    if edge is not None:
                        break
                else:
                    if self.fills and entry.hooks is not None:
                        self.entered(entry, g)
                    continue  # no input needs a gradient: keep what the entry saved
            if entry.hooks is not None:
                g, late = self.entered(entry, g)
                if late:
                    self.visit(entry, g, edges, late)
                    continue
            saved = entry.saved
            if saved.__class__ is not tuple:
                saved = unpack(entry, saved)
            elif entry.number < storage.latest:
                _check_versions(entry, saved)
            if on_tensors:
                saved = as_tensors(entry, saved)
            p = entry.primitive
            if p.into is not None and not (on_tensors or anomaly):
                total = self.total_of(edges[0])
                if total is not None and total.dtype is g.dtype:
                    p.into(total, g, **entry.params)
                    if not retain and p.keeps_values:
                        entry.saved = FREED
                    if self.hurries:
                        self.visited(edges)
                    continue
                if edges[0].__class__ is Entry and edges[0] not in pending:
                    self.owned.add(edges[0])  # nothing else refers to the rule's result
            large = chains and (
                g.size >= ARRAY_SIZE if g.__class__ is _ndarray else g.__class__ in GPU_CLASSES
            )
            if large and run_fused(self, entry, g, edges, saved):
                continue  # `run_fused` has already called `visited`
            results: Any = NotImplemented
            if chains and (
                g.size >= p.native_size if g.__class__ is _ndarray else g.__class__ in GPU_CLASSES
            ):
                results = self.added(entry, g, edges, saved)
            if results is NotImplemented:
                pull = p._pull or p.pull
                if on_tensors and p.internal and STATE.tapes:
                    results = STATE.tapes[-1].unobserved(pull, g, edges, saved, entry.params)
                else:
                    results = pull(g, edges, saved, entry.params)
            if on_tensors and p.composite:
                for tape in STATE.tapes:
                    if not _any_wrapped(g, saved):
                        tape.enclose_vjp(entry, g, edges, saved, results)
            if rounds:
                results = _rounded(p, g, edges, results)
            if not retain and saved and p.keeps_values:
                entry.saved = FREED if p.release is None else p.release(entry.saved, g)
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
                    r = as_whole_array(r)
                if shapes is not None and r.shape != shapes[i]:
                    r = unbroadcast(r, shapes[i])
                if edge.__class__ is Entry and edge not in pending:
                    pending[edge] = r
                    heappush(heap, (-edge.number, edge))
                else:
                    self.send(edge, r, _is_fresh(p, g, r, results))
            if self.hurries:
                self.visited(edges)

    def visit(self, entry: Entry, g: Any, edges: tuple[Any, ...], hooks: list[Any]) -> None:
        """Visit one entry that has AFTER hooks, as `run` does but without shortcuts."""
        saved = entry.saved
        if saved.__class__ is not tuple:
            saved = unpack(entry, saved)
        else:
            _check_versions(entry, saved)
        if self.on_tensors:
            saved = as_tensors(entry, saved)
        p = entry.primitive
        results = p.pull(g, edges, saved, entry.params)
        if self.on_tensors and p.composite:
            for tape in STATE.tapes:
                if not _any_wrapped(g, saved):
                    tape.enclose_vjp(entry, g, edges, saved, results)
        if bfloat16._numpy is not None and not self.on_tensors:
            results = _rounded(p, g, edges, results)
        if not self.retain and saved and p.keeps_values:
            entry.saved = FREED if p.release is None else p.release(entry.saved, g)
        if STATE.mode & ANOMALY:
            _check_nan(entry, g, results)
        for r, edge in zip(self.left(entry, hooks, results, g), edges, strict=True):
            if r is not None and edge is not None:
                self.send(edge, as_whole_array(r), False)
        if self.hurries:
            self.visited(edges)

    # -- leaves ------------------------------------------------------------------------------

    def visited(self, edges: Sequence[Any]) -> None:
        """After an entry has sent its gradients, deliver those of leaves with no uses left."""
        if self.uses is None:
            self.uses = self._count_uses()
            final = [leaf for leaf, _, _ in self.leaves.values() if leaf.id not in self.uses]
            for leaf in sorted(final, key=_is_hooked):  # those without hooks were final earlier
                self.settle(leaf)
            return
        for edge in edges:
            if edge.__class__ is not Entry and isinstance(edge, Tensor):
                self.uses[edge.id] -= 1
                if self.uses[edge.id] == 0:
                    self.settle(edge)

    def _count_uses(self) -> dict[int, int]:
        """How often entries not visited yet use each leaf."""
        uses: dict[int, int] = {}
        needed = self.needed
        stack = [entry for _, entry in self.heap]
        reached = set(map(id, stack))
        while stack:
            for edge in stack.pop().edges:
                node = node_of(edge)
                if node is None or (needed is not None and id(node) not in needed):
                    continue
                if isinstance(node, Tensor):
                    uses[node.id] = uses.get(node.id, 0) + 1
                elif id(node) not in reached:
                    reached.add(id(node))
                    stack.append(node)
        return uses

    def settle(self, leaf: Tensor) -> None:
        """Run the hooks of a leaf and deliver its final gradient in the leaf's dtype."""
        found = self.leaves.pop(leaf.id, None)
        if found is None:
            return  # no gradient reached it
        _, g, fresh = found
        if leaf._extra is not None:
            shown = None
            for hook in list(leaf._extra.hooks.values()):
                g, shown = run_hook(hook, g, self.on_tensors, shown)
                fresh = False  # the hook may have kept a reference
        if isinstance(g, Tensor):
            if g._array.dtype != leaf._array.dtype:
                g = g.to(leaf.dtype)
        elif g.dtype != leaf._array.dtype:
            # A real leaf gets the real part of a complex gradient.
            g, fresh = PRIMITIVES["cast"](g, dtype=leaf.dtype), True
        assert g.shape == leaf._array.shape, f"gradient {g.shape} for a leaf {leaf.shape}"
        assert self.deliver is not None
        self.deliver(leaf, g, fresh)

    def finish(self) -> None:
        """Deliver the gradients of all remaining leaves, in order of creation."""
        for tensor_id in sorted(self.leaves):
            self.settle(self.leaves[tensor_id][0])

    # -- totals ------------------------------------------------------------------------------

    def total_of(self, edge: Any) -> Any:
        """The pending gradient of an edge if it may be added to in place, else None."""
        if edge.__class__ is Entry:
            return self.pending[edge] if edge in self.owned and edge in self.pending else None
        if edge.__class__ is Output:
            return None
        _, total, ours = self.leaves.get(edge.id, _NOTHING)
        return total if ours and not isinstance(total, Tensor) and is_whole(total) else None

    def added(self, entry: Entry, g: Any, edges: Sequence[Any], saved: Any) -> Any:
        """Run a native rule that adds its results to the totals of leaves, where there are some.

        A product that accumulates takes no longer than one that overwrites, and saves a separate
        pass over the gradient at each further use of a weight.
        """
        totals: list[Any] | None = None
        total: Any
        leaves = self.leaves
        for i, edge in enumerate(edges):
            if edge is None or edge.__class__ is Entry or edge.__class__ is Output:
                continue
            _, total, ours = leaves.get(edge.id, _NOTHING)
            if not ours or total.__class__ is not g.__class__ or total.size < PRODUCT_SIZE:
                continue
            if total.dtype is not g.dtype or not is_whole(total):
                continue
            if totals is None:
                totals = [None] * len(edges)
            elif any(total is other for other in totals):
                return NotImplemented
            totals[i] = total
        if totals is None or entry.shapes is not None:
            return NotImplemented
        p = entry.primitive
        return accelerator().rule(p, p.pull, g, edges, saved, entry.params, totals)

    def arrived(self, entry: Entry, g: Any) -> Any:
        """Run hooks on the complete gradient of an entry's results, and keep requested parts."""
        several = isinstance(g, list)
        parts = g if several else [g]
        shown: list[Tensor | None] = [None] * len(parts)
        # Hooks of `retain_grad` run last, so that they keep the result of the other hooks.
        for index, hook in sorted(entry.hooks or (), key=lambda h: hasattr(h[1], "retains")):
            if index >= 0 and parts[index] is not None:
                parts[index], shown[index] = run_hook(
                    hook, parts[index], self.on_tensors, shown[index]
                )
                if hasattr(hook, "retains"):
                    self.retained[hook.retains] = parts[index]
        if self.wanted is not None:
            for index, part in enumerate(parts):
                if (entry.number, index) in self.wanted:
                    self.wanted[entry.number, index] = part
        if self.value_gradients is not None and entry.log is not None:
            for value, part in zip(entry.log[1], parts, strict=True):
                if part is not None:
                    self.value_gradients[value.number] = part
        return parts if several else parts[0]

    def reaches(self, tensor: Tensor) -> bool:
        """Whether this pass computes the gradient of a tensor."""
        if self.reached is None:
            self.reached = set()
            stack = list(self.starts)
            while stack:
                node = node_of(stack.pop())
                if node is None or id(node) in self.reached:
                    continue
                if self.needed is not None and id(node) not in self.needed:
                    continue
                self.reached.add(id(node))
                if isinstance(node, Entry):
                    stack += node.edges
        return id(node_of(tensor._edge) or tensor) in self.reached

    def entered(self, entry: Entry, g: Any) -> tuple[Any, list[Any] | None]:
        """The gradient after the BEFORE hooks of an entry, and its AFTER hooks or None."""
        for index, hook in entry.hooks or ():
            if index == BEFORE:
                several = isinstance(g, list)
                shown = tuple(_shown(part) for part in (g if several else [g]))
                returned = hook(shown)
                if returned is not None:
                    given = returned if isinstance(returned, (tuple, list)) else (returned,)
                    _check_count(given, shown)
                    parts = [self._taken(part) for part in given]
                    g = parts if several else parts[0]
        return g, [hook for index, hook in entry.hooks or () if index == AFTER] or None

    def left(self, entry: Entry, hooks: list[Any], results: Sequence[Any], g: Any) -> Sequence[Any]:
        """The results of an entry after its AFTER hooks."""
        shapes = entry.shapes or (None,) * len(results)
        found = [
            r if r is None or shape is None or r.shape == shape else unbroadcast(r, shape)
            for r, shape in zip(results, shapes, strict=True)
        ]
        outer = tuple(_shown(part) for part in (g if isinstance(g, list) else [g]))
        for hook in hooks:
            shown = tuple(_shown(part) for part in found)
            returned = hook(shown, outer)
            if returned is not None:
                given = returned if isinstance(returned, (tuple, list)) else (returned,)
                _check_count(given, shown)
                found = [self._taken(part) for part in given]
        return found

    def _taken(self, part: Any) -> Any:
        """A gradient that a hook returned, in the form that the walk uses: array or Tensor."""
        return part if part is None or self.on_tensors or part.is_sparse else part._array


def _shown(part: Any) -> Any:
    """A gradient as a Tensor, for hooks."""
    return part if part is None or isinstance(part, Tensor) else _lent(as_whole_array(part))


def _check_count(returned: Sequence[Any], shown: Sequence[Any]) -> None:
    if len(returned) != len(shown):
        raise RuntimeError(
            f"a hook must return as many values as it gets, {len(shown)}; it returned "
            f"{len(returned)}"
        )


def _is_hooked(leaf: Tensor) -> bool:
    extra = leaf._extra
    if extra is None:
        return False
    node = getattr(extra, "accumulator", None)
    own = bool(extra.hooks or extra.post_hooks)
    return own or (node is not None and bool(node.prehooks or node.posthooks))


def _added(a: Any, b: Any) -> Any:
    """The sum of two gradients of a leaf that are not both NumPy arrays: one may be sparse."""
    if isinstance(a, Tensor) and a.is_sparse and not (isinstance(b, Tensor) and b.is_sparse):
        a, b = b, a  # add the sparse one to the dense one
    if isinstance(b, Tensor) and b.is_sparse and not isinstance(a, Tensor):
        return (wrap(a) + b)._array
    return as_whole_array(a + b)


def _summed(a: Any, b: Any) -> Any:
    """The sum of two gradients that are large or on a GPU, by native code."""
    return PRIMITIVES["add"](a, b)


def _rounded(p: Any, g: Any, edges: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
    """Round the results of a rule back to bfloat16 if the incoming gradient is bfloat16.

    In NumPy, bfloat16 times a Python float is float32. Gradients of leaves are rounded once, as a
    sum; rules with a dtype parameter choose the dtype themselves.
    """
    known = next((part for part in g if part is not None), None) if isinstance(g, list) else g
    if (
        known is None
        or not numeric.is_bfloat16(known.dtype)
        or any(slot[0] == "dtype" for slot in p.slots)
    ):
        return results
    return [
        r if r is None or edge is None or isinstance(edge, Tensor) else r.astype(known.dtype)
        for r, edge in zip(results, edges, strict=True)
    ]


def _is_fresh(p: Primitive, g: Any, r: Any, results: Sequence[Any]) -> bool:
    """Whether nothing else refers to the array `r` that a rule returned."""
    if r.__class__ is not _ndarray and r.__class__ not in GPU_CLASSES:
        return False
    if r.base is not None or not p.pure:
        return False  # a user's rule may return an array that it keeps
    if p.joint is None:
        return r is not g
    parts = g if g.__class__ is list else (g,)
    return all(r is not part for part in parts) and sum(r is other for other in results) == 1


def as_whole_array(value: Any) -> Any:
    """Make an array again of the NumPy scalar that an operation on 0-d arrays returns."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def is_whole(array: Any) -> bool:
    """Whether an array owns its memory and is writable."""
    return array.base is None and (array.__class__ is not _ndarray or array.flags.writeable)


def _is_small(g: Any) -> bool:
    """Whether NumPy can sum this directly: too small for native code, and wide enough to sum in."""
    return g.size < ARRAY_SIZE and g.dtype.itemsize > 2  # type: ignore[no-any-return]


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the dimensions along which its operand was repeated."""
    extra = len(g.shape) - len(shape)
    if extra == 1 and g.__class__ is _ndarray and g.shape[1:] == shape and _is_small(g):
        return as_whole_array(_sum(g, 0))  # for a bias: the general path takes 2 µs longer
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1
    )
    if dims:
        g = PRIMITIVES["sum"](g, dims=dims, keepdim=False)
    return as_whole_array(
        g if tuple(g.shape) == tuple(shape) else PRIMITIVES["reshape"](g, shape=shape)
    )


def unpack(entry: Entry, saved: Any) -> tuple[Any, ...]:
    if isinstance(saved, Freed):
        raise RuntimeError(
            "backward went through this graph before and freed what it had saved "
            f"({entry.name()}, recorded at {entry.line}); "
            "call the first backward with retain_graph=True to keep it"
        )
    assert isinstance(saved, Packed)
    return tuple(unpacked(value) for value in saved.values)


def unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if not isinstance(value, Handle):
        return value
    tensor = value.unpack(value.packed)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"an unpack hook must return a Tensor, got {type(tensor).__name__}")
    return tensor if isinstance(tensor, Wrapped) else tensor._array


def _check_versions(entry: Entry, saved: tuple[Any, ...]) -> None:
    for value in saved:
        for item in value if value.__class__ is list else (value,):
            if hasattr(item, "nbytes"):
                array = item._array if isinstance(item, Tensor) else item
                change = storage.changed_since(array, entry.number)
                if change is not None and not is_excused(array, entry.number):
                    raise RuntimeError(
                        "a value that backward needs was changed in place.\n"
                        f"  saved by {entry.primitive.name} at {entry.line}\n"
                        f"  changed at {source.describe(change.location)}\n"
                        "Use the operation that returns a new tensor there, or clone() first."
                    )


def as_tensors(entry: Entry, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved arrays as Tensors with their histories."""
    for tape in STATE.tapes:
        tape.visit(entry)
    slots = entry.primitive.slots
    return tuple([as_tensor(entry, slot, v) for slot, v in zip(slots, saved, strict=True)])


def as_tensor(entry: Entry, slot: Any, value: Any) -> Any:
    """One saved value as a Tensor, if it is an array."""
    what, index, _ = slot
    if value is None or what in ("shape", "dtype", "shapes"):
        return value
    if what == "value":
        return value.stripped() if isinstance(value, Wrapped) else wrap(value)
    if what == "rest":
        return [_rebuilt(entry, index + i, a) for i, a in enumerate(value)]
    if not hasattr(value, "nbytes"):
        return value
    if what == "in":
        return _rebuilt(entry, index, value)
    tensor: Tensor = value.stripped() if isinstance(value, Wrapped) else wrap(value)
    outputs = entry.primitive.outputs
    if index < len(outputs) and numeric.is_differentiable(tensor._array.dtype):
        several = len(entry.primitive.outputs) > 1
        tensor._edge = Output(entry, index) if several else entry
        tensor._requires = True
    _same_value(entry, tensor, entry.log and entry.log[1], index)
    return tensor


def _any_wrapped(g: Any, saved: Sequence[Any]) -> bool:
    """Whether a rule ran on wrapped tensors: then tapes have logged the operations of its level."""
    parts = g if isinstance(g, list) else (g,)
    return any(isinstance(x, Wrapped) for x in (*parts, *saved))


def _rebuilt(entry: Entry, index: int, array: Any) -> Any:
    edge = entry.edges[index]
    if isinstance(array, Wrapped):
        if isinstance(edge, Wrapped) and edge._extra.value is array._extra.value:
            return edge
        tensor: Tensor = array.stripped()
    elif isinstance(edge, Tensor) and edge._array is array:
        return edge
    else:
        tensor = wrap(array)
    if isinstance(edge, Tensor):
        # A saved-tensor hook returned another array for the leaf.
        tensor._edge = copy_of(edge, entry.location)
        tensor._requires = True
    elif edge is not None:
        tensor._edge = edge
        tensor._requires = True
    _same_value(entry, tensor, entry.log and entry.log[0], index)
    return tensor


def copy_of(leaf: Tensor, location: source.Location | None) -> Entry:
    """An entry that passes gradients on to a leaf unchanged."""
    return new_entry(PRIMITIVES["clone"], {}, (leaf,), (), next(numbers), location)


def _same_value(entry: Entry, tensor: Tensor, values: Any, index: int) -> None:
    """Give a rebuilt tensor the number of the value that a tape logged, not a new one."""
    value = values[index] if values and index < len(values) else None
    if isinstance(value, Value):
        for tape in STATE.tapes:
            if value.number in tape.known:
                tape.values[tensor.id] = value.number


def _check_nan(entry: Entry, g: Any, results: Sequence[Any]) -> None:
    for i, r in enumerate(results):
        array = _values_of(r)
        if array is not None and bool(np.isnan(array).any()):
            incoming = g._array if isinstance(g, Tensor) else g
            if isinstance(incoming, list) or not bool(np.isnan(incoming).any()):
                raise RuntimeError(
                    f"{entry.name()} made the first NaN of the backward pass, in the gradient of "
                    f"its input {i}; the operation was recorded at {entry.line}"
                )


def _values_of(r: Any) -> Any:
    """The numbers of a gradient, as an array."""
    if isinstance(r, Tensor):
        return r._array.elements._array if r.is_sparse else r._array
    return r


def run_hook(hook: Any, g: Any, on_tensors: bool, shown: Tensor | None) -> tuple[Any, Tensor]:
    """The gradient after a hook, and the tensor that the next hook gets.

    All hooks get the same tensor until one returns another: they may set attributes on it.
    """
    tensor = shown if shown is not None else g if isinstance(g, Tensor) else _lent(g)
    replacement = hook(tensor)
    if replacement is None:
        return g, tensor
    if not isinstance(replacement, Tensor):
        raise TypeError(
            f"a gradient hook must return a Tensor or None, got {type(replacement).__name__}"
        )
    if replacement._array.shape != tensor._array.shape:
        raise RuntimeError(
            f"a gradient hook got a gradient of shape {tuple(tensor.shape)} and returned one of "
            f"shape {tuple(replacement.shape)}"
        )
    raw = replacement if on_tensors or replacement.is_sparse else replacement._array
    return raw, replacement


def _lent(array: Any) -> Tensor:
    """A Tensor around a shared array; it is copied before the first write."""
    tensor = wrap(array)
    tensor._extra = Extra(_always)
    return tensor


def _always() -> bool:
    return True
