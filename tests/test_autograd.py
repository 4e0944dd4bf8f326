"""The surface of autograd: leaves, grads, hooks, modes, accumulation, mappings of gradients."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import autograd


def leaf(*values):
    return tg.tensor(list(values), requires_grad=True)


def test_leaf_and_result_attributes():
    x = leaf(1.0, 2.0)
    y = x * 3 + 1
    assert x.is_leaf
    assert x.grad_fn is None
    assert not y.is_leaf
    assert y.requires_grad
    assert repr(y.grad_fn) == "<AddBackward>"
    (node, index), _ = y.grad_fn.next_functions
    assert repr(node) == "<MulBackward>"
    assert index == 0
    accumulate = node.next_functions[0][0]
    assert accumulate.name() == "AccumulateGrad"
    assert accumulate.variable is x


def test_ids_grow_and_are_never_reused():
    seen = set()
    last = 0
    for _ in range(100):
        t = tg.zeros(1)
        assert t.id > last
        assert t.id not in seen
        seen.add(t.id)
        last = t.id


def test_backward_fills_grad_and_returns_a_mapping():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    grads = (x * y).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [3, 4])
    np.testing.assert_array_equal(grads[y].numpy(), [1, 2])
    assert grads.get(x.id).tolist() == [3, 4]
    assert set(grads) == {x.id, y.id}
    assert grads.get(tg.zeros(1)) is None


def test_gradients_accumulate_over_calls():
    x = leaf(1.0, 2.0)
    first = x.sum().backward()
    second = (x * 2).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert first[x].tolist() == [1, 1]
    assert second[x].tolist() == [2, 2]


def test_mapping_and_grad_do_not_write_through_to_each_other():
    x = leaf(1.0, 2.0)
    grads = (x * x).sum().backward()
    x.grad.zero_()
    assert grads[x].tolist() == [2, 4]
    y = leaf(1.0, 2.0)
    grads = (y * y).sum().backward()
    grads[y].mul_(10)
    assert y.grad.tolist() == [2, 4]
    assert grads[y].tolist() == [20, 40]


def test_mapping_shares_memory_until_written():
    x = tg.ones(1000, requires_grad=True)
    grads = (x * 3).sum().backward()
    assert grads._items[x.id] is x.grad._array


def test_no_two_grads_share_memory():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.add_(1)
    assert y.grad.tolist() == [1, 1]
    a, b = autograd.grad((x + y).sum(), (x, y))
    a.add_(1)
    assert b.tolist() == [1, 1]


def test_user_gradient_is_not_aliased():
    x = leaf(1.0, 2.0)
    g = tg.tensor([1.0, 1.0])
    (x + 0).backward(g)
    x.grad.add_(5)
    assert g.tolist() == [1, 1]


def test_mapping_can_be_edited_scaled_and_merged():
    x, y = leaf(1.0), leaf(2.0)
    a = (x * y).sum().backward()
    b = (x * 10).sum().backward()
    a.merge(b)
    assert a[x].item() == 12
    assert a[y].item() == 1
    a.scale_(0.5)
    assert a[x].item() == 6
    a[x] = tg.zeros(1)
    assert a[x].item() == 0
    a.insert(y.id, tg.ones(1) * 7)
    assert a.get(y).item() == 7
    del a[y]
    assert y not in a
    with pytest.raises(TypeError, match="must be a Tensor"):
        a[x] = 3.0


def test_gradient_statistics():
    x = leaf(3.0, 4.0)
    grads = (x * x / 2).sum().backward()
    assert grads.norm().item() == pytest.approx(5)
    assert not grads.has_nan()
    assert not grads.has_inf()
    grads[x] = tg.tensor([float("nan"), float("inf")])
    assert grads.has_nan()
    assert grads.has_inf()


def test_a_leaf_used_many_times():
    x = leaf(2.0)
    total = x * 0
    for _ in range(50):
        total = total + x * x
    total.sum().backward()
    assert x.grad.item() == 200


def test_a_result_used_many_times():
    x = leaf(1.0, 2.0)
    y = x * 2
    parts = [y * k for k in range(5)]
    tg.stack(parts).sum().backward()
    assert x.grad.tolist() == [20, 20]


def test_several_losses_over_one_graph():
    x = leaf(1.0, 2.0)
    h = x * x
    h.sum().backward(retain_graph=True)
    (h * 2).sum().backward()
    assert x.grad.tolist() == [6, 12]


SAVES_NO_VALUES = {
    "slice": lambda w: w[:2],
    "reshape": lambda w: w.reshape(2, 2),
    "sum": lambda w: w.reshape(2, 2).sum(0),
    "mean": lambda w: w.mean(),
    "cat": lambda w: tg.cat([w, w]),
    "cast": lambda w: w.double(),
    "expand": lambda w: w.expand(3, 4),
    "unbind": lambda w: w.unbind()[0],
    "tril": lambda w: w.reshape(2, 2).tril(),
}


@pytest.mark.parametrize("name", SAVES_NO_VALUES)
def test_several_losses_over_a_shared_part_that_saves_no_values(name):
    w = leaf(1.0, 2.0, 3.0, 4.0)
    h = SAVES_NO_VALUES[name](w)
    h.sum().backward()
    once = w.grad.clone()
    (h * 2).sum().backward()
    assert w.grad.tolist() == (3 * once).tolist()


def test_a_shared_part_that_saves_no_values_with_packed_ones_and_create_graph():
    w = leaf(1.0, 2.0)
    with autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        h = w[:1]
    h.sum().backward()
    h.sum().backward(create_graph=True)
    assert w.grad.tolist() == [2, 0]


def test_backward_through_a_freed_graph():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_backward_of_an_addition_needs_nothing_saved():
    x = leaf(1.0)
    y = x + 1
    y.backward()
    y.backward()
    assert x.grad.item() == 2


def test_backward_errors_change_nothing():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="one element"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="requires gradients"):
        tg.ones(1).backward()
    with pytest.raises(RuntimeError, match="shape"):
        (x * 2).backward(tg.ones(3))
    with pytest.raises(TypeError, match="Tensor"):
        (x * 2).backward(1.0)
    assert x.grad is None


def test_backward_with_inputs_fills_only_those():
    x, y = leaf(1.0), leaf(2.0)
    z = x * y
    (z * z).sum().backward(inputs=[x])
    assert x.grad.item() == 8
    assert y.grad is None
    middle = x * y
    (middle * 3).sum().backward(inputs=[middle])
    assert middle.grad.item() == 3
    assert x.grad.item() == 8


def test_grad_of_intermediate_results():
    x = leaf(1.0, 2.0)
    h = x * x
    y = (h * 3).sum()
    gh, gx = autograd.grad(y, [h, x])
    assert gh.tolist() == [3, 3]
    assert gx.tolist() == [6, 12]
    assert x.grad is None


def test_grad_of_unused_inputs():
    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match="allow_unused"):
        autograd.grad((x * 2).sum(), [x, y])
    gx, gy = autograd.grad((x * 2).sum(), [x, y], allow_unused=True)
    assert gx.item() == 2
    assert gy is None
    _, gy = autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)
    assert gy.item() == 0


def test_grad_with_grad_outputs():
    x = leaf(1.0, 2.0)
    (g,) = autograd.grad(x * x, x, grad_outputs=tg.tensor([1.0, 10.0]))
    assert g.tolist() == [2, 40]
    with pytest.raises(RuntimeError, match="grad_outputs"):
        autograd.grad([x * x], x, grad_outputs=[tg.ones(2), tg.ones(2)])


def test_higher_orders():
    x = tg.tensor(0.3, dtype=tg.float64, requires_grad=True)
    y = x.tanh()
    for _ in range(3):
        (y,) = autograd.grad(y, x, create_graph=True)
    t = np.tanh(0.3)
    assert y.item() == pytest.approx(-2 * (1 - t**2) * (1 - 3 * t**2), abs=1e-12)


def test_create_graph_into_grad():
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    (x.grad**2).sum().backward(inputs=[x])
    # d/dx (3 x^2)^2 = 36 x^3, on top of the 3 x^2 that was there
    assert x.grad.item() == pytest.approx(12 + 36 * 8)


def test_grad_with_a_history_keeps_it():
    x = leaf(2.0)
    x.exp().sum().backward(create_graph=True)
    first = x.grad
    (x**3).sum().backward()
    # As in PyTorch: what is added without recording changes the value only.
    assert x.grad is first
    assert x.grad.item() == pytest.approx(np.exp(2) + 12)
    (second,) = autograd.grad(x.grad.sum(), x)
    assert second.item() == pytest.approx(np.exp(2))


def test_gradient_penalty():
    w = tg.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tg.float64, requires_grad=True)
    x = tg.tensor([0.5, -0.5], dtype=tg.float64, requires_grad=True)
    (g,) = autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
    ((g.norm() - 1) ** 2).backward()
    assert tg.testing.gradcheck(
        lambda w: (autograd.grad((x @ w).tanh().sum(), x, create_graph=True)[0].norm() - 1) ** 2,
        (w.detach().requires_grad_(),),
    )
    assert w.grad.shape == (2, 2)


def test_hooks_see_and_replace_gradients():
    x = leaf(1.0, 2.0)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    replace = x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    assert seen == [[2, 2]]
    assert x.grad.tolist() == [20, 20]
    handle.remove()
    replace.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == [2, 2]


def test_hooks_on_results():
    x = leaf(1.0, 2.0)
    y = x * 3
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_hook_errors():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="requires gradients"):
        tg.ones(2).register_hook(lambda g: g)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(RuntimeError, match="shape"):
        (x * 2).sum().backward()


def test_a_hook_that_writes_does_not_corrupt_others():
    x, y = leaf(1.0), leaf(1.0)
    x.register_hook(lambda g: g.mul_(5))
    (x + y).sum().backward()
    assert x.grad.item() == 5
    assert y.grad.item() == 1


def test_post_accumulate_hook():
    x = leaf(1.0, 2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [[2, 2], [4, 4]]
    with pytest.raises(RuntimeError, match="leaves"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_gradients_of_leaves_are_final_while_backward_still_runs():
    first, second = leaf(1.0, 2.0), leaf(3.0, 4.0)
    seen = []
    middle = first * 2
    middle.register_hook(lambda g: seen.append(("middle", second.grad is not None)))
    second.register_post_accumulate_grad_hook(lambda t: seen.append("second"))
    first.register_post_accumulate_grad_hook(lambda t: seen.append(("first", t.grad.tolist())))
    (middle * second).sum().backward()
    assert seen == ["second", ("middle", True), ("first", [6, 8])]


def test_a_leaf_that_is_used_again_below_is_final_at_the_last_use():
    x, y = leaf(1.0, 2.0), leaf(3.0, 5.0)
    seen = []
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    z = x * y
    (z * x + y).sum().backward()
    assert seen == [("x", [6, 20]), ("y", [2, 5])]


@pytest.mark.parametrize("size", [3, 1 << 16])
def test_gradients_that_are_added_to_are_right_at_every_size(size):
    x, y = (tg.full((size,), v).requires_grad_() for v in (1.5, 2.0))
    for count in range(1, 4):
        grads = (x * y * x + y.sin() * 2 + x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), count * (2 * 1.5 * 2 + 1), rtol=1e-5)
        np.testing.assert_allclose(y.grad.numpy(), count * (1.5**2 + 2 * np.cos(2.0)), rtol=1e-5)
        np.testing.assert_allclose(grads[x].numpy(), 7, rtol=1e-6)


def test_gradients_that_hooks_use_up_are_freed_one_by_one():
    """As an optimizer does that takes its steps in backward."""
    leaves = [tg.ones(1 << 18).requires_grad_() for _ in range(12)]

    def update(x):
        with tg.no_grad():
            x -= 0.5 * x.grad
        x.grad = None

    for x in leaves:
        x.register_post_accumulate_grad_hook(update)
    # The first call also imports what native code needs, which is not a gradient.
    sum((x * 3).sum() for x in leaves).backward()
    loss = sum((x * 3).sum() for x in leaves)
    tracemalloc.start()
    grads = loss.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * leaves[0].nbytes
    assert len(grads) == 0
    assert all(x.sum().item() == -2 * (1 << 18) for x in leaves)


def test_retain_grad():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    assert y.retains_grad
    grads = y.sum().backward()
    assert y.grad.tolist() == [1, 1]
    assert grads[y].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="requires gradients"):
        tg.ones(1).retain_grad()


def test_detach_shares_data_and_cuts_history():
    x = leaf(1.0, 2.0)
    d = (x * 2).detach()
    assert not d.requires_grad
    y = x.detach()
    y.add_(1)
    assert x.tolist() == [2, 3]
    z = x * 2
    z.detach_()
    assert z.is_leaf
    assert not z.requires_grad


def test_requires_grad_rules():
    with pytest.raises(RuntimeError, match="floating"):
        tg.tensor([1, 2]).requires_grad_()
    x = leaf(1.0)
    y = x * 2
    with pytest.raises(RuntimeError, match="detach"):
        y.requires_grad = False
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_grad_assignment_is_checked():
    x = leaf(1.0, 2.0)
    x.grad = tg.ones(2)
    with pytest.raises(RuntimeError, match="shape"):
        x.grad = tg.ones(3)
    with pytest.raises(RuntimeError, match="float64"):
        x.grad = tg.ones(2, dtype=tg.float64)
    with pytest.raises(TypeError):
        x.grad = 1.0
    assert x.grad.tolist() == [1, 1]


def test_zero_grad():
    x = leaf(1.0)
    (x * 2).sum().backward()
    before = x.grad
    x.zero_grad(set_to_none=False)
    assert x.grad is before
    assert before.item() == 0
    (x * x).sum().backward(create_graph=True)
    before = x.grad
    assert before.requires_grad
    x.zero_grad(set_to_none=False)
    assert x.grad is before
    assert before.item() == 0
    assert before.is_leaf
    assert not before.requires_grad
    (x * 2).sum().backward()
    assert x.grad is before
    assert before.item() == 2
    x.zero_grad()
    assert x.grad is None


def test_modes_as_context_managers_and_decorators():
    x = leaf(1.0)
    with tg.no_grad():
        assert not tg.is_grad_enabled()
        assert not (x * 2).requires_grad
        with tg.enable_grad():
            assert (x * 2).requires_grad
        assert not tg.is_grad_enabled()
    assert tg.is_grad_enabled()

    @tg.no_grad()
    def quiet():
        return (x * 2).requires_grad

    @tg.no_grad
    def quiet_too():
        return (x * 2).requires_grad

    assert not quiet()
    assert not quiet_too()
    tg.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        tg.set_grad_enabled(True)
    with tg.set_grad_enabled(False):
        assert not tg.is_grad_enabled()
    assert tg.is_grad_enabled()

    @tg.set_grad_enabled(False)
    def quiet_three():
        return tg.is_grad_enabled()

    assert tg.is_grad_enabled()
    assert not quiet_three()
    with tg.inference_mode():
        assert tg.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
    assert not tg.is_inference_mode_enabled()


def test_modes_around_generators():
    @tg.no_grad()
    def values():
        yield tg.is_grad_enabled()
        yield tg.is_grad_enabled()

    seen = []
    for inside in values():
        seen += [inside, tg.is_grad_enabled()]
    assert seen == [False, True, False, True]


def test_modes_survive_exceptions():
    with pytest.raises(ValueError, match="x"), tg.no_grad():
        raise ValueError("x")
    assert tg.is_grad_enabled()


def test_a_forward_pass_leaks_nothing():
    x = leaf(1.0)
    y = x * 2
    entry = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert entry() is None


def test_a_saved_output_makes_no_cycle():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0)
        y = x.exp()
        entry = weakref.ref(y.grad_fn)
        array = weakref.ref(y._array)
        del y
        assert entry() is None
        assert array() is None
    finally:
        gc.enable()


def test_saved_values_are_freed_by_backward():
    x = leaf(1.0, 2.0)
    y = x.exp()
    array = weakref.ref(y._array)
    z = y.sum()
    del y
    assert array() is not None
    z.backward()
    assert array() is None


def test_a_long_chain_needs_no_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1
    del y


def test_only_needed_values_are_saved():
    x, w = tg.ones(3), tg.ones(3, requires_grad=True)
    y = x * w
    kept = [s for s in y.grad_fn.saved if s is not None]
    assert len(kept) == 1, "w is needed only for the gradient of x"
    assert kept[0] is x._array
    assert (w + x).grad_fn.saved == ()


def test_saved_tensor_hooks():
    packed = []

    def pack(t):
        packed.append(t.tolist())
        return len(packed) - 1

    x = leaf(1.0, 2.0)
    with autograd.graph.saved_tensors_hooks(pack, lambda i: tg.tensor(packed[i])):
        y = (x * x).sum()
    assert packed == [[1, 2], [1, 2]]
    y.backward()
    assert x.grad.tolist() == [2, 4]


def test_saved_tensor_hooks_entered_during_backward_end_with_it():
    def unpack(t):
        hooks.__enter__()
        return t

    hooks = tg.autograd.graph.saved_tensors_hooks(lambda t: t, unpack)
    x = leaf(1.0, 2.0)
    with hooks:
        x.sin().sum().backward()
    entry = x.sin().grad_fn
    assert entry.saved[0] is x._array  # not packed


def test_reading_a_gradient_that_nothing_fills_warns():
    x = leaf(1.0)
    assert x.grad is None
    y = x * 2
    with pytest.warns(UserWarning, match="retain_grad") as caught:
        assert y.grad is None
    assert caught[0].filename == __file__
    y.retain_grad()
    assert y.grad is None
    y.backward()
    assert y.grad.item() == 1
    with tg.no_grad():
        assert (x * 2).grad is None


def test_order_of_hooks_at_a_leaf():
    x = leaf(1.0)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 3)
    node.register_prehook(lambda g: (g[0] * 2,))
    x.register_post_accumulate_grad_hook(lambda x: x.grad.add_(1) and None)
    seen = []
    node.register_hook(lambda _, g: seen.append(g[0].tolist()))
    gradients = (x * 1).sum().backward()
    assert x.grad.tolist() == [-3]
    assert seen == [[-3]]
    assert gradients[x].tolist() == [-4]


def test_saved_tensor_hooks_cover_lists():
    x = leaf(1.0, 2.0, 3.0)
    count = []
    with autograd.graph.saved_tensors_hooks(lambda t: count.append(1) or t, lambda t: t):
        y = x[tg.tensor([0, 0, 2])].sum()
    assert count
    y.backward()
    assert x.grad.tolist() == [2, 0, 1]


def test_anomaly_names_the_line_of_a_nan_in_backward():
    x = leaf(0.0)
    with autograd.detect_anomaly():
        y = x.sqrt()  # the line
        z = (y * 0).sum()
        with pytest.raises(RuntimeError, match=r"SqrtBackward.*the line"):
            z.backward()
    assert not autograd.is_anomaly_enabled()


def test_anomaly_names_the_line_of_a_nan_in_forward():
    with (
        autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match=r"log made the first NaN.*test_autograd"),
    ):
        (leaf(1.0) - 2).log()


def test_anomaly_blames_the_first_one_only():
    x = tg.tensor([float("nan")], requires_grad=True)
    with autograd.detect_anomaly():
        y = x * 2
    assert y.isnan().all()


def test_deepcopy_copy_and_pickle():
    import copy
    import pickle

    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    c = copy.deepcopy(x)
    c.data.add_(1)
    assert x.tolist() == [1, 2]
    assert c.requires_grad
    assert c.grad.tolist() == [2, 2]
    p = pickle.loads(pickle.dumps(x))
    assert p.tolist() == [1, 2]
    assert p.requires_grad
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)
    shallow = copy.copy(x)
    assert shallow._array is x._array
