"""Worlds whose values change between calls: containers, protocols, numbers, what branches ask."""

from __future__ import annotations

import argparse
import collections
import json
import math
import types

import numpy as np
from worlds import TURNS, Config, attempt, case, vec, with_rates

import tapegrad as tg


def with_items(function, holder, key="k", values=TURNS):
    """Calls while an item turns."""
    for value in values:
        holder[key] = value
        yield function(vec())


# -- containers ----------------------------------------------------------------------------------


@case(replays=True)
def item_of_a_dict_in_a_closure(compile):
    c = {"k": 2.0}
    return with_items(compile(lambda x: x * c["k"] + 1), c)


@case(replays=True)
def item_of_a_dict_of_an_object(compile):
    c = Config({"k": 2.0})
    return with_items(compile(lambda x: x * c.rate["k"] + 1), c.rate)


@case(replays=True)
def item_of_nested_containers(compile):
    c = {"a": [1, {"b": (Config({"k": 2.0}),)}]}
    return with_items(
        compile(lambda x: x * c["a"][1]["b"][0].rate["k"] + 1), c["a"][1]["b"][0].rate
    )


@case(replays=True)
def item_of_a_list_of_an_object(compile):
    c = Config([0.0, 2.0])
    return with_items(compile(lambda x: x * c.rate[-1] + 1), c.rate, 1)


@case(replays=True)
def tuple_of_an_object_replaced(compile):
    c = Config((2.0, 1.0))
    f = compile(lambda x: x * c.rate[0] + c.rate[1])
    for rate in TURNS:
        c.rate = (rate, 1.0)
        yield f(vec())


@case(replays=True)
def item_of_a_dict_in_an_argument(compile):
    c, f = {"k": 2.0}, compile(lambda c, x: x * c["k"] + 1)
    return with_items(lambda x: f(c, x), c)


@case
def dict_get_with_a_default(compile):
    c: dict[str, float] = {}
    f = compile(lambda x: x * c.get("k", 1.5) + 1)
    for i in range(9):
        if i == 3:
            c["k"] = 4.0
        elif i == 6:
            del c["k"]
        yield f(vec())


@case
def key_in_a_dict_of_an_object(compile):
    c = Config({})
    f = compile(lambda x: x * 2 if "k" in c.rate else x + 1)
    for i in range(9):
        if i == 3:
            c.rate["k"] = None
        elif i == 6:
            c.rate.clear()
        yield f(vec())


@case
def missing_key_in_try(compile):
    c: dict[str, float] = {}

    @compile
    def f(x):
        try:
            return x * c["k"]
        except KeyError:
            return x + 1

    for i in range(9):
        if i in (3, 6):
            c["k"] = float(i)
        yield f(vec())


@case
def length_of_a_list(compile):
    c = Config([1])
    f = compile(lambda x: x * len(c.rate) + 1)
    for i in range(9):
        if i in (3, 6):
            c.rate.append(i)
        yield f(vec())


@case
def truth_of_a_list(compile):
    c = Config([])
    f = compile(lambda x: x * 2 if c.rate else x + 1)
    for i in range(9):
        if i == 3:
            c.rate.append(1)
        elif i == 6:
            c.rate.pop()
        yield f(vec())


@case
def order_of_a_dict(compile):
    c = {"a": 2.0, "b": 3.0}

    @compile
    def f(x):
        for key in c:
            x = x * c[key] + 1
        return x

    for i in range(8):
        if i in (4, 6):
            c["a"] = c.pop("a")
        if i == 6:
            c["b"] = c.pop("b")
        yield f(vec())


@case
def items_of_a_dict_of_an_object(compile):
    c = Config({"a": 2.0})
    f = compile(lambda x: sum(x * v for k, v in c.rate.items() if k != "skip"))
    for i in range(9):
        if i == 3:
            c.rate["b"] = 3.0
        elif i == 6:
            c.rate["skip"] = 5.0
        yield f(vec())


@case
def members_of_a_set(compile):
    c = Config({"relu"})
    f = compile(lambda x: x.relu() if "relu" in c.rate else x + 1)
    for i in range(9):
        if i == 3:
            c.rate.discard("relu")
        elif i == 6:
            c.rate.add("relu")
        yield f(vec())


@case(replays=True)
def item_of_a_deque(compile):
    c = collections.deque([2.0], maxlen=2)
    f = compile(lambda x: x * c[0] + 1)
    for rate in TURNS:
        c.appendleft(rate)
        yield f(vec())


@case
def item_of_a_default_dict(compile):
    c: dict[str, float] = collections.defaultdict(lambda: 2.0)
    f = compile(lambda x: x * c["k"] + 1)
    for i in range(8):
        if i == 4:
            c["k"] = 3.0
        yield f(vec()), dict(c)


@case(replays=True)
def item_of_an_ordered_dict(compile):
    c = collections.OrderedDict(k=2.0)
    return with_items(compile(lambda x: x * next(iter(c.values())) + 1), c)


