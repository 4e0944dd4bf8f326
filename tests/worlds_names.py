"""What a recording believes of names: counters, containers, modules."""

from __future__ import annotations

import collections

from worlds import TURNS, Config, attempt, case, vec


def turning(name, make):
    """Register a case: `make` gives a function and how to set the number that it reads."""

    def program(compile):
        f, put = make()
        g = compile(f)
        try:
            for rate in TURNS:
                put(rate)
                yield attempt(g, vec())
        finally:
            put(2.0)

    program.__name__ = name
    case(program)


# -- numbers changed in place --------------------------------------------------------------------

SIGNS = {
    "multiplied": "*=",
    "toggled": "^=",
    "shifted": "<<=",
    "reduced": "%=",
    "divided": "//=",
    "masked": "&=",
    "lowered": "-=",
    "joined": "|=",
    "raised": "**=",
}


def counters(name, target):
    """Register functions that change a number in place, one for each operator."""
    for what, sign in SIGNS.items():
        source = f"def f(x):\n    {target} {sign} 3\n    return x * 2\n"

        def program(compile, source=source):
            holder, items = Config(5), {"n": 5}
            names = {"holder": holder, "items": items}
            exec(source, names)
            f = compile(names["f"])
            for i in range(9):
                if i == 6:
                    holder.rate = items["n"] = 11
                yield f(vec()), holder.rate, items["n"]

        program.__name__ = f"{name}_{what}"
        case(program)


counters("attribute", "holder.rate")
counters("item", 'items["n"]')


@case
def stored_true_reset_outside(compile):
    c = Config()
    c.done = False

    def f(x):
        c.done = True
        return x * 2

    g = compile(f)
    for i in range(8):
        if i in (4, 6):
            c.done = False
        yield g(vec()), c.done


@case
def item_stored_constant_reset_outside(compile):
    d = {"n": 0, "s": "a"}

    def f(x):
        d["n"] = 5
        d["s"] = "b"
        return x * 2

    g = compile(f)
    for i in range(8):
        if i in (4, 6):
            d["n"] = 1
            d["s"] = "c"
        yield g(vec()), d


@case
def stored_same_tensor_reset_outside(compile):
    c = Config()
    c.w = vec(1)
    c.last = None

    def f(x):
        c.last = c.w
        return x * c.w

    g = compile(f)
    for i in range(8):
        if i in (4, 6):
            c.last = None
        yield g(vec()), c.last is c.w


@case
def item_stored_same_tensor_reset_outside(compile):
    w = vec(1)
    d = {"last": None}

    def f(x):
        d["last"] = w
        return x * w

    g = compile(f)
    for i in range(8):
        if i in (4, 6):
            d["last"] = None
        yield g(vec()), d["last"] is w


@case
def append_to_a_list_in_a_list(compile):
    c = Config()
    c.lists = [[], []]

    def f(x):
        y = x * 2
        c.lists[0].append(y)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.lists


@case
def append_to_a_list_in_a_tuple(compile):
    c = Config()
    c.lists = ([], [])

    def f(x):
        y = x * 2
        c.lists[0].append(y)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.lists


@case
def store_in_a_dict_in_a_list(compile):
    c = Config()
    c.lists = [{}, {}]

    def f(x):
        y = x * 2
        c.lists[1]["h"] = y
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.lists


@case
def append_of_an_object_in_a_dict(compile):
    class Log:
        def __init__(self):
            self.count = 0
            self.scale = 2.0
            self.items = []

        def append(self, y):
            self.count += 1
            self.items.append(y * self.scale)

    c = Config()
    c.logs = {"a": Log()}

    def f(x):
        y = x * 2
        c.logs["a"].append(y)
        return y

    g = compile(f)
    for i, r in enumerate(TURNS):
        c.logs["a"].scale = r
        yield g(vec(i)), c.logs["a"]


@case
def append_of_an_object_in_a_list(compile):
    class Log:
        def __init__(self):
            self.scale = 2.0

        def append(self, y):
            return y * self.scale

    logs = [Log()]

    def f(x):
        return logs[0].append(x)

    g = compile(f)
    for i, r in enumerate(TURNS):
        logs[0].scale = r
        yield g(vec(i))


@case
def setitem_of_an_object_in_a_dict(compile):
    class Log:
        def __init__(self):
            self.scale = 2.0
            self.d = {}

        def __setitem__(self, k, v):
            self.d[k] = v * self.scale

    logs = {"a": Log()}

    def f(x):
        logs["a"]["h"] = x
        return x * 2

    g = compile(f)
    for i, r in enumerate(TURNS):
        logs["a"].scale = r
        yield g(vec(i)), logs["a"].d


@case
def two_names_of_one_list(compile):
    c = Config()
    c.a = []
    c.b = c.a

    def f(x):
        y = x * 2
        c.a.append(y)
        c.b.append(y + 1)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.a


@case
def two_names_of_one_list_and_one_used(compile):
    c = Config()
    c.a = []
    c.b = c.a

    def f(x):
        y = x * 2
        c.a.append(y)
        if x is None:
            c.b.append(y + 1)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.a


@case
def two_names_of_one_dict_counted(compile):
    c = Config()
    c.a = {"n": 0}
    c.b = c.a

    def f(x):
        c.a["n"] += 1
        c.b["n"] += 1
        return x * 2

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.a


@case
def two_keys_of_one_list(compile):
    shared = []
    d = {"a": shared, "b": shared}

    def f(x):
        d["a"].append(x * 2)
        d["b"].append(x * 3)
        return x * 2

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), d


@case
def argument_that_is_a_collected_list(compile):
    log = []

    def f(x, out):
        y = x * 2
        out.append(y)
        log.append(y + 1)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i), log if i % 2 else []), list(log)
        log.clear()


@case
def default_dict_key_deleted_outside(compile):
    d = collections.defaultdict(lambda: 7.0)
    d["a"] = 3.0

    def f(x):
        return x * (d.get("a", 5.0))

    g = compile(f)
    for i in range(9):
        if i == 4:
            del d["a"]
        if i == 7:
            d["a"] = 3.0
        yield g(vec()), dict(d)


@case
def default_dict_key_deleted_outside_attribute(compile):
    c = Config()
    c.d = collections.defaultdict(lambda: 7.0, a=3.0)

    def f(x):
        return x * (c.d.get("a", 5.0))

    g = compile(f)
    for i in range(9):
        if i == 4:
            del c.d["a"]
        if i == 7:
            c.d["a"] = 3.0
        yield g(vec()), dict(c.d)


@case
def default_dict_read_creates_the_key(compile):
    c = Config()
    c.d = collections.defaultdict(lambda: 7.0)

    def f(x):
        return x * c.d["a"]

    g = compile(f)
    for i in range(9):
        if i in (4, 6):
            c.d.clear()
        yield g(vec()), dict(c.d)


@case
def missing_of_a_dict_subclass_counts(compile):
    class D(dict):
        calls = 0

        def __missing__(self, k):
            D.calls += 1
            return 4.0

    d = D(a=2.0)

    def f(x):
        return x * d["a"]

    g = compile(f)
    for i in range(9):
        if i == 5:
            del d["a"]
        yield g(vec()), D.calls
