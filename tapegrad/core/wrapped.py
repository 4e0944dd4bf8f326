"""Tensors wrapped by a transform: one example of a batch, or a value with its tangent.

`vmap` and forward mode pass wrapped tensors to a function. A `Batched` tensor looks like one
example: it has the shape of an example, and its value holds the whole batch, with the batch as the
first dimension. A `Dual` tensor looks like its value and also holds a tangent. `transforms/` makes
them and runs primitives on them; `bind` passes primitives there while the mode `TRANSFORM` is on,
so tensors pay nothing elsewhere. A wrapped tensor has its own history, for gradients taken inside
the transform; its value has another one, for gradients taken outside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .ghost import Ghost, refusal
from .modes import STATE, TRANSFORM, numbers
from .overriding import disabled_torch_function
from .primitive import PRIMITIVES
from .tensor import Extra, Tensor

_new = object.__new__


class Wrapping(Extra):
    """The `Extra` of a wrapped tensor: its level, its value, and the tangent of a `Dual`."""

    __slots__ = ("lent", "level", "tangent", "value")

    def __init__(self, level: Any, value: Tensor, tangent: Tensor | None = None) -> None:
        super().__init__()
        self.level = level
        self.value = value
        self.tangent = tangent
        #: the tangent shares memory with another tensor's, so it is copied before a write
        self.lent = False


class Wrapped(Tensor):
    """A tensor of a transform. The wrapped value is in `_extra`, so that the class can change."""

    __slots__ = ()
    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    _extra: Wrapping
    _on_tapes = False

    def stripped(self) -> Any:
        """The same value without its history inside the transform."""
        made = self._extra
        return _wrapped(self.__class__, self._array, made.level, made.value, made.tangent)

    def refuse_read(self, what: str) -> None:
        """Called before values are read; an error for `Batched`, which stands for many values."""

    def detach(self) -> Tensor:
        """A tensor that shares this one's memory and has no history, inside or outside."""
        made = self._extra
        return _wrapped(self.__class__, self._array, made.level, made.value.detach())  # type: ignore[no-any-return]

    def detach_(self) -> Tensor:
        """Cut this tensor from its history, inside and outside, in place."""
        super().detach_()
        made = self._extra
        made.value = made.value.detach()
        if made.tangent is not None:
            # Zeros instead of None, because views of this tensor take their tangents from here.
            zeros = PRIMITIVES["zeros_as"](made.tangent, shape=tuple(made.tangent.shape))
            made.tangent, made.lent = zeros, False
        return self


class Batched(Wrapped):
    """One example of a batch, which stands for all of them."""

    __slots__ = ()

    def item(self) -> Any:
        raise RuntimeError(
            "vmap: item() would have one number for each example; compute with tensors instead, "
            "or call item() outside of vmap"
        )

    def __bool__(self) -> bool:
        raise RuntimeError(
            "vmap: a condition has one answer for each example, so Python cannot branch on it; "
            "use where() to choose between values"
        )

    def refuse_read(self, what: str) -> None:
        raise refusal(what)

    def tolist(self) -> Any:
        raise refusal("tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        raise refusal("numpy()")

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise refusal("__dlpack__()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise refusal("pickling")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        raise refusal("deepcopy()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        made = self._extra
        text = repr(made.value).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={made.level.depth}, bdim=0, value=\n    {text}\n)"


class Dual(Wrapped):
    """A value and its derivative along a direction."""

    __slots__ = ()

    def detach(self) -> Tensor:
        """The value without history, and without a tangent."""
        return self._extra.value.detach()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        tangent = self._extra.tangent
        text = super().__repr__()
        return f"{text[:-1]}, tangent={tangent!r})" if self._extra.level.alive else text


def _wrapped(
    kind: type[Any], array: Any, level: Any, value: Tensor, tangent: Tensor | None = None
) -> Any:
    made = _new(kind)
    made._array = array
    made._edge = made._grad = made._view = None
    made._requires = False
    made._extra = Wrapping(level, value, tangent)
    made.id = next(numbers)
    return made


def ghost_of(value: Tensor) -> Any:
    """The array of a batched tensor: the first example, or an empty one of that shape."""
    array = value._array
    shown = array[0, ...] if array.shape[0] else np.empty(array.shape[1:], array.dtype)
    ghost = shown.view(Ghost)
    ghost.flags.writeable = False
    return ghost


def batched(value: Tensor, level: Any) -> Any:
    """One example of `value`, whose first dimension is the batch."""
    return _wrapped(Batched, ghost_of(value), level, value)


def dual(value: Tensor, tangent: Tensor, level: Any) -> Any:
    """`value` with a tangent."""
    return _wrapped(Dual, value._array, level, value, tangent)


def is_wrapped(x: Any) -> bool:
    """Whether a running transform has wrapped `x`."""
    return bool(STATE.mode & TRANSFORM) and isinstance(x, Wrapped)


def whole_of(x: Tensor) -> Tensor:
    """The innermost value: all examples of all batches, without tangents."""
    while isinstance(x, Wrapped):
        x = x._extra.value
    return x


def cut_off(x: Any) -> Any:
    """The same tensor, with its tangents, but without history on any level."""
    if isinstance(x, Wrapped):
        made = x._extra
        tangent = None if made.tangent is None else cut_off(made.tangent)
        return _wrapped(x.__class__, x._array, made.level, cut_off(made.value), tangent)
    return x.detach() if isinstance(x, Tensor) and x._requires else x


def requires_somewhere(x: Any) -> bool:
    """Whether a gradient flows through a tensor, inside or outside of transforms."""
    while isinstance(x, Wrapped):
        if x._requires or requires_somewhere(x._extra.tangent):
            return True
        x = x._extra.value
    return isinstance(x, Tensor) and x._requires
