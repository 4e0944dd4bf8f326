"""Compiled functions that are differentiated outside: one entry with a compiled backward pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, randn, random_program, replayed
from sweep import NAMES, TABLE, flat, generator, make_arguments

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.core.tensor import Tensor
from tapegrad.replay import CaptureError, Compiled

F = nn.functional

pytest.importorskip("llvmlite")


def ready(function: Callable[..., Any], *args: Any) -> Compiled:
    """A compiled function that replays from its next call on."""
    compiled: Compiled = tg.compile(function)
    for _ in range(2):
        compiled(*args)
    return compiled


def small_model() -> Any:
    tg.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def gradients_of(model: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]


def same(found: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# -- one entry -----------------------------------------------------------------------------------


def test_training_with_backward_outside() -> None:
    eager, compiled = small_model(), small_model()
    fast = tg.compile(lambda x: compiled(x))
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (eager, compiled)]
    for i in range(10):
        x, y = randn(12, 6, seed=i), tg.tensor(np.arange(12) % 3)
        losses = []
        for run, optimizer in zip((eager, fast), optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(run(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-5
        same(gradients_of(compiled), gradients_of(eager))
    assert replayed(fast) == 8
    assert callbacks(fast) == []
    out = fast(randn(12, 6))
    assert out.requires_grad
    assert not out.is_leaf
    assert len([f for f, _ in out.grad_fn.next_functions]) == 8


def test_two_calls_before_one_backward() -> None:
    model = small_model()
    fast = ready(lambda x: model(x), randn(4, 6))
    a, b = randn(4, 6, seed=1), randn(4, 6, seed=2)
    (model(a).exp().sum() + model(b).sin().sum()).backward()
    expected = gradients_of(model)
    model.zero_grad()
    first, second = fast(a), fast(b)
    (first.exp().sum() + second.sin().sum()).backward()
    same(gradients_of(model), expected)
    assert replayed(fast) == 2


def test_gradients_of_arguments_with_and_without_history() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * y).tanh() + x

    fast = tg.compile(f)
    for i in range(5):
        found = []
        for run in (f, fast):
            x = randn(3, 4, seed=i).requires_grad_()
            y = randn(4, seed=i + 9).requires_grad_()
            h = x * 2
            (run(h, y.exp()) * h).sum().backward()
            found.append((x.grad, y.grad))
        close(found[0][0], found[1][0])
        close(found[0][1], found[1][1])
    assert replayed(fast) == 3


def test_an_argument_computed_from_another_argument() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a * b).sum()

    fast = ready(f, randn(3).requires_grad_() * 1, randn(3).requires_grad_() * 1)
    for run in (f, fast, fast):
        x = randn(3, seed=1).requires_grad_()
        a = x * 3
        b = a * a
        run(a, b).backward()
        close(x.grad, 81 * x.detach() ** 2)


def test_the_same_tensor_twice_and_two_tensors() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a * b.exp()).sum()

    fast = tg.compile(f)
    for i in range(8):
        x = randn(3, seed=i).requires_grad_()
        y = x if i % 2 else randn(3, seed=i + 50).requires_grad_()
        fast(x, y).backward()
        u = x.detach().clone().requires_grad_()
        v = u if i % 2 else y.detach().clone().requires_grad_()
        f(u, v).backward()
        close(x.grad, u.grad)
        close(y.grad, v.grad)
    assert replayed(fast) == 4


def test_several_outputs_and_outputs_without_gradients() -> None:
    w = randn(4, 3).requires_grad_()
    unused = randn(3, seed=5).requires_grad_()

    def f(x: Any) -> Any:
        h = x @ w
        return {"a": h.relu(), "count": (h > 0).sum(), "b": [h.sum(1), unused * 2], "cut": h.data}

    fast = ready(f, randn(5, 4))
    for choose in (
        lambda r: r["a"].sum() + r["b"][0].exp().sum(),
        lambda r: (r["b"][0] * 3).sum(),
        lambda r: r["b"][1].sum(),
    ):
        found = []
        for run in (f, fast):
            w.grad = unused.grad = None
            result = run(randn(5, 4, seed=1))
            assert result["count"].dtype is tg.int64
            assert not result["count"].requires_grad
            assert not result["cut"].requires_grad
            choose(result).backward()
            found.append([None if p.grad is None else p.grad.numpy() for p in (w, unused)])
        same(found[1], found[0])
    assert replayed(fast) == 3


def test_under_no_grad_results_are_plain() -> None:
    model = small_model()
    fast = tg.compile(lambda x: model(x))
    for i in range(6):
        x = randn(4, 6, seed=i)
        with tg.set_grad_enabled(bool(i % 2)):
            out = fast(x)
        assert out.requires_grad == bool(i % 2)
        close(out, model(x))


def test_an_output_may_be_changed_in_place_if_backward_does_not_need_it() -> None:
    w = randn(3).requires_grad_()
    fast = ready(lambda x: (x * w, (x * w).exp()), randn(3))
    product, power = fast(randn(3, seed=1))
    product.mul_(2)
    product.sum().backward()
    close(w.grad, 2 * randn(3, seed=1))
    product, power = fast(randn(3, seed=1))
    power.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        power.sum().backward()


def test_overwritten_inputs_are_noticed() -> None:
    w = randn(3).requires_grad_()
    fast = ready(lambda x: (x * w).sum(), randn(3))
    x = randn(3)
    loss = fast(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"changed in place.*\n.*saved by <lambda>"):
        loss.backward()
    loss = fast(x)
    with tg.no_grad():
        w.add_(1)
    loss.backward()  # the gradient of w does not need w
    # What backward does not read may change, as in eager code.
    add = ready(lambda x: x + w, randn(3))
    y = add(x)
    x.add_(1)
    w.grad = None
    y.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]


def test_retain_graph_and_freed_graphs() -> None:
    model = small_model()
    fast = ready(lambda x: model(x), randn(4, 6))
    loss = fast(randn(4, 6)).square().sum()
    loss.backward(retain_graph=True)
    once = gradients_of(model)
    loss.backward()
    same(gradients_of(model), [2 * g for g in once])
    with pytest.raises(RuntimeError, match="freed what it had saved"):
        loss.backward()


def test_hooks_of_parameters_run_in_backward() -> None:
    w = randn(3).requires_grad_()
    seen: list[Any] = []
    fast = tg.compile(lambda x: (x * w).sum())
    w.register_hook(lambda g: seen.append(g.numpy().copy()) or g * 2)
    w.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    for i in range(5):
        w.grad = None
        x = randn(3, seed=i)
        fast(x).backward()
        close(w.grad, 2 * x)
    assert len(seen) == 10
    assert replayed(fast) == 3


def test_hooks_and_retained_gradients_of_results_and_arguments() -> None:
    w = randn(3).requires_grad_()
    fast = ready(lambda x: x * w, randn(3).requires_grad_() * 1)
    x = randn(3).requires_grad_()
    h = x * 2
    h.retain_grad()
    y = fast(h)
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.tolist() == [10, 10, 10]
    close(h.grad, 10 * w.detach())
    close(x.grad, 20 * w.detach())


def test_chosen_inputs() -> None:
    model = small_model()
    fast = ready(lambda x: model(x), randn(4, 6).requires_grad_())
    x = randn(4, 6).requires_grad_()
    (expected,) = tg.autograd.grad(model(x).exp().sum(), x)
    (found,) = tg.autograd.grad(fast(x).exp().sum(), x)
    close(found, expected)
    weight = model[0].weight
    (expected,) = tg.autograd.grad(model(x).exp().sum(), [weight])
    (found,) = tg.autograd.grad(fast(x).exp().sum(), [weight])
    close(found, expected)
    fast(x).sum().backward(inputs=[weight])
    assert weight.grad is not None
    assert model[0].bias.grad is None


def test_gradients_own_their_memory_and_accumulate_over_functions() -> None:
    w = randn(3).requires_grad_()
    double = ready(lambda x: (x * w).sum(), randn(3))
    shift = ready(lambda x: (x + w).exp().sum(), randn(3))
    x = randn(3, seed=1)
    (double(x) + shift(x)).backward()
    first = w.grad
    kept = first.numpy().copy()
    close(w.grad, x + (x + w.detach()).exp())
    double(x).backward()
    np.testing.assert_allclose(w.grad.numpy(), kept + x.numpy(), rtol=1e-6)
    a, b = randn(3).requires_grad_(), randn(3).requires_grad_()
    add = ready(lambda a, b: a + b, a, b)
    add(a, b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [1, 1, 1]


def test_state_is_written_as_always() -> None:
    def model() -> Any:
        tg.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    eager, compiled = model(), model()
    fast = tg.compile(lambda x: compiled(x))
    for i in range(6):
        x = randn(16, 6, seed=i)
        for m, run in ((eager, eager), (compiled, fast)):
            m.zero_grad()
            run(x).square().mean().backward()
        same(gradients_of(compiled), gradients_of(eager), 1e-4)
        for a, b in zip(eager.buffers(), compiled.buffers(), strict=True):
            close(a, b)
    assert compiled[1].num_batches_tracked.item() == 6
    assert replayed(fast) == 4


def test_dropout_inside() -> None:
    w = randn(8).requires_grad_()
    f = lambda x: F.dropout(x * w, 0.5).exp()  # noqa: E731
    fast = tg.compile(f)
    for i in range(5):
        found = []
        for run in (f, fast):
            tg.manual_seed(i)
            w.grad = None
            run(randn(4, 8, seed=i)).sum().backward()
            found.append(w.grad)
        close(found[0], found[1])
    assert replayed(fast) == 3


def test_views_masks_and_indices_reach_backward() -> None:
    table = randn(10, 4).requires_grad_()

    def f(index: Any, mask: Any) -> Any:
        rows = F.embedding(index, table)
        picked = tg.where(mask, rows, rows.sin()).transpose(0, 1)
        return picked[1:].reshape(-1), picked.max(0).values

    def arguments(i: int) -> Any:
        rng = np.random.default_rng(i)
        return tg.tensor(rng.integers(0, 10, 5)), tg.tensor(rng.random((5, 4)) > 0.5)

    fast = tg.compile(f)
    for i in range(5):
        found = []
        for run in (f, fast):
            table.grad = None
            a, b = run(*arguments(i))
            (a.square().sum() + b.sum()).backward()
            found.append(table.grad)
        close(found[0], found[1])
    assert replayed(fast) == 3


def test_changes_in_place_inside() -> None:
    w = randn(4).requires_grad_()

    def f(x: Any) -> Any:
        h = x * w
        h.mul_(h.exp())
        h[1:] += w * 2
        return h.relu_()

    fast = tg.compile(f)
    for i in range(5):
        found = []
        for run in (f, fast):
            w.grad = None
            run(randn(3, 4, seed=i)).square().sum().backward()
            found.append(w.grad)
        close(found[0], found[1])
    assert replayed(fast) == 3


def test_inner_gradients_and_outer_ones() -> None:
    model = small_model()

    def penalty(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (g,) = tg.autograd.grad(model(x).sum(), x, create_graph=True)
        return g.square().sum()

    fast = tg.compile(penalty)
    for i in range(5):
        x = randn(4, 6, seed=i)
        model.zero_grad()
        penalty(x).backward()
        expected = gradients_of(model)
        model.zero_grad()
        fast(x).backward()
        same(gradients_of(model), expected, 1e-4)
    assert replayed(fast) == 3


def test_a_custom_function_inside() -> None:
    class Clip(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (x.abs() < 2)

    w = randn(5).requires_grad_()
    f = lambda x: Clip.apply(x * w * 3)  # noqa: E731
    fast = tg.compile(f)
    for i in range(5):
        found = []
        for run in (f, fast):
            w.grad = None
            run(randn(5, seed=i)).sum().backward()
            found.append(w.grad)
        close(found[0], found[1])
    assert replayed(fast) >= 2
    with pytest.raises(RuntimeError, match="ClipBackward"):
        fast(randn(5)).sum().backward(create_graph=True)


# -- higher orders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, 3])
def test_create_graph(order: int) -> None:
    w = randn(3, 3, seed=3).requires_grad_()

    def f(x: Any) -> Any:
        h = (x @ w).tanh()
        return (h.exp() * x).sum() + (w * w.detach()).sum()

    fast = ready(f, randn(2, 3).requires_grad_() * 1)
    found = []
    for run in (f, fast):
        x = randn(2, 3, seed=4).requires_grad_()
        value = run(x.sin())
        for _ in range(order - 1):
            gx, gw = tg.autograd.grad(value, [x, w], create_graph=True)
            value = gx.square().sum() + gw.sin().sum()
        found.append(tg.autograd.grad(value, [x, w]))
    for a, b in zip(*found, strict=True):
        close(a, b, 1e-4)


def test_create_graph_with_dropout_and_state() -> None:
    w, state = randn(4).requires_grad_(), tg.ones(4)

    def f(x: Any) -> Any:
        with tg.no_grad():
            old = state * 1
            state.mul_(0.5)
        return (F.dropout(x * w * old, 0.5) + tg.rand(4)).exp().sum() * state.sum()

    fast = ready(f, randn(4).requires_grad_())
    found = []
    for run in (f, fast):
        with tg.no_grad():
            state.fill_(2.0)
        tg.manual_seed(3)
        x = randn(4, seed=1).requires_grad_()
        (g,) = tg.autograd.grad(run(x), x, create_graph=True)
        (gg,) = tg.autograd.grad(g.square().sum(), w)
        found.append((g, gg))
    close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


def test_create_graph_checks_what_it_reads_again() -> None:
    w = randn(3).requires_grad_()
    fast = ready(lambda x: (x + w).sum(), randn(3).requires_grad_() * 1)
    x = randn(3).requires_grad_() * 1
    loss = fast(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward(create_graph=True)
    fast(x).backward(create_graph=True)
    assert w.grad is not None


def test_gradcheck_through_a_compiled_function() -> None:
    fast = tg.compile(lambda x, y: ((x * y).sin() @ y.T).logsumexp(1))
    x = tg.tensor(np.random.default_rng(0).standard_normal((2, 3)), requires_grad=True)
    y = tg.tensor(np.random.default_rng(1).standard_normal((2, 3)), requires_grad=True)
    assert tg.testing.gradcheck(fast, (x, y))
    assert tg.testing.gradgradcheck(fast, (x, y))
    assert replayed(fast) > 2


# -- memory ----------------------------------------------------------------------------------------


def test_what_backward_reads_is_freed_with_it() -> None:
    model = small_model()
    fast = ready(lambda x: model(x), randn(64, 6))
    out = fast(randn(64, 6))
    kept = [weakref.ref(a) for a in out.grad_fn.saved[:-1]]
    out.sum().backward()
    gc.collect()
    alive = [r() for r in kept]
    parameters = [p._array for p in model.parameters()]
    assert all(a is None or any(a is p for p in parameters) for a in alive)
    assert out.grad_fn is not None


def test_cheap_values_are_computed_again_instead_of_kept() -> None:
    w = randn(100).requires_grad_()
    fast = ready(lambda x: F.gelu(x * w).sum(), randn(100, 100))
    out = fast(randn(100, 100))
    # The argument and the product, which needs the parameter: backward does not read that.
    assert out.grad_fn.saved_bytes == 2 * 4 * 100 * 100


# -- what still runs eagerly -----------------------------------------------------------------------


def test_history_left_on_a_tensor_from_outside_runs_eagerly() -> None:
    w, box = randn(3).requires_grad_(), tg.zeros(3)

    def f(x: Any) -> Any:
        box.copy_(x * w)
        return box * 2

    fast = tg.compile(f)

    def run() -> None:
        for i in range(3):
            box.detach_()
            x = randn(3, seed=i)
            fast(x).sum().backward()
            close(w.grad, 2 * x)
            w.grad = None

    with pytest.warns(UserWarning, match="leaves a tensor from outside with a history of its own"):
        run()


def test_backward_through_what_was_computed_outside_runs_eagerly() -> None:
    w = randn(3).requires_grad_()
    fast = tg.compile(lambda h: h.exp().sum().backward() and None)

    def run() -> None:
        for i in range(4):
            w.grad = None
            x = randn(3, seed=i)
            fast(x * w)
            close(w.grad, x * (x * w).exp().detach())

    with pytest.warns(UserWarning, match="recorded outside"):
        run()


# -- being told ------------------------------------------------------------------------------------


def test_explain_tells_of_backward_and_memory() -> None:
    model = small_model()
    fast = ready(lambda x: model(x), randn(4, 6))
    out = fast(randn(4, 6))
    assert "backward: not compiled yet" in fast.explain(full=True)
    out.sum().backward()
    text = fast.explain(programs=True)
    for part in ("backward for 8 gradients", "kept for backward", "at most", "backward program("):
        assert part in text
    (replay,) = fast.replays
    # Operations of backward count as the lines that they are the gradient of.
    places = {str(x.location) for x in replay.vjp.halves.backward.applied()}
    assert places <= {str(x.location) for x in replay.program.applied()}


# -- every operation, and random programs ----------------------------------------------------------


@pytest.mark.sweep(some="name")
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_first_sample_of_every_operation(name: str, backend: str) -> None:
    """Gradients to second order of an op that is compiled alone, with backward outside."""
    op = TABLE[name]
    assert op.samples is not None
    sample = op.samples()[0]
    fast = tg.compile(op.function, fullgraph=True, backend=backend)

    def run(function: Any, i: int, order: int) -> Any:
        args, kwargs = make_arguments(sample, generator(name, i), tg.float64, True)
        tg.manual_seed(i)
        outs = [o for o in flat(function(*args, **kwargs)) if isinstance(o, Tensor)]
        given = [x for x in flat([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        inputs = [x for x in given if x.requires_grad]
        for more in reversed(range(order)):
            total = sum((o * o).sum().real for o in outs if o.requires_grad)
            if not inputs or not isinstance(total, Tensor):
                break
            found = tg.autograd.grad(total, inputs, create_graph=more > 0, allow_unused=True)
            outs = [g for g in found if g is not None]
        return outs

    for i, order in enumerate((1, 1, 1, 2)):
        try:
            results = [run(op.function, i, order), run(fast, i, order)]
        except CaptureError:
            return  # refused: see test_replay_native.py
        for a, b in zip(*results, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            close(a, b, 1e-8)


@pytest.mark.filterwarnings("ignore:compiled function")
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    program = random_program(seed)
    shapes = ((4, 6), (6, 4), (6,), (4, 6))

    def f(*given: Any) -> Any:
        return program(*(x * 1.0 for x in given))

    fast = tg.compile(f)
    for i in range(4):
        found = []
        for function in (f, fast):
            given = [randn(*s, seed=10 * i + j).requires_grad_() for j, s in enumerate(shapes)]
            try:
                outs = function(*given)
                loss = sum((o * o).mean() for o in outs if o.requires_grad)
                loss.backward()
            except (RuntimeError, AttributeError):
                pytest.skip("this program has no gradients, or changes what backward needs")
            found.append(([*outs, loss], [x.grad for x in given]))
        for a, b in zip(found[0][0], found[1][0], strict=True):
            close(a, b, 2e-4)
        for a, b in zip(found[0][1], found[1][1], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b, 2e-4)
