"""Reach: the walk over all plain objects that the code of a recording can reach by name.

Comes in: a `Scope`, roots, and the arguments of a call. Goes out: marks in the order of the walk,
what is compared by identity (`comparisons.py`), and copies of containers. This file defines how
each type is visited: containers, functions, arrays, wrappers, weak references, objects. An object
whose state cannot be seen raises `Unguardable`. Called by `world.py`.
"""

from __future__ import annotations

import _thread
import contextvars
import functools
import logging
import random
import types
import weakref
from array import array
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from operator import attrgetter, getitem, itemgetter, methodcaller
from typing import Any

import numpy as np

from ...core.naming import home_of
from ...core.source import LIBRARY
from ...core.tensor import Tensor
from .attributes import AttributeWalk
from .facts import facts_of
from .kinds import (
    CLOSED,
    REFLECTIVE,
    WRAPPERS,
    Unguardable,
    has_user_state,
    is_filled,
    is_opaque,
    is_tensor,
    key_marks,
    lineage,
    logger_state,
    path_of,
    same_items,
    state_of,
    weak_ids,
    weak_items,
)
from .references import (
    MISSING,
    Reference,
    call_it,
    context_value,
    dict_item,
    instance_dict,
    is_atom,
    items_of,
    itself,
)

#: largest NumPy array, in bytes, that is compared before a replay
MOST_BYTES = 1 << 26
#: largest number of items of one container that is compared
MOST_ITEMS = 1 << 20

_DESCRIPTORS = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
_LRU = type(functools.lru_cache(lambda: None))


#: types of values that user classes may inherit from
_NUMBERS = (int, float, complex, str, bytes)
#: types in C whose objects never change
_HARMLESS = {object, itemgetter, type(np.add), type(namedtuple("Pair", "one").__dict__["one"])}
#: the standard attributes of loggers, and the names that lead to their handlers and outputs
_LOGGER = {
    *("name", "level", "parent", "propagate", "handlers", "filters", "disabled", "_cache"),
    *("manager", "root"),
}
_OF_HANDLERS = {"handlers", "filters", "stream"}


