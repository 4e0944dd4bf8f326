"""Targets: the machines that programs are compiled for.

Passes know no machine. What they must know of one, they ask a `Target`: which dtypes it has, which
expressions it can compute, what they cost, and whether they may find bad data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ...core.primitive import Primitive


class Cost(NamedTuple):
    """What a target has to say about a computation of one element."""

    fails: bool  # whether it may find bad data
    instructions: int


class Target(Protocol):
    """A machine. Its methods raise `NoLowering` where it cannot do what they ask about."""

    def check_dtype(self, dtype: Any) -> None:
        """Elements of a NumPy dtype can be computed with."""

    def examine(
        self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
    ) -> Cost:
        """What a primitive's expression costs on operands (dtypes and numbers), giving `dtype`."""

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        """Elements of a dtype can be reduced by a primitive's expression."""
