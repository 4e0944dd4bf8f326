"""Explicit forward mode, as in `torch.autograd.forward_ad`.

    with dual_level():
        out = function(make_dual(x, direction))
        value, tangent = unpack_dual(out)

Inside of a level, tensors may carry a tangent, and operations pass it on (`transforms/forward.py`).
`tapegrad.func.jvp` does this for a function.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import numeric
from ..core.modes import STATE
from ..core.primitive import PRIMITIVES
from ..core.tensor import Tensor
from ..core.wrapped import Dual, dual
from ..transforms.forward import DualLevel
from .engine import copy_of


class UnpackedDualTensor(NamedTuple):
    """A value, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


class _Open(threading.local):
    """The level that a thread has entered, and the context that leaves it."""

    level: HandLevel | None = None
    context: Any = None


class HandLevel(DualLevel):
    """A level that the user entered by hand. Nested ones look like one level to the user."""

    is_function = False

    def __init__(self, hand: HandLevel | None = None) -> None:
        super().__init__(strict=False)
        self.hand = hand or self


_OPEN = _Open()


def enter_dual_level() -> int:
    """Let tensors carry tangents from now on; returns the number of the level, 0."""
    if _OPEN.level is not None:
        raise RuntimeError(
            "a dual level is open already, and these levels do not nest; use tapegrad.func.jvp, "
            "which does"
        )
    _OPEN.level = HandLevel()
    _OPEN.context = _OPEN.level.entered()
    _OPEN.context.__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level: tensors lose their tangents."""
    if _OPEN.level is None or level not in (None, 0):
        raise RuntimeError(
            "dual levels must be left in the order opposite to that in which they were entered"
        )
    _OPEN.level.alive = False
    _OPEN.context.__exit__()
    _OPEN.level = _OPEN.context = None


class dual_level:
    """Inside, tensors may carry tangents.

    >>> import tapegrad
    >>> from tapegrad.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(tapegrad.tensor(3.0), tapegrad.tensor(1.0))
    ...     forward_ad.unpack_dual(x * x).tangent
    tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A new tensor on the memory of `tensor`, with a tangent."""
    if _OPEN.level is None:
        raise RuntimeError(
            "make_dual needs an open level: call it inside of `with dual_level():`, or after "
            "enter_dual_level()"
        )
    for what, part in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(part, Tensor) or not numeric.is_differentiable(part._array.dtype):
            shown = part.dtype if isinstance(part, Tensor) else type(part).__name__
            raise ValueError(f"{what} must have a floating or complex dtype, got {shown}")
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            f"a tangent has the shape of its tensor: expected {tuple(tensor.shape)}, got "
            f"{tuple(tangent.shape)}"
        )
    if isinstance(tangent, Dual) and _hand_of(tangent) is _OPEN.level:
        raise RuntimeError(
            "this tangent has a tangent of its own in the open level; detach it with "
            "unpack_dual() first"
        )
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"Expected tangent to have the same dtype as the primal, {tensor.dtype}, but got "
            f"{tangent.dtype}"
        )
    if isinstance(tensor, Dual) and _hand_of(tensor) is _OPEN.level:
        tensor = tensor._extra.value
    made: Tensor = dual(tensor, tangent, _level())
    if tensor.requires_grad:
        made._edge = tensor._edge or copy_of(tensor, None)
        made._requires = True
    return made


def _level() -> HandLevel:
    """The current level entered by hand; inside a later transform, a new innermost one is added."""
    hand = _OPEN.level
    assert hand is not None
    top = STATE.levels[-1]
    if isinstance(top, HandLevel) and top.hand is hand:
        return top
    inner = HandLevel(hand)
    STATE.levels = (*STATE.levels, inner)  # until the transform ends
    return inner


def _hand_of(x: Dual) -> Any:
    return getattr(x._extra.level, "hand", None)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor and its tangent; None if it has none or no level is open."""
    hand = _OPEN.level
    if hand is not None and isinstance(tensor, Dual) and _hand_of(tensor) is hand:
        value: Tensor = PRIMITIVES["reshape"](tensor._extra.value, shape=tuple(tensor.shape))
        return UnpackedDualTensor(value, tensor._extra.level.tangent_of(tensor))
    return UnpackedDualTensor(tensor, None)


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

if not TYPE_CHECKING:  # hidden from type checkers, which report missing names themselves

    def __getattr__(name: str) -> object:
        if name == "_current_level":
            return -1 if _OPEN.level is None else 0
        from ..core.missing import missing

        raise missing(__name__, name, __all__)