class Reach(AttributeWalk):
    """One walk, with a visit for each type."""

    def _visit(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        if is_tensor(value):
            self._tensor(value, parent, step, reference)
            return
        if is_atom(value):
            self._mark("atom", value, None, parent, step, reference)
            return
        found = self.seen.get(id(value))
        if found is not None:
            self._mark("repeated", found, None, parent, step, reference)
            return
        at = len(self.marks)
        self.seen[id(value)] = at
        self._kept.append(value)
        kind = type(value)  # isinstance() would read the object's `__class__`
        for kinds, visit in _VISITS:
            if issubclass(kind, kinds):
                visit(self, value, parent, step, reference)
                return
        self._object(value, parent, step, reference)

    def _tensor(self, tensor: Tensor, parent: int, step: str, reference: Reference) -> None:
        at = self._mark("tensor", tensor, facts_of(tensor), parent, step, reference)
        self.tensors[at] = tensor
        if id(tensor) in self.seen:
            return
        self.seen[id(tensor)] = at
        extra = tensor._extra
        for group in (extra.hooks, extra.post_hooks) if extra is not None else ():
            if group:
                self._hooks(group, at)
        own = instance_dict(tensor)
        if own is not None:
            self.compared.add_names(own)
            self._members(own, at)

    def _hooks(self, group: Mapping[int, Any], parent: int) -> None:
        """Visit the hooks of a tensor; two worlds may have them under different keys."""
        keys = list(group)
        reference = Reference(group, None, itself)
        at = self._mark("list", list, len(keys), parent, ".hooks", reference)
        self.compared.tests.append(lambda: list(group) == keys)
        for key in keys:
            self._queue.append((group[key], at, ".hook", Reference(group, key, dict_item)))

    def _mapping(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        if hasattr(type(value), "_read_anew"):
            # Options of an optimizer: replays reread everything except the tensors.
            at = self._mark("dict", type(value), None, parent, step, reference)
            self._item(value, "params", at, "['params']")
            return
        keys = list(dict.keys(value))
        self._check_size(keys, step, parent)
        at = self._mark("dict", type(value), key_marks(keys), parent, step, reference)
        if all(type(k) is str for k in keys):
            self.compared.add_names(value)
        else:
            self.compared.tests.append(lambda: same_items(dict.keys(value), keys))
        self.containers.append((at, (), value, dict.copy(value)))
        for key in keys:
            held = dict_item(value, key)
            shown = f"[{key!r}]" if is_atom(key) else "[...]"
            self._compare(self.compared.entries, value, key, held)
            self._queue.append((held, at, shown, Reference(value, key, dict_item)))
            if not is_atom(key):
                self._follow(key, at, ".key")
        if isinstance(value, defaultdict):
            self._part(value, "default_factory", at, ".default_factory")
        if type(value) is not dict:
            self._instance(value, at)

    def _sequence(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        items = items_of(value)
        self._check_size(items, step, parent)
        at = self._mark("list", type(value), len(items), parent, step, reference)
        if not isinstance(value, tuple):
            self.containers.append((at, (), value, list(items)))
            self.compared.add_list(value, items)
        for i, item in enumerate(items):
            self._queue.append((item, at, f"[{i}]", Reference(value, i, getitem)))
        if type(value) not in (list, tuple, deque):
            self._instance(value, at)

    def _check_size(self, items: list[Any], step: str, parent: int) -> None:
        if len(items) > MOST_ITEMS:
            raise Unguardable(
                f"it can read {path_of(self.marks, parent, step)}, which has {len(items)} items; "
                "make a tensor of them"
            )

    def _set(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        items = items_of(value)
        self._check_size(items, step, parent)
        atoms = frozenset((type(x), repr(x)) for x in items if is_atom(x))
        at = self._mark("set", type(value), (atoms, len(items)), parent, step, reference)
        ids = frozenset(map(id, items))
        if isinstance(value, set):
            self.containers.append((at, (), value, items))
            self.compared.tests.append(lambda: frozenset(map(id, items_of(value))) == ids)
        for item in items:
            if not is_atom(item):
                self._follow(item, at, "{...}")

    def _function(
        self, value: types.FunctionType, parent: int, step: str, reference: Reference
    ) -> None:
        code = value.__code__
        at = self._mark("function", code, None, parent, step, reference)
        self._functions.add(code)
        if code.co_filename.startswith(LIBRARY):
            self.marks[at].value = value  # many functions of the library share their code
            return
        self._note_unset(value.__dict__, at)
        self._members(value.__dict__, at)
        if code not in self.scope.codes:
            if "__wrapped__" in value.__dict__:
                self._part(value, "__wrapped__", at, ".__wrapped__")
            return
        self.compared.parts.add(value, "__code__", code)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            if id(cell) not in self.seen:
                self.seen[id(cell)] = at
                self._kept.append(cell)
                self._part(cell, "cell_contents", at, f".{name}")
        self._part(value, "__defaults__", at, ".__defaults__")
        self._part(value, "__kwdefaults__", at, ".__kwdefaults__")

    def _data(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        odd = type(value) not in (np.ndarray, np.memmap, np.matrix)
        if value.dtype.hasobject or value.nbytes > MOST_BYTES or odd:
            raise Unguardable(
                f"it can read the NumPy array {path_of(self.marks, parent, step)} of dtype "
                f"{value.dtype} and {value.nbytes >> 20} MiB (a {type(value).__name__}), whose "
                "contents cannot be compared before each call; make a tensor of it"
            )
        before = (value.shape, value.dtype, value.tobytes(), value.flags.writeable)
        self._mark("array", type(value), before, parent, step, reference)
        self.compared.tests.append(
            lambda: (value.shape, value.dtype, value.tobytes(), value.flags.writeable) == before
        )

    def _buffer(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        before = bytes(value)
        self._mark("array", type(value), (len(before), None, before), parent, step, reference)
        self.compared.tests.append(lambda: bytes(value) == before)

    def _wrapper(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Visit an object of Python's own types that refers to others, such as a method."""
        at = self._mark("wrapper", type(value), None, parent, step, reference)
        for name in next(names for kind, names in WRAPPERS.items() if isinstance(value, kind)):
            self._part(value, name, at, f".{name}")
        if isinstance(value, functools.partial) and type(value) is not functools.partial:
            self._instance(value, at)

    def _builtin(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        if hasattr(value, "mapping"):  # a view from keys(), values() or items()
            at = self._mark("builtin", type(value).__name__, None, parent, step, reference)
            self._follow(value.mapping, at, ".mapping")
            return
        if value.__name__ in REFLECTIVE:
            self.scope.everything = True  # may be called under another name
        holder = getattr(value, "__self__", None)
        at = self._mark("builtin", value.__name__, None, parent, step, reference)
        if holder is not None and not isinstance(holder, (types.ModuleType, type)):
            self._follow(holder, at, ".__self__")

    def _opaque(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Mark an object that refers to no others."""
        naming = isinstance(value, (attrgetter, methodcaller))
        if naming or value.__name__ in ("__setattr__", "__delattr__", "__getattribute__"):
            self.scope.everything = True
        self._mark("same", value, None, parent, step, reference)

    def _cached(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Visit a function with a cache: what it read when it last ran counts as read now."""
        at = self._mark("same", value, None, parent, step, reference)
        function = value.__wrapped__
        if isinstance(function, types.FunctionType):
            if function.__code__ not in self.scope.codes:
                self.scope.add(function.__code__, function.__globals__, False)
            self._check_cached(function, parent, step)
        size = value.cache_info().currsize
        self.compared.tests.append(lambda: value.cache_info().currsize == size)
        self.marks[at].kind, self.marks[at].detail = "cache", size
        self._part(value, "__wrapped__", at, ".__wrapped__")

    def _proxy(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        before = dict(value)
        at = self._mark("proxy", type(value), None, parent, step, reference)
        self.compared.tests.append(
            lambda: same_items(value, before) and same_items(value.values(), before.values())
        )
        for key, held in before.items():
            self._queue.append((held, at, f"[{key!r}]", Reference(value, key, getitem)))

    def _weak(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        at = self._mark("weak", type(value), None, parent, step, reference)
        target = value()
        if isinstance(value, weakref.WeakMethod):
            owner = None if target is None else target.__self__
            self.compared.tests.append(lambda: getattr(value(), "__self__", None) is owner)
        else:
            self.compared.tests.append(lambda: value() is target)
        self._queue.append((target, at, "()", Reference(value, None, call_it)))

    def _weak_container(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Visit the items that a weak dictionary or set has now."""
        items = weak_items(value)
        ids = sorted(map(id, items))
        at = self._mark("list", type(value), len(items), parent, step, reference)
        state = functools.partial(weak_ids, value)
        self.compared.tests.append(lambda: state() == ids)
        self.movers.append((at, state, ids))
        for item in items:
            self._follow(item, at, "[...]")

    def _lock(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        before = repr(value)
        self._mark("same", value, before, parent, step, reference)
        self.compared.tests.append(lambda: repr(value) == before)

    def _variable(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        at = self._mark("same", value, None, parent, step, reference)
        inner = Reference(value, None, context_value)
        held = inner.read()
        self.compared.tests.append(lambda: value.get(MISSING) is held)
        self._queue.append((held, at, ".get()", inner))

    def _check_cached(self, function: types.FunctionType, parent: int, step: str) -> None:
        """Refuse a cached function that reads objects: its cache misses changes to them."""
        held = [c.cell_contents for c in function.__closure__ or () if is_filled(c)]
        names = [n for n in function.__code__.co_names if n in function.__globals__]
        for value in (*held, *(function.__globals__[n] for n in names)):
            if not (is_atom(value) or callable(value) or isinstance(value, types.ModuleType)):
                raise Unguardable(
                    f"it calls {path_of(self.marks, parent, step)}, which caches what it reads "
                    f"from an object of type {type(value).__name__}; call it outside"
                )

    def _mover(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Mark an object with hidden state; a recording that changes the state is refused."""
        asked = self.scope.attributes & {"bit_generator", "getstate", "get_state"}
        if asked or isinstance(value, random.SystemRandom):
            raise Unguardable(
                f"it can read the state of the generator {path_of(self.marks, parent, step)}"
            )
        at = self._mark("same", value, None, parent, step, reference)
        state = functools.partial(state_of, value)
        self.movers.append((at, state, state()))

    def _logger(self, value: logging.Logger, parent: int, step: str, reference: Reference) -> None:
        """Visit a logger; if it wrote nothing, compare only whether it would write."""
        writes = logging.Logger.handle.__code__ in self.scope.codes
        own = (
            type(value) not in (logging.Logger, logging.RootLogger) or vars(value).keys() - _LOGGER
        )
        if writes or own or self.scope.attributes & _OF_HANDLERS:
            self._object(value, parent, step, reference)
            return
        before = logger_state(value)
        kept = [(*at.handlers, *at.filters) for at in lineage(value)]  # so that no id is reused
        self._kept.extend(kept)
        at = self._mark("same", value, before, parent, step, reference)
        self.compared.tests.append(lambda: bool(kept) and logger_state(value) == before)
        self.movers.append((at, functools.partial(logger_state, value), before))
        if type(value) not in self._visited:
            self._follow(type(value), at, ".__class__")

    def _object(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        kind = type(value)
        own = home_of(kind)
        closed = own.split(".", 1)[0] in CLOSED[1:]
        if hasattr(kind, "__next__") and (closed or not instance_dict(value)):
            raise Unguardable(
                f"it can read the iterator {path_of(self.marks, parent, step)}, whose state cannot "
                "be compared; take its next item outside"
            )
        if own.startswith("tapegrad.") and not has_user_state(kind):
            at = self._mark("same", value, None, parent, step, reference)
            for name in getattr(kind, "_walked", ()):
                self._part(value, name, at, f".{name}")
                entries = value.__dict__
                self._note_unset(entries, at)
                for given in sorted(entries.keys() & self.scope.named_by_user - {name}):
                    self._item(entries, given, at, f".{given}")
            return
        if kind in _HARMLESS or (closed and own != "builtins" and not instance_dict(value)):
            self._mark("same", value, None, parent, step, reference)
            return
        if any(base.__module__ == "_ctypes" for base in kind.__mro__):
            self._buffer(value, parent, step, reference)
            return
        if is_opaque(kind) or closed:
            raise Unguardable(
                f"it can read {path_of(self.marks, parent, step)}, an object of type "
                f"{kind.__name__}, whose state cannot be compared; read it outside"
            )
        number = next((b.__repr__(value) for b in _NUMBERS if issubclass(kind, b)), None)
        at = self._mark("object", kind, number, parent, step, reference)
        self._instance(value, at)


#: visits by type, tried in this order; all other objects are ordinary
_VISITS: tuple[tuple[Any, Callable[..., None]], ...] = (
    (logging.Logger, Reach._logger),
    (dict, Reach._mapping),
    ((list, tuple, deque), Reach._sequence),
    ((set, frozenset), Reach._set),
    (types.FunctionType, Reach._function),
    (type, Reach._class),
    (types.ModuleType, Reach._module),
    (np.ndarray, Reach._data),
    ((bytearray, memoryview, array), Reach._buffer),
    (tuple(WRAPPERS), Reach._wrapper),
    ((types.BuiltinFunctionType, types.MethodWrapperType), Reach._builtin),
    ((attrgetter, methodcaller), Reach._opaque),
    (_DESCRIPTORS, Reach._opaque),
    (_LRU, Reach._cached),
    (types.MappingProxyType, Reach._proxy),
    (weakref.ref, Reach._weak),
    (
        (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
        Reach._weak_container,
    ),
    ((type({}.keys()), type({}.values()), type({}.items())), Reach._builtin),
    ((_thread.LockType, _thread.RLock), Reach._lock),
    (np.void, Reach._buffer),
    (contextvars.ContextVar, Reach._variable),
    (
        (random.Random, np.random.Generator, np.random.RandomState, types.GeneratorType),
        Reach._mover,
    ),
)
