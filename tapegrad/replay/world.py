"""The world around a recording: the plain Python values that its code can reach by name.

A `World` is made by walking from roots (the compiled function, its arguments, the global variables
that the code names) over all plain objects. Attributes count if code that ran names them; items of
containers count all. It keeps what it found twice: as a list of **marks** in the order of the walk,
which two worlds are compared by, and as lists of owners, keys and values, so that `holds` is a
series of `is` tests in C. Where one fails, `difference` walks again and compares the marks: equal
values in other objects are as good, and what differs is known by its path.

`docs/design.md` says what is a root, what is walked, what is compared and what is refused.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import io
import random
import re
import sys
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, getitem, is_
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..device import device
from ..source import LIBRARY
from ..tensor import Size, Tensor
from .facts import facts_of
from .scope import Scope

if TYPE_CHECKING:
    from .recording import Recording

#: values that are compared by type and equality
ATOMS = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...)),
    *(type(NotImplemented), dtypes.DType, device, Size, np.dtype, np.generic, enum.Enum),
    *(re.Pattern, types.CodeType),
)
#: modules of Python whose objects are values too: dates, paths, fractions
_VALUES = {"decimal", "_decimal", "fractions", "datetime", "pathlib", "uuid"}


def is_atom(value: Any) -> bool:
    """Whether a value cannot change and is compared by type and equality."""
    return isinstance(value, ATOMS) or type(value).__module__ in _VALUES


#: bytes of NumPy data that are compared before a replay, at most
MOST_BYTES = 1 << 26
#: items of one container that are compared, at most
MOST_ITEMS = 1 << 20

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
_closed = ("tapegrad", "numpy", "scipy", "llvmlite", "torch", "jax", "jaxlib", "builtins")
_dict_item = dict.__getitem__
_dict_of = attrgetter("__dict__")
#: packages of the library whose objects hold what users set
_WATCHED = ("tapegrad.nn", "tapegrad.data", "tapegrad.amp", "tapegrad.optim")
_CONTAINERS = (list, dict, tuple, deque, OrderedDict, defaultdict)
_BUFFERS = (bytearray, memoryview, array)
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_ITERATORS = ("iterator", "count", "cycle", "chain", "zip", "map", "filter", "enumerate")


class Unguardable(Exception):
    """Something is reached whose state cannot be compared; the message says what."""


class Place:
    """Where a value stands: how to read it now, and how to put another one there."""

    __slots__ = ("get", "key", "owner")

    def __init__(self, owner: Any, key: Any, get: Callable[[Any, Any], Any]) -> None:
        self.owner = owner
        self.key = key
        self.get = get

    def is_stored(self) -> bool:
        """Whether something is kept here, so that another value may stand here later."""
        return self.get not in (_itself, _call, _context)

    def read(self) -> Any:
        """What stands here now; `MISSING` if nothing does."""
        try:
            return self.get(self.owner, self.key)
        except (KeyError, IndexError, AttributeError, ValueError):
            return MISSING

    def write(self, value: Any) -> None:
        """Put a value here, past all methods that the owner's class has for that."""
        if value is MISSING:
            self._delete()
        elif self.get is _dict_item:
            dict.__setitem__(self.owner, self.key, value)
        elif self.get is getitem:
            self.owner[self.key] = value
        else:
            setattr(self.owner, self.key, value)

    def _delete(self) -> None:
        if self.get is _dict_item:
            dict.pop(self.owner, self.key, None)
        elif self.get is getitem:
            del self.owner[self.key]
        else:
            delattr(self.owner, self.key)


def _class_item(kind: type, name: str) -> Any:
    return kind.__dict__[name]


def _itself(owner: Any, key: Any) -> Any:
    return owner


def _call(owner: Any, key: Any) -> Any:
    return owner()


def _context(owner: Any, key: Any) -> Any:
    return owner.get(MISSING)


class Mark:
    """One step of a walk: what was found, and where."""

    __slots__ = ("detail", "kind", "parent", "place", "raw", "step", "value")

    def __init__(
        self, kind: str, value: Any, detail: Any, parent: int, step: str, place: Place, raw: Any
    ) -> None:
        self.kind = kind
        self.value = value  # compared as `kind` says
        self.detail = detail
        self.raw = raw  # what was found
        self.parent = parent
        self.step = step
        self.place = place


