"""Arguments of all kinds, and tensors with attributes and hooks."""

from __future__ import annotations

import collections
import dataclasses
import typing

from worlds import TURNS, Config, case, vec

from tapegrad import nn


# ---- tensors with attributes
@case
def attribute_of_an_argument_tensor(compile):
    def f(x):
        return x * x.scale

    g = compile(f)
    for r in TURNS:
        x = nn.Parameter(vec())
        x.scale = r
        yield g(x)


@case
def attribute_of_an_argument_tensor_by_default(compile):
    def f(x):
        return x * getattr(x, "scale", 1.0)

    g = compile(f)
    for i in range(8):
        x = nn.Parameter(vec())
        if i > 4:
            x.scale = 3.0
        yield g(x)


@case
def attribute_of_a_parameter_set_later(compile):
    w = nn.Parameter(vec(1))

    def f(x):
        return x * w * (2.0 if hasattr(w, "tag") else 1.0)

    g = compile(f)
    for i in range(8):
        if i == 4:
            w.tag = True
        if i == 6:
            del w.tag
        yield g(vec())


@case
def attribute_of_a_captured_tensor(compile):
    w = nn.Parameter(vec(1))
    w.scale = 2.0

    def f(x):
        return x * w * w.scale

    g = compile(f)
    for r in TURNS:
        w.scale = r
        yield g(vec())


@case
def attribute_written_to_a_captured_tensor(compile):
    w = nn.Parameter(vec(1))

    def f(x):
        w.last = x * w
        return w.last * 2

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), w.last


@case
def attribute_written_to_an_argument_tensor(compile):
    def f(x):
        x.last = x * 2
        return x.last * 2

    g = compile(f)
    for i in range(8):
        x = nn.Parameter(vec(i))
        yield g(x), getattr(x, "last", None)


@case
def attribute_counted_on_a_parameter(compile):
    w = nn.Parameter(vec(1))
    w.steps = 0

    def f(x):
        w.steps += 1
        return x * w

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), w.steps


@case
def hook_on_an_argument(compile):
    def f(x):
        (x * x).sum().backward()
        return x * 2

    g = compile(f)
    for i in range(8):
        x = vec(i, requires_grad=True)
        if i >= 4:
            x.register_hook(lambda gr: gr * 10)
        yield g(x), x.grad


@case
def hook_on_an_argument_of_forward(compile):
    def f(x):
        return (x * x).sum()

    g = compile(f)
    for i in range(8):
        x = vec(i, requires_grad=True)
        if i >= 4:
            x.register_hook(lambda gr: gr * 10)
        g(x).backward()
        yield x.grad


@case
def retain_grad_on_an_argument(compile):
    def f(x):
        return (x * x).sum()

    g = compile(f)
    for i in range(8):
        x = vec(i, requires_grad=True)
        y = x * 2
        if i % 2:
            y.retain_grad()
        g(y).backward()
        yield x.grad, y.grad if i % 2 else None


@case
def retain_grad_inside(compile):
    w = vec(1, requires_grad=True)

    def f(x):
        h = x * w
        h.retain_grad()
        h.sum().backward()
        return h.grad

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), w.grad


@case
def post_accumulate_hook_on_a_parameter_removed(compile):
    w = vec(1, requires_grad=True)

    def halve(p):
        p.grad.mul_(0.5)

    def f(x):
        (x * w).sum().backward()
        return x * 2

    g = compile(f)
    handle = None
    for i in range(9):
        if i == 3:
            handle = w.register_post_accumulate_grad_hook(halve)
        if i == 6:
            handle.remove()
        yield g(vec(i)), w.grad


@case
def hook_handle_as_a_manager(compile):
    m = nn.Linear(4, 4)
    f = compile(m)
    for i in range(9):
        if i % 3 == 2:
            with m.register_forward_hook(lambda mod, a, o: o * 2):
                yield f(vec(i))
        else:
            yield f(vec(i))


@case
def class_attribute_of_a_record_argument(compile):
    class B:
        scale = 2.0

        def __init__(self, x):
            self.x = x

    def f(b):
        return b.x * b.scale

    g = compile(f)
    for r in TURNS:
        B.scale = r
        yield g(B(vec()))


@case
def method_of_a_record_argument_patched(compile):
    class B:
        def __init__(self, x):
            self.x = x

        def double(self):
            return self.x * 2

    def f(b):
        return b.double()

    g = compile(f)
    for i in range(8):
        if i == 4:
            B.double = lambda self: self.x * 3
        yield g(B(vec()))


@case
def property_of_a_record_argument(compile):
    c = Config()

    class B:
        def __init__(self, x):
            self.x = x

        @property
        def double(self):
            return self.x * c.rate

    def f(b):
        return b.double

    g = compile(f)
    for r in TURNS:
        c.rate = r
        yield g(B(vec()))


