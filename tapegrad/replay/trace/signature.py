"""Signatures: what is compared about the arguments of a call.

Comes in: the arguments. Goes out: a key, equal for calls that are alike, and the tensors in the
arguments. The key has the facts of tensors (`guards/facts.py`), the type and value of plain values,
the items of containers and of records of tensors. Of any other object it has the type alone;
`guards/world.py` looks into it. Called by `use/compiled.py` and `use/variant.py`.
"""

from __future__ import annotations

import dataclasses
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import casting, dtypes
from ...core.arrays import has_memory, is_gpu_class
from ...core.device import device_of
from ...core.modes import STATE
from ...core.switches import switches
from ...core.tensor import Tensor, refresh
from ...core.tree import map_leaves
from ..guards.conjunction import Conjunction
from ..guards.facts import facts_of, overlaps
from ..guards.references import instance_dict
from .log import NO_MEMORY
from .recording import Found, FromArguments, Plain
from .residence import several_devices

_PLAIN_TYPES = {bool, int, float, complex, str, bytes, type(None), dtypes.DType}
PLAIN = (bool, int, float, complex, str, bytes, type(None), dtypes.DType)
#: most attributes of a record of tensors
MOST_ATTRIBUTES = 64
#: most arguments for `likeness`, which compares each with each
MOST_COMPARED = 4


class Arguments:
    """The arguments of one call, flattened."""

    __slots__ = ("containers", "key", "objects", "parts", "tensors")

    def __init__(self, first: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any) -> None:
        #: in order of appearance: tensors, other objects, containers that a call may change
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        self.containers: list[Any] = []
        #: the objects that were flattened: lists, tuples, dicts, records
        self.parts: list[Any] = []
        parts: list[Any] = [first]
        for value in args:
            plain = value.__class__ is Tensor and value._view is None and value._extra is None
            if plain and not value.__dict__:
                self.tensors.append(value)
                parts.append(facts_of(value))
            else:
                self._describe(value, parts)
        if kwargs:
            for name in kwargs:
                parts.append(name)
                self._describe(kwargs[name], parts)
        if len(self.tensors) > 1:
            parts.append(aliasing_of(self.tensors))
        if len(self.parts) + len(self.objects) > 1:
            ids = [id(x) for x in (*self.parts, *self.objects)]
            if len(set(ids)) < len(ids):
                parts.append(tuple([ids.index(i) for i in ids]))
        self.key = tuple(parts)

    @classmethod
    def of_tensors(cls, args: tuple[Any, ...], key: Any) -> Arguments:
        """The arguments of a call that a test of `likeness` has found to have this key."""
        call = cls.__new__(cls)
        call.tensors = [*args]
        call.objects, call.containers, call.parts = [], [], []
        call.key = key
        return call

    def obstacle(self) -> str | None:
        """Why a call cannot be recorded on the devices of its tensors; None if it can."""
        arrays = [t._array for t in self.tensors]
        if not all(isinstance(a, np.ndarray) or is_gpu_class(type(a)) for a in arrays):
            return NO_MEMORY
        # Numbers may be on the CPU beside tensors on a GPU.
        found = {device_of(a) for a in arrays if a.ndim}
        return several_devices(found) if len(found) > 1 else None

    def known(self, world: Any) -> Callable[[Any], Any]:
        """A function that gives the stand-in of an object from outside in results; None if new."""

        def find(value: Any) -> Any:
            for i, found in enumerate(self.parts):
                if found is value:
                    return FromArguments(True, i)
            for i, found in enumerate(self.objects):
                if found is value:
                    return FromArguments(False, i)
            mark = None if world is None else world.mark_of(value)
            if mark is None:
                return None
            return Found(mark) if mark.reference.is_stored() else Plain(value)

        return find

    def _describe(self, value: Any, parts: list[Any]) -> None:
        """Append the parts of the key for one value."""
        kind = type(value)
        if issubclass(kind, Tensor):
            self.tensors.append(value)
            if value._view is not None:
                refresh(value)
            parts.append(facts_of(value))
            extra = value._extra
            if (extra is not None and (extra.hooks or extra.post_hooks)) or instance_dict(value):
                parts.append("with attributes or hooks")
                self.objects.append(value)
            entries = instance_dict(value)
            if entries is not None:
                self.containers.append(entries)
        elif kind in _PLAIN_TYPES:
            parts.append(kind)
            # 0.0 and -0.0 are equal, and NaN is not equal to itself.
            inexact = isinstance(value, (float, complex)) and (value == 0 or value != value)
            parts.append(repr(value) if inexact else value)
        elif issubclass(kind, (list, tuple)):
            self.parts.append(value)
            items = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
            if issubclass(kind, list):
                self.containers.append(value)
            at = len(parts)
            parts.append(kind)
            count = 0
            for item in items:
                self._describe(item, parts)
                count += 1
            parts[at] = (kind, count)
            self._describe_rest(value, parts)
        elif issubclass(kind, dict) and not _is_namespace(value):
            self.parts.append(value)
            self.containers.append(value)
            parts.append((kind, len(value)))
            for name in dict.keys(value):
                self._describe(name, parts)
                self._describe(dict.__getitem__(value, name), parts)
            self._describe_rest(value, parts)
        elif _is_record(value):
            self.parts.append(value)
            entries = instance_dict(value)
            assert entries is not None
            self.containers.append(entries)
            parts.append((kind, len(entries)))
            for name, item in entries.items():
                parts.append(name)
                self._describe(item, parts)
            self.objects.append(kind)
        else:
            self.objects.append(value)
            parts.append(kind)

    def _describe_rest(self, value: Any, parts: list[Any]) -> None:
        """Append what instances of derived container classes have besides items."""
        kind = type(value)
        if kind in (list, tuple, dict):
            return
        self.objects.append(kind)
        if issubclass(kind, defaultdict):
            self.objects.append(value.default_factory)
        entries = instance_dict(value)
        if entries is not None:
            self.containers.append(entries)
            for name, item in entries.items():
                parts.append(name)
                self._describe(item, parts)