@case
def item_of_a_counter(compile):
    c: collections.Counter[str] = collections.Counter()
    f = compile(lambda x: x * c["k"] + 1)
    for i in range(8):
        if i in (3, 6):
            c.update("k")
        yield f(vec())


@case
def item_of_a_chain_of_maps(compile):
    first, second = {}, {"k": 2.0}
    c = collections.ChainMap(first, second)
    f = compile(lambda x: x * c["k"] + 1)
    for i in range(10):
        if i == 3:
            second["k"] = 3.0
        elif i == 6:
            first["k"] = 4.0
        elif i == 8:
            del first["k"]
        yield f(vec())


@case
def item_of_a_mapping_proxy(compile):
    values = {"k": 2.0}
    c = types.MappingProxyType(values)
    f = compile(lambda x: x * c["k"] + 1)
    return with_items(lambda x: f(x), values)


@case(replays=True)
def attribute_of_a_namespace(compile):
    c = argparse.Namespace(rate=2.0, args=types.SimpleNamespace(rate=1.0))
    return with_rates(compile(lambda x: x * c.rate + c.args.rate), c)


@case(replays=True)
def attribute_of_a_namespace_inside(compile):
    c = argparse.Namespace(rate=2.0, args=types.SimpleNamespace(rate=1.0))
    return with_rates(compile(lambda x: x * c.rate + c.args.rate), c.args)


@case
def json_of_a_dict(compile):
    c = {"k": 2.0}
    return with_items(compile(lambda x: x * json.loads(json.dumps(c))["k"] + 1), c)


@case
def sorted_and_largest_of_a_list(compile):
    c = [1.0, 2.0]
    f = compile(lambda x: x * max(c) + sorted(c)[0])
    for rate in TURNS:
        c[0] = rate
        yield f(vec())


@case
def item_of_a_class_with_getitem(compile):
    class Table:
        def __init__(self):
            self.rows = {"k": 2.0}

        def __getitem__(self, key):
            return self.rows[key]

    c = Table()
    return with_items(compile(lambda x: x * c["k"] + 1), c.rows)


@case
def item_of_a_dict_subclass(compile):
    class Dotted(dict):
        __getattr__ = dict.__getitem__

    c = Dotted(k=2.0)
    return with_items(compile(lambda x: x * c.k + 1), c)


# -- protocols -----------------------------------------------------------------------------------


class Value:
    """An object that answers every question with its number."""

    def __init__(self, k):
        self.k = k

    def __len__(self):
        return int(self.k)

    def __iter__(self):
        return iter([self.k, 1.0])

    def __contains__(self, key):
        return key < self.k

    def __eq__(self, other):
        return self.k == other

    def __hash__(self):
        return 0

    def __format__(self, spec):
        return str(self.k)

    def __index__(self):
        return int(self.k)

    def __float__(self):
        return float(self.k)


class Truth(Config):
    def __bool__(self):
        return self.rate > 2.5


def with_values(compile, function):
    """Calls of a function of the number and `x` while the number turns."""
    c = Value(2.0)
    return with_rates(compile(lambda x: function(c, x)), c, "k")


@case
def protocol_len(compile):
    return with_values(compile, lambda c, x: x * len(c) + 1)


@case
def protocol_iter(compile):
    return with_values(compile, lambda c, x: sum(x * v for v in c))


@case
def protocol_unpacking(compile):
    return with_values(compile, lambda c, x: (lambda a, b: x * a + b)(*c))


@case
def protocol_contains(compile):
    return with_values(compile, lambda c, x: x * 2 if 2.5 in c else x + 1)


@case
def protocol_eq(compile):
    return with_values(compile, lambda c, x: x * 2 if c == 2.0 else x + 1)


@case
def protocol_format(compile):
    return with_values(compile, lambda c, x: x * float(f"{c}") + 1)


@case
def protocol_index(compile):
    return with_values(compile, lambda c, x: x * list(range(9))[c] + 1)


@case
def protocol_float(compile):
    return with_values(compile, lambda c, x: x * float(c) + 1)


@case
def protocol_bool(compile):
    c = Truth()
    return with_rates(compile(lambda x: x * 2 if c else x + 1), c)


# -- numbers and their kinds ---------------------------------------------------------------------


def with_each(compile, function, values):
    """Calls while an attribute takes each value three times, and then each once."""
    c = Config()
    f = compile(lambda x: function(c.rate, x))
    for value in [v for v in values for _ in range(3)] + list(values):
        c.rate = value
        yield attempt(f, vec())


@case(replays=True)
def integer_becomes_float(compile):
    whole = tg.tensor([1, 2, 3, 4])
    return with_each(compile, lambda k, x: (whole * k, x * k), (2, 2.0))


@case(replays=True)
def true_becomes_one(compile):
    whole = tg.tensor([True, False])
    return with_each(compile, lambda k, x: (whole * k, x + 1 if k is True else x), (True, 1))


@case(replays=True)
def zero_becomes_negative_zero(compile):
    return with_each(compile, lambda k, x: 1 / (x.abs() * k), (0.0, -0.0))


