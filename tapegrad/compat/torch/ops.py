"""`torch.ops`: operations that programs have registered, by namespace and name."""

from __future__ import annotations

from typing import Any, NoReturn

from ..custom_ops import REGISTERED

loaded_libraries: set[str] = set()


def load_library(path: str) -> NoReturn:
    """Raises OSError: operations compiled for PyTorch cannot be loaded."""
    raise OSError(f"{path}: operations compiled for PyTorch cannot be loaded by tapegrad")


def import_module(module: str) -> None:
    """Import a module that registers operations."""
    import importlib

    importlib.import_module(module)


class OpNamespace:
    """`torch.ops.mylib`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        operation = REGISTERED.get(f"{self._name}::{name}")
        if operation is None:
            raise AttributeError(
                f"'_OpNamespace' '{self._name}' object has no attribute '{name}'; "
                "torch.library registers operations"
            )
        return operation

    def __dir__(self) -> list[str]:
        return [n.partition("::")[2] for n in REGISTERED if n.startswith(f"{self._name}::")]


_namespaces: dict[str, OpNamespace] = {}


def __getattr__(name: str) -> OpNamespace:
    if name.startswith("__"):
        raise AttributeError(name)
    return _namespaces.setdefault(name, OpNamespace(name))
