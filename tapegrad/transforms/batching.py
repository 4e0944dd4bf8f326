"""Batches: how primitives run on tensors that stand for all examples of a batch.

Comes in: a primitive and inputs, some of them `Batched`. Goes out: batched results. A primitive
runs once on the whole batch, by its batch rule (`core/batch_rules.py`). A composite without one
runs part by part, but stays one operation: its gradient is its own rule on batched tensors. There
is no loop over examples: a primitive without a rule raises an error with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..core import numeric
from ..core.batch_rules import has_shape, rule_of, with_batch
from ..core.complexes import HOLOMORPHIC, OWN, conjugating
from ..core.modes import AUTOCAST, GRAD, STATE, TRANSFORM, switched
from ..core.primitive import OPAQUE, PRIMITIVES, Primitive
from ..core.tensor import Tensor, wrap
from ..core.wrapped import Wrapped, batched
from .levels import Level, record_on


class BatchLevel(Level):
    """A run of `vmap` over a number of examples."""

    def __init__(self, size: int, randomness: str = "error") -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def run(self, p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        values = [self.value(x) for x in inputs]
        flags = tuple([self.has(x) for x in inputs])
        out = run_batch(p, values, flags, params)
        outs = out if isinstance(out, tuple) else (out,)
        return tuple([batched(self.whole(y), self) for y in outs[: len(p.outputs)]])

    def whole(self, y: Any) -> Any:
        """A result with the batch dimension; a primitive may have returned an input without it."""
        if not y.shape or y.shape[0] != self.size:
            raise RuntimeError(f"a batch rule returned shape {tuple(y.shape)} for {self.size}")
        return y

    def adopt(self, tensor: Any, what: str) -> None:
        raise RuntimeError(
            f"vmap: {what} would write values of all examples into a tensor that they share; use "
            "the operation that returns a new tensor, or write to a tensor made of a batched one, "
            "such as x.new_zeros()"
        )

    def refuse(self, x: Any) -> None:
        """Raise: a tensor of this level is used after the function has returned."""
        raise RuntimeError(
            "a tensor from inside of vmap was kept and used after vmap had returned, where it "
            "stands for nothing; return it from the function instead"
        )


def run_batch(
    p: Primitive, inputs: Sequence[Any], flags: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Run on Tensors or raw arrays; the flagged ones have a leading batch dimension."""
    rule = rule_of(p)
    if rule is not None:
        return rule(p, inputs, flags, params)
    if p.composite:
        dtypes = tuple([getattr(getattr(x, "_array", x), "dtype", None) for x in inputs])
        some = any(d is not None and numeric.is_complex(d) for d in dtypes)
        return batch_of(p, tuple(flags), dtypes if some else None)(*inputs, **params)
    raise RuntimeError(
        f"vmap: there is no batch rule for {p.name}; write what it does with other operations, or "
        "call it outside of vmap"
    )


@cache
def batch_of(
    p: Primitive, flags: tuple[bool, ...], dtypes: tuple[Any, ...] | None = None
) -> Primitive:
    """A composite for a whole batch: its kernel and its rule run on batched tensors.

    `dtypes` are those of the inputs if one of them is complex: then its rule conjugates.
    """
    rules = p
    if dtypes is not None and p.complex == HOLOMORPHIC:
        rules = conjugating(p, [None if d is None else np.empty(0, d) for d in dtypes])

    def kernel(*given: Any, **params: Any) -> Any:
        return _run_parts(p, flags, given, params)

    whole = Primitive(
        f"{p.name}_of_batch",
        kernel,
        OPAQUE,
        inputs=p.inputs,
        rest=p.rest,
        outputs=p.outputs,
        extras=p.extras,
        rules=p.rules,
        joint=p.joint,
        composite=True,
        complex=None if p.complex is None else OWN,
    )
    whole.slots, whole.keeps_values = p.slots, p.keeps_values
    whole.native_size = 1 << 62
    whole._internal = p.internal
    whole.complex = p.complex

    def pull(g: Any, edges: Any, saved: Any, params: dict[str, Any]) -> list[Any]:
        return _pull_parts(rules, flags, g, edges, saved, params)

    whole._pull = pull
    return whole


