"""Checkpointing: the same gradients and random numbers with less memory."""

import pytest

import tapegrad as tg
from tapegrad import autograd, checkpoint
from tapegrad.core.tape import entries_of
from tapegrad.insight.memory import memory_stats
from tapegrad.utils.checkpoint import checkpoint_sequential


def block(x, w):
    h = x
    for _ in range(4):
        h = (h @ w).tanh() * 1.5
    return h


@pytest.fixture
def data():
    tg.manual_seed(0)
    x = tg.randn(16, 8, dtype=tg.float64, requires_grad=True)
    w = tg.randn(8, 8, dtype=tg.float64, requires_grad=True)
    return x, w


def test_same_gradients_less_memory(data):
    x, w = data
    plain = block(x, w)
    expected = autograd.grad(plain.sum(), (x, w), retain_graph=True)
    kept = checkpoint(block, x, w)
    assert memory_stats(entries_of(kept)).saved_bytes == 0
    assert memory_stats(entries_of(plain)).saved_bytes > 4 * x.nbytes
    found = autograd.grad(kept.sum(), (x, w))
    for a, b in zip(found, expected, strict=True):
        assert a.equal(b)


def test_parameters_reached_by_closure_get_gradients(data):
    x, w = data
    checkpoint(lambda v: block(v, w), x).sum().backward()
    found = w.grad
    w.grad = None
    block(x, w).sum().backward()
    assert found.equal(w.grad)


def test_same_random_numbers(data):
    x, _ = data

    def noisy(v):
        return v * tg.rand(16, 8, dtype=tg.float64)

    tg.manual_seed(7)
    y = noisy(x)
    after = tg.rand(1).item()
    (expected,) = autograd.grad(y.sum(), x)
    tg.manual_seed(7)
    y = checkpoint(noisy, x)
    assert tg.rand(1).item() == after
    state = tg.get_rng_state()
    (found,) = autograd.grad(y.sum(), x)
    assert found.equal(expected)
    assert tg.get_rng_state() == state, "recomputing leaves the generator as it was"


def test_nested_with_create_graph(data):
    x, w = data

    def outer(v):
        return checkpoint(block, v, w).sin() + checkpoint(block, v * 2, w)

    def second(f):
        (g,) = autograd.grad(f(x).sum(), x, create_graph=True)
        return (g, *autograd.grad((g * g).sum(), (x, w)))

    for a, b in zip(
        second(lambda v: checkpoint(outer, v)),
        second(lambda v: block(v, w).sin() + block(v * 2, w)),
        strict=True,
    ):
        assert a.allclose(b, rtol=1e-12)


def test_retain_graph_computes_again(data):
    x, w = data
    runs = []

    def counted(v):
        runs.append(1)
        return block(v, w)

    y = checkpoint(counted, x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert len(runs) == 3
    g = x.grad
    x.grad = None
    block(x, w).sum().backward()
    assert g.allclose(x.grad * 2)


def test_under_no_grad_it_just_runs(data):
    x, w = data
    with tg.no_grad():
        assert not checkpoint(block, x, w).requires_grad


def test_a_function_that_changes_is_refused(data):
    x, _ = data
    calls = []

    def fickle(v):
        calls.append(1)
        return v.exp() if len(calls) == 1 else v + 1

    y = checkpoint(fickle, x).sum()
    with pytest.raises(RuntimeError, match="did something else"):
        y.backward()


def test_a_changed_input_is_noticed(data):
    x, w = data
    h = x * 1
    y = checkpoint(block, h, w).sum()
    h.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


def test_sequential(data):
    x, w = data
    steps = [lambda v: v @ w, tg.tanh, lambda v: v * 2, tg.sin]
    expected = x
    for step in steps:
        expected = step(expected)
    out = checkpoint_sequential(steps, 2, x, use_reentrant=False)
    assert out.equal(expected)
    (a,) = autograd.grad(out.sum(), x)
    (b,) = autograd.grad(expected.sum(), x)
    assert a.equal(b)
    with pytest.raises(ValueError, match="segments"):
        checkpoint_sequential(steps, 9, x, use_reentrant=False)
