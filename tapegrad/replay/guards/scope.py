"""Scopes: which names the code that ran can read or write, found in its instructions.

Comes in: code objects. Goes out: for each of them its `Names`, and for a whole recording its
`Scope`. The walk (`walk.py`) visits the values under these names, and `world.py` compares them.
Only the public instruction listing of `dis` is used; an unknown instruction counts as an ordinary
read. Called by `observe.py`.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from ...core.source import LIBRARY, describe
from .counters import Question, question_at, rises

#: instructions that read an attribute, a global variable, or a variable of an enclosing function
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_FREE = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_STORE = {"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"}
_DELETE = {"DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF"}
#: instructions that push one value and pop nothing
_LOCAL = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}
_SIMPLE = {"LOAD_CONST", "LOAD_SMALL_INT", *_LOCAL}

#: functions that read an attribute whose name is an argument
_BY_NAME = {"getattr", "hasattr"}
#: names through which code reaches all attributes of an object, or all variables of a module
_REFLECTION = {
    *("__dict__", "__getstate__", "__reduce__", "__reduce_ex__", "__getattribute__"),
    *("attrgetter", "methodcaller", "vars", "dir", "setattr", "delattr", "eval", "exec"),
    *("globals", "locals", "format_map", "_getframe", "__match_args__"),
}


#: functions of the library whose numbers are reread in every replay
_READ_ANEW = {"runtime_number", "decided"}


class _Any:
    """The type of `ANY`: a key that is not a constant."""


ANY = _Any()


@dataclass(frozen=True, slots=True)
class Names:
    """The names that one code object uses, by kind of use."""

    attributes: frozenset[str]
    variables: frozenset[str]  # globals that it reads
    imports: frozenset[tuple[str, int]]  # modules that it imports, with the number of dots
    stored: frozenset[str]  # attributes and variables that it sets or deletes
    #: read in an ordinary way, so that anything may depend on the value
    read: frozenset[str]
    #: read to be increased in place, as in `self.n += 1`
    counted: frozenset[str]
    #: those of them that change by anything but a positive constant
    moved: frozenset[str]
    #: set or deleted, except by such increases
    assigned: frozenset[str]
    #: pairs of a name and a question about its number
    asked: frozenset[tuple[str, Question]]
    #: read to put a value into it, as in `losses.append(x)` or `metrics["loss"] = x`: the name, the
    #: kind of change, and the key
    collected: frozenset[tuple[str, str, Any]]
    #: read to get an item under a constant key, as in `config["rate"]`: pairs of name and key
    indexed: frozenset[tuple[str, Any]]
    #: string constants, which may be keys
    strings: frozenset[str]
    #: whether it accesses attributes by computed names
    everything: bool


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """The names in the instructions of a code object; nested functions count when they run."""
    steps = list(dis.get_instructions(code))
    attributes: set[str] = set()
    variables: set[str] = set()
    imports: set[tuple[str, int]] = set()
    stored: set[str] = set()
    read: set[str] = set()
    counted: set[str] = set()
    moved: set[str] = set()
    assigned: set[str] = set()
    asked: set[tuple[str, Question]] = set()
    increments: set[int] = set()  # indices of the steps that store an increased value
    collected: set[tuple[str, str, Any]] = set()
    indexed: set[tuple[str, Any]] = set()
    everything = False
    for i, step in enumerate(steps):
        operation, name = step.opname, step.argval
        if operation == "IMPORT_NAME":
            imports.add((name, _level(steps, i)))
        elif operation in _STORE or operation in _DELETE:
            stored.add(name)
            if i not in increments:
                assigned.add(name)
            (variables if operation.endswith("GLOBAL") else attributes).add(name)
        elif operation in _ATTRIBUTE or operation in _GLOBAL or operation in _FREE:
            if operation in _ATTRIBUTE:
                attributes.add(name)
            elif operation in _GLOBAL:
                variables.add(name)
            if name in _REFLECTION:
                everything = True
            if (end := _counted(steps, i)) is not None:
                counted.add(name)
                increments.add(end)
                if not rises(steps, i):
                    moved.add(name)
            elif (question := question_at(steps, i)) is not None:
                asked.add((name, question))
            elif (uses := _collecting(steps, i)) is not None:
                collected |= {(name, *use) for use in uses}
            elif _is_indexed(steps, i):
                indexed.add((name, steps[i + 1].argval))
            else:
                read.add(name)
    if "__setattr__" in attributes or "__delattr__" in attributes:
        constants = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
        attributes |= constants
        stored |= constants
    if _BY_NAME & variables:
        constants = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
        attributes |= constants
        read |= constants
        everything = everything or not _names_are_constant(steps)
    if any(step.opname == "MATCH_CLASS" for step in steps):
        everything = True  # patterns name attributes in constants, or by position
    return Names(
        frozenset(attributes),
        frozenset(variables),
        frozenset(imports),
        frozenset(stored),
        frozenset(read),
        frozenset(counted),
        frozenset(moved),
        frozenset(assigned),
        frozenset(asked),
        frozenset(collected),
        frozenset(indexed),
        frozenset(_strings(code) if not _READ_ANEW & variables else ()),
        everything,
    )


def _strings(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant


def _level(steps: list[Any], i: int) -> int:
    """The number of dots of an import: the constant that was pushed before the names."""
    before = steps[i - 2].argval if i >= 2 else 0
    return before if isinstance(before, int) else 0


def _counted(steps: list[Any], i: int) -> int | None:
    """The index of the step that stores a value loaded only for `+=` or `-=`, else None."""
    end = _increased(steps, i + 1)
    if end is None:
        return None
    while steps[end].opname == "SWAP":
        end += 1
    same = steps[end].opname in _STORE and steps[end].argval == steps[i].argval
    return end if same else None


def _increased(steps: list[Any], start: int) -> int | None:
    """The index after the in-place operation whose left operand was just pushed, else None."""
    depth = 0
    for i in range(start, len(steps) - 1):
        step = steps[i]
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None
        depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        if depth < 0:
            return None
        if depth == 0 and step.opname != "NOP":
            in_place = step.opname == "BINARY_OP" and step.argrepr in ("+=", "-=")
            return i + 1 if in_place else None
    return None


#: methods of lists and deques that add items and read nothing
_PUTTING = {"append", "extend"}
_METHOD = {"LOAD_METHOD", "LOAD_ATTR"}


def _collecting(steps: list[Any], i: int) -> list[tuple[str, Any]] | None:
    """The uses of a container that is loaded only to put values into it, else None.

    A use is the kind of change ("append", "store" or "count") and the key. If the container is
    stored in a local variable first, these are the uses of the variable.
    """
    following = steps[i + 1].opname if i + 1 < len(steps) else ""
    if following != "STORE_FAST":
        use = _putting(steps, i + 1)
        return None if use is None else [use]
    name = steps[i + 1].argval
    uses = []
    for k, step in enumerate(steps):
        if "_FAST" not in step.opname or step.opname == "STORE_FAST":
            continue
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if name in names:
            use = _putting(steps, k + 1) if step.opname in _LOCAL else None
            if use is None:
                return None
            uses.append(use)
    return uses


def _putting(steps: list[Any], i: int) -> tuple[str, Any] | None:
    """The change, from a step on, to a container that was just pushed; None for other uses."""
    following = [step.opname for step in steps[i : i + 4]]
    if following and following[0] in _METHOD:
        if steps[i].argval == "setdefault":
            return _putting_by_default(steps, i + 1)
        return ("append", None) if steps[i].argval in _PUTTING else None
    if len(following) < 2 or following[0] not in _SIMPLE:
        return None
    key = _constant_key(steps[i])
    if following[1] == "STORE_SUBSCR":
        return "store", key
    inner = steps[i + 2] if i + 2 < len(steps) else steps[i]
    if following[1] == "BINARY_SUBSCR" and inner.opname in _METHOD:
        return ("append", key) if inner.argval in _PUTTING and key is not ANY else None
    if following[1:] == ["COPY", "COPY", "BINARY_SUBSCR"]:
        end = _increased(steps, i + 4)
        while end is not None and steps[end].opname == "SWAP":
            end += 1
        if end is not None and steps[end].opname == "STORE_SUBSCR":
            return "count", key
    return None


def _putting_by_default(steps: list[Any], i: int) -> tuple[str, Any] | None:
    """The use in `setdefault(key, []).append`, after its first name: that of `[key].append`."""
    around = [step for step in steps[i : i + 6] if step.opname != "PRECALL"][:4]
    if [step.opname for step in around[1:3]] != ["BUILD_LIST", "CALL"] or around[1].arg:
        return None
    key = _constant_key(around[0])
    appends = around[3].opname in _METHOD and around[3].argval in _PUTTING
    return ("append", key) if appends and key is not ANY else None


def _constant_key(step: Any) -> Any:
    """The string or integer that a step pushes as a constant, else `ANY`."""
    constant = step.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
    return step.argval if constant and isinstance(step.argval, (str, int)) else ANY


def _is_indexed(steps: list[Any], i: int) -> bool:
    """Whether a container is loaded only to get one item under a constant key."""
    return (
        i + 2 < len(steps)
        and steps[i + 1].opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        and isinstance(steps[i + 1].argval, (str, int))
        and steps[i + 2].opname == "BINARY_SUBSCR"
    )


def _names_are_constant(steps: list[Any]) -> bool:
    """Whether each call of `getattr` and `hasattr` has a constant name."""
    for i, step in enumerate(steps):
        if step.opname not in _GLOBAL or step.argval not in _BY_NAME:
            continue
        depth = 0
        for k in range(i + 1, len(steps) - 1):
            if steps[k].opname in ("PUSH_NULL", "NOP"):
                continue
            if steps[k].opcode in dis.hasjrel or steps[k].opcode in dis.hasjabs:
                return False
            depth += dis.stack_effect(steps[k].opcode, steps[k].arg, jump=False)
            if depth == 1 and steps[k + 1].opname == "LOAD_CONST":
                following = steps[k + 2].opname if k + 2 < len(steps) else ""
                if not isinstance(steps[k + 1].argval, str) or following.startswith("FORMAT"):
                    return False
                break
            if depth != 1 and depth < 1:
                return False
        else:
            return False
    return not any(step.opname == "BUILD_STRING" for step in steps)


class Scope:
    """All names that the code of one recording uses."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        #: by id of a module's dictionary: the dictionary, and the variables that code there reads
        self.variables: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self.modules: set[str] = set()
        #: ids of the dictionaries of modules whose variables are accessed by computed names
        self.whole: set[int] = set()
        self.attributes: set[str] = set()
        self.named_by_user: set[str] = set()
        self.stored: set[str] = set()
        self.read: set[str] = set()
        self.counted: set[str] = set()
        self.moved: set[str] = set()
        self.assigned: set[str] = set()
        self.asked: dict[str, set[Question]] = {}
        self.collected: dict[str, set[tuple[str, Any]]] = {}
        self.strings: set[str] = set()
        self.indexed: dict[str, set[Any]] = {}
        self.everything = False
        self._searched: set[CodeType] = set()
        self._functions: list[weakref.ref[FunctionType]] = []

    def add(self, code: CodeType, variables: dict[str, Any], library: bool) -> None:
        """Add code that ran with these global variables."""
        self.codes.add(code)
        names = names_of(code)
        self.attributes |= names.attributes
        self.read |= names.read
        if library:
            self.read |= names.counted | {name for name, *_ in names.collected}
            self.read |= {name for name, _ in (*names.indexed, *names.asked)}
        else:
            self.named_by_user |= names.attributes
            self.stored |= names.stored
            self.counted |= names.counted
            self.moved |= names.moved
            self.assigned |= names.assigned
            for name, question in names.asked:
                self.asked.setdefault(name, set()).add(question)
            for name, how, key in names.collected:
                self.collected.setdefault(name, set()).add((how, key))
            self.strings |= names.strings
            for name, key in names.indexed:
                self.indexed.setdefault(name, set()).add(key)
            self.everything = self.everything or names.everything
        wanted = names.variables
        if library:
            # Functions and classes of the library do not change; its registries do.
            wanted = frozenset(n for n in wanted if _is_registry(variables.get(n)))
        known = self.variables.setdefault(id(variables), (variables, set()))
        known[1].update(wanted)
        if not library and names.variables & {"globals", "eval", "exec", "vars"}:
            self.whole.add(id(variables))
        for name, level in names.imports if not library else ():
            self.modules.update(_modules(name, level, variables))

    def covers(self, other: Scope) -> bool:
        """Whether this scope includes the other."""
        return (
            other.codes <= self.codes
            and other.variables.keys() <= self.variables.keys()
            and (self.everything or not other.everything)
        )

    def size(self) -> int:
        """A number that grows with the scope."""
        return len(self.codes) + self.everything

    def joined(self, other: Scope) -> Scope:
        """The union of two scopes."""
        both = Scope()
        for scope in (self, other):
            both.codes |= scope.codes
            both.modules |= scope.modules
            both.whole |= scope.whole
            both.attributes |= scope.attributes
            both.named_by_user |= scope.named_by_user
            both.stored |= scope.stored
            both.read |= scope.read
            both.counted |= scope.counted
            both.moved |= scope.moved
            both.assigned |= scope.assigned
            for name, questions in scope.asked.items():
                both.asked.setdefault(name, set()).update(questions)
            both.strings |= scope.strings
            for name, uses in scope.collected.items():
                both.collected.setdefault(name, set()).update(uses)
            for name, keys in scope.indexed.items():
                both.indexed.setdefault(name, set()).update(keys)
            both.everything = both.everything or scope.everything
            for key, (variables, names) in scope.variables.items():
                both.variables.setdefault(key, (variables, set()))[1].update(names)
        return both

    def line_of(self, name: str) -> str:
        """A note with the line that reads a name; empty if it is not known."""
        for code in self.codes:
            names = names_of(code)
            asked = {n for n, _ in names.asked}
            if code.co_filename.startswith(LIBRARY) or name not in names.read | asked:
                continue
            for step in dis.get_instructions(code):
                if step.argval == name and step.opname.startswith("LOAD"):
                    return f" (read at {describe((code, step.offset))})"
        return ""

    def functions(self, codes: Iterable[CodeType]) -> list[FunctionType]:
        """The functions with these codes, and others found before; each code is searched once."""
        wanted = [code for code in codes if code not in self._searched]
        if wanted:
            self._searched.update(wanted)
            for found in gc.get_referrers(*wanted):
                if isinstance(found, FunctionType) and found.__code__ in self._searched:
                    self._functions.append(weakref.ref(found))
        alive = (reference() for reference in self._functions)
        return [function for function in alive if function is not None]


def _is_registry(value: Any) -> bool:
    plain = (type(None), bool, int, float, str, bytes, tuple, frozenset)
    return not callable(value) and not isinstance(value, (*plain, type(sys)))


def _modules(name: str, level: int, variables: dict[str, Any]) -> Iterable[str]:
    """The names of the module that an import statement loads and of its parent packages."""
    if level:
        package = str(variables.get("__package__") or "").split(".")
        name = ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]
