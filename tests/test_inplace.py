"""In-place operations and views: values, gradients, versions, and the errors that name lines."""

import warnings

import numpy as np
import pytest

import tapegrad as tg


def leaf(*values):
    return tg.tensor(list(values), requires_grad=True)


def test_in_place_on_a_result():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.add_(1).mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_in_place_with_a_tensor_that_needs_the_old_value():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * 2
    y.mul_(w)
    y.sum().backward()
    assert w.grad.tolist() == [2, 4]
    assert x.grad.tolist() == [6, 8]


def test_in_place_changes_the_base_through_a_view():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    v = y[1:]
    v.mul_(10)
    assert y.tolist() == [1, 20, 30]
    y.sum().backward()
    assert x.grad.tolist() == [1, 10, 10]


def test_other_views_follow():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    a, b = y[:2], y[1:]
    a.mul_(10)
    (b * b).sum().backward()
    assert x.grad.tolist() == [0, 2 * 20 * 10, 2 * 3]


def test_views_of_views_of_transposes():
    x = tg.arange(6).float().reshape(2, 3).requires_grad_()
    y = x * 1
    y.T[1:].unsqueeze(0)[0][:, 0].mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [[1, 5, 5], [1, 1, 1]]


def test_assignment_by_index():
    x, w = leaf(1.0, 2.0, 3.0), leaf(5.0)
    y = x * 1
    y[0] = w[0] * 2
    y[1:2] = 7.0
    assert y.tolist() == [10, 7, 3]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 1]
    assert w.grad.tolist() == [2]


def test_assignment_into_a_plain_tensor_connects_it():
    w = leaf(2.0, 3.0)
    z = tg.zeros(4)
    view = z[1:3]
    z[1:3] = w * w
    assert z.requires_grad
    assert view.requires_grad
    (view * 2).sum().backward()
    assert w.grad.tolist() == [8, 12]


def test_assignment_by_tensors_and_masks():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    y[tg.tensor([0, 2])] = tg.tensor([9.0, 9.0])
    y[y > 8] = 0.5
    assert y.tolist() == [0.5, 2, 0.5, 4]
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 0, 1]


def test_leaves_are_protected():
    x = leaf(1.0, 2.0)
    for change in (
        lambda: x.add_(1),
        lambda: x.__setitem__(0, 5.0),
        lambda: x.zero_(),
        lambda: x[0:1].mul_(2),
        lambda: x.view(-1).fill_(3),
        lambda: x.copy_(tg.zeros(2)),
    ):
        with pytest.raises(RuntimeError, match="no_grad"):
            change()
    assert x.tolist() == [1, 2]
    assert x._version == 0


def test_leaves_change_under_no_grad():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    with tg.no_grad():
        x -= 0.5 * x.grad
        x[0] = 7.0
    assert x.tolist() == [7, 0]
    assert x.is_leaf
    assert x.requires_grad
    x.grad.zero_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [14, 0]


def test_the_error_names_both_lines():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = (y * y).sum()  # saved here
    y.add_(1)  # changed here
    with pytest.raises(RuntimeError) as caught:
        z.backward()
    text = str(caught.value)
    assert "saved by mul" in text
    assert "# saved here" in text
    assert "# changed here" in text


def test_a_changed_leaf_is_noticed():
    x, w = leaf(1.0), leaf(2.0)
    y = (x * w).sum()
    with tg.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


def test_a_change_through_detach_is_noticed():
    x = leaf(1.0, 2.0)
    y = x.exp()
    z = y.sum()
    y.detach().zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        z.backward()


def test_a_change_of_what_nobody_saved_is_fine():
    x = leaf(1.0, 2.0)
    y = x + 1
    z = y + 2
    y.add_(5)
    (z.sum() + y.sum()).backward()
    assert x.grad.tolist() == [2, 2]


def test_versions_count_changes_of_shared_memory():
    x = tg.zeros(4)
    v = x[:2]
    assert x._version == 0
    v.add_(1)
    x.mul_(2)
    assert x._version == v._version == 2
    assert x._base is None
    assert v._base is x


def test_augmented_assignment_on_a_non_leaf():
    x = leaf(1.0, 2.0)
    y = x * 1
    y += 1
    y *= x
    y -= 2
    y /= 2
    y **= 2
    y.sum().backward()
    a = np.array([1.0, 2.0])
    v = ((a + 1) * a - 2) / 2
    np.testing.assert_allclose(x.grad.numpy(), 2 * v * (2 * a + 1) / 2)


