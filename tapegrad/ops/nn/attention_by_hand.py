"""Finds hand-written attention among the instructions of a program.

Comes in: an `InstructionGraph` of a recorded program. Goes out: a `HandWritten`, if the program
multiplies queries and keys, perhaps scales and masks, takes softmax, perhaps drops, and multiplies
by values; with the gradients of that, if they are there. Called by `attention_rewrite.py`.

Each softmax over the last dimension is a candidate. The search walks from it to the products around
it and collects the instructions in between. It matches only if every primitive, parameter and
operand is the expected one, and no other instruction reads a value in between.

    scores = matmul(q, kt), then * or / a number      slopes = p * (g_p - sum(g_p * p))
    where(hidden, -inf, scores), or scores + mask     where(hidden, 0, slopes)
    p = softmax(scores), dropped                      g_q = matmul(slopes * number, k), g_kt, g_v
    out = matmul(p, v)                                with g_p = matmul(g, v^T), dropped
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.primitive import PRIMITIVES
from ...core.tape import Value
from .attention import tiles_pay


def applies(instruction: Any, name: str) -> bool:
    """Whether an instruction applies the library's primitive of this name."""
    return instruction.primitive is PRIMITIVES[name]


class InstructionGraph:
    """The instructions that make and read each value of a program."""

    def __init__(self, program: Any) -> None:
        applied = program.applied()
        self.position = {id(x): i for i, x in enumerate(applied)}
        self.makers = {v.number: x for x in applied for v in x.outputs}
        self.constants = {v.number: array for v, array in program.constants}
        self.needed = {v.number for v in program.needed()}
        self.readers: dict[int, list[Any]] = {}
        for x in applied:
            for number in {v.number for v in x.reads()}:
                self.readers.setdefault(number, []).append(x)

    def maker(self, value: Any, name: str) -> Any:
        """The instruction that makes a value, if it has this name."""
        made = self.makers.get(value.number) if isinstance(value, Value) else None
        return made if made is not None and applies(made, name) else None

    def known_at(self, value: Value) -> int:
        """The position of the instruction that makes a value; -1 if it comes from outside."""
        made = self.makers.get(value.number)
        return -1 if made is None else self.position[id(made)]

    def readers_of(self, value: Value, name: str) -> list[Any]:
        return [x for x in self.readers.get(value.number, ()) if applies(x, name)]

    def number(self, x: Any) -> float | None:
        """The number that an operand is known to be, or None."""
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


def _is_swap(permute: Any) -> bool:
    n = len(permute.outputs[0].shape)
    return n >= 2 and tuple(permute.params["dims"]) == (*range(n - 2), n - 1, n - 2)


def _keeps_matrices(x: Any) -> bool:
    """Whether an instruction only reshapes the dimensions before the last two."""
    if applies(x, "permute"):
        return tuple(x.params["dims"]) == tuple(range(len(x.outputs[0].shape)))
    if not applies(x, "reshape"):
        return False
    before, after = x.inputs[0].shape, x.outputs[0].shape
    return min(len(before), len(after)) >= 2 and before[-2:] == after[-2:]


# -- what is found ---------------------------------------------------------------------------------


def _is_uniform(draw: Any) -> bool:
    return bool(draw.params["kind"] == "uniform" and draw.params["dtype"] == np.float32)


@dataclass(slots=True)
class HandWritten:
    """One attention: its operands, its results, and the instructions in between."""

    q: Value
    kt: Value
    p: Value  # the probabilities; their leading dimensions are used for all operands
    scale: float
    v: Value | None = None
    mask: Value | None = None
    hides: bool = False  # whether a boolean mask is true where scores are hidden
    state: Value | None = None
    draw: Any = None  # the instruction that draws for dropout
    dropout: float = 0.0
    g: Value | None = None
    #: products that make the results; None for results that the program does not compute
    out: Any = None
    g_q: Any = None
    g_kt: Any = None
    g_v: Any = None
    inside: list[Any] = field(default_factory=list)

    def results(self) -> list[Any]:
        return [x for x in (self.out, *self.gradients()) if x is not None]

    def gradients(self) -> list[Any]:
        return [x for x in (self.g_q, self.g_kt, self.g_v) if x is not None]


class _Other(Exception):
    """It is not attention, or not in a supported form."""


def find(graph: InstructionGraph, quotient: Any) -> HandWritten | None:
    """The attention around a division, if that is the last step of its softmax."""
    if not applies(quotient, "div"):
        return None
    try:
        return _HandSearch(graph).run(quotient)
    except _Other:
        return None


