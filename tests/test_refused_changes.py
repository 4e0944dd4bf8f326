"""Writes whose derivative nobody could tell: refused, or told."""

import pytest

import tapegrad as tg
from tapegrad.autograd import Function, forward_ad


def test_an_input_that_a_function_changed_is_returned():
    class Kept(Function):
        @staticmethod
        def forward(ctx, a, b):
            a.add_(b)
            ctx.mark_dirty(a)
            return a.clone(), a + b

        @staticmethod
        def backward(ctx, g, h):
            return g + h, g + 2 * h

    a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="must return every input"):
        Kept.apply(a.clone(), b)


def test_a_view_that_a_function_changes_is_its_only_result():
    class Added(Function):
        @staticmethod
        def forward(ctx, a, b, alone):
            a.add_(b)
            ctx.mark_dirty(a)
            return a if alone else (a, a + b)

        @staticmethod
        def backward(ctx, *gs):
            return sum(gs), sum(gs), None

    a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="several results"):
        Added.apply(a.clone().view_as(a), b, False)
    c, d = Added.apply(a.clone(), b, False)
    (c + d).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    a.grad = None
    base = a.clone()
    Added.apply(base.view_as(base), b, True)
    (base * 3).sum().backward()
    assert a.grad.tolist() == [3.0, 3.0]
    with tg.no_grad():
        Added.apply(a.clone().view_as(a), b, False)


def test_out_takes_no_tangent():
    with forward_ad.dual_level():
        x = forward_ad.make_dual(tg.rand(2), tg.rand(2))
        y = tg.rand(2)
        for arguments, out in (((y, y), x), ((x, y), y)):
            with pytest.raises(RuntimeError, match="forward mode"):
                tg.add(*arguments, out=out)
        before = y.clone()
        tg.add(y, y, out=y)
        assert tg.equal(y, before * 2)


def test_detach_in_place_takes_the_tangent_away():
    foo, bar = tg.rand(2, requires_grad=True), tg.rand(2, requires_grad=True)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(foo, bar).clone()
        view = x.view(2, 1)
        x.detach_()
        for y in (x, x * 2, view * 2):
            tangent = forward_ad.unpack_dual(y).tangent
            assert tangent is None or not tangent.any()
            assert tangent is None or not tangent.requires_grad
        assert not forward_ad.unpack_dual(x * 2).primal.requires_grad
        x.mul_(forward_ad.make_dual(tg.ones(2), tg.full((2,), 3.0)))
        tangent = forward_ad.unpack_dual(x).tangent
        assert tg.allclose(tangent, foo * 3)
    _, slope = tg.func.jvp(lambda x: (x * 1).detach_() * x, (tg.full((2,), 3.0),), (tg.ones(2),))
    assert slope.tolist() == [3.0, 3.0]
    x = tg.rand(3, 2, requires_grad=True)
    y = tg.func.vmap(lambda x: (x * 2).detach_() * x)(x)
    y.sum().backward()
    assert tg.equal(x.grad, x.detach() * 2)


def test_functions_without_a_gradient_say_that_it_is_not_there():
    x = tg.rand(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="igamma"):
        tg.igamma(x, x.detach()).sum().backward()
    with forward_ad.dual_level():
        y = forward_ad.make_dual(tg.rand(3), tg.rand(3))
        with pytest.raises(NotImplementedError, match="igamma"):
            tg.igamma(y, y)
