"""Attention written by hand becomes attention in tiles, forward and backward.

Comes in: a recorded program, in which somebody multiplied queries and keys, scaled, masked, took
softmax, dropped and multiplied by values, and perhaps the gradients of that. Goes out: the same
program with `tiled_attention` and `tiled_attention_gradient` in their place, so that no matrix of
scores is in memory. Called by `pipeline.py` and `trace/derivative.py`.

Each softmax over the last dimension is a candidate. `_Search` walks from it to the products around
it and collects the instructions in between. What they compute is replaced only if every primitive,
parameter and operand is the expected one, and nobody else reads a value that goes away.

    scores = matmul(q, kt), then * or / a number      slopes = p * (g_p - sum(g_p * p))
    where(hidden, -inf, scores), or scores + mask     where(hidden, 0, slopes)
    p = softmax(scores), dropped                      g_q = matmul(slopes * number, k), g_kt, g_v
    out = matmul(p, v)                                with g_p = matmul(g, v^T), dropped
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...core.primitive import PRIMITIVES
from ...core.tape import Value
from ...ops.nn.attention import tiles_pay
from ..ir.program import Apply, Program


def attention(program: Program) -> Program:
    """A program with attention in tiles where it was written by hand."""
    return program.with_instructions(with_tiles(program, len(program.instructions))[0])


def with_tiles(program: Program, forward: int) -> tuple[list[Apply], list[Apply]]:
    """The first `forward` instructions and the others, with attention in tiles."""
    graph = _Graph(program)
    number = program.next_number()
    dropped: set[int] = set()
    added: dict[int, list[Apply]] = {}
    for apply in program.applied():
        found = _found(graph, apply)
        if found is None or not dropped.isdisjoint(map(id, found.inside)):
            continue
        writer = _Writer(found, number)
        for at, made in writer.write(graph):
            added.setdefault(at, []).extend(made)
        number = writer.number
        dropped.update(map(id, found.inside))
    applied = program.applied()
    if not dropped:
        return list(applied[:forward]), list(applied[forward:])
    instructions: list[Apply] = []
    for apply in applied:
        instructions += added.get(id(apply), [])
        if id(apply) not in dropped:
            instructions.append(apply)
    made_first = {v.number for x in applied[:forward] for v in x.outputs}
    for apply in applied[:forward]:
        made_first.update(v.number for x in added.get(id(apply), []) for v in x.outputs)
    before = _live(program, applied)
    halves: tuple[list[Apply], list[Apply]] = [], []
    for x in _tidied(program, instructions, before, number):
        halves[x.outputs[-1].number not in made_first].append(x)
    return halves


def _tidied(
    program: Program, instructions: list[Apply], before: set[int], number: int
) -> Iterator[Apply]:
    """Without what was live and is so no more: masks of dropout, and the numbers of their draws.

    A draw whose numbers nobody reads only moves the state of the generator.
    """
    live = _live(program, instructions)
    read = {v.number for v in program.needed()}
    read.update(v.number for x in instructions if id(x) in live for v in x.reads())
    for x in instructions:
        if id(x) in before and id(x) not in live:
            continue
        if x.primitive.name == "random" and x.outputs[0].number not in read and _is_uniform(x):
            before_draw = Value(number, x.inputs[0].shape, x.inputs[0].dtype)
            number += 1
            words = -(-math.prod(x.outputs[0].shape) // 2)
            yield replace(
                x,
                primitive=PRIMITIVES["reserve"],
                params={"words": words},
                outputs=(before_draw, x.outputs[1]),
            )
        else:
            yield x


def _is_uniform(draw: Apply) -> bool:
    return bool(draw.params["kind"] == "uniform" and draw.params["dtype"] == np.float32)


def _live(program: Program, instructions: Sequence[Apply]) -> set[int]:
    """id() of the instructions whose results are read, or that do something else."""
    needed = {value.number for value in program.needed()}
    live = set()
    for x in reversed(instructions):
        if not x.primitive.pure or any(v.number in needed for v in x.outputs):
            live.add(id(x))
            needed.update(v.number for v in x.reads())
    return live


class _Graph:
    """Who makes and who reads each value of a program."""

    def __init__(self, program: Program) -> None:
        applied = program.applied()
        self.position = {id(x): i for i, x in enumerate(applied)}
        self.makers = {v.number: x for x in applied for v in x.outputs}
        self.constants = {v.number: array for v, array in program.constants}
        self.needed = {v.number for v in program.needed()}
        self.readers: dict[int, list[Apply]] = {}
        for x in applied:
            for number in {v.number for v in x.reads()}:
                self.readers.setdefault(number, []).append(x)

    def maker(self, value: Any, name: str) -> Apply | None:
        """The instruction that makes a value, if it is of this name."""
        made = self.makers.get(value.number) if isinstance(value, Value) else None
        return made if made is not None and made.primitive.name == name else None

    def known_at(self, value: Value) -> int:
        """The position of the instruction that makes a value; -1 if it comes from outside."""
        made = self.makers.get(value.number)
        return -1 if made is None else self.position[id(made)]

    def readers_of(self, value: Value, name: str) -> list[Apply]:
        return [x for x in self.readers.get(value.number, ()) if x.primitive.name == name]

    def number(self, x: Any) -> float | None:
        """What an operand is if it is one known number."""
        if isinstance(x, Value):
            array = self.constants.get(x.number)
            return float(array.item()) if array is not None and array.size == 1 else None
        return float(x) if isinstance(x, (int, float)) else None

    def swaps(self, value: Any, of: Value) -> bool:
        """Whether a value is another one with its last two dimensions swapped."""
        made = self.maker(value, "permute")
        return made is not None and _same(made.inputs[0], of) and _is_swap(made)


def _same(x: Any, y: Any) -> bool:
    return isinstance(x, Value) and isinstance(y, Value) and x.number == y.number


def _is_swap(permute: Apply) -> bool:
    n = len(permute.outputs[0].shape)
    return n >= 2 and tuple(permute.params["dims"]) == (*range(n - 2), n - 1, n - 2)


def _keeps_matrices(x: Apply) -> bool:
    """Whether an instruction only writes the dimensions before the last two in another way."""
    if x.primitive.name == "permute":
        return tuple(x.params["dims"]) == tuple(range(len(x.outputs[0].shape)))
    if x.primitive.name != "reshape":
        return False
    before, after = x.inputs[0].shape, x.outputs[0].shape
    return min(len(before), len(after)) >= 2 and before[-2:] == after[-2:]


# -- what is found ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """One attention: what goes into it, what comes out, and the instructions in between."""

    q: Value
    kt: Value
    p: Value  # the probabilities; they say how dimensions before the last two are written
    scale: float
    v: Value | None = None
    mask: Value | None = None
    hides: bool = False  # whether a boolean mask says what is hidden
    state: Value | None = None
    dropout: float = 0.0
    g: Value | None = None
    #: products that make the results; None for what nobody asked for
    out: Apply | None = None
    g_q: Apply | None = None
    g_kt: Apply | None = None
    g_v: Apply | None = None
    inside: list[Apply] = field(default_factory=list)

    def results(self) -> list[Apply]:
        return [x for x in (self.out, *self.gradients()) if x is not None]

    def gradients(self) -> list[Apply]:
        return [x for x in (self.g_q, self.g_kt, self.g_v) if x is not None]


class _Other(Exception):
    """It is not attention, or not as it is known here."""


def _found(graph: _Graph, quotient: Apply) -> _Found | None:
    """The attention around a division, if that is the last step of its softmax."""
    if quotient.primitive.name != "div":
        return None
    try:
        return _Search(graph).run(quotient)
    except _Other:
        return None


def _expect(condition: bool) -> None:
    if not condition:
        raise _Other


class _Search:
    """Walks from a softmax to the products around it."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.inside: list[Apply] = []

    def run(self, quotient: Apply) -> _Found:
        scores = self.softmax(quotient)
        p = quotient.outputs[0]
        _expect(p.dtype in (np.float32, np.float64))
        found = self.scores(scores, p)
        names = self.dropped(found)
        self.products_with_values(found, names)
        slopes = self.slopes(found)
        if slopes is not None:
            self.gradients(found, slopes)
        _expect(bool(found.results()))
        found.inside = self.inside
        self.check(found)
        return found

    def take(self, apply: Apply | None) -> Apply:
        """Count an instruction as one of those to replace."""
        if apply is None:
            raise _Other
        self.inside.append(apply)
        return apply

    def made(self, value: Any, name: str) -> Apply:
        return self.take(self.graph.maker(value, name))

    # -- forward ---------------------------------------------------------------------------------

    def softmax(self, quotient: Apply) -> Value:
        """What a softmax over the last dimension takes, if this division is its end."""
        self.take(quotient)
        powers, total = quotient.inputs
        added = self.made(total, "sum")
        shifted = self.made(self.made(powers, "exp").inputs[0], "sub")
        scores, top = shifted.inputs
        largest = self.made(top, "amax")
        _expect(_same(added.inputs[0], powers) and _same(largest.inputs[0], scores))
        _expect(isinstance(scores, Value) and scores.shape == quotient.outputs[0].shape)
        last = {"dims": (len(scores.shape) - 1,), "keepdim": True}
        _expect(added.params == last and largest.params == last)
        found: Value = scores
        return found

    def scores(self, scores: Value, p: Value) -> _Found:
        """The product of queries and keys that scores are made of, and their mask."""
        where = self.graph.maker(scores, "where")
        if where is not None:
            self.take(where)
            condition, x, y = where.inputs
            hides = self.graph.number(x) == -math.inf
            _expect(hides or self.graph.number(y) == -math.inf)
            found = self.scaled_product(y if hides else x, p)
            _expect(isinstance(condition, Value) and condition.dtype == np.bool_)
            found.mask, found.hides = condition, hides
            return found
        total = self.graph.maker(scores, "add")
        if total is None:
            return self.scaled_product(scores, p)
        self.take(total)
        for x, mask in (total.inputs, total.inputs[::-1]):
            taken = len(self.inside)
            try:
                found = self.scaled_product(x, p)
            except _Other:
                del self.inside[taken:]
                continue
            _expect(isinstance(mask, Value) and mask.dtype == p.dtype)
            found.mask = mask
            return found
        raise _Other

    def scaled_product(self, scores: Any, p: Value) -> _Found:
        _expect(isinstance(scores, Value) and scores.shape == p.shape and scores.dtype == p.dtype)
        scale = 1.0
        made = self.graph.makers.get(scores.number)
        if made is not None and made.primitive.name in ("mul", "div"):
            factor = self.factor(made)
            if factor is not None:
                scale, scores = factor
                self.take(made)
        product = self.made(self.behind(scores), "matmul")
        q, kt = product.inputs
        _expect(isinstance(q, Value) and isinstance(kt, Value))
        _expect(q.shape[:-2] == kt.shape[:-2] == product.outputs[0].shape[:-2])
        _expect(len(q.shape) >= 2 and q.dtype == kt.dtype == p.dtype)
        return _Found(q, kt, p, scale)

    def factor(self, made: Apply) -> tuple[float, Any] | None:
        """A number and what is multiplied by it, or by its inverse in a division."""
        x, y = made.inputs
        if made.primitive.name == "div":
            number = self.graph.number(y)
            return None if not number or not math.isfinite(number) else (1.0 / number, x)
        for value, other in ((x, y), (y, x)):
            number = self.graph.number(other)
            if number is not None and math.isfinite(number):
                return number, value
        return None

    def behind(self, value: Value) -> Value:
        """The value whose matrices this one shows, perhaps under other leading dimensions."""
        made = self.graph.makers.get(value.number)
        while made is not None and _keeps_matrices(made):
            value = self.take(made).inputs[0]
            made = self.graph.makers.get(value.number)
        return value

    def ahead(self, value: Value) -> list[Value]:
        """A value and those that show its matrices under other leading dimensions."""
        names = [value]
        for name in names:
            for reader in self.graph.readers.get(name.number, ()):
                if _keeps_matrices(reader):
                    names.append(self.take(reader).outputs[0])
        return names

    def dropped(self, found: _Found) -> list[Value]:
        """The probabilities that meet the values, under all their names."""
        drops = self.graph.readers_of(found.p, "dropout")
        if not drops:
            return self.ahead(found.p)
        _expect(len(drops) == 1 and _same(drops[0].inputs[0], found.p))
        kept = self.graph.maker(drops[0].inputs[1], "ge")
        if kept is None:
            raise _Other
        drawn = self.graph.maker(kept.inputs[0], "random")
        if drawn is None:
            raise _Other
        chance = self.graph.number(kept.inputs[1])
        if chance is None or not 0.0 <= chance <= 1.0:
            raise _Other
        _expect(_same(drawn.outputs[0], kept.inputs[0]))
        _expect(_is_uniform(drawn))
        _expect(tuple(drawn.params["shape"]) == found.p.shape)
        _expect(drops[0].params["scale"] == (1.0 / (1.0 - chance) if chance < 1 else 0.0))
        found.state, found.dropout = drawn.inputs[0], chance
        self.drop = drops[0]
        return self.ahead(self.take(drops[0]).outputs[0])

    def products_with_values(self, found: _Found, names: Iterable[Value]) -> None:
        """The product with the values, and the one that makes their gradient."""
        for name in names:
            for product in self.graph.readers_of(name, "matmul"):
                _expect(found.out is None and _same(product.inputs[0], name))
                found.out = self.take(product)
            for turned in self.graph.readers_of(name, "permute"):
                if not _is_swap(turned):
                    continue
                self.take(turned)
                for product in self.graph.readers_of(turned.outputs[0], "matmul"):
                    _expect(found.g_v is None and _same(product.inputs[0], turned.outputs[0]))
                    found.g_v = self.take(product)
                    found.g = product.inputs[1]

    # -- backward --------------------------------------------------------------------------------

    def slopes(self, found: _Found) -> Value | None:
        """The gradient of what softmax took, if it is there: p * (g_p - sum(g_p * p))."""
        p = found.p
        for product in self.graph.readers_of(p, "mul"):
            for centred in product.inputs:
                difference = self.graph.maker(centred, "sub")
                if difference is not None and not _same(centred, p):
                    g_p, mean = difference.inputs
                    self.take(product)
                    self.take(difference)
                    total = self.made(mean, "sum")
                    last = {"dims": (len(p.shape) - 1,), "keepdim": True}
                    weighted = self.made(total.inputs[0], "mul")
                    pair = {x.number for x in weighted.inputs if isinstance(x, Value)}
                    _expect(isinstance(g_p, Value) and pair == {g_p.number, p.number})
                    _expect(total.params == last and g_p.shape == p.shape)
                    _expect({v.number for v in product.reads()} == {p.number, centred.number})
                    self.gradient_of_probabilities(found, g_p)
                    slopes: Value = product.outputs[0]
                    return slopes
        return None

    def gradient_of_probabilities(self, found: _Found, g_p: Value) -> None:
        if found.state is not None:
            drop = self.made(g_p, "dropout")
            _expect(drop.params == self.drop.params)
            _expect(_same(drop.inputs[1], self.drop.inputs[1]))
            g_p = drop.inputs[0]
        product = self.made(self.behind(g_p), "matmul")
        g, vt = product.inputs
        _expect(found.g is None or _same(found.g, g))
        turned = self.graph.maker(vt, "permute")
        if turned is None or not _is_swap(turned) or not isinstance(g, Value):
            raise _Other
        found.g, found.v = g, turned.inputs[0]

    def gradients(self, found: _Found, slopes: Value) -> None:
        """The gradients of queries and keys."""
        if found.mask is not None and found.mask.dtype == np.bool_:
            (where,) = self.readers(slopes, "where")
            condition, *sides = where.inputs
            _expect(_same(condition, found.mask))
            zero, shown = sides if found.hides else sides[::-1]
            _expect(self.graph.number(zero) == 0.0 and _same(shown, slopes))
            slopes = self.take(where).outputs[0]
        if found.scale != 1.0:
            readers = [*self.graph.readers_of(slopes, "mul"), *self.graph.readers_of(slopes, "div")]
            _expect(len(readers) == 1)
            factor = self.factor(readers[0])
            _expect(factor is not None and factor[0] == found.scale and _same(factor[1], slopes))
            slopes = self.take(readers[0]).outputs[0]
        for name in self.ahead(slopes):
            for product in self.graph.readers_of(name, "matmul"):
                x, y = product.inputs
                if _same(x, name) and self.graph.swaps(y, found.kt) and found.g_q is None:
                    found.g_q = self.take(product)
                elif _same(y, name) and self.graph.swaps(x, found.q) and found.g_kt is None:
                    found.g_kt = self.take(product)
                else:
                    raise _Other

    def readers(self, value: Value, name: str) -> list[Apply]:
        found = self.graph.readers_of(value, name)
        _expect(len(found) == 1)
        return found

    # -- the whole -------------------------------------------------------------------------------

    def check(self, found: _Found) -> None:
        """Nobody else reads what goes away, shapes fit, and tiles pay."""
        if found.out is not None:
            _expect(found.v is None or _same(found.out.inputs[1], found.v))
            found.v = found.out.inputs[1]
        results = {v.number for x in found.results() for v in x.outputs}
        inside = {id(x) for x in self.inside}
        for x in self.inside:
            for value in x.outputs:
                if value.number not in results:
                    _expect(value.number not in self.graph.needed)
                    readers = self.graph.readers.get(value.number, ())
                    _expect(all(id(reader) in inside for reader in readers))
        self.check_shapes(found)

    def check_shapes(self, found: _Found) -> None:
        q, kt, v, p, g = found.q, found.kt, found.v, found.p, found.g
        if not isinstance(v, Value):
            raise _Other
        _expect(v.dtype == p.dtype and len(v.shape) >= 2)
        for x in (q, kt, v):
            _expect(math.prod(x.shape[:-2]) == math.prod(p.shape[:-2]))
        queries, keys = p.shape[-2:]
        _expect(q.shape[-2] == queries and kt.shape[-1] == v.shape[-2] == keys)
        _expect(q.shape[-1] == kt.shape[-2])
        _expect((g is None) == (not found.gradients()))
        if g is not None:
            _expect(math.prod(g.shape[:-2]) == math.prod(p.shape[:-2]) and g.dtype == p.dtype)
            _expect(tuple(g.shape[-2:]) == (queries, v.shape[-1]))
        batch = p.shape[:-2]
        k_shape, v_shape = (*batch, keys, q.shape[-1]), (*batch, *v.shape[-2:])
        _expect(tiles_pay((*batch, *q.shape[-2:]), k_shape, v_shape))
        self.check_order(found)

    def check_order(self, found: _Found) -> None:
        """What goes in is known where the first result is made; backward comes after forward."""
        position = self.graph.position
        gradients = [position[id(x)] for x in found.gradients()]
        first = min(gradients) if found.out is None else position[id(found.out)]
        for value in (found.q, found.kt, found.v, found.mask, found.state):
            _expect(value is None or self.graph.known_at(value) < first)
        for at in gradients:
            _expect(found.out is None or first < at)
            _expect(found.g is not None and self.graph.known_at(found.g) < min(gradients))


