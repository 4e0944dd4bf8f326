"""Function and Context: gradients written by the user."""

import gc
import weakref

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd import Function, forward_ad, once_differentiable


class Power(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x ** (ctx.k - 1), None


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out


def leaf(*values, dtype=tg.float64):
    return tg.tensor(list(values), dtype=dtype, requires_grad=True)


def test_one_input_and_a_number():
    x = leaf(1.0, 2.0)
    y = Power.apply(x, 3)
    assert repr(y.grad_fn) == "<PowerBackward>"
    y.sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_double_backward_through_saved_input_and_output():
    x = leaf(1.0, 2.0)
    assert tg.testing.gradcheck(lambda v: Power.apply(v, 3), (x,))
    assert tg.testing.gradgradcheck(lambda v: Power.apply(v, 3), (x,))
    assert tg.testing.gradgradcheck(lambda v: Exp.apply(v), (x,))


def test_several_inputs_and_outputs():
    class Both(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b, a + b

        @staticmethod
        def backward(ctx, g_product, g_sum):
            a, b = ctx.saved_tensors
            return g_product * b + g_sum, g_product * a + g_sum

    a, b = leaf(2.0), leaf(3.0)
    product, total = Both.apply(a, b)
    (product * 10 + total).sum().backward()
    assert (a.grad.item(), b.grad.item()) == (31, 21)
    a.grad = None
    Both.apply(a, b)[0].sum().backward()
    assert a.grad.item() == 3
    assert tg.testing.gradgradcheck(lambda u, v: Both.apply(u, v), (a, b))


def test_needs_input_grad():
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b, scale):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            _, b = ctx.saved_tensors
            return g * b, None, None

    a = leaf(2.0)
    Product.apply(a, tg.tensor([3.0], dtype=tg.float64), 1.0).sum().backward()
    assert seen == [(True, False, False)]
    assert a.grad.item() == 3


def test_non_differentiable_outputs():
    class Largest(Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.max(0)
            rank = x * 0
            ctx.mark_non_differentiable(indices, rank)
            ctx.save_for_backward(indices)
            ctx.n = len(x)
            return values, indices, rank

        @staticmethod
        def backward(ctx, g, *unused):
            (index,) = ctx.saved_tensors
            out = tg.zeros(ctx.n, dtype=g.dtype)
            out[index] = g
            return out

    x = leaf(1.0, 5.0, 2.0)
    values, indices, rank = Largest.apply(x)
    assert not indices.requires_grad
    assert not rank.requires_grad
    values.backward()
    assert x.grad.tolist() == [0, 1, 0]


def test_missing_gradients_are_zeros_or_none():
    seen = []

    def make(materialize):
        class Pair(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 1, x * 2

            @staticmethod
            def backward(ctx, a, b):
                seen.append(b)
                return a

        return Pair

    x = leaf(1.0)
    make(True).apply(x)[0].sum().backward()
    make(False).apply(x)[0].sum().backward()
    assert seen[0].item() == 0
    assert seen[1] is None


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = leaf(3.0)
    (g,) = tg.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert g.item() == 6
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.backward()


def test_setup_context_style():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * g

    x = leaf(2.0)
    Cube.apply(x).sum().backward()
    assert x.grad.item() == 12


def test_mark_dirty():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0)
    y = x * 1
    z = Double.apply(y)
    assert z is y
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_backward_gets_the_very_tensor_that_was_saved():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(scale, x)
            return x * scale

        @staticmethod
        def backward(ctx, g):
            scale, x = ctx.saved_tensors
            seen.append((scale, x))
            return g * scale, None

    seen = []
    x, scale = leaf(1.0), tg.nn.Parameter(tg.tensor([2.0]), requires_grad=False)
    tg.autograd.grad(Scaled.apply(x, scale), x)
    tg.autograd.grad(Scaled.apply(x, scale), x, create_graph=True)
    for found, other in seen:
        assert found is scale
        assert other is x
    result = Scaled.apply(x, tg.tensor([4.0]))  # nobody else keeps this one
    assert tg.autograd.grad(result, x)[0].item() == 4


@pytest.mark.parametrize("tracked", [False, True])
def test_mark_dirty_in_forward_mode(tracked):
    runs = []

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            runs.append(1)
            before = x.clone()
            ctx.save_for_forward(before)
            ctx.save_for_backward(before)
            ctx.mark_dirty(x)
            return x.mul_(x)

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, t):
            return t.mul_(2 * ctx.saved_tensors[0])

    leaf = tg.tensor([3.0], requires_grad=tracked)
    x, tangent = leaf.clone(), tg.ones(1)
    with forward_ad.dual_level():
        given = forward_ad.make_dual(x, tangent)
        result = Square.apply(given)
        assert result is given
        assert len(runs) == 1
        value, found = forward_ad.unpack_dual(result)
        assert value.tolist() == x.tolist() == [9]
        assert found is tangent
        assert found.tolist() == [6]
        if tracked:
            assert tg.autograd.grad(result, leaf)[0].tolist() == [6]


def test_wrong_backwards_are_refused():
    def function(result):
        class Bad(Function):
            @staticmethod
            def forward(ctx, x, k):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return result(g)

        return Bad

    x = leaf(1.0, 2.0)
    cases = [
        (lambda g: g, "returned 1 gradients"),
        (lambda g: (g, g), "not a tensor"),
        (lambda g: (g[:1].expand(3), None), "shape"),
        (lambda g: (1.0, None), "must return Tensors"),
    ]
    for result, message in cases:
        with pytest.raises((RuntimeError, TypeError), match=message):
            function(result).apply(x, 2).sum().backward()
    with pytest.raises(NotImplementedError):
        Function.apply(x)

    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="save_for_backward"):
        Saves.apply(x)


