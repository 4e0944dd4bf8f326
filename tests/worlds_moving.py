"""Options of the library, and tensors that move between places."""

from __future__ import annotations

from worlds import Config, attempt, case, mat, vec

import tapegrad as tg
from tapegrad import nn

F = nn.functional


# -- options of the library
def options_in_turn(name, switch, f, make=vec):
    """Register a case: an option of the library that is switched on and off."""

    def program(compile):
        g = compile(f)
        try:
            for i in range(10):
                switch(4 <= i < 7)
                yield attempt(g, make(i))
        finally:
            switch(False)

    program.__name__ = f"option_{name}_in_turn"
    case(program)


options_in_turn(
    "anomaly",
    lambda on: tg.autograd.set_detect_anomaly(on),
    lambda x: x * (3.0 if tg.is_anomaly_enabled() else 2.0),
)


def sqrt_backward(x):
    w = (x * 0).requires_grad_()
    (tg.sqrt(w) * 0).sum().backward()
    return w.grad


options_in_turn(
    "anomaly_of_a_gradient", lambda on: tg.autograd.set_detect_anomaly(on), sqrt_backward
)


options_in_turn(
    "default_dtype",
    lambda on: tg.set_default_dtype(tg.float64 if on else tg.float32),
    lambda x: tg.ones(4) * 2 + tg.tensor([1.0]),
)


options_in_turn(
    "grad",
    lambda on: tg.set_grad_enabled(not on),
    lambda x: (
        (x * tg.ones(4, requires_grad=True)).detach()
        * (2.0 if (x * tg.ones(4, requires_grad=True)).requires_grad else 3.0)
    ),
)


options_in_turn(
    "autocast",
    lambda on: tg.set_autocast_cpu_enabled(on),
    lambda x: (x.view(2, 2) @ x.view(2, 2)).float(),
)


# -- moving tensors
@case
def tensors_in_a_dict_replaced_each_call(compile):
    c = Config({"a": vec(1), "b": vec(2)})

    def f(x):
        return x * c.rate["a"] + c.rate["b"]

    g = compile(f)
    for i in range(12):
        c.rate["a"] = vec(i)
        if i % 2:
            c.rate["b"] = c.rate["a"]
        yield g(vec())


@case
def tensors_in_a_list_replaced_each_call(compile):
    c = Config([vec(1), vec(2)])

    def f(x):
        return x * c.rate[0] + c.rate[1]

    g = compile(f)
    for i in range(12):
        c.rate[0] = vec(i)
        if i % 3 == 2:
            c.rate.reverse()
        yield g(vec())


@case
def replaced_tensor_is_sometimes_the_argument(compile):
    c = Config(vec(1))

    def f(x):
        x.add_(1)
        return x * c.rate

    g = compile(f)
    for i in range(12):
        x = vec(i)
        c.rate = x if i % 4 == 3 else vec(i)
        yield g(x), x


@case
def replaced_tensor_is_sometimes_a_view_of_the_argument(compile):
    c = Config(vec(1))

    def f(x):
        x.add_(1)
        return x * c.rate

    g = compile(f)
    for i in range(12):
        x = vec(i)
        c.rate = x[:] if i % 4 == 3 else vec(i)
        yield g(x), x


@case
def replaced_tensor_is_sometimes_a_parameter(compile):
    w = vec(5)
    c = Config(vec(1))

    def f(x):
        w.add_(1)
        return x * c.rate + w

    g = compile(f)
    for i in range(12):
        c.rate = w if i % 4 == 3 else vec(i)
        yield g(vec(i)), w


@case
def replaced_tensor_requires_grad_in_turn(compile):
    c = Config(vec(1))

    def f(x):
        return (x * c.rate).sum()

    g = compile(f)
    for i in range(12):
        c.rate = vec(i, requires_grad=i % 3 == 0)
        y = g(vec(i))
        if y.requires_grad:
            y.backward()
        yield y, c.rate.grad


@case
def replaced_tensor_with_a_history(compile):
    c = Config(vec(1))
    w = vec(2, requires_grad=True)

    def f(x):
        return (x * c.rate).sum()

    g = compile(f)
    for i in range(12):
        c.rate = w * i if i % 3 else vec(i)
        w.grad = None
        y = g(vec(i))
        if y.requires_grad:
            y.backward()
        yield y, w.grad


@case
def replaced_tensor_with_a_gradient(compile):
    c = Config(vec(1))

    def f(x):
        (x * c.rate).sum().backward()
        return x

    g = compile(f)
    for i in range(12):
        c.rate = vec(i, requires_grad=True)
        if i % 3 == 2:
            c.rate.grad = tg.ones(4)
        yield g(vec(i)), c.rate.grad


@case
def hidden_state_with_a_history(compile):
    w = vec(1, requires_grad=True)
    c = Config(tg.zeros(4))

    def f(x):
        c.rate = c.rate * w + x
        return c.rate.sum()

    g = compile(f)
    for i in range(12):
        if i % 4 == 0:
            c.rate = tg.zeros(4)
        y = g(vec(i))
        if i % 4 == 3:
            w.grad = None
            y.backward()
        yield y, w.grad


@case
def hidden_state_that_is_transposed(compile):
    c = Config(mat(1, 3, 4))

    def f(x):
        y = c.rate * 2 + x
        c.rate = c.rate.t() * 1
        return y.sum() + c.rate[0].sum()

    g = compile(f)
    for i in range(12):
        yield g(tg.tensor(float(i))), c.rate


