"""The import hook for `torch` and its modules: each is a facade over tapegrad's modules.

Comes in: a name such as "torch.nn.functional". Goes out: the spec of a `Facade`, or None if there
is no such module. A facade has up to three sources, in this order: the module of the same path in
`compat/torch` (names of PyTorch that tapegrad's own module lacks), tapegrad's module of that path,
and the entry in `paths.py`. Modules are loaded when imported or first read as an attribute.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .facade import Facade
from .paths import HIDDEN, PATHS

_PACKAGE = __name__.partition(".")[0]
_EXTRAS = f"{__package__}.torch"


def sources_of(name: str) -> list[ModuleType]:
    """The source modules of the facade `name`; empty if there is no such module."""
    path = name.removeprefix("torch")
    found = []
    if _exists(_EXTRAS + path):
        found.append(importlib.import_module(_EXTRAS + path))
    if path.lstrip(".").partition(".")[0] not in HIDDEN and _exists(_PACKAGE + path):
        module = importlib.import_module(_PACKAGE + path)
        if module not in found:  # some paths of tapegrad resolve to `compat/torch`
            found.append(module)
    if name in PATHS:
        found.append(importlib.import_module(PATHS[name].module, _PACKAGE))
    return found


def _exists(name: str) -> bool:
    """Whether a module exists; imports its parent packages."""
    parent = name.rpartition(".")[0]
    if name in sys.modules:
        return True
    if parent and (not _exists(parent) or not hasattr(importlib.import_module(parent), "__path__")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module without a spec
        return False


class Finder:
    """The finder of `torch` modules; `activate` puts it on `sys.meta_path`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            return None
        sources = sources_of(name)
        if not sources:
            return None
        loader: Any = _Loader(sources)
        origin = next((f for s in sources if (f := vars(s).get("__file__"))), None)
        spec = ModuleSpec(name, loader, origin=origin, is_package=True)
        spec.has_location = origin is not None
        return spec


class _Loader:
    """Creates the facade of a spec."""

    def __init__(self, sources: list[ModuleType]) -> None:
        self.sources = sources

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        only = PATHS[spec.name].names if spec.name in PATHS else ()
        return Facade(spec.name, self.sources, only)

    def exec_module(self, module: ModuleType) -> None:
        pass


FINDER: Any = Finder()


def load(name: str) -> ModuleType:
    """Put a facade into `sys.modules`, replacing any module of that name."""
    spec = FINDER.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return module
