"""In-place operations on wrapped tensors.

Comes in: a tensor and its new value, one of them wrapped. Goes out: the value in the memory of all
examples, or of a value and its tangent; and the tensor's new history on its own level. Levels below
see an ordinary write to the value. Called by `core/inplace.py`, through the innermost level.
"""

from __future__ import annotations

from typing import Any

from ..core import inplace
from ..core.batch_rules import with_batch
from ..core.histories import set_history
from ..core.modes import GRAD, STATE
from ..core.primitive import PRIMITIVES
from ..core.tensor import Tensor, refresh
from ..core.wrapped import Batched, Dual, Wrapped, Wrapping, ghost_of, whole_of
from .batching import with_batches_of
from .levels import level_of, record_on


def check_leaf(tensor: Tensor, what: str) -> None:
    """Refuse to overwrite a wrapped leaf that requires gradients, as for any other leaf."""
    if not STATE.mode & GRAD:
        return
    root = tensor if tensor._view is None else tensor._view[0]
    if any(t._requires and t._edge is None for t in (tensor, root)):
        raise RuntimeError(
            f"{what} would change a leaf that requires gradients, so its gradient would be lost; "
            "work on a clone()"
        )


def assign(tensor: Tensor, value: Tensor, what: str, since: float, given: bool) -> Tensor:
    """Give a tensor the value and the history of another one; one of them is wrapped."""
    value = inplace._fitting(tensor, value, what)
    level = level_of((tensor, value))
    if not level.has(tensor):
        level.adopt(tensor, what)
    check_leaf(tensor, what)
    if value._view is not None:
        refresh(value)
    inplace._keep_old_values(value._edge, tensor._array, since)
    made: Wrapping = tensor._extra  # type: ignore[assignment]
    new: Any = value
    if isinstance(tensor, Batched):
        whole = new._extra.value if level.has(value) else with_batch(level.value(value), level.size)
        inplace.assign(made.value, whole, what, since, given)
        tensor._array = ghost_of(made.value)
    else:
        assert isinstance(tensor, Dual)
        tangent: Any = level.tangent_of(new)
        inplace.assign(made.value, level.value(value), what, since, given)
        tensor._array = made.value._array
        assert made.tangent is not None
        if tangent is None:
            tangent = PRIMITIVES["zeros_as"](made.tangent, shape=tuple(made.tangent.shape))
        _make_room(tensor, tangent)
        inplace.assign(made.tangent, tangent, what, since, given)
    if STATE.mode & GRAD:
        rebind(level, tensor, value)
    return tensor


def _make_room(tensor: Any, tangent: Tensor) -> None:
    """Allocate a tangent for a tensor and its base, with room for all examples of another one."""
    base = tensor if tensor._view is None else tensor._view[0]
    before = base._extra.tangent
    wide = with_batches_of(before, tangent)
    if wide is not before or base._extra.lent or not whole_of(before)._array.flags.writeable:
        base._extra.tangent = PRIMITIVES["clone"](wide)
        base._extra.lent = False
    if tensor is not base:
        tensor._extra.tangent = inplace.through(tensor._view[1], base._extra.tangent)


def rebind(level: Any, tensor: Tensor, value: Tensor) -> None:
    """Point the history of a tensor on its level, and that of its base, at the new value."""
    if tensor._view is None and (value._requires or not tensor._requires):
        set_history(tensor, value._edge, value._requires)
        return
    base, chain, _ = tensor._view or (tensor, (), 0)
    if value._requires or base._requires:
        result = base.stripped() if isinstance(base, Wrapped) else base.detach()
        record_on(level, inplace.WRITE, {"chain": chain}, (base, value), (result,))
        set_history(base, result._edge, result._requires)
    if tensor is not base:
        refresh(tensor)


def turn(tensor: Any, movement: Any, what: str) -> Tensor:
    """`transpose_` and the like: the wrapped tensor becomes a view of its own memory."""
    moved = movement(tensor)
    tensor._extra = moved._extra
    tensor._array = moved._array
    if tensor._view is not None:
        tensor._view = moved._view
    if STATE.mode & GRAD:
        tensor._edge, tensor._requires = moved._edge, moved._requires
    result: Tensor = tensor
    return result
