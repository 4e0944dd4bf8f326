"""Reach: the walk over all plain objects that the code of a recording can reach by name.

Comes in: a `Scope`, roots, the arguments of a call. Goes out: marks in the order of the walk, what
is compared by identity (`comparisons.py`), and copies of containers. Called by `world.py`.
"""

from __future__ import annotations

import _thread
import abc
import builtins
import contextvars
import functools
import random
import sys
import types
import weakref
from array import array
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from operator import attrgetter, getitem, itemgetter, methodcaller
from typing import Any

import numpy as np

from ...core.source import LIBRARY
from ...core.tensor import Tensor
from .comparisons import Comparisons, Table
from .facts import facts_of
from .kinds import (
    CLOSED,
    HEAP_TYPE,
    REFLECTIVE,
    TREE_WALKS,
    WRAPPERS,
    Unguardable,
    code_of,
    copied,
    is_closed,
    is_filled,
    is_opaque,
    is_tensor,
    key_marks,
    path_of,
    same_items,
    slots,
    stands,
    state_of,
    weak_ids,
    weak_items,
)
from .references import (
    MISSING,
    Mark,
    Reference,
    call_it,
    class_item,
    context_value,
    dict_item,
    instance_dict,
    is_atom,
    items_of,
    itself,
    slot_value,
)
from .scope import ANY, Scope
from .uses import use_of

#: bytes of NumPy data that are compared before a replay, at most
MOST_BYTES = 1 << 26
#: items of one container that are compared, at most
MOST_ITEMS = 1 << 20

#: packages of the library whose objects hold what users set
_WATCHED = ("tapegrad.nn", "tapegrad.data", "tapegrad.amp", "tapegrad.optim")
_DESCRIPTORS = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
#: modules of Python with metaclasses that say nothing of what users set
_STANDARD = {"abc", "enum", "typing"}
_LRU = type(functools.lru_cache(lambda: None))
_BUILTINS: dict[str, Any] = builtins.__dict__


#: types of values that classes of the user may be made of
_NUMBERS = (int, float, complex, str, bytes)
#: types of C objects that never change
_HARMLESS = {object, itemgetter, type(np.add), type(namedtuple("Pair", "one").__dict__["one"])}


