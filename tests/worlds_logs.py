"""Logs that calls write, classes and properties that count."""

from __future__ import annotations

import collections
import copy
import types
import weakref

from worlds import TURNS, Config, Training, batch, case, vec

import tapegrad as tg
from tapegrad import nn

F = nn.functional


@case
def average_meter(compile):
    class Meter:
        def __init__(self):
            self.sum = self.count = self.avg = 0

        def update(self, v, n=1):
            self.sum = self.sum + v * n
            self.count += n
            self.avg = self.sum / self.count

    t = Training(lambda f: f)
    meter = Meter()

    def f(x, y):
        loss = t.plain_step(x, y)
        meter.update(loss.detach(), len(x))
        return loss

    g = compile(f)
    for i in range(12):
        yield g(*batch(i)), meter.sum, meter.count, meter.avg


def logging_by(name, put):
    """Register a step that keeps its loss in some way."""

    def program(compile):
        c = Config()
        c.log = []
        c.metrics = {}
        c.sums = collections.defaultdict(list)

        def f(x):
            y = (x * 2).sum()
            put(c, y)
            return y

        g = compile(f)
        for i in range(12):
            yield g(vec(i)), c.log, c.metrics, dict(c.sums)

    program.__name__ = f"log_{name}"
    case(program)


def put_alias(c, y):
    log = c.log
    log.append(y)


logging_by("by_an_alias", put_alias)


def put_extend(c, y):
    c.log.extend([y])


logging_by("by_extend", put_extend)


def put_plus(c, y):
    c.log += [y]


logging_by("by_plus", put_plus)


def put_insert(c, y):
    c.log.insert(0, y)


logging_by("by_insert", put_insert)


def put_update(c, y):
    c.metrics.update(loss=y)


logging_by("by_update", put_update)


def put_setdefault(c, y):
    c.metrics.setdefault("loss", []).append(y)


logging_by("by_setdefault", put_setdefault)


def put_default(c, y):
    c.sums["loss"].append(y)


logging_by("by_default_dict", put_default)


def put_named(c, y):
    for name, value in {"a": y, "b": y + 1}.items():
        c.sums[name].append(value)


logging_by("by_names", put_named)


def put_last(c, y):
    c.log[-1:] = [y]


logging_by("by_a_slice", put_last)


def put_method(c, y):
    add = c.log.append
    add(y)


logging_by("by_a_bound_method", put_method)


def put_tuple(c, y):
    c.log.append((len("ab"), y))


logging_by("by_tuples", put_tuple)


def put_dict(c, y):
    c.log.append({"loss": y, "n": 1})


logging_by("by_dicts", put_dict)


def put_merge(c, y):
    c.metrics |= {"loss": y}


logging_by("by_merging", put_merge)


def put_new(c, y):
    c.metrics = {**c.metrics, "loss": y}


logging_by("by_a_new_dict", put_new)


def put_newlist(c, y):
    c.log = [*c.log[-2:], y]


logging_by("by_a_new_list", put_newlist)


def put_sumdict(c, y):
    c.metrics["sum"] = c.metrics.get("sum", 0.0) + y


logging_by("by_sums", put_sumdict)


def put_inplace(c, y):
    if "t" not in c.metrics:
        c.metrics["t"] = tg.zeros(())
    c.metrics["t"] += y


logging_by("by_sums_in_place", put_inplace)


def put_counts(c, y):
    c.metrics["n"] = c.metrics.get("n", 0) + 1


logging_by("by_counts", put_counts)


def put_limited(c, y):
    c.log.append(y)
    if len(c.log) > 3:
        c.log.pop(0)


logging_by("limited", put_limited)


def put_if(c, y):
    if c.log is not None:
        c.log.append(y)


logging_by("if_wanted", put_if)


