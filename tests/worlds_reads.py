"""Values of tensors that are read, draws, and objects that are returned."""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import functools
import io
import pickle
import random
import threading
import weakref

import numpy as np
from worlds import Config, attempt, case, vec

import tapegrad as tg
from tapegrad import nn

F = nn.functional


def reading(name, f, **options):
    """Register a case: a function whose argument stays the same at first, and changes then."""

    def program(compile):
        g = compile(f)
        for i in (0, 0, 0, 0, 1, 1, 2, 0):
            yield attempt(g, vec(i, **options))

    program.__name__ = f"value_read_by_{name}"
    case(program)


def square(x):
    return x * x


POOL = concurrent.futures.ThreadPoolExecutor(1)


POOL.submit(int).result()


reading("a_pool", lambda x: POOL.submit(square, x).result() + 1)


reading("a_map_of_a_pool", lambda x: next(POOL.map(square, [x])) + 1)


def by_thread(x):
    out = []
    t = threading.Thread(target=lambda: out.append(x * 2))
    t.start()
    t.join()
    return out[0] + 1


reading("a_thread", by_thread)


reading("tolist", lambda x: x * x.tolist()[0])


reading("ufunc", lambda x: x * tg.tensor(np.asarray(np.sin(x))))


reading("repr", lambda x: x * len(repr(x * x[0])))


reading("format_of_a_tensor", lambda x: x * float(format(x[0], ".3f")))


reading("equal", lambda x: x * (2.0 if tg.equal(x, vec(0)) else 3.0))


reading("contains", lambda x: x * (2.0 if 1.0 in x else 3.0))


reading("index", lambda x: x * [5.0, 6.0, 7.0, 8.0][x[0].long() % 4])


reading("pickle", lambda x: pickle.loads(pickle.dumps(x)) * 2)


reading("deepcopy", lambda x: copy.deepcopy(x) * 2)


reading("copy", lambda x: copy.copy(x) * 2)


reading("save", lambda x: (lambda b: (tg.save(x, b), b.seek(0), tg.load(b)))(io.BytesIO())[2] * 2)


reading("iteration", lambda x: sum(v * i for i, v in enumerate(x)))


reading("sorting_in_python", lambda x: sorted(x, key=float)[0] * 2)


reading("nonzero", lambda x: (x > 1).nonzero().float().sum())


reading("unique", lambda x: tg.unique(x.round()).sum())


reading("data", lambda x: x.data * 2)


reading("tensor_of_a_tensor", lambda x: tg.tensor(x) * 2)


reading("tensor_of_a_list", lambda x: tg.tensor([x[0], x[3]]) * 2)


reading("as_tensor", lambda x: tg.as_tensor(x) * 2)


reading("argmax_index", lambda x: x[x.argmax()])


reading("argmax_item", lambda x: x[int(x.argmax())])


reading("slice_of_a_tensor", lambda x: x[: x[0].long()].sum())


reading("memoryview", lambda x: x * memoryview(x.numpy())[0])


reading("buffer", lambda x: x * np.frombuffer(x.numpy().tobytes(), np.float32)[0])


reading("dlpack", lambda x: tg.tensor(np.from_dlpack(x)) * 2)


reading("chained_comparison", lambda x: x * (2.0 if 0 < x[0] < 1.5 else 3.0))


reading(
    "grad_norm", lambda x: nn.utils.clip_grad_norm_([x], 1.0) * 1 if x.grad is not None else x * 2
)


reading("storage_offset", lambda x: x * float(x[1:].storage_offset()))


reading("stride", lambda x: x * float(x.stride(0)))


reading("bincount", lambda x: tg.bincount(x.long().abs()).sum())


reading("repeat_interleave", lambda x: tg.repeat_interleave(x, x.long().abs()).sum())


reading("one_hot", lambda x: F.one_hot(x.long().abs()).sum())


reading("split_by_values", lambda x: x.split([int(x[0]), 4 - int(x[0])])[0].sum())


reading("item_of_a_constant", lambda x: x * tg.ones(3).sum().item())


reading(
    "hook_with_item",
    lambda x: (x.register_hook(lambda g: g * 2), (x * x).sum())[1],
    requires_grad=True,
)


# -- draws of other kinds
@case
def seed_taken_from_the_library(compile):
    def f(x):
        return x * tg.rand(4)

    g = compile(f)
    for i in range(8):
        if i in (3, 6):
            tg.manual_seed(5)
        yield g(vec())


@case
def state_of_the_generator_read(compile):
    def f(x):
        return x * tg.rand(4) + tg.initial_seed() % 7

    g = compile(f)
    for i in range(8):
        if i in (3, 6):
            tg.manual_seed(5 + i)
        yield g(vec())


@case
def dropout_and_generator_state_restored(compile):
    def f(x):
        return F.dropout(x, 0.5)

    g = compile(f)
    state = tg.get_rng_state()
    for i in range(8):
        if i in (3, 6):
            tg.set_rng_state(state)
        yield g(vec())


@case
def seed_forked_inside(compile):
    def f(x):
        tg.manual_seed(3)
        return x * tg.rand(4)

    g = compile(f)
    for _i in range(8):
        yield g(vec()), tg.rand(2)


