"""Objects with hidden state: queues, descriptors, caches, iterators."""

from __future__ import annotations

import _queue
import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import itertools
import queue
import re
import types
import weakref

import numpy as np
from worlds import Config, case, vec
from worlds_names import turning


def view_only():
    d = {"a": 2.0}
    v = d.values()
    return (lambda x: x * sum(v)), (lambda r: d.__setitem__("a", r))


turning("object_values_view_alone", view_only)


def keys_only():
    d = {"a": 2.0}
    v = d.keys()
    return (lambda x: x * len(v)), (lambda r: d.__setitem__(r, r))


turning("object_keys_view_alone", keys_only)


def proxy_only():
    d = {"a": 2.0}
    v = types.MappingProxyType(d)
    return (lambda x: x * v["a"]), (lambda r: d.__setitem__("a", r))


turning("object_mapping_proxy_alone", proxy_only)


def cell():
    c = types.CellType(2.0)
    return (lambda x: x * c.cell_contents), (lambda r: setattr(c, "cell_contents", r))


turning("object_cell", cell)


def ctx():
    v = contextvars.ContextVar("attack")
    c = contextvars.copy_context()
    c.run(v.set, 2.0)
    return (lambda x: x * c[v]), (lambda r: c.run(v.set, r))


turning("object_context", ctx)


def simplequeue():
    q = _queue.SimpleQueue()
    return (lambda x: x * (q.qsize() + 1.0)), (lambda r: q.put(1) if r == 3.0 else None)


turning("object_simple_queue", simplequeue)


def pyqueue():
    q = queue.Queue()
    return (lambda x: x * (q.qsize() + 1.0)), (lambda r: q.put(1) if r == 3.0 else None)


turning("object_queue", pyqueue)


def fut():
    q = [concurrent.futures.Future()]
    return (lambda x: x * (3.0 if q[0].done() else 2.0)), (
        lambda r: q[0].set_result(1) if r == 3.0 and not q[0].done() else None
    )


turning("object_future", fut)


def afut():
    loop = asyncio.new_event_loop()
    q = loop.create_future()
    loop.close()
    return (lambda x: x * (3.0 if q.done() else 2.0)), (
        lambda r: q.set_result(1) if r == 3.0 and not q.done() else None
    )


turning("object_asyncio_future", afut)


def userdict():
    q = collections.UserDict(rate=2.0)
    return (lambda x: x * q["rate"]), (lambda r: q.__setitem__("rate", r))


turning("object_userdict", userdict)


def userlist():
    q = collections.UserList([2.0])
    return (lambda x: x * q[0]), (lambda r: q.__setitem__(0, r))


turning("object_userlist", userlist)


def userstr():
    q = collections.UserString("2.0")
    return (lambda x: x * float(q)), (lambda r: setattr(q, "data", str(r)))


turning("object_userstring", userstr)


def wm():
    c = Config()

    class K:
        def get(self):
            return c.rate

    k = K()
    m = weakref.WeakMethod(k.get)
    return (lambda x, k=k: x * m()()), (lambda r: setattr(c, "rate", r))


turning("object_weak_method", wm)


def sup():
    class A:
        rate = 2.0

    class B(A):
        rate = 5.0

        def make(self):
            return super()

    s = B().make()
    return (lambda x: x * s.rate), (lambda r: setattr(A, "rate", r))


turning("object_super_kept", sup)


def excargs():
    e = ValueError("2.0")
    return (lambda x: x * float(e.args[0])), (lambda r: setattr(e, "args", (str(r),)))


turning("object_exception_args", excargs)


def excattr():
    e = OSError(2, "a")
    return (lambda x: x * e.errno), (lambda r: setattr(e, "errno", int(r)))


turning("object_exception_errno", excattr)


def exccause():
    e = ValueError("2.0")
    return (lambda x: x * (2.0 if e.__cause__ is None else 3.0)), (
        lambda r: setattr(e, "__cause__", None if r == 2.0 else ValueError())
    )


turning("object_exception_cause", exccause)


def deq():
    q = collections.deque([2.0, 3.0], maxlen=2)
    return (lambda x: x * q[0]), (lambda r: q.rotate(1) if q[0] != r else None)


turning("object_deque_rotated", deq)


def partialobj():
    p = functools.partial(lambda x, rate: x * rate, rate=2.0)
    return (lambda x: p(x)), (lambda r: p.keywords.__setitem__("rate", r))


turning("object_partial_keywords", partialobj)


def partialstate():
    p = functools.partial(lambda x, rate: x * rate, rate=2.0)
    return (lambda x: p(x)), (lambda r: p.__setstate__((p.func, (), {"rate": r}, {})))


