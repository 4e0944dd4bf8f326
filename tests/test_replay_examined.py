"""Indices that are looked up twice are examined once, and bad ones are found all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import replayed

import tapegrad as tg
from tapegrad.nn import functional as F
from tapegrad.replay import Compiled
from tapegrad.replay.ir.failing import can_fail

pytest.importorskip("llvmlite")

ROWS = 7


def failing(function: Compiled) -> int:
    """How many instructions of the latest program may find bad data."""
    return sum(map(can_fail, function.replays[-1].executable.program.instructions))


def written(function: Compiled) -> int:
    """How many values are copied to memory from outside at the end."""
    program = function.replays[-1].executable.program
    return sum(i.origins[0].name == "write" for i in program.instructions)


def trained(lookup: Callable[..., Any], rows: int = ROWS) -> tuple[Compiled, Any, Any]:
    """A compiled step that changes a bias before the gradient of a table is known."""
    rng = np.random.default_rng(0)
    table = tg.tensor(rng.standard_normal((rows, 4)).astype(np.float32), requires_grad=True)
    bias = tg.zeros(4, requires_grad=True)

    @tg.compile
    def step(index: Any) -> Any:
        loss = (lookup(table, index) * 2 + bias).exp().sum()
        bias_grad, table_grad = tg.autograd.grad(loss, (bias, table))
        with tg.no_grad():
            bias.sub_(0.01 * bias_grad)
            table.sub_(0.01 * table_grad)
        return loss

    return step, table, bias


def tokens(*numbers: int) -> Any:
    return tg.tensor(list(numbers))


def test_the_gradient_of_a_lookup_relies_on_it() -> None:
    step, _, _ = trained(lambda table, index: table[index])
    for seed in range(5):
        step(tokens(seed, 1, -1))
    assert replayed(step) == 3
    assert failing(step) == 1
    assert written(step) == 0


@pytest.mark.parametrize("bad", [ROWS, -ROWS - 1, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize(
    "lookup",
    [
        lambda table, index: table[index],
        lambda table, index: F.embedding(index.clamp(min=-(1 << 50)), table),
        lambda table, index: table.index_select(0, index),
        lambda table, index: table.gather(0, index[:, None].expand(3, 4)),
    ],
    ids=["index", "embedding", "index_select", "gather"],
)
def test_a_bad_index_changes_nothing(lookup: Any, bad: int) -> None:
    step, table, bias = trained(lookup)
    for seed in range(4):
        step(tokens(seed, 2, 0))
    assert replayed(step) == 2
    before = table.detach().clone(), bias.detach().clone()
    with pytest.raises((IndexError, RuntimeError)):
        step(tokens(1, bad, 2))
    assert tg.equal(table, before[0])
    assert tg.equal(bias, before[1])
    eager, other, other_bias = trained(lookup)
    with tg.no_grad():
        other.copy_(before[0])
        other_bias.copy_(before[1])
    with_eager = eager.__wrapped__(tokens(1, 1, 2))
    np.testing.assert_allclose(step(tokens(1, 1, 2)).item(), with_eager.item(), rtol=1e-5)
    np.testing.assert_allclose(table.detach().numpy(), other.detach().numpy(), rtol=1e-5)


def test_an_index_of_another_range_is_examined_again() -> None:
    """An index that a long table has examined may be beyond a short one."""
    long, short = tg.arange(10.0), tg.arange(4.0, requires_grad=True)

    @tg.compile
    def step(index: Any) -> Any:
        return long[index].sum() * short[index].sum()

    for _ in range(4):
        step(tokens(0, 3, 1))
    assert replayed(step) == 2
    with pytest.raises(IndexError):
        step(tokens(0, 9, 1))


def test_a_part_of_the_indices_does_not_vouch_for_the_rest() -> None:
    table = tg.arange(5.0)

    @tg.compile
    def step(index: Any) -> Any:
        return table[index[:2]].exp().sum() + table[index].sin()

    for _ in range(4):
        step(tokens(0, 3, 1))
    assert replayed(step) == 2
    with pytest.raises(IndexError):
        step(tokens(0, 1, 5))


def test_a_lookup_of_nothing_does_not_vouch_for_indices() -> None:
    empty, table = tg.zeros(5, 0), tg.arange(5.0)

    @tg.compile
    def step(index: Any) -> Any:
        return empty[index].sum() + table[index].sin()

    for _ in range(4):
        step(tokens(0, 3, 1))
    with pytest.raises(IndexError):
        step(tokens(0, 1, 5))
