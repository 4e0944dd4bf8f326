"""Worlds that look at what comes back: records, objects, the same tensor twice, exceptions."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import types
from typing import Any, NamedTuple

from worlds import TURNS, Config, attempt, case, mat, vec, with_rates

import tapegrad as tg
from tapegrad import nn


class Output(NamedTuple):
    logits: Any
    loss: Any = None


@dataclasses.dataclass
class Record:
    logits: Any
    scale: float = 1.0
    names: list = dataclasses.field(default_factory=list)


class Plain:
    def __init__(self, value, tag):
        self.value = value
        self.tag = tag


def with_result(compile, function, calls=8):
    """Calls of a function of one vector."""
    f = compile(function)
    for i in range(calls):
        yield f(vec(i))


# -- kinds of results ----------------------------------------------------------------------------


@case(replays=True)
def returns_a_named_tuple(compile):
    return with_result(compile, lambda x: Output(x * 2, (x * 2).sum()))


@case(replays=True)
def returns_a_dict(compile):
    return with_result(compile, lambda x: {"b": x * 2, "a": [x + 1, 3], "n": None})


@case(replays=True)
def returns_an_ordered_dict(compile):
    return with_result(compile, lambda x: collections.OrderedDict(out=x * 2, aux=x + 1))


@case
def returns_a_dataclass(compile):
    return with_result(compile, lambda x: Record(x * 2, 2.0, ["a"]))


@case
def returns_a_dataclass_that_depends(compile):
    c = Config()
    return with_rates(compile(lambda x: Record(x * 2, c.rate)), c)


@case
def returns_a_namespace(compile):
    return with_result(compile, lambda x: types.SimpleNamespace(out=x * 2, n=1))


@case
def returns_an_object(compile):
    return with_result(compile, lambda x: Plain(x * 2, "t"))


@case
def returns_objects_of_their_own(compile):
    f = compile(lambda x: {"out": Record(x * 2), "list": [1]})
    kept = []
    for i in range(8):
        result = f(vec(i))
        result["list"].append(i)
        result["out"].names.append(i)
        kept.append(result)
        yield kept


@case
def returns_the_object_it_got(compile):
    f = compile(lambda record, x: record)
    record = Record(vec())
    for i in range(8):
        yield f(record, vec(i)) is record


@case
def returns_a_list_that_it_keeps(compile):
    kept = []

    @compile
    def f(x):
        kept.append(x * 2)
        return kept

    for i in range(8):
        result = f(vec(i))
        yield result is kept, result


@case
def returns_a_generator(compile):
    f = compile(lambda x: (x * k for k in (2.0, 3.0)))
    for i in range(8):
        yield list(f(vec(i)))


@case
def is_a_generator(compile):
    @compile
    def f(x):
        yield x * 2
        yield x + 1

    for i in range(8):
        yield list(f(vec(i)))


@case(replays=True)
def returns_numbers_and_strings(compile):
    return with_result(compile, lambda x: (x * 2, x.shape[0], "name", None, True, x.ndim / 2))


@case(replays=True)
def returns_a_number_of_a_setting(compile):
    c = Config()
    return with_rates(compile(lambda x: (x * 2, c.rate, [c.rate])), c)


@case
def returns_a_function(compile):
    f = compile(lambda x: lambda k: x * k)
    for i in range(8):
        yield f(vec(i))(2.0)


@case
def returns_nothing(compile):
    w = tg.zeros(4)

    @compile
    def f(x):
        w.add_(x)

    for i in range(8):
        yield f(vec(i)), w


@case(replays=True)
def returns_the_same_tensor_twice(compile):
    @compile
    def f(x):
        y = x * 2
        return y, y, [y]

    for i in range(8):
        a, b, (c,) = f(vec(i))
        a.add_(1)
        yield a is b, a is c, b


@case(replays=True)
def returns_its_argument(compile):
    f = compile(lambda x, y: (x, x * y))
    for i in range(8):
        x = vec(i)
        a, b = f(x, vec())
        yield a is x, a, b


@case(replays=True)
def returns_a_captured_tensor(compile):
    w = vec()

    @compile
    def f(x):
        w.add_(x)
        return w, w * 2

    for i in range(8):
        a, b = f(vec(i))
        yield a is w, a, b


@case
def returns_an_argument_after_a_change(compile):
    @compile
    def f(x):
        x.mul_(2)
        return x

    for i in range(8):
        x = vec(i)
        y = f(x)
        y.add_(1)
        yield y is x, x


@case(replays=True)
def returns_a_constant_tensor(compile):
    f = compile(lambda x: (x * 2, tg.tensor([1.0, 2.0]), tg.zeros(2)))
    for i in range(8):
        a, b, c = f(vec(i))
        seen = [v.clone() for v in (a, b, c)]
        b.add_(5)
        c.add_(5)
        yield seen


@case(replays=True)
def returns_shapes(compile):
    f = compile(lambda x: (x.shape, tuple(x.size()), x.dtype is tg.float32))
    for i in range(8):
        shape, size, single = f(vec(i))
        yield tuple(shape), size, single


# -- managers ------------------------------------------------------------------------------------


class Scope:
    """A manager that counts, and sets a number while it is open."""

    def __init__(self):
        self.entered = self.left = 0
        self.rate = 1.0

    def __enter__(self):
        self.entered += 1
        self.rate *= 2
        return self

    def __exit__(self, *error):
        self.left += 1
        self.rate /= 2


@case
def manager_of_ones_own(compile):
    scope = Scope()

    @compile
    def f(x):
        with scope as s:
            return x * s.rate

    for i in range(9):
        scope.rate = 2.0 if i > 4 else 1.0
        yield f(vec(i)), scope


@case
def manager_of_contextlib(compile):
    c = Config(1.0)

    @contextlib.contextmanager
    def scaled(by):
        before = c.rate
        c.rate = before * by
        yield
        c.rate = before

    def helper(x):
        return x * c.rate + 1

    @compile
    def f(x):
        with scaled(3.0):
            return helper(x)

    for i in range(9):
        c.rate = 2.0 if i > 4 else 1.0
        yield f(vec(i)), c.rate


@case(replays=True)
def manager_outside(compile):
    c = Config(1.0)

    @contextlib.contextmanager
    def scaled(by):
        c.rate = by
        yield
        c.rate = 1.0

    f = compile(lambda x: x * c.rate + 1)
    for i in range(10):
        with scaled(2.0) if i % 2 else contextlib.nullcontext():
            yield f(vec(i))


@case
def exit_stack(compile):
    left = []

    @compile
    def f(x):
        with contextlib.ExitStack() as stack:
            stack.callback(left.append, len(left))
            return x * 2

    for i in range(8):
        yield f(vec(i)), left


@case
def suppressed_exception(compile):
    c = Config(None)

    @compile
    def f(x):
        y = x
        with contextlib.suppress(TypeError):
            y = x * 2
            y = y + c.rate
        return y

    for i in range(9):
        c.rate = None if i < 3 or i == 7 else 1.0
        yield f(vec(i))


# -- compiled functions among one another --------------------------------------------------------


@case
def compiled_functions_that_share_state(compile):
    c = Config(0)

    @compile
    def up(x):
        c.rate += 1
        return x * c.rate

    @compile
    def down(x):
        c.rate -= 1
        return x * c.rate

    for i in range(10):
        yield (up if i % 3 else down)(vec(i)), c.rate


@case(replays=True)
def compiled_layers_in_an_eager_model(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = compile(nn.Linear(4, 4)), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x).relu())

    model = Model()
    for i in range(8):
        model.zero_grad()
        model(mat(i)).sum().backward()
        yield model


@case
def compiled_function_called_from_a_hook(compile):
    c, seen = Config(), []
    inner = compile(lambda x: x * c.rate)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda m, args, out: seen.append(inner(out).detach()))
    f = compile(model)
    for i, rate in enumerate(TURNS):
        c.rate = rate
        yield f(mat(i)), seen


@case
def compiled_function_that_makes_functions(compile):
    made = []

    @compile
    def f(x):
        made.append(lambda: x * 2)
        return made[-1]() + 1

    for i in range(8):
        yield f(vec(i)), len(made), made[-1]()


@case
def lazily_made_layer(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None

        def forward(self, x):
            if self.layer is None:
                tg.manual_seed(0)
                self.layer = nn.Linear(x.shape[-1], 2)
            return self.layer(x)

    model = Model()
    f = compile(model)
    for i in range(8):
        yield f(mat(i)), model


@case
def lazy_layer_of_the_library(compile):
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    f = compile(model)
    for i in range(8):
        tg.manual_seed(0)
        yield f(mat(i)), model


@case
def attribute_error_of_a_model(compile):
    class Model(nn.Module):
        def forward(self, x):
            return self.scale(x)

    model = Model()
    f = compile(model)
    for i in range(9):
        if i == 3:
            model.scale = lambda x: x * 2
        elif i == 6:
            del model.scale
        yield attempt(f, vec(i))


@case(replays=True)
def keyword_arguments_in_any_order(compile):
    f = compile(lambda x, *, a=1.0, b=2.0: x * a + b)
    for i in range(10):
        yield f(vec(i), a=2.0, b=3.0) if i % 2 else f(vec(i), b=3.0, a=2.0)


@case(replays=True)
def optional_tensor_argument(compile):
    f = compile(lambda x, mask=None: x * 2 if mask is None else x * mask)
    for i in range(10):
        yield f(vec(i), vec(1)) if i % 2 else f(vec(i))


@case(replays=True)
def structure_of_arguments(compile):
    f = compile(lambda xs: sum(xs.values()) if isinstance(xs, dict) else sum(xs))
    for i in range(12):
        xs = ([vec(i)], (vec(i), vec()), {"a": vec(i), "b": vec()})[i % 3]
        yield f(xs)


# -- exceptions ----------------------------------------------------------------------------------


@case
def exception_by_an_argument(compile):
    seen = []

    @compile
    def f(x, bad):
        seen.append(bad)
        if bad:
            raise ValueError("bad")
        return x * 2

    for i in range(9):
        yield attempt(f, vec(i), i in (3, 6)), seen


@case
def exception_in_the_fifth_call(compile):
    c = Config(0)

    @compile
    def f(x):
        c.rate += 1
        if c.rate == 5:
            raise KeyError("fifth")
        return x * 2

    for i in range(9):
        yield attempt(f, vec(i)), c.rate


@case
def exception_caught_inside(compile):
    c = Config(True)

    @compile
    def f(x):
        try:
            if c.rate:
                raise ValueError("bad")
            return x * 2
        except ValueError:
            return x + 1
        finally:
            c.done = True

    for i in range(9):
        c.rate, c.done = i // 3 % 2 == 0, False
        yield f(vec(i)), c.done


@case
def exception_of_an_operation(compile):
    f = compile(lambda x, y: x * 2 + y)
    for i in range(9):
        yield attempt(f, vec(i), tg.ones(3 if i in (3, 6) else 4))


@case
def exception_by_data(compile):
    table = mat()
    f = compile(lambda i: table[i] * 2)
    for i in range(9):
        yield attempt(f, tg.tensor([0, 9 if i in (4, 6) else 1]))


@case
def exception_after_a_change_in_place(compile):
    w, c = tg.zeros(4), Config(False)

    @compile
    def f(x):
        w.add_(x)
        if c.rate:
            raise RuntimeError("after the change")
        return w * 2

    for i in range(9):
        c.rate = i in (3, 6)
        yield attempt(f, vec(i)), w


# -- stored and returned results on one memory ---------------------------------------------------


def stored_and_returned(name, body, replays=True):
    """What is changed outside through one of two tensors must be seen through the other."""

    def program(compile):
        c = Config(tg.zeros(4))
        c.items = []
        f = compile(lambda x: body(c, x))
        for i in range(8):
            result = f(vec(i))
            result.add_(100)
            yield result, c.rate, c.items[-2:]
            if i % 2:
                c.rate.mul_(2)
                yield result, c.rate, c.items[-2:]

    program.__name__ = f"stored_and_returned_{name}"
    case(program, replays=replays)


def _stores(c, kept, returned):
    c.rate = kept
    return returned


def _detached(c, x):
    y = x * 2
    return _stores(c, y.detach(), y)


def _data(c, x):
    y = x * 2
    return _stores(c, y.data, y)


def _detached_part(c, x):
    y = x * 2
    return _stores(c, y.detach()[1:], y)


def _both_detached(c, x):
    y = tg.zeros(4)
    y.copy_(x)
    return _stores(c, y.detach(), y.detach())


def _parts(c, x):
    y = x * 2
    return _stores(c, y[1:], y[:3])


def _appended(c, x):
    y = x * 2
    c.items.append(y)
    return _stores(c, y.view(2, 2), y)


def _transposed(c, x):
    y = (x * 2).reshape(2, 2)
    return _stores(c, y.t(), y.flatten())


def _chunks(c, x):
    y = x * 2
    first, second = y.chunk(2)
    c.items.append(second)
    return _stores(c, first, y)


for body in (
    _detached,
    _data,
    _detached_part,
    _both_detached,
    _parts,
    _appended,
    _transposed,
    _chunks,
):
    stored_and_returned(body.__name__[1:], body)
stored_and_returned("argument", lambda c, x: _stores(c, x, x[1:]))
stored_and_returned("detached_argument", lambda c, x: _stores(c, x.detach(), x.view(2, 2)))
stored_and_returned("state", lambda c, x: _stores(c, x * 2, c.rate))
