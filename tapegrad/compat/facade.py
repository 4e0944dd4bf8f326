"""A module with PyTorch's name that exposes the contents of other modules, its sources.

Comes in: a name and the sources; the first source that has a name wins. Goes out: a module. Public
names that exist when the facade is made are copied into its dict, so reading them is as fast as in
the source; names that a source loads lazily are looked up at first use. Submodules are exposed as
facades too. An attribute set on a facade is also set in the sources that have it, so code that
patches a function of PyTorch patches the one that the library calls.
"""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType, UnionType
from typing import Any

from ..core.overriding import on_install
from .renames import rename_classes

#: names that source modules import for their own use
_TOOLS = {
    *("Any", "Callable", "IO", "Iterable", "Iterator", "NamedTuple", "NoReturn", "TYPE_CHECKING"),
    *("absent", "absent_class", "annotations", "cast", "contextmanager", "overload"),
}


class Facade(ModuleType):
    """A module of PyTorch. `only` are the names taken from the last source; () means all."""

    def __init__(self, name: str, sources: list[ModuleType], only: tuple[str, ...] = ()) -> None:
        super().__init__(name, sources[0].__doc__)
        limited = sources[-1] if only else None
        vars(self)["_facade"] = (tuple(sources), limited, only)
        _made.append(self)
        for source in reversed(sources):
            given = vars(source)
            for key in only if source is limited else [*given]:
                private = key.startswith("_") or key in _TOOLS
                if key in given and not private and _is_shown(given[key]):
                    vars(self)[key] = given[key]
        if "__version__" in vars(sources[0]):
            vars(self)["__version__"] = vars(sources[0])["__version__"]
        rename_classes(name, vars(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__config__", "__future__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "__all__":
            return self._exported()
        sources, limited, only = vars(self)["_facade"]
        error = None
        for source in sources:
            if source is limited and name not in only:
                continue
            try:
                value = _read(source, name)
            except AttributeError as problem:
                error = problem
                continue
            if _is_shown(value):
                vars(self)[name] = value
                rename_classes(self.__name__, {name: value})
                return value
        path = f"{self.__name__}.{name}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as problem:
            if problem.name != path:
                raise
        text = f"module {self.__name__!r} has no attribute {name!r}"
        hint = str(error).partition("; ")[2] if error is not None else ""
        raise AttributeError(f"{text}; {hint}" if hint else text, name=name, obj=None)

    def _exported(self) -> list[str]:
        """The names for `import *`: `__all__` of the sources; all public names if one has none."""
        listed = [vars(source).get("__all__") for source in vars(self)["_facade"][0]]
        if None in listed:
            names = {n for n in dir(self) if not n.startswith("_")}
        else:
            names = {name for each in listed for name in each}
        return sorted(name for name in names if hasattr(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Facade) and value.__name__ == f"{self.__name__}.{name}":
            for source in vars(self)["_facade"][0]:
                if isinstance(getattr(source, name, None), FunctionType):
                    return  # an import sets it; but `autograd.gradcheck` is the function, as there
        super().__setattr__(name, value)
        if not name.startswith("__") and not isinstance(value, ModuleType):
            for source in vars(self)["_facade"][0]:
                if name in vars(source):
                    setattr(source, name, value)

    def __dir__(self) -> list[str]:
        sources, limited, only = vars(self)["_facade"]
        names = {name for name in vars(self) if name != "_facade"}
        for source in sources:
            names |= {n for n in dir(source) if n[0] != "_"} if source is not limited else {*only}
        return sorted(names)

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}: tapegrad under PyTorch's name>"


_made: list[Facade] = []


def _refresh() -> None:
    """Copy the sources' current values: functions that make tensors now check for overrides."""
    for facade in _made:
        sources, limited, only = vars(facade)["_facade"]
        for source in reversed(sources):
            for key, value in vars(source).items():
                shown = key in vars(facade) and key[0] != "_" and _is_shown(value)
                if shown and (source is not limited or key in only):
                    vars(facade)[key] = value


on_install.append(_refresh)


def _read(source: ModuleType, name: str) -> Any:
    """An attribute; private ones of modules outside `compat` only if functions or types."""
    if not name.startswith("_") or f"{__package__}." in source.__name__:
        return getattr(source, name)
    value = getattr(source, name)
    if not isinstance(value, (type, FunctionType, UnionType)):
        raise AttributeError(name)
    return value


def _is_shown(value: Any) -> bool:
    """Whether a facade may expose a value: modules are exposed as facades instead."""
    return not isinstance(value, ModuleType) or isinstance(value, Facade)
