"""Compiled entries: a compiled function on the tape, with a compiled backward pass.

Comes in: a recorded derivative, split into halves (`trace/derivative.py`). Goes out: a
`CompiledVjp` for each replay. Its `attach` leaves an entry for one call. The entry owns the
residuals of that call, so any number of calls may wait for backward. Gradients come from the
compiled backward program. If backward is itself differentiated, the recorded primitives are rerun
on Tensors, which leave ordinary entries. Called by `replay.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...autograd.api import grad
from ...autograd.engine import copy_of
from ...core import locks, source, storage
from ...core.arrays import allocator, as_contiguous, filled
from ...core.device import CPU, to_device
from ...core.modes import GRAD, STATE, enable_grad, numbers
from ...core.primitive import OPAQUE, Primitive, bind
from ...core.tape import FREED, Entry, Output, Value, new_entry
from ...core.tensor import Tensor, wrap
from ..ir.program import Apply
from ..ir.target import Executable, Target
from ..trace.derivative import Derivative, Halves, Kept


class _Rerun:
    """The values of one call that a rerun of its forward pass needs."""

    __slots__ = ("arrays", "edges", "number", "spent")

    def __init__(self, arrays: tuple[Any, ...], edges: tuple[Any, ...], number: int) -> None:
        self.arrays = arrays
        self.edges = edges
        self.number = number
        #: outputs whose backward passes have run and freed their residuals
        self.spent: set[int] = set()


class CompiledVjp:
    """The vjp of one replay: leaves an entry for each call, and computes its gradients."""

    def __init__(self, name: str, halves: Halves, derivative: Derivative, target: Target) -> None:
        self.target = target
        self.halves = halves
        self.derivative = derivative
        #: by (inputs that want gradients, outputs that have them): the program, its results with
        #: their allocating functions, and for each input the index of its gradient in the results
        self.programs: dict[Any, tuple[Executable, list[Any], list[int | None]]] = {}
        self._lock = locks.new()
        self._outputs = [halves.forward.results[i] for i in derivative.outputs]
        # `pull` gets saved values as raw arrays, even on Tensors: it rebuilds histories itself.
        slots = (("dtype", 0, None),) * (len(halves.kept) + 1)
        self.primitive = Primitive(
            name,
            self.pull,
            OPAQUE,
            inputs=(),
            rest="xs",
            outputs=tuple(f"out{i}" for i in range(len(derivative.outputs))),
            joint=self.pull,
            slots=slots,
            release=self.release if len(derivative.outputs) > 1 else None,
            _pull=self.pull,
        )

    # -- forward -----------------------------------------------------------------------------

    def attach(self, tensors: Sequence[Tensor], made: Sequence[Any]) -> Entry:
        """An entry for a call that has just run, from its arguments and results."""
        edges = []
        for slot in self.derivative.inputs:
            tensor = slot.find(tensors)
            edges.append(tensor if tensor._edge is None else tensor._edge)
        slots: Any = self.halves.forward_slots

        def array(kept: Kept) -> Any:
            if kept.input is None:
                return made[kept.result]  # type: ignore[index]  # one of the two is not None
            return slots[kept.input].find(tensors)._array

        leading, number = tuple(edges), next(numbers)
        rerun = _Rerun(tuple([array(k) for k in self.halves.for_rerun]), leading, number)
        saved = (*[array(k) for k in self.halves.kept], rerun)
        return new_entry(self.primitive, {}, leading, saved, number, source.here())

    def edge(self, entry: Entry, output: int) -> Any:
        """The history of one of the results."""
        return entry if len(self.derivative.outputs) == 1 else Output(entry, output)

    # -- backward ----------------------------------------------------------------------------

    def pull(self, g: Any, edges: Any, saved: tuple[Any, ...], params: Any) -> Sequence[Any]:
        """The gradients of the inputs."""
        parts = g if isinstance(g, list) else [g]
        if any(isinstance(part, Tensor) for part in parts):
            return self._pull_on_tensors(parts, edges, saved)
        key = (tuple([e is not None for e in edges]), tuple([p is not None for p in parts]))
        found = self.programs.get(key)
        if found is None:
            with self._lock:
                found = self.programs[key] = self.programs.get(key) or self._build(*key)
        executable, values, indices = found
        inputs = self._residuals(saved, parts)
        for part, value in zip(parts, self._outputs, strict=True):
            whole = self._zeros(value) if part is None else part
            inputs.append(as_contiguous(whole, value.dtype).reshape(value.shape))
        results = [empty(v.shape, v.dtype) for empty, v in values]
        executable.run((*inputs, *results))
        return [None if index is None else results[index] for index in indices]

    def _residuals(self, saved: tuple[Any, ...], parts: list[Any]) -> list[Any]:
        """The residuals of a call; zeros for freed ones, which no given gradient needs."""
        spent: set[int] = saved[-1].spent
        if spent:
            for i, part in enumerate(parts):
                if part is not None and not spent.isdisjoint(self.halves.shares[i]):
                    raise self._used_up()
        return [
            self._zeros(kept.value) if value is FREED else value
            for kept, value in zip(self.halves.kept, saved, strict=False)
        ]

    def _zeros(self, value: Value) -> Any:
        return filled(self.halves.backward.device_of(value), value.shape, value.dtype, 0)

    def _used_up(self) -> RuntimeError:
        return RuntimeError(
            "backward went through this call before and freed what it had saved "
            f"({self.primitive.name}); call the first backward with retain_graph=True to keep it"
        )

    def release(self, saved: Any, g: Any) -> Any:
        """Free the residuals that no later backward pass can need: outputs may share none."""
        if saved.__class__ is not tuple:
            return FREED
        spent: set[int] = saved[-1].spent
        spent.update(i for i, part in enumerate(g) if part is not None)
        left = [i for i, shared in enumerate(self.halves.shares) if spent.isdisjoint(shared)]
        if not left:
            return FREED
        needed = {k for i in left for k in self.halves.reads[i]}
        return (*[v if k in needed else FREED for k, v in enumerate(saved[:-1])], saved[-1])

    def _build(self, wanted: Sequence[bool], given: Sequence[bool]) -> Any:
        """Build the backward program that computes only the wanted gradients."""
        halves = self.halves
        known = {i for i, present in enumerate(given) if present}
        indices: list[int | None] = []
        results: dict[int, int] = {}  # by index in the whole program: index in this one
        for i, index in enumerate(halves.gradients):
            reached = wanted[i] and bool(halves.sources[i] & known)
            indices.append(results.setdefault(index, len(results)) if reached else None)
        values = [halves.backward.results[index] for index in results]
        name = f"the backward pass of {self.primitive.name}"
        executable = self.target.build(replace(halves.backward, results=tuple(values)), name)
        executable.expect(range(len(halves.backward.inputs)))
        made = [(allocator(halves.backward.device_of(v)), v) for v in values]
        return executable, made, indices

    # -- backward on Tensors, to be differentiated -------------------------------------------

    def _pull_on_tensors(self, parts: list[Any], edges: Any, saved: tuple[Any, ...]) -> list[Any]:
        if self.derivative.once is not None:
            raise RuntimeError(
                f"the backward pass of the compiled function {self.primitive.name} cannot be "
                f"differentiated: it goes through {self.derivative.once}, which is Python code; "
                "differentiate twice inside of the compiled function, or do not compile it"
            )
        if saved[-1].spent:
            raise self._used_up()
        rerun: _Rerun = saved[-1]
        create_graph = bool(STATE.mode & GRAD)
        known = {k.value.number: a for k, a in zip(self.halves.kept, saved, strict=False)}
        for kept, array in zip(self.halves.for_rerun, rerun.arrays, strict=True):
            known[kept.value.number] = array
            change = storage.changed_since(array, rerun.number)
            if change is not None:
                raise RuntimeError(
                    "a value that differentiating backward needs was changed in place, at "
                    f"{source.describe(change.location)}; use the operation that returns a new "
                    "tensor there, or clone() first"
                )
        with enable_grad():
            inputs, outputs = self._rerun_forward(known, rerun.edges)
            pairs = [(o, g) for o, g in zip(outputs, parts, strict=True) if g is not None]
        wanted = [i for i, edge in enumerate(edges) if edge is not None]
        gradients = grad(
            [o for o, _ in pairs],
            [inputs[i] for i in wanted],
            [g for _, g in pairs],
            create_graph=create_graph,
            allow_unused=True,
        )
        found: list[Any] = [None] * len(edges)
        for i, gradient in zip(wanted, gradients, strict=True):
            found[i] = gradient
        return found

    def _rerun_forward(
        self, known: dict[int, Any], edges: Sequence[Any]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Rerun forward on Tensors; returns copies of the inputs with gradients, and outputs."""
        applied, flows = self._applied(), self.derivative.flows
        values: dict[int, Any] = {v.number: a for v, a in self.halves.forward.constants} | known
        inputs: dict[int, Tensor] = {}
        made: dict[Any, Tensor] = {}  # by (instruction, output), with its history
        for i, traced in self._steps(set(known)):
            step = applied[i]
            given = list(step.inputs)
            for k, x in enumerate(step.inputs):
                flow = flows[i][k] if traced else None
                if isinstance(flow, tuple):
                    given[k] = made[flow]
                elif flow is not None:
                    if flow not in inputs:
                        inputs[flow] = _copy(values[x.number], edges[flow])
                    given[k] = inputs[flow]
                elif isinstance(x, Value):
                    given[k] = wrap(values[x.number])
            out = bind(step.primitive, given, step.params)
            for k, tensor in enumerate(out if isinstance(out, tuple) else (out,)):
                device = self.halves.forward.device_of(step.outputs[k])
                if tensor.device != device:  # drawn on the host
                    tensor = wrap(to_device(tensor._array, device))
                values[step.outputs[k].number] = tensor._array
                made[i, k] = tensor
        copies = [
            inputs[i] if i in inputs else _copy(filled(CPU, (), float, 0), edge)
            for i, edge in enumerate(edges)
        ]
        return copies, [made[end] for end in self.derivative.ends]

    def _applied(self) -> tuple[Apply, ...]:
        return self.halves.recorded + self.halves.wholes

    def _steps(self, known: set[int]) -> list[tuple[int, bool]]:
        """The instructions to rerun, each with whether the history of its results is needed."""
        applied, flows = self._applied(), self.derivative.flows
        traced: set[int] = {end[0] for end in self.derivative.ends if isinstance(end, tuple)}
        plain: set[int] = set()  # values needed without their history
        steps = []
        for i in reversed(self.derivative.order):
            step = applied[i]
            if i in traced:
                traced.update(flow[0] for flow in flows[i] if isinstance(flow, tuple))
                read = [x for x, flow in zip(step.inputs, flows[i], strict=True) if flow is None]
            elif any(v.number in plain and v.number not in known for v in step.outputs):
                read = list(step.inputs)
            else:
                continue
            steps.append((i, i in traced))
            plain.difference_update(v.number for v in step.outputs)
            plain.update(x.number for x in read if isinstance(x, Value))
        return steps[::-1]


def _copy(array: Any, edge: Any) -> Tensor:
    """A copy of an input of the function, with its own entry that leads to the input's history."""
    if isinstance(edge, Tensor) and edge._array is array:
        return edge.clone()
    tensor = wrap(array)
    # A leaf whose array was replaced since then is reached through an entry.
    tensor._edge = copy_of(edge, source.here()) if isinstance(edge, Tensor) else edge
    tensor._requires = True
    return tensor.clone()