class World:
    """What the code of one recording can reach, as it is now."""

    def __init__(
        self,
        scope: Scope,
        roots: Iterable[tuple[str, Any]],
        arguments: Iterable[Tensor] = (),
        objects: Iterable[Any] = (),
    ) -> None:
        self.scope = scope
        self.roots = list(roots)
        #: objects among the arguments of the call
        self.objects = list(objects)
        self.given = list(arguments)
        self.arguments = {t.id: i for i, t in reversed(list(enumerate(self.given)))}
        self.recording: Recording | None = None
        size = -1
        while size != scope.size():
            # What is reached may show that more is named: then the walk begins anew.
            size = scope.size()
            self._clear()
            self._walk()
        self.settle(frozenset())

    def _clear(self) -> None:
        """Forget all that a walk has found."""
        self.marks: list[Mark] = []
        #: (dictionary, key) and what stands there
        self._owners: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        #: the same for entries of classes
        self._classes: list[Any] = []
        self._class_names: list[str] = []
        self._class_values: list[Any] = []
        #: the same for what is read with getattr: slots, cells, parts of functions
        self._holders: list[Any] = []
        self._attributes: list[str] = []
        self._parts: list[Any] = []
        #: objects with their types and dictionaries
        self._objects: list[Any] = []
        self._object_marks: list[int] = []
        self._object_names: list[list[str]] = []
        self._types: list[Any] = []
        self._dicts: list[Any] = []
        #: dictionaries whose names are compared, and those whose number of entries is
        self._named: list[Any] = []
        self._names: list[list[str]] = []
        self._sized: list[Any] = []
        self._sizes: list[int] = []
        #: everything else, as functions that say whether something is as it was
        self._tests: list[Callable[[], bool]] = []
        #: tensors, by position among the marks
        self.tensors: dict[int, Tensor] = {}
        #: containers: position, keys that lead further from there, the container, a copy of it
        self.containers: list[tuple[int, tuple[Any, ...], Any, Any]] = []
        #: things with a hidden state that may move: position, how to read the state, the state
        self.movers: list[tuple[int, Callable[[], Any], Any]] = []
        #: variables of modules that code names and that are not there
        self.absent: list[tuple[dict[str, Any], str]] = []
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is given to something else during the walk
        self._functions: set[types.CodeType] = set()
        self._visited: set[type] = set()
        self._queue: deque[tuple[Any, int, str, Place]] = deque()

    # -- walking -----------------------------------------------------------------------------

    def _walk(self) -> None:
        for name, value in self.roots:
            self._queue.append((value, -1, name, Place(value, None, _itself)))
        for i, value in enumerate(self.objects):
            self._queue.append((value, -1, f"argument {i}", Place(value, None, _itself)))
        for variables, names in self.scope.variables.values():
            module = variables.get("__name__", "")
            absent = []
            if id(variables) in self.scope.whole:
                self._named.append(variables)
                self._names.append(list(variables))
                names = {n for n in variables if not n.startswith("__")} | names
            for name in sorted(names):
                if name in variables:
                    self._item(variables, name, -1, f"{module}.{name}")
                else:
                    absent.append(name)
                    self.absent.append((variables, name))
            if absent:
                self._tests.append(functools.partial(variables.keys().isdisjoint, tuple(absent)))
        for name in sorted(self.scope.modules):
            found = sys.modules.get(name)
            if found is not None:
                self._compare(found, self._owners, sys.modules, self._keys, name, self._values)
                self._queue.append((found, -1, name, Place(sys.modules, name, _dict_item)))
        self._drain()
        self._find_functions()

    def _drain(self) -> None:
        while self._queue:
            self._visit(*self._queue.popleft())

    def _find_functions(self) -> None:
        """Functions that ran and were not met: they are held by something that is not walked."""
        missing = [
            code
            for code in self.scope.codes
            if code not in self._functions
            and not code.co_name.startswith("<")
            and not code.co_filename.startswith(LIBRARY)
        ]
        if not missing:
            return
        for function in self.scope.functions(missing):
            self._queue.append((function, -1, function.__name__, Place(function, None, _itself)))
        self._drain()

    def _mark(
        self, kind: str, value: Any, detail: Any, parent: int, step: str, place: Place
    ) -> int:
        self.marks.append(Mark(kind, value, detail, parent, step, place, place.read()))
        return len(self.marks) - 1

    def _item(self, owner: Any, key: Any, parent: int, step: str) -> None:
        """An entry of a dictionary under a name that code uses."""
        value = _dict_item(owner, key)
        place = Place(owner, key, _dict_item)
        if not self._is_only_written(key, value, parent, step, place):
            self._compare(value, self._owners, owner, self._keys, key, self._values)
            self._queue.append((value, parent, step, place))

    def _part(self, holder: Any, name: str, parent: int, step: str) -> None:
        """A part that is read with getattr: a slot, a cell, the defaults of a function."""
        place = Place(holder, name, getattr)
        value = place.read()
        if value is MISSING:
            self._mark("atom", MISSING, None, parent, step, place)
            self._tests.append(lambda: place.read() is MISSING)
        elif not self._is_only_written(step[1:], value, parent, step, place):
            self._compare(value, self._holders, holder, self._attributes, name, self._parts)
            self._queue.append((value, parent, step, place))

    def _compare(
        self,
        value: Any,
        owners: list[Any],
        owner: Any,
        keys: list[Any],
        key: Any,
        values: list[Any],
    ) -> None:
        """Compare what stands somewhere by identity; of tensors, `settle` says how."""
        if not isinstance(value, Tensor):
            owners.append(owner)
            keys.append(key)
            values.append(value)

    def _is_only_written(self, name: str, value: Any, parent: int, step: str, place: Place) -> bool:
        """Note a name that is only set, only counted up or only put into: nothing depends on it."""
        scope = self.scope
        if name in scope.read or scope.everything:
            return False
        collected, counted = name in scope.collected, name in scope.counted
        keys = scope.indexed.get(name, ())
        if (collected or keys) and not counted and type(value) in _CONTAINERS:
            at = self._mark("collected", type(value), None, parent, step, place)
            self._collect(value, at, ())
            if keys:
                self._tests.append(functools.partial(_stands, place, value))
                self._picked(value, keys, at)
        elif counted and not collected and not keys and type(value) is int:
            self._mark("counted", type(value), None, parent, step, place)
        elif name in scope.stored and not collected and not counted and not keys:
            self._mark("written", None, None, parent, step, place)
        else:
            return False
        return True

    def _picked(self, container: Any, keys: Iterable[Any], at: int) -> None:
        """Compare those items of a container that code reads under constant keys."""
        for key in sorted(keys, key=repr):
            place = Place(container, key, _dict_item if isinstance(container, dict) else getitem)
            value = place.read()
            if isinstance(container, dict) and value is not MISSING:
                self._compare(value, self._owners, container, self._keys, key, self._values)
            elif not isinstance(value, Tensor):
                self._tests.append(functools.partial(_stands, place, value))
            if value is not MISSING:
                self._queue.append((value, at, f"[{key!r}]", place))

    def _collect(self, container: Any, at: int, keys: tuple[Any, ...]) -> None:
        """Keep a copy of a container that is put into, and of the containers in it."""
        if len(keys) > 4 or isinstance(container, tuple):
            return
        self.containers.append((at, keys, container, _copied(container)))
        pairs = container.items() if isinstance(container, dict) else ()
        for key, value in list(pairs):
            if isinstance(value, (list, dict, deque)):
                self._collect(value, at, (*keys, key))

    def _visit(self, value: Any, parent: int, step: str, place: Place) -> None:
        if isinstance(value, Tensor):
            self._tensor(value, parent, step, place)
            return
        if is_atom(value):
            self._mark("atom", value, None, parent, step, place)
            return
        found = self._seen.get(id(value))
        if found is not None:
            self._mark("again", found, None, parent, step, place)
            return
        at = len(self.marks)
        self._seen[id(value)] = at
        self._kept.append(value)
        if isinstance(value, dict):
            self._mapping(value, parent, step, place)
        elif isinstance(value, (list, tuple, deque)):
            self._sequence(value, parent, step, place)
        elif isinstance(value, (set, frozenset)):
            self._set(value, parent, step, place)
        elif isinstance(value, types.FunctionType):
            self._function(value, parent, step, place)
        elif isinstance(value, type):
            self._class(value, parent, step, place)
        elif isinstance(value, types.ModuleType):
            self._module(value, parent, step, place)
        elif isinstance(value, np.ndarray):
            self._data(value, parent, step, place)
        elif isinstance(value, _BUFFERS):
            before = bytes(value)
            self._mark("array", type(value), (len(value), None, before), parent, step, place)
            self._tests.append(lambda: bytes(value) == before)
        elif not self._wrapper(value, parent, step, place):
            self._object(value, parent, step, place)

    def _tensor(self, tensor: Tensor, parent: int, step: str, place: Place) -> None:
        at = self._mark("tensor", tensor, facts_of(tensor), parent, step, place)
        self.tensors[at] = tensor
        if id(tensor) in self._seen:
            return
        self._seen[id(tensor)] = at
        extra = tensor._extra
        for group in (extra.hooks, extra.post_hooks) if extra is not None else ():
            if group:
                self._hooks(group, at)
        own = getattr(tensor, "__dict__", None)
        if own:
            self._members(own, at)

    def _hooks(self, group: dict[int, Any], parent: int) -> None:
        """Hooks of a tensor: the functions count, not the numbers under which they are kept."""
        keys = list(group)
        place = Place(group, None, _itself)
        at = self._mark("list", list, len(keys), parent, ".hooks", place)
        self._tests.append(lambda: list(group) == keys)
        for key in keys:
            self._queue.append((group[key], at, ".hook", Place(group, key, _dict_item)))

    def _mapping(self, value: Any, parent: int, step: str, place: Place) -> None:
        if hasattr(type(value), "_read_anew"):
            # Options of an optimizer: all but the tensors is read in every replay.
            at = self._mark("dict", type(value), None, parent, step, place)
            self._item(value, "params", at, "['params']")
            return
        keys = list(dict.keys(value))
        self._check_size(keys, step, parent)
        at = self._mark("dict", type(value), _key_marks(keys), parent, step, place)
        if all(type(k) is str for k in keys):
            self._named.append(value)
            self._names.append(keys)
        else:
            self._tests.append(lambda: _same_items(dict.keys(value), keys))
        self.containers.append((at, (), value, dict(dict.items(value))))
        for key in keys:
            held = _dict_item(value, key)
            shown = f"[{key!r}]" if is_atom(key) else "[...]"
            self._compare(held, self._owners, value, self._keys, key, self._values)
            self._queue.append((held, at, shown, Place(value, key, _dict_item)))
            if not is_atom(key):
                self._queue.append((key, at, ".key", Place(key, None, _itself)))
        if type(value) is not dict:
            self._instance(value, at)

    def _sequence(self, value: Any, parent: int, step: str, place: Place) -> None:
        items = list(value)
        self._check_size(items, step, parent)
        at = self._mark("list", type(value), len(items), parent, step, place)
        if not isinstance(value, tuple):
            self.containers.append((at, (), value, list(items)))
            self._tests.append(lambda: _same_items_but_tensors(value, items))
        for i, item in enumerate(items):
            self._queue.append((item, at, f"[{i}]", Place(value, i, getitem)))
        if type(value) not in (list, tuple, deque):
            self._instance(value, at)

    def _check_size(self, items: list[Any], step: str, parent: int) -> None:
        if len(items) > MOST_ITEMS:
            raise Unguardable(
                f"it can read {self.path_of(parent, step)}, which has {len(items)} items; make a "
                "tensor of them"
            )

    def _set(self, value: Any, parent: int, step: str, place: Place) -> None:
        self._check_size(list(value), step, parent)
        frozen = frozenset(value)
        at = self._mark("set", type(value), frozen, parent, step, place)
        if isinstance(value, set):
            self.containers.append((at, (), value, set(value)))
            self._tests.append(lambda: value == frozen)

    def _function(self, value: types.FunctionType, parent: int, step: str, place: Place) -> None:
        code = value.__code__
        at = self._mark("function", code, None, parent, step, place)
        self._functions.add(code)
        if code.co_filename.startswith(LIBRARY):
            self.marks[at].value = value  # many functions of the library share their code
            return
        if code not in self.scope.codes:
            if "__wrapped__" in value.__dict__:
                self._part(value, "__wrapped__", at, ".__wrapped__")
            return
        self._compare(code, self._holders, value, self._attributes, "__code__", self._parts)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            if id(cell) not in self._seen:
                self._seen[id(cell)] = at
                self._kept.append(cell)
                self._part(cell, "cell_contents", at, f".{name}")
        self._part(value, "__defaults__", at, ".__defaults__")
        self._part(value, "__kwdefaults__", at, ".__kwdefaults__")
        if value.__dict__:
            self._members(value.__dict__, at)

    def _class(self, value: type, parent: int, step: str, place: Place) -> None:
        at = self._mark("class", value, None, parent, step, place)
        for kind in value.__mro__:
            if kind not in self._visited and kind.__flags__ & _HEAP_TYPE:
                self._visited.add(kind)
                self._class_members(kind, at)
        meta = type(value)
        if meta is not type and not _is_closed(meta) and meta.__module__ not in _STANDARD:
            self._queue.append((meta, at, ".__class__", Place(meta, None, _itself)))

    def _class_members(self, kind: type, at: int) -> None:
        """Attributes of a class that code names, and methods that ran."""
        entries, scope = kind.__dict__, self.scope
        library = _is_closed(kind)
        for name in sorted(entries):
            value = entries[name]
            named = name in scope.attributes or (scope.everything and not name.startswith("__"))
            if not (named and not library) and _code_of(value) not in scope.codes:
                continue
            place = Place(kind, name, _class_item)
            if not self._is_only_written(name, value, at, f".{name}", place):
                self._compare(
                    value, self._classes, entries, self._class_names, name, self._class_values
                )
                self._queue.append((value, at, f".{name}", place))
        if not library:
            self._named.append(entries)
            self._names.append(list(entries))
            self._compare(
                kind.__mro__, self._holders, kind, self._attributes, "__mro__", self._parts
            )

    def _module(self, value: types.ModuleType, parent: int, step: str, place: Place) -> None:
        at = self._mark("module", value, None, parent, step, place)
        entries, attributes = value.__dict__, self.scope.attributes
        closed = _is_closed(value)
        for name in sorted(n for n in attributes if n in entries):
            inner = entries[name]
            if not closed:
                self._item(entries, name, at, f".{name}")
            elif not isinstance(inner, types.ModuleType):
                self._compare(inner, self._owners, entries, self._keys, name, self._values)
                self._mark("same", inner, None, at, f".{name}", Place(entries, name, _dict_item))

    def _data(self, value: Any, parent: int, step: str, place: Place) -> None:
        if value.dtype.hasobject or value.nbytes > MOST_BYTES:
            raise Unguardable(
                f"it can read the NumPy array {self.path_of(parent, step)} of {value.nbytes >> 20} "
                f"MiB and dtype {value.dtype}, whose contents cannot be compared before each call; "
                "make a tensor of it"
            )
        before = value.tobytes()
        self._mark("array", type(value), (value.shape, value.dtype, before), parent, step, place)
        self._tests.append(lambda: value.tobytes() == before)

    def _wrapper(self, value: Any, parent: int, step: str, place: Place) -> bool:
        """Objects of Python's own types that lead to others."""
        names: tuple[str, ...]
        if isinstance(value, types.MethodType):
            names = ("__self__", "__func__")
        elif isinstance(value, (functools.partial, functools.partialmethod)):
            names = ("func", "args", "keywords")
        elif isinstance(value, (staticmethod, classmethod)):
            names = ("__func__",)
        elif isinstance(value, property):
            names = ("fget", "fset")
        elif isinstance(value, functools.cached_property):
            names = ("func",)
        elif isinstance(value, _BUILTIN):
            holder = getattr(value, "__self__", None)
            at = self._mark("builtin", value.__name__, None, parent, step, place)
            if holder is not None and not isinstance(holder, (types.ModuleType, type)):
                self._queue.append((holder, at, ".__self__", Place(holder, None, _itself)))
            return True
        elif isinstance(value, attrgetter):
            self.scope.everything = True
            self._mark("builtin", repr(value), None, parent, step, place)
            return True
        elif isinstance(value, _DESCRIPTORS) or type(value) in _OPAQUE:
            self._mark("same", value, None, parent, step, place)
            return True
        elif type(value) is _LRU:
            # What it read when it last ran is as good as read now.
            at = self._mark("same", value, None, parent, step, place)
            inner = value.__wrapped__
            if isinstance(inner, types.FunctionType):
                if inner.__code__ not in self.scope.codes:
                    self.scope.add(inner.__code__, inner.__globals__, False)
                self._check_cached(inner, parent, step)
            self._part(value, "__wrapped__", at, ".__wrapped__")
            return True
        elif isinstance(value, types.MappingProxyType):
            inner = dict(value)
            at = self._mark("proxy", type(value), None, parent, step, place)
            self._tests.append(lambda: _same_items(value, inner) and dict(value) == inner)
            for key, held in inner.items():
                self._queue.append((held, at, f"[{key!r}]", Place(value, key, getitem)))
            return True
        elif isinstance(value, weakref.ref):
            at = self._mark("weak", type(value), None, parent, step, place)
            target = value()
            self._tests.append(lambda: value() is target)
            self._queue.append((target, at, "()", Place(value, None, _call)))
            return True
        elif isinstance(value, contextvars.ContextVar):
            at = self._mark("same", value, None, parent, step, place)
            inner_place = Place(value, None, _context)
            held = inner_place.read()
            self._tests.append(lambda: value.get(MISSING) is held)
            self._queue.append((held, at, ".get()", inner_place))
            return True
        elif self._has_hidden_state(value, parent, step, place):
            return True
        else:
            return False
        at = self._mark("wrapper", type(value), None, parent, step, place)
        for name in names:
            self._part(value, name, at, f".{name}")
        if isinstance(value, functools.partial) and type(value) is not functools.partial:
            self._instance(value, at)
        return True

    def _check_cached(self, function: types.FunctionType, parent: int, step: str) -> None:
        """Refuse a cached function that reads objects: what is cached may be older than they."""
        held = [c.cell_contents for c in function.__closure__ or () if _is_filled(c)]
        names = [n for n in function.__code__.co_names if n in function.__globals__]
        for value in (*held, *(function.__globals__[n] for n in names)):
            if not (is_atom(value) or callable(value) or isinstance(value, types.ModuleType)):
                raise Unguardable(
                    f"it calls {self.path_of(parent, step)}, which caches what it reads from an "
                    f"object of type {type(value).__name__}; call it outside"
                )

    def _has_hidden_state(self, value: Any, parent: int, step: str, place: Place) -> bool:
        state: Callable[[], Any]
        if isinstance(value, random.SystemRandom):
            raise Unguardable(
                f"it can read {self.path_of(parent, step)}, the random numbers of the system"
            )
        if isinstance(value, random.Random):
            state = value.getstate
        elif isinstance(value, np.random.Generator):
            state = functools.partial(_generator_state, value)
        elif isinstance(value, np.random.RandomState):
            state = functools.partial(_random_state, value)
        elif isinstance(value, types.GeneratorType):
            state = functools.partial(_progress, value)
        elif hasattr(type(value), "__next__") and type(value).__name__.endswith(_ITERATORS):
            raise Unguardable(
                f"it can read the iterator {self.path_of(parent, step)}, whose state cannot be "
                "compared; take its next item outside"
            )
        else:
            return False
        at = self._mark("same", value, None, parent, step, place)
        self.movers.append((at, state, state()))
        return True

    def _object(self, value: Any, parent: int, step: str, place: Place) -> None:
        kind = type(value)
        own = kind.__module__ or ""
        inner = own.startswith("tapegrad.") and not own.startswith(_WATCHED)
        plain = not kind.__flags__ & _HEAP_TYPE and not hasattr(value, "__dict__")
        at = self._mark("same" if inner or plain else "object", value, None, parent, step, place)
        if inner and hasattr(kind, "_walked"):
            for name in kind._walked:
                self._part(value, name, at, f".{name}")
        if not inner and not plain:
            self.marks[at].value = kind
            self._instance(value, at)

    def _instance(self, value: Any, at: int) -> None:
        """The attributes of an object: those in its dictionary, in slots, and of its class."""
        kind = type(value)
        # What replays read anew is not compared, unless code of the user reads it too.
        hidden = [n for n in getattr(kind, "_unguarded", ()) if n not in self.scope.named_by_user]
        entries = getattr(value, "__dict__", None)
        if type(entries) is dict:
            self._objects.append(value)
            self._object_marks.append(at)
            self._object_names.append(list(entries))
            self._dicts.append(entries)
            self._types.append(kind)
            self._named.append(entries)
            self._names.append(list(entries))
            self._members(entries, at, hidden)
            self._groups(value, entries, at)
        for base in kind.__mro__:
            if "__slots__" in base.__dict__ and base.__flags__ & _HEAP_TYPE:
                for name in _slots(base):
                    if name not in hidden and self._is_named(name):
                        self._part(value, name, at, f".{name}")
        if kind not in self._visited:
            self._queue.append((kind, at, ".__class__", Place(value, "__class__", getattr)))

    def _groups(self, value: Any, entries: dict[str, Any], at: int) -> None:
        """Dictionaries of an object whose entries are found under their names like attributes,
        and lists of options that replays read anew, but for the tensors in them."""
        for name in getattr(type(value), "_attributes_in", ()):
            held = entries.get(name)
            if type(held) is dict:
                self._sized.append(held)
                self._sizes.append(len(held))
                for key in sorted(held):
                    if self._is_named(key):
                        self._item(held, key, at, f".{key}")
        for name in getattr(type(value), "_options_in", ()):
            groups = entries.get(name)
            if isinstance(groups, list) and name not in self.scope.named_by_user:
                before = list(groups)
                self._compare(groups, self._owners, entries, self._keys, name, self._values)
                self._tests.append(lambda now=groups, then=before: _same_items(now, then))
                inner = self._mark(
                    "list", list, len(groups), at, f".{name}", Place(entries, name, _dict_item)
                )
                for i, group in enumerate(groups):
                    self._item(group, "params", inner, f"[{i}]['params']")

    def _members(self, entries: dict[str, Any], at: int, hidden: Iterable[str] = ()) -> None:
        for name in sorted(n for n in entries if isinstance(n, str)):
            if self._is_named(name) and name not in hidden:
                self._item(entries, name, at, f".{name}")

    def _is_named(self, name: str) -> bool:
        return name in self.scope.attributes or self.scope.everything

    def members(self) -> Iterator[tuple[int, dict[str, Any], list[str]]]:
        """Objects with their attributes of now and the names that they had."""
        for at, value, names in zip(
            self._object_marks, self._objects, self._object_names, strict=True
        ):
            yield at, value.__dict__, names

    def knows(self, value: Any) -> bool:
        """Whether an object was there when this world was looked at."""
        return id(value) in self._seen

    # -- what stays ---------------------------------------------------------------------------

    def settle_for(self, recording: Recording) -> None:
        """Say which tensors a recording reads by identity, and which numbers it reads anew."""
        self.recording = recording
        read = recording.tensors()
        numbers = {(id(n.holder), n.key) for n in recording.numbers()}
        if numbers:
            for mark in self.marks:
                if (id(mark.place.owner), mark.place.key) in numbers:
                    mark.kind = "number"
            kept = [
                i
                for i, pair in enumerate(zip(map(id, self._owners), self._keys, strict=True))
                if not (is_atom(pair[1]) and pair in numbers)
            ]
            self._owners = [self._owners[i] for i in kept]
            self._keys = [self._keys[i] for i in kept]
            self._values = [self._values[i] for i in kept]
        self.settle(frozenset(at for at, t in self.tensors.items() if t.id in read))

    def settle(self, fixed: frozenset[int]) -> None:
        """Say which tensors the program reads by identity: those at positions in `fixed`.

        Of all others, shape, dtype and layout count. Where an argument stands, the argument of the
        call must stand.
        """
        self.fixed = fixed
        self._loose: list[tuple[Place, Any]] = []
        self._bound: list[tuple[Place, int]] = []
        self._solid: list[tuple[Place, Tensor]] = []
        self._tensor_owners: list[Any] = []
        self._tensor_keys: list[Any] = []
        self._tensor_values: list[Any] = []
        for at, tensor in self.tensors.items():
            place = self.marks[at].place
            index = self.arguments.get(tensor.id)
            if index is not None:
                self._bound.append((place, index))
            elif at not in fixed:
                self._loose.append((place, self.marks[at].detail))
            elif place.get is _dict_item:
                self._tensor_owners.append(place.owner)
                self._tensor_keys.append(place.key)
                self._tensor_values.append(tensor)
            elif place.get is not _itself:
                self._solid.append((place, tensor))
        self._bound_indices = {index for _, index in self._bound}
        self._ids = {t.id for t in self.tensors.values()}
        self._solid_ids = {self.tensors[at].id for at in fixed}
        self._pattern = _pattern([place.read() for place, _ in self._loose])

    def holds(self, arguments: Sequence[Tensor], objects: Sequence[Any] = ()) -> bool:
        """Whether everything is the same object as it was; what is equal may fail here."""
        try:
            return (
                all(map(is_, objects, self.objects))
                and all(map(is_, map(_dict_item, self._owners, self._keys), self._values))
                and all(
                    map(
                        is_,
                        map(_dict_item, self._tensor_owners, self._tensor_keys),
                        self._tensor_values,
                    )
                )
                and all(map(is_, map(getattr, self._holders, self._attributes), self._parts))
                and all(
                    map(is_, map(getitem, self._classes, self._class_names), self._class_values)
                )
                and all(map(is_, map(_dict_of, self._objects), self._dicts))
                and all(map(is_, map(type, self._objects), self._types))
                and list(map(list, self._named)) == self._names
                and list(map(len, self._sized)) == self._sizes
                and all([test() for test in self._tests])
                and self._tensors_hold(arguments)
            )
        except (KeyError, IndexError, AttributeError, ValueError, TypeError, RuntimeError):
            return False

    def _tensors_hold(self, arguments: Sequence[Tensor]) -> bool:
        for place, tensor in self._solid:
            if place.get(place.owner, place.key) is not tensor:
                return False
        for i, t in enumerate(arguments):
            if t.id in self._ids and i not in self._bound_indices:
                return False
        loose = [place.get(place.owner, place.key) for place, _ in self._loose]
        for found, (_, facts) in zip(loose, self._loose, strict=True):
            if not isinstance(found, Tensor) or facts_of(found) != facts:
                return False
            if any(t is found for t in arguments) or found.id in self._solid_ids:
                return False
        if loose and _pattern(loose) != self._pattern:
            return False
        for place, index in self._bound:
            if place.get(place.owner, place.key) is not arguments[index]:
                return False
        return True

    def changed_value(self) -> str | None:
        """A plain value that is another one now, if that is seen at once."""
        for owner, key, before in zip(self._owners, self._keys, self._values, strict=True):
            now = dict.get(owner, key, MISSING)
            if now is before or not is_atom(before) or not is_atom(now) or same_atom(before, now):
                continue
            for at, mark in enumerate(self.marks):
                if mark.place.owner is owner and mark.place.key == key:
                    where = self.scope.line_of(str(key))
                    return f"{self.path(at)} was {_brief(before)} and is {_brief(now)}{where}"
        return None

    def is_rewritten(self, at: int) -> bool:
        """Whether code that ran puts other tensors where one stands."""
        mark = self.marks[at]
        name = mark.step.lstrip(".")
        return name in self.scope.stored and mark.place.is_stored()

    def difference(self, other: World) -> str | None:
        """What is another value in another world, in words; None where the two are alike."""
        for at, (mine, theirs) in enumerate(zip(self.marks, other.marks, strict=False)):
            if not self._same(at, mine, theirs, other):
                where = self.scope.line_of(self.marks[at].step.lstrip("."))
                return f"{self.path(at)} was {_shown(mine)} and is {_shown(theirs)}{where}"
        if len(self.marks) != len(other.marks):
            longer = self if len(self.marks) > len(other.marks) else other
            at = min(len(self.marks), len(other.marks))
            return f"{longer.path(at)} is there in one of two calls"
        return None

    def _same(self, at: int, mine: Mark, theirs: Mark, other: World) -> bool:
        if mine.kind == "number" or theirs.kind == "number":
            return (id(theirs.place.owner), theirs.place.key) == (
                id(mine.place.owner),
                mine.place.key,
            )
        if mine.kind != theirs.kind or mine.step != theirs.step or mine.parent != theirs.parent:
            return False
        if mine.kind == "tensor":
            a, b = self.arguments.get(mine.value.id), other.arguments.get(theirs.value.id)
            if a is not None or b is not None:
                return a == b
            if mine.detail != theirs.detail:
                return False
            return at not in self.fixed or mine.value is theirs.value
        if mine.kind == "atom":
            return same_atom(mine.value, theirs.value)
        if mine.kind in ("same", "class", "module", "object", "function"):
            return mine.value is theirs.value
        return bool(mine.value == theirs.value) and _same_detail(mine.detail, theirs.detail)

    def adopt(self, other: World) -> None:
        """Take the objects of another world that is alike."""
        fixed, recording = self.fixed, self.recording
        for mine, theirs in zip(self.marks, other.marks, strict=True):
            mine.place.owner, mine.place.key = theirs.place.owner, theirs.place.key
            theirs.place = mine.place
        self.__dict__.update(other.__dict__)
        if recording is not None:
            self.settle_for(recording)
        else:
            self.settle(fixed)

    # -- telling -------------------------------------------------------------------------------

    def path(self, at: int) -> str:
        """The way to a mark, as a user would write it."""
        mark = self.marks[at]
        return self.path_of(mark.parent, mark.step)

    def path_of(self, parent: int, step: str) -> str:
        steps = [step]
        while parent >= 0:
            mark = self.marks[parent]
            steps.append(mark.step)
            parent = mark.parent
        text = "".join(s for s in reversed(steps) if s not in (".__class__", ".__func__"))
        text = text.replace("__main__.", "").replace(".__self__", ".self")
        return text.lstrip(".")

    def moved(self) -> str | None:
        """Something whose hidden state has changed since this world was looked at."""
        for at, state, before in self.movers:
            if state() != before:
                return self.path(at)
        return None