def test_saved_values_are_checked_and_freed():
    x = leaf(1.0, 2.0)
    h = x * 1
    y = Power.apply(h, 2)
    h.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()
    y = Power.apply(x, 2).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()


def test_no_cycle_through_a_saved_output():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0)
        y = Exp.apply(x)
        array = weakref.ref(y._array)
        del y
        assert array() is None
    finally:
        gc.enable()


def test_under_no_grad_and_under_a_tape():
    x = leaf(2.0)
    with tg.no_grad():
        assert not Power.apply(x, 2).requires_grad
    plain = tg.tensor([2.0])
    with tg.Tape() as tape:
        y = Power.apply(plain, 2)
    assert [e.primitive.name for e in tape] == ["Power"]
    assert tape.backward(y)[plain].item() == 4


def test_custom_op_from_two_functions():
    scale = tg.custom_op(lambda xs: xs[0] * xs[1], lambda g, xs: [g * xs[1], g * xs[0]])
    a, b = leaf(2.0), leaf(3.0)
    scale(a, b).sum().backward()
    assert (a.grad.item(), b.grad.item()) == (3, 2)
    assert tg.testing.gradgradcheck(scale, (a, b))


class Recomputed(Function):
    """A function that is run again in backward, with parameters among what is saved."""

    @staticmethod
    def forward(ctx, function, x, *parameters):
        ctx.function = function
        ctx.save_for_backward(x, *parameters)
        with tg.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, g):
        x, *parameters = ctx.saved_tensors
        with tg.enable_grad():
            again = x.detach().requires_grad_()
            out = ctx.function(again)
            return (None, *tg.autograd.grad(out, (again, *parameters), g))


def test_saved_inputs_are_those_of_forward():
    layer = tg.nn.Linear(3, 2)
    x = tg.randn(4, 3)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = tg.autograd.grad((layer(a) ** 2).sum(), (a, *layer.parameters()))
    out = Recomputed.apply(layer, b * 1, *layer.parameters())
    found = tg.autograd.grad((out**2).sum(), (b, *layer.parameters()))
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=1e-6)
        assert not f.requires_grad


class Same(Function):
    """Returns a view of its input; the gradient is 5 times as large as that of the view."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return 5 * g


class Itself(Same):
    @staticmethod
    def forward(ctx, x):
        return x


@pytest.mark.parametrize("kind", [Same, Itself])
def test_a_returned_view_of_an_input_is_a_view(kind):
    x = tg.ones(2, requires_grad=True)
    y = kind.apply(x)
    assert y is not x
    assert y._base is x
    assert y.detach().data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]
    plain = tg.ones(2)
    shown = kind.apply(plain)
    shown.add_(1)
    plain[0] = 7.0
    assert plain.tolist() == shown.tolist() == [7, 2]


def test_a_view_that_a_function_returns_is_not_changed_where_gradients_are_recorded():
    w = tg.ones(2, requires_grad=True)
    changes = (lambda x, y: y.mul_(3), lambda x, y: y[:1].mul_(3), lambda x, y: x.mul_(3) * y)
    for change in changes:
        x = w * 1
        y = Same.apply(x)
        with pytest.raises(RuntimeError, match="that a Function has returned"):
            change(x, y)
    x = w * 1
    y = Same.apply(x)
    with tg.no_grad():
        y.mul_(3)
        assert y.tolist() == x.tolist() == [3, 3]


def test_a_view_that_a_function_returns_in_a_compiled_function():
    @tg.compile
    def graded(x):
        return Same.apply(x)

    @tg.compile
    def written(x):
        Same.apply(x).add_(1)
        return x * 2

    for _ in range(4):
        x = tg.ones(2, requires_grad=True)
        graded(x).sum().backward()
        assert x.grad.tolist() == [5, 5]
        plain = tg.ones(2)
        assert written(plain).tolist() == [4, 4]
        assert plain.tolist() == [2, 2]


def test_a_gradient_that_nobody_needs_may_have_any_shape():
    class Scaled(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x, times):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, tg.ones(7)

    x = tg.ones(3, requires_grad=True)
    Scaled.apply(x, tg.ones(5)).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_hooks_of_one_tensor_get_one_gradient():
    x = tg.ones(2, requires_grad=True)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g))
    y.register_hook(lambda g: setattr(g, "mark", 5))
    y.register_hook(lambda g: seen.append(g) or g * 3)
    y.register_hook(lambda g: seen.append(g))
    y.sum().backward()
    assert seen[0] is seen[1]
    assert seen[0].mark == 5
    assert seen[2].tolist() == [3, 3]
    assert x.grad.tolist() == [6, 6]
