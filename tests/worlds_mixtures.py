"""Generators, classes and their instances, containers that become others."""

from __future__ import annotations

import asyncio
import collections
import copy

from worlds import TURNS, Config, attempt, case, mat, vec, with_rates

import tapegrad as tg


@case
def generator_made_inside_over_state(compile):
    c = Config([1.0, 2.0])

    def gen():
        yield from c.rate

    def f(x):
        return x * sum(gen())

    g = compile(f)
    for r in TURNS:
        c.rate[0] = r
        yield g(vec())


@case
def async_function_run_inside(compile):
    c = Config()

    async def co(x):
        await asyncio.sleep(0)
        return x * c.rate

    def f(x):
        k = co(x)
        try:
            while True:
                k.send(None)
        except StopIteration as e:
            return e.value

    yield from with_rates(compile(f), c)


@case
def coroutine_function_compiled(compile):
    c = Config()

    async def f(x):
        return x * c.rate

    g = compile(f)
    for r in TURNS:
        c.rate = r
        try:
            g(vec()).send(None)
        except StopIteration as e:
            yield e.value


@case
def star_arguments(compile):
    c = Config()
    c.args, c.kw = [2.0], {"b": 1.0}

    def h(x, a, *more, b=0.0, **rest):
        return x * a + b + len(more) + len(rest)

    def f(x):
        return h(x, *c.args, **c.kw)

    g = compile(f)
    for i in range(10):
        if i == 4:
            c.args.append(1)
        if i == 7:
            c.kw["z"] = 1
        yield g(vec())


@case
def lambda_defaults(compile):
    c = Config()
    fns = [lambda x, c=c, k=k: x * c.rate * k for k in (1, 2)]

    def f(x):
        return sum(fn(x) for fn in fns)

    yield from with_rates(compile(f), c)


@case
def nonlocal_chain(compile):
    def outer():
        n = 0

        def mid():
            def inner():
                nonlocal n
                n += 1
                return n

            return inner

        return mid(), lambda: n

    inner, get = outer()

    def f(x):
        inner()
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), get()


@case
def unpacked_into_attributes(compile):
    c = Config()
    c.a = c.b = None

    def f(x):
        c.a, *c.b = x * 2, x * 3, x * 4
        (c.d, c.e) = 1, x
        return x

    g = compile(f)
    for i in range(9):
        if i in (5, 7):
            c.a = c.b = None
            c.d = 5
        yield g(vec(i)), c.a, c.b, c.d, c.e


@case
def augmented_item_of_an_item(compile):
    c = Config()
    c.d = {"a": {"n": 0, "l": []}}

    def f(x):
        c.d["a"]["n"] += 1
        c.d["a"]["l"] += [x * 2]
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.d


@case
def augmented_tensor_in_a_list(compile):
    c = Config()
    c.l = [tg.zeros(4), 0]

    def f(x):
        c.l[0] += x
        c.l[1] += 1
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.l


@case
def counted_float(compile):
    c = Config()
    c.t = 0.0

    def f(x):
        c.t += 0.5
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), c.t


@case
def counted_by_a_setting(compile):
    c = Config(1)
    c.n = 0

    def f(x):
        c.n += c.rate
        return x

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.rate = int(r)
        yield g(vec(i)), c.n


@case
def counted_by_the_batch(compile):
    c = Config(1)
    c.n = 0

    def f(x):
        c.n += len(x)
        return x * 2

    g = compile(f)
    for i in range(9):
        yield g(mat(i, 3 + (i > 5))), c.n


@case
def counter_of_a_class_and_its_instance(compile):
    class A:
        n = 0

    a = A()

    def f(x):
        a.n += 1
        return x

    g = compile(f)
    for i in range(9):
        if i == 5:
            del a.n
        if i == 7:
            A.n = 100
            del a.n
        yield g(vec(i)), a.n, A.n


@case
def counter_in_slots(compile):
    class A:
        __slots__ = ("n",)

    a = A()
    a.n = 0

    def f(x):
        a.n += 1
        return x

    g = compile(f)
    for i in range(9):
        if i == 5:
            a.n = 50
        yield g(vec(i)), a.n


