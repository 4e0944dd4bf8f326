"""Counters and logs inside of compiled functions, and what code asks of them."""

from __future__ import annotations

import collections

from worlds import Config, attempt, case, network, vec

import tapegrad as tg
from tapegrad import nn


def counting(name, body, *, calls=24, outside=None, replays=False, **attributes):
    """Calls of a function with a counter `c.n`, which may be changed between them."""

    def program(compile):
        c = Config()
        c.n = 0
        c.log = []
        for key, value in attributes.items():
            setattr(c, key, list(value) if isinstance(value, list) else value)
        f = compile(lambda x: body(c, x))
        for i in range(calls):
            if outside is not None:
                outside(c, i)
            yield attempt(f, vec(i % 3)), c.n, [getattr(v, "tolist", v.__repr__)() for v in c.log]

    program.__name__ = f"counter_{name}"
    case(program, replays=replays)


def every_third(c, x):
    c.n += 1
    return x * 2 if c.n % 3 == 0 else x


def every_third_before(c, x):
    y = x * 2 if c.n % 3 == 0 else x
    c.n += 1
    return y


def log_every_third(c, x):
    c.n += 1
    if c.n % 3 == 0:
        c.log.append(x.sum())
    return x


def every_so_often(c, x):
    c.n += 1
    return x * 2 if (c.n + 1) % c.every == 0 else x


def warm_up(c, x):
    c.n += 1
    return x * 0.5 if c.n < 5 else x


