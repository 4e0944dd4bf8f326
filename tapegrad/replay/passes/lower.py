"""Lowering: primitives become loops, products and callbacks; views become strides.

Comes in: a program of `Apply`s. Goes out: a program of loops, products, contractions, attention and
callbacks. Elementwise primitives and reductions become loops over their expression. A movement is
tried on a ghost, an array with the right strides whose contents mean nothing: if the result aliases
the ghost, the movement is a view and costs nothing. Every other primitive builds its own loops: its
`Primitive.lower` calls the `Builder` (`builder.py`). Called by `pipeline.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...core import numeric
from ...core.primitive import CONTRACTION, ELEMENTWISE, MOVEMENT, REDUCE, Primitive
from ...core.tape import Value
from ..ir.expressions import NoLowering
from ..ir.program import (
    Access,
    Apply,
    Callback,
    Compute,
    Instruction,
    Literal,
    Loop,
    LoopFold,
    Node,
    Origin,
    Program,
    Read,
    Shape,
    Store,
    View,
    contiguous,
    in_order,
    size_of,
)
from ..ir.target import Machine
from .builder import CAST, COPY, FLOAT32, Builder


class Lowering:
    """The state of the pass: a view for each value, and the instructions so far."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.machine = machine
        self.number = program.next_number()
        self.views: dict[int, View] = {}
        self.instructions: list[Instruction] = []
        self.notes: list[str] = []
        self.added: list[tuple[Value, Any]] = []  # constants
        self.constants = {value.number: array for value, array in program.constants}
        #: by value: the instructions that read it; None stands for the end of the program
        self.users: dict[int, list[Apply | None]] = {}
        for apply in program.instructions:
            assert isinstance(apply, Apply)
            for value in apply.reads():
                self.users.setdefault(value.number, []).append(apply)
        for value in program.needed():
            self.users.setdefault(value.number, []).append(None)
        for given in program.inputs:
            value = given.value
            self.views[value.number] = View(value, 0, value.shape, given.strides)
        for value, array in program.constants:
            self.views[value.number] = View(value, 0, value.shape, contiguous(array.shape))

    def run(self) -> Program:
        for apply in self.program.instructions:
            assert isinstance(apply, Apply)
            self.lower(apply)
        outside = {i.value.number for i in self.program.inputs} | set(self.constants)
        claimed: set[int] = set()

        def own(value: Value) -> Value:
            """A contiguous value that owns its memory, for a result or a write."""
            view = self.views[value.number]
            root = view.root
            whole = view.offset == 0 and size_of(root.shape) == size_of(view.shape)
            if (
                whole
                and in_order(view.shape, view.strides)
                and root.number not in outside | claimed
            ):
                claimed.add(root.number)
                return root
            copy = self.new(view.shape, root.dtype)
            self.copy(self.views[copy.number], view, (Origin("copy", None),))
            claimed.add(copy.number)
            return copy

        results = tuple(own(v) for v in self.program.results)
        writes = tuple((target, own(v)) for target, v in self.program.writes)
        return replace(
            self.program,
            constants=(*self.program.constants, *self.added),
            instructions=tuple(self.instructions),
            writes=writes,
            results=results,
            notes=tuple(self.notes),
            wholes=(),
        )

    # -- values ------------------------------------------------------------------------------

    def new(self, shape: Shape, dtype: Any) -> Value:
        value = Value(self.number, tuple(shape), dtype)
        self.number += 1
        self.enter(value)
        return value

    def enter(self, value: Value) -> None:
        self.views[value.number] = View(value, 0, value.shape, contiguous(value.shape))

    def number_in(self, view: View) -> Literal | None:
        """The number that all elements of a view are known to have, if there is one."""
        array = self.constants.get(view.root.number)
        if array is None or array.size == 0:
            return None
        first = array.flat[0]
        same = array.size == 1 or array.tobytes() == first.tobytes() * array.size
        return Literal(first.item()) if same else None

    # -- one primitive -----------------------------------------------------------------------

    def lower(self, apply: Apply) -> None:
        start = len(self.instructions)
        self._lower(apply, start)
        if apply.region:
            for i, made in enumerate(self.instructions[start:], start):
                if isinstance(made, Loop):
                    self.instructions[i] = replace(made, region=apply.region)

    def _lower(self, apply: Apply, start: int) -> None:
        primitive = apply.primitive
        try:
            if self.alias(apply):
                return
            for value in apply.outputs:
                self.enter(value)
            if primitive.kind != MOVEMENT or primitive.lower is not None:
                for value in (*apply.reads(), *apply.outputs):
                    self.machine.check_dtype(value.dtype)
            if primitive.kind == CONTRACTION and self.is_read_transposed(apply.outputs[0]):
                self.keep_transposed(apply.outputs[0])
            if primitive.lower is not None:
                builder = Builder(self, apply)
                outs = [builder.ghost(self.views[v.number]) for v in apply.outputs]
                given = [self.operand(x, builder) for x in apply.inputs]
                primitive.lower(
                    builder, outs[0] if len(outs) == 1 else outs, *given, **apply.params
                )
            elif primitive.kind == ELEMENTWISE:
                self.elementwise(apply)
            elif primitive.kind == REDUCE:
                self.reduction(apply)
            elif primitive.kind == MOVEMENT:
                self.movement(apply)
            else:
                raise NoLowering("it has no lowering yet")
        except NoLowering as reason:
            del self.instructions[start:]
            for value in apply.outputs:
                self.enter(value)
            if not primitive.collective:
                self.notes.append(f"{primitive.name} runs in NumPy: {reason}")
            seen = tuple(self.views[x.number] if isinstance(x, Value) else x for x in apply.inputs)
            self.instructions.append(
                Callback(primitive, apply.params, seen, apply.outputs, apply.origins)
            )

    def is_read_transposed(self, value: Value) -> bool:
        """Whether only movements read a matrix, and all give memory in order of its transpose."""
        users = self.users.get(value.number, [])
        if len(value.shape) < 2 or not users:
            return False
        for user in users:
            if user is None or user.primitive.kind != MOVEMENT or not user.primitive.view:
                return False
            builder = Builder(self, user)
            straight, transposed = self.views[value.number], _transposed_view(value)
            seen = [
                builder.shown(user.primitive, user.params, view) for view in (straight, transposed)
            ]
            in_place = [v is not None and in_order(v.shape, v.strides) for v in seen]
            if in_place != [False, True]:
                return False
        return True

    def keep_transposed(self, value: Value) -> None:
        """Store the matrices of a value in columns."""
        self.views[value.number] = _transposed_view(value)

    def operand(self, x: Any, builder: Builder) -> Any:
        return builder.ghost(self.views[x.number]) if isinstance(x, Value) else x

    def alias(self, apply: Apply) -> bool:
        """Let the result of a copy be its input: values never change."""
        primitive, (out, *rest) = apply.primitive, apply.outputs
        if primitive.kind != ELEMENTWISE or rest or primitive.expression not in primitive.inputs:
            return False
        x = apply.inputs[primitive.inputs.index(primitive.expression)]
        if isinstance(x, Value) and x.dtype == out.dtype and x.shape == out.shape:
            self.views[out.number] = self.views[x.number]
            return True
        return False

    def elementwise(self, apply: Apply) -> None:
        (out,) = apply.outputs
        nodes: list[Node] = []
        operands: list[Any] = []
        for x in apply.inputs:
            known = self.number_in(self.views[x.number]) if isinstance(x, Value) else None
            if isinstance(x, Value) and known is None:
                nodes.append(Read(self.spread(self.views[x.number], out.shape)))
                operands.append(len(nodes) - 1)
            else:
                number = known.number if known is not None else x
                number = number.item() if isinstance(number, (np.ndarray, np.generic)) else number
                operands.append(Literal(number))
        types = [o.number if isinstance(o, Literal) else nodes[o].dtype for o in operands]
        cost = self.machine.examine(apply.primitive, apply.params, types, out.dtype)
        nodes.append(Compute(apply.primitive, apply.params, tuple(operands), out.dtype, cost.fails))
        store = Store(self.spread(self.views[out.number], out.shape), len(nodes) - 1)
        self.instructions.append(Loop(out.shape, tuple(nodes), (store,), (), apply.origins))

    def spread(self, view: View, shape: Shape) -> Access:
        """The access to a view in a loop over a shape that it broadcasts to."""
        extra = len(shape) - len(view.shape)
        strides = (0,) * extra + tuple(
            0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True)
        )
        return Access(view.root, view.offset, strides)

    def reduction(self, apply: Apply) -> None:
        (out,), (x,) = apply.outputs, apply.inputs
        primitive, dims = apply.primitive, apply.params["dims"]
        if primitive.expression is None:
            raise NoLowering("it has no expression")
        for dtype in (x.dtype, out.dtype):
            self.machine.check_dtype(dtype)
        if x.dtype != out.dtype:
            raise NoLowering(f"it makes {out.dtype} of {x.dtype}")
        # Half precision is folded in float32 and rounded once at the end.
        wide = FLOAT32 if numeric.is_half(x.dtype) else x.dtype
        total = self.new(out.shape, wide) if numeric.is_half(x.dtype) else out
        self.machine.check_fold(primitive, wide)
        steps = iter(contiguous(tuple(n for d, n in enumerate(x.shape) if d not in dims)))
        strides = tuple(0 if d in dims else next(steps) for d in range(len(x.shape)))
        nodes: list[Node] = [Read(self.spread(self.views[x.number], x.shape))]
        if total is not out:
            nodes.append(Compute(CAST, {}, (0,), wide))
        fold = LoopFold(Access(total, 0, strides), len(nodes) - 1, primitive, dims)
        self.instructions.append(Loop(x.shape, tuple(nodes), (), (fold,), apply.origins))
        if total is not out:
            self.cast(self.views[out.number], self.views[total.number], apply.origins)

    def movement(self, apply: Apply) -> None:
        builder = Builder(self, apply)
        x, *others = apply.inputs
        if others or len(apply.outputs) > 1 or not isinstance(x, Value):
            raise NoLowering("it is not a movement of one input")
        view = builder.shown(apply.primitive, apply.params, self.views[x.number])
        if view is None:
            ordered = self.new(x.shape, x.dtype)
            self.copy(self.views[ordered.number], self.views[x.number], apply.origins)
            view = builder.shown(apply.primitive, apply.params, self.views[ordered.number])
        if view is None:
            raise NoLowering("its result is a copy, and it has no lowering")
        self.views[apply.outputs[0].number] = view

    def copy(self, to: View, x: View, origins: tuple[Origin, ...]) -> None:
        """Append a loop that copies one view to another of the same shape."""
        self.put(to, x, COPY, origins)

    def cast(self, to: View, x: View, origins: tuple[Origin, ...]) -> None:
        """Append a loop that converts one view to the dtype of another."""
        self.put(to, x, CAST, origins)

    def put(self, to: View, x: View, change: Primitive, origins: tuple[Origin, ...]) -> None:
        known = self.number_in(x)
        nodes: list[Node] = []
        operand: Any = known
        if known is None:
            nodes.append(Read(self.spread(x, to.shape)))
            operand = 0
        nodes.append(Compute(change, {}, (operand,), to.root.dtype))
        store = Store(self.spread(to, to.shape), len(nodes) - 1)
        self.instructions.append(Loop(to.shape, tuple(nodes), (store,), (), origins))


def _transposed_view(value: Value) -> View:
    *batch, rows, columns = value.shape
    steps = contiguous((*batch, columns, rows))
    return View(value, 0, value.shape, (*steps[:-2], steps[-1], steps[-2]))


def lower(program: Program, machine: Machine) -> Program:
    """Lower every primitive of a program."""
    return Lowering(program, machine).run()