# -- what is written instead -----------------------------------------------------------------------


class _Writer:
    """The instructions of attention in tiles."""

    def __init__(self, found: _Found, number: int) -> None:
        self.found, self.number = found, number
        self.batch = tuple(found.p.shape[:-2])
        self.made: list[Apply] = []

    def write(self, graph: _Graph) -> Iterator[tuple[int, list[Apply]]]:
        """Instructions, each group with the id() of the one that it stands before."""
        found, gradients = self.found, self.found.gradients()
        first = min(gradients, key=lambda x: graph.position[id(x)]) if gradients else None
        at = found.out if found.out is not None else first
        assert at is not None
        self.like = at
        operands, out, lse = self.forward()
        if first is None or first is at:
            if first is not None:
                self.backward(operands, out, lse)
            yield id(at), self.made
            return
        yield id(at), self.made
        self.made, self.like = [], first
        self.backward(operands, out, lse)
        yield id(first), self.made

    def new(self, shape: tuple[int, ...], dtype: Any) -> Value:
        self.number += 1
        return Value(self.number - 1, shape, dtype)

    def apply(
        self, name: str, inputs: Sequence[Any], outputs: Sequence[Value], **params: Any
    ) -> None:
        like = self.like
        where = (like.location, like.region, like.layer)
        self.made.append(Apply(PRIMITIVES[name], params, tuple(inputs), tuple(outputs), *where))

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
        """What a kernel writes for a result of the old program: itself, if it has our shape."""
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
        given = [g, *operands, delta, lse]
        self.apply("tiled_attention_gradient", given, [g_q, g_k, g_v], **self.options())
        for made, asked in ((g_q, found.g_q), (g_v, found.g_v)):
            if asked is not None:
                self.finish(made, asked.outputs[0])
        if found.g_kt is not None:
            result = found.g_kt.outputs[0]
            turned = self.named(result)
            self.swapped(g_k, turned)
            self.finish(turned, result)
