"""Second import paths of modules: `tapegrad.hub` is `tapegrad.compat.torch.hub`.

Comes in: names in the package, each with the module that it means. An import by either path loads
the module and returns the same object. Called by `tapegrad/__init__.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class OtherPaths:
    """A finder at the end of `sys.meta_path`, so it is called only for names without a file."""

    def __init__(self, package: str, modules: Mapping[str, str]) -> None:
        self.modules = {f"{package}.{name}": module for name, module in modules.items()}
        sys.meta_path.append(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        loader: Any = _Found(self.modules[name])
        return ModuleSpec(name, loader)


class _Found:
    """Loads a module by its own path."""

    def __init__(self, module: str) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.module)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # Python has just set the spec of the second path
