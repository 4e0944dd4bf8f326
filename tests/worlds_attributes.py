"""Worlds whose attributes change between calls: of objects, classes, records, enumerations."""

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
import types
from typing import ClassVar, NamedTuple

from worlds import TURNS, Config, case, vec, with_rates

from tapegrad import nn


@case(replays=True)
def attribute_of_an_object(compile):
    c = Config()
    return with_rates(compile(lambda x: x * c.rate + 1), c)


@case(replays=True)
def attribute_of_an_argument(compile):
    c, f = Config(), compile(lambda c, x: x * c.rate + 1)
    return with_rates(lambda x: f(c, x), c)


@case(replays=True)
def attribute_of_self(compile):
    class Model(nn.Module):
        rate = 2.0

        def forward(self, x):
            return x * self.rate + 1

    model = Model()
    return with_rates(compile(model), model)


@case(replays=True)
def attribute_deep_inside(compile):
    c = Config(Config(Config()))
    return with_rates(compile(lambda x: x * c.rate.rate.rate + 1), c.rate.rate)


@case(replays=True)
def attribute_of_an_object_that_is_replaced(compile):
    c = Config(Config())
    f = compile(lambda x: x * c.rate.rate + 1)
    for rate in TURNS:
        c.rate = Config(rate)
        yield f(vec())


@case(replays=True)
def attribute_through_a_property(compile):
    class Model:
        _rate = 2.0

        @property
        def rate(self):
            return self._rate * 2

    model = Model()
    return with_rates(compile(lambda x: x * model.rate + 1), model, "_rate")


@case(replays=True)
def attribute_through_getattr_of_the_class(compile):
    class Wrapped:
        def __init__(self, values):
            self.values = values

        def __getattr__(self, name):
            return self.values[name]

    c = Wrapped({"rate": 2.0})
    f = compile(lambda x: x * c.rate + 1)
    for rate in TURNS:
        c.values["rate"] = rate
        yield f(vec())


@case
def attribute_through_a_descriptor(compile):
    class Celsius:
        offset = 2.0

        def __get__(self, instance, owner):
            return self.offset

    class Model:
        rate = Celsius()

    model = Model()
    return with_rates(compile(lambda x: x * model.rate + 1), Celsius, "offset")


@case(replays=True)
def attribute_in_slots(compile):
    class Slotted:
        __slots__ = ("rate",)

    c = Slotted()
    return with_rates(compile(lambda x: x * c.rate + 1), c)


@case(replays=True)
def attribute_of_a_class(compile):
    class Constants:
        rate = 2.0

    return with_rates(compile(lambda x: x * Constants.rate + 1), Constants)


@case(replays=True)
def attribute_of_the_base_class(compile):
    class Base:
        rate = 2.0

    class Model(Base):
        def __call__(self, x):
            return x * self.rate + 1

    model = Model()
    return with_rates(compile(lambda x: model(x)), Base)


@case
def attribute_shadowed_and_deleted(compile):
    class Model:
        rate = 2.0

    model = Model()
    f = compile(lambda x: x * model.rate + 1)
    for i in range(10):
        if i == 3:
            model.rate = 3.0
        elif i == 6:
            del model.rate
        elif i == 8:
            Model.rate = 5.0
        yield f(vec())


@case
def attribute_of_a_class_shadowed_in_a_subclass(compile):
    class Base:
        rate = 2.0

    class Model(Base):
        pass

    model = Model()
    f = compile(lambda x: x * model.rate + 1)
    for i in range(9):
        if i == 3:
            Model.rate = 3.0
        elif i == 6:
            del Model.rate
        yield f(vec())


@case(replays=True)
def attribute_of_the_type_of_self(compile):
    class Model(nn.Module):
        rate: ClassVar[float] = 2.0

        def forward(self, x):
            return x * type(self).rate + 1

    return with_rates(compile(Model()), Model)


