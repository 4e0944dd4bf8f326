"""Effects on objects of all kinds."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import os
import queue
import threading
import weakref

import numpy as np
from worlds import Config, attempt, case, vec

import tapegrad as tg


@case
def slice_deleted_inside(compile):
    c = Config()
    c.items = [1, 2, 3]

    def f(x):
        del c.items[1:]
        return x * c.items[0]

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.items.extend([4, 5])
        yield g(vec(i)), list(c.items)


@case
def list_cleared_and_filled(compile):
    c = Config()
    c.items = []

    def f(x):
        c.items.clear()
        c.items.append(x * 2)
        return x

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.items.extend([4, 5])
        yield g(vec(i)), list(c.items)


@case
def new_list_in_the_place_of_another(compile):
    c = Config()
    c.items = []
    kept = c.items

    def f(x):
        c.items = []
        c.items.append(x * 2)
        return x

    g = compile(f)
    for i in range(9):
        before = c.items
        r = g(vec(i))
        yield r, list(c.items), c.items is before, list(kept)


@case
def list_swapped_with_another(compile):
    c = Config()
    c.a, c.b = [1], [2]

    def f(x):
        c.a, c.b = c.b, c.a
        return x * c.a[0]

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.a, c.b


@case
def double_buffer_of_tensors(compile):
    c = Config()
    c.front, c.back = vec(1), vec(2)

    def f(x):
        c.front, c.back = c.back, c.front
        c.back.copy_(x * c.front)
        return c.back.sum()

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.front, c.back


@case
def last_two_results(compile):
    c = Config()
    c.a = c.b = vec(1)

    def f(x):
        c.a, c.b = c.b, x * c.a
        return c.a + c.b

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.a, c.b


@case
def attribute_set_by_a_for_loop(compile):
    c = Config()
    c.i = 0

    def f(x):
        for c.i in range(3):
            x = x * (c.i + 1)
        return x

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.i = 9
        yield g(vec(i)), c.i


@case
def attribute_set_by_a_with_statement(compile):
    c = Config()
    c.i = None

    def f(x):
        with contextlib.nullcontext(x * 2) as c.i:
            pass
        return x

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.i = 9
        yield g(vec(i)), c.i


@case
def global_by_except_as(compile):
    ns = {}
    exec(
        "def f(x):\n    global err\n    try:\n        raise ValueError('a')\n"
        "    except ValueError as err:\n        y = x * 2\n    return y\n",
        ns,
    )
    g = compile(ns["f"])
    for i in range(9):
        if i in (5, 7):
            ns["err"] = 3
        yield g(vec(i)), ns.get("err")


@case
def numpy_array_written_through_a_view(compile):
    a = np.zeros(4)
    v = a[1:3]

    def f(x):
        v[0] += 1
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), a.copy()


@case
def numpy_array_written_that_nothing_else_reads(compile):
    c = Config()
    c.hist = np.zeros(4)

    def f(x):
        c.hist[0] = 3.0
        return x * 2

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.hist[:] = 0
        yield g(vec(i)), c.hist.copy()


@case
def bytearray_written(compile):
    b = bytearray(4)

    def f(x):
        b[0] += 1
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), bytes(b)


@case
def event_set_inside(compile):
    e = threading.Event()

    def f(x):
        e.set()
        return x * 2

    g = compile(f)
    for i in range(9):
        e.clear()
        yield g(vec(i)), e.is_set()


@case
def queue_filled_inside(compile):
    e = queue.Queue()

    def f(x):
        e.put(x * 2)
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), e.get_nowait() if e.qsize() else None


@case
def simple_queue_filled_inside(compile):
    e = queue.SimpleQueue()

    def f(x):
        e.put(x * 2)
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), e.get_nowait() if e.qsize() else None


@case
def context_variable_set_inside(compile):
    v = contextvars.ContextVar("attack_inside", default=0)

    def f(x):
        v.set(x * 2)
        return x

    g = compile(f)
    for i in range(9):
        v.set(0)
        yield g(vec(i)), v.get()


@case
def thread_local_set_inside(compile):
    v = threading.local()

    def f(x):
        v.last = x * 2
        return x

    g = compile(f)
    for i in range(9):
        v.__dict__.clear()
        yield g(vec(i)), getattr(v, "last", None)


@case
def environment_set_inside(compile):
    def f(x):
        os.environ["ATTACK_ENV"] = "1"
        return x * 2

    g = compile(f)
    for i in range(9):
        os.environ.pop("ATTACK_ENV", None)
        yield g(vec(i)), os.environ.get("ATTACK_ENV")


@case
def weak_key_dict_written_inside(compile):
    k = Config()
    d = weakref.WeakKeyDictionary()

    def f(x):
        d[k] = x * 2
        return x

    g = compile(f)
    for i in range(9):
        d.clear()
        yield g(vec(i)), d.get(k)


@case
def weak_set_written_inside(compile):
    k = Config()
    d = weakref.WeakSet()

    def f(x):
        d.add(k)
        return x

    g = compile(f)
    for i in range(9):
        d.clear()
        yield g(vec(i)), len(d)


@case
def ctypes_written_inside(compile):
    k = ctypes.c_int(0)

    def f(x):
        k.value += 1
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), k.value


@case
def exception_state_written_inside(compile):
    e = ValueError("a")

    def f(x):
        e.args = (len(e.args) + 1,) * (len(e.args) + 1) if len(e.args) < 3 else ()
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), e.args


@case
def generator_sent_to(compile):
    def gen():
        total = 0
        while True:
            v = yield total
            total += v

    it = gen()
    next(it)

    def f(x):
        return x * it.send(1)

    g = compile(f)
    for i in range(9):
        yield g(vec(i))


@case
def lru_cache_filled_inside(compile):

    @functools.lru_cache
    def rate(k):
        return k * 2.0

    def f(x):
        return x * rate(3)

    g = compile(f)
    for i in range(9):
        if i in (4, 6):
            rate.cache_clear()
        yield g(vec(i)), rate.cache_info().currsize


@case
def cached_property_filled_inside(compile):
    class A:
        @functools.cached_property
        def rate(self):
            return 2.0

    a = A()

    def f(x):
        return x * a.rate

    g = compile(f)
    for i in range(9):
        if i in (4, 6):
            a.__dict__.pop("rate", None)
        yield g(vec(i)), dict(a.__dict__)


@case
def cached_tensor_property(compile):
    class A:
        def __init__(self):
            self.k = 2.0

        @functools.cached_property
        def table(self):
            return tg.ones(4) * self.k

    a = A()

    def f(x):
        return x * a.table

    g = compile(f)
    for i in range(9):
        if i in (4, 6):
            a.__dict__.pop("table", None)
            a.k += 1
        yield g(vec(i)), a.__dict__.get("table")


@case
def lazy_tensor_cache(compile):
    cache = {}

    def table(n):
        if n not in cache:
            cache[n] = tg.arange(n).float()
        return cache[n]

    def f(x):
        return x * table(x.shape[0])

    g = compile(f)
    for i in range(9):
        if i in (4, 6):
            cache.clear()
        yield g(vec(i)), dict(cache)


# -- changes through .data, which do not count ---------------------------------------------------
def through_data(name, forward, replays=False):
    """Register a case: `.data` of a parameter is changed between the forward pass and backward."""

    def program(compile):
        p = tg.nn.Parameter(vec())

        def step(x):
            p.grad = None
            loss = forward(p, x)
            p.data.mul_(0.5)
            loss.backward()
            return p.grad.clone()

        g = compile(step)
        for i in range(5):
            yield g(vec(i)), p

    program.__name__ = f"data_{name}"
    program.__module__ = __name__
    case(program, replays=replays)


through_data("of_a_saved_value", lambda p, x: (p * p * x).sum())
through_data("that_backward_does_not_need", lambda p, x: (p * x).sum(), replays=True)
through_data("in_a_checkpoint", lambda p, x: tg.checkpoint(lambda p: (p * p * x).sum(), p))


@case
def data_of_one_of_several_views(compile):
    p = tg.nn.Parameter(tg.ones(2, 3))

    def step(x):
        p.grad = None
        first, _ = p.unbind(0)
        p.data.mul_(0.5)
        (first * x).sum().backward()
        return p.grad.clone()

    g = compile(step)
    for i in range(5):
        yield g(vec(i)[:3]), p


@case
def data_and_a_change_that_counts(compile):
    p = tg.nn.Parameter(vec())

    def step(x):
        y = p * 1
        loss = (y * y * x).sum()
        y.add_(1)
        p.data.mul_(0.5)
        loss.backward()

    g = compile(step)
    for i in range(5):
        yield attempt(g, vec(i)), p


@case
def data_that_is_only_read(compile):
    """A change of the parameter itself is an error, whatever was read before."""
    p = tg.nn.Parameter(vec())

    def step(x):
        loss = (p * p * x).sum()
        norm = p.data.norm()
        with tg.no_grad():
            p.add_(1)
        loss.backward()
        return norm

    g = compile(step)
    for i in range(5):
        yield attempt(g, vec(i)), p


@case
def data_is_changed_after_the_parameter(compile):
    p = tg.nn.Parameter(vec())

    def step(x):
        loss = (p * p * x).sum()
        with tg.no_grad():
            p.add_(1)
        p.data.mul_(0.5)
        loss.backward()

    g = compile(step)
    for i in range(5):
        yield attempt(g, vec(i)), p