def likeness(args: tuple[Any, ...], kwargs: Any) -> Callable[[tuple[Any, ...]], bool]:
    """A test of a call without keywords: True only if it has the same key as these arguments.

    Training steps are called with a few tensors that are alike each time. Comparing their facts in
    place takes half as long as collecting them in a key. The test is `unlike` unless the arguments
    are a few tensors that each own their memory.
    """
    few = not kwargs and 0 < len(args) <= MOST_COMPARED and STATE.autocast is None
    plain = all(type(t) is Tensor and t._view is None and t._extra is None for t in args)
    plain = plain and not any(t.__dict__ for t in args)
    if not few or not plain or not _is_apart(list(args)):
        return unlike
    tests = Conjunction()
    state, kind = tests.name(STATE), tests.name(Tensor)
    tests.add(f"{state}.mode == {STATE.mode}")
    tests.add(f"{state}.autocast is None")
    tests.add(f"{tests.name(casting.allowed)}() is {casting.allowed()}")
    tests.add_is(f"{tests.name(dtypes.get_default_dtype)}()", dtypes.get_default_dtype())
    tests.add(f"{tests.name(switches)}.values == {switches.values}")
    tests.add(f"len(args) == {len(args)}")
    owners: list[str] = []
    for i, tensor in enumerate(args):
        array = tensor._array
        library = tests.name(type(array))
        tests.add(f"(t{i} := args[{i}]).__class__ is {kind}")
        tests.add(f"t{i}._view is None")
        tests.add(f"t{i}._extra is None")
        tests.add(f"not t{i}.__dict__")
        tests.add_is(f"t{i}._requires", tensor._requires)
        if tensor._requires:
            tests.add(f"t{i}._edge is {'' if tensor._edge is None else 'not '}None")
        tests.add(f"(a{i} := t{i}._array).__class__ is {library}")
        tests.add_is(f"a{i}.dtype", array.dtype)
        tests.add(f"a{i}.shape == {array.shape}")
        tests.add(f"a{i}.strides == {array.strides}")
        if type(array) is np.ndarray:
            tests.add(f"a{i}.flags.writeable is {array.flags.writeable}")
        else:
            tests.add(f"a{i}.device.id == {device_of(array).index}")
        owner = f"a{i}"
        if array.base is not None:
            tests.add(f"(b{i} := a{i}.base).__class__ is {library}")
            owner = f"b{i}"
        tests.add(f"{owner}.base is None")
        for other in owners:
            tests.add(f"{owner} is not {other}")
        owners.append(owner)
    return tests.function("args")


def unlike(args: tuple[Any, ...]) -> bool:
    """The test that always fails: the key must be made and compared."""
    return False


def aliasing_of(tensors: list[Tensor]) -> Any:
    """Which tensors are the same object, and which share memory."""
    if _is_apart(tensors):
        return (), ()
    ids = [t.id for t in tensors]
    same = () if len(set(ids)) == len(ids) else tuple([ids.index(i) for i in ids])
    arrays = [t._array for t in tensors]
    if not all(map(has_memory, arrays)):
        return same
    return same, overlaps(arrays)


def _is_apart(tensors: list[Tensor]) -> bool:
    """A quick test whether each tensor owns its memory; False if it cannot tell."""
    owners = set()
    for tensor in tensors:
        array = tensor._array
        kind = array.__class__
        if kind is not np.ndarray and not is_gpu_class(kind):
            return False
        base = array.base
        if base is None:
            owners.add(id(array))
        elif base.__class__ is kind and base.base is None:
            owners.add(id(base))  # as in tensors of `from_numpy`
        else:
            return False
    return len(owners) == len(tensors)


def _is_namespace(value: dict[Any, Any]) -> bool:
    return "__builtins__" in value or len(value) > 1000


def _is_record(value: Any) -> bool:
    """Whether an object is a record of tensors, such as a batch: it has data and no behaviour."""
    kind = type(value)
    entries = None if issubclass(kind, type) else instance_dict(value)
    if entries is None or not 0 < len(entries) <= MOST_ATTRIBUTES:
        return False
    if not (dataclasses.is_dataclass(kind) or kind is types.SimpleNamespace):
        plain = (Tensor, *PLAIN)
        called = any("__call__" in base.__dict__ for base in kind.__mro__)
        if called or not all(isinstance(v, plain) for v in entries.values()):
            return False
    return any(isinstance(v, Tensor) for v in entries.values())


def shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The arguments of a call as short text."""

    def show(x: Any) -> str:
        if isinstance(x, Tensor):
            return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
        return repr(x) if isinstance(x, PLAIN) else type(x).__name__

    shown = [str(_plainly(a, show)) for a in args]
    return f"({', '.join(shown + [f'{k}={_plainly(v, show)}' for k, v in kwargs.items()])})"


def _plainly(value: Any, show: Any) -> Any:
    return map_leaves(show, value) if type(value) in (list, tuple, dict) else show(value)
