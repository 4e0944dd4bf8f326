"""NumPy and CuPy as targets: they run a recorded program as it is, one primitive at a time.

Comes in: a recorded program. Goes out: an executable. There is no optimization, fusion or arena,
so this defines what a program means. If you doubt native code, compare with it:
`tapegrad.compile(f, backend="numpy")`. The primitives' own kernels run on NumPy or CuPy arrays.
Registered by `use/targets.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.arrays import as_array, copy_into
from ...core.device import CPU, cupy
from ...core.operands import on_one_device
from ...core.primitive import Primitive
from ...core.tape import Value
from ..ir.program import Apply, Program
from ..passes.regroup import regroup


class Interpreted:
    """A program, and the arrays that it runs on."""

    callbacks = ()

    def __init__(self, program: Program) -> None:
        self._program = program
        self._bound: dict[int, Any] = {}
        self._expected: list[int] = []

    def bind(self, arrays: Mapping[int, Any]) -> None:
        self._bound.update(arrays)

    def expect(self, inputs: Sequence[int]) -> None:
        self._expected = list(inputs)

    def run(self, arrays: tuple[Any, ...]) -> None:
        error = self.attempt(arrays)
        if error is not None:
            raise error

    def describe(self) -> str:
        library = "NumPy" if self._program.device == CPU else "CuPy"
        return f"run by {library}, one at a time"

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        program, count = self._program, len(self._expected)
        given = self._bound | dict(zip(self._expected, arrays[:count], strict=True))
        values: dict[int, Any] = {value.number: array for value, array in program.constants}
        values |= {x.value.number: given[i] for i, x in enumerate(program.inputs)}
        try:
            for step in program.applied():
                made = step.primitive.kernel(*self._operands(step, values), **step.params)
                outputs = made if isinstance(made, tuple) else (made,)
                for value, array in zip(step.outputs, outputs, strict=False):
                    values[value.number] = as_array(array, value.dtype, program.device_of(value))
        except (IndexError, ValueError, RuntimeError, ZeroDivisionError) as error:
            return error
        # A written value may be a view of memory that is also written to.
        written = [(values[to.number], values[value.number].copy()) for to, value in program.writes]
        for array, value in zip(arrays[count:], program.results, strict=True):
            copy_into(array, values[value.number])
        for array, new in written:
            copy_into(array, new)
        return None

    def _operands(self, step: Apply, values: dict[int, Any]) -> list[Any]:
        """The operands of a primitive; numbers in host memory are moved as in eager code."""
        operands = [values[x.number] if isinstance(x, Value) else x for x in step.inputs]
        return operands if self._program.device == CPU else on_one_device(step.primitive, operands)


class NumPyTarget:
    """A target that interprets programs and compiles nothing."""

    name = "numpy"
    devices: tuple[str, ...] = ("cpu", "cuda")

    def takes(self, primitive: Primitive) -> bool:
        """Whether to run a composite or its rule whole: never, so that every part runs."""
        return False

    def missing(self) -> str | None:
        return None

    def build(self, program: Program, name: str = "a program") -> Interpreted:
        return Interpreted(regroup(program, self.takes))


class CuPyTarget(NumPyTarget):
    """The same for tensors on a GPU for which no kernels can be compiled."""

    name = "cupy"
    devices = ("cuda",)

    def missing(self) -> str | None:
        try:
            cupy()
        except RuntimeError as error:
            return str(error)
        return None
