"""Saved-tensor hooks: what an entry saves passes through a pair of functions of the user.

Comes in: an entry that was just written. Goes out: the same entry, whose saved arrays are handles
of what the pack hook returned. Called by `primitive.py` and `autograd/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .modes import HOOKS, LISTENING, STATE, switched
from .storage import version
from .tape import Entry, Handle, Packed
from .tensor import wrap

if TYPE_CHECKING:
    from .tensor import Tensor


def pack(entry: Entry) -> None:
    """Hand the saved arrays to the innermost pair of saved-tensor hooks."""
    with switched(off=HOOKS | LISTENING):  # neither hook nor log what a hook computes
        entry.saved = Packed(tuple([_packed(v, *STATE.saved_hooks[-1]) for v in entry.saved]))


def _packed(value: Any, hook: Callable[..., Any], unpack: Callable[..., Any]) -> Any:
    if isinstance(value, list):
        return [_packed(item, hook, unpack) for item in value]
    if not hasattr(value, "nbytes"):
        return value
    return Handle(hooked(hook, wrap(value)), unpack)


def hooked(hook: Callable[..., Any], tensor: Tensor) -> Any:
    """The result of a pack hook for a saved tensor, which the hook must not change."""
    before = version(tensor._array)
    packed = hook(tensor)
    if version(tensor._array) != before:
        raise RuntimeError(
            "a pack hook changed the tensor that it got; saved tensors must keep their values: "
            "return a changed copy"
        )
    return packed
