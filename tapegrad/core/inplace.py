"""In-place operations: they change a tensor without any primitive that mutates.

Comes in: a tensor and its new value, which a pure operation has computed. Goes out: the value in
the tensor's memory, and the value's history as the tensor's history. If the tensor is a view, its
base gets a new history too: the base with the value written through the view's chain of movements.
Other views of the same memory re-derive their history from the base at their next use
(`histories.refresh`). Called by the operations of `ops/` whose names end in `_`, and by
`ops/index/indexing.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import batch_rules, numeric, storage, xp
from .arrays import is_gpu_class
from .histories import check_derivable, set_history
from .modes import GRAD, HOOKS, INFERENCE, STATE, TAPE, TRANSFORM, numbers
from .primitive import MOVEMENT, PRIMITIVES, Primitive, bind, define, record
from .tape import Entry, Output
from .tensor import Extra, Tensor, own, refresh, wrap
from .unset import UnsetArray, refusal
from .wrapped import Wrapped, whole_of

Chain = tuple[tuple[Primitive, dict[str, Any]], ...]


def check_writable(tensor: Tensor, what: str, whole: bool = True) -> int:
    """Refuse to overwrite a leaf that requires gradients, before anything is changed.

    Also refuse read-only memory and, if the `whole` tensor is to be written, elements that share an
    address. Returns the mode of the thread, which callers need too.
    """
    mode = STATE.mode
    if mode & TRANSFORM and not tensor._on_tapes:
        STATE.levels[-1].check_leaf(tensor, what)
        tensor = whole_of(tensor)
    array, extra = tensor._array, tensor._extra
    root = tensor if tensor._view is None else tensor._view[0]
    known = root._extra
    if known is not None and known.inference and not mode & INFERENCE:
        raise RuntimeError(
            f"{what}: this tensor was made inside of inference_mode and can be changed in place "
            "only there; work on a clone()"
        )
    lent = extra is not None and extra.lender is not None  # copied before the first write
    on_cpu = isinstance(array, np.ndarray)
    if not lent and (on_cpu or is_gpu_class(array.__class__)):
        flags = array.flags
        if on_cpu and not flags.writeable:
            if array.__class__ is UnsetArray:
                raise refusal(what)
            # NumPy makes what `expand` returns read-only. A user's read-only array has no stride 0.
            expanded = 0 in root._array.strides
            found = storage.writable(array) if expanded or root._array.flags.writeable else None
            if found is None or (whole and xp.overlaps_itself(array)):
                raise RuntimeError(
                    f"{what} cannot write here: several elements share one place in memory "
                    "(expand), or the memory is read-only; use clone() first"
                )
            tensor._array = found  # a part of what `expand` made, or all its elements become equal
        elif whole and not flags.forc and xp.overlaps_itself(array):
            raise RuntimeError(
                f"{what} cannot write here: several elements of the tensor share memory "
                "(expand, unfold); use clone() first"
            )
    if mode & (TAPE | HOOKS):
        for tape in STATE.tapes:
            tape.will_write(tensor)
        if STATE.mutations is not None:
            STATE.mutations.will_write(array)
    if not mode & GRAD or not (tensor._requires or root._requires):
        return mode
    if tensor._view is not None:
        check_derivable(tensor._view, f"{what} would change")
    if any(t._requires and t._edge is None for t in (tensor, root)):
        kind = "a view of a leaf" if root is not tensor else "a leaf"
        raise RuntimeError(
            f"{what} would change {kind} that requires gradients, so its gradient would be lost; "
            "update it inside `with tapegrad.no_grad():`, or work on a clone()"
        )
    return mode


def apply(primitive: Primitive, tensor: Tensor, others: tuple[Any, ...], params: Any = None) -> Any:
    """`tensor.op_(...)`: run the pure operation and assign its result to the tensor."""
    mode = check_writable(tensor, f"{primitive.name}_")
    if mode & TRANSFORM and _is_wrapped(tensor, *others):
        value = bind(primitive, (tensor, *others), params or {})
        return assign(tensor, value, f"{primitive.name}_")
    if tensor._extra is not None:
        own(tensor)
    target = tensor._array
    direct = isinstance(primitive.kernel, np.ufunc) and primitive.promote != "bool"
    if direct and (not mode or (mode == GRAD and _is_untracked(tensor, *others))):
        arrays = _same_kind(tensor, others)
        if arrays is None and primitive.kernel in (np.add, np.subtract, np.multiply):
            arrays = _small_integers(target, others)
        if arrays is not None:
            primitive.kernel(target, *arrays, out=target)
            storage.note(target)
            return tensor
    value = bind(primitive, (tensor, *others), params or {})
    if numeric.is_complex(target.dtype) and numeric.is_floating(value._array.dtype):
        raise RuntimeError(f"{primitive.name} has no in-place form for complex tensors")
    return assign(tensor, value, f"{primitive.name}_")


def turn(tensor: Tensor, movement: Any, what: str) -> Tensor:
    """`tensor.transpose_(...)` and the like: the tensor becomes a view of its own memory."""
    check_writable(tensor, what, whole=False)
    if not tensor._on_tapes:
        return STATE.levels[-1].turn(tensor, movement, what)  # type: ignore[no-any-return]
    own(tensor)
    for tape in STATE.tapes:
        tape.will_relayout(tensor)
    value = movement(tensor)
    tensor._array = value._array
    if tensor._view is not None:
        tensor._view = value._view
    else:
        if tensor._extra is None:
            tensor._extra = Extra()
        tensor._extra.last_relayout = next(numbers)
    if STATE.mode & GRAD:
        tensor._edge, tensor._requires = value._edge, value._requires
    for tape in STATE.tapes:
        tape.rebind(tensor, value)
    return tensor


def resize(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give a tensor another shape, in its own memory if that is large enough.

    Elements keep their positions in memory; additional ones are not set. Other tensors on the same
    memory do not change, even if this one gets new memory.
    """
    array = tensor._array
    if array.shape == shape:
        return tensor
    if STATE.mode & GRAD and tensor.requires_grad:
        raise RuntimeError("a tensor that requires gradients cannot be resized; use detach() first")
    for tape in STATE.tapes:
        tape.note_replaced(tensor, "resizing it")
    own(tensor)
    earlier = storage.version(tensor._array)
    tensor._array = _resized(tensor._array, shape)
    storage.note(tensor._array)
    storage.count_from(tensor._array, earlier)
    tensor._view = None
    if tensor._extra is not None:
        tensor._extra.last_relayout = next(numbers)
    for tape in STATE.tapes:
        tape.rebind(tensor, wrap(tensor._array))
    return tensor


