"""What is the same object and what is not, and effects that only C sees."""

from __future__ import annotations

import collections
import csv
import ctypes
import dataclasses
import functools
import io
import mmap
import operator
import os
import pathlib
import pickle
import tempfile
import types
import typing

import numpy as np
from worlds import Config, case, vec

import tapegrad as tg


# -- identity
@case
def tensors_of_an_object_become_one(compile):
    c = Config()
    c.a, c.b = vec(1), vec(2)

    def f(x):
        return x * (2.0 if c.a is c.b else 3.0)

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.b = c.a
        if i == 7:
            c.b = vec(2)
        yield g(vec())


@case
def object_returned_is_the_one_of_now(compile):
    c = Config(Config(2.0))

    def f(x):
        return x * c.rate.rate, c.rate

    g = compile(f)
    for i in range(9):
        if i > 3:
            c.rate = Config(2.0)
        y, o = g(vec(i))
        yield y, o is c.rate


@case
def list_returned_is_the_one_of_now(compile):
    c = Config([1.0, 2.0])

    def f(x):
        return x * c.rate[0], c.rate

    g = compile(f)
    for i in range(9):
        if i > 3:
            c.rate = [1.0, 2.0]
        y, o = g(vec(i))
        o.append(i)
        yield y, o is c.rate
        o.pop()


@case
def dataclass_argument_returned(compile):
    @dataclasses.dataclass
    class B:
        x: typing.Any
        k: int = 1

    def f(b):
        return b, b.x * 2

    g = compile(f)
    for i in range(9):
        b = B(vec(i))
        r, y = g(b)
        yield r is b, r.x, y


@case
def dataclass_argument_stored(compile):
    @dataclasses.dataclass
    class B:
        x: typing.Any
        k: int = 1

    c = Config(None)

    def f(b):
        c.rate = b
        return b.x * 2

    g = compile(f)
    for i in range(9):
        b = B(vec(i))
        yield g(b), c.rate is b, c.rate.x


@case
def record_argument_stored_in_a_list(compile):
    class B:
        def __init__(self, x):
            self.x = x

    c = Config([])

    def f(b):
        c.rate.append(b)
        return {"b": b}

    g = compile(f)
    for i in range(9):
        b = B(vec(i))
        yield g(b)["b"] is b, c.rate[-1] is b


@case
def tuple_argument_returned(compile):
    def f(t):
        return t, t[0] * 2

    g = compile(f)
    for i in range(9):
        t = (vec(i), 1)
        r, y = g(t)
        yield r is t, y


@case
def namespace_argument_filled(compile):
    def f(b):
        b.y = b.x * 2
        return b

    g = compile(f)
    for i in range(9):
        b = types.SimpleNamespace(x=vec(i))
        yield g(b) is b, b.y


@case
def previous_object_kept(compile):
    c = Config()
    c.cur, c.prev = [vec(0)], None

    def f(x):
        c.prev = c.cur
        c.cur = [x * 2]
        return x

    g = compile(f)
    for i in range(9):
        before = c.cur
        r = g(vec(i))
        yield r, c.prev is before, c.prev, c.cur


@case
def linked_list_of_results(compile):
    c = Config(None)

    def f(x):
        c.rate = (x * 2, c.rate)
        return x

    g = compile(f)
    for i in range(9):
        r = g(vec(i))
        n, h = 0, c.rate
        while h is not None:
            n, h = n + 1, h[1]
        yield r, n


@case
def same_new_list_in_two_places(compile):
    c = Config(None)
    c.b = None

    def f(x):
        made = [x * 2]
        c.rate = made
        c.b = made
        return made

    g = compile(f)
    for i in range(9):
        r = g(vec(i))
        yield r is c.rate, c.rate is c.b, r


@case
def tensor_stored_in_two_places(compile):
    c = Config([])
    c.b = None

    def f(x):
        y = x * 2
        c.rate.append(y)
        c.b = y
        return y

    g = compile(f)
    for i in range(9):
        r = g(vec(i))
        yield r is c.b, c.rate[-1] is c.b


# -- effects that only C sees
@case
def item_of_a_dict_toggled(compile):
    d = {"flag": True, "sign": 1.0, "word": "a"}

    def f(x):
        d["flag"] ^= True
        d["sign"] *= -1.0
        return x * 2

    g = compile(f)
    for _i in range(10):
        yield g(vec()), dict(d)


@case
def item_of_a_list_toggled(compile):
    c = Config([1, 1.0])

    def f(x):
        c.rate[0] *= -1
        c.rate[1] *= -1.0
        return x * 2

    g = compile(f)
    for _i in range(10):
        yield g(vec()), list(c.rate)


