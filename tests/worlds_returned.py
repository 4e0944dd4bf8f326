"""Objects that are made in a call and changed later, and arguments that are stored."""

from __future__ import annotations

from worlds import Config, case, vec

import tapegrad as tg


@case
def result_is_an_object_made_inside_and_changed(compile):
    def f(x):
        return x * 2, Config([1]), bytearray(b"ab")

    g = compile(f)
    for i in range(8):
        y, a, b = g(vec(i))
        yield y, list(a.rate), bytes(b)
        a.rate.append(5)
        b.append(6)


@case
def constant_tensor_made_inside_and_changed(compile):
    def f(x):
        return x * 2, tg.ones(3), tg.tensor([1.0, 2.0])

    g = compile(f)
    for i in range(8):
        y, a, b = g(vec(i))
        yield y, a.clone(), b.clone()
        a += 1
        b.mul_(3)


@case
def result_is_the_same_twice_and_written(compile):
    def f(x):
        y = x * 2
        return y, y

    g = compile(f)
    for i in range(8):
        a, b = g(vec(i))
        a.add_(1)
        yield a is b, a, b


@case
def result_and_detached_result_written(compile):
    def f(x):
        y = x * 2
        return y, y.detach(), y.view(2, 2), y[1:]

    g = compile(f)
    for i in range(8):
        a, b, c, d = g(vec(i))
        with tg.no_grad():
            a.add_(1)
        yield a, b, c, d


@case
def view_of_a_constant_returned(compile):
    def f(x):
        y = tg.zeros(4)
        return x * 2, y[:2], y[1:]

    g = compile(f)
    for i in range(8):
        a, b, c = g(vec(i))
        b.add_(1)
        yield a, b, c


@case
def stored_and_returned_are_one(compile):
    c = Config()
    c.last = None

    def f(x):
        c.last = x * 2
        return c.last

    g = compile(f)
    for i in range(8):
        r = g(vec(i))
        r.add_(1)
        yield r is c.last, c.last


@case
def stored_argument(compile):
    c = Config()
    c.last = None

    def f(x):
        c.last = x
        return x * 2

    g = compile(f)
    for i in range(8):
        x = vec(i)
        r = g(x)
        x.add_(1)
        yield r, c.last is x, c.last


@case
def stored_view_of_an_argument(compile):
    c = Config()
    c.last = None

    def f(x):
        c.last = x[1:]
        return x * 2

    g = compile(f)
    for i in range(8):
        x = vec(i)
        r = g(x)
        x.add_(1)
        yield r, c.last


@case
def stored_container_is_returned_too(compile):
    c = Config()
    c.last = None

    def f(x):
        c.last = {"h": x * 2}
        return c.last

    g = compile(f)
    for i in range(8):
        r = g(vec(i))
        r["k"] = 1
        yield r is c.last, c.last
