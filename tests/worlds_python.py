"""Worlds whose names change between calls: globals, imported modules, the environment."""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import threading
import types
from typing import Any

from worlds import TURNS, Config, attempt, case, vec, with_rates

from tapegrad import nn

RATE: Any = 2.0
STEP = 0
SETTINGS: dict[str, Any] = {}
FACTORS: list[float] = []
CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("CONTEXT", default=1.0)
LOCAL = threading.local()
config: Any = types.ModuleType("worlds_settings")
sys.modules["worlds_settings"] = config


def scaled(x: Any) -> Any:
    return x * RATE + 1


def helper(x: Any) -> Any:
    return scaled(x)


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args) * RATE

    return wrapper


@logged
def decorated(x: Any) -> Any:
    return x + 1


class Scale(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * RATE + 1


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale()

    def forward(self, x: Any) -> Any:
        return self.inner(x) - 1


def with_globals(function: Any) -> Any:
    """Calls while the global number turns."""
    global RATE
    for rate in TURNS:
        RATE = rate
        yield function(vec())


# -- globals -------------------------------------------------------------------------------------


@case(replays=True)
def global_in_the_function(compile):
    return with_globals(compile(lambda x: x * RATE + 1))


@case(replays=True)
def global_in_a_helper(compile):
    return with_globals(compile(lambda x: scaled(x)))


@case(replays=True)
def global_in_a_helper_of_a_helper(compile):
    return with_globals(compile(lambda x: helper(x)))


@case(replays=True)
def global_in_forward(compile):
    return with_globals(compile(Scale()))


@case(replays=True)
def global_in_forward_of_a_submodule(compile):
    return with_globals(compile(Outer()))


@case(replays=True)
def global_in_forward_of_a_model_in_a_closure(compile):
    model = nn.Sequential(Scale(), nn.Identity(), Scale())
    return with_globals(compile(lambda x: model(x)))


@case(replays=True)
def global_in_the_wrapper_of_a_decorator(compile):
    return with_globals(compile(decorated))


@case(replays=True)
def global_in_the_wrapper_of_a_helper(compile):
    return with_globals(compile(lambda x: decorated(x)))


@case(replays=True)
def global_in_a_lambda_in_a_list(compile):
    layers = [lambda x: x + 1, lambda x: x * RATE]
    return with_globals(compile(lambda x: functools.reduce(lambda h, layer: layer(h), layers, x)))


@case(replays=True)
def global_in_a_comprehension(compile):
    return with_globals(compile(lambda x: sum([x * RATE for _ in range(2)])))


@case(replays=True)
def global_in_a_generator(compile):
    def terms(x):
        for i in range(2):
            yield x * RATE + i

    return with_globals(compile(lambda x: sum(terms(x))))


@case(replays=True)
def global_in_a_nested_function(compile):
    @compile
    def f(x):
        def inner(y):
            return y * RATE

        return inner(x) + 1

    return with_globals(f)


@case(replays=True)
def global_as_a_default_in_globals_of_the_module(compile):
    return with_globals(compile(lambda x: x * globals()["RATE"] + 1))


@case(replays=True)
def global_that_decides(compile):
    return with_globals(compile(lambda x: x * 2 if RATE > 2.5 else x + 1))


@case
def global_that_is_missing_at_first(compile):
    f = compile(lambda x: x * LATE + 1)  # noqa: F821 - the case makes it
    globals().pop("LATE", None)
    for i in range(9):
        if i in (3, 6):
            globals()["LATE"] = float(i)
        yield attempt(f, vec())
    del globals()["LATE"]
    yield attempt(f, vec())


@case
def global_counter(compile):
    global STEP
    STEP = 0

    @compile
    def f(x):
        global STEP
        STEP += 1
        return x * 2

    for _ in range(8):
        yield f(vec()), STEP


@case
def global_counter_as_factor(compile):
    global STEP
    STEP = 0

    @compile
    def f(x):
        global STEP
        STEP += 1
        return x * STEP

    for _ in range(8):
        yield f(vec()), STEP


@case(replays=True)
def global_that_nothing_reads(compile):
    global STEP
    f = compile(lambda x: x * 2 + 1)
    for i in range(8):
        STEP = i
        yield f(vec())


@case(replays=True)
def global_dict(compile):
    f = compile(lambda x: x * SETTINGS["rate"] + 1)
    for rate in TURNS:
        SETTINGS["rate"] = rate
        yield f(vec())


@case(replays=True)
def global_list_as_arguments(compile):
    f = compile(lambda x: (lambda x, a, b: x * a + b)(x, *FACTORS))
    for rate in TURNS:
        FACTORS[:] = [rate, 1.0]
        yield f(vec())


@case(replays=True)
def global_dict_as_keywords(compile):
    f = compile(lambda x: (lambda x, rate: x * rate + 1)(x, **SETTINGS))
    for rate in TURNS:
        SETTINGS.clear()
        SETTINGS["rate"] = rate
        yield f(vec())


@case(replays=True)
def global_replaced_by_an_object_with_other_values(compile):
    global RATE
    f = compile(lambda x: x * RATE.rate + 1)
    for rate in TURNS:
        RATE = Config(rate)
        yield f(vec())


# -- modules and the process ---------------------------------------------------------------------


@case(replays=True)
def attribute_of_a_module(compile):
    return with_rates(compile(lambda x: x * config.RATE + 1), config, "RATE")


@case(replays=True)
def import_in_the_function(compile):
    @compile
    def f(x):
        import worlds_settings

        return x * worlds_settings.RATE + 1

    return with_rates(f, config, "RATE")


@case(replays=True)
def from_import_in_the_function(compile):
    @compile
    def f(x):
        from worlds_settings import RATE as rate

        return x * rate + 1

    return with_rates(f, config, "RATE")


@case
def environment_variable(compile):
    f = compile(lambda x: x * float(os.environ.get("WORLDS_RATE", "1")) + 1)
    for rate in TURNS:
        os.environ["WORLDS_RATE"] = str(rate)
        yield f(vec())
    del os.environ["WORLDS_RATE"]
    yield f(vec())


@case
def environment_variable_by_getenv(compile):
    f = compile(lambda x: x * 2 if os.getenv("WORLDS_DEBUG") else x + 1)
    for i in range(8):
        if i == 4:
            os.environ["WORLDS_DEBUG"] = "1"
        yield f(vec())
    del os.environ["WORLDS_DEBUG"]
    yield f(vec())


@case
def context_variable(compile):
    f = compile(lambda x: x * CONTEXT.get() + 1)
    for rate in TURNS:
        token = CONTEXT.set(rate)
        yield f(vec())
        CONTEXT.reset(token)
    yield f(vec())


@case
def thread_local(compile):
    return with_rates(compile(lambda x: x * LOCAL.rate + 1), LOCAL)
