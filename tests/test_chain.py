"""Runs of elementwise entries walked as one program: same gradients, nobody's memory touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.autograd import fused
from tapegrad.core import acceleration
from tapegrad.core.primitive import ARRAY_SIZE
from tapegrad.replay.use import eager

F = nn.functional

pytest.importorskip("llvmlite")

SHAPE = (40, 2 * ARRAY_SIZE // 40 + 2)


class Chains(eager.Native):
    """Remembers the names of the rules that ran as one program."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def chain(self, links: Any, waiting: Any) -> Any:
        result = super().chain(links, waiting)
        if result is not NotImplemented:
            self.ran.append([link.primitive.name for link in links])
        return result


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> Chains:
    accelerator = Chains()
    monkeypatch.setattr(acceleration, "_accelerator", accelerator)
    return accelerator


def leaf(seed: int, *shape: int) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape or SHAPE)
    return tg.from_numpy(values.astype(np.float32)).requires_grad_()


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every entry go its own way from now on."""
    monkeypatch.setattr(fused, "run", lambda *given: False)


def diamond(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    return (y.exp() * 0.1 + y.tanh() - y).sum()


def bypass(x: Tensor, w: Tensor) -> Tensor:
    y = F.gelu(x * w + x)
    return (y + (y * w).softmax(-1) * x).sum()


def squares(x: Tensor, w: Tensor) -> Tensor:
    return (x * x).sum() + (w * w * 3.0).mean()


def broadcast(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w[0] + 1.0).sigmoid() * w[:, :1]).sum()


def product(x: Tensor, w: Tensor) -> Tensor:
    y = (x * 0.5).tanh()
    return ((y @ w.t()) ** 2).sum() + (y / (w * w + 1)).sum()


def moved(x: Tensor, w: Tensor) -> Tensor:
    return ((x.t() * w.t()).reshape(-1) * x.reshape(-1)).abs().sum()


def parts(x: Tensor, w: Tensor) -> Tensor:
    first, second = (x * w).chunk(2, 0)
    return (first.sin() * second - first).relu().sum()


def chosen(x: Tensor, w: Tensor) -> Tensor:
    return tg.where(x > w, x * 2, w.exp()).clamp(-1, 1.5).pow(3).sum()


def residual(x: Tensor, w: Tensor) -> Tensor:
    """The way around the layer, which returns statistics too, must wait for the layer."""
    y = (x * w).relu()
    return (F.batch_norm(y, None, None, training=True) + y).tanh().sum()


GRAPHS = [diamond, bypass, squares, broadcast, product, moved, parts, chosen, residual]


@pytest.mark.parametrize("loss", GRAPHS)
def test_gradients_are_those_of_single_rules(
    loss: Callable[..., Tensor], chains: Chains, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = leaf(1), leaf(2)
    loss(x, w).backward()
    found = [x.grad, w.grad]
    assert chains.ran
    again = tg.autograd.grad(loss(x, w), [x, w])
    for f, a in zip(found, again, strict=True):
        assert f is not None
        assert a is not None
        np.testing.assert_array_equal(a.numpy(), f.numpy())
    alone(monkeypatch)
    x.grad = w.grad = None
    loss(x, w).backward()
    for f, expected in zip(found, (x.grad, w.grad), strict=True):
        assert f is not None
        assert expected is not None
        np.testing.assert_allclose(f.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_a_whole_chain_is_one_program(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    F.gelu(x * w + x).sum().backward()
    assert chains.ran == [["gelu", "add", "mul"]]


def test_a_rule_alone_stays_alone_and_a_sum_at_a_leaf_joins_it(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    (x * w).sum().backward()
    assert chains.ran == []
    ((x * w).sum() + (x * 2.0).sum()).backward()
    assert chains.ran == [["mul"]]


def test_long_chains_are_cut(chains: Chains) -> None:
    x = leaf(1)
    y = x
    for _ in range(2 * fused.MOST + 3):
        y = y * 1.01
    y.sum().backward()
    assert [len(names) for names in chains.ran] == [fused.MOST, fused.MOST, 3]
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1.01 ** (2 * fused.MOST + 3), rtol=1e-5)


def test_other_numbers_share_the_program(chains: Chains) -> None:
    x = leaf(1)
    for number in (2.0, 3.0):
        x.grad = None
        (x * number + 1.0).tanh().sum().backward()
        assert x.grad is not None
        expected = number * (1 - np.tanh(x.detach().numpy() * number + 1.0) ** 2)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-3, atol=1e-5)
    assert len(chains.ran) == 2
    assert sum(isinstance(key[0], tuple) for key in chains.forms) == 1


def test_bfloat16_is_walked_one_by_one(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    half = F.gelu(x.bfloat16() * w.bfloat16() + 1.0)
    half.sum().backward()
    assert chains.ran == []
    (F.gelu(x * w) * x).to(tg.bfloat16).sum().backward()
    assert chains.ran == [["mul", "gelu", "mul"]]


# -- what others can see ---------------------------------------------------------------------------


def test_no_two_gradients_share_memory(chains: Chains) -> None:
    x, w, v = leaf(1), leaf(2), leaf(3)
    gradients = ((x + w + v) * 2.0).sum().backward()
    assert chains.ran
    arrays = [t.grad.numpy() for t in (x, w, v)]  # type: ignore[union-attr]
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
    x.grad.zero_()  # type: ignore[union-attr]
    assert (arrays[1] == 2).all()
    assert (gradients[w].numpy() == 2).all()
    assert (gradients[x].numpy() == 2).all()


def test_a_given_gradient_is_neither_changed_nor_kept(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    given = tg.ones(*SHAPE)
    ((x + w) + x).backward(given)
    assert chains.ran == [["add", "add"]]
    assert (given.numpy() == 1).all()
    given.zero_()
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.numpy() == 2).all()
    assert (w.grad.numpy() == 1).all()
    w.grad.add_(1)
    assert (given.numpy() == 0).all()


def test_gradients_add_up_over_calls(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    loss = F.gelu(x * w + x).sum()
    kept = loss.backward(retain_graph=True)
    first = x.grad.numpy().copy()  # type: ignore[union-attr]
    loss.backward()
    assert len(chains.ran) == 2
    np.testing.assert_array_equal(x.grad.numpy(), first + first)  # type: ignore[union-attr]
    np.testing.assert_array_equal(kept[x].numpy(), first)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


def test_hooks_and_kept_gradients_in_the_middle(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    y = x * w
    z = y + x
    z.retain_grad()
    seen: list[Tensor] = []

    def hook(g: Tensor) -> Tensor:
        seen.append(g)
        return g * 3

    y.register_hook(hook)
    (z.exp() * 2.0).sum().backward()
    power = 2 * np.exp((x * w + x).detach().numpy())
    np.testing.assert_allclose(z.grad.numpy(), power, rtol=1e-5)  # type: ignore[union-attr]
    np.testing.assert_allclose(seen[0].numpy(), power, rtol=1e-5)
    expected = 3 * power * w.detach().numpy() + power
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-4)  # type: ignore[union-attr]
    seen[0].zero_()
    np.testing.assert_allclose(z.grad.numpy(), power, rtol=1e-5)  # type: ignore[union-attr]


def test_gradients_of_values_in_between(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    y = x * w
    z = y.tanh()
    gy, gz = tg.autograd.grad((z * z + y).sum(), [y, z])
    expected = np.tanh((x * w).detach().numpy())
    assert gy is not None
    assert gz is not None
    np.testing.assert_allclose(gz.numpy(), 2 * expected, rtol=1e-5, atol=1e-6)
    slope = 2 * expected * (1 - expected**2) + 1
    np.testing.assert_allclose(gy.numpy(), slope, rtol=1e-4, atol=1e-5)


def test_a_changed_value_is_refused(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    y = x * 2.0
    z = (y * w).exp().sum()
    with tg.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        z.backward()
    y = x * 2.0
    unrelated = tg.zeros(3)
    z = (y * w).exp().sum()
    unrelated.add_(1)
    chains.ran.clear()
    z.backward()
    assert chains.ran == [["exp", "mul", "mul"]]


def test_saved_values_are_freed(chains: Chains) -> None:
    import weakref

    x, w = leaf(1), leaf(2)
    y = x * w
    z = y.exp()
    gone = weakref.ref(y._array)
    loss = (y * z).sum()
    del y, z
    loss.backward()
    assert chains.ran
    assert gone() is None


def test_saved_tensor_hooks_are_asked(chains: Chains) -> None:
    x, w = leaf(1), leaf(2)
    unpacked: list[int] = []

    def unpack(t: Tensor) -> Tensor:
        unpacked.append(1)
        return t

    with tg.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = (x * w).exp()
    (y * 2.0).tanh().sum().backward()
    assert len(unpacked) == 3  # both operands of the product, and the exponential