@case
def attribute_of_a_list_argument(compile):
    class L(list):
        pass

    def f(b):
        return b[0] * b.scale

    g = compile(f)
    for r in TURNS:
        b = L([vec()])
        b.scale = r
        yield g(b)


@case
def attribute_of_a_dict_argument(compile):
    class D(dict):
        pass

    def f(b):
        return b["x"] * b.scale

    g = compile(f)
    for r in TURNS:
        b = D(x=vec())
        b.scale = r
        yield g(b)


@case
def class_of_a_dict_argument_changed(compile):
    class D(dict):
        scale = 2.0

        def __getitem__(self, k):
            return dict.__getitem__(self, k) * self.scale

    def f(b):
        return b["x"] + 0

    g = compile(f)
    for r in TURNS:
        D.scale = r
        yield g(D(x=vec()))


@case
def default_of_a_defaultdict_argument(compile):
    def f(x, d):
        return x * d["a"]

    g = compile(f)
    for r in TURNS:
        yield g(vec(), collections.defaultdict(lambda r=r: r))


@case
def attribute_of_a_tuple_argument(compile):
    class T(tuple):
        pass

    def f(b):
        return b[0] * b.scale

    g = compile(f)
    for r in TURNS:
        b = T([vec()])
        b.scale = r
        yield g(b)


@case
def attribute_of_a_number_argument(compile):
    class N(float):
        pass

    def f(x, n):
        return x * n.scale

    g = compile(f)
    for r in TURNS:
        n = N(1.0)
        n.scale = r
        yield g(vec(), n)


@case
def attribute_of_a_string_argument(compile):
    class N(str):
        pass

    def f(x, n):
        return x * n.scale

    g = compile(f)
    for r in TURNS:
        n = N("a")
        n.scale = r
        yield g(vec(), n)


@case
def record_argument_with_slots(compile):
    class B:
        __slots__ = ("scale", "x")

    def f(b):
        return b.x * b.scale

    g = compile(f)
    for r in TURNS:
        b = B()
        b.x = vec()
        b.scale = r
        yield g(b)


@case
def frozen_dataclass_argument(compile):
    @dataclasses.dataclass(frozen=True, slots=True)
    class B:
        x: typing.Any
        scale: float = 2.0

    def f(b):
        return b.x * b.scale

    g = compile(f)
    for i, r in enumerate(TURNS):
        yield g(B(vec(i), r))


@case
def dataclass_argument_with_post_init(compile):
    c = Config()

    @dataclasses.dataclass
    class B:
        x: typing.Any
        k: dict = dataclasses.field(default_factory=lambda: {"s": c.rate})

        def __post_init__(self):
            self.y = self.x * self.k["s"]

    def f(x):
        return B(x)

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.rate = r
        b = g(vec(i))
        yield b.x, b.y, b.k


@case
def named_tuple_argument_with_class_state(compile):
    class NT(typing.NamedTuple):
        x: typing.Any
        rate: float = 2.0

    NT.scale = 1.0

    def f(b):
        return b.x * b.rate * b.scale

    g = compile(f)
    for i, r in enumerate(TURNS):
        NT.scale = r
        yield g(NT(vec(i)))


@case
def list_argument_appended(compile):
    def f(x, out):
        out.append(x * 2)
        return x

    g = compile(f)
    out = []
    for i in range(8):
        yield g(vec(i), out), list(out)


@case
def dict_argument_filled_and_kept(compile):
    def f(x, out):
        out["h"] = x * 2
        return out

    g = compile(f)
    for i in range(8):
        out = {}
        yield g(vec(i), out) is out, out


@case
def set_argument(compile):
    def f(x, s):
        return x * len(s)

    g = compile(f)
    for r in TURNS:
        yield g(vec(), set(range(int(r))))


@case
def nested_list_argument_aliased(compile):
    def f(x, a, b):
        a.append(x)
        return x * len(b)

    g = compile(f)
    for i in range(9):
        a = []
        b = a if i % 2 else []
        yield g(vec(i), a, b), len(a), len(b)


@case
def same_record_twice(compile):
    def f(a, b):
        a["y"] = a["x"] * 2
        return b.get("y", b["x"])

    g = compile(f)
    for i in range(9):
        a = {"x": vec(i)}
        b = a if i % 3 == 2 else {"x": a["x"]}
        yield g(a, b)


@case
def same_object_argument_in_two_places(compile):
    def f(x, a, b):
        a.rate = 5.0
        return x * b.rate

    g = compile(f)
    for i in range(9):
        a = Config(2.0)
        b = a if i % 3 == 2 else Config(2.0)
        yield g(vec(i), a, b)


@case
def identity_of_arguments(compile):
    keep = [vec(), vec()]

    def f(x):
        return x * (2.0 if x is keep[0] else 3.0)

    g = compile(f)
    for i in range(9):
        yield g(keep[i % 2] if i != 7 else vec())