@case
def counter_that_is_a_bool(compile):
    c = Config(False)

    def f(x):
        c.rate += 1
        return x

    g = compile(f)
    for i in range(9):
        if i == 5:
            c.rate = True
        yield g(vec(i)), c.rate, type(c.rate).__name__


@case
def counter_becomes_a_float(compile):
    c = Config(0)

    def f(x):
        c.rate += 1
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.rate = 0.5
        if i == 8:
            c.rate = "a"
        if i == 10:
            c.rate = 3
        yield attempt(g, vec(i)), c.rate


@case
def counter_deleted_outside(compile):
    c = Config(0)

    def f(x):
        c.rate += 1
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            del c.rate
        if i == 8:
            c.rate = 1
        yield attempt(g, vec(i)), getattr(c, "rate", None)


@case
def list_collected_replaced_by_none(compile):
    c = Config()
    c.l = []

    def f(x):
        c.l.append(x * 2)
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.l = None
        if i == 8:
            c.l = ()
        if i == 10:
            c.l = collections.deque()
        yield attempt(g, vec(i)), c.l


@case
def dict_collected_replaced_by_a_list(compile):
    c = Config()
    c.d = {}

    def f(x):
        c.d["a"] = x * 2
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.d = []
        if i == 8:
            c.d = {}
        yield attempt(g, vec(i)), c.d


@case
def collected_container_replaced(compile):
    c = Config()
    c.l = []
    old = c.l

    def f(x):
        c.l.append(x * 2)
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.l = [1]
        if i == 8:
            c.l = old
        yield g(vec(i)), list(c.l), list(old)


@case
def collected_container_of_a_subclass(compile):
    class L(list):
        seen = 0

        def append(self, v):
            L.seen += 1
            super().append(v)

    c = Config()
    c.l = L()

    def f(x):
        c.l.append(x * 2)
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), list(c.l), L.seen


@case
def nested_collected_replaced(compile):
    d = {"a": []}

    def f(x):
        d["a"].append(x * 2)
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            d["a"] = []
        if i == 8:
            d["a"] = collections.deque(maxlen=1)
        if i == 10:
            del d["a"]
        yield attempt(g, vec(i)), copy.copy(d.get("a"))


@case
def deep_nested_collected(compile):
    d = {"a": {"b": {"c": {"d": {"e": {"f": []}}}}}}

    def f(x):
        d["a"]["b"]["c"]["d"]["e"]["f"].append(x * 2)
        return x

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), d


@case
def key_of_collected_changes(compile):
    c = Config("a")
    d = {"a": [], "b": []}

    def f(x):
        k = c.rate
        d[k].append(x * 2)
        return x

    g = compile(f)
    for i in range(12):
        c.rate = "ab"[i // 4 % 2]
        yield g(vec(i)), d


@case
def stored_under_a_key_of_an_argument(compile):
    d = {}

    def f(x, k):
        d[k] = x * 2
        return x

    g = compile(f)
    for i in range(12):
        yield g(vec(i), "ab"[i % 2]), d


@case
def stored_only_if_missing(compile):
    c = Config()

    def f(x):
        if not hasattr(c, "first"):
            c.first = x * 2
        return x * c.first

    g = compile(f)
    for i in range(12):
        if i in (6, 9):
            del c.first
        yield g(vec(i)), c.first


@case
def stored_in_try(compile):
    c = Config()

    def f(x):
        try:
            len(str(c.first.shape))
        except AttributeError:
            c.first = x * 2
        return x * c.first

    g = compile(f)
    for i in range(12):
        if i in (6, 9):
            del c.first
        yield g(vec(i)), c.first


@case
def attribute_deleted_inside(compile):
    c = Config()

    def f(x):
        r = c.tmp
        del c.tmp
        return x * r

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.tmp = r
        yield g(vec(i)), list(c.__dict__)


@case
def item_deleted_inside(compile):
    d = {}

    def f(x):
        r = d.pop("tmp")
        return x * r

    g = compile(f)
    for i, r in enumerate(TURNS):
        d["tmp"] = r
        yield g(vec(i)), list(d)


@case
def global_deleted_inside(compile):
    ns = {}
    exec("def f(x):\n    global r\n    y = x * r\n    del r\n    return y\n", ns)
    g = compile(ns["f"])
    for i, r in enumerate(TURNS):
        ns["r"] = r
        yield g(vec(i)), "r" in ns
