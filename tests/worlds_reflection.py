"""Names that code computes: reflection, patterns, modules."""

from __future__ import annotations

import builtins
import functools
import importlib
import operator
import sys
import types
import weakref

from worlds import TURNS, Config, case, vec, with_rates
from worlds_names import turning


# -- reflection under other names ---------------------------------------------------------------
def reflect():
    c = Config()
    g = getattr
    names = ["ra", "te"]
    yield "alias_of_getattr", (lambda x: x * g(c, "".join(names))), c
    v = vars
    yield "alias_of_vars", (lambda x: x * v(c)["ra" + "te"]), c
    a = operator.attrgetter
    yield "alias_of_attrgetter", (lambda x: x * a("ra" + "te")(c)), c
    yield "reduce_of_getattr", (lambda x: x * functools.reduce(getattr, ["rate"], c)), c
    yield "map_of_getattr", (lambda x: x * next(map(getattr, [c], ["rate"]))), c
    m = operator.methodcaller("__getattribute__", "ra" + "te")
    yield "methodcaller_outside", (lambda x: x * m(c)), c
    b = builtins.__dict__["getattr"]
    yield "getattr_of_builtins", (lambda x: x * b(c, "ra" + "te")), c
    gg = functools.partial(getattr, c)
    yield "partial_of_getattr", (lambda x: x * gg("ra" + "te")), c
    bound = c.__getattribute__
    yield "bound_getattribute", (lambda x: x * bound("ra" + "te")), c
    p = functools.partial(getattr, c, "ra" + "te")
    yield "partial_of_getattr_complete", (lambda x: x * p()), c
    d = c.__dict__
    yield "dict_of_object_kept", (lambda x: x * d["rate"]), c
    vw = c.__dict__.values()
    yield "values_view_kept", (lambda x: x * sum(vw)), c
    vi = c.__dict__.items()
    yield "items_view_kept", (lambda x: x * dict(vi)["rate"]), c
    px = weakref.proxy(c)
    yield "weak_proxy", (lambda x: x * px.rate), c
    fm = "{0.rate}"
    yield "format_unbound", (lambda x: x * float(str.format(fm, c))), c
    fo = "{0.rate}".format
    yield "format_bound_kept", (lambda x: x * float(fo(c))), c
    yield (
        "sorted_by_attrgetter",
        (
            lambda x: (
                x
                * sorted([c, Config(2.5)], key=a("rate"))[0].rate
                * (2 if sorted([c, Config(2.5)], key=a("rate"))[0] is c else 1)
            )
        ),
        c,
    )
    yield "max_by_key_lambda", (lambda x: x * max([c, Config(2.5)], key=lambda o: o.rate).rate), c


def reflecting(name):
    """Register the function of `reflect` that has this name."""

    def make():
        _, f, config = next(found for found in reflect() if found[0] == name)
        return f, functools.partial(setattr, config, "rate")

    turning(f"reflection_by_{name}", make)


for name, _, _ in reflect():
    reflecting(name)


# -- match statements -----------------------------------------------------------------------------
@case
def match_class_with_keywords(compile):
    c = Config()

    def f(x):
        match c:
            case Config(rate=2.0):
                return x * 2
            case Config(rate=r):
                return x * r * 10

    yield from with_rates(compile(f), c)


@case
def match_class_with_positions(compile):
    class P:
        __match_args__ = ("rate",)

    c = P()

    def f(x):
        match c:
            case P(2.0):
                return x * 2
            case P(r):
                return x * r * 10

    yield from with_rates(compile(f), c)


@case
def match_args_replaced(compile):
    class P:
        __match_args__ = ("a",)

    c = P()
    c.a = 2.0
    c.b = 3.0

    def f(x):
        match c:
            case P(r):
                return x * r

    g = compile(f)
    for i in range(9):
        if i == 4:
            P.__match_args__ = ("b",)
        yield g(vec())


@case
def match_of_a_mapping(compile):
    d = {"rate": 2.0}

    def f(x):
        match d:
            case {"rate": 2.0}:
                return x * 2
            case {"rate": r, **rest}:
                return x * r * 10 + len(rest)

    g = compile(f)
    for r in TURNS:
        d["rate"] = r
        yield g(vec())


# -- modules --------------------------------------------------------------------------------------
def mod(name):
    m = types.ModuleType(name)
    m.rate = 2.0
    sys.modules[name] = m
    return m


def by_import_module():
    m = mod("attack_m1")
    return (lambda x: x * importlib.import_module("attack_m1").rate), (
        lambda r: setattr(m, "rate", r)
    )


turning("module_by_import_module", by_import_module)


def by_dunder_import():
    m = mod("attack_m2")
    return (lambda x: x * __import__("attack_m2").rate), (lambda r: setattr(m, "rate", r))


turning("module_by_dunder_import", by_dunder_import)


def by_sys_modules():
    m = mod("attack_m3")
    return (lambda x: x * sys.modules["attack_m3"].rate), (lambda r: setattr(m, "rate", r))


turning("module_by_sys_modules", by_sys_modules)


def with_getattr():
    m = mod("attack_m4")
    del m.rate
    vals = {"rate": 2.0}

    def found(name):
        if name not in vals:
            raise AttributeError(name)
        return vals[name]

    m.__getattr__ = found

    def f(x):
        import attack_m4

        return x * attack_m4.rate

    return f, (lambda r: vals.__setitem__("rate", r))


turning("module_with_getattr", with_getattr)


def swapped():
    def f(x):
        import attack_m5

        return x * attack_m5.rate

    def put(r):
        m = mod("attack_m5")
        m.rate = r

    return f, put


turning("module_swapped_in_sys_modules", swapped)


def of_builtins():
    builtins.builtin_rate = 2.0
    names = {}
    exec("def f(x): return x * builtin_rate", names)
    return names["f"], (lambda r: setattr(builtins, "builtin_rate", r))


turning("variable_of_builtins", of_builtins)


@case
def builtin_patched(compile):
    old = builtins.abs

    def f(x):
        return x * abs(-2.0)

    g = compile(f)
    try:
        for i in range(9):
            if i == 4:
                builtins.abs = lambda v: 7.0
            if i == 7:
                builtins.abs = old
            yield g(vec())
    finally:
        builtins.abs = old
