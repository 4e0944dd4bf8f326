"""Observation: which Python code runs during a recorded call, and its side effects.

`Observer` is a context manager around one recorded call. `sys.setprofile` reports to it every
Python function that starts in this thread, and every C function that user code calls. Goes out: a
`Scope`, and the reason to refuse the recording if it has effects that a replay could not repeat:
files, threads, random numbers that are not tapegrad's, iterators from outside. Called by
`use/compiled.py`.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import os
import random
import sys
import sysconfig
import types
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Self

import numpy as np

from ...core import source
from ...core.naming import home_of
from .kinds import HEAP_TYPE, is_watched
from .layers import Layers
from .scope import Scope, names_of

#: packages whose code, except in those above, reads nothing that users set
_CLOSED = ("tapegrad", "numpy", "scipy", "llvmlite", "ml_dtypes", "cupy", "cupyx")
#: packages whose own files may be opened while a function is recorded
_WITH_FILES = ("tapegrad.core", "tapegrad.replay", "llvmlite")
_STANDARD = sysconfig.get_path("stdlib") + os.sep

#: file names of Python's import system
_IMPORTING = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
#: helper modules of Python, which read nothing that users set
_MACHINERY = {
    *("weakref", "_weakrefset", "abc", "_py_abc", "_collections_abc", "collections.abc"),
    *("linecache", "tokenize", "traceback", "warnings"),
}
#: modules of Python that run work in other threads or processes
_ELSEWHERE = ("concurrent", "asyncio", "multiprocessing", "queue", "subprocess")

#: C functions with effects outside of the program, which are refused
_EFFECTS = {
    "print": "it prints",
    "warn": "it warns",
    "warn_explicit": "it warns",
    "input": "it reads from the terminal",
    "open": "it opens a file",
    "fromfile": "it opens a file",
    "start_new_thread": "it starts a thread",
    "start_joinable_thread": "it starts a thread",
    "fork": "it starts a process",
    "system": "it starts a process",
    "fork_exec": "it starts a process",
}
#: modules of Python whose C functions return the state of the system, which is not compared
_SYSTEM = {
    "time",
    "posix",
    "nt",
    "gc",
    "_signal",
    "signal",
    "resource",
    "_socket",
    "select",
    "_imp",
}
#: other C functions that are refused, because a world does not contain what they use
_UNKNOWN = {
    "id": "it asks for the id of an object",
    "__import__": "it imports a module under a computed name",
    "cache_info": "it asks what a cache holds",
    "getrecursionlimit": "it asks the system for a limit",
    "setprofile": "it sets a profiler",
    "__subclasses__": "it lists the subclasses of a class",
    "now": "it reads the clock",
    "today": "it reads the clock",
    "utcnow": "it reads the clock",
}
#: C functions that access attributes by computed names
_REFLECTIVE = {
    *("setattr", "delattr", "vars", "dir", "eval", "exec", "globals", "locals", "format_map"),
    *("__getattribute__", "__setattr__", "__delattr__", "__reduce_ex__", "__reduce__", "_getframe"),
}
#: modules whose C functions read no attributes of their arguments
_PLAIN_MODULES = {
    *("builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools"),
    *("collections", "_collections", "sys", "os", "re", "_sre", "random", "_random", "weakref"),
    *("_weakref", "_weakrefset", "abc", "_abc", "enum", "types", "typing", "_typing", "copyreg"),
    *("_thread", "threading", "io", "_io", "_codecs", "_warnings", "_contextvars", "contextvars"),
    *("_string", "_bisect", "_heapq", "_struct", "_datetime", "datetime", "_decimal", "decimal"),
}
#: packages whose C functions read arrays and numbers, not attributes of users' objects
_PLAIN_PACKAGES = ("numpy", "scipy", "tapegrad", "ml_dtypes", "llvmlite", "cupy")
#: modules of Python, and of users' classes
_OWN_MODULES = {*sys.stdlib_module_names, "__main__", "None"}


class Observer:
    """The code that runs during one recorded call."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.refusal: str | None = None
        self.layers = Layers()
        self._known: set[Any] = set()
        self._user: set[CodeType] = set()
        #: code of packages that may open a file for user code
        self._readers: set[CodeType] = set()
        self._classes: set[type] = set()
        self._generators: set[int] = set()
        #: the frame of the import in progress: code that runs while a module loads does not count
        self._import: FrameType | None = None
        self._before: Any = None
        self._bounds = self.layers.codes

    def __enter__(self) -> Self:
        self._random = random.getstate()
        self._numpy = _numpy_state()
        self._before = sys.getprofile()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc: object) -> None:
        if sys.getprofile() != self._see:
            self._refuse("it sets a profiler", None)
        self.stop()
        if random.getstate() != self._random or not _same_state(self._numpy, _numpy_state()):
            self._refuse("it draws random numbers that are not tapegrad's", None)

    def stop(self) -> None:
        """Restore the previous profiler, if that is not done yet."""
        self._import = None
        if sys.getprofile() != self._see:
            return
        if self._before is None or callable(self._before):
            sys.setprofile(self._before)
        else:
            sys.setprofile(None)
            with contextlib.suppress(AttributeError, ValueError):
                self._before.enable()

    def pause(self) -> bool:
        """Stop observing until `resume`, while library code runs; returns whether it could."""
        if self._before is not None or sys.getprofile() != self._see:
            return False  # another profiler must see this code, or ours is not set
        sys.setprofile(None)
        return True

    def resume(self) -> None:
        sys.setprofile(self._see)

    def know(self, kind: type, first: types.FunctionType) -> None:
        """Add to the scope the code that a library function may run, found by names.

        These are methods of the class `kind` and global functions, in packages that are watched.
        """
        if kind in self._classes:
            return
        self._classes.add(kind)
        waiting, known = [first], {first}
        while waiting:
            function = waiting.pop()
            for code in _with_inner(function.__code__):
                self.scope.add(code, function.__globals__, library=True)
                names = names_of(code)
                found = [getattr(kind, name, None) for name in names.attributes]
                found += [function.__globals__.get(name) for name in names.variables]
                for value in found:
                    if isinstance(value, types.FunctionType) and value not in known:
                        known.add(value)
                        if is_watched(value.__module__):
                            waiting.append(value)

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._import is not None:
            if event == "return" and frame is self._import:
                self._import = None
        elif event == "call":
            code = frame.f_code
            if code.co_filename in _IMPORTING:
                self._import = frame
            elif (code, id(frame.f_globals)) not in self._known:
                self._enter(frame, code)
            if code.co_flags & _GENERATES:
                self._resumed(frame)
            elif code in self._bounds:
                self.layers.entered(frame)
        elif event == "return":
            if frame.f_code in self._bounds:
                self.layers.left()
        elif event == "c_call":
            if frame.f_code in self._user:
                self._called(frame, arg)
            elif arg is open and frame.f_code in self._readers:
                self._refuse("it opens a file", frame)
        before = self._before
        if before is not None and callable(before):
            before(frame, event, arg)

    def _enter(self, frame: FrameType, code: CodeType) -> None:
        """Add code to the scope when it first runs."""
        if _is_standard(code) and not self._is_called_by_user(frame):
            return
        self._known.add((code, id(frame.f_globals)))
        name = str(frame.f_globals.get("__name__", ""))
        written = code.co_filename.startswith(source.LIBRARY)  # also code generated at run time
        library = written or name.split(".", 1)[0] in _CLOSED
        if library and not name.startswith(_WITH_FILES):
            self._readers.add(code)
        if (library and not is_watched(name)) or name in _MACHINERY:
            return
        if name.split(".", 1)[0] in _ELSEWHERE:
            self._refuse("it hands work to another thread", frame)
        elif name == "importlib" and code.co_name == "import_module":
            self._refuse("it imports a module under a computed name", frame)
        if not library:
            self._user.add(code)
        self.scope.add(code, frame.f_globals, library)

    def _resumed(self, frame: FrameType) -> None:
        """A generator runs: refuse one that began before the call, whose state is unknown."""
        if frame.f_lasti <= _beginning(frame.f_code):
            self._generators.add(id(frame))
        elif id(frame) not in self._generators and frame.f_code in self._user:
            self._refuse("it takes the next item of a generator from outside", frame.f_back)

    def _called(self, frame: FrameType, function: Any) -> None:
        """Check a C function called by user code, or by Python's own code for user code."""
        if not self._is_called_by_user(frame):
            return
        if getattr(function, "__name__", "") in ("tofile", "dump"):
            self._refuse("it writes a file", frame)
        name = getattr(function, "__name__", "")
        holder = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None)
        free = holder is None or isinstance(holder, types.ModuleType)
        effect = _EFFECTS.get(name) if free else None
        if effect is None and (free or isinstance(holder, type) or name == "cache_info"):
            own = name == "id" and _is_standard(frame.f_code)  # copy.deepcopy() needs it
            effect = None if own else _UNKNOWN.get(name)
        if effect is not None:
            self._refuse(effect, frame)
        elif free and module in _SYSTEM:
            self._refuse(f"it asks the system, by {module}.{name}()", frame)
        elif isinstance(holder, io.IOBase):
            self._refuse("it reads or writes a file", frame)
        elif isinstance(holder, random.Random):
            self._refuse("it draws random numbers that are not tapegrad's", frame)
        elif name in ("getattr", "hasattr"):
            if name not in names_of(frame.f_code).variables:
                self.scope.everything = True  # called under another name
        elif name in _REFLECTIVE:
            self.scope.everything = True
        elif name == "format" and isinstance(holder, str):
            if "." in holder or "[" in holder:
                self.scope.everything = True
        elif not _is_plain(function, holder):
            self.scope.everything = True
            if _is_extension(function, holder):
                self._refuse(f"it calls {name}() of an extension that may read anything", frame)

    def _is_called_by_user(self, frame: FrameType | None) -> bool:
        """Whether the nearest caller outside of Python's own code is user code."""
        while frame is not None and _is_standard(frame.f_code):
            frame = frame.f_back
        return frame is not None and frame.f_code in self._user

    def _refuse(self, what: str, frame: FrameType | None) -> None:
        if self.refusal is not None:
            return
        while frame is not None and _is_standard(frame.f_code):
            frame = frame.f_back
        where = "" if frame is None else _at(frame)
        self.refusal = f"{what}{where}, which a replay would not do"