def _expect(condition: bool) -> None:
    if not condition:
        raise _Other


class _HandSearch:
    """Walks from a softmax to the products around it."""

    def __init__(self, graph: InstructionGraph) -> None:
        self.graph = graph
        self.inside: list[Any] = []

    def run(self, quotient: Any) -> HandWritten:
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

    def take(self, apply: Any) -> Any:
        """Add an instruction to those to replace."""
        if apply is None:
            raise _Other
        self.inside.append(apply)
        return apply

    def made(self, value: Any, name: str) -> Any:
        return self.take(self.graph.maker(value, name))

    # -- forward ---------------------------------------------------------------------------------

    def softmax(self, quotient: Any) -> Value:
        """The input of a softmax over the last dimension, if this division is its last step."""
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

    def scores(self, scores: Value, p: Value) -> HandWritten:
        """Find the product of queries and keys behind the scores, and their mask."""
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

    def scaled_product(self, scores: Any, p: Value) -> HandWritten:
        _expect(isinstance(scores, Value) and scores.shape == p.shape and scores.dtype == p.dtype)
        scale = 1.0
        made = self.graph.makers.get(scores.number)
        if made is not None and (applies(made, "mul") or applies(made, "div")):
            factor = self.factor(made)
            if factor is not None:
                scale, scores = factor
                self.take(made)
        product = self.made(self.behind(scores), "matmul")
        q, kt = product.inputs
        _expect(isinstance(q, Value) and isinstance(kt, Value))
        _expect(q.shape[:-2] == kt.shape[:-2] == product.outputs[0].shape[:-2])
        _expect(len(q.shape) >= 2 and q.dtype == kt.dtype == p.dtype)
        return HandWritten(q, kt, p, scale)

    def factor(self, made: Any) -> tuple[float, Any] | None:
        """The number in a multiplication (or the inverse in a division), and the other operand."""
        x, y = made.inputs
        if applies(made, "div"):
            number = self.graph.number(y)
            return None if not number or not math.isfinite(number) else (1.0 / number, x)
        for value, other in ((x, y), (y, x)):
            number = self.graph.number(other)
            if number is not None and math.isfinite(number):
                return number, value
        return None

    def behind(self, value: Value) -> Value:
        """The value that this one is, but for reshaped leading dimensions."""
        made = self.graph.makers.get(value.number)
        while made is not None and _keeps_matrices(made):
            value = self.take(made).inputs[0]
            made = self.graph.makers.get(value.number)
        return value

    def ahead(self, value: Value) -> list[Value]:
        """A value, and those that equal it but for reshaped leading dimensions."""
        names = [value]
        for name in names:
            for reader in self.graph.readers.get(name.number, ()):
                if _keeps_matrices(reader):
                    names.append(self.take(reader).outputs[0])
        return names

    def dropped(self, found: HandWritten) -> list[Value]:
        """The probabilities that are multiplied by the values, in all reshaped forms."""
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
        found.draw, found.state, found.dropout = drawn, drawn.inputs[0], chance
        self.drop = drops[0]
        return self.ahead(self.take(drops[0]).outputs[0])

    def products_with_values(self, found: HandWritten, names: Iterable[Value]) -> None:
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

    def slopes(self, found: HandWritten) -> Value | None:
        """The gradient of softmax's input, if the program has it: p * (g_p - sum(g_p * p))."""
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

    def gradient_of_probabilities(self, found: HandWritten, g_p: Value) -> None:
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

    def gradients(self, found: HandWritten, slopes: Value) -> None:
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

    def readers(self, value: Value, name: str) -> list[Any]:
        found = self.graph.readers_of(value, name)
        _expect(len(found) == 1)
        return found

    # -- the whole -------------------------------------------------------------------------------

    def check(self, found: HandWritten) -> None:
        """Check that no other instruction reads replaced values, shapes fit, and tiles pay."""
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

    def check_shapes(self, found: HandWritten) -> None:
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

    def check_order(self, found: HandWritten) -> None:
        """Check that operands are known before the first result, and backward follows forward."""
        position = self.graph.position
        gradients = [position[id(x)] for x in found.gradients()]
        first = min(gradients) if found.out is None else position[id(found.out)]
        for value in (found.q, found.kt, found.v, found.mask, found.state):
            _expect(value is None or self.graph.known_at(value) < first)
        for at in gradients:
            _expect(found.out is None or first < at)
            _expect(found.g is not None and self.graph.known_at(found.g) < min(gradients))