# -- helpers ---------------------------------------------------------------------------------------


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _pattern(tensors: list[Any]) -> list[int]:
    """Which of several tensors are one."""
    ids = [id(t) for t in tensors]
    return [ids.index(i) for i in ids]


def _stands(place: Place, value: Any) -> bool:
    return place.read() is value


def same_atom(a: Any, b: Any) -> bool:
    """Equality that tells 1, 1.0 and True apart, 0.0 and -0.0 too, and takes NaN as itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, complex, np.inexact)):
        return repr(a) == repr(b)
    return bool(a == b)


def _same_detail(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_atom, a, b))
    return bool(a == b)


def _key_marks(keys: list[Any]) -> list[Any]:
    return [k if is_atom(k) else None for k in keys]


def _same_items(a: Iterable[Any], b: Iterable[Any]) -> bool:
    first, second = list(a), list(b)
    return len(first) == len(second) and all(map(is_, first, second))


def _same_items_but_tensors(now: Any, before: list[Any]) -> bool:
    return len(now) == len(before) and all(
        a is b or (isinstance(a, Tensor) and isinstance(b, Tensor))
        for a, b in zip(now, before, strict=True)
    )


def _copied(container: Any) -> Any:
    return dict(container) if isinstance(container, dict) else list(container)


def _is_closed(value: Any) -> bool:
    """Whether a class or module belongs to a library whose own names do not change."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return str(name).split(".", 1)[0] in _closed