def _resized(array: Any, shape: tuple[int, ...]) -> Any:
    count = math.prod(shape)
    owner = storage.owner_of(array)
    if isinstance(array, np.ndarray) and owner.flags.forc and owner.flags.writeable:
        memory = owner.reshape(-1, order="A").view(np.uint8)
        start = xp.address(array) - xp.address(owner) if array.size else 0
        if start + count * array.itemsize <= memory.size:
            return np.ndarray(shape, array.dtype, memory, start)
    fresh = xp.module(array).zeros(count, array.dtype)
    kept = min(count, array.size)
    fresh[:kept] = array.reshape(-1)[:kept]
    return fresh.reshape(shape)


def add_scaled(tensor: Tensor, other: Any, alpha: Any = 1) -> bool:
    """`tensor += alpha * other` straight into memory; returns whether it was possible.

    That is: nothing is recorded, and the operands have one dtype and shape (or `other` is 0-d).
    """
    if STATE.mode or type(alpha) not in (int, float) or not isinstance(other, Tensor):
        return False
    if _same_kind(tensor, (other,)) is None:
        return False
    own(tensor)
    target, terms = tensor._array, other._array
    np.add(target, terms * alpha, out=target)
    storage.note(target)
    return True


def move_towards(tensor: Tensor, other: Any, share: float, factor: float = 1.0) -> bool:
    """`tensor = (1 - share) * tensor + share * (factor * other)`, as `add_scaled`.

    The other tensor may have another shape with as many elements.
    """
    target, terms = tensor._array, other._array
    if STATE.mode or target.__class__ is not np.ndarray or target.dtype != terms.dtype:
        return False
    if terms.__class__ is not np.ndarray or target.size != terms.size or not target.flags.forc:
        return False
    if not numeric.is_numpy_float(target.dtype) or target.dtype.itemsize < 4:
        return False
    check_writable(tensor, "the move")
    own(tensor)
    target = tensor._array
    terms = terms.reshape(target.shape)
    if factor != 1.0:
        terms = terms * factor
    np.multiply(target, 1.0 - share, out=target)
    np.add(target, terms * share, out=target)
    storage.note(target)
    return True


