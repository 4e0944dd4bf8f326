"""Names of PyTorch that can be imported, compared and written in annotations, but not used.

Comes in: a name and what to use instead. Goes out: a function that raises when called, a class that
raises when instantiated, or a dtype that raises when its NumPy dtype is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..core.dtypes import DType


def absent(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function that raises an error, which says what to use instead."""

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} does not exist in tapegrad; {instead}")

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__module__ = name.rpartition(".")[0]
    function.__doc__ = f"Raises: {instead}."
    return function


def absent_class(name: str, instead: str, *bases: type) -> Any:
    """A class that cannot be instantiated."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} does not exist in tapegrad; {instead}")

    module, _, last = name.rpartition(".")
    about = {"__new__": refuse, "__module__": module, "__doc__": f"Raises: {instead}."}
    return type(last, bases, about)


class NamedDType(DType):
    """A dtype that has a name and properties, but no tensors."""

    __slots__ = ()

    def __init__(self, name: str, category: int, itemsize: int, signed: bool = True) -> None:
        self.name = name
        self.category = category
        self.itemsize = itemsize
        self.is_signed = signed
        self.stored = True

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex dtype."""
        return self.name.startswith("complex")

    @property
    def numpy(self) -> np.dtype[Any]:
        raise TypeError(
            f"{self!r} is a name only: tapegrad has no tensors of this dtype; "
            "convert to float32 or int64 where the data come from"
        )
