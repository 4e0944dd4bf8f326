"""Each place where a number stands, through each way that leads there."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import enum
import functools
import threading
import types
import weakref

import numpy as np
from worlds import Config, attempt, case, vec

import tapegrad as tg
from tapegrad import nn

# -- generated combinations: a number in some place, changed in some way
PLACES = {
    "attribute": (lambda: Config(2.0), lambda o: o.rate, lambda o, v: setattr(o, "rate", v)),
    "item": (lambda: {"r": 2.0}, lambda o: o["r"], lambda o, v: o.__setitem__("r", v)),
    "list_item": (lambda: [2.0], lambda o: o[0], lambda o, v: o.__setitem__(0, v)),
    "nested": (
        lambda: {"a": [Config({"b": (2.0,)})]},
        lambda o: o["a"][0].rate["b"][0],
        lambda o, v: o["a"][0].rate.__setitem__("b", (v,)),
    ),
    "deque": (
        lambda: collections.deque([2.0]),
        lambda o: o[-1],
        lambda o, v: (o.clear(), o.append(v)),
    ),
    "ordered": (
        lambda: collections.OrderedDict(r=2.0),
        lambda o: o["r"],
        lambda o, v: o.__setitem__("r", v),
    ),
    "array": (lambda: np.array([2.0]), lambda o: float(o[0]), lambda o, v: o.__setitem__(0, v)),
    "namespace": (
        lambda: types.SimpleNamespace(rate=2.0),
        lambda o: o.rate,
        lambda o, v: setattr(o, "rate", v),
    ),
}


def through_argument(compile, place):
    make, read, write = place
    g = compile(lambda x, o: x * read(o))
    o = make()
    return (lambda x: g(x, o)), (lambda v: write(o, v))


def through_fresh_argument(compile, place):
    make, read, write = place
    g = compile(lambda x, o: x * read(o))
    box = [make()]

    def put(v):
        box[0] = make()
        write(box[0], v)

    return (lambda x: g(x, box[0])), put


def through_partial(compile, place):
    make, read, write = place
    o = make()
    return compile(functools.partial(lambda o, x: x * read(o), o)), (lambda v: write(o, v))


def through_default(compile, place):
    make, read, write = place
    o = make()
    return compile(lambda x, o=o: x * read(o)), (lambda v: write(o, v))


def through_generator(compile, place):
    make, read, write = place
    o = make()
    return compile(lambda x: sum(x * v for v in (read(p) for p in [o]))), (lambda v: write(o, v))


def through_module(compile, place):
    make, read, write = place

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.o = make()

        def forward(self, x):
            return x * read(self.o)

    m = M()
    return compile(m), (lambda v: write(m.o, v))


def through_hook(compile, place):
    make, read, write = place
    o = make()
    m = nn.Identity()
    m.register_forward_hook(lambda mod, a, out: out * read(o))
    return compile(m), (lambda v: write(o, v))


def through_weak_reference(compile, place):
    make, read, write = place

    class K:
        pass

    k = K()
    k.o = make()
    r = weakref.ref(k)
    return compile(lambda x, keep=[k]: x * read(r().o)), (lambda v: write(k.o, v))


def through_set(compile, place):
    make, read, write = place

    class K:
        pass

    k = K()
    k.o = make()
    s = {k}
    return compile(lambda x: x * sum(read(e.o) for e in s)), (lambda v: write(k.o, v))


def through_descriptor(compile, place):
    make, read, write = place
    o = make()

    class D:
        def __get__(self, i, t):
            return read(o)

    class K:
        r = D()

    k = K()
    return compile(lambda x: x * k.r), (lambda v: write(o, v))


def through_compiled(compile, place):
    make, read, write = place
    o = make()
    inner = compile(lambda x: x * read(o))
    return compile(lambda x: inner(x) + 0), (lambda v: write(o, v))


def through_thread_local(compile, place):
    make, read, write = place
    t = threading.local()
    t.o = make()
    return compile(lambda x: x * read(t.o)), (lambda v: write(t.o, v))


def through_context(compile, place):
    make, read, write = place
    t = contextvars.ContextVar("t")
    t.set(make())
    return compile(lambda x: x * read(t.get())), (lambda v: write(t.get(), v))


def through_cell(compile, place):
    make, read, write = place

    def outer():
        o = make()

        def get():
            return o

        return get

    get = outer()
    return compile(lambda x: x * read(get())), (lambda v: write(get(), v))


def through_property(compile, place):
    make, read, write = place

    class K:
        def __init__(self):
            self._o = make()

        o = property(lambda self: self._o)

    k = K()
    return compile(lambda x: x * read(k.o)), (lambda v: write(k._o, v))


def through_iter(compile, place):
    make, read, write = place

    class K:
        def __init__(self):
            self.o = make()

        def __iter__(self):
            yield read(self.o)

    k = K()
    return compile(lambda x: x * sum(k)), (lambda v: write(k.o, v))


def through_enum(compile, place):
    make, read, write = place
    E = enum.Enum("E", {"A": [make()]})
    return compile(lambda x: x * read(E.A.value[0])), (lambda v: write(E.A.value[0], v))


def through_lru(compile, place):
    make, read, write = place
    o = make()
    get = functools.lru_cache(lambda: o)
    return compile(lambda x: x * read(get())), (lambda v: write(o, v))


def through_dispatch(compile, place):
    make, read, write = place
    o = make()
    h = functools.singledispatch(lambda x: x)
    h.register(tg.Tensor, lambda x: x * read(o))
    return compile(lambda x: h(x)), (lambda v: write(o, v))


def through_user_dict(compile, place):
    make, read, write = place
    d = collections.UserDict(o=make())
    return compile(lambda x: x * read(d["o"])), (lambda v: write(d["o"], v))


def through_exit_stack(compile, place):
    make, read, write = place
    o = make()

    @contextlib.contextmanager
    def cm():
        yield read(o)

    def f(x):
        with contextlib.ExitStack() as s:
            return x * s.enter_context(cm())

    return compile(f), (lambda v: write(o, v))


def through_exception(compile, place):
    make, read, write = place
    e = ValueError(make())

    def f(x):
        try:
            raise e
        except ValueError as caught:
            return x * read(caught.args[0])

    return compile(f), (lambda v: write(e.args[0], v))


def through_reduce(compile, place):
    make, read, write = place
    o = make()
    return compile(lambda x: functools.reduce(lambda a, b: a * read(b), [o], x)), (
        lambda v: write(o, v)
    )


def through_function_attribute(compile, place):
    make, read, write = place

    def h(x):
        return x * read(h.o)

    h.o = make()
    return compile(h), (lambda v: write(h.o, v))


WAYS = {name[8:]: way for name, way in list(globals().items()) if name.startswith("through_")}


def crossing(way, place):
    def program(compile):
        f, put = WAYS[way](compile, PLACES[place])
        for v in (2.0, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0, 3):
            put(v)
            yield attempt(f, vec())

    program.__name__ = f"{place}_through_{way}"
    case(program)


for way in WAYS:
    for place in ("attribute", "nested", "array"):
        crossing(way, place)
