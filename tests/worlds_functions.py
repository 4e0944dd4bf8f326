"""Worlds whose functions change between calls: closures, defaults, partials, patches, threads."""

from __future__ import annotations

import contextvars
import functools
import threading
import types
from typing import Any

from worlds import TURNS, Config, case, vec, with_rates

CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("CONTEXT", default=1.0)
LOCAL = threading.local()


def scaled(x: Any) -> Any:
    return x * 2 + 1


@case(replays=True)
def closure_variable(compile):
    rate = 2.0
    f = compile(lambda x: x * rate + 1)
    for rate in TURNS:  # noqa: B007 - the function reads it
        yield f(vec())


@case
def closure_variable_by_nonlocal(compile):
    count = 0

    @compile
    def f(x):
        nonlocal count
        count += 1
        return x * 2

    for _ in range(8):
        yield f(vec()), count


@case
def closure_variable_as_factor_by_nonlocal(compile):
    rate = 1.0

    @compile
    def f(x):
        nonlocal rate
        rate *= 0.5
        return x * rate

    for _ in range(8):
        yield f(vec()), rate


@case(replays=True)
def closure_of_a_function_in_an_argument(compile):
    rate = 2.0

    def activation(x):
        return x * rate

    f = compile(lambda g, x: g(x) + 1)
    for rate in TURNS:  # noqa: B007 - the activation reads it
        yield f(activation, vec())


@case
def closure_made_anew_for_each_call(compile):
    def scaling(rate):
        return lambda x: x * rate

    f = compile(lambda g, x: g(x) + 1)
    for rate in TURNS:
        yield f(scaling(rate), vec())


@case(replays=True)
def closures_over_loop_variables(compile):
    functions = [compile(lambda x, k=k: x * k + 1) for k in (2.0, 3.0)]
    for i in range(10):
        yield functions[i % 2](vec(i))


@case(replays=True)
def closure_over_an_object_of_a_helper(compile):
    c = Config()

    def make(c):
        return lambda x: x * c.rate + 1

    inner = make(c)
    return with_rates(compile(lambda x: inner(x)), c)


@case(replays=True)
def default_argument_that_is_an_object(compile):
    c = Config()

    def helper(x, c=c):
        return x * c.rate + 1

    return with_rates(compile(lambda x: helper(x)), c)


@case(replays=True)
def default_argument_that_is_a_list(compile):
    values = [2.0]

    def f(x, values=values):
        return x * values[0] + 1

    f = compile(f)
    for rate in TURNS:
        values[0] = rate
        yield f(vec())


@case
def defaults_replaced(compile):
    def helper(x, rate=2.0, *, offset=1.0):
        return x * rate + offset

    f = compile(lambda x: helper(x))
    for rate in TURNS:
        helper.__defaults__ = (rate,)
        helper.__kwdefaults__ = {"offset": rate + 1}
        yield f(vec())


@case
def defaults_of_the_compiled_function_replaced(compile):
    def f(x, rate=2.0):
        return x * rate + 1

    compiled = compile(f)
    for rate in TURNS:
        f.__defaults__ = (rate,)
        yield compiled(vec())


@case
def list_in_a_default_that_grows(compile):
    def f(x, seen=[]):  # noqa: B006 - as people write it
        seen.append(len(seen))
        return x * len(seen)

    f = compile(f)
    for _ in range(8):
        yield f(vec())


@case(replays=True)
def partial_of_an_object(compile):
    c = Config()
    return with_rates(compile(functools.partial(lambda c, x: x * c.rate + 1, c)), c)


@case
def partial_with_keywords_that_change(compile):
    p = functools.partial(lambda x, rate: x * rate + 1, rate=2.0)
    f = compile(lambda x: p(x))
    for rate in TURNS:
        p.keywords["rate"] = rate
        yield f(vec())


@case
def partial_replaced(compile):
    scale = functools.partial(lambda rate, x: x * rate + 1, 2.0)
    f = compile(lambda x: scale(x))
    for rate in TURNS:
        scale = functools.partial(lambda rate, x: x * rate + 1, rate)
        yield f(vec())


@case(replays=True)
def partial_method(compile):
    class Model:
        rate = 2.0

        def scale(self, offset, x):
            return x * self.rate + offset

        shifted = functools.partialmethod(scale, 1.0)

    model = Model()
    return with_rates(compile(lambda x: model.shifted(x)), model)


@case
def cached_function(compile):
    c = Config()

    @functools.lru_cache
    def factor(name):
        return c.rate

    f = compile(lambda x: x * factor("rate") + 1)
    for i, rate in enumerate(TURNS):
        c.rate = rate
        if i == 5:
            factor.cache_clear()
        yield f(vec())


