"""Targets: what programs are built for, and run on.

A `Target` builds an `Executable` from a recorded program: the rest of `replay/` asks for no more. A
target that uses the passes also has a `Machine`. Passes know no machine, so they ask it which
dtypes and expressions it can compute, what those cost, and whether they may find bad data.
`replay/cpu/` and `replay/cuda/` are targets with passes, `replay/reference/` has two without.

**Devices.** A program has a device (`Program.device`), that of the tensors which it was recorded
on. A target may have an attribute `devices`, the kinds that it takes, such as `("cuda",)`; without
it, the target gets only programs on the CPU. Inputs, constants, results and writes of a program on
a GPU are CuPy arrays, except for the values in `Program.host`, which are NumPy arrays as in eager
code. Those are of two kinds:

- numbers: float64 values from `param_groups` (the cells that `Replay` binds and refreshes), 0-d
  tensors on the CPU beside others on the GPU, such as the step count of an optimizer, and values
  computed from such numbers;
- states of generators, two int64, which primitives with an input named `state` read and advance.

Host values are computed from host values alone. So a target reads the host inputs when a run
begins, computes other host values on the host or passes them to kernels as arguments, and writes
back host results and writes, without waiting for the GPU. Random numbers that are drawn are on the
GPU, and the same as on the CPU. `bind` gives the array of a host input once, and its owner changes
the elements between runs: read them in each run.

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
        """Parts of the program that call Python, between parts that do not.

        They may raise after other parts have written, so the caller must restore memory then.
        """

    def bind(self, arrays: Mapping[int, Any]) -> None:
        """Fix the arrays of some inputs, by index, for all runs from now on."""

    def expect(self, inputs: Sequence[int]) -> None:
        """Say which inputs each run passes: all others are bound."""

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        """Run on the expected inputs and the arrays of all results, which it fills.

        Returns an error if the data is bad: then nothing was written.
        """

    def run(self, arrays: tuple[Any, ...]) -> None:
        """Run like `attempt`, but raise the error."""

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
    """What a machine says about the computation of one element."""

    fails: bool  # whether it may find bad data
    instructions: int


class Machine(Protocol):
    """What passes ask about a target. A method raises `NoLowering` if the answer is no."""

    def check_dtype(self, dtype: Any) -> None:
        """The machine can compute with elements of a NumPy dtype."""

    def examine(
        self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
    ) -> Cost:
        """What a primitive's expression costs on operands (dtypes and numbers), giving `dtype`."""

    def steps_of_part(self, rows: int, inner: int, columns: int, along: bool) -> int:
        """Length of the parts into which to split a product's inner dimension; 0 for no split.

        `along` says that the larger operand is contiguous along the inner dimension.
        """

    def is_better_sideways(self, rows: int, inner: int, columns: int, size: int) -> bool:
        """Whether it is faster to compute the transpose of a product, and copy it to the result.

        The left operand is stored in columns; elements have `size` bytes.
        """

    def parts_at_a_time(self) -> int:
        """How many such parts there may be before they are summed."""

    def check_attention(self, dtype: Any, is_plain: bool) -> None:
        """Attention of a dtype can be computed in tiles; `is_plain`: no mask and no dropout."""

    def check_fold(self, primitive: Primitive, dtype: Any) -> None:
        """Elements of a dtype can be reduced by a primitive's expression."""