def _same_kind(tensor: Tensor, others: tuple[Any, ...]) -> list[Any] | None:
    """Raw operands that can be combined straight into the tensor's memory, or None."""
    array = tensor._array
    if not numeric.is_numpy_float(array.dtype) or array.dtype.itemsize < 4:
        return None
    raw = []
    for x in others:
        if isinstance(x, Tensor):
            b = x._array
            if type(b) is not type(array) or b.dtype != array.dtype:
                return None
            if b.shape != array.shape and b.ndim:
                return None
            raw.append(b)
        elif type(x) in (int, float):
            raw.append(x)
        else:
            return None
    return raw


def is_plain(tensor: Tensor, *others: Tensor) -> bool:
    """Whether a change of a tensor in memory needs no recording: by no tape and in no history."""
    if STATE.mode & ~GRAD or any(type(t._array) is not np.ndarray for t in (tensor, *others)):
        return False
    whole = tensor if tensor._view is None else tensor._view[0]
    return not STATE.mode or not any(t.requires_grad for t in (tensor, whole, *others))


def _is_untracked(*operands: Any) -> bool:
    """Whether no tensor among the operands requires gradients or is a view."""
    for x in operands:
        if isinstance(x, Tensor) and (x._requires or x._view is not None):
            return False
    return True


def _small_integers(array: Any, others: tuple[Any, ...]) -> list[Any] | None:
    """The other operands if they are small Python integers beside int64, as in counters."""
    if array.dtype != np.int64 or any(type(x) is not int or abs(x) >= 1 << 31 for x in others):
        return None
    return list(others)


def assign(
    tensor: Tensor,
    value: Tensor,
    what: str,
    since: float = math.inf,
    given: bool = False,
    whole: bool = True,
) -> Tensor:
    """Give `tensor` the value (and the history) of `value`; the tensor keeps its own memory.

    `since` is a sequence number from before the first operation that computed `value` for this
    call. With `given` no operation computed it: it is the user's tensor, with its own gradients and
    hooks. `whole` is passed to `check_writable`: False if all elements get one value.
    """
    mode = check_writable(tensor, what, whole)
    if mode & TRANSFORM and _is_wrapped(tensor, value):
        return STATE.levels[-1].assign(tensor, value, what, since, given)  # type: ignore[no-any-return]
    own(tensor)
    value = _fitting(tensor, value, what)
    if value._view is not None:
        refresh(value)  # another view of its memory may have changed it
    if tensor._view is not None and value._requires and mode & GRAD:
        check_derivable(tensor._view, f"{what} would change")
    # A capture identifies values by number; a tape that differentiates needs an edge to the value.
    on_watching_tape = mode & TAPE and any(tape.watches for tape in STATE.tapes)
    is_leaf = value._edge is None and (value._requires or on_watching_tape)
    if mode & GRAD and (is_leaf or (given and value._edge is not None)):
        value = bind(PRIMITIVES["clone"], (value,))  # gives an edge to the value
    target = tensor._array
    if value._edge is not None:
        _keep_old_values(value._edge, target, since)
    if storage.owner_of(value._array) is storage.owner_of(target):
        target[...] = value._array.copy()
    else:
        target[...] = value._array
    storage.note(target)
    if mode & (GRAD | TAPE):
        rebind(tensor, value)
    return tensor


def _is_wrapped(*operands: Any) -> bool:
    return any(isinstance(x, Wrapped) for x in operands)


def _fitting(tensor: Tensor, value: Tensor, what: str) -> Tensor:
    """`value` in the tensor's dtype and shape, or an error before anything changes."""
    target = tensor._array
    # A 0-d value may come from another device.
    if not value._array.ndim and value._array.__class__ is not target.__class__:
        value = value.to(tensor.device)
    if value._array.dtype != target.dtype:
        if value.dtype.category > tensor.dtype.category:
            raise RuntimeError(
                f"{what}: a result of type {value.dtype} cannot be put into a {tensor.dtype} tensor"
            )
        value = value.to(tensor.dtype)
    if value._array.shape != target.shape:
        try:
            fits = np.broadcast_shapes(value._array.shape, target.shape) == target.shape
        except ValueError:
            fits = False
        if not fits:
            raise RuntimeError(
                f"{what}: a value of shape {tuple(value.shape)} does not fit into a tensor of "
                f"shape {tuple(tensor.shape)}"
            )
        value = value.expand(target.shape)
    return value


