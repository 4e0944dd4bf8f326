"""Signatures: what decides whether a call is like an earlier one.

Arguments count by shape, dtype and layout; plain values among them, and those that the function's
code names (see `names.py`), by value; everything else by identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor, refresh
from ..tree import map_leaves

if TYPE_CHECKING:
    from .repeat import Replay

PLAIN = (bool, int, float, complex, str, bytes, type(None), dtypes.DType)


class Signature:
    """What is known of one signature."""

    def __init__(self, shown: str, objects: list[Any]) -> None:
        self.shown = shown
        self.objects = objects  # kept, so that their ids are not given to others
        self.replays: list[Replay] = []
        #: recordings that were not confirmed yet, by case
        self.last: dict[Any, Replay] = {}
        self.previous: Replay | None = None
        self.recordings = 0
        self.since_agreement = 0
        self.reasons: list[str] = []
        self.eager: str | None = None
        self.difference: str | None = None


def describe(
    value: Any, parts: list[Any], tensors: list[Tensor] | None, objects: list[Any]
) -> None:
    """Add to a signature what decides about a value.

    Tensors of the arguments are collected in `tensors` and count by shape, dtype and layout; those
    that a function's code names (`tensors` is None) are the function's own and count by identity,
    as do objects of other kinds, which are collected in `objects`.
    """
    if isinstance(value, Tensor):
        if tensors is None:
            parts.append(value.id)
            return
        tensors.append(value)
        if value._view is not None:
            refresh(value)
        array = value._array
        kind = value._requires and (1 if value._edge is None else 2)
        parts.append(
            (array.shape, array.dtype, array.strides, type(value), kind)
            if type(array) is np.ndarray
            else ("device", array.shape, array.dtype)
        )
    elif isinstance(value, PLAIN):
        parts.append(type(value))
        parts.append(value)
    elif isinstance(value, (list, tuple)):
        parts.append((type(value), len(value)))
        for item in value:
            describe(item, parts, tensors, objects)
    elif type(value) is dict and not _is_namespace(value):
        parts.append((dict, len(value)))
        for name, item in value.items():
            describe(name, parts, tensors, objects)
            describe(item, parts, tensors, objects)
    elif isinstance(value, np.ndarray) and tensors is not None:
        raise TypeError(
            "a compiled function got a NumPy array as an argument; make a tensor of it with "
            "tapegrad.from_numpy(...), so that a replay reads its contents"
        )
    else:
        objects.append(value)
        parts.append(id(value))


def _is_namespace(value: dict[Any, Any]) -> bool:
    return "__builtins__" in value or len(value) > 1000


def shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def show(x: Any) -> str:
        if isinstance(x, Tensor):
            return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
        return repr(x) if isinstance(x, PLAIN) else type(x).__name__

    shown = [str(map_leaves(show, a)) for a in args]
    return f"({', '.join(shown + [f'{k}={map_leaves(show, v)}' for k, v in kwargs.items()])})"
