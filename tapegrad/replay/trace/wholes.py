"""Wholes: the gradient rule of a composite as one operation, beside its parts.

Comes in: a composite's entry, gradients and results. Goes out: an entry for its whole rule.
While a program is captured, composites run part by part, and so do their rules. A target may run
some of them whole, forward and backward: `Program.wholes` has them, and `passes/regroup.py` puts
them in the place of their parts. Called by `log.py`, which also notes the composites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.modes import numbers
from ...core.primitive import OPAQUE, Primitive
from ...core.tape import Entry, Value, new_entry
from ...core.tensor import Tensor


class _Operand:
    """In a pattern: the place of the next operand."""

    def __repr__(self) -> str:
        return "…"


_OPERAND = _Operand()


@functools.cache
def vjp_primitive(p: Primitive) -> Primitive:
    """The rule of a composite as a primitive: gradients and saved values in, gradients out."""

    def kernel(*arrays: Any, pattern: Any, needs: tuple[bool, ...], params: Any) -> Any:
        g, saved = _filled(pattern, iter(arrays))
        results = p.pull(g, [True if need else None for need in needs], tuple(saved), params)
        return tuple([r for r in results if r is not None])

    return Primitive(f"{p.name}_backward", kernel, OPAQUE, inputs=(), rest="values")


def vjp_whole(
    entry: Entry,
    g: Any,
    edges: Sequence[Any],
    saved: Sequence[Any],
    results: Sequence[Any],
    known: Callable[[Tensor], Value | None],
) -> Entry | None:
    """An entry for a rule that has run on Tensors; None if the log does not know all its values."""
    tensors: list[Tensor] = []
    pattern = [_patterned(g, tensors), _patterned(list(saved), tensors)]
    given = [known(tensor) for tensor in tensors]
    made = [known(r) if isinstance(r, Tensor) else None for r in results if r is not None]
    operands = [value for value in given if value is not None]
    outputs = [value for value in made if value is not None]
    names = {value.number for value in outputs}
    # A rule may return one of its operands, or one array for several inputs.
    mixed = len(names) < len(outputs) or any(value.number in names for value in operands)
    if mixed or len(operands) < len(given) or len(outputs) < len(made):
        return None
    needs = tuple(edge is not None for edge in edges)
    params = {"pattern": pattern, "needs": needs, "params": entry.params}
    whole = new_entry(vjp_primitive(entry.primitive), params, (), (), next(numbers), entry.location)
    whole.log = (tuple(operands), tuple(outputs))
    return whole


def _patterned(x: Any, tensors: list[Tensor]) -> Any:
    """The pattern of a value; appends its tensors to a list."""
    if isinstance(x, list):
        return [_patterned(item, tensors) for item in x]
    if isinstance(x, Tensor):
        tensors.append(x)
        return _OPERAND
    return x


def _filled(pattern: Any, operands: Iterator[Any]) -> Any:
    """A pattern with its operands filled in."""
    if isinstance(pattern, list):
        return [_filled(item, operands) for item in pattern]
    return next(operands) if pattern is _OPERAND else pattern
