"""Division of a program for a GPU into the part in host memory and the part on the GPU.

Comes in: a recorded program. Goes out: two programs (`divided`). Numbers such as options of an
optimizer, and states of generators, are in host memory, as in eager code, and host values depend
only on host values (`ir/target.py`). So the host's program runs first, as native code of the CPU;
host values that the GPU reads are words of the table that each run copies there. A draw of random
numbers is in both programs: the host advances the state, the GPU draws. `DividedProgram` runs both.
Called by `target.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...core.device import CPU, to_device
from ...core.tape import Value
from ..ir.program import Input, Program, contiguous
from ..ir.target import Executable
from .executable import GridProgram


class Division(NamedTuple):
    """The two programs. The last inputs of the GPU's program are the host values in `crossing`.

    Those of them that the host's program computes are its last results.
    """

    host: Program
    device: Program
    crossing: tuple[Value, ...]


def divided(program: Program) -> Division:
    """Divide a recorded program."""
    host, steps = program.host, program.applied()
    above = [x for x in steps if any(v.number in host for v in x.outputs)]
    below = [x for x in steps if any(v.number not in host for v in x.outputs) or not x.outputs]
    constants = {value.number for value, _ in program.constants}
    read = {v.number: v for x in below for v in x.reads() if v.number in host}
    crossing = tuple(v for number, v in read.items() if number not in constants)
    given = {x.value.number for x in program.inputs}
    made = [v for v in crossing if v.number not in given]

    def of_host(value: Value) -> bool:
        return value.number in host

    def part(chosen: Callable[[Value], bool], **changes: Any) -> Program:
        return replace(
            program,
            inputs=tuple(x for x in program.inputs if chosen(x.value)),
            results=tuple(v for v in program.results if chosen(v)),
            writes=tuple(pair for pair in program.writes if chosen(pair[1])),
            constants=tuple((v, to_device(a, CPU)) for v, a in program.constants),
            wholes=(),
            device=CPU,
            host=frozenset(),
            **changes,
        )

    upper = part(of_host, instructions=tuple(above))
    lower = part(lambda value: not of_host(value), instructions=tuple(below))
    crossed = tuple(Input(v, contiguous(v.shape), f"host value {v}") for v in crossing)
    return Division(
        replace(upper, results=(*upper.results, *made)),
        replace(lower, inputs=(*lower.inputs, *crossed)),
        crossing,
    )


class DividedProgram:
    """Runs a program's part in host memory, then the rest on a GPU."""

    def __init__(
        self,
        program: Program,
        build: Callable[[Program, Sequence[int]], GridProgram],
        build_for_host: Callable[[Program], Executable],
    ) -> None:
        host, device, crossing = divided(program)
        self._program = program
        first = len(device.inputs) - len(crossing)
        self._grid = build(device, range(first, len(device.inputs)))
        #: by input of the whole program: the input of each part
        self._of_host = self._positions(program, host)
        self._of_grid = self._positions(program, device)
        given = {x.value.number: i for i, x in enumerate(program.inputs)}
        #: cells of the table for values that the host computes and the GPU reads
        self._made = tuple(
            self._grid.cell(i) for i, v in enumerate(crossing, first) if v.number not in given
        )
        works = host.instructions or host.writes or host.results
        self._host = build_for_host(host) if works else None
        self._bound: dict[int, Any] = {}
        #: inputs in host memory that it changes
        self._changed = [given[to.number] for to, v in program.writes if v.number in program.host]
        results = range(len(program.results))
        self._host_results = [i for i in results if program.results[i].number in program.host]
        self._grid_results = [i for i in results if i not in self._host_results]
        self._arrays_of_host: list[int] = []
        self._arrays_of_grid: list[int] = []
        self._brought: list[tuple[int, Any]] = []

    @staticmethod
    def _positions(whole: Program, part: Program) -> dict[int, int]:
        at = {x.value.number: i for i, x in enumerate(part.inputs)}
        found = ((i, at.get(x.value.number)) for i, x in enumerate(whole.inputs))
        return {i: j for i, j in found if j is not None}

    @property
    def callbacks(self) -> Sequence[Any]:
        return self._grid.callbacks

    @property
    def grid(self) -> GridProgram:
        """The part on the GPU."""
        return self._grid

    def describe(self) -> str:
        return self._grid.describe()

    def bind(self, arrays: Mapping[int, Any]) -> None:
        self._bound.update(arrays)
        self._grid.bind({self._of_grid[i]: a for i, a in arrays.items() if i in self._of_grid})
        if self._host is not None:
            self._host.bind({self._of_host[i]: a for i, a in arrays.items() if i in self._of_host})

    def expect(self, inputs: Sequence[int]) -> None:
        at_host = {p: i for p, i in enumerate(inputs) if i in self._of_host}
        on_gpu = [(p, i) for p, i in enumerate(inputs) if i not in at_host.values()]
        if self._host is not None:
            self._host.expect([self._of_host[i] for i in at_host.values()])
        self._grid.expect([self._of_grid[i] for _, i in on_gpu if i in self._of_grid])
        first = len(inputs)
        self._arrays_of_host = [*at_host, *(first + i for i in self._host_results)]
        self._arrays_of_grid = [p for p, i in on_gpu if i in self._of_grid]
        self._arrays_of_grid += [first + i for i in self._grid_results]
        #: arguments in host memory that the GPU reads, by position, and their cells
        self._brought = [
            (p, self._grid.cell(self._of_grid[i])) for p, i in at_host.items() if i in self._of_grid
        ]

    def run(self, arrays: tuple[Any, ...]) -> None:
        error = self.attempt(arrays)
        if error is not None:
            raise error

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        before = self._saved() if self._changed and self._grid.may_fail else ()
        # The host may change its inputs in place, so the GPU's copies are taken first.
        for position, cell in self._brought:
            cell[...] = arrays[position]
        self._grid.take_cells()
        if self._host is not None:
            mine = tuple([arrays[i] for i in self._arrays_of_host])
            error = self._host.attempt((*mine, *self._made))
            if error is not None:
                return error
        deferred = self._grid.deferred
        if deferred is not None and before:
            deferred.keep(before)
        error = self._grid.attempt(tuple([arrays[i] for i in self._arrays_of_grid]))
        if error is not None:
            for array, copy in before:
                array[...] = copy
        return error

    def _saved(self) -> list[tuple[Any, Any]]:
        """Copies of the host memory that a run changes."""
        arrays = [self._bound[i] for i in self._changed if i in self._bound]
        return [(array, array.copy()) for array in arrays]