def _run_parts(p: Primitive, flags: Any, given: Sequence[Any], params: dict[str, Any]) -> Any:
    on_tensors = any(isinstance(x, Tensor) for x in given)
    size = next(x.shape[0] for x, b in zip(given, flags, strict=True) if b)
    level = BatchLevel(size)
    examples = [_wrapped(x, b, level) for x, b in zip(given, flags, strict=True)]
    with level.entered(), switched(off=AUTOCAST | (0 if on_tensors else GRAD)):
        out = p.kernel(*examples, **params)
    level.alive = False
    several = isinstance(out, tuple)
    outs = tuple([_unwrapped(y, level, on_tensors) for y in (out if several else (out,))])
    return outs if several else outs[0]


def _pull_parts(
    p: Primitive, flags: Any, g: Any, edges: Any, saved: Any, params: dict[str, Any]
) -> list[Any]:
    """The gradient rule on batched tensors; gradients of unbatched inputs are summed."""
    parts = g if isinstance(g, list) else [g]
    on_tensors = any(isinstance(x, Tensor) for x in (*parts, *saved))
    size = next(x.shape[0] for x in parts if x is not None)
    level = BatchLevel(size)
    received = [None if x is None else _wrapped(x, True, level) for x in parts]
    count = len(p.inputs)
    values: list[Any] = []
    for (what, index, _), value in zip(p.slots, saved, strict=True):
        if what == "out":
            values.append(_wrapped(value, True, level))
        elif what == "in":
            values.append(_wrapped(value, flags[index], level))
        elif what == "shape":
            values.append(tuple(value[1:] if flags[index] else value))
        elif what == "rest":
            values.append([_wrapped(x, flags[count + i], level) for i, x in enumerate(value or ())])
        elif what == "shapes":
            values.append([tuple(s[1:] if flags[count + i] else s) for i, s in enumerate(value)])
        else:
            values.append(value)
    with level.entered(), switched(off=0 if on_tensors else GRAD):
        found = p.pull(received if isinstance(g, list) else received[0], edges, values, params)
        results = [
            None if r is None else summed_batch(r, flags[i], level) for i, r in enumerate(found)
        ]
    level.alive = False
    return [r if r is None or on_tensors else r._array for r in results]


def summed_batch(r: Any, has_batch: bool, level: BatchLevel) -> Any:
    """The gradient of an input for the whole batch: summed over examples if it has no batch."""
    value = _unwrapped(r, level, True)
    return value if has_batch else PRIMITIVES["sum"](value, dims=(0,), keepdim=False)


def _wrapped(x: Any, has_batch: bool, level: BatchLevel) -> Any:
    if not has_shape(x):
        return x
    tensor = x if isinstance(x, Tensor) else wrap(x)
    return batched(tensor, level) if has_batch else tensor


def _unwrapped(y: Any, level: BatchLevel, on_tensors: bool) -> Any:
    """The whole batch of a result; a result that does not depend on the batch is expanded."""
    tensor = y if isinstance(y, Tensor) else wrap(y)
    value = tensor._extra.value if level.has(tensor) else with_batch(tensor, level.size)
    return value if on_tensors else value._array


def drawn_in_batches(shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """A random tensor inside of `vmap`: drawn for each example, or once for all of them."""
    levels = [level for level in STATE.levels if isinstance(level, BatchLevel)]
    if any(level.randomness == "error" for level in levels):
        raise RuntimeError(
            "vmap: a random operation needs to know whether examples share their numbers: "
            "randomness='same' if they do, 'different' if not; or draw outside of vmap"
        )
    different = [level for level in levels if level.randomness == "different"]
    out = draw((*[level.size for level in different], *shape))
    for level in different:
        out = batched(out, level)
    return out


def with_batches_of(x: Tensor, *others: Any) -> Tensor:
    """`x` expanded over every batch to which one of the others belongs.

    For operations that write a value into a copy of `x`.
    """
    for level in STATE.levels if STATE.mode & TRANSFORM else ():
        if not isinstance(level, BatchLevel) or _is_in(x, level):
            continue
        if any(_is_in(y, level) for y in others):
            made = batched(with_batch(level.value(x), level.size), level)
            record_on(level, PRIMITIVES["clone"], {}, (x,), (made,))
            x = made
    return x


def _is_in(x: Any, level: BatchLevel) -> bool:
    while isinstance(x, Wrapped):
        if x._extra.level is level:
            return True
        x = x._extra.value
    return False