def _keep_old_values(edge: Any, target: Any, since: float) -> None:
    """Replace saved values that share memory with `target`, which is overwritten next, by copies.

    This covers the operation that made the new value, and those before it newer than `since`.
    """
    owner = storage.owner_of(target)
    copies: dict[int, Any] = {}

    def kept(value: Any, entry: Entry) -> Any:
        if isinstance(value, Wrapped):
            if storage.owner_of(value._array) is not owner:
                return value
            if storage.changed_since(value._array, entry.number) is not None:
                return value
            return copies.setdefault(id(value), bind(PRIMITIVES["clone"], (value,)).stripped())
        if not hasattr(value, "nbytes") or storage.owner_of(value) is not owner:
            return value
        if storage.changed_since(value, entry.number) is not None:
            return value  # already stale: backward must detect it
        return copies.setdefault(id(value), value.copy())

    stack, seen = [edge], set()
    while stack:
        edge = stack.pop()
        entry = edge.entry if isinstance(edge, Output) else edge
        if isinstance(entry, Entry) and entry.number not in seen:
            seen.add(entry.number)
            if type(entry.saved) is tuple:
                entry.saved = tuple(kept(value, entry) for value in entry.saved)
            stack += [e for e in entry.edges if _number_of(e) > since]


def _number_of(edge: Any) -> float:
    entry = edge.entry if isinstance(edge, Output) else edge
    return entry.number if isinstance(entry, Entry) else -math.inf


def rebind(tensor: Tensor, value: Tensor) -> None:
    """Point the history of `tensor`, and of its base if it is a view, at the new value."""
    for tape in STATE.tapes:
        tape.will_rebind(tensor, value)
    # Without recording the history stays: a parameter updated under no_grad is still a leaf.
    recording = STATE.mode & GRAD
    if tensor._view is None and (value._requires or not tensor._requires or not recording):
        if recording:
            set_history(tensor, value._edge, value._requires)
        for tape in STATE.tapes:
            tape.rebind(tensor, value)
        return
    # A tensor filled with constants still requires gradients, which are zero: an empty chain.
    base, chain, _ = tensor._view or (tensor, (), 0)
    if value._requires or base._requires or STATE.mode & TAPE:
        result = wrap(base._array)
        old = _snapshot(base)
        arrays = [base._array, value._array]
        params = {"chain": chain}
        record(WRITE, params, (old, value), arrays, (base._array,), (result,), STATE.mode)
        if recording:
            set_history(base, result._edge, result._requires)
        for tape in STATE.tapes:
            tape.rebind(base, result)
    if tensor is not base:
        refresh(tensor)


def _snapshot(base: Tensor) -> Tensor:
    """The base as it was before the write; for a base without history a separate tensor, so that
    its new history does not lead back to itself."""
    if base._edge is not None or base._requires:
        return base
    old = wrap(base._array)
    for tape in STATE.tapes:
        tape.values[old.id] = tape.value_of(base).number
    return old


# -- the primitive -----------------------------------------------------------------------------


def through(chain: Chain, x: Any) -> Any:
    """Apply a view's movements to `x`."""
    for primitive, params in chain:
        x = primitive(x, **params)
    return x


def _write_kernel(base: Any, value: Any, *, chain: Chain) -> Any:
    out = base.copy()
    view = through(chain, out)
    if isinstance(view, np.ndarray) and not view.flags.writeable:
        view = storage.writable(view)
    if storage.owner_of(view) is storage.owner_of(out):
        view[...] = value
    else:
        # In this memory order the movements copy: apply them to the positions of the elements.
        positions = xp.module(out).arange(out.size).reshape(out.shape)
        out.reshape(-1)[through(chain, positions)] = value
    return out


def _write_in_loops(b: Any, out: Any, base: Any, value: Any, *, chain: Chain) -> None:
    b.copy(out, base)
    b.copy(through(chain, out), value)


WRITE: Primitive = define(
    "write",
    _write_kernel,
    kind=MOVEMENT,
    lower=_write_in_loops,
    batch=batch_rules.write,
    vjp=(
        lambda g, chain: WRITE(g, 0.0, chain=chain),
        lambda g, chain: through(chain, g),
    ),
)
