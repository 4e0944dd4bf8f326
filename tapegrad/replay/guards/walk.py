"""The walk over plain objects: the queue, the marks, and how a stored value is compared.

Comes in: a `Scope` (the names in the code that ran), roots, and the arguments of a call. Goes out:
marks in the order of the walk, what is compared by identity (`comparisons.py`), and copies of
containers. It runs no code of the objects. `attributes.py` adds where objects keep their
attributes, and `reach.py` adds how each type is visited.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from operator import getitem
from typing import Any

from ...core.source import LIBRARY
from ...core.tensor import Tensor
from .comparisons import Comparisons, Table
from .kinds import (
    copied,
    is_tensor,
    stands,
)
from .references import (
    MISSING,
    Mark,
    Reference,
    dict_item,
    itself,
)
from .scope import ANY, Scope
from .uses import use_of

_BUILTINS: dict[str, Any] = builtins.__dict__


class ObjectWalk:
    """One walk from roots through plain objects; a subclass defines how each type is visited."""

    def __init__(self, scope: Scope, roots: list[tuple[str, Any]], objects: list[Any]) -> None:
        self.scope = scope
        self.roots = roots
        self.objects = objects  # among the arguments of the call
        self.marks: list[Mark] = []
        self.compared = Comparisons()
        #: tensors, by position of their marks
        self.tensors: dict[int, Tensor] = {}
        #: containers: position of a mark, keys from there to the container, the container, a copy
        self.containers: list[tuple[int, tuple[Any, ...], Any, Any]] = []
        #: by id of a container: the keys whose items are counted up
        self.counted: dict[int, set[Any]] = {}
        #: objects: position, the object, the names of its attributes
        self.members: list[tuple[int, Any, list[str]]] = []
        #: objects with hidden state that may change: position, a function that reads it, the state
        self.movers: list[tuple[int, Callable[[], Any], Any]] = []
        #: variables of modules that code names and that do not exist
        self.absent: list[tuple[dict[str, Any], str]] = []
        #: names that code sets and that do not exist yet, in modules, classes and functions
        self.unset: list[tuple[int, Any, str]] = []
        #: by id of an object: its position; the marks and `_kept` keep the objects alive
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
        """Visit functions that ran but that only objects outside of the walk refer to."""
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
        """Compare and queue a part that is read with getattr, such as a function's defaults."""
        reference = Reference(holder, name, getattr)
        value = reference.read()
        if value is MISSING:
            self._mark("atom", MISSING, None, parent, step, reference)
            self.compared.tests.append(lambda: reference.read() is MISSING)
        elif not self._is_only_written(step[1:], value, parent, step, reference):
            self._compare(self.compared.parts, holder, name, value)
            self._queue.append((value, parent, step, reference))

    def _compare(self, table: Table, owner: Any, key: Any, value: Any) -> None:
        """Compare a stored value by identity; tensors are left to `World.settle`."""
        if not is_tensor(value):
            table.add(owner, key, value)

    def _follow(self, value: Any, parent: int, step: str) -> None:
        """Queue an object that is not stored under a name or key."""
        self._queue.append((value, parent, step, Reference(value, None, itself)))

    def _is_only_written(
        self, name: str, value: Any, parent: int, step: str, reference: Reference
    ) -> bool:
        """Mark a value that code only sets, counts, asks about or puts into; whether it is one.

        Counters are compared by the answers to the questions about them.
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
        """Compare the items of a container that code reads under constant keys."""
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
        """Keep a copy of a container that code puts values into; mark the items that it sets."""
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

    def _note_unset(self, entries: Any, at: int) -> None:
        self.unset += [(at, entries, name) for name in self.scope.stored if name not in entries]

    def _is_named(self, name: str) -> bool:
        return name in self.scope.attributes or self.scope.everything

    def _visit(self, value: Any, parent: int, step: str, reference: Reference) -> None:
        """Visit one object: see `Reach`."""
        raise NotImplementedError
