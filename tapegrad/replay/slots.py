"""Slots: where the inputs of a program come from, and where its writes go.

A slot is found anew in every call: an argument by its place, a captured tensor by identity, the
gradient of a leaf through the leaf, a number through the dict that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..tensor import Tensor


@dataclass(frozen=True, slots=True)
class Argument:
    """The tensor at this place among the tensors in the arguments."""

    index: int

    def find(self, arguments: Sequence[Tensor]) -> Tensor:
        return arguments[self.index]

    def __str__(self) -> str:
        return f"argument{self.index}"


@dataclass(frozen=True, slots=True)
class Captured:
    """A tensor that was there before the call: a parameter, a buffer, optimizer state."""

    tensor: Tensor

    def find(self, arguments: Sequence[Tensor]) -> Tensor:
        return self.tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Captured) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return hash(self.tensor.id)

    def __str__(self) -> str:
        return f"tensor{self.tensor.id}"


@dataclass(frozen=True, slots=True)
class GradOf:
    """The `.grad` that a leaf has when the call begins."""

    leaf: Argument | Captured

    def find(self, arguments: Sequence[Tensor]) -> Tensor:
        grad = self.leaf.find(arguments)._grad
        assert grad is not None
        return grad

    def __str__(self) -> str:
        return f"{self.leaf}.grad"


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number in a dict, read anew before each replay."""

    holder: Any
    key: Any
    index: int | None

    def read(self) -> Any:
        value = self.holder[self.key]
        return value if self.index is None else value[self.index]

    def _identity(self) -> tuple[Any, ...]:
        return id(self.holder), self.key, self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other._identity() == self._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        return f"{self.key}" if self.index is None else f"{self.key}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Cotangent:
    """The gradient that backward is given for one of the function's results."""

    index: int

    def __str__(self) -> str:
        return f"gradient{self.index}"


Slot = Argument | Captured | GradOf | Number | Cotangent
