"""Exceptions and bad data in the midst, rules of the user."""

from __future__ import annotations

import contextlib
import functools

from worlds import TURNS, Config, Training, attempt, batch, case, mat, vec
from worlds_trainings import F, training

import tapegrad as tg
from tapegrad import nn


def step_grad(t, x, y):
    loss = F.cross_entropy(t.model(x), y)
    grads = (
        tg.grad(loss, list(t.model.parameters()))
        if not hasattr(tg, "autograd")
        else tg.autograd.grad(loss, list(t.model.parameters()))
    )
    with tg.no_grad():
        for p, g in zip(t.model.parameters(), grads, strict=False):
            p -= 0.1 * g
    return loss


training("gradients_by_function", None, step=step_grad)


def step_raise(t, x, y):
    t.n = getattr(t, "n", 0) + 1
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x), y)
    if t.where == "forward":
        raise ValueError("forward")
    loss.backward()
    if t.where == "backward":
        raise ValueError("backward")
    t.optimizer.step()
    if t.where == "step":
        raise KeyboardInterrupt
    return loss


@case
def training_with_exceptions_at_all_stages(compile):
    t = Training(lambda f: f, tg.optim.Adam)
    t.where = ""
    g = compile(functools.partial(step_raise, t))
    for i in range(16):
        t.where = {4: "forward", 7: "backward", 10: "step"}.get(i, "")
        yield attempt(g, *batch(i)), t.model, t.optimizer, t.n


@case
def training_with_exceptions_at_first(compile):
    t = Training(lambda f: f, tg.optim.Adam)
    t.where = ""
    g = compile(functools.partial(step_raise, t))
    for i in range(12):
        t.where = {0: "forward", 1: "backward", 2: "step", 4: "backward"}.get(i, "")
        yield attempt(g, *batch(i)), t.model, t.optimizer, t.n


@case
def training_with_a_bad_label(compile):
    t = Training(compile, tg.optim.Adam)
    for i in range(12):
        x, y = batch(i)
        if i in (5, 8):
            y[0] = 7
        yield attempt(t.step, x, y), t.model, t.optimizer


@case
def embedding_with_a_bad_index_after_a_write(compile):
    w = mat(0)
    buf = tg.zeros(4)
    c = Config(0)

    def f(i):
        buf.add_(1)
        c.rate += 1
        return F.embedding(i, w) + buf

    g = compile(f)
    for i in range(10):
        yield attempt(g, tg.tensor([0, 9 if i in (5, 7) else 1])), buf, c.rate


@case
def bad_index_in_the_second_of_two_lookups(compile):
    w = mat(0)
    out = tg.zeros(2, 4)

    def f(i, j):
        out.copy_(F.embedding(i, w))
        out.add_(F.embedding(j, w))
        return out.sum()

    g = compile(f)
    for i in range(10):
        yield attempt(g, tg.tensor([0, 1]), tg.tensor([0, 9 if i in (5, 7) else 1])), out


@case
def hook_that_raises(compile):
    w = vec(1, requires_grad=True)
    c = Config(False)

    def hook(g):
        if c.rate:
            raise ValueError("hook")
        return g * 2

    w.register_hook(hook)

    def f(x):
        (x * w).sum().backward()
        return x * 2

    g = compile(f)
    for i in range(10):
        c.rate = i in (4, 7)
        yield attempt(g, vec(i)), w.grad


@case
def recursion_error_inside(compile):
    c = Config(3)

    def deep(x, n):
        return x if n == 0 else deep(x * 1.01, n - 1)

    def f(x):
        return deep(x, c.rate)

    g = compile(f)
    for i in range(9):
        c.rate = 10**6 if i == 4 else 3
        yield attempt(g, vec(i))


@case
def saved_tensors_hooks_around(compile):
    w = vec(1, requires_grad=True)
    packed = []

    def f(x):
        return (x * w * w).sum()

    g = compile(f)
    graph = getattr(tg, "autograd", tg)
    manager = getattr(getattr(graph, "graph", graph), "saved_tensors_hooks", None)
    for i in range(9):
        cm = (
            manager(lambda t: (packed.append(1), t * 1)[1], lambda t: t * 2)
            if manager and i % 3 == 2
            else contextlib.nullcontext()
        )
        with cm:
            y = g(vec(i))
        y.backward()
        yield y, w.grad, len(packed)


@case
def own_function_with_class_state(compile):
    base = tg.autograd.Function if hasattr(tg, "autograd") else tg.Function

    class Scale(base):
        scale = 2.0
        n = 0

        @staticmethod
        def forward(ctx, x):
            Scale.n += 1
            ctx.s = Scale.scale
            return x * ctx.s

        @staticmethod
        def backward(ctx, g):
            return g * ctx.s

    def f(x):
        x = x.detach().requires_grad_()
        y = Scale.apply(x)
        y.sum().backward()
        return y.detach(), x.grad

    g = compile(f)
    for r in TURNS:
        Scale.scale = r
        yield g(vec()), Scale.n


@case
def backward_rule_that_counts_late(compile):
    base = tg.autograd.Function if hasattr(tg, "autograd") else tg.Function
    c = Config(0)

    class Scale(base):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            c.rate += 1
            return g * 2

    def f(x):
        return Scale.apply(x)

    g = compile(f)
    for i in range(9):
        x = vec(requires_grad=True)
        y = g(x)
        if i % 2:
            y.sum().backward()
        yield y, x.grad, c.rate


@case
def backward_outside_after_changes(compile):
    w = vec(1, requires_grad=True)
    c = Config()

    def f(x):
        return (x * w * c.rate).sum()

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.rate = r
        y = g(vec(i))
        c.rate = 9.0
        y.backward()
        yield y, w.grad


@case
def module_hook_that_reads_late(compile):
    m = nn.Linear(4, 4)
    c = Config()
    m.register_full_backward_hook(
        lambda mod, gi, go: tuple(None if g is None else g * c.rate for g in gi)
    )
    f = compile(m)
    for i, r in enumerate(TURNS):
        c.rate = r
        x = vec(i, requires_grad=True)
        f(x).sum().backward()
        yield x.grad, m
