"""Worlds of arguments in memory: views, overlaps, results that come back."""

from __future__ import annotations

from worlds import Config, case, mat, vec

import tapegrad as tg
from tapegrad import nn


def rows():
    """Thirty-two numbers in eight rows."""
    return tg.arange(32).float().reshape(8, 4)


# -- views as arguments --------------------------------------------------------------------------


@case(replays=True)
def slices_of_one_tensor(compile):
    data = tg.arange(32).float()
    f = compile(lambda x: x * 2 + 1)
    for i in range(8):
        yield f(data[4 * i : 4 * i + 4])


@case(replays=True)
def rows_of_one_tensor(compile):
    data, f = rows(), compile(lambda x: x * 2 + 1)
    for i in range(8):
        yield f(data[i])


@case
def slices_with_other_steps(compile):
    data, f = tg.arange(64).float(), compile(lambda x: x * 2 + 1)
    for i in range(9):
        step = (1, 2, 3)[i % 3]
        yield f(data[i : i + 4 * step : step])


@case
def transposed_in_turn(compile):
    f = compile(lambda x: x * 2 + x[0])
    for i in range(10):
        yield f(mat(i).T if i % 2 else mat(i))


@case
def columns_of_one_tensor(compile):
    data, f = mat(), compile(lambda x: (x * 2).cumsum(0))
    for i in range(8):
        yield f(data[:, i % 4])


@case(replays=True)
def expanded_argument(compile):
    f = compile(lambda x: x * 2 + 1)
    for i in range(8):
        yield f(tg.tensor([float(i)]).expand(4))


@case
def expanded_and_whole_in_turn(compile):
    f = compile(lambda x: (x * 2).sum(0))
    for i in range(10):
        yield f(vec(i).expand(4, 4) if i % 2 else mat(i))


@case
def rows_written_to(compile):
    data = tg.zeros(8, 4)

    @compile
    def f(row, x):
        row.copy_(x * 2)

    for i in range(8):
        f(data[i], vec(i))
        yield data


@case
def rows_of_two_tensors_written_to(compile):
    a, b = tg.zeros(4, 4), tg.ones(4, 4)

    @compile
    def f(row, x):
        row += x
        return row.sum()

    for i in range(8):
        yield f((a if i % 2 else b)[i // 2], vec(i)), a, b


@case
def cache_written_at_a_position(compile):
    data = tg.zeros(8, 4)

    @compile
    def f(x, position):
        data[position] = x * 2
        return data.sum(0)

    for i in range(8):
        yield f(vec(i), i), data


@case
def cache_written_at_a_position_in_a_tensor(compile):
    data = tg.zeros(8, 4)

    @compile
    def f(x, position):
        data.index_copy_(0, position, (x * 2).unsqueeze(0))
        return data.sum(0)

    for i in range(8):
        yield f(vec(i), tg.tensor([i])), data


@case
def transposed_view_written_to(compile):
    data = tg.zeros(4, 4)

    @compile
    def f(view, x):
        view[0].add_(x)
        return view.sum(1)

    for i in range(10):
        yield f(data.T if i % 2 else data, vec(i)), data


@case
def detached_view_written_to(compile):
    data = tg.zeros(8)

    @compile
    def f(x):
        x.detach().add_(1)
        return x * 2

    for i in range(8):
        yield f(data[4:] if i % 2 else data[:4]), data


@case
def view_of_a_view_written_to(compile):
    data = rows()

    @compile
    def f(x):
        x[1:3].mul_(2)
        x[0] = 5.0
        return x * 2

    for i in range(8):
        yield f(data[i]), data


# -- overlapping arguments -----------------------------------------------------------------------


@case(replays=True)
def same_tensor_twice(compile):
    f = compile(lambda x, y: x * 2 + y)
    for i in range(10):
        x = vec(i)
        yield f(x, x if i % 2 else vec())


@case
def same_tensor_twice_written_to(compile):
    @compile
    def f(x, y):
        x.add_(1)
        return x * y

    for i in range(10):
        x = vec(i)
        yield f(x, x if i % 2 else vec()), x


@case
def overlapping_slices_written_to(compile):
    @compile
    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    for i in range(12):
        data, k = tg.arange(12).float(), (0, 2, 4, 6)[i % 4]
        yield f(data[:4], data[k : k + 4]), data


@case
def matrix_and_its_transpose(compile):
    @compile
    def f(x, y):
        x[0].add_(1)
        return x * 2 + y

    for i in range(10):
        x = mat(i)
        yield f(x, x.T if i % 2 else mat(9)), x


@case
def tensor_and_its_row(compile):
    @compile
    def f(x, row):
        row.mul_(2)
        return x.sum(0)

    for i in range(9):
        x = mat(i)
        yield f(x, x[i % 3]), x


@case
def slices_that_only_share_a_base(compile):
    @compile
    def f(x, y):
        x.add_(y)
        return x * 2

    for i in range(10):
        data = tg.arange(8).float()
        yield f(data[:4], data[4:] if i % 2 else vec()), data


@case
def argument_that_is_captured_too(compile):
    b = vec()

    @compile
    def f(x):
        x.add_(1)
        return x + b

    for i in range(9):
        yield f(b if i in (0, 1, 2, 6) else vec(i)), b


@case
def argument_that_is_a_view_of_a_captured_tensor(compile):
    w = mat()

    @compile
    def f(row):
        row.add_(1)
        return w.sum(0) * 2

    for i in range(9):
        yield f(vec(i) if i in (3, 4, 5) else w[i % 4]), w


@case
def argument_that_is_a_view_of_a_parameter(compile):
    model = nn.Linear(4, 4)
    f = compile(lambda x: model(x).sum())
    for i in range(9):
        model.zero_grad()
        f(mat(i) if i in (3, 4) else model.weight[1:3]).backward()
        yield model


@case
def argument_that_is_the_parameter(compile):
    model = nn.Linear(4, 4)

    @compile
    def f(p, x):
        with tg.no_grad():
            p.mul_(0.5)
        return model(x)

    for i in range(9):
        yield f(mat(8) if i in (3, 4) else model.weight, mat(i)), model


@case
def captured_view_of_a_tensor_that_changes(compile):
    base = mat()
    c = Config(base[1])
    f = compile(lambda x: x * c.rate + 1)
    for i in range(10):
        if i % 2:
            base.add_(1)
        if i == 5:
            base = mat(7)
            c.rate = base[2]
        yield f(vec())


@case
def view_made_inside_of_a_base_that_is_replaced(compile):
    c = Config(mat())
    f = compile(lambda x: x * c.rate[1] + 1)
    for i in range(10):
        if i in (4, 7):
            c.rate = mat(i)
        c.rate[1].add_(1)
        yield f(vec())


@case
def out_of_one_call_into_the_next(compile):
    f = compile(lambda h, x: tg.tanh(h * 0.5 + x))
    h = tg.zeros(4)
    for i in range(8):
        h = f(h, vec(i))
        yield h


@case
def view_of_a_result_into_the_next(compile):
    f = compile(lambda h, x: h * 0.5 + x)
    h = tg.zeros(4)
    for i in range(8):
        h = f(h, mat(i))[i % 4]
        yield h