def _code_of(value: Any) -> Any:
    """The code of a function, or of the function in a method, property or the like."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        inner = getattr(value, name, None) if not isinstance(value, types.FunctionType) else None
        if isinstance(inner, types.FunctionType):
            return inner.__code__
    return value.__code__ if isinstance(value, types.FunctionType) else None


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__["__slots__"]
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _shown(mark: Mark) -> str:
    if mark.kind == "tensor":
        return (
            "another tensor" if not mark.detail else f"a tensor of shape {tuple(mark.value.shape)}"
        )
    if mark.kind == "atom":
        return _brief(mark.value)
    if mark.kind == "list":
        return f"a {mark.value.__name__} of {mark.detail}"
    if mark.kind == "dict":
        return f"a {mark.value.__name__} with keys {mark.detail}"[:80]
    kind = mark.value if isinstance(mark.value, type) else type(mark.value)
    return f"a {kind.__name__}"


def _generator_state(generator: Any) -> str:
    return repr(generator.bit_generator.state)


def _random_state(generator: Any) -> str:
    return repr(generator.get_state(legacy=False))


def _progress(generator: types.GeneratorType[Any, Any, Any]) -> int | None:
    return None if generator.gi_frame is None else generator.gi_frame.f_lasti


_HEAP_TYPE = 1 << 9
_STANDARD = {"abc", "enum", "typing"}
_LRU = type(functools.lru_cache(lambda: None))
_OPAQUE = {type(_STANDARD.__len__), types.GetSetDescriptorType, types.MemberDescriptorType}