#: flags of code objects of generators
_GENERATES = 0x20 | 0x200


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _is_standard(code: CodeType) -> bool:
    """Whether code belongs to Python's own modules."""
    name = code.co_filename
    return name.startswith((_STANDARD, "<frozen ")) and "site-packages" not in name


def _at(frame: FrameType) -> str:
    return f", at {source.describe((frame.f_code, frame.f_lasti))}"


@functools.lru_cache(maxsize=1024)
def _beginning(code: CodeType) -> int:
    """The offset of the instruction at which a generator first runs."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


def _is_plain(function: Any, holder: Any) -> bool:
    """Whether a C function is known to read no attributes of its arguments."""
    module = getattr(function, "__module__", None)
    if module is None and holder is not None:
        module = home_of(type(holder))
    plain = module in _PLAIN_MODULES or str(module).startswith(_PLAIN_PACKAGES)
    return plain and not _is_nameless(type(holder))


def _is_extension(function: Any, holder: Any) -> bool:
    """Whether a C function belongs to a package that is neither Python's own nor known here."""
    module = getattr(function, "__module__", None)
    if module is None and holder is not None:
        name = getattr(function, "__name__", "")
        owner = next((b for b in type(holder).__mro__ if name in b.__dict__), object)
        if isinstance(owner.__dict__.get(name), types.FunctionType):
            return False
        if _is_nameless(owner):
            return True
        module = home_of(owner)
    return str(module).split(".", 1)[0] not in _OWN_MODULES


def _is_nameless(kind: type) -> bool:
    """Whether a class of an extension does not say its module: it seems to be Python's own."""
    return kind.__module__ == "builtins" and bool(kind.__flags__ & HEAP_TYPE)


def _numpy_state() -> Any:
    """The state of NumPy's global generator; None if `numpy.random` is not imported."""
    if "numpy.random" not in sys.modules:
        return None
    return np.random.get_state(legacy=False)


def _same_state(before: Any, after: Any) -> bool:
    if before is None or after is None:
        return True
    a, b = before["state"], after["state"]
    return a["pos"] == b["pos"] and bool(np.array_equal(a["key"], b["key"]))
