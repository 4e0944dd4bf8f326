"""Objects that lie about themselves, templates, observers."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import string
import typing
import weakref

import numpy as np
from worlds import TURNS, Config, attempt, case, vec, with_rates


@case
def getattribute_with_effects_is_not_called_by_looking(compile):
    class A:
        n = 0

        def __getattribute__(self, name):
            A.n += 1
            return object.__getattribute__(self, name)

    a = A()
    c = Config(a)

    def f(x):
        return x * (2.0 if c.rate is a else 3.0)

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), A.n


@case
def slots_getattr_raises(compile):
    class A:
        __slots__ = ("rate",)

        def __getattr__(self, name):
            raise RuntimeError(name)

    a = A()
    a.rate = 2.0

    def f(x):
        return x * a.rate

    g = compile(f)
    for r in TURNS:
        a.rate = r
        yield g(vec())


@case
def dict_property_raises(compile):
    class A:
        __slots__ = ("rate",)

        @property
        def __dict__(self):
            raise ValueError("no")

    a = A()
    a.rate = 2.0

    def f(x):
        return x * a.rate

    g = compile(f)
    for r in TURNS:
        a.rate = r
        yield g(vec())


@case
def class_property_lies(compile):
    class A:
        def __init__(self):
            self.rate = 2.0

        @property
        def __class__(self):
            return dict

    a = A()

    def f(x):
        return x * a.rate

    g = compile(f)
    for r in TURNS:
        a.rate = r
        yield attempt(g, vec())


@case
def len_raises(compile):
    class L(list):
        rate = 2.0

        def __len__(self):
            raise ValueError("no")

        def __iter__(self):
            raise ValueError("no")

    a = L([1])

    def f(x):
        return x * a.rate

    g = compile(f)
    for r in TURNS:
        a.rate = r
        yield attempt(g, vec())


@case
def eq_raises(compile):
    class A(float):
        def __eq__(self, o):
            raise ValueError("no")

        __hash__ = float.__hash__

    c = Config(A(2.0))

    def f(x):
        return x * float(c.rate)

    g = compile(f)
    for r in TURNS:
        c.rate = A(r)
        yield attempt(g, vec())


@case
def eq_lies(compile):
    class A(int):
        def __eq__(self, o):
            return True

        __hash__ = int.__hash__

    c = Config(A(2))

    def f(x):
        return x * int(c.rate)

    g = compile(f)
    for r in TURNS:
        c.rate = A(r)
        yield attempt(g, vec())


@case
def repr_of_a_float_lies(compile):
    class A(float):
        def __repr__(self):
            return "A"

    c = Config(A(2))

    def f(x):
        return x * float(c.rate)

    g = compile(f)
    for r in TURNS:
        c.rate = A(r)
        yield attempt(g, vec())


@case
def repr_of_a_float_argument_lies(compile):
    class A(float):
        def __repr__(self):
            return "A"

    def f(x, r):
        return x * float(r)

    g = compile(f)
    for r in TURNS:
        yield attempt(g, vec(), A(0.0 if r == 2 else -0.0))


@case
def numbers_in_a_range_of_kinds(compile):
    c = Config()

    def f(x):
        return x * c.rate

    g = compile(f)
    for v in (2, 2, 2, 2.0, True, np.float32(2), np.int64(2), np.bool_(True), np.float64(2), 2):
        c.rate = v
        yield g(vec())


@case
def nan_objects(compile):
    c = Config()

    def f(x):
        return x * (1.0 if c.rate != c.rate else 2.0)

    g = compile(f)
    for v in (
        float("nan"),
        float("nan"),
        float("nan"),
        1.0,
        float("nan"),
        float("nan"),
        -float("nan"),
    ):
        c.rate = v
        yield g(vec())


@case
def slices_with_numbers_of_kinds(compile):
    c = Config()

    def f(x):
        return x[c.rate] * 1

    g = compile(f)
    for v in (
        slice(0, 2),
        slice(0, 2),
        slice(0, 2),
        slice(False, 2),
        slice(0, 3),
        slice(0, 2),
        range(2),
        range(2),
        range(0, 2, 1),
    ):
        c.rate = v
        yield attempt(g, vec())


@case
def text_template(compile):

    c = Config()

    def f(x):
        return x * float(string.Template("$rate").substitute(vars(c)))

    yield from with_rates(compile(f), c)


@case
def total_ordering(compile):
    @functools.total_ordering
    class A:
        def __init__(self, r):
            self.r = r

        def __eq__(self, o):
            return self.r == o.r

        def __lt__(self, o):
            return self.r < o.r

    a, b = A(2.0), A(2.5)

    def f(x):
        return x * (2.0 if a >= b else 3.0)

    g = compile(f)
    for r in TURNS:
        a.r = r
        yield g(vec())


@case
def operator_itemgetter(compile):
    d = {"rate": 2.0}
    get = operator.itemgetter("rate")

    def f(x):
        return x * get(d)

    g = compile(f)
    for r in TURNS:
        d["rate"] = r
        yield g(vec())


@case
def sorted_by_a_key(compile):
    items = [Config(2.0), Config(2.5)]

    def f(x):
        return x * (1.0 if sorted(items, key=lambda o: o.rate)[0] is items[0] else 2.0)

    g = compile(f)
    for r in TURNS:
        items[0].rate = r
        yield g(vec())


@case
def dataclass_ordering_and_replace(compile):
    @dataclasses.dataclass(order=True)
    class A:
        r: float

    a = A(2.0)

    def f(x):
        return x * dataclasses.replace(a, r=a.r + 1).r * (2.0 if a < A(2.5) else 1.0)

    g = compile(f)
    for r in TURNS:
        a.r = r
        yield g(vec())


@case
def generic_class(compile):
    T = typing.TypeVar("T")

    class G(typing.Generic[T]):
        rate = 2.0

    alias = G[int]

    def f(x):
        return x * alias.rate

    g = compile(f)
    for r in TURNS:
        G.rate = r
        yield g(vec())


@case
def class_getitem(compile):
    rates = {"a": 2.0}

    class G:
        def __class_getitem__(cls, k):
            return rates[k]

    def f(x):
        return x * G["a"]

    g = compile(f)
    for r in TURNS:
        rates["a"] = r
        yield g(vec())


@case
def set_name_descriptor(compile):
    class D:
        def __set_name__(self, o, n):
            self.key = "_" + n

        def __get__(self, o, t):
            return getattr(o, self.key, 2.0)

        def __set__(self, o, v):
            setattr(o, self.key, v)

    class A:
        rate = D()

    a = A()

    def f(x):
        return x * a.rate

    g = compile(f)
    for r in TURNS:
        a.rate = r
        yield g(vec())


@case
def chain_map(compile):
    low, high = {"rate": 2.0}, {}
    m = collections.ChainMap(high, low)

    def f(x):
        return x * m["rate"]

    g = compile(f)
    for i, r in enumerate(TURNS):
        (low if i % 2 else high)["rate"] = r
        yield g(vec())


@case
def abstract_and_protocol(compile):
    @typing.runtime_checkable
    class HasRate(typing.Protocol):
        def rate(self) -> float: ...

    class A:
        pass

    a = A()

    def f(x):
        return x * (3.0 if isinstance(a, HasRate) else 2.0)

    g = compile(f)
    for i in range(9):
        if i == 4:
            A.rate = lambda self: 1.0
        if i == 7:
            del A.rate
        yield g(vec())


@case
def callbacks_in_a_set_made_by_a_factory(compile):
    def make(c):
        return lambda x: x * c.rate

    a, b = Config(2.0), Config(5.0)
    cb = {make(a)}

    def f(x):
        for fn in cb:
            x = fn(x)
        return x

    g = compile(f)
    for i in range(12):
        if i == 3:
            a.rate = 3.0
        if i == 5:
            cb.clear()
            cb.add(make(b))
        if i == 9:
            b.rate = 7.0
        yield g(vec())


@case
def callbacks_in_a_weak_set(compile):
    class CB:
        def __init__(self, r):
            self.r = r

        def __call__(self, x):
            return x * self.r

    keep = [CB(2.0)]
    cb = weakref.WeakSet(keep)

    def f(x):
        for fn in cb:
            x = fn(x)
        return x

    g = compile(f)
    for i in range(12):
        if i == 4:
            keep[0].r = 3.0
        if i == 8:
            cb.clear()
        yield g(vec())


@case
def observer_pattern(compile):
    class Bus:
        def __init__(self):
            self.subs = collections.defaultdict(set)

        def on(self, k, fn):
            self.subs[k].add(fn)

        def emit(self, k, x):
            for fn in self.subs[k]:
                x = fn(x)
            return x

    bus = Bus()
    Config()

    class L:
        def __init__(self):
            self.rate = 2.0

        def handle(self, x):
            return x * self.rate

    listener = L()
    bus.on("a", listener.handle)

    def f(x):
        return bus.emit("a", x)

    g = compile(f)
    for r in TURNS:
        listener.rate = r
        yield g(vec())
