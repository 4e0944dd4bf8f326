"""Targets: what programs are built for, and run on.

A `Target` makes an `Executable` of a recorded program: that is all that the rest of `replay/` asks
for. A target that uses the passes also has a `Machine`. Passes know no machine, so they ask it
which dtypes it has, which expressions it can compute, what those cost, and whether they may find
bad data. `replay/cpu/` is a target with passes, `replay/reference/` one without.

Composites come in parts. A target that has better code for some of them, forward or backward, gets
them whole with `passes/regroup.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ...core.primitive import Primitive
    from .program import Program


class Executable(Protocol):
    """A program that a target has built, ready to be run."""

    @property
    def callbacks(self) -> Sequence[Any]:
        """Parts of the program that run as calls of Python between others.

        They may raise when others have written already, so that the caller must go back then.
        """

    def bind(self, arrays: Mapping[int, Any]) -> None:
        """Say which arrays some inputs of the program are, by index, in all runs from now on."""

    def expect(self, inputs: Sequence[int]) -> None:
        """Say which inputs each run brings: all others are bound."""

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        """Run on the expected inputs and the arrays of all results, which it fills.

        Returns what is wrong with the data, if something is: then nothing was written.
        """

    def run(self, arrays: tuple[Any, ...]) -> None:
        """`attempt`, raising what that returns."""

    def describe(self) -> str:
        """How it runs, in a few words, for `explain()`."""


class Target(Protocol):
    """What programs are built for."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot be used in this process; None if it can."""

    def build(self, program: Program, name: str = "a program") -> Executable:
        """Make a recorded program ready to be run; `name` is for messages about it."""


class Cost(NamedTuple):
    """What a machine has to say about a computation of one element."""

    fails: bool  # whether it may find bad data
    instructions: int


class Machine(Protocol):
    """What passes ask. Methods raise `NoLowering` where it cannot do what they ask about."""

    def check_dtype(self, dtype: Any) -> None:
        """Elements of a NumPy dtype can be computed with."""

    def examine(
        self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
    ) -> Cost:
        """What a primitive's expression costs on operands (dtypes and numbers), giving `dtype`."""

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        """Steps of a product's sums that are better a product of their own; 0 if none are.

        `along` says that neighbours in the memory of the larger operand are those of a sum.
        """

    def parts_at_a_time(self) -> int:
        """How many of those there may be before they are added."""

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        """Elements of a dtype can be reduced by a primitive's expression."""
