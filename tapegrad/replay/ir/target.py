"""Targets: what programs are built for, and run on.

A `Target` makes an `Executable` of a recorded program: that is all that the rest of `replay/` asks
for. A target that uses the passes also has a `Machine`. Passes know no machine, so they ask it
which dtypes it has, which expressions it can compute, what those cost, and whether they may find
bad data. `replay/cpu/` is a target with passes, `replay/reference/` has two without.

**Devices.** A program has a device (`Program.device`), that of the tensors which it was recorded
on. A target has an attribute `devices`, the kinds that it takes, such as `("cuda",)`; without it,
programs on the CPU are all that it gets. Inputs, constants, results and writes of a program on a
GPU are CuPy arrays, except for the values in `Program.host`, which are NumPy arrays as in eager
code. Those are of two kinds:

- numbers: float64 values from `param_groups` (the cells that `Replay` binds and refreshes), 0-d
  tensors on the CPU beside others on the GPU, such as the step count of an optimizer, and what is
  computed of such numbers;
- states of generators, two int64, which primitives with an input named `state` read and move on.

Host values are made of host values alone. So a target reads those that are inputs when a run
begins, computes the others on the host or passes them to kernels as arguments, and writes back the
results and writes among them, without waiting for the GPU. The numbers that a draw gives are on the
GPU, and the same as on the CPU. `bind` gives the array of a host input once, and its owner changes
the elements between runs: they are to be read in each.

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

    def is_better_sideways(self, rows: int, inner: int, columns: int, size: int) -> bool:
        """Whether the transpose of a product is better computed, and copied to where it belongs.

        The left side lies in columns; elements have `size` bytes.
        """

    def parts_at_a_time(self) -> int:
        """How many of those there may be before they are added."""

    def check_attention(self, dtype: Any, is_plain: bool) -> None:
        """Attention of a dtype can be computed in tiles; plain one has no mask and no dropout."""

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        """Elements of a dtype can be reduced by a primitive's expression."""
