"""`torch.ops`: operations registered by programs, and those of PyTorch itself (`aten`)."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from ...core.tensor import Tensor
from ..custom_ops import REGISTERED

loaded_libraries: set[str] = set()


def load_library(path: str) -> NoReturn:
    """Raises OSError: operations compiled for PyTorch cannot be loaded."""
    raise OSError(f"{path}: operations compiled for PyTorch cannot be loaded by tapegrad")


def import_module(module: str) -> None:
    """Import a module that registers operations."""
    importlib.import_module(module)


class OpNamespace:
    """A namespace of registered operations, such as `torch.ops.mylib`."""

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


#: operations of PyTorch that have no function here; tables in packages refer to them
_NAMES_ONLY = (
    *(
        "_convolution",
        "convolution",
        "_pin_memory",
        "_sparse_addmm",
        "_sparse_mm_reduce_impl",
        "_to_copy",
        "alias",
        "index",
    ),
    *("slice",),
)


class AtenOverload:
    """`torch.ops.aten.add.Tensor`: calls the function of that name for any overload."""

    def __init__(self, operation: AtenOperation, overload: str) -> None:
        self._operation, self._overload = operation, overload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operation(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._operation._name}', overload='{self._overload}')>"


class AtenOperation:
    """An operation of PyTorch, such as `torch.ops.aten.add`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._overloads: dict[str, AtenOverload] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = _function(self._name)
        if function is None:
            raise NotImplementedError(
                f"torch.ops.aten.{self._name} is a name here, and no operation; call the function "
                "of torch that uses it"
            )
        return function(*args, **kwargs)

    def __getattr__(self, overload: str) -> AtenOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self._overloads.setdefault(overload, AtenOverload(self, overload))

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self._name}')>"


def _function(name: str) -> Any:
    """A function or method of tapegrad; None if there is none of that name."""
    library = importlib.import_module(__name__.partition(".")[0])
    for owner in (Tensor, library, library.nn.functional):
        function = getattr(owner, name, None)
        if callable(function):
            return function
    return None


class AtenNamespace:
    """`torch.ops.aten`: the operations of PyTorch that tapegrad has under the same name."""

    def __init__(self) -> None:
        self._operations: dict[str, AtenOperation] = {}

    def __getattr__(self, name: str) -> AtenOperation:
        if name not in self._operations:
            if name not in _NAMES_ONLY and _function(name) is None:
                raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
            self._operations[name] = AtenOperation(name)
        return self._operations[name]


_namespaces: dict[str, Any] = {"aten": AtenNamespace()}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _namespaces.setdefault(name, OpNamespace(name))
