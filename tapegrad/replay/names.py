"""Names: the values that a function's code reads from around it.

Globals, closure cells, and plain attributes of these and of arguments, such as `config.rate` or
`self.rate`; helper functions and methods that the code names are looked into as well. Compiled
functions compare these values in every call, so that a number in the recording is never stale.
"""

from __future__ import annotations

import dis
import types
from typing import Any

from ..source import LIBRARY

_MISSING = object()


class Names:
    """What the code of one function names."""

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.args = args  # of the first call, to see what their attributes are
        self.found: list[tuple[Any, str]] = []
        self.cells: list[Any] = []
        #: where to begin, (holder, key), and the attributes to follow from there
        self.paths: dict[Any, tuple[Any, tuple[str, ...]]] = {}
        self.seen: set[Any] = set()
        plain, instance = function, _MISSING
        while not isinstance(plain, types.FunctionType):
            instance = getattr(plain, "__self__", instance)
            inner = getattr(plain, "__func__", None) or getattr(plain, "__wrapped__", None)
            if inner is None and hasattr(type(plain), "forward"):
                inner, instance = type(plain).forward, plain
            if inner is None or inner is plain:
                return
            plain = inner
        if instance is _MISSING:
            self._visit(plain, None, 0)
        else:
            self._visit(plain, (([instance], 0), ()), 1)
        self.args = ()

    def values(self, args: tuple[Any, ...]) -> list[Any]:
        """What the names stand for now."""
        found = [holder.get(name) for holder, name in self.found]
        found += [cell.cell_contents for cell in self.cells if _filled(cell)]
        for (holder, key), names in self.paths.values():
            value = _follow(_start(holder, key, args), names)
            found.append(value if isinstance(value, _COMPARED) else None)
        return found

    def _visit(self, function: types.FunctionType, bound: Any, first: int) -> None:
        """Look into a function whose first parameter is what `bound` leads to, if that is known.

        `first` is the parameter that the first argument of the call goes to; None inside helpers.
        """
        if (function, bound is None) in self.seen or len(self.seen) > 200:
            return
        self.seen.add((function, bound is None))
        self.cells += list(function.__closure__ or ())
        codes = [function.__code__]
        names: set[str] = set()
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in sorted(names):
            if name in function.__globals__:
                self.found.append((function.__globals__, name))
        inner = [c.cell_contents for c in function.__closure__ or () if _filled(c)]
        inner += [function.__globals__[n] for n in sorted(names) if n in function.__globals__]
        for value in inner:
            value = getattr(value, "__wrapped__", value)
            if isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__:
                self._visit(value, None, -1)
        self._follow_attributes(function, bound, first)

    def _follow_attributes(self, function: types.FunctionType, bound: Any, first: int) -> None:
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        parameters = code.co_varnames[: code.co_argcount]
        start: Any = None
        names: tuple[str, ...] = ()
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and start is not None:
                names = (*names, name)
                self._enter(start, names)
                continue
            start, names = None, ()
            if isinstance(name, tuple) and instruction.opname.startswith("LOAD_FAST"):
                name = name[-1]  # one instruction that loads two variables
            if not isinstance(name, str):
                continue
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                start = (function.__globals__, name)
            elif name in cells and instruction.opname.startswith("LOAD_"):
                start = (cells[name], None)
            elif instruction.opname.startswith("LOAD_FAST") and name in parameters:
                place = parameters.index(name)
                if place == 0 and bound is not None:
                    start, names = bound
                elif first >= 0:
                    start = (None, place - first)

    def _enter(self, start: Any, names: tuple[str, ...]) -> None:
        """Watch an attribute that is a plain value now; look into one that is a method."""
        holder, key = start
        owner = _follow(_start(holder, key, self.args), names[:-1])
        value = _follow(owner, names[-1:])
        if hasattr(type(owner), "_compiled_copy"):
            return  # modules say themselves when an attribute changes
        if isinstance(value, types.FunctionType):
            library = value.__code__.co_filename.startswith(LIBRARY)
            if not library and not isinstance(owner, types.ModuleType):
                self._visit(value, (start, names[:-1]), -1)
        elif isinstance(value, _COMPARED):
            self.paths[id(holder), key, names] = (start, names)


#: attributes of these types are compared. Containers are not: those of an optimizer, for example,
#: hold numbers that a replay reads anew
_COMPARED = (bool, int, float, complex, str, bytes)


def _start(holder: Any, key: Any, args: tuple[Any, ...]) -> Any:
    if holder is None:
        return args[key] if key < len(args) else None
    if isinstance(holder, types.CellType):
        return holder.cell_contents if _filled(holder) else None
    return holder[key] if isinstance(holder, list) else holder.get(key)


def _follow(value: Any, names: tuple[str, ...]) -> Any:
    """An attribute of an attribute; no code of the user runs here."""
    for name in names:
        if isinstance(value, type):
            value = _of_class(value, name)
            continue
        attributes = getattr(value, "__dict__", None)
        found = _MISSING if attributes is None else attributes.get(name, _MISSING)
        value = _of_class(type(value), name) if found is _MISSING else found
    return value


def _of_class(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
