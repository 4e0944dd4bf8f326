"""Attributes: where objects, classes and modules store values that code reads by name.

Comes in: an object that the walk has found. Goes out: its named attributes, added to the walk:
those in its dictionary, in slots, in its class and in base classes. Attributes that no code names
are not visited. `Reach` in `reach.py` inherits these methods and calls them.
"""

from __future__ import annotations

import abc
import functools
import types
from collections.abc import Iterable
from operator import attrgetter, methodcaller
from typing import Any

from .kinds import (
    HEAP_TYPE,
    TREE_WALKS,
    code_of,
    is_closed,
    is_tensor,
    slots,
    stands,
)
from .references import (
    MISSING,
    Reference,
    class_item,
    dict_item,
    instance_dict,
    itself,
    slot_value,
)
from .walk import ObjectWalk

#: modules of Python whose metaclasses hold nothing that users set
_STANDARD = {"abc", "enum", "typing"}


class AttributeWalk(ObjectWalk):
    """A walk that knows where objects, classes and modules store their attributes."""

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
        """Visit the attributes of a class that code names, and its methods that ran."""
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

    def _instance(self, value: Any, at: int) -> None:
        """Visit the attributes of an object: in its dictionary, in slots, and in its class."""
        kind = type(value)
        # Values that replays reread are not compared, unless user code reads them too.
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
        """Visit an attribute in a slot, without calling methods of the user."""
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
        """Visit dictionaries whose entries are read like attributes, and the tensors in option
        lists, whose other values replays reread."""
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
