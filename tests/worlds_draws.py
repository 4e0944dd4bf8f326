"""Worlds that go on by themselves: random numbers, iterators, arrays of NumPy, modes."""

from __future__ import annotations

import contextlib
import itertools
import random

import numpy as np
from worlds import Config, attempt, case, mat, vec

import tapegrad as tg
from tapegrad import nn

# -- random numbers of others --------------------------------------------------------------------


@case
def random_of_python(compile):
    f = compile(lambda x: x * random.random())
    for _ in range(8):
        yield f(vec())


@case
def random_of_python_decides(compile):
    f = compile(lambda x: x * 2 if random.random() < 0.5 else x + 1)
    for _ in range(12):
        yield f(vec())


@case
def random_of_python_seeded_inside(compile):
    @compile
    def f(x):
        random.seed(3)
        return x * random.uniform(1, 2)

    for _ in range(8):
        yield f(vec()), random.random()


@case
def random_choice_and_shuffle(compile):
    order = [2.0, 3.0, 4.0]

    @compile
    def f(x):
        random.shuffle(order)
        return x * order[0] + random.choice(order)

    for _ in range(8):
        yield f(vec()), order


@case
def random_of_numpy(compile):
    f = compile(lambda x: x * np.random.rand())
    for _ in range(8):
        yield f(vec())


@case
def random_array_of_numpy(compile):
    f = compile(lambda x: x + tg.from_numpy(np.random.randn(4).astype(np.float32)))
    for _ in range(8):
        yield f(vec())


@case
def own_random_generator(compile):
    rng = random.Random(1)
    f = compile(lambda x: x * rng.random())
    for _ in range(8):
        yield f(vec()), rng.getstate()[1][-1]


@case
def own_generator_of_numpy(compile):
    rng = np.random.default_rng(1)
    f = compile(lambda x: x * float(rng.uniform()) + tg.tensor(rng.integers(0, 3, 4)))
    for _ in range(8):
        yield f(vec()), int(rng.integers(100))


@case(replays=True)
def random_of_the_library(compile):
    f = compile(lambda x: x * tg.rand(4) + tg.randint(0, 3, (4,)))
    for i in range(8):
        if i == 5:
            tg.manual_seed(3)
        yield f(vec()), tg.rand(1)


@case
def generator_of_the_library(compile):
    g = tg.Generator().manual_seed(4)
    f = compile(lambda x: x * tg.rand(4, generator=g))
    for i in range(8):
        if i == 5:
            g.manual_seed(4)
        yield f(vec()), tg.rand(1, generator=g)


@case
def seeded_inside(compile):
    @compile
    def f(x):
        tg.manual_seed(5)
        return nn.functional.dropout(x, 0.5)

    for i in range(8):
        yield f(vec(i)), tg.rand(1)


@case
def permutation_as_indices(compile):
    f = compile(lambda x: x[np.random.permutation(4).tolist()] * 2)
    for _ in range(8):
        yield f(vec())


# -- iterators -----------------------------------------------------------------------------------