class Reach:
    """One walk."""

    def __init__(self, scope: Scope, roots: list[tuple[str, Any]], objects: list[Any]) -> None:
        self.scope = scope
        self.roots = roots
        self.objects = objects  # among the arguments of the call
        self.marks: list[Mark] = []
        self.compared = Comparisons()
        #: tensors, by position among the marks
        self.tensors: dict[int, Tensor] = {}
        #: containers: position, keys that lead further from there, the container, a copy of it
        self.containers: list[tuple[int, tuple[Any, ...], Any, Any]] = []
        #: by id of a container: the keys whose items are counted up
        self.counted: dict[int, set[Any]] = {}
        #: objects: position, the object, the names of its attributes
        self.members: list[tuple[int, Any, list[str]]] = []
        #: things with a hidden state that may move: position, how to read the state, the state
        self.movers: list[tuple[int, Callable[[], Any], Any]] = []
        #: variables of modules that code names and that are not there
        self.absent: list[tuple[dict[str, Any], str]] = []
        #: names that code sets and that are not there yet, in modules, classes and functions
        self.unset: list[tuple[int, Any, str]] = []
        #: by id of an object: its position; the marks keep the objects alive
        self.seen: dict[int, int] = {}
        self._functions: set[types.CodeType] = set()
        self._visited: set[type] = set()
        self._queue: deque[tuple[Any, int, str, Reference]] = deque()
        self._kept: list[Any] = []
        self._walk()

    def _walk(self) -> None:
        for name, value in self.roots:
            self._follow(value, -1, name)
        for i, value in enumerate(self.objects):
            self._follow(value, -1, f"argument {i}")
        for variables, names in self.scope.variables.values():
            module = variables.get("__name__", "")
            absent = []
            if id(variables) in self.scope.whole:
                self.compared.add_names(variables)
                names = {n for n in variables if not n.startswith("__")} | names
            for name in sorted(names):
                if name in variables:
                    self._item(variables, name, -1, f"{module}.{name}")
                else:
                    absent.append(name)
                    self.absent.append((variables, name))
                    if name in _BUILTINS:
                        found = _BUILTINS[name]
                        self.compared.entries.add(_BUILTINS, name, found)
                        if not isinstance(found, (types.BuiltinFunctionType, type)):
                            self._item(_BUILTINS, name, -1, name)
            if absent:
                self.compared.tests.append(
                    functools.partial(variables.keys().isdisjoint, tuple(absent))
                )
        for name in sorted(self.scope.modules):
            found = sys.modules.get(name)
            if found is not None:
                self.compared.entries.add(sys.modules, name, found)
                self._queue.append((found, -1, name, Reference(sys.modules, name, dict_item)))
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
            and not (code.co_name.startswith("<") and code.co_name != "<lambda>")
            and not code.co_filename.startswith(LIBRARY)
        ]
        if not missing:
            return
        for function in self.scope.functions(missing):
            self._follow(function, -1, function.__name__)
        self._drain()

    def _mark(
        self, kind: str, value: Any, detail: Any, parent: int, step: str, reference: Reference
    ) -> int:
        self.marks.append(Mark(kind, value, detail, parent, step, reference, reference.read()))
        return len(self.marks) - 1

    def _item(self, owner: Any, key: Any, parent: int, step: str) -> None:
        value = dict_item(owner, key)
        reference = Reference(owner, key, dict_item)
        if not self._is_only_written(key, value, parent, step, reference):
            self._compare(self.compared.entries, owner, key, value)
            self._queue.append((value, parent, step, reference))

    def _part(self, holder: Any, name: str, parent: int, step: str) -> None:
        """A part that is read with getattr: a slot, a cell, the defaults of a function."""
        reference = Reference(holder, name, getattr)
        value = reference.read()
        if value is MISSING:
            self._mark("atom", MISSING, None, parent, step, reference)
            self.compared.tests.append(lambda: reference.read() is MISSING)
        elif not self._is_only_written(step[1:], value, parent, step, reference):
            self._compare(self.compared.parts, holder, name, value)
            self._queue.append((value, parent, step, reference))

    def _compare(self, table: Table, owner: Any, key: Any, value: Any) -> None:
        """Compare what stands somewhere by identity; of tensors, `World.settle` says how."""
        if not is_tensor(value):
            table.add(owner, key, value)

    def _follow(self, value: Any, parent: int, step: str) -> None:
        """Walk through an object that stands nowhere by name."""
        self._queue.append((value, parent, step, Reference(value, None, itself)))

    def _is_only_written(
        self, name: str, value: Any, parent: int, step: str, reference: Reference
    ) -> bool:
        """Note a name that is only set, counted up, asked about or put into: little depends on it.

        Counters are compared by the answers to what is asked of them.
        """
        use = use_of(self.scope, name, value, reference)
        if use is None:
            return False
        detail = use.questions if use.kind == "counted" else None
        kind = None if use.kind == "written" else type(value)
        at = self._mark(use.kind, kind, detail, parent, step, reference)
        if use.kind == "collected":
            self._collect(value, at, use.puts)
            if use.keys:
                self.compared.tests.append(functools.partial(stands, reference, value))
                self._picked(value, use.keys, at)
        return True

    def _picked(self, container: Any, keys: Iterable[Any], at: int) -> None:
        """Compare those items of a container that code reads under constant keys."""
        for key in sorted(keys, key=repr):
            reference = Reference(
                container, key, dict_item if isinstance(container, dict) else getitem
            )
            value = reference.read()
            if isinstance(container, dict) and value is not MISSING:
                self._compare(self.compared.entries, container, key, value)
            elif not is_tensor(value):
                self.compared.tests.append(functools.partial(stands, reference, value))
            if value is MISSING:
                self._mark("atom", MISSING, None, at, f"[{key!r}]", reference)
            else:
                self._queue.append((value, at, f"[{key!r}]", reference))

    def _collect(self, container: Any, at: int, uses: Iterable[tuple[str, Any]]) -> None:
        """Keep a copy of a container that is put into, and note the items that are set."""
        if not isinstance(container, tuple):
            self.containers.append((at, (), container, copied(container)))
        get = dict_item if isinstance(container, dict) else getitem
        for how, key in sorted(uses, key=repr):
            if how == "append" and key is not None:
                self.containers.append((at, (key,), container[key], copied(container[key])))
            elif how != "append":
                if how == "count":
                    self.counted.setdefault(id(container), set()).add(key)
                pairs = dict(container) if isinstance(container, dict) else range(len(container))
                for k in list(pairs) if key is ANY else [key]:
                    self._mark("written", None, None, at, f"[{k!r}]", Reference(container, k, get))

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
        kind = type(value)  # isinstance() would ask an object for its class
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

    def _hooks(self, group: dict[int, Any], parent: int) -> None:
        """Hooks of a tensor: the functions count, not the keys under which they are kept."""
        keys = list(group)
        reference = Reference(group, None, itself)
        at = self._mark("list", list, len(keys), parent, ".hooks", reference)
        self.compared.tests.append(lambda: list(group) == keys)
        for key in keys:
            self._queue.append((group[key], at, ".hook", Reference(group, key, dict_item)))

    def _mapping(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        if hasattr(type(value), "_read_anew"):
            # Options of an optimizer: all but the tensors is read in every replay.
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

    def _note_unset(self, entries: Any, at: int) -> None:
        self.unset += [(at, entries, name) for name in self.scope.stored if name not in entries]

    def _class(self, value: type, parent: int, step: str, reference: Reference) -> None:
        at = self._mark("class", value, None, parent, step, reference)
        if value in (attrgetter, methodcaller):
            self.scope.everything = True
        for kind in value.__mro__:
            if kind not in self._visited and kind.__flags__ & HEAP_TYPE:
                self._visited.add(kind)
                self._class_members(kind, at)
        meta = type(value)
        if issubclass(meta, abc.ABCMeta):
            token = abc.get_cache_token()  # grows when a class is registered anywhere
            self.marks[at].detail = token
            self.compared.tests.append(lambda: abc.get_cache_token() == token)
        if meta is not type and not is_closed(meta) and meta.__module__ not in _STANDARD:
            self._follow(meta, at, ".__class__")

    def _class_members(self, kind: type, at: int) -> None:
        """Attributes of a class that code names, and methods that ran."""
        entries, scope = kind.__dict__, self.scope
        library = is_closed(kind)
        self._note_unset(entries, at)
        for name in sorted(entries):
            value = entries[name]
            plain = not name.startswith(("__", "_abc_")) or name == "__match_args__"
            named = name in scope.attributes or (scope.everything and plain)
            if not (named and not library) and code_of(value) not in scope.codes:
                continue
            reference = Reference(kind, name, class_item)
            if not self._is_only_written(name, value, at, f".{name}", reference):
                self._compare(self.compared.classes, entries, name, value)
                self._queue.append((value, at, f".{name}", reference))
        if not library:
            self.compared.add_names(entries)
            self._mark("names", kind, list(entries), at, ".names", Reference(kind, None, itself))
            self.compared.parts.add(kind, "__mro__", kind.__mro__)

    def _module(
        self, value: types.ModuleType, parent: int, step: str, reference: Reference
    ) -> None:
        at = self._mark("module", value, None, parent, step, reference)
        entries, attributes = value.__dict__, self.scope.attributes
        self._note_unset(entries, at)
        closed = is_closed(value)
        for name in sorted(n for n in attributes if n in entries):
            inner = entries[name]
            if not closed:
                self._item(entries, name, at, f".{name}")
            elif isinstance(inner, types.ModuleType):
                self._queue.append((inner, at, f".{name}", Reference(entries, name, dict_item)))
            else:
                self.compared.entries.add(entries, name, inner)
                self._mark("same", inner, None, at, f".{name}", Reference(entries, name, dict_item))

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
        """An object of Python's own that leads to others: a method, a partial, a property."""
        at = self._mark("wrapper", type(value), None, parent, step, reference)
        for name in next(names for kind, names in WRAPPERS.items() if isinstance(value, kind)):
            self._part(value, name, at, f".{name}")
        if isinstance(value, functools.partial) and type(value) is not functools.partial:
            self._instance(value, at)

    def _builtin(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        if hasattr(value, "mapping"):  # what keys(), values() or items() gave
            at = self._mark("builtin", type(value).__name__, None, parent, step, reference)
            self._follow(value.mapping, at, ".mapping")
            return
        if value.__name__ in REFLECTIVE:
            self.scope.everything = True  # under another name
        holder = getattr(value, "__self__", None)
        at = self._mark("builtin", value.__name__, None, parent, step, reference)
        if holder is not None and not isinstance(holder, (types.ModuleType, type)):
            self._follow(holder, at, ".__self__")

    def _opaque(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Something that leads nowhere."""
        naming = isinstance(value, (attrgetter, methodcaller))
        if naming or value.__name__ in ("__setattr__", "__delattr__", "__getattribute__"):
            self.scope.everything = True
        self._mark("same", value, None, parent, step, reference)

    def _cached(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """A function with a cache: what it read when it last ran is as good as read now."""
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
        """A weak dictionary or set: its items of now, which the walk keeps for a moment."""
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
        """Refuse a cached function that reads objects: what is cached may be older than they."""
        held = [c.cell_contents for c in function.__closure__ or () if is_filled(c)]
        names = [n for n in function.__code__.co_names if n in function.__globals__]
        for value in (*held, *(function.__globals__[n] for n in names)):
            if not (is_atom(value) or callable(value) or isinstance(value, types.ModuleType)):
                raise Unguardable(
                    f"it calls {path_of(self.marks, parent, step)}, which caches what it reads "
                    f"from an object of type {type(value).__name__}; call it outside"
                )

    def _mover(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Something with a hidden state: a recording in which it moves is refused."""
        asked = self.scope.attributes & {"bit_generator", "getstate", "get_state"}
        if asked or isinstance(value, random.SystemRandom):
            raise Unguardable(
                f"it can read the state of the generator {path_of(self.marks, parent, step)}"
            )
        at = self._mark("same", value, None, parent, step, reference)
        state = functools.partial(state_of, value)
        self.movers.append((at, state, state()))

    def _object(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        kind = type(value)
        own = kind.__module__ or ""
        closed = own.split(".", 1)[0] in CLOSED[1:]
        if hasattr(kind, "__next__") and (closed or not instance_dict(value)):
            raise Unguardable(
                f"it can read the iterator {path_of(self.marks, parent, step)}, whose state cannot "
                "be compared; take its next item outside"
            )
        if own.startswith("tapegrad.") and not own.startswith(_WATCHED):
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

    def _instance(self, value: Any, at: int) -> None:
        """The attributes of an object: those in its dictionary, in slots, and of its class."""
        kind = type(value)
        # What replays read anew is not compared, unless code of the user reads it too.
        hidden = [n for n in getattr(kind, "_unguarded", ()) if n not in self.scope.named_by_user]
        entries = instance_dict(value)
        if entries is not None:
            self.compared.add_object(value, entries)
            self.members.append((at, value, list(entries)))
            self._members(entries, at, hidden)
            self._groups(value, entries, at)
        for base in kind.__mro__:
            if "__slots__" in base.__dict__ and base.__flags__ & HEAP_TYPE:
                for name in slots(base):
                    if name not in hidden and self._is_named(name):
                        self._slot(value, base, name, at)
        if kind not in self._visited:
            self._follow(kind, at, ".__class__")

    def _slot(self, value: Any, kind: type, name: str, at: int) -> None:
        """An attribute in a slot, read past methods of the user."""
        member = kind.__dict__.get(name)
        if not isinstance(member, types.MemberDescriptorType):
            return
        reference = Reference(value, member, slot_value)
        found = reference.read()
        if found is not MISSING and self._is_only_written(name, found, at, f".{name}", reference):
            return
        if not is_tensor(found):
            self.compared.tests.append(functools.partial(stands, reference, found))
        if found is MISSING:
            self._mark("atom", MISSING, None, at, f".{name}", reference)
        else:
            self._queue.append((found, at, f".{name}", reference))

    def _groups(self, value: Any, entries: dict[str, Any], at: int) -> None:
        """Dictionaries of an object whose entries are found under their names like attributes,
        and lists of options that replays read anew, but for the tensors in them."""
        for name in getattr(type(value), "_attributes_in", ()):
            held = entries.get(name)
            if type(held) is dict:
                self.compared.add_size(held)
                self._mark(
                    "list", dict, sorted(held), at, f".{name}", Reference(held, None, itself)
                )
                for key in sorted(held):
                    if self._is_named(key) or TREE_WALKS & self.scope.named_by_user:
                        self._item(held, key, at, f".{key}")
        for name in getattr(type(value), "_options_in", ()):
            groups = entries.get(name)
            if isinstance(groups, list) and name not in self.scope.named_by_user:
                before = list(groups)
                self.compared.entries.add(entries, name, groups)
                self.compared.add_list(groups, before)
                inner = self._mark(
                    "list", list, len(groups), at, f".{name}", Reference(entries, name, dict_item)
                )
                for i, group in enumerate(groups):
                    self._item(group, "params", inner, f"[{i}]['params']")

    def _members(self, entries: dict[str, Any], at: int, hidden: Iterable[str] = ()) -> None:
        for name in sorted(n for n in entries if isinstance(n, str)):
            if self._is_named(name) and name not in hidden:
                self._item(entries, name, at, f".{name}")

    def _is_named(self, name: str) -> bool:
        return name in self.scope.attributes or self.scope.everything


#: how objects are visited, by type, in this order; all others are ordinary objects
_VISITS: tuple[tuple[Any, Callable[..., None]], ...] = (
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
