"""Threads and pools, the system, attributes that are made anew."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import datetime
import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import types
import typing

from worlds import TURNS, Config, case, vec, with_rates
from worlds_names import turning

import tapegrad as tg


@case
def tensor_in_a_list_of_tensors(compile):
    keep = [vec(), vec()]

    def f(x):
        return x * (2.0 if any(x is k for k in keep) else 3.0)

    g = compile(f)
    for i in range(9):
        yield g(keep[i % 2] if i % 3 else vec())


@case
def tensor_as_dict_key(compile):
    w = vec(1)
    d = {w: 2.0}

    def f(x):
        return x * d[w]

    g = compile(f)
    for r in TURNS:
        d[w] = r
        yield g(vec())


@case
def tensors_in_a_set(compile):
    c = Config()
    c.ws = {vec(1)}

    def f(x):
        for w in c.ws:
            x = x * w
        return x

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.ws = {vec(2)}
        if i == 7:
            next(iter(c.ws)).mul_(2)
        yield g(vec())


@case
def id_of_an_argument_object(compile):
    table = {}

    def f(x, o):
        return x * table.get(id(o), 1.0)

    g = compile(f)
    os_ = [Config(), Config()]
    table[id(os_[0])] = 2.0
    for i in range(9):
        yield g(vec(), os_[i // 3 % 2])


# ---- threads of others
@case
def computed_in_a_pool(compile):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int).result()

    def f(x):
        return pool.submit(lambda: x * 2).result() + 1

    g = compile(f)
    for i in range(8):
        yield g(vec(i))
    pool.shutdown()


@case
def setting_read_in_a_pool(compile):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int).result()
    c = Config()

    def f(x):
        return x * pool.submit(lambda: c.rate).result()

    g = compile(f)
    yield from with_rates(g, c)
    pool.shutdown()


@case
def map_of_a_pool(compile):
    pool = concurrent.futures.ThreadPoolExecutor(2)
    list(pool.map(abs, range(9)))
    ws = [vec(1), vec(2)]

    def f(x):
        return sum(pool.map(lambda w: x * w, ws))

    g = compile(f)
    for i in range(8):
        yield g(vec(i))
    pool.shutdown()


@case
def thread_started_inside(compile):
    def f(x):
        out = []
        t = threading.Thread(target=lambda: out.append(x * 2))
        t.start()
        t.join()
        return out[0]

    g = compile(f)
    for i in range(8):
        yield g(vec(i))


# ---- the system
def turn_file():
    p = tempfile.mktemp()
    return (lambda x: x * (3.0 if os.path.exists(p) else 2.0)), (
        lambda r: open(p, "w").close() if r == 3.0 else os.path.exists(p) and os.remove(p)
    )


turning("system_file_exists", turn_file)


def turn_rec():
    return (lambda x: x * float(sys.getrecursionlimit())), (
        lambda r: sys.setrecursionlimit(int(r) * 500)
    )


turning("system_recursion_limit", turn_rec)


def turn_gc():
    return (lambda x: x * (3.0 if gc.isenabled() else 2.0)), (
        lambda r: gc.disable() if r == 3.0 else gc.enable()
    )


turning("system_gc_enabled", turn_gc)


def turn_argv():
    return (lambda x: x * len(sys.argv)), (lambda r: setattr(sys, "argv", ["a"] * int(r)))


turning("system_argv", turn_argv)


def turn_umask():
    def read():
        v = os.umask(0)
        os.umask(v)
        return v

    return (lambda x: x * float(read())), (lambda r: os.umask(int(r) * 9))


turning("system_umask", turn_umask)


def turn_log():
    logger = logging.getLogger("attack")
    return (lambda x: x * (3.0 if logger.isEnabledFor(logging.INFO) else 2.0)), (
        lambda r: logger.setLevel(logging.INFO if r == 3.0 else logging.ERROR)
    )


turning("system_logger_level", turn_log)


def turn_gd():
    return (lambda x: x * (3.0 if tg.is_grad_enabled() else 2.0)), (
        lambda r: tg.set_grad_enabled(r == 2.0)
    )


turning("system_grad_enabled", turn_gd)


def turn_active():
    return (lambda x: x * float(threading.active_count())), (lambda r: None)


turning("system_active_threads", turn_active)


def turn_sig():
    return (lambda x: x * (3.0 if signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN else 2.0)), (
        lambda r: signal.signal(signal.SIGUSR1, signal.SIG_IGN if r == 3.0 else signal.SIG_DFL)
    )


turning("system_signal_handler", turn_sig)


@case
def time_decides(compile):
    start = time.monotonic()
    limit = start + 0.3

    def f(x):
        return x * (2.0 if time.monotonic() < limit else 3.0)

    g = compile(f)
    for _i in range(4):
        yield g(vec())
    time.sleep(max(0, limit - time.monotonic()) + 0.01)
    for _i in range(4):
        yield g(vec())


@case
def date_decides(compile):
    limit = datetime.datetime.now() + datetime.timedelta(seconds=0.3)

    def f(x):
        return x * (2.0 if datetime.datetime.now() < limit else 3.0)

    g = compile(f)
    for _i in range(4):
        yield g(vec())
    time.sleep(0.35)
    for _i in range(4):
        yield g(vec())


# ---- effects on objects of other kinds
@case
def attribute_stored_on_a_dict_subclass(compile):
    class D(dict):
        pass

    d = D(a=1)

    def f(x):
        d.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        if i % 2:
            d.__dict__.clear()
        yield g(vec(i)), dict(d), d.__dict__


@case
def attribute_stored_on_a_list_subclass(compile):
    class L(list):
        pass

    d = L([1])

    def f(x):
        d.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        if i % 2:
            d.__dict__.clear()
        yield g(vec(i)), list(d), d.__dict__


@case
def attribute_made_anew_on_a_module(compile):
    m = types.ModuleType("attack_module")

    def f(x):
        m.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        m.__dict__.pop("last", None)
        yield g(vec(i)), getattr(m, "last", None)


@case
def attribute_made_anew_on_a_function(compile):
    def h():
        pass

    def f(x):
        h.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        h.__dict__.pop("last", None)
        yield g(vec(i)), getattr(h, "last", None)


@case
def attribute_made_anew_on_a_class(compile):
    class K:
        pass

    def f(x):
        K.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        if "last" in K.__dict__:
            del K.last
        yield g(vec(i)), getattr(K, "last", None)


@case
def attributes_made_anew_in_order(compile):
    c = Config()

    def f(x):
        c.one = x
        c.two = x * 2
        c.three = x * 3
        c.four = x * 4
        return x

    g = compile(f)
    for i in range(8):
        c.__dict__.clear()
        yield g(vec(i)), list(c.__dict__)


@case
def slot_of_a_frozen_dataclass_written(compile):
    @dataclasses.dataclass(frozen=True, slots=True)
    class F:
        last: typing.Any = None

        def put(self, v):
            object.__setattr__(self, "last", v)

    c = F()

    def f(x):
        c.put(x * 2)
        return x

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.last


@case
def attribute_of_a_frozen_dataclass_written(compile):
    @dataclasses.dataclass(frozen=True)
    class F:
        last: typing.Any = None

    c = F()

    def f(x):
        object.__setattr__(c, "last", x * 2)
        return x

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.last


@case
def slots_with_a_setter_that_counts(compile):
    class F:
        __slots__ = ("last", "n")

        def __init__(self):
            object.__setattr__(self, "n", 0)

        def __setattr__(self, k, v):
            object.__setattr__(self, "n", self.n + 1)
            object.__setattr__(self, k, v)

    c = F()

    def f(x):
        c.last = x * 2
        return x

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.last, c.n


@case
def ordered_dict_moved_to_end(compile):
    od = collections.OrderedDict(a=1, b=2, c=3)

    def f(x):
        od.move_to_end("a")
        return x * 2

    g = compile(f)
    for i in range(9):
        od.move_to_end("b")
        yield g(vec(i)), list(od)


@case
def key_popped_and_put_back(compile):
    d = {"a": 1, "b": 2}

    def f(x):
        d["a"] = d.pop("a")
        return x * 2

    g = compile(f)
    for i in range(9):
        d["b"] = d.pop("b")
        yield g(vec(i)), list(d)


@case
def list_sorted_inside(compile):
    items = [3, 1, 2]

    def f(x):
        items.sort()
        return x * items[0]

    g = compile(f)
    for i in range(9):
        items[:] = [3, 1, 2]
        yield g(vec(i)), list(items)


@case
def list_reversed_inside(compile):
    items = [3, 1, 2]

    def f(x):
        items.reverse()
        return x * items[0]

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), list(items)


@case
def deque_rotated_inside(compile):
    items = collections.deque([3, 1, 2])

    def f(x):
        items.rotate(1)
        return x * items[0]

    g = compile(f)
    for i in range(12):
        yield g(vec(i)), list(items)


@case
def slice_assigned_inside(compile):
    items = [1, 2, 3]

    def f(x):
        items[1:] = [x * 2, x * 3]
        return x * items[0]

    g = compile(f)
    for i in range(9):
        yield g(vec(i)), list(items)