@case(replays=True)
def attribute_in_a_class_method(compile):
    class Model:
        rate = 2.0

        @classmethod
        def scale(cls, x):
            return x * cls.rate + 1

    return with_rates(compile(lambda x: Model.scale(x)), Model)


@case(replays=True)
def attribute_in_a_static_method(compile):
    c = Config()

    class Model:
        @staticmethod
        def scale(x):
            return x * c.rate + 1

    model = Model()
    return with_rates(compile(lambda x: model.scale(x)), c)


@case
def attribute_of_a_metaclass(compile):
    class Meta(type):
        rate = 2.0

    class Model(metaclass=Meta):
        pass

    return with_rates(compile(lambda x: x * Model.rate + 1), Meta)


@case
def attribute_by_a_name_that_changes(compile):
    c = types.SimpleNamespace(a=2.0, b=3.0, name="a")
    f = compile(lambda x: x * getattr(c, c.name) + 1)
    for i, name in enumerate("aaabbbab"):
        c.name = name
        c.b += i == 6
        yield f(vec())


@case
def attribute_by_hasattr(compile):
    c = Config()
    f = compile(lambda x: x * c.extra if hasattr(c, "extra") else x + 1)
    for i in range(9):
        if i == 3:
            c.extra = 4.0
        elif i == 6:
            del c.extra
        yield f(vec())


@case
def attribute_with_a_default(compile):
    c = Config()
    f = compile(lambda x: x * getattr(c, "extra", 1.5) + 1)
    for i in range(9):
        if i in (3, 6):
            c.extra = float(i)
        yield f(vec())


@case
def attribute_missing_in_try(compile):
    c = Config()

    @compile
    def f(x):
        try:
            return x * c.extra
        except AttributeError:
            return x + 1

    for i in range(9):
        if i in (3, 6):
            c.extra = float(i)
        yield f(vec())


@case(replays=True)
def attribute_by_vars(compile):
    c = Config()
    return with_rates(compile(lambda x: x * vars(c)["rate"] + 1), c)


@case
def attribute_by_attrgetter(compile):
    c, get = Config(Config()), operator.attrgetter("rate.rate")
    return with_rates(compile(lambda x: x * get(c) + 1), c.rate)


@case
def attribute_of_a_copy(compile):
    c = Config()
    return with_rates(compile(lambda x: x * copy.copy(c).rate + 1), c)


@case
def attribute_in_a_format(compile):
    c = Config()
    return with_rates(compile(lambda x: x * float("{.rate:.3f}".format(c)) + 1), c)  # noqa: UP032


