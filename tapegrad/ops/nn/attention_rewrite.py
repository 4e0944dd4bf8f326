"""Replaces hand-written attention by attention in tiles.

Comes in: a program of recorded primitives. Goes out: an `Edit` that replaces the instructions found
by `attention_by_hand.py` by `tiled_attention` and `tiled_attention_gradient`, so that a compiled
function stores no matrix of scores. A draw of dropout that only such attention reads then advances
the generator without making numbers. Called by `replay/passes/rewrite.py`, through
`core/rewrites.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...core.primitive import PRIMITIVES
from ...core.rewrites import REWRITES, Edit, Rewrite
from ...core.tape import Value
from .attention import tile_thresholds
from .attention_by_hand import HandWritten, InstructionGraph, applies, find


def _edit(program: Any) -> Edit:
    """The edit of a program that has hand-written attention."""
    edit = Edit()
    graph = InstructionGraph(program)
    number = program.next_number()
    draws: dict[int, Any] = {}
    for instruction in program.applied():
        found = find(graph, instruction)
        if found is None or not edit.dropped.isdisjoint(map(id, found.inside)):
            continue
        writer = _TileWriter(found, number)
        for before, made in writer.write(graph):
            edit.add(before, made)
        number = writer.number
        edit.dropped.update(map(id, found.inside))
        if found.draw is not None:
            draws[id(found.draw)] = found.draw
    for draw in draws.values():
        number = _without_numbers(graph, edit, draw, number)
    return edit


def _without_numbers(graph: InstructionGraph, edit: Edit, draw: Any, number: int) -> int:
    """If a draw has no readers left, only advance the generator; returns the next free number."""
    drawn, after = draw.outputs
    comparisons = graph.readers.get(drawn.number, [])
    values = [drawn, *(v for x in comparisons for v in x.outputs)]
    read = [x for value in values[1:] for x in graph.readers.get(value.number, ())]
    if (
        any(value.number in graph.needed for value in values)
        or any(not applies(x, "ge") for x in comparisons)
        or not all(id(x) in edit.dropped for x in read)
    ):
        return number
    state = draw.inputs[0]
    before = Value(number, state.shape, state.dtype)
    words = -(-math.prod(drawn.shape) // 2)
    reserve = {"primitive": PRIMITIVES["reserve"], "params": {"words": words}}
    edit.add(draw, [replace(draw, **reserve, outputs=(before, after))])
    edit.dropped.update(map(id, (draw, *comparisons)))
    return number + 1


class _TileWriter:
    """Writes the instructions of attention in tiles."""

    def __init__(self, found: HandWritten, number: int) -> None:
        self.found, self.number = found, number
        self.batch = tuple(found.p.shape[:-2])
        self.made: list[Any] = []

    def write(self, graph: InstructionGraph) -> Iterator[tuple[Any, list[Any]]]:
        """Groups of instructions, each with the instruction that it goes before."""
        found, gradients = self.found, self.found.gradients()
        first = min(gradients, key=lambda x: graph.position[id(x)]) if gradients else None
        at = found.out if found.out is not None else first
        assert at is not None
        self.like = at
        operands, out, lse = self.forward()
        if first is None or first is at:
            if first is not None:
                self.backward(operands, out, lse)
            yield at, self.made
            return
        yield at, self.made
        self.made, self.like = [], first
        self.backward(operands, out, lse)
        yield first, self.made

    def new(self, shape: tuple[int, ...], dtype: Any) -> Value:
        self.number += 1
        return Value(self.number - 1, shape, dtype)

    def apply(
        self, name: str, inputs: Sequence[Any], outputs: Sequence[Value], **params: Any
    ) -> None:
        """Append an instruction, with the line, module and region of the one it replaces."""
        changed = {"primitive": PRIMITIVES[name], "params": params}
        made = replace(self.like, **changed, inputs=tuple(inputs), outputs=tuple(outputs))
        self.made.append(made)

    def value(
        self, name: str, inputs: Sequence[Any], like: tuple[int, ...], **params: Any
    ) -> Value:
        """A new value of a shape."""
        made = self.new(like, inputs[0].dtype)
        self.apply(name, inputs, [made], **params)
        return made

    def swapped(self, x: Value, out: Value | None = None) -> Value:
        n = len(x.shape)
        made = out or self.new((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
        self.apply("permute", [x], [made], dims=(*range(n - 2), n - 1, n - 2))
        return made

    def in_batch(self, x: Value) -> Value:
        """A value with the leading dimensions of the probabilities."""
        shape = (*self.batch, *x.shape[-2:])
        return x if tuple(x.shape) == shape else self.value("reshape", [x], shape, shape=shape)

    def named(self, result: Value) -> Value:
        """The value that a kernel writes for an old result: the result itself if its shape fits."""
        shape = (*self.batch, *result.shape[-2:])
        return result if tuple(result.shape) == shape else self.new(shape, result.dtype)

    def finish(self, made: Value, result: Value) -> None:
        if made is not result:
            self.apply("reshape", [made], [result], shape=tuple(result.shape))

    def forward(self) -> tuple[list[Any], Value, Value]:
        found = self.found
        assert found.v is not None
        q, v = self.in_batch(found.q), self.in_batch(found.v)
        k = self.in_batch(self.swapped(found.kt))
        mask = found.mask
        if mask is not None and found.hides:
            mask = self.value("logical_not", [mask], tuple(mask.shape))
        shape = (*self.batch, q.shape[-2], v.shape[-1])
        result = found.out.outputs[0] if found.out is not None else self.new(shape, v.dtype)
        out, lse = self.named(result), self.new((*shape[:-1], 1), v.dtype)
        operands = [q, k, v, mask, found.state]
        self.apply("tiled_attention", operands, [out, lse], **self.options())
        self.finish(out, result)
        return operands, out, lse

    def options(self) -> dict[str, Any]:
        found = self.found
        return {"scale": found.scale, "causal": False, "dropout": found.dropout, "safe": False}

    def backward(self, operands: list[Any], out: Value, lse: Value) -> None:
        found = self.found
        assert found.g is not None
        g = self.in_batch(found.g)
        last = len(self.batch) + 1
        product = self.value("mul", [g, out], tuple(out.shape))
        delta = self.value("sum", [product], tuple(lse.shape), dims=(last,), keepdim=True)
        g_q, g_v = (
            self.new(tuple(x.shape), x.dtype) if asked is None else self.named(asked.outputs[0])
            for asked, x in ((found.g_q, operands[0]), (found.g_v, operands[2]))
        )
        g_k = self.new(tuple(operands[1].shape), g.dtype)
        given = [g, *operands, delta, lse, out]
        self.apply("tiled_attention_gradient", given, [g_q, g_k, g_v], **self.options())
        for made, asked in ((g_q, found.g_q), (g_v, found.g_v)):
            if asked is not None:
                self.finish(made, asked.outputs[0])
        if found.g_kt is not None:
            result = found.g_kt.outputs[0]
            turned = self.named(result)
            self.swapped(g_k, turned)
            self.finish(turned, result)


REWRITES["attention"] = Rewrite(_edit, tile_thresholds)