def test_results_must_fit():
    x = tg.ones(3)
    with pytest.raises(RuntimeError, match="does not fit"):
        x.add_(tg.ones(2, 3))
    with pytest.raises(RuntimeError, match="cannot be put"):
        tg.tensor([1, 2]).add_(0.5)
    with pytest.raises(RuntimeError, match="shape"):
        x[:2] = tg.ones(3)
    with pytest.raises(IndexError):
        x[5] = 1.0
    assert x.tolist() == [1, 1, 1]
    assert x._version == 0


def test_overlapping_copies():
    x = tg.arange(5).float()
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_fill_keeps_requires_grad_and_sends_zeros():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.zero_()
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_higher_order_through_in_place():
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    y = x * x
    y[0:1].mul_(x[1:2])
    (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    # y = x0^2 x1 + x1^2: gradients (2 x0 x1, x0^2 + 2 x1), their sum differentiated
    assert g.tolist() == [4, 5]
    assert h.tolist() == [2 * 2 + 2 * 1, 2 * 1 + 2]


def test_shared_gradient_memory_is_copied_before_views_of_it_are_written():
    x = leaf(1.0, 2.0)
    grads = (x * 3).sum().backward()
    x.grad[0:1].zero_()
    x.grad.detach().add_(1)
    assert grads[x].tolist() == [3, 3]


def test_copying_from_a_view_that_another_view_has_changed():
    """The source's history is that of its memory now, not of when it was made."""

    def run(to):
        p = tg.arange(7.0).requires_grad_()
        x = p * 1.0
        view = x.reshape(7)
        x[:4].fill_(0.5)
        target = x if to == "itself" else tg.zeros(7)
        target.copy_(view)
        (target * target).sum().backward()
        return target, p.grad

    for to in ("itself", "another"):
        target, grad = run(to)
        assert target.tolist() == [0.5, 0.5, 0.5, 0.5, 4, 5, 6]
        assert grad.tolist() == [0, 0, 0, 0, 8, 10, 12]


def test_a_retained_gradient_is_that_of_the_value_after_changes():
    """As in PyTorch; a hook sees the gradient of the value that it was put on."""

    def changed(change, made=lambda y: y):
        y = leaf(1.0, 1.0, 1.0) * 2
        kept, seen = made(y), []
        kept.retain_grad()
        kept.register_hook(lambda g: seen.append(g.tolist()))
        change(y, kept)
        ((y * y).sum() + (kept * 1.0).sum()).backward()
        assert kept.retains_grad
        return kept.grad.tolist(), seen[0]

    assert changed(lambda y, kept: kept.mul_(3)) == ([13] * 3, [39] * 3)
    assert changed(lambda y, kept: kept[1:].mul_(3)) == ([5, 13, 13], [5, 39, 39])
    assert changed(lambda y, kept: kept.mul_(3), lambda y: y[1:])[0] == [1, 1]
    y = leaf(1.0, 1.0, 1.0) * 2
    part = y[1:]
    part.retain_grad()
    y.mul_(3)
    (part * 5).sum().backward()
    assert part.grad.tolist() == [5, 5]


def test_backward_from_a_view_whose_memory_was_changed():
    """The view itself is what is differentiated: nothing has asked for its history before."""

    def view():
        x = leaf(1.0, 1.0, 1.0)
        base = x * 1
        part = base[0]
        base.mul_(3)
        return x, part

    x, part = view()
    part.backward()
    assert x.grad.tolist() == [3, 0, 0]
    x, part = view()
    assert tg.autograd.grad(part, x)[0].tolist() == [3, 0, 0]
    x, part = view()
    tg.autograd.backward([part], [tg.tensor(2.0)])
    assert x.grad.tolist() == [6, 0, 0]
    x, part = view()
    with tg.no_grad():
        part.backward(inputs=[x])
    assert x.grad.tolist() == [3, 0, 0]
    with tg.Tape() as tape:
        x, part = view()
    assert tape.backward(part)[x].tolist() == [3, 0, 0]


def test_views_of_a_constant_that_got_a_history():
    x, y = leaf(1.0, 1.0, 1.0), tg.zeros(3)
    part = y[:2]
    y.copy_(x * 2)
    with tg.no_grad():
        part.backward(tg.ones(2))
    assert x.grad.tolist() == [2, 2, 0]
    loss = (y[:2] * 5).sum()
    part = y[1:]
    y.mul_(2)
    with pytest.raises(RuntimeError, match="not used"), tg.no_grad():
        tg.autograd.grad(loss, part)


def test_a_copy_has_a_gradient_of_its_own():
    """What was copied has more to it: the gradient, hooks and `grad` of one are not the other's."""

    def copied():
        x = leaf(1.0, 1.0, 1.0)
        y = x * 2
        return x, y, tg.zeros(3).copy_(y), lambda y, b: (y * 10).sum() + (b * 3).sum()

    x, y, b, loss = copied()
    found = tg.autograd.grad(loss(y, b), [b, y, x])
    assert [g.tolist() for g in found] == [[3] * 3, [13] * 3, [26] * 3]
    x, y, b, loss = copied()
    b.retain_grad()
    b.register_hook(lambda g: g * 0)
    loss(y, b).backward()
    assert x.grad.tolist() == [20] * 3
    x = leaf(2.0)
    total = x.sum()
    b = tg.zeros(()).fill_(total)
    b.register_hook(lambda g: g * 0)
    (total * 10 + b * 3).backward()
    assert x.grad.tolist() == [10]
    with tg.Tape() as tape:
        y = tg.ones(2) * 2
        b = tg.zeros(2).copy_(y)
        total = (y * 10).sum() + (b * 3).sum()
    gradients = tape.backward(total)
    assert gradients[b].tolist() == [3, 3]
    assert gradients[y].tolist() == [13, 13]


def test_quotients_may_be_changed():
    """As in PyTorch, which keeps what went into a division and not what came out."""
    x, n = leaf(1.0, 2.0), leaf(4.0, 5.0)
    y = x / n
    y[0] = 0
    y += 1
    y.sum().backward()
    assert n.grad.tolist() == pytest.approx([0, -2 / 25])
    assert x.grad.tolist() == pytest.approx([0, 1 / 5])
    n.grad = None
    y = 3 / n
    y.mul_(2)
    y.sum().backward()
    assert n.grad.tolist() == pytest.approx([-6 / 16, -6 / 25])


def test_overlapping_windows_are_a_view():
    x = tg.arange(5.0)
    windows = x.unfold(0, 3, 1)
    x[1] = 9.0
    assert windows.tolist() == [[0, 9, 2], [9, 2, 3], [2, 3, 4]]
    windows[0] = 7.0
    assert x.tolist() == [7, 7, 7, 3, 4]
    windows[2].mul_(2)
    assert x.tolist() == [7, 7, 14, 6, 8]
    assert windows._base is x


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_through_overlapping_windows_that_are_written_to(turned):
    w = tg.arange(10.0).reshape(5, 2).requires_grad_()
    x = w.T.contiguous().T * 1 if turned else w * 1
    windows = x.unfold(0, 3, 1)
    windows[1].mul_(2)
    x.mul_(3)
    (windows * windows).sum().backward()
    factors = np.array([1, 2, 2, 2, 1])[:, None] * 3
    times = np.array([1, 2, 3, 2, 1])[:, None]
    assert w.grad.tolist() == (2 * factors**2 * times * w.detach().numpy()).tolist()


@pytest.mark.parametrize(
    "change",
    [lambda u: u.add_(1), lambda u: u.exp_(), lambda u: u.T.mul_(2), lambda u: u[:2].neg_()],
)
def test_overlapping_windows_cannot_be_written_to_at_once(change):
    x = tg.arange(5.0)
    with pytest.raises(RuntimeError, match="share memory"):
        change(x.unfold(0, 3, 1))
    assert x.tolist() == [0, 1, 2, 3, 4]
    change(x[:4].unfold(0, 2, 2))


def test_windows_of_read_only_and_of_expanded_memory():
    array = np.arange(4.0)
    array.flags.writeable = False
    for x in (tg.from_numpy(array), tg.ones(1).expand(4)):
        with pytest.raises(RuntimeError, match="cannot write"):
            x.unfold(0, 2, 2).add_(1)
    assert array.tolist() == [0, 1, 2, 3]


def test_a_part_of_an_expanded_tensor_can_be_written_to():
    x = tg.zeros(3, 1)
    y = x.expand(3, 4)
    y[:, 1] = tg.tensor([1.0, 2.0, 3.0])
    y[0, 2].add_(4)
    assert x.flatten().tolist() == [5, 2, 3]
    assert y.tolist() == x.repeat(1, 4).tolist()
    assert y.zero_() is y
    assert not x.any()
    for part in (y, y[:, :2], y[0]):
        with pytest.raises(RuntimeError, match="cannot write"):
            part.add_(1)
    with pytest.raises(RuntimeError, match="cannot write"):
        y[:] = 1
    with pytest.raises(RuntimeError, match="cannot write"):
        y[tg.tensor([0])] = 1  # PyTorch warns that this is deprecated
    assert not x.any()


def test_gradients_through_parts_of_an_expanded_tensor():
    def f(x, w):
        base = x * 1
        y = base.expand(2, 3)
        y[:, 1] = w * 3
        return (y * y).sum() + base.sum()

    for call in (f, tg.compile(f)):
        for _ in range(3):
            x, w = tg.ones(2, 1, requires_grad=True), tg.ones(2, requires_grad=True)
            call(x, w).backward()
            assert x.grad.flatten().tolist() == [0, 0]
            assert w.grad.tolist() == [57, 57]  # 3 squares of 3w, and 3w


def test_read_only_memory_of_the_user_stays_as_it_is():
    array = np.zeros(3)
    shown = array.view()
    shown.flags.writeable = False
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for given in (shown, fixed, np.broadcast_to(fixed, (2, 3)), np.frombuffer(b"1234", np.int8)):
        x = tg.from_numpy(given)
        for part in (x, x.expand(2, *x.shape), x[None].detach()):
            with pytest.raises(RuntimeError, match="read-only"):
                part[0] = 1
    assert not array.any()
    assert not fixed.any()


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_of_expanded_arguments(compiled):
    def step(x, other):
        x[:1] *= 2
        other.expand(4).detach()[0] = 7
        return x.sum() + other

    call = tg.compile(step) if compiled else step
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            base, other = tg.ones(3), tg.zeros(1)
            assert call(base.expand(4, 3), other).item() == 4 * 6 + 7
            assert base.tolist() == [2, 2, 2]
            assert other.item() == 7
    assert ["share memory" in str(w.message) for w in caught] == [True] * compiled


def test_windows_in_a_compiled_function():
    @tg.compile
    def step(x):
        windows = x.unfold(0, 3, 1)
        windows[1].mul_(2)
        return (windows * windows).sum(1), x

    for _ in range(4):
        found, x = step(tg.arange(5.0))
        assert found.tolist() == [20, 56, 68]
        assert x.tolist() == [0, 2, 4, 6, 4]


@pytest.mark.parametrize("tracked", [False, True])
def test_older_order_of_a_factor(tracked):
    other = tg.tensor([3.0, 4.0])
    for name, expected in (("add", [7.0, 9.0]), ("sub", [-5.0, -7.0])):
        for label in (name, f"{name}_"):
            x = tg.ones(2, requires_grad=tracked) * 1
            assert getattr(x, label)(2, other).tolist() == expected
        assert getattr(tg, name)(tg.ones(2), 2, other).tolist() == expected
    for name, expected in (("addcmul", [19.0, 33.0]), ("addcdiv", [3.0, 3.0])):
        for label in (name, f"{name}_"):
            x = tg.ones(2, requires_grad=tracked) * 1
            assert getattr(x, label)(2, other, other).tolist() == expected
    assert other.tolist() == [3, 4]  # np.add(x, 2, other) would have written into it


def test_a_number_comes_first():
    x = tg.tensor([2.0, 4.0])
    assert tg.div(1.0, x).tolist() == [0.5, 0.25]
    assert tg.mul(3, x).tolist() == [6, 12]
    assert tg.sub(1, x, alpha=2).tolist() == [-3, -7]
    assert tg.floor_divide(9, x).tolist() == [4, 2]
    with pytest.raises(TypeError, match="expected a Tensor"):
        tg.fmod(1.0, x)


def test_a_factor_is_not_rounded_to_the_narrower_dtype():
    narrow = tg.tensor([0.1235, 1.234]).bfloat16()
    wide = tg.ones(2, dtype=tg.float64)
    exact = narrow.double()
    assert wide.add(narrow, alpha=-0.02).tolist() == (wide - 0.02 * exact).tolist()
    assert wide.clone().add_(narrow, alpha=-0.02).tolist() == (wide - 0.02 * exact).tolist()
    assert wide.addcmul(narrow, narrow, value=0.3).tolist() == (wide + exact * exact * 0.3).tolist()
    half = tg.tensor([[1.0, 0.33], [0.21, 3.1]]).half()
    once = (0.1 * half.float() + 0.7 * (half.float() @ half.float())).half()
    assert tg.addmm(half, half, half, beta=0.1, alpha=0.7).tolist() == once.tolist()


def test_in_asks_for_numbers():
    x = tg.tensor([1.0, 2.0])
    assert 2 in x
    assert 3.0 not in x
    with pytest.raises(RuntimeError, match="takes a number or a Tensor, got"):
        "lr" in x  # noqa: B015