@case
def dict_of_an_object_replaced(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for rate in TURNS:
        c.__dict__ = {"rate": rate}
        yield f(vec())


@case
def dict_of_an_object_updated(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for rate in TURNS:
        c.__dict__.update(rate=rate)
        yield f(vec())


@case
def class_of_an_object_replaced(compile):
    class Double(Config):
        def scale(self, x):
            return x * 2 * self.rate

    class Half(Config):
        def scale(self, x):
            return x / 2 * self.rate

    c = Double()
    f = compile(lambda x: c.scale(x))
    for i in range(9):
        c.__class__ = Half if i in (3, 4, 5, 7) else Double
        yield f(vec())


@case
def isinstance_after_a_change_of_class(compile):
    class Other(Config):
        pass

    c = Config()
    f = compile(lambda x: x * 2 if isinstance(c, Other) else x + 1)
    for i in range(9):
        c.__class__ = Other if i in (3, 4, 5, 7) else Config
        yield f(vec())


class Mode(enum.Enum):
    TRAIN = 2.0
    TEST = 3.0


@case(replays=True)
def enumeration(compile):
    c = Config(Mode.TRAIN)
    f = compile(lambda x: x * 2 + 1 if c.rate is Mode.TRAIN else x * c.rate.value)
    for rate in TURNS:
        c.rate = Mode(rate)
        yield f(vec())


class Pair(NamedTuple):
    rate: float
    offset: float = 1.0


@case(replays=True)
def named_tuple_replaced(compile):
    c = Config(Pair(2.0))
    f = compile(lambda x: x * c.rate.rate + c.rate.offset)
    for rate in TURNS:
        c.rate = c.rate._replace(rate=rate)
        yield f(vec())


@dataclasses.dataclass
class Fields:
    rate: float = 2.0
    flag: bool = False


@dataclasses.dataclass(frozen=True)
class Frozen:
    rate: float = 2.0


@case(replays=True)
def dataclass_changed(compile):
    c = Fields()
    return with_rates(compile(lambda x: x * c.rate + 1), c)


@case(replays=True)
def dataclass_frozen_and_replaced(compile):
    c = Frozen()
    f = compile(lambda x: x * c.rate + 1)
    for rate in TURNS:
        c = dataclasses.replace(c, rate=rate)
        yield f(vec())


@case
def dataclass_as_a_dict(compile):
    c = Fields()
    return with_rates(compile(lambda x: x * dataclasses.asdict(c)["rate"] + 1), c)


@case
def dataclass_compared(compile):
    c, other = Fields(), Fields(3.0)
    return with_rates(compile(lambda x: x * 2 if c == other else x + 1), c)


# -- changes that nothing reads ------------------------------------------------------------------


def with_others(compile, change, model=None):
    """Calls of a model with a rate, while something else changes each time."""
    c = Config() if model is None else model
    f = compile(lambda x: x * c.rate + 1)
    for i in range(8):
        change(c, i)
        yield f(vec(i))


@case(replays=True)
def other_attribute_changes(compile):
    return with_others(compile, lambda c, i: setattr(c, "verbose", i))


@case(replays=True)
def new_attribute_each_time(compile):
    return with_others(compile, lambda c, i: setattr(c, f"attribute{i}", i))


@case(replays=True)
def other_attribute_of_the_class_changes(compile):
    class Model(Config):
        pass

    return with_others(compile, lambda c, i: setattr(Model, "calls", i), Model())


@case(replays=True)
def other_key_changes(compile):
    c = {"rate": 2.0}
    f = compile(lambda x: x * c["rate"] + 1)
    for i in range(8):
        c["step"] = i
        c[f"key{i}"] = i
        yield f(vec(i))


@case(replays=True)
def other_items_of_a_list_change(compile):
    c = [2.0, 0.0]
    f = compile(lambda x: x * c[0] + 1)
    for i in range(8):
        c[1] = float(i)
        c.append(i)
        yield f(vec(i))


@case(replays=True)
def history_of_the_owner_grows(compile):
    class Trainer:
        def __init__(self):
            self.rate, self.history, self.metrics = 2.0, [], {}

        def scale(self, x):
            return x * self.rate + 1

    trainer = Trainer()
    f = compile(trainer.scale)
    for i in range(8):
        y = f(vec(i))
        trainer.history.append(y)
        trainer.metrics[i] = i
        yield y


@case(replays=True)
def other_attributes_of_an_argument_change(compile):
    c, f = Config(), compile(lambda c, x: x * c.rate + 1)
    for i in range(8):
        c.name = f"run {i}"
        yield f(c, vec(i))


@case(replays=True)
def equal_value_set_again(compile):
    c = Config()
    f = compile(lambda x: x * c.rate + 1)
    for i in range(8):
        c.rate = float("2.0")
        yield f(vec(i))


@case(replays=True)
def equal_object_set_again(compile):
    c = Config(Frozen(2.0))
    f = compile(lambda x: x * c.rate.rate + 1)
    for i in range(8):
        c.rate = Frozen(2.0)
        yield f(vec(i))


@case(replays=True)
def equal_dict_set_again(compile):
    c = Config({"k": 2.0})
    f = compile(lambda x: x * c.rate["k"] + 1)
    for i in range(8):
        c.rate = {"k": 2.0, "step": i}
        yield f(vec(i))
