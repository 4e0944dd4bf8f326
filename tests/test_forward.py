"""Forward mode: tangents of every operation of the table, alone, in batches, and differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sweep import NAMES, tensors
from test_vmap import COLLECTIVE, compare, each_call, inexact, slopes, total

import tapegrad
from tapegrad import Tensor, func
from tapegrad.core.tensor import wrap
from tapegrad.ops import TABLE

SWEPT = [n for n in NAMES if TABLE[n].differentiable and n not in COLLECTIVE]
FIXED = [n for n in SWEPT if not TABLE[n].random]


def directions(values: Any) -> tuple[Tensor, ...]:
    """Some direction for each tensor."""
    found = []
    for x in values:
        along = np.sin(1.0 + np.arange(x.numel(), dtype=np.float64)).reshape(tuple(x.shape))
        found.append(wrap(along + 1j * np.flip(along) if x.dtype.is_complex else along))
    return tuple(found)


def of_wanted(function: Any, values: list[Tensor]) -> tuple[Any, tuple[Tensor, ...]]:
    """A function of the differentiable arguments alone, which returns its floating results."""
    wanted = function.wanted

    def part(*given: Tensor) -> Any:
        full = list(values)
        for i, x in zip(wanted, given, strict=True):
            full[i] = x
        tapegrad.manual_seed(0)
        return tuple(y for y in tensors(function(*full)) if inexact(y))

    return part, tuple(values[i] for i in wanted)


def each_part(name: str) -> Any:
    seen = set()
    for what, function, examples, _ in each_call(name):
        key = what.rpartition(" [")[0]
        if key not in seen and function.wanted:
            seen.add(key)
            part, points = of_wanted(function, examples[0])
            if part(*points):
                yield what, part, points


@pytest.mark.parametrize("name", SWEPT)
def test_tangents(name: str) -> None:
    """One run in forward mode equals two in reverse."""
    for what, part, points in each_part(name):
        along = directions(points)
        values, tangents = func.jvp(part, points, along)
        expected_values, linear = func.linearize(part, *points)
        for got, expected in zip(values, expected_values, strict=True):
            compare(got, expected, what)
        for got, expected in zip(tangents, linear(*along), strict=True):
            compare(got, expected, what)


@pytest.mark.parametrize("name", FIXED)
def test_tangents_of_batches(name: str) -> None:
    """vmap of jvp, over directions."""
    for what, part, points in each_part(name):
        along = directions(points)
        several = [tapegrad.stack([t, t * 2.0 + 1.0, -t]) for t in along]
        got = func.vmap(lambda *ts: func.jvp(part, points, ts)[1])(*several)  # noqa: B023
        for k in range(3):
            expected = func.jvp(part, points, tuple(t[k] for t in several))[1]
            for a, b in zip(got, expected, strict=True):
                compare(a[k], b, what)


@pytest.mark.parametrize("name", FIXED)
def test_gradients_of_tangents(name: str) -> None:
    """Reverse over forward equals reverse over two reverses; forward over reverse too."""
    for what, part, points in each_part(name):
        along = directions(points)

        def pushed(*xs: Tensor, part: Any = part, along: Any = along) -> Any:
            return func.jvp(part, xs, along)[1]

        def twice(*xs: Tensor, part: Any = part, along: Any = along) -> Any:
            return func.linearize(part, *xs)[1](*along)

        wanted = list(range(len(points)))
        expected = slopes(twice, wanted)(*points)
        got = slopes(pushed, wanted)(*points)
        for a, b in zip(
            got or [tapegrad.zeros_like(x) for x in points],
            expected or [tapegrad.zeros_like(x) for x in points],
            strict=True,
        ):
            compare(a, b, what)


@pytest.mark.parametrize("name", FIXED)
def test_tangents_of_gradients(name: str) -> None:
    """Forward over reverse equals reverse over reverse."""
    for what, part, points in each_part(name):
        along = directions(points)

        def gradient(*xs: Tensor, part: Any = part) -> Any:
            return total(part(*xs))

        argnums = tuple(range(len(points)))
        slope = func.grad(gradient, argnums=argnums)
        got = func.jvp(slope, points, along)[1]
        expected = func.linearize(slope, *points)[1](*along)
        for a, b in zip(got, expected, strict=True):
            compare(a, b, what)


def test_tables_of_limited_rows_keep_their_tangents() -> None:
    forward_ad = tapegrad.autograd.forward_ad
    table, ones = tapegrad.tensor([[3.0, 4.0], [0.3, 0.4]]), tapegrad.ones(2, 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(table, ones)
        found = tapegrad.nn.functional.embedding(tapegrad.tensor([0, 1]), dual, max_norm=1.0)
        value, tangent = forward_ad.unpack_dual(found)
        np.testing.assert_allclose(value.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
        assert tangent.tolist() == ones.tolist()
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