@case
def next_of_an_iterator(compile):
    numbers = iter([2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    f = compile(lambda x: x * next(numbers))
    for _ in range(8):
        yield attempt(f, vec())


@case
def next_with_a_default(compile):
    numbers = iter([2.0, 2.0, 2.0, 3.0])
    f = compile(lambda x: x * next(numbers, 1.0))
    for _ in range(8):
        yield f(vec())


@case
def count_of_itertools(compile):
    count = itertools.count()
    f = compile(lambda x: x * next(count) + 1)
    for _ in range(8):
        yield f(vec())


@case
def count_that_nothing_uses(compile):
    count = itertools.count()

    @compile
    def f(x):
        next(count)
        return x * 2

    for _ in range(8):
        yield f(vec())
    yield next(count)


@case
def cycle_of_itertools(compile):
    cycle = itertools.cycle([2.0, 3.0])
    f = compile(lambda x: x * next(cycle) + 1)
    for _ in range(8):
        yield f(vec())


@case
def generator_advanced_inside(compile):
    def numbers():
        k = 1.0
        while True:
            yield k
            k *= 0.5

    rates = numbers()
    f = compile(lambda x: x * next(rates))
    for _ in range(8):
        yield f(vec())


@case
def generator_exhausted_by_a_loop(compile):
    numbers = (float(k) for k in range(2, 4))

    @compile
    def f(x):
        for k in numbers:
            x = x * k
        return x + 1

    for _ in range(6):
        yield f(vec())


@case
def generator_as_argument(compile):
    f = compile(lambda x, ks: sum(x * k for k in ks))
    for i in range(6):
        yield f(vec(), (float(k) for k in range(i // 3 + 2)))


@case
def iterator_of_batches_inside(compile):
    batches = iter([mat(i) for i in range(8)])
    f = compile(lambda: next(batches).sum(0) * 2)
    for _ in range(9):
        yield attempt(f)


@case
def map_and_zip_as_arguments(compile):
    f = compile(lambda pairs: sum(x * k for x, k in pairs))
    for i in range(6):
        yield f(zip([vec(), vec(1)], [2.0, 3.0 + i // 3], strict=True))


@case
def stack_that_is_popped(compile):
    stack = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    f = compile(lambda x: x * stack.pop() if stack else x)
    for _ in range(8):
        yield f(vec()), stack


# -- arrays of NumPy -----------------------------------------------------------------------------


@case
def array_read_inside_and_changed_in_place(compile):
    a = np.full(4, 2.0, np.float32)
    f = compile(lambda x: x * tg.tensor(a) + 1)
    for i in range(9):
        if i in (3, 6):
            a *= 2
        yield f(vec())


@case
def array_shared_inside_and_changed_in_place(compile):
    a = np.full(4, 2.0, np.float32)
    f = compile(lambda x: x * tg.from_numpy(a) + 1)
    for i in range(9):
        if i in (3, 6):
            a *= 2
        yield f(vec())


@case
def array_replaced(compile):
    c = Config(np.full(4, 2.0, np.float32))
    f = compile(lambda x: x * tg.from_numpy(c.rate) + 1)
    for i in range(9):
        if i in (3, 6):
            c.rate = c.rate + 1
        yield f(vec())


@case
def number_of_an_array(compile):
    a = np.array([2.0, 3.0])
    f = compile(lambda x: x * float(a[0]) + a[1].item())
    for i in range(9):
        if i in (3, 6):
            a += 1
        yield f(vec())


@case
def mean_of_an_array_as_argument(compile):
    a = np.array([2.0, 3.0])
    f = compile(lambda x, a: x * float(a.mean()) + 1)
    for i in range(9):
        if i in (3, 6):
            a += 1
        yield f(vec(), a)


@case
def array_as_a_mask(compile):
    keep = np.array([True, False, True, True])
    f = compile(lambda x: x[keep.nonzero()[0]] * 2)
    for i in range(9):
        if i in (3, 6):
            keep[i // 3] ^= True
        yield f(vec())


@case
def array_written_inside(compile):
    totals = np.zeros(4)

    @compile
    def f(x):
        totals[:] += x.detach().numpy()
        return x * 2

    for i in range(8):
        yield f(vec(i)), totals


# -- tensors captured ----------------------------------------------------------------------------


@case(replays=True)
def captured_tensor_changed_in_place(compile):
    w = vec()
    f = compile(lambda x: x * w + 1)
    for i in range(9):
        if i in (3, 6):
            w.mul_(2)
        yield f(vec())


@case
def captured_tensor_replaced(compile):
    w = vec()
    f = compile(lambda x: x * w + 1)
    for i in range(9):
        if i in (3, 6):
            w = vec(i)
        yield f(vec())


@case
def captured_tensor_of_another_shape(compile):
    c = Config(vec())
    f = compile(lambda x: x * c.rate + 1)
    for i in range(9):
        c.rate = (vec(), mat(), tg.tensor(2.0))[i // 3]
        yield f(vec())


@case
def captured_tensors_in_a_list(compile):
    ws = [vec(), vec(1)]
    f = compile(lambda x: sum(x * w for w in ws))
    for i in range(9):
        if i == 3:
            ws.append(vec(2))
        elif i == 6:
            ws[0] = vec(5)
        yield f(vec())


@case
def captured_tensor_read_as_a_number(compile):
    rate = tg.tensor(2.0)
    f = compile(lambda x: x * float(rate) + 1)
    for i in range(9):
        if i in (3, 6):
            rate.add_(1)
        yield f(vec())


@case
def shape_of_a_captured_tensor(compile):
    c = Config(vec())
    f = compile(lambda x: x * c.rate.shape[0] + c.rate.ndim)
    for i in range(9):
        c.rate = (vec(), tg.zeros(7), mat())[i // 3]
        yield f(vec())


@case
def clock(compile):
    class Clock:
        seconds = 0.0

        def now(self):
            self.seconds += 0.5
            return self.seconds

    clock = Clock()

    @compile
    def f(x):
        start = clock.now()
        y = x * 2
        return y, clock.now() - start

    for i in range(6):
        yield f(vec(i)), clock.seconds


# -- modes ---------------------------------------------------------------------------------------


@case(replays=True)
def gradients_off_by_a_setting(compile):
    model, c = nn.Linear(4, 4), Config(False)

    @compile
    def f(x):
        with tg.no_grad() if c.rate else contextlib.nullcontext():
            return model(x)

    for i in range(10):
        c.rate = i % 2 == 0
        yield f(mat(i))


@case(replays=True)
def gradients_off_outside(compile):
    model = nn.Linear(4, 4)
    f = compile(model)
    for i in range(10):
        with tg.set_grad_enabled(i % 2 == 0):
            yield f(mat(i))


@case(replays=True)
def grad_mode_is_asked(compile):
    f = compile(lambda x: x * 2 if tg.is_grad_enabled() else x + 1)
    for i in range(10):
        with tg.set_grad_enabled(i % 2 == 0):
            yield f(vec(i))


@case
def grad_mode_is_changed_inside(compile):
    @compile
    def f(x, on):
        tg.set_grad_enabled(on)
        return x * 2

    for i in range(8):
        y = f(vec(i, requires_grad=True), i % 2 == 0)
        seen = y, tg.is_grad_enabled()
        tg.set_grad_enabled(True)
        yield seen


@case(replays=True)
def default_dtype_changed(compile):
    f = compile(lambda x: x * tg.ones(4) + tg.tensor([1.0, 2.0, 3.0, 4.0]))
    for i in range(10):
        tg.set_default_dtype(tg.float64 if i % 2 else tg.float32)
        x = vec(i)
        seen = f(x)
        tg.set_default_dtype(tg.float32)
        yield seen


@case(replays=True)
def autocast_on_and_off(compile):
    model = nn.Linear(4, 4)
    f = compile(lambda x: model(x))
    for i in range(10):
        with tg.autocast("cpu", dtype=tg.bfloat16, enabled=i % 2 == 0):
            y = f(mat(i))
        # Which of two neighbouring numbers of eight bits comes out is not for a compiler to keep.
        yield str(y.dtype), tg.allclose(y.float(), model(mat(i)), atol=0.1)


@case(replays=True)
def requires_grad_switched(compile):
    model = nn.Linear(4, 4)
    f = compile(model)
    for i in range(12):
        model.requires_grad_(i % 4 < 2)
        y = f(mat(i))
        if y.requires_grad:
            y.sum().backward()
        yield y, model