# -- decorators in classes
@case
def method_compiled_in_a_class_with_instances(compile):
    class A:
        def __init__(self, r):
            self.r = r
            self.n = 0

        @compile
        def step(self, x):
            self.n += 1
            return x * self.r

    objs = [A(2.0), A(3.0), A(4.0)]
    for i in range(15):
        o = objs[i % 3]
        yield o.step(vec(i)), o.n


@case(replays=True)
def method_compiled_in_a_class_with_many_instances(compile):
    class A:
        def __init__(self, r):
            self.r = r
            self.n = 0

        @compile
        def step(self, x):
            self.n += 1
            return x * self.r

    objs = [A(float(i)) for i in range(12)]
    for i in range(60):
        o = objs[i % 12]
        yield o.step(vec(i)), o.n


@case
def instances_that_come_and_go(compile):
    class A:
        def __init__(self, r):
            self.r = r

        @compile
        def step(self, x):
            return x * self.r

    for i in range(15):
        yield A(2.0 if i % 5 else 3.0).step(vec(i))


@case
def class_method_compiled(compile):
    class A:
        rate = 2.0

    class B(A):
        rate = 4.0

    def step(cls, x):
        return x * cls.rate

    A.step = classmethod(compile(step))
    for r in TURNS:
        A.rate = r
        yield A.step(vec()), B.step(vec())


@case
def static_method_compiled(compile):
    class A:
        rate = 2.0

    A.step = staticmethod(compile(lambda x: x * A.rate))
    for r in TURNS:
        A.rate = r
        yield A.step(vec()), A().step(vec())


@case
def property_of_a_compiled_method(compile):
    class A:
        def __init__(self):
            self.r = 2.0

        p = property(compile(lambda self: tg.ones(3) * self.r))

    a = A()
    for r in TURNS:
        a.r = r
        yield a.p


@case
def compiled_function_copied(compile):
    c = Config()

    def f(x):
        return x * c.rate

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.rate = r
        if i == 3:
            g = copy.copy(g)
        if i == 5:
            g = copy.deepcopy(g) if not isinstance(g, types.FunctionType) else g
        yield g(vec())


@case
def metaclass_that_counts(compile):
    class Meta(type):
        made = 0

        def __call__(cls, *a):
            Meta.made += 1
            return super().__call__(*a)

    class A(metaclass=Meta):
        def __init__(self, v):
            self.v = v

    def f(x):
        return A(x * 2).v

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), Meta.made


@case
def subclass_made_inside(compile):
    seen = []

    class Base:
        def __init_subclass__(cls):
            seen.append(cls.__name__)

    def f(x):
        class Sub(Base):
            rate = 2.0

        return x * Sub.rate

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), len(seen)


@case
def del_method_counts(compile):
    class A:
        gone = 0

        def __init__(self, v):
            self.v = v

        def __del__(self):
            A.gone += 1

    def f(x):
        return A(x * 2).v

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), A.gone


@case
def finalizer_counts(compile):
    class A:
        pass

    gone = []

    def f(x):
        a = A()
        weakref.finalize(a, gone.append, 1)
        return x * 2

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), len(gone)


@case
def eq_that_counts(compile):
    class K:
        n = 0

        def __eq__(self, o):
            K.n += 1
            return True

        def __hash__(self):
            return 1

    k = K()
    d = {k: 2.0}

    def f(x):
        return x * d[K()]

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), K.n


@case
def getattr_that_counts(compile):
    class A:
        n = 0

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            A.n += 1
            return 2.0

    a = A()

    def f(x):
        return x * a.rate

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), A.n


@case
def property_that_counts(compile):
    class A:
        def __init__(self):
            self.n = 0

        @property
        def rate(self):
            self.n += 1
            return 2.0

    a = A()

    def f(x):
        return x * a.rate

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), a.n


@case
def property_with_effects_is_not_called_by_looking(compile):
    class A:
        n = 0

        @property
        def rate(self):
            A.n += 1
            return 2.0

    a = A()
    c = Config(a)

    def f(x):
        return x * (2.0 if c.rate is a else 3.0)

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), A.n
