"""Tensors in lists, views in attributes, tensors that are swapped."""

from __future__ import annotations

from worlds import Config, case, mat, vec

import tapegrad as tg


@case
def one_item_of_a_list_stored_and_the_others_changed(compile):
    c = Config([vec(4), vec(5), 1])

    def f(x):
        c.rate[0] = x * 2
        return x

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.rate[1] = vec(7)
        if i == 6:
            c.rate[2] = 5
        if i == 7:
            c.rate.append(9)
        yield g(vec(i)), list(c.rate)


@case
def states_of_layers_in_a_list(compile):
    w = mat(1)
    c = Config([tg.zeros(4), tg.zeros(4)])

    def f(x):
        c.rate[0] = tg.tanh(w @ c.rate[0] + x)
        c.rate[1] = tg.tanh(w @ c.rate[1] + c.rate[0])
        return c.rate[1]

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.rate[1] = tg.ones(4)
        if i == 8:
            c.rate[:] = [tg.zeros(4), tg.zeros(4)]
        yield g(vec(i)), list(c.rate)


@case
def states_of_layers_in_a_loop(compile):
    w = mat(1)
    c = Config([tg.zeros(4), tg.zeros(4)])

    def f(x):
        for i, h in enumerate(c.rate):
            x = tg.tanh(w @ h + x)
            c.rate[i] = x
        return x

    g = compile(f)
    for i in range(12):
        if i == 5:
            c.rate[1] = tg.ones(4)
        if i == 8:
            c.rate = [tg.zeros(4), tg.zeros(4)]
        yield g(vec(i)), list(c.rate)


@case
def one_item_of_an_argument_list_stored(compile):
    def f(x, states):
        states[0] = x * 2
        return x

    g = compile(f)
    for i in range(9):
        states = [vec(i), vec(i + 1), i // 4]
        yield g(vec(i), states), states


@case
def view_in_an_attribute_replaced_by_another_view(compile):
    c = Config()
    c.base = tg.arange(6.0)
    c.v = c.base[1:3]

    def f(x):
        c.v.copy_(x[:2])
        return x * 2

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.v = c.base[:2]
        if i == 7:
            c.v = c.base[4:]
        yield g(vec(i)), c.base


@case
def view_in_an_attribute_read_and_replaced(compile):
    c = Config()
    c.base = tg.arange(6.0)
    c.v = c.base[1:3]

    def f(x):
        return x[:2] * c.v

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.v = c.base[:2]
        if i == 7:
            c.v = c.base[4:]
        yield g(vec(i))


@case
def view_of_another_base_put_in_its_place(compile):
    c = Config()
    a, b = tg.arange(6.0), tg.arange(6.0) * 10
    c.v = a[1:3]

    def f(x):
        c.v.mul_(2)
        return x[:2] * c.v

    g = compile(f)
    for i in range(9):
        if i == 4:
            c.v = b[1:3]
        if i == 7:
            c.v = a[1:3]
        yield g(vec(i)), a, b


@case
def row_of_a_table_chosen_outside(compile):
    table = mat(1)
    c = Config(table[0])

    def f(x):
        c.rate.mul_(0.5)
        return x + c.rate

    g = compile(f)
    for i in range(12):
        c.rate = table[i % 3]
        yield g(vec(i)), table


@case
def object_stored_is_the_one_of_now(compile):
    c = Config(Config(2.0))
    d = {}

    def f(x):
        d["o"] = c.rate
        return x * c.rate.rate

    g = compile(f)
    for i in range(9):
        if i > 3:
            c.rate = Config(2.0)
        yield g(vec(i)), d["o"] is c.rate


@case
def argument_is_the_tensor_that_was_put_in_a_place(compile):
    c = Config(vec(1))

    def f(x):
        c.rate.add_(x)
        c.rate.add_(x)
        return c.rate * 1

    g = compile(f)
    for i in range(12):
        c.rate = vec(i)
        yield g(c.rate if i in (6, 9) else vec(1)), c.rate


@case
def argument_is_a_view_of_a_tensor_that_moves(compile):
    c = Config(vec(1))
    c.b = vec(2)

    def f(x):
        c.rate.mul_(0.5)
        c.rate = c.b
        c.rate.add_(x)
        return x * 2

    g = compile(f)
    for i in range(12):
        yield g(c.b[:] if i in (7, 9) else vec(i)), c.rate, c.b


@case
def tensors_of_two_shapes_swapped_inside(compile):
    c = Config(tg.arange(4.0))
    c.b = tg.arange(6.0)

    def f(x):
        c.rate, c.b = c.b, c.rate
        return c.rate.sum() + x

    g = compile(f)
    for i in range(12):
        yield g(vec(i)), c.rate, c.b


@case
def tensors_of_two_shapes_swapped_inside_later(compile):
    c = Config(tg.arange(4.0))
    c.b = tg.arange(4.0) * 2

    def f(x):
        c.rate, c.b = c.b, c.rate
        c.rate.mul_(0.5)
        return c.rate.sum() + x

    g = compile(f)
    for i in range(14):
        if i == 7:
            c.b = tg.arange(6.0)
        yield g(vec(i)), c.rate, c.b