@case
def cached_property(compile):
    class Model:
        rate = 2.0

        @functools.cached_property
        def factor(self):
            return self.rate * 2

    model = Model()
    f = compile(lambda x: x * model.factor + 1)
    for i, rate in enumerate(TURNS):
        model.rate = rate
        if i == 5:
            del model.factor
        yield f(vec())


@case
def single_dispatch(compile):
    @functools.singledispatch
    def factor(value):
        return 2.0

    f = compile(lambda v, x: x * factor(v) + 1)
    for i in range(9):
        if i == 3:
            factor.register(int, lambda value: 3.0)
        yield f(i // 8 + 1, vec()), f("a", vec())


@case
def function_monkeypatched(compile):
    global scaled
    kept = scaled
    f = compile(lambda x: scaled(x) - 1)
    for i in range(9):
        scaled = (lambda x: x * 7) if i in (3, 4, 5, 7) else kept
        yield f(vec())
    scaled = kept


@case
def code_of_a_function_replaced(compile):
    def inner(x):
        return x * 2

    def other(x):
        return x * 5

    f = compile(lambda x: inner(x) + 1)
    for i in range(8):
        if i == 4:
            inner.__code__ = other.__code__
        yield f(vec())


@case
def attribute_of_a_function(compile):
    def inner(x):
        return x * inner.rate + 1

    return with_rates(compile(lambda x: inner(x)), inner)


@case(replays=True)
def callable_object(compile):
    class Scaler:
        rate = 2.0

        def __call__(self, x):
            return x * self.rate + 1

    scaler = Scaler()
    return with_rates(compile(scaler), scaler)


@case(replays=True)
def bound_method_as_argument(compile):
    class Scaler(Config):
        def scale(self, x):
            return x * self.rate + 1

    a, b = Scaler(2.0), Scaler(5.0)
    f = compile(lambda g, x: g(x))
    for i, rate in enumerate(TURNS):
        a.rate = rate
        yield f((b if i % 4 == 3 else a).scale, vec())


@case(replays=True)
def methods_compiled_on_two_objects(compile):
    class Scaler(Config):
        @compile
        def scale(self, x):
            return x * self.rate + 1

    a, b = Scaler(2.0), Scaler(5.0)
    for rate in TURNS:
        a.rate = rate
        yield a.scale(vec()), b.scale(vec())


@case(replays=True)
def the_same_function_compiled_twice(compile):
    c = Config()
    f, g = compile(lambda x: x * c.rate + 1), compile(lambda x: x * c.rate + 1)
    return with_rates(lambda x: (f(x), g(x)), c)


@case(replays=True)
def compiled_in_compiled(compile):
    c = Config()
    inner = compile(lambda x: x * c.rate + 1)
    return with_rates(compile(lambda x: inner(x) * 2), c)


@case
def function_defined_anew(compile):
    c = Config()
    for rate in TURNS:

        @compile
        def f(x):
            return x * c.rate + 1

        c.rate = rate
        yield f(vec()), f(vec(1)), f(vec(2))


@case(replays=True)
def recursion_as_deep_as_configured(compile):
    c = types.SimpleNamespace(depth=2)

    def deeper(x, depth):
        return x if depth == 0 else deeper(x * 2 + 1, depth - 1)

    f = compile(lambda x: deeper(x, c.depth))
    for rate in TURNS:
        c.depth = int(rate)
        yield f(vec())


@case(replays=True)
def recursion_that_reads_an_object(compile):
    c = types.SimpleNamespace(rate=2.0)

    def deeper(x, depth):
        return x * c.rate if depth == 0 else deeper(x + 1, depth - 1)

    return with_rates(compile(lambda x: deeper(x, 3)), c)


@case
def threads_with_local_values(compile):
    f = compile(lambda x: x * LOCAL.rate + 1)
    results = []

    def work(rate):
        LOCAL.rate = rate
        results.append(f(vec()))

    for rate in TURNS:
        thread = threading.Thread(target=work, args=(rate,))
        thread.start()
        thread.join()
        yield results


@case
def threads_with_context_variables(compile):
    f = compile(lambda x: x * CONTEXT.get() + 1)

    def work(rate):
        CONTEXT.set(rate)
        return f(vec())

    for rate in TURNS:
        yield contextvars.copy_context().run(work, rate)


@case
def threads_that_share_a_compiled_function(compile):
    f = compile(lambda x, k: x * k + 1)
    for i in range(6):
        results = {}

        def work(k, results=results, i=i):
            results[k] = f(vec(i), k)

        threads = [threading.Thread(target=work, args=(k,)) for k in (2.0, 3.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield [results[k] for k in sorted(results)]


@case
def thread_that_changes_a_setting(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for rate in TURNS:
        thread = threading.Thread(target=setattr, args=(c, "rate", rate))
        thread.start()
        thread.join()
        yield f(vec())
