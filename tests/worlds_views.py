"""Views in parameters and results, modes, functions that are replaced."""

from __future__ import annotations

import contextlib

import numpy as np
from worlds import TURNS, Config, attempt, case, mat, vec

import tapegrad as tg
from tapegrad import nn


@case
def parameter_data_is_a_view(compile):
    flat = tg.arange(20).float()
    m = nn.Linear(4, 4)
    f = compile(lambda x: m(x))
    for i in range(9):
        if i == 4:
            m.weight.data = flat[:16].view(4, 4)
            m.bias.data = flat[16:]
        if i > 5:
            flat.add_(1)
        yield f(vec(i))


@case
def parameter_data_is_transposed(compile):
    m = nn.Linear(4, 4)
    f = compile(lambda x: m(x))
    for i in range(9):
        if i == 4:
            m.weight.data = m.weight.data.t()
        yield f(vec(i))


@case
def argument_of_zero_size(compile):
    def f(x):
        return x.sum() + x.numel()

    g = compile(f)
    for i in range(9):
        yield g(tg.zeros(0 if i % 3 == 2 else 4))


@case
def argument_with_zero_strides_written(compile):
    def f(x):
        return attempt(x.add_, 1)

    g = compile(f)
    for i in range(9):
        x = tg.ones(1).expand(4) if i % 3 == 2 else tg.ones(4)
        r = attempt(g, x)
        yield r, x


@case
def argument_that_requires_grad_is_a_view(compile):
    w = mat(1, requires_grad=True)

    def f(x):
        return (x * x).sum()

    g = compile(f)
    for i in range(9):
        row = w[i % 3]
        g(row).backward()
        yield w.grad


@case
def leaf_and_its_view_as_arguments(compile):
    def f(a, b):
        return (a.sum() * b).sum()

    g = compile(f)
    for i in range(9):
        w = vec(i, requires_grad=True)
        g(w, w[1:] if i % 3 else w.detach()[1:]).backward()
        yield w.grad


@case
def result_is_a_view_of_an_argument_written_later(compile):
    def f(x):
        return x[1:], x.view(2, 2), x.detach()

    g = compile(f)
    for i in range(9):
        x = vec(i)
        a, b, c = g(x)
        a.add_(1)
        c.mul_(2)
        yield x, a, b, c


@case
def grad_of_an_argument_accumulates(compile):
    def f(x):
        (x * x).sum().backward()
        return x.grad

    g = compile(f)
    x = vec(0, requires_grad=True)
    for i in range(9):
        if i == 4:
            x.grad = None
        if i == 6:
            x.grad = tg.ones(4)
        if i == 7:
            x = vec(3, requires_grad=True)
        r = g(x)
        yield r, r is x.grad


@case
def grad_kept_by_the_caller_is_not_written_again(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        w.grad = None
        (x * w).sum().backward()

    g = compile(f)
    kept = []
    for i in range(9):
        g(vec(i))
        kept.append(w.grad)
        yield list(kept)


@case
def grad_view_kept_by_the_caller(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        w.grad = None
        (x * w).sum().backward()

    g = compile(f)
    kept = []
    for i in range(9):
        g(vec(i))
        kept.append(w.grad[1:] if i % 2 else w.grad.numpy()[1:])
        yield list(kept)


@case
def memory_view_of_a_gradient_kept(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        w.grad = None
        (x * w).sum().backward()

    g = compile(f)
    kept = []
    for i in range(9):
        g(vec(i))
        kept.append(memoryview(w.grad.numpy()))
        yield [m.tolist() for m in kept]


@case
def inference_mode_in_turn(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        return x * w

    g = compile(f)
    mode = getattr(tg, "inference_mode", tg.no_grad)
    for i in range(9):
        with mode() if i % 3 == 2 else contextlib.nullcontext():
            y = g(vec(i))
        yield y, y.requires_grad


@case
def grad_mode_set_inside_by_a_setting(compile):
    w = vec(1, requires_grad=True)
    c = Config(True)

    def f(x):
        with tg.set_grad_enabled(c.rate):
            return x * w

    g = compile(f)
    for i in range(9):
        c.rate = i % 3 != 2
        y = g(vec(i))
        yield y


@case
def gradient_returned_while_it_adds_up(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        (x * w).sum().backward()
        return w.grad

    g = compile(f)
    for i in range(9):
        if i == 4:
            w.grad = None
        if i == 7:
            w.grad = tg.ones(4)
        r = g(vec(i))
        yield r, r is w.grad


@case
def double_backward_through_a_compiled_function(compile):
    def f(x):
        return (x**3).sum()

    g = compile(f)
    for i in range(9):
        x = vec(i, requires_grad=True)
        grad = tg.autograd.grad if hasattr(tg, "autograd") else tg.grad
        (gx,) = grad(g(x), [x], create_graph=True)
        gx.sum().backward()
        yield gx, x.grad


@case
def second_derivative_inside(compile):
    def f(x):
        x = x.detach().requires_grad_()
        (gx,) = tg.autograd.grad((x**3).sum(), [x], create_graph=True)
        (gg,) = tg.autograd.grad(gx.sum(), [x])
        return gg

    g = compile(f)
    for i in range(9):
        yield g(vec(i))


@case
def checkpoint_with_a_setting(compile):
    c = Config()
    m = nn.Linear(4, 4)
    from tapegrad.utils.checkpoint import checkpoint

    def part(x):
        return m(x) * c.rate

    def f(x):
        y = checkpoint(part, x, use_reentrant=False).sum()
        y.backward()
        return y

    g = compile(f)
    for r in TURNS:
        c.rate = r
        m.zero_grad()
        yield g(vec(1, requires_grad=True)), m


@case
def compiled_calls_itself(compile):
    c = Config(2)

    def f(x, n):
        if n == 0:
            return x * c.rate
        return g(x * 2, n - 1)

    g = compile(f)
    for r in TURNS:
        c.rate = r
        yield g(vec(), 2)


@case
def compiled_inner_function_replaced(compile):
    c = Config(2.0)
    inner = [compile(lambda x: x * c.rate)]
    outer = compile(lambda x: inner[0](x) + 1)
    for i in range(12):
        if i == 4:
            c.rate = 3.0
        if i == 7:
            inner[0] = compile(lambda x: x * 10)
        yield outer(vec(i)), inner[0](vec(i))


@case
def keyword_only_and_defaults(compile):
    def f(x, *, a=2.0, b=None):
        return x * a + (0 if b is None else b)

    g = compile(f)
    for i in range(9):
        if i == 4:
            f.__kwdefaults__["a"] = 3.0
        yield g(vec(i)), g(vec(i), b=1.0), g(vec(i), a=4.0)


@case
def numbers_equal_as_keys(compile):
    def f(x, k):
        return x * k / 2

    g = compile(f)
    for k in (1, True, 1.0, 1, True, 1.0, np.float64(1.0), np.int64(1), 0, False, 0.0, -0.0):
        yield g(vec(), k), g(vec().long(), k)


@case
def many_values_in_rotation(compile):
    c = Config()

    def f(x):
        return x * c.rate

    g = compile(f)
    for i in range(40):
        c.rate = float(i % 5)
        yield g(vec(i))


@case(replays=True)
def ten_values_in_rotation(compile):
    c = Config()

    def f(x):
        return x * c.rate

    g = compile(f)
    for i in range(50):
        c.rate = float(i % 10)
        yield g(vec(i))


@case
def many_values_each_a_few_times(compile):
    c = Config()

    def f(x):
        return x * c.rate

    g = compile(f)
    for i in range(120):
        c.rate = float(i // 3)
        yield g(vec(i))
