"""Modules that stand under a second path: `tapegrad.hub` is `tapegrad.compat.torch.hub`.

Comes in: names in the package, each with the module that it means. Such a module is loaded when it
is imported by either path, and it is the same object. Called by `tapegrad/__init__.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class OtherPaths:
    """Stands last in `sys.meta_path`, so it is asked only for what has no file."""

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
        module.__spec__ = self.spec  # Python has just set that of the other path