turning("object_partial_setstate", partialstate)


def propset():
    class A:
        _r = 2.0

        @property
        def rate(self):
            return self._r

        @rate.setter
        def rate(self, v):
            self._r = v

    a = A()
    return (lambda x: x * a.rate), (lambda r: setattr(a, "rate", r))


turning("object_property_setter", propset)


def descr():
    class D:
        def __init__(self):
            self.values = weakref.WeakKeyDictionary()

        def __get__(self, o, t):
            return self.values.get(o, 2.0)

        def __set__(self, o, v):
            self.values[o] = v

    class A:
        rate = D()

    a = A()
    return (lambda x: x * a.rate), (lambda r: setattr(a, "rate", r))


turning("object_descriptor_weak_dict", descr)


def descrid():
    class D:
        def __init__(self):
            self.values = {}

        def __get__(self, o, t):
            return self.values.get(id(o), 2.0)

        def __set__(self, o, v):
            self.values[id(o)] = v

    class A:
        rate = D()

    a = A()
    return (lambda x: x * a.rate), (lambda r: setattr(a, "rate", r))


turning("object_descriptor_by_id", descrid)


def cachedp():
    class A:
        base = 2.0

        @functools.cached_property
        def rate(self):
            return self.base * 1

    a = A()

    def put(r):
        a.base = r
        a.__dict__.pop("rate", None)

    return (lambda x: x * a.rate), put


turning("object_cached_property_dropped", cachedp)


def lru():
    @functools.lru_cache
    def rate(k):
        return float(k)

    return (lambda x: x * (1.0 + rate.cache_info().currsize)), (
        lambda r: rate(r) if r == 3.0 else rate.cache_clear()
    )


turning("object_cache_info", lru)


def lru2():

    class A:
        def __init__(self):
            self.r = 2.0

        def rate(self):
            return self.r

        rate = functools.lru_cache(rate)

    a = A()

    def put(r):
        a.r = r
        A.rate.cache_clear()

    return (lambda x: x * a.rate()), put


turning("object_cached_method_cleared", lru2)

# -- iterators -----------------------------------------------------------------------------------
for nm, mk in {
    "reversed": lambda: reversed([3.0] * 4 + [2.0] * 4),
    "islice": lambda: itertools.islice([2.0] * 4 + [3.0] * 4, 8),
    "repeat": lambda: itertools.repeat(2.0, 5),
    "takewhile": lambda: itertools.takewhile(lambda v: v < 2.5, [2.0] * 4 + [3.0] * 4),
    "starmap": lambda: itertools.starmap(max, [(2.0, 1.0)] * 4 + [(3.0, 1.0)] * 4),
    "accumulate": lambda: itertools.accumulate([2.0] * 4 + [3.0] * 4, max),
    "tee": lambda: itertools.tee([2.0] * 4 + [3.0] * 4)[0],
    "product": lambda: itertools.product(range(4), [2.0]),
    "compress": lambda: itertools.compress([2.0] * 4 + [3.0] * 4, [1] * 8),
    "dropwhile": lambda: itertools.dropwhile(lambda v: v < 1, [2.0] * 4 + [3.0] * 4),
    "zip_longest": lambda: itertools.zip_longest([2.0] * 4 + [3.0] * 4),
    "pairwise": lambda: itertools.pairwise([2.0] * 4 + [3.0] * 4),
    "combinations": lambda: itertools.combinations([2.0, 3.0, 4.0, 5.0], 2),
    "groupby": lambda: itertools.groupby([2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]),
    "filterfalse": lambda: itertools.filterfalse(None, [0, 0, 0, 0.0]),
    "ndenumerate": lambda: np.ndenumerate(np.array([2.0] * 4 + [3.0] * 4)),
    "scan": lambda: re.finditer("a", "aaaaa"),
    "flatiter": lambda: np.array([2.0] * 4 + [3.0] * 4).flat,
    "itermethod": lambda: iter({"a": 1, "b": 2, "c": 3, "d": 4}.values()),
    "bytes": lambda: iter(b"\x02\x02\x02\x03"),
    "set": lambda: iter({2.0, 3.0, 5.0}),
}.items():

    def prog(compile, mk=mk):
        it = mk()

        def f(x):
            v = next(it, 9.0)
            while isinstance(v, tuple):
                v = v[-1]
            return x * (v if isinstance(v, (int, float)) else 2.0)

        g = compile(f)
        for _i in range(9):
            yield g(vec())

    prog.__name__ = "iterator_that_is_a_" + nm
    case(prog)
