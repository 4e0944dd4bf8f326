"""References: where plain values are stored, which values are atoms, and when two are equal.

A `Reference` reads and writes an entry of a dictionary, an item of a list, an attribute or a cell.
A `Mark` is one step of the walk. Made by `walk.py` and `reach.py`, read by `world.py` and
`trace/effects.py`.
"""

from __future__ import annotations

import enum
import re
import threading
import types
from collections import deque
from collections.abc import Callable
from operator import getitem
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.device import device
from ...core.tensor import Size

#: types whose values are compared by type and equality; subclasses may have attributes
_EXACT = {
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...)),
    *(type(NotImplemented), dtypes.DType, device, Size, types.CodeType),
}
_KINDS = (np.dtype, np.generic, re.Pattern, dtypes.DType, device)
#: modules of Python whose objects are values too: dates, paths, fractions
_VALUES = {"decimal", "_decimal", "fractions", "datetime", "pathlib", "uuid"}
#: the standard attributes of enum members; members with others are not atoms
_OF_ENUM = {"_value_", "_name_", "__objclass__", "_sort_order_"}


def is_atom(value: Any) -> bool:
    """Whether a value cannot change and is compared by type and equality."""
    kind = type(value)
    if kind in _EXACT or (kind.__module__ in _VALUES and kind.__name__ != "Context"):
        return True
    if issubclass(kind, _KINDS):
        return not issubclass(kind, np.void)  # its fields can be set
    if not issubclass(kind, enum.Enum):
        return False
    return value.__dict__.keys() <= _OF_ENUM and is_atom(value._value_)


class _Missing:
    """The type of `MISSING`, which a reference reads where nothing is stored."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()


def dict_item(owner: Any, key: Any) -> Any:
    """`owner[key]`, without calling methods of a subclass such as `__missing__`."""
    value = dict.get(owner, key, MISSING)
    if value is MISSING:
        raise KeyError(key)
    return value


def items_of(value: Any) -> list[Any]:
    """The items of a list, tuple, deque or set, without calling methods of a subclass."""
    kind = type(value)
    base = next(b for b in (list, tuple, deque, set, frozenset) if issubclass(kind, b))
    return [*base.__iter__(value)]


class Reference:
    """Where a value is stored: reads the current value, and stores another one."""

    __slots__ = ("get", "key", "owner")

    def __init__(self, owner: Any, key: Any, get: Callable[[Any, Any], Any]) -> None:
        self.owner = owner
        self.key = key
        self.get = get

    def is_stored(self) -> bool:
        """Whether the value is stored here, so that another one may replace it."""
        return self.get is not itself and self.get is not call_it and self.get is not context_value

    def read(self) -> Any:
        """The value stored here now; `MISSING` if there is none."""
        try:
            return self.get(self.owner, self.key)
        except (KeyError, IndexError, AttributeError, ValueError):
            return MISSING

    def write(self, value: Any) -> None:
        """Store a value, in dictionaries and slots without calling methods of the owner."""
        if value is MISSING:
            self._delete()
        elif self.get is dict_item:
            dict.__setitem__(self.owner, self.key, value)
        elif self.get is getitem:
            self.owner[self.key] = value
        elif self.get is slot_value:
            self.key.__set__(self.owner, value)
        else:
            setattr(self.owner, self.key, value)

    def _delete(self) -> None:
        if self.get is dict_item:
            dict.pop(self.owner, self.key, None)
        elif self.get is getitem:
            del self.owner[self.key]
        elif self.get is slot_value:
            self.key.__delete__(self.owner)
        else:
            delattr(self.owner, self.key)


def class_item(kind: type, name: str) -> Any:
    return kind.__dict__[name]


def slot_value(owner: Any, member: Any) -> Any:
    return member.__get__(owner)


def instance_dict(value: Any) -> dict[str, Any] | None:
    """An object's attribute dictionary, without calling methods or properties of its class."""
    if issubclass(type(value), threading.local):
        own: dict[str, Any] = threading.local.__getattribute__(value, "__dict__")
        return own  # that of this thread
    for base in type(value).__mro__:
        found = base.__dict__.get("__dict__")
        if isinstance(found, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            entries = found.__get__(value)
            return entries if type(entries) is dict else None
    return None


def itself(owner: Any, key: Any) -> Any:
    return owner


def call_it(owner: Any, key: Any) -> Any:
    return owner()


def context_value(owner: Any, key: Any) -> Any:
    return owner.get(MISSING)


class Mark:
    """One step of a walk: the value that was found, and where."""

    __slots__ = ("detail", "kind", "parent", "raw", "reference", "step", "value")

    def __init__(
        self,
        kind: str,
        value: Any,
        detail: Any,
        parent: int,
        step: str,
        reference: Reference,
        raw: Any,
    ) -> None:
        self.kind = kind
        self.value = value  # compared as `kind` says
        self.detail = detail
        self.raw = raw  # the value that was found
        self.parent = parent
        self.step = step
        self.reference = reference


def same_atom(a: Any, b: Any) -> bool:
    """Equality that distinguishes 1, 1.0 and True, also 0.0 and -0.0; NaN equals itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, complex, np.inexact)):
        return repr(a) == repr(b)
    return bool(a == b)
