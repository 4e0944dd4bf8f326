"""Histories of views: re-derived from the base after the shared memory was changed in place.

Comes in: a tensor that is a view. Goes out: the same tensor with the history of the value that its
memory holds now, or an error where that is unknown. Called before a tensor is used as an operand,
and by in-place operations (`inplace.py`). The warning about `.grad` of a result is here too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from . import storage
from .modes import GRAD, STATE, TAPE
from .tape import node_of

if TYPE_CHECKING:
    from .tensor import Tensor

#: added to the sequence number in `_view` of a view that was taken without recording: it never gets
#: a history from its base
UNTRACKED = 0.5


def refresh(tensor: Tensor) -> None:
    """Re-derive a view's history from its base if the shared memory was changed meanwhile."""
    assert tensor._view is not None
    base, chain, refreshed_at = tensor._view
    if refreshed_at >= storage.latest:
        return  # no storage was changed since
    change = storage.changed_since(tensor._array, refreshed_at)
    if change is None or not STATE.mode & (GRAD | TAPE):
        return
    if is_untracked(tensor._view) and not STATE.mode & TAPE:
        if tensor._requires and base._requires:
            check_derivable(tensor._view, "somebody has changed")
        tensor._view = (base, chain, change.number + UNTRACKED)
        return
    tapes = STATE.tapes if tensor._on_tapes else ()
    if not base._requires and all(change.number < tape.started for tape in tapes):
        tensor._view = (base, chain, change.number)
        return
    if base._extra is not None and base._extra.last_relayout > refreshed_at:
        raise RuntimeError(
            "this view was taken before its base was rearranged in place (transpose_, squeeze_, "
            "...) and written to, so its history is unknown; take the view again"
        )
    from .primitive import bind

    derived = base
    if not STATE.mode & GRAD:
        # A tape must know the new value; the history is re-derived later, as without a tape.
        for primitive, params in chain:
            derived = bind(primitive, (derived,), params)
        for tape in tapes:
            tape.rebind(tensor, derived)
        return
    untracked = is_untracked(tensor._view)
    if base._requires and (untracked or not is_derivable(chain)):
        if not is_excused(tensor._array, refreshed_at):
            check_derivable(tensor._view, "somebody has changed")
        tensor._view = (base, chain, change.number + (UNTRACKED if untracked else 0))
        return
    tensor._view = (base, chain, change.number)
    for primitive, params in chain:
        derived = bind(primitive, (derived,), params)
    if derived._requires or tensor._edge is not None or not tensor._requires:
        set_history(tensor, derived._edge, derived._requires)  # a leaf stays a leaf
    for tape in tapes:
        tape.rebind(tensor, derived)


def is_derivable(chain: tuple[Any, ...]) -> bool:
    """Whether a chain of movements gives the history of a view from that of its base."""
    return all(primitive.differentiable and not primitive.sibling for primitive, _ in chain)


def is_excused(array: Any, number: float) -> bool:
    """Whether changes since `number` count only because a tape watches what `.data` returned."""
    excused = False
    for tape in STATE.tapes:  # each of them is asked: a capture gives up then
        excused |= tape.excuses(array, number)
    return excused


def is_untracked(view: tuple[Tensor, tuple[Any, ...], float]) -> bool:
    """Whether a view was taken without recording."""
    return view[2].__class__ is float


def check_derivable(view: tuple[Tensor, tuple[Any, ...], float], what: str) -> None:
    """Raise an error if the history of a view cannot be derived from its base.

    That is so if the user's backward defines it, if the view is one of several that one call
    returned, and if the view was taken without recording.
    """
    _, chain, _ = view
    if is_untracked(view):
        raise RuntimeError(
            f"{what} in place a view that was created in no_grad mode or inference mode, with grad "
            "mode enabled, so it is not known whether gradients should flow through it; take the "
            "view where the change is, or make the change inside no_grad too"
        )
    if any(primitive.sibling for primitive, _ in chain):
        raise RuntimeError(
            f"{what} in place one of several views that one call has returned (unbind, split, "
            "chunk); the others would not know of the change: take the part by indexing, or "
            "clone() it"
        )
    if not all(primitive.differentiable for primitive, _ in chain):
        raise RuntimeError(
            f"{what} in place what a view shows that a Function has returned, so that the "
            "Function's backward would no longer be its gradient; return a clone() there, or work "
            "on one"
        )


def set_history(tensor: Tensor, edge: Any, requires: bool) -> None:
    """Set the history of a tensor's current value, and move the hook of `retain_grad` there.

    Other hooks stay: they see the gradient of the value that they were registered on.
    """
    node = node_of(tensor._edge)
    hooks = (node.hooks if node is not None else None) or []
    moved = [hook for _, hook in hooks if getattr(hook, "retains", None) == tensor.id]
    if moved:
        node.hooks = [item for item in hooks if item[1] not in moved] or None
    tensor._edge = edge
    tensor._requires = requires
    if moved and edge is not None:
        tensor._add_entry_hook(moved[0])


def warn_of_missing_grad(tensor: Tensor) -> None:
    """Warn that nothing fills `.grad` of a result that does not retain it."""
    if not tensor._requires or tensor.retains_grad:
        return
    warnings.warn(
        ".grad of the result of an operation is not filled by backward; call retain_grad() on it "
        "before, or read .grad of the leaf that it was made of",
        UserWarning,
        stacklevel=3,
    )
