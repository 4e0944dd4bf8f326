"""Names that modules and classes get later, and memory that is set anew."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import pickle
import sys
import tempfile

import numpy as np
from worlds import TURNS, Config, attempt, case, vec

import tapegrad as tg
from tapegrad import nn


# -- what an object has, under names that no code says
def having(name, add, read):
    """Register a case: something is added to a module and taken away again."""

    def program(compile):
        m = nn.Module()
        m.layer = nn.Linear(4, 4)
        g = compile(lambda x: read(m, x))
        for i in range(12):
            if i == 4:
                add(m, True)
            if i == 8:
                add(m, False)
            yield attempt(g, vec(i))

    program.__name__ = f"module_that_gets_{name}"
    case(program)


def add_parameter(m, there):
    if there:
        m.register_parameter("extra", nn.Parameter(tg.ones(3)))
    else:
        del m.extra


def add_buffer(m, there):
    if there:
        m.register_buffer("extra", tg.ones(3))
    else:
        del m.extra


def add_child(m, there):
    if there:
        m.add_module("extra", nn.Linear(2, 2, dtype=tg.float32))
    else:
        del m.extra


def add_grandchild(m, there):
    if there:
        m.layer.add_module("extra", nn.Linear(2, 2))
    else:
        del m.layer.extra


having("a_parameter", add_parameter, lambda m, x: x * sum(float(p.numel()) for p in m.parameters()))


having(
    "a_parameter_in_a_penalty",
    add_parameter,
    lambda m, x: x.sum() + sum((p**2).sum() for p in m.parameters()),
)


having("a_parameter_seen_by_name", add_parameter, lambda m, x: x * len(dict(m.named_parameters())))


having("a_buffer", add_buffer, lambda m, x: x * (1.0 + len(list(m.buffers()))))


having("a_child", add_child, lambda m, x: x * len(list(m.children())))


having("a_grandchild", add_grandchild, lambda m, x: x * len(list(m.modules())))


having(
    "a_grandchild_in_a_penalty",
    add_grandchild,
    lambda m, x: x.sum() + sum((p**2).sum() for p in m.parameters()),
)


having("a_child_in_its_state", add_child, lambda m, x: x * len(m.state_dict()))


having("a_child_applied_to", add_child, lambda m, x: (m.apply(lambda s: None), x * 2)[1])


def add_train(m, there):
    m.layer.train(not there)


having(
    "another_mode_of_a_child",
    add_train,
    lambda m, x: x * sum(1.0 for s in m.modules() if s.training),
)


def add_frozen(m, there):
    m.layer.bias.requires_grad_(not there)


having(
    "a_frozen_parameter",
    add_frozen,
    lambda m, x: x * sum(1.0 for p in m.parameters() if p.requires_grad),
)


def add_grad(m, there):
    m.layer.bias.grad = tg.ones(4) if there else None


having(
    "a_gradient", add_grad, lambda m, x: x * sum(1.0 for p in m.parameters() if p.grad is not None)
)


def add_hook(m, there):
    if there:
        m.handle = m.layer.register_forward_hook(lambda s, a, o: o * 2)
    else:
        m.handle.remove()


having("a_hook", add_hook, lambda m, x: m.layer(x))


def add_pre_hook(m, there):
    if there:
        m.handle = m.layer.register_forward_pre_hook(lambda s, a: (a[0] * 2,))
    else:
        m.handle.remove()


having("a_hook_before", add_pre_hook, lambda m, x: m.layer(x))


def add_global_hook(m, there):
    register = getattr(
        nn.modules.module if hasattr(nn, "modules") and hasattr(nn.modules, "module") else nn,
        "register_module_forward_hook",
        None,
    )
    if register is None:
        return
    if there:
        m.handle = register(lambda s, a, o: o * 2)
    else:
        m.handle.remove()


having("a_global_hook", add_global_hook, lambda m, x: m.layer(x))


def add_forward(m, there):
    if there:
        m.layer.forward = lambda x: x * 5
    else:
        del m.layer.forward


having("a_forward_of_its_own", add_forward, lambda m, x: m.layer(x))


def add_bias(m, there):
    m.kept = getattr(m, "kept", m.layer.bias)
    m.layer.bias = None if there else m.kept


having("no_bias", add_bias, lambda m, x: m.layer(x))


def add_weight(m, there):
    m.layer.weight = nn.Parameter(tg.ones(4, 4) * (2 if there else 3))


having("another_weight", add_weight, lambda m, x: m.layer(x))


def add_features(m, there):
    m.layer.in_features = 99 if there else 4


having("another_number_of_features", add_features, lambda m, x: m.layer(x) * 1)


def add_extra(m, there):
    m.layer.extra_repr = (lambda: "abc") if there else (lambda: "")


having("another_text", add_extra, lambda m, x: x * len(m.layer.extra_repr()))


def object_having(name, read):
    """Register a case: a plain object gets an attribute that no code names."""

    def program(compile):
        c = Config()
        g = compile(lambda x: read(c, x))
        for i in range(12):
            if i == 4:
                c.extra = 1.0
            if i == 8:
                del c.extra
            yield attempt(g, vec(i))

    program.__name__ = f"attributes_seen_by_{name}"
    case(program)


object_having("vars", lambda c, x: x * len(vars(c)))


object_having("dict", lambda c, x: x * len(c.__dict__))


object_having("dir", lambda c, x: x * len([n for n in dir(c) if not n.startswith("_")]))


object_having("copy", lambda c, x: x * len(copy.copy(c).__dict__))


object_having("state", lambda c, x: x * len(c.__getstate__()))


object_having("pickle", lambda c, x: x * len(pickle.dumps(c.__reduce_ex__(2)[2])))


object_having("sorted_vars", lambda c, x: x * sum(v for _, v in sorted(vars(c).items())))


object_having("inspect", lambda c, x: x * len([n for n, _ in inspect.getmembers(c) if n[0] != "_"]))


@case
def class_that_gets_an_attribute_seen_by_a_protocol(compile):
    class A:
        pass

    a = A()

    def f(x):
        return x * (3.0 if callable(a) else 2.0)

    g = compile(f)
    for i in range(9):
        if i == 4:
            A.__call__ = lambda self: None
        if i == 7:
            del A.__call__
        yield g(vec())


@case
def class_that_gets_a_truth(compile):
    class A:
        pass

    a = A()

    def f(x):
        return x * (3.0 if a else 2.0)

    g = compile(f)
    for i in range(9):
        if i == 4:
            A.__bool__ = lambda self: False
        if i == 7:
            del A.__bool__
        yield g(vec())


@case
def class_that_gets_a_length(compile):
    class A:
        pass

    a = A()

    def f(x):
        return x * (3.0 if a else 2.0)

    g = compile(f)
    for i in range(9):
        if i == 4:
            A.__len__ = lambda self: 0
        if i == 7:
            A.__len__ = lambda self: 1
        yield g(vec())


@case
def class_that_gets_an_operator(compile):
    class A:
        pass

    a = A()

    def f(x):
        try:
            return x * (a + 1)
        except TypeError:
            return x * 2.0

    g = compile(f)
    for i in range(9):
        if i == 4:
            A.__add__ = lambda self, o: 7.0
        if i == 7:
            A.__add__ = lambda self, o: 8.0
        yield g(vec())


@case
def subclasses_listed(compile):
    class Base:
        pass

    keep = []

    def f(x):
        return x * (1.0 + len(Base.__subclasses__()))

    g = compile(f)
    for i in range(9):
        if i == 4:
            keep.append(type("Sub", (Base,), {}))
        yield g(vec())


@case
def plugin_registry_by_init_subclass(compile):
    registry = {}

    class Base:
        def __init_subclass__(cls):
            registry[cls.__name__] = cls

    class One(Base):
        rate = 2.0

    def f(x):
        return x * sum(k.rate for k in registry.values())

    g = compile(f)
    for i in range(9):
        if i == 4:
            type("Two", (Base,), {"rate": 3.0})
        if i == 7:
            One.rate = 5.0
        yield g(vec())


@case
def bases_of_a_class_changed(compile):
    class A:
        rate = 2.0

    class B:
        rate = 3.0

    class C(A):
        pass

    c = C()

    def f(x):
        return x * c.rate

    g = compile(f)
    for i in range(9):
        if i == 4:
            C.__bases__ = (B,)
        yield g(vec())


@case
def module_reloaded(compile):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "attack_reload.py")

    def write(r):
        with open(path, "w") as f:
            f.write(f"RATE = {r}\ndef scale(x): return x * RATE\n# {'x' * int(r)}\n")

    write(2.0)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode, old = True, sys.dont_write_bytecode
    sys.modules.pop("attack_reload", None)
    importlib.invalidate_caches()
    import attack_reload

    def f(x):
        return attack_reload.scale(x)

    g = compile(f)
    for r in TURNS:
        write(r)
        importlib.reload(attack_reload)
        yield g(vec())
    sys.path.remove(folder)
    sys.dont_write_bytecode = old


# -- memory
@case
def argument_shares_memory_with_the_result_of_before(compile):
    def f(x):
        return x * 2

    g = compile(f)
    x = vec()
    for i in range(9):
        y = g(x)
        x = y[:]
        if i == 5:
            x = y
        yield y


@case
def out_argument_overlaps_input(compile):
    base = tg.arange(8).float()

    def f(x, out):
        out.copy_(x * 2)
        return out.sum()

    g = compile(f)
    for i in range(10):
        base.copy_(tg.arange(8).float())
        k = 4 if i % 3 else 1
        yield g(base[:4], base[k : k + 4]), base


@case
def two_outputs_overlap(compile):
    base = tg.zeros(8)

    def f(x, a, b):
        a.copy_(x)
        b.copy_(x * 2)
        return a.sum() + b.sum()

    g = compile(f)
    for i in range(10):
        k = 4 if i % 3 else 2
        yield g(vec(i), base[:4], base[k : k + 4]), base


@case
def captured_views_overlap_after_set(compile):
    c = Config()
    base = tg.zeros(8)
    c.a, c.b = base[:4], base[4:]

    def f(x):
        c.a.copy_(x)
        c.b.copy_(x * 2)
        return c.a + c.b

    g = compile(f)
    for i in range(10):
        if i == 5:
            c.b = base[2:6]
        if i == 8:
            c.b = c.a
        yield g(vec(i)), base


@case
def numpy_memory_shared_by_captured_and_argument(compile):
    a = np.ones(8, np.float32)
    w = tg.from_numpy(a[:4])

    def f(x):
        w.mul_(2)
        return x + w

    g = compile(f)
    for i in range(9):
        a[:] = 1
        yield g(tg.from_numpy(a[4:] if i % 3 else a[2:6])), a.copy()


@case
def captured_tensor_resized_by_data(compile):
    w = vec(1)

    def f(x):
        return x.sum() * w.sum() * w.shape[0]

    g = compile(f)
    for i in range(9):
        if i == 4:
            w.data = tg.ones(7)
        if i == 7:
            w.data = tg.ones(4).double()
        yield g(vec(i))
