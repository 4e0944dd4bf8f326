"""Memory that several tensors see, and gradients that must not get lost in it."""

import threading

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import Function


def leaf(*values):
    return tg.tensor(list(values), requires_grad=True)


def test_copying_a_leaf_keeps_its_gradient():
    w, b = leaf(1.0, 2.0), tg.zeros(2)
    b.copy_(w)
    (b * b).sum().backward()
    assert w.grad.tolist() == [2, 4]
    b.mul_(2)
    w.grad = None
    c = tg.zeros(2)
    c[:] = w
    c.sum().backward()
    assert w.grad.tolist() == [1, 1]
    with tg.Tape() as tape:
        d = tg.zeros(2)
        source = tg.ones(2)
        d.copy_(source)
        loss = (d * 3).sum()
    assert tape.backward(loss)[source].tolist() == [3, 3]


def test_writing_through_a_view_of_another_memory_order():
    x = tg.arange(6.0).reshape(2, 3).requires_grad_()
    a = x.t() * 1
    v = a.t().reshape(-1)
    v.mul_(3)
    a.sum().backward()
    assert x.grad.tolist() == [[3, 3, 3], [3, 3, 3]]


def test_functions_of_functions_see_closures():
    inner = lambda x: tg.func.grad(lambda y: x * y * y)(tg.tensor(3.0))  # noqa: E731
    assert tg.func.grad(inner)(tg.tensor(2.0)).item() == 6
    w = tg.tensor(2.0, requires_grad=True)
    g = tg.func.grad(lambda x: x * x * w)(tg.tensor(3.0))
    g.backward()
    assert w.grad.item() == 6
    assert not tg.func.grad(lambda x: x * x)(tg.tensor(3.0)).requires_grad


def test_a_backward_that_returns_what_it_saved():
    class Half(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum() / 2

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0]

    x = leaf(1.0, 2.0, 3.0)
    Half.apply(x).backward()
    Half.apply(x).backward()
    assert x.tolist() == [1, 2, 3]
    assert x.grad.tolist() == [2, 4, 6]