@case
def generator_argument(compile):
    def f(x, gen):
        return x * tg.rand(4, generator=gen)

    g = compile(f)
    for i in range(8):
        gen = tg.Generator().manual_seed(i // 2)
        yield g(vec(), gen), g(vec(), gen)


@case
def python_random_with_the_same_seed(compile):
    def f(x):
        random.seed(0)
        return x * random.random()

    g = compile(f)
    for _i in range(8):
        yield g(vec()), random.random()


@case
def numpy_generator_made_inside(compile):
    def f(x):
        return x * np.random.default_rng(0).random()

    g = compile(f)
    for _i in range(8):
        yield g(vec())


@case
def numpy_generator_bit_state(compile):
    rng = np.random.default_rng(0)

    def f(x):
        return x * (rng.bit_generator.state["state"]["state"] % 7)

    g = compile(f)
    for i in range(8):
        if i % 3 == 2:
            rng.random()
        yield g(vec())


@case
def uuid_made_inside(compile):
    import uuid

    seen = set()

    def f(x):
        seen.add(str(uuid.uuid4()))
        return x * 2

    g = compile(f)
    for _i in range(6):
        yield g(vec()), len(seen)


@case
def ids_made_inside(compile):
    c = Config()
    c.objs = []

    def f(x):
        c.objs.append(object())
        return x * 2

    g = compile(f)
    for _i in range(6):
        yield g(vec()), len(set(map(id, c.objs)))


@case
def objects_made_inside_are_new(compile):
    c = Config()
    c.objs = []

    def f(x):
        c.objs.append([x * 2])
        return x * 2

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), len(set(map(id, c.objs))), c.objs


@case
def objects_of_a_class_made_inside(compile):
    class Node:
        def __init__(self, v, parent):
            self.v = v
            self.parent = parent

    c = Config()
    c.head = None

    def f(x):
        c.head = Node(x * 2, c.head)
        return x * 2

    g = compile(f)
    for i in range(8):
        r = g(vec(i))
        n = 0
        h = c.head
        while h is not None:
            n += 1
            h = h.parent
        yield r, n, c.head.v


@case
def closure_made_inside_and_kept(compile):
    c = Config()
    c.fn = None

    def f(x):
        y = x * 2
        c.fn = lambda: y
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.fn()


@case
def partial_made_inside_and_kept(compile):
    c = Config()
    c.fn = None

    def f(x):
        y = x * 2
        c.fn = functools.partial(square, y)
        return y

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), c.fn()


@case
def result_is_a_partial(compile):
    def f(x):
        return functools.partial(square, x * 2)

    g = compile(f)
    for i in range(8):
        yield g(vec(i))()


@case
def result_is_a_bound_method(compile):
    def f(x):
        return (x * 2).sum

    g = compile(f)
    for i in range(8):
        yield g(vec(i))()


@case
def result_is_a_set(compile):
    def f(x):
        return {x * 2}

    g = compile(f)
    for i in range(8):
        yield next(iter(g(vec(i))))


@case
def result_is_a_deque(compile):
    def f(x):
        return collections.deque([x * 2], maxlen=3)

    g = compile(f)
    for i in range(8):
        yield g(vec(i)), g(vec(i)).maxlen


@case
def result_is_a_map(compile):
    def f(x):
        return map(square, [x, x * 2])

    g = compile(f)
    for i in range(8):
        yield list(g(vec(i)))


@case
def result_is_a_weak_reference(compile):
    c = Config()

    def f(x):
        c.y = x * 2
        return weakref.ref(c.y)

    g = compile(f)
    for i in range(8):
        yield g(vec(i))()


@case
def result_is_an_exception(compile):
    def f(x):
        return ValueError(x * 2)

    g = compile(f)
    for i in range(8):
        yield g(vec(i)).args[0]


@case
def result_in_a_list_subclass(compile):
    class L(list):
        pass

    def f(x):
        made = L([x * 2])
        made.tag = x * 3
        return made

    g = compile(f)
    for i in range(8):
        r = g(vec(i))
        yield list(r), r.tag


@case
def result_in_a_user_dict(compile):
    def f(x):
        return collections.UserDict(a=x * 2)

    g = compile(f)
    for i in range(8):
        yield g(vec(i))["a"]


@case
def result_in_a_counter_and_a_chain(compile):
    def f(x):
        return collections.ChainMap({"a": x * 2}, {"b": x * 3}), collections.Counter("aab")

    g = compile(f)
    for i in range(8):
        m, c = g(vec(i))
        c["a"] += 1
        m["a"] = m["b"]
        yield m["a"], c["a"]


@case
def result_in_an_array_of_objects(compile):
    def f(x):
        a = np.empty(1, object)
        a[0] = x * 2
        return a

    g = compile(f)
    for i in range(8):
        yield g(vec(i))[0]


@case
def result_is_a_numpy_array_made_inside(compile):
    def f(x):
        return x * 2, np.arange(3)

    g = compile(f)
    for i in range(8):
        y, a = g(vec(i))
        yield y, a.copy()
        a += 1


@case
def result_is_a_list_made_inside_and_changed(compile):
    def f(x):
        return x * 2, [1, 2], {"a": [3]}

    g = compile(f)
    for i in range(8):
        y, a, b = g(vec(i))
        yield y, list(a), copy.deepcopy(b)
        a.append(5)
        b["a"].append(6)
