"""Steps in the manner of their authors, compiled: frozen networks, unset memory, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replaying import close, randn, replayed, same_as_eager

import tapegrad as tg
from tapegrad import nn

F = nn.functional

pytest.importorskip("llvmlite")


def test_a_number_where_a_mask_holds() -> None:
    def clipped(x: Any) -> Any:
        y = x * 1
        y[y < 0] = 0
        y[:, 0][y[:, 0] > 1] = 1
        return y

    same_as_eager(clipped, (4, 5))


@pytest.mark.parametrize("make", [tg.empty, tg.Tensor])
def test_unset_memory(make: Any) -> None:
    def filled(x: Any) -> Any:
        out = make(3, 4)
        for i in range(3):
            out[i] = x * i
        return out

    tg.full((3, 4), 7.0).mul_(3)  # leaves something in the memory that is taken next
    same_as_eager(filled, (4,))


class Adversaries:
    """Two networks that freeze each other, as steps of image translation do."""

    def __init__(self) -> None:
        tg.manual_seed(3)
        self.g, self.d = nn.Linear(3, 4), nn.Linear(4, 1)
        self.optimizers = [tg.optim.SGD(m.parameters(), lr=0.1) for m in (self.g, self.d)]

    def step(self, real: Any, z: Any) -> Any:
        self.d.requires_grad_(True)
        self.optimizers[1].zero_grad()
        loss = F.softplus(-self.d(real)).mean() + F.softplus(self.d(self.g(z).detach())).mean()
        loss.backward()
        self.optimizers[1].step()
        self.d.requires_grad_(False)
        self.optimizers[0].zero_grad()
        other = F.softplus(-self.d(self.g(z))).mean()
        other.backward()
        self.optimizers[0].step()
        return loss + other


@pytest.mark.parametrize("check", [False, True])
def test_networks_that_are_frozen_in_turn(check: bool) -> None:
    eager, other = Adversaries(), Adversaries()
    compiled = tg.compile(other.step, check=check)
    for i in range(7):
        given = randn(5, 4, seed=i), randn(5, 3, seed=i + 50)
        close(compiled(*given), eager.step(*given))
        assert not other.d.weight.requires_grad
        assert other.g.weight.requires_grad
        if i == 5:
            other.d.requires_grad_(True)  # the step begins otherwise, so it is recorded anew
    assert replayed(compiled) >= 3, compiled.explain()
    for a, b in zip(eager.d.parameters(), other.d.parameters(), strict=True):
        close(a, b)


def test_arguments_that_begin_to_require_gradients() -> None:
    layer = nn.Linear(1, 1)

    def residual(x: Any) -> Any:
        x.requires_grad = True
        u = layer(x).sin()
        (slope,) = tg.autograd.grad(u.sum(), x, create_graph=True)
        loss = (slope - u).pow(2).mean()
        layer.zero_grad()
        loss.backward()
        return loss

    compiled = tg.compile(residual)
    for i in range(5):
        a, b = randn(6, 1, seed=i), randn(6, 1, seed=i)
        expected = residual(a)
        gradient = layer.weight.grad.clone()
        close(compiled(b), expected)
        close(layer.weight.grad, gradient)
        assert b.requires_grad
        close(b.grad, a.grad)
    assert replayed(compiled) == 3


def test_a_flag_that_is_flipped_in_every_call() -> None:
    weight = tg.ones(2, requires_grad=True)

    def flipped(x: Any) -> Any:
        weight.requires_grad = not weight.requires_grad
        return (x * weight).detach()

    compiled = tg.compile(flipped)
    for i in range(8):
        compiled(randn(2, seed=i))
        assert weight.requires_grad == bool(i % 2)
    assert replayed(compiled) > 0


def test_frozen_in_forward() -> None:
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(x: Any) -> Any:
        body.requires_grad_(False)
        return head(body(x).tanh()).sum()

    compiled = tg.compile(forward)
    for i in range(5):
        head.zero_grad()
        compiled(randn(4, 3, seed=i)).backward()
        assert head.weight.grad is not None
        assert body.weight.grad is None
    assert replayed(compiled) >= 2


def test_a_result_of_an_argument_that_begins_to_require_gradients_runs_eagerly() -> None:
    compiled = tg.compile(lambda x: (x.requires_grad_() * 2).sum())
    x = randn(3)
    with pytest.warns(UserWarning, match="sets requires_grad of an argument"):
        compiled(x)
    compiled(randn(3)).backward()
    assert x.requires_grad


def test_a_result_that_nobody_can_differentiate() -> None:
    weight = tg.ones(2, requires_grad=True)

    def step(x: Any, detached: bool) -> Any:
        loss = (weight * weight * x).sum()
        (g,) = tg.autograd.grad(loss, weight, retain_graph=True)
        with tg.no_grad():
            weight.sub_(g, alpha=0.1)
        return loss.detach() if detached else loss

    compiled = tg.compile(step)
    for _ in range(4):
        compiled(randn(2), True)
    assert replayed(compiled) == 2
    with pytest.warns(UserWarning, match="return it detached"):
        compiled(randn(2), False)
    compiled(randn(2), False)
    assert np.isfinite(weight.detach().numpy()).all()


def test_a_learning_rate_that_the_step_changes_itself() -> None:
    weight = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([weight], lr=1.0)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
        return loss

    with pytest.warns(UserWarning, match="changes 'lr' of an optimizer in Python"):
        step(tg.ones(2))
    assert weight.tolist() == [0, 0]
    for _ in range(2):
        step(tg.ones(2))
    assert weight.tolist() == [-0.75, -0.75]


def _read_after(x: Any) -> Any:
    part = x[0].detach()
    x.mul_(0.9)
    return part.sum()


def _two_parts(x: Any) -> Any:
    row, column = x[0].detach(), x[:, 1].detach()
    row.mul_(0.9)
    column.mul_(0.8)
    return row.sum() + column.sum() * 2


def _part_of_a_result(x: Any) -> Any:
    y = x * 1
    y[0].detach().mul_(0.5)
    return y.sum()


def _whole(x: Any) -> Any:
    x.transpose(0, 0).detach().mul_(0.9)
    return x.sum()


def _data(x: Any) -> Any:
    x.t()[1].data.zero_()
    x[0].data[2:4].add_(1)
    return (x + 1).sum()


@pytest.mark.parametrize("layout", ["alone", "inside", "turned"])
@pytest.mark.parametrize("f", [_read_after, _two_parts, _part_of_a_result, _whole, _data])
def test_detached_parts_that_change(f: Any, layout: str) -> None:
    def given() -> Any:
        base = randn(4, 20, seed=1)
        inside = base[1:3, 2:18] if layout != "turned" else base.t()[2:18, 1:3].t()
        return inside.clone() if layout == "alone" else inside

    x, y = given(), given()
    compiled = tg.compile(f)
    for _ in range(4):
        close(compiled(x), f(y))
        close(x, y)
    assert replayed(compiled) == 2


def _of_a_sum(a: Any, b: Any) -> Any:
    first, second = tg.autograd.grad(((a + b) ** 2).sum(), [a, b])
    first.mul_(2)
    return first, second


def _of_given_ones(a: Any, b: Any) -> Any:
    ones = tg.ones(3)
    first, second = tg.autograd.grad(a + b, [a, b], ones)
    first.mul_(2)
    return first, second, ones


def _of_a_mean(a: Any, b: Any) -> Any:
    first, second = tg.autograd.grad(a.mean() + b.sum(), [a, b])
    first[0] = 0.25
    second.mul_(3)
    return first, second


@pytest.mark.parametrize("f", [_of_a_sum, _of_given_ones, _of_a_mean])
def test_gradients_have_memory_of_their_own(f: Any) -> None:
    given = [randn(3, seed=i).requires_grad_() for i in range(2)]
    compiled = tg.compile(lambda a, b: f(a * 1, b * 1))
    for _ in range(4):
        for x, y in zip(compiled(*given), f(*given), strict=True):
            close(x, y)
    assert replayed(compiled) == 2
    first, second, *rest = f(*given)
    places = {x.data_ptr() for x in (first, second, *rest)}
    assert len(places) == 2 + len(rest)
    if f is _of_given_ones:
        assert [x.tolist() for x in (first, second, *rest)] == [[2] * 3, [1] * 3, [1] * 3]


@pytest.mark.parametrize("part", [lambda h: h[0].detach(), lambda h: h.detach()[0]])
def test_a_detached_part_may_become_a_leaf(part: Any) -> None:
    weight = tg.ones(2, requires_grad=True)

    def f(x: Any) -> Any:
        whole = x * 2
        leaf = part(whole).requires_grad_()
        whole.add_(1)
        weight.grad = None
        (leaf * leaf + weight * leaf).sum().backward()
        return leaf.grad, weight.grad.clone()

    compiled = tg.compile(f)
    for _ in range(4):
        assert [g.tolist() for g in compiled(tg.ones(3, 2))] == [[7, 7], [3, 3]]
