"""Pruning: masks, hooks, containers, errors, and compiled steps of pruned modules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from replaying import replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn.utils import prune


def layer() -> Any:
    tg.manual_seed(0)
    return nn.Linear(4, 3)


def test_elements_of_least_size() -> None:
    m = layer()
    before = m.weight.detach().clone()
    assert prune.l1_unstructured(m, "weight", 5) is m
    assert set(dict(m.named_parameters())) == {"bias", "weight_orig"}
    assert set(dict(m.named_buffers())) == {"weight_mask"}
    assert tg.equal(m.weight_orig.detach(), before)
    order = before.abs().flatten().argsort()
    assert m.weight_mask.flatten()[order].tolist() == [0.0] * 5 + [1.0] * 7
    assert tg.equal(m.weight.detach(), before * m.weight_mask)
    assert prune.is_pruned(m)
    m(tg.ones(2, 4)).sum().backward()
    assert tg.equal(m.weight_orig.grad == 0, m.weight_mask == 0)


def test_forward_uses_the_current_values() -> None:
    m = layer()
    prune.random_unstructured(m, "weight", 0.5)
    assert int(m.weight_mask.sum()) == 6
    with tg.no_grad():
        m.weight_orig.fill_(2.0)
    out = m(tg.ones(1, 4))
    expected = 2 * m.weight_mask.sum(1) + m.bias
    np.testing.assert_allclose(out.detach().numpy()[0], expected.detach().numpy(), rtol=1e-6)


def test_again_prunes_what_is_left() -> None:
    m = layer()
    prune.l1_unstructured(m, "weight", 4)
    first = m.weight_mask.clone()
    prune.ln_structured(m, "weight", 1, n=2, dim=0)
    (hook,) = m._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer)
    assert len(hook) == 2
    assert [type(h) for h in hook] == [prune.L1Unstructured, prune.LnStructured]
    assert ((m.weight_mask == 0) | (first == 1)).all()
    assert int((m.weight_mask.sum(1) == 0).sum()) >= 1
    prune.random_structured(m, "weight", 1, dim=1)
    assert len(hook) == 3


def test_remove() -> None:
    m = layer()
    prune.l1_unstructured(m, "weight", 5)
    pruned = m.weight.detach().clone()
    original = m.weight_orig
    prune.remove(m, "weight")
    assert m.weight is original
    assert isinstance(m.weight, nn.Parameter)
    assert tg.equal(m.weight.detach(), pruned)
    assert not prune.is_pruned(m)
    assert set(m.state_dict()) == {"weight", "bias"}
    with pytest.raises(ValueError, match="is not pruned"):
        prune.remove(m, "weight")


def test_across_modules() -> None:
    tg.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    pairs = [(model[0], "weight"), (model[2], "weight")]
    sizes = tg.cat([m.weight.detach().abs().flatten() for m, _ in pairs])
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.25)
    mask = tg.cat([m.weight_mask.flatten() for m, _ in pairs])
    assert int((mask == 0).sum()) == 12
    assert sizes[mask == 0].max() <= sizes[mask == 1].min()
    scores = {(model[0], "weight"): tg.zeros(8, 4)}
    prune.global_unstructured(pairs, prune.L1Unstructured, scores, amount=10)
    assert int((model[0].weight_mask == 0).sum()) >= 10
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured(pairs, prune.RandomStructured, amount=1)
    with pytest.raises(TypeError, match="iterable"):
        prune.global_unstructured(3, prune.L1Unstructured, amount=1)


def test_masks_of_users() -> None:
    m = layer()
    mask = tg.tensor([[1, 0, 1, 1]]).expand(3, 4)
    prune.custom_from_mask(m, "weight", mask)
    assert tg.equal(m.weight_mask, mask.float())
    prune.identity(m, "bias")
    assert m.bias_mask.tolist() == [1.0, 1.0, 1.0]
    t = tg.tensor([3.0, -1.0, 2.0])
    assert prune.L1Unstructured(1).prune(t).tolist() == [3.0, 0.0, 2.0]
    found = prune.L1Unstructured(1).prune(t, importance_scores=tg.tensor([0.0, 1.0, 2.0]))
    assert found.tolist() == [0.0, -1.0, 2.0]


def test_errors_leave_the_module_as_it_was() -> None:
    m = layer()
    with pytest.raises(TypeError, match="an int or a float"):
        prune.l1_unstructured(m, "weight", "half")
    for amount in (-1, 1.5, -0.1):
        with pytest.raises(ValueError, match="a share between 0 and 1"):
            prune.random_unstructured(m, "weight", amount)
    with pytest.raises(ValueError, match="cannot prune"):
        prune.l1_unstructured(m, "weight", 13)
    with pytest.raises(ValueError, match="two dimensions"):
        prune.random_structured(m, "bias", 1, dim=0)
    with pytest.raises(IndexError, match="out of range"):
        prune.ln_structured(m, "weight", 1, n=2, dim=2)
    with pytest.raises(AttributeError):
        prune.l1_unstructured(m, "nothing", 1)
    assert set(m.state_dict()) == {"weight", "bias"}
    assert not prune.is_pruned(m)
    container = prune.PruningContainer()
    with pytest.raises(TypeError, match="not a BasePruningMethod"):
        container.add_pruning_method(10)
    other = prune.Identity()
    other._tensor_name = "b"
    container._tensor_name = "a"
    with pytest.raises(ValueError, match="does not fit"):
        container.add_pruning_method(other)


def test_copies_and_state_dicts() -> None:
    m = layer()
    prune.l1_unstructured(m, "weight", 5)
    state = m.state_dict()
    assert set(state) == {"bias", "weight_orig", "weight_mask"}
    again = layer()
    prune.identity(again, "weight")
    again.load_state_dict(state)
    x = tg.ones(2, 4)
    assert tg.equal(again(x), m(x))
    assert tg.equal(pickle.loads(pickle.dumps(m))(x), m(x))
    m.weight = m.weight.detach()  # only leaves are copied
    assert tg.equal(copy.deepcopy(m)(x), m(x))


def test_compiled_steps() -> None:
    """A compiled training step of a pruned module is the eager one."""

    def train(compiled: bool) -> Any:
        m = layer()
        prune.l1_unstructured(m, "weight", 0.5)
        optimizer = tg.optim.SGD(m.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (m(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = tg.compile(step) if compiled else step
        losses = [run(tg.full((2, 4), 1.0 + i)).item() for i in range(6)]
        if compiled:
            assert replayed(run) >= 3
        return losses, m.weight_orig.detach().numpy()

    (losses, weight), (expected, other) = train(True), train(False)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(weight, other, rtol=1e-5)