@case(replays=True)
def zero_and_its_sign_are_asked(compile):
    return with_each(compile, lambda k, x: x * math.copysign(1, k) + 1, (0.0, -0.0))


@case(replays=True)
def not_a_number(compile):
    return with_each(compile, lambda k, x: x * k + 1, (float("nan"), 2.0, float("inf")))


@case(replays=True)
def none_becomes_a_number(compile):
    return with_each(compile, lambda k, x: x if k is None else x * k + 1, (None, 2.0))


@case(replays=True)
def none_is_falsy_like_zero(compile):
    return with_each(compile, lambda k, x: x * (k or 2.0), (None, 0, 3.0))


@case(replays=True)
def string_chooses(compile):
    kinds = {"relu": lambda x: x.relu(), "tanh": lambda x: x.tanh()}
    return with_each(compile, lambda k, x: kinds[k](x), ("relu", "tanh"))


@case(replays=True)
def string_and_its_parts(compile):
    return with_each(
        compile, lambda k, x: x * len(k) if k.startswith("a") else x, ("ab", "abc", "b")
    )


@case(replays=True)
def bytes_are_read(compile):
    return with_each(compile, lambda k, x: x * k[0], (b"\x02", b"\x03"))


@case(replays=True)
def large_integers(compile):
    return with_each(compile, lambda k, x: x * (k % 1000), (10**30 + 2, 10**30 + 3))


@case(replays=True)
def value_of_a_wrong_kind(compile):
    return with_each(compile, lambda k, x: x * k + 1, (2.0, "a", 3.0))


@case(replays=True)
def two_values_in_turn(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for i in range(12):
        c.rate = float(i % 2)
        yield f(vec(i))


@case
def values_that_never_repeat(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for i in range(40):
        c.rate = i / 10
        yield f(vec())


@case
def annealed_by_a_factor(compile):
    c = Config(1.0)
    f = compile(lambda x: x * c.rate + 1)
    for _ in range(12):
        c.rate *= 0.9
        yield f(vec())


@case
def argument_that_never_repeats(compile):
    f = compile(lambda x, k: x * k + 1)
    for i in range(40):
        yield f(vec(), i / 10)


@case(replays=True)
def arguments_in_turn(compile):
    f = compile(lambda x, k, flag=False: x * k + 1 if flag else x - k)
    for i in range(10):
        yield f(vec(i), 2.0 + i % 2, flag=i % 2 == 0)


@case(replays=True)
def numpy_number(compile):
    return with_each(compile, lambda k, x: x * k + 1, (np.float32(2), np.float64(3)))


@case(replays=True)
def dtype_in_an_attribute(compile):
    return with_each(compile, lambda k, x: x.to(k) * 2, (tg.float64, tg.float32))


@case(replays=True)
def shape_in_an_attribute(compile):
    return with_each(compile, lambda k, x: x.reshape(k) * 2 + 1, ((2, 2), (4, 1)))


@case(replays=True)
def slice_in_an_attribute(compile):
    return with_each(compile, lambda k, x: x[k] * 2, (slice(0, 2), slice(2, 4), 1))


# -- branches ------------------------------------------------------------------------------------


@case(replays=True)
def match_statement(compile):
    def choose(k, x):
        match k:
            case {"kind": "scale", "by": by}:
                return x * by
            case [a, b]:
                return x * a + b
            case _:
                return x + 1

    values = ({"kind": "scale", "by": 2.0}, [2.0, 1.0], None, {"kind": "scale", "by": 3.0})
    return with_each(compile, choose, values)


@case(replays=True)
def while_loop_with_a_bound(compile):
    def loop(k, x):
        i = 0
        while i < k:
            x, i = x * 2 + 1, i + 1
        return x

    return with_each(compile, loop, (1, 3))


@case(replays=True)
def range_of_an_attribute(compile):
    return with_each(compile, lambda k, x: sum(x * i for i in range(k)), (2, 3))


@case(replays=True)
def walrus(compile):
    return with_each(compile, lambda k, x: x * n if (n := k - 2) else x + 1, (2, 3))


@case(replays=True)
def early_return(compile):
    def f(k, x):
        x = x * 2 + 1
        if k == "raw":
            return x
        x = x * 2 + 1
        return x - 1 if k == "shifted" else x

    return with_each(compile, f, ("raw", "shifted", "full"))


@case
def assertion_on_a_setting(compile):
    def f(k, x):
        assert k > 0, "must be positive"
        return x * k + 1

    return with_each(compile, f, (2.0, -1.0))


@case
def branch_on_a_tensor(compile):
    f = compile(lambda x: x * 2 if x.sum() > 0 else x + 1)
    for i in range(8):
        yield f(vec() * (1 if i in (1, 2, 5) else -1))


@case
def item_of_a_tensor(compile):
    f = compile(lambda x: x * x[0].item() + 1)
    for i in range(8):
        yield f(vec(i))


@case
def boolean_mask_decides_a_shape(compile):
    f = compile(lambda x: x[x > 0] * 2)
    for i in range(8):
        yield f(vec(i))