def test_a_backward_that_returns_one_tensor_twice():
    class Both(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b, a - b

        @staticmethod
        def backward(ctx, g, h):
            total = g + h
            return total, total

    a, b = leaf(1.0), leaf(2.0)
    one, two = Both.apply(a, b)
    (one + two).sum().backward()
    a.grad.add_(5)
    assert b.grad.item() == 2


def test_a_hook_may_keep_its_gradient():
    x = tg.ones(3, requires_grad=True)
    seen = []
    x.register_hook(seen.append)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert seen[0].tolist() == [2, 2, 2]
    assert x.grad.tolist() == [5, 5, 5]


def test_a_stale_value_is_not_made_fresh_by_a_later_write():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * 1
    z = y * w
    y.add_(1)
    y.copy_(z)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


class Triple(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


def test_mark_dirty_on_a_view_and_on_a_leaf():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    Triple.apply(y[:2])
    (y * y).sum().backward()
    assert x.grad.tolist() == [18, 36, 6]
    with pytest.raises(RuntimeError, match="mark_dirty"):
        Triple.apply(x)


def test_a_function_that_returns_its_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(1.0, 2.0)
    y = x * 1
    z = Same.apply(y)
    with pytest.raises(RuntimeError, match="that a Function has returned"):
        z.mul_(5)
    z = z * 5
    assert y.tolist() == [1, 2]
    (y * y).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_second_order_through_hooks_that_copy():
    x = leaf(1.0, 2.0)
    hooks = tg.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
    with hooks:
        (g,) = tg.autograd.grad((x * x * x).sum(), x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]


def test_saved_tensor_hooks_see_functions():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = leaf(2.0)
    seen = []
    with tg.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        y = Cube.apply(x)
    assert seen
    y.sum().backward()
    assert x.grad.item() == 12
    x.grad = None
    tg.checkpoint(Cube.apply, x).sum().backward()
    assert x.grad.item() == 12


def test_what_a_tape_wrote_ends_with_it():
    with tg.Tape():
        w = tg.tensor([1.0, 2.0]) * 2
    w.requires_grad_()
    (w * w).sum().backward()
    assert w.is_leaf
    assert w.grad.tolist() == [4, 8]
    state = tg.ones(2)
    for _ in range(3):
        with tg.Tape() as tape:
            new = state * 2
            loss = new.sum()
        assert tape.backward(loss)[state].tolist() == [2, 2]
        state = new


def test_a_tape_reports_results_made_before_it():
    x = leaf(1.0, 2.0)
    h = x * 3
    with tg.Tape() as tape:
        loss = (h * h).sum()
    grads = tape.backward(loss)
    assert grads[h].tolist() == [6, 12]
    assert grads[x].tolist() == [18, 36]


def test_retaining_twice_counts_once():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert y.grad.tolist() == [1, 1]
    y.grad = None
    y.sum().backward(inputs=[y])
    assert y.grad.tolist() == [1, 1]


def test_repeats_and_cuts_are_copies():
    x = tg.ones(1, 3)
    y = x.repeat(2, 1)
    x.zero_()
    assert y.tolist() == [[1, 1, 1], [1, 1, 1]]
    y.add_(1)
    z = tg.arange(4.0)
    tg.nn.functional.pad(z, (-1, -1)).mul_(3)
    assert z.tolist() == [0, 1, 2, 3]


def test_diagonals_are_views():
    x = tg.ones(2, 2, requires_grad=True)
    y = x * 1
    y.diagonal().mul_(5)
    assert y.tolist() == [[5, 1], [1, 5]]
    y.sum().backward()
    assert x.grad.tolist() == [[5, 1], [1, 5]]


def test_overlapping_memory():
    t = tg.ones(10001)
    with tg.no_grad():
        t[1:].add_(t[:-1], alpha=0.5)
    assert t[-1].item() == 1.5


def test_needs_input_grad_on_a_tape():
    class Careful(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 if ctx.needs_input_grad[0] else None

    x = tg.ones(2)
    with tg.Tape() as tape:
        y = Careful.apply(x)
    assert tape.backward(y, tg.ones(2))[x].tolist() == [2, 2]


def test_in_place_inside_a_checkpoint():
    w = tg.ones(3, requires_grad=True)
    x = tg.ones(3, requires_grad=True)
    tg.checkpoint(lambda v: (v * w).relu_() * w, x).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
    # The repetition ends when everything is saved, before the change.
    tg.checkpoint(lambda v: (v * 1).mul_(w), x).sum().backward()
    assert w.grad.tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="checkpointed"):
        tg.checkpoint(lambda v: (v * 1).mul_(w), x, early_stop=False).sum().backward()


def test_grad_leaves_the_graph_behind_its_inputs():
    x = leaf(1.0, 2.0)
    y = x * x
    (g,) = tg.autograd.grad((y * y).sum(), y)
    y.backward(g)
    assert x.grad.tolist() == [4, 32]


def test_a_leaf_that_is_a_view_is_protected():
    v = tg.zeros(3)[:2].requires_grad_()
    with pytest.raises(RuntimeError, match="no_grad"):
        v.mul_(2)


def test_copies_of_shared_gradients_are_separate():
    import copy

    x = leaf(1.0, 2.0)
    grads = (x * 3).sum().backward()
    for shared in (tg.Tensor(x.grad), copy.copy(x.grad)):
        with tg.no_grad():
            shared.zero_()
    assert grads[x].tolist() == [3, 3]


def test_one_graph_walked_by_several_threads():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = leaf(1.0, 2.0)
    y = Square.apply(x).sum()
    errors = []

    def work():
        try:
            for _ in range(100):
                (g,) = tg.autograd.grad(y, x, retain_graph=True)
                assert g.tolist() == [2, 4]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


@pytest.mark.parametrize(
    "copies",
    [
        lambda x: x.flip(0),
        lambda x: x.flip(1),
        lambda x: x.roll(0, 0),
        lambda x: x.repeat(1, 1),
        lambda x: tg.cat([x]),
        lambda x: tg.stack([x]),
        lambda x: x.cumsum(0),
        lambda x: x.cumprod(0),
        lambda x: x.sum(0, keepdim=True),
        lambda x: x.amax(0, keepdim=True),
        lambda x: x.sort(0)[0],
        lambda x: x.tril(5),
        lambda x: x.index_select(0, tg.tensor([0])),
        lambda x: tg.nn.functional.pad(x, (0, 0)),
        lambda x: tg.nn.functional.unfold(x.reshape(1, 1, 1, 5), 1).reshape(1, 5),
        lambda x: tg.nn.functional.fold(x.reshape(1, 1, 5), (1, 5), 1).reshape(1, 5),
        lambda x: tg.nn.functional.avg_pool2d(x.reshape(1, 1, 1, 5), 1).reshape(1, 5),
        lambda x: tg.nn.functional.max_pool2d(x.reshape(1, 1, 1, 5), 1).reshape(1, 5),
    ],
)
@pytest.mark.parametrize("layout", ["in order", "backwards"])
def test_what_moves_nothing_still_copies(copies, layout):
    x = tg.from_numpy(np.arange(5, dtype=np.float32).reshape(1, 5).copy())
    if layout == "backwards":
        x = tg.from_numpy(x.numpy()[:, ::-1])
    before = x.tolist()
    copies(x).add_(100.0)
    assert x.tolist() == before


def test_results_lie_in_order_in_memory():
    """`view` takes them as it does in PyTorch, and changes through such views reach them."""
    x = tg.arange(48.0).reshape(2, 3, 8)
    turned, some = x.transpose(1, 2), tg.tensor([0, 2])
    made = [
        x.index_select(1, some), x[:, [0, 2]], x[:, :, some], x.repeat_interleave(2, 1),
        x.topk(2, 1)[0], x.topk(2, 1)[1], tg.cat([turned, turned]), tg.stack([turned, turned]),
        turned.sum(0), turned.sum(0, keepdim=True), turned.prod(0), turned.amax(0), turned.amin(0),
        turned.mean(0), (turned > 3).any(0), (turned > 3).all(0), turned.roll(1, 0),
        tg.nn.functional.pad(x, (1, 1), mode="reflect"),
        tg.nn.functional.adaptive_max_pool1d(x, 2),
    ]  # fmt: skip
    for out in made:
        assert out.is_contiguous()
        flat = out.view(-1)
        flat[0] = 1
        assert out.reshape(-1)[0].item() == 1
    assert x[0, 0, 0].item() == 0


@pytest.mark.parametrize("size", [3, 40_000])
@pytest.mark.parametrize("leaf_itself", [True, False])
def test_gradients_of_many_parts_are_added_in_place(size, leaf_itself):
    # Weights of all parts, the whole, and the parts once more: each arrives in another way.
    weights = tg.randn(6, size)
    x = tg.randn(6, size, requires_grad=True)
    seen = []
    y = x if leaf_itself else x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    if not leaf_itself:
        y.retain_grad()
    parts = [y[0], y[1:3], *y[3:].split(2), *y.unbind(0), *y.chunk(2, 1)]
    loss = sum((p.sum() * float(i + 1)) for i, p in enumerate(parts)) + (y * weights).sum()
    loss = loss + (y[:, -1] * y[:, 0]).sum()
    expected = weights.clone()
    expected[0] += 1
    expected[1:3] += 2
    expected[3:5] += 3
    expected[5:] += 4
    for i in range(6):
        expected[i] += 5 + i
    half = -(-size // 2)
    expected[:, :half] += 11
    expected[:, half:] += 12
    expected[:, -1] += y.detach()[:, 0]
    expected[:, 0] += y.detach()[:, -1]
    loss.backward(retain_graph=True)
    factor = 1 if leaf_itself else 2
    np.testing.assert_allclose(x.grad, expected * factor, rtol=1e-5)
    np.testing.assert_allclose(seen[0], expected, rtol=1e-5)
    if not leaf_itself:
        np.testing.assert_allclose(y.grad, expected, rtol=1e-5)
    first = x.grad.clone()
    loss.backward()
    np.testing.assert_allclose(x.grad, 2 * first, rtol=1e-5)
    np.testing.assert_allclose(seen[0], expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="retain_graph"):
        loss.backward()


def test_parts_of_what_others_received_too():
    # The sum of a and b sends one array to both; adding a part to it must not reach the other.
    x = tg.ones(4, requires_grad=True)
    a, b = x * 1, x * 3
    (whole,) = tg.autograd.grad((a + b).sum() + a[:2].sum() + a[1:].sum(), [b], retain_graph=True)
    assert whole.tolist() == [1, 1, 1, 1]
    g = tg.ones(4)
    (a * 1 + b).backward(g)
    assert g.tolist() == [1, 1, 1, 1]
    assert x.grad.tolist() == [4, 4, 4, 4]