@case
def last_item_of_a_list_goes_on(compile):
    c = Config([tg.zeros(4)])

    def f(x):
        c.rate.append(x + c.rate[-1])
        return c.rate[-1]

    g = compile(f)
    for i in range(10):
        yield g(vec(i)), list(c.rate)


@case
def last_item_of_a_local_list_goes_on(compile):
    state = [tg.zeros(4)]

    def f(x):
        state[0] = state[0] * 0.5 + x
        return state[0] * 2

    g = compile(f)
    for i in range(10):
        yield g(vec(i)), list(state)


@case
def attribute_set_by_an_alias_of_setattr(compile):
    c = Config()
    c.last = None
    put = setattr

    def f(x):
        put(c, "la" + "st", x * 2)
        return x

    g = compile(f)
    for i in range(10):
        yield g(vec(i)), c.last


@case
def attribute_set_by_a_partial(compile):
    c = Config()
    c.last = None
    put = functools.partial(setattr, c, "last")

    def f(x):
        put(x * 2)
        return x

    g = compile(f)
    for i in range(10):
        yield g(vec(i)), c.last


@case
def attribute_set_by_object(compile):
    c = Config()
    c.last = None
    put = object.__setattr__

    def f(x):
        put(c, "la" + "st", x * 2)
        return x

    g = compile(f)
    for i in range(10):
        yield g(vec(i)), c.last


def writing(name, make):
    """Register a function that does something outside of Python; `seen` says what came of it."""

    def program(compile):
        with tempfile.TemporaryDirectory() as folder:
            do, seen = make(folder)

            def f(x):
                do()
                return x * 2

            g = compile(f)
            for i in range(7):
                yield g(vec(i)), seen()

    program.__name__ = f"written_by_{name}"
    case(program)


def write_mkdir(folder):
    def do():
        os.makedirs(os.path.join(folder, "a"), exist_ok=True)

    def seen():
        there = os.path.isdir(os.path.join(folder, "a"))
        if there:
            os.rmdir(os.path.join(folder, "a"))
        return there

    return do, seen


writing("makedirs", write_mkdir)


def write_tofile(folder):
    p = os.path.join(folder, "a")
    a = np.ones(3)

    def seen():
        there = os.path.exists(p)
        if there:
            os.remove(p)
        return there

    return (lambda: a.tofile(p)), seen


writing("tofile", write_tofile)


def write_touch(folder):
    p = pathlib.Path(folder) / "a"

    def seen():
        there = p.exists()
        p.unlink(missing_ok=True)
        return there

    return (lambda: p.touch()), seen


writing("touch", write_touch)


def write_path(folder):
    p = pathlib.Path(folder) / "a"

    def seen():
        there = p.exists()
        p.unlink(missing_ok=True)
        return there

    return (lambda: p.write_text("a")), seen


writing("write_text", write_path)


def write_os(folder):
    r, w = os.pipe()
    os.set_blocking(r, False)

    def seen():
        try:
            return os.read(r, 10)
        except BlockingIOError:
            return b""

    return (lambda: os.write(w, b"a")), seen


writing("os_write", write_os)


def write_csv(folder):
    b = io.StringIO()
    w = csv.writer(b)
    return (lambda: w.writerow([1])), b.getvalue


writing("csv_writer", write_csv)


def write_pickle(folder):
    b = io.BytesIO()
    return (lambda: pickle.dump(1, b)), b.getvalue


writing("pickle_dump", write_pickle)


def write_mmap(folder):
    m = mmap.mmap(-1, 4)

    def do():
        m[0] = (m[0] + 1) % 250

    return do, (lambda: m[0])


writing("mmap", write_mmap)


def write_text_io(folder):
    b = io.StringIO()
    return (lambda: b.write("a")), b.getvalue


writing("text", write_text_io)


def write_deque(folder):
    b = collections.deque()
    put = b.append
    return (lambda: put(1)), (lambda: len(b))


writing("bound_append", write_deque)


def write_map(folder):
    b = []
    return (lambda: list(map(b.append, [1]))), (lambda: len(b))


writing("map_of_append", write_map)


def write_setitem(folder):
    b = {"n": 0}
    return (lambda: operator.setitem(b, "n", 5)), (lambda: (b["n"], b.update(n=0))[0])


writing("setitem", write_setitem)


def write_callback(folder):
    b = []
    kept = ctypes.CFUNCTYPE(None)(lambda: b.append(1))
    return (lambda: kept()), (lambda: len(b))


writing("callback_of_c", write_callback)


def write_send(folder):
    b = []

    def gen():
        while True:
            b.append((yield))

    it = gen()
    next(it)
    return (lambda: it.send(1)), (lambda: len(b))


writing("generator", write_send)
