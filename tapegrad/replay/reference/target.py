"""NumPy as a `Target`: a recorded program is run as it stands, one primitive at a time.

Comes in: a recorded program. Goes out: an executable. No pass changes the program, nothing is fused
or kept in an arena. So this is what a program means, and what to compare with if native code is in
doubt: `tapegrad.compile(f, backend="numpy")`. Registered by `use/targets.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.primitive import Primitive
from ...core.tape import Value
from ..ir.program import Program
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
        return "run by NumPy, one at a time"

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        program, count = self._program, len(self._expected)
        given = self._bound | dict(zip(self._expected, arrays[:count], strict=True))
        values: dict[int, Any] = {value.number: array for value, array in program.constants}
        values |= {x.value.number: given[i] for i, x in enumerate(program.inputs)}
        try:
            for step in program.applied():
                operands = [values[x.number] if isinstance(x, Value) else x for x in step.inputs]
                made = step.primitive.kernel(*operands, **step.params)
                outputs = made if isinstance(made, tuple) else (made,)
                for value, array in zip(step.outputs, outputs, strict=False):
                    values[value.number] = np.asarray(array, value.dtype)
        except (IndexError, ValueError, RuntimeError, ZeroDivisionError) as error:
            return error
        # What is written may be a view of memory that is written to as well.
        written = [(values[to.number], values[value.number].copy()) for to, value in program.writes]
        for array, value in zip(arrays[count:], program.results, strict=True):
            array[...] = values[value.number]
        for array, new in written:
            array[...] = new
        return None


class NumPyTarget:
    """Builds nothing: programs are interpreted."""

    name = "numpy"

    def takes(self, primitive: Primitive) -> bool:
        """Whether a composite, or its rule, is run whole: none is, so that all parts are seen."""
        return False

    def missing(self) -> str | None:
        return None

    def build(self, program: Program, name: str = "a program") -> Interpreted:
        return Interpreted(regroup(program, self.takes))