def in_phases(c, x):
    c.n += 1
    return x * (c.n // 6)


def in_turns(c, x):
    y = x * [1.0, 2.0, 3.0][c.n % 3]
    c.n += 1
    return y


def truth(c, x):
    y = x * 2 if c.n else x
    c.n += 1
    return y


def twice(c, x):
    c.n += 1
    y = x * 2 if c.n % 4 == 0 else x
    c.n += 1
    return y + 1 if c.n % 4 == 0 else y


def by_five(c, x):
    c.n += 5
    return x * 2 if c.n % 3 == 0 else x


def up_and_down(c, x):
    c.n += 3
    y = x * 2 if c.n % 2 == 0 else x
    c.n -= 2
    return y


def by_a_negative_amount(c, x):
    c.n += c.step
    return x * 2 if c.n % 3 == 0 else x


def reset(c, x):
    c.n += 1
    if c.n == 4:
        c.n = 0
    return x * 2 if c.n % 2 == 0 else x


def reset_by_a_flag(c, x):
    c.n += 1
    if c.flag:
        c.n = 0
    return x


def in_a_loop(c, x):
    while c.n % 5 != 4:
        c.n += 1
        x = x + 1
    c.n += 1
    return x


def many_steps(c, x):
    for _ in range(100):
        c.n += 1
    return x * 2 if c.n % 7 == 0 else x


def read_too(c, x):
    c.n += 1
    return x * c.n if c.n % 2 == 0 else x


def total_of_the_counter(c, x):
    c.n += 1
    c.total += c.n
    return x if c.n % 2 == 0 else x * 2


def only_counted(c, x):
    c.n += 1
    return x * 2


def shown(c, x):
    c.n += 1
    c.log[:] = [f"{c.n % 3}"]
    return x


counting("every_third", every_third, replays=True)
counting("every_third_before", every_third_before, replays=True)
counting("log_every_third", log_every_third, replays=True)
counting("every_so_often", every_so_often, every=4, replays=True)
counting("warm_up", warm_up, replays=True)
counting("in_phases", in_phases, replays=True)
counting("in_turns", in_turns, replays=True)
counting("truth", truth, replays=True)
counting("twice", twice, replays=True)
counting("by_five", by_five, replays=True)
counting("up_and_down", up_and_down)
counting("by_a_negative_amount", by_a_negative_amount, step=-2)
counting("reset", reset)
counting("reset_by_a_flag", reset_by_a_flag, flag=False)
counting("in_a_loop", in_a_loop, calls=14)
counting("many_steps", many_steps, calls=12)
counting("read_too", read_too)
counting("total", total_of_the_counter, total=0)
counting("only", only_counted, replays=True)
counting("shown", shown)


def set_flag(c, i):
    c.flag = i % 5 == 4
    if i in (7, 8, 9):
        c.n += 3


def set_every(c, i):
    c.every = 4 if i < 12 else 3


def drop_every(c, i):
    if i == 9:
        del c.every
    if i == 14:
        c.every = 0


def set_kind(c, i):
    if i in (8, 13, 16, 19):
        c.n = {8: 2.0, 13: True, 16: 5, 19: 7.5}[i]


def set_back(c, i):
    if i % 7 == 6:
        c.n = 0


counting("reset_by_a_flag_that_changes", reset_by_a_flag, flag=False, outside=set_flag)
counting("every_that_changes", every_so_often, every=4, outside=set_every)
counting("every_that_is_gone", every_so_often, every=4, outside=drop_every)
counting("of_other_kinds", every_third, outside=set_kind)
counting("set_back", every_third, outside=set_back, replays=True)
counting("warm_up_set_back", warm_up, outside=set_back, replays=True)


@case(replays=True)
def counter_that_is_set_outside(compile):
    c = Config()
    f = compile(lambda x: x * 2 if c.epoch % 2 == 0 else x)
    for i in range(14):
        c.epoch = i
        yield f(vec(i))


@case(replays=True)
def counter_in_a_closure_that_is_asked(compile):
    n = 0

    @compile
    def f(x):
        nonlocal n
        n += 1
        return x * 2 if n % 2 == 0 else x

    for i in range(14):
        yield f(vec(i)), n


@case
def counter_in_slots_that_is_asked(compile):
    class Slots:
        __slots__ = ("every", "n")

    c = Slots()
    c.n, c.every = 0, 2

    @compile
    def f(x):
        c.n += 1
        y = x + 1 if c.n % c.every == 0 else x
        return y * 2 if c.n % 2 == 0 else y

    for i in range(14):
        c.every = 2 if i < 9 else 3
        yield f(vec(i)), c.n


@case
def counter_every_of_the_class(compile):
    class Trainer:
        every = 3

        def __init__(self):
            self.n = 0

        def step(self, x):
            self.n += 1
            return x * 2 if self.n % self.every == 0 else x

    c = Trainer()
    f = compile(c.step)
    for i in range(16):
        Trainer.every = 3 if i < 9 else 2
        yield f(vec(i)), c.n


@case
def counters_of_one_name(compile):
    """Two objects count under one name, and one of them is asked."""
    a, b = Config(), Config()
    a.n = b.n = 0

    @compile
    def f(x):
        a.n += 1
        b.n += 2
        return x * 2 if b.n % 3 == 0 else x

    for i in range(16):
        if i == 9:
            b.n += 1
        yield f(vec(i)), a.n, b.n


@case(replays=True)
def accumulation_with_an_if(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    c = Config()
    c.n, c.every = 0, 2

    @compile
    def step(x):
        loss = model(x).pow(2).mean() / c.every
        loss.backward()
        c.n += 1
        if c.n % c.every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    for i in range(16):
        yield step(vec(i).double()), model, c.n


@case(replays=True)
def average_every_few_steps(compile):
    model = network()
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    class Trainer:
        def __init__(self):
            self.steps = 0

        def step(self, x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            self.steps += 1
            if self.steps % 3 == 0:
                with tg.no_grad():
                    for a, p in zip(average, model.parameters(), strict=True):
                        a.lerp_(p, 0.1)
            return loss

    trainer = Trainer()
    step = compile(trainer.step)
    for i in range(16):
        yield step(vec(i).double()), average, trainer.steps


# -- logs ----------------------------------------------------------------------------------------


def logging(name, new, body, replays=True):
    def program(compile):
        c = Config()
        c.log = new()
        f = compile(lambda x: body(c, x))
        for i in range(12):
            yield f(vec(i)), c.log

    program.__name__ = f"log_{name}"
    case(program, replays=replays)


def by_another_name(c, x):
    log = c.log
    log.append(x.sum())
    return x * 2


def by_another_name_and_read(c, x):
    log = c.log
    log.append(x.sum())
    return x * len(log)


def by_another_name_in_a_branch(c, x):
    log = c.log
    if x.shape[0] > 2:
        log.append(x.sum())
    else:
        log = []
    log.extend([x.mean()])
    return x


def extended(c, x):
    c.log.extend([x.sum(), x.mean()])
    return x * 2


def joined(c, x):
    c.log += [x.sum()]
    return x * 2


def joined_with_itself(c, x):
    c.log += c.log[-1:]
    c.log.append(x.sum())
    return x * 2


def with_a_default(c, x):
    c.log.setdefault("loss", []).append(x.sum())
    return x * 2


def with_a_default_that_counts(c, x):
    c.log.setdefault("loss", [x]).append(x.sum())
    return x * 2


def counted_in_a_dict(c, x):
    c.log["n"] += 1
    return x * 2


def counted_and_reset(c, x):
    c.log["n"] += 1
    if c.log["n"] == 5:
        c.log["n"] = 0
    return x * 2


def counted_and_set(c, x):
    c.log["n"] += 1
    c.log["m"] = c.log["n"]
    return x * 2


def listed(c, x):
    c.log["loss"].append(x.sum())
    return x * 2


logging("by_another_name", list, by_another_name)
logging("by_another_name_and_read", list, by_another_name_and_read, replays=False)
logging("by_another_name_in_a_branch", list, by_another_name_in_a_branch)
logging("extended", list, extended)
logging("joined", list, joined)
logging("joined_with_itself", list, joined_with_itself, replays=False)
logging("with_a_default", dict, with_a_default)
logging("with_a_default_that_counts", dict, with_a_default_that_counts, replays=False)
logging("counter", collections.Counter, counted_in_a_dict)
logging("defaultdict", lambda: collections.defaultdict(int), counted_in_a_dict)
logging("ordered", lambda: collections.OrderedDict(n=0), counted_in_a_dict)
logging("counted_and_reset", lambda: {"n": 0}, counted_and_reset, replays=False)
logging("counted_and_set", lambda: {"n": 0}, counted_and_set, replays=False)
logging("lists_by_default", lambda: collections.defaultdict(list), listed)


@case
def log_counter_set_by_a_flag(compile):
    d = {"n": 0}
    c = Config()

    @compile
    def f(x):
        d["n"] += 1
        if c.rate:
            d["n"] = 0
        return x

    for i in range(24):
        c.rate = i % 5 == 4
        f(vec())
        if i in (7, 8, 9):
            d["n"] += 3
        yield dict(d)


@case(replays=True)
def module_that_counts_its_calls(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2 if self.calls % 2 else x

    model = Model()
    f = compile(lambda x: model(x))
    for i in range(14):
        yield f(vec(i)), model.calls