@case
def hidden_state_that_changes_its_dtype(compile):
    c = Config(vec(1))

    def f(x):
        y = c.rate * 2 + x
        c.rate = y.double() if c.rate.dtype == tg.float32 else y.float()
        return y

    g = compile(f)
    for i in range(12):
        yield g(vec(i) / 8), c.rate


@case
def hidden_state_that_grows_and_shrinks(compile):
    c = Config(vec(1))

    def f(x):
        y = c.rate.sum() + x
        c.rate = tg.cat([c.rate, c.rate * 2]) if c.rate.shape[0] < 16 else c.rate[:4] * 1
        return y

    g = compile(f)
    for i in range(14):
        yield g(vec(i)), c.rate


@case
def hidden_state_reset_outside(compile):
    c = Config(vec(1))
    w = vec(2, requires_grad=True)

    def f(x):
        c.rate = tg.tanh(c.rate * w + x)
        return c.rate.sum()

    g = compile(f)
    for i in range(14):
        if i % 3 == 0:
            c.rate = tg.zeros(4)
        w.grad = None
        y = g(vec(i))
        y.backward()
        c.rate = c.rate.detach()
        yield y, w.grad


@case
def hidden_state_in_a_dict_with_a_history(compile):
    w = vec(1, requires_grad=True)
    d = {"h": tg.zeros(4)}

    def f(x):
        d["h"] = d["h"] * w + x
        return d["h"].sum()

    g = compile(f)
    for i in range(16):
        if i % 4 == 0:
            d["h"] = tg.zeros(4)
        y = g(vec(i))
        if i % 4 == 3:
            w.grad = None
            y.backward()
        yield y, w.grad


@case
def hidden_state_of_a_module_with_a_history(compile):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.h = tg.zeros(4)

        def forward(self, x):
            self.h = tg.tanh(self.lin(self.h) + x)
            return self.h

    tg.manual_seed(0)
    m = Cell()
    f = compile(m)
    for i in range(18):
        if i % 3 == 0:
            m.h = tg.zeros(4)
        y = f(vec(i) / 9)
        if i % 3 == 2:
            m.zero_grad()
            y.sum().backward()
        yield y, m


@case
def two_places_become_one_tensor_that_is_written(compile):
    c = Config(vec(1))
    c.b = vec(2)

    def f(x):
        c.b.add_(1)
        return x * c.rate

    g = compile(f)
    for i in range(14):
        c.rate, c.b = vec(i), vec(i + 1)
        if i % 5 == 4:
            c.b = c.rate
        yield g(vec(i)), c.b


@case
def state_of_the_shape_that_the_function_leaves(compile):
    c = Config(None)

    def f(x):
        y = c.rate.sum() + x
        c.rate = c.rate[: c.rate.shape[0] // 2] * 1
        return y

    g = compile(f)
    for i in range(14):
        c.rate = tg.arange(float(16 if i < 5 else 8)) + i
        yield g(vec(i)), c.rate


@case
def state_of_the_dtype_that_the_function_leaves(compile):
    c = Config(None)

    def f(x):
        y = c.rate * 2 + x
        c.rate = c.rate.float()
        return y

    g = compile(f)
    for i in range(14):
        c.rate = vec(i).double() if i < 5 else vec(i)
        yield g(vec(i)), c.rate


@case
def hidden_states_of_two_streams(compile):
    w = mat(1)

    class Cell:
        def __init__(self):
            self.h = tg.zeros(4)

    def f(cell, x):
        cell.h = tg.tanh(w @ cell.h + x)
        return cell.h

    g = compile(f)
    a, b = Cell(), Cell()
    for i in range(14):
        yield g(a if i % 2 else b, vec(i)), a.h, b.h


@case
def state_shared_by_two_compiled_functions(compile):
    c = Config(tg.zeros(4))

    def f(x):
        c.rate = c.rate + x
        return c.rate

    def h(x):
        return c.rate * x

    a, b = compile(f), compile(h)
    for i in range(12):
        yield a(vec(i)), b(vec(i))


@case
def tensor_state_swapped_between_objects(compile):
    a, b = Config(vec(1)), Config(vec(2))

    def f(x):
        return x * a.rate - b.rate

    g = compile(f)
    for i in range(12):
        if i % 3 == 2:
            a.rate, b.rate = b.rate, a.rate
        yield g(vec(i))


@case
def tensors_of_other_shapes_in_one_place(compile):
    c = Config(vec(1))

    def f(x):
        return x.sum() * c.rate.sum() * c.rate.shape[0]

    g = compile(f)
    for i in range(14):
        c.rate = tg.ones(i % 3 + 2)
        yield g(vec(i))


@case
def tensor_becomes_a_number(compile):
    c = Config(vec(1))

    def f(x):
        return x * c.rate

    g = compile(f)
    for i in range(14):
        c.rate = (vec(i), 2.0, tg.tensor(3.0), 3)[i // 3 % 4]
        yield g(vec(i))


@case
def optional_mask(compile):
    c = Config(None)

    def f(x):
        return x if c.rate is None else x.masked_fill(c.rate, 0.0)

    g = compile(f)
    for i in range(14):
        c.rate = None if i // 3 % 2 else vec(i) > 0
        yield g(vec(i))
