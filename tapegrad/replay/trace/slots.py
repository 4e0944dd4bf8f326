"""Slots: where the inputs of a program come from, and where its writes go.

Comes in: the arguments of a call. Goes out: the tensor of a slot (`find`). Every call looks it up
again: an argument by its position, a captured tensor by identity, the gradient of a leaf through
the leaf, a number through the dict that holds it, and memory that several tensors share through
those tensors (see `roots.py`). Made by `log.py` and `capture.py`, read by `use/replay.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core.arrays import over
from ...core.storage import owner_of
from ...core.tensor import Tensor, wrap
from ...core.xp import address


@dataclass(frozen=True, slots=True)
class Argument:
    """The tensor at this position among the tensors in the arguments."""

    index: int

    def find(self, arguments: Sequence[Tensor]) -> Tensor:
        return arguments[self.index]

    def __str__(self) -> str:
        return f"argument{self.index}"


@dataclass(frozen=True, slots=True)
class Captured:
    """A tensor that existed before the call: a parameter, a buffer, optimizer state."""

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
    """A number in a dict, which each replay reads again."""

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
    """The gradient of one of the function's results, given to backward."""

    index: int

    def __str__(self) -> str:
        return f"gradient{self.index}"


@dataclass(frozen=True, slots=True)
class Span:
    """The joint memory of its members, and the offset of each in it, in elements."""

    members: tuple[Argument | Captured, ...]
    offsets: tuple[int, ...]
    size: int

    def find(self, arguments: Sequence[Tensor]) -> Tensor:
        """A 1-d tensor over all of the memory."""
        array = self.members[0].find(arguments)._array
        return wrap(over(array, address(array) - self.offsets[0] * array.itemsize, self.size))

    def fits(self, arguments: Sequence[Tensor]) -> bool:
        """Whether the members have the same offsets in one memory as when recorded."""
        arrays = [member.find(arguments)._array for member in self.members]
        size, first = arrays[0].itemsize, address(arrays[0]) - self.offsets[0] * arrays[0].itemsize
        owners = {id(owner_of(a)) for a in arrays}
        return len(owners) == 1 and all(
            address(a) - first == offset * size
            for a, offset in zip(arrays, self.offsets, strict=True)
        )

    def __str__(self) -> str:
        return f"memory of {', '.join(map(str, self.members))}"


Slot = Argument | Captured | GradOf | Number | Cotangent | Span
