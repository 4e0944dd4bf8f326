"""Objects whose state Python code does not see: views, locks, buffers, iterators."""

from __future__ import annotations

import abc
import array
import contextlib
import ctypes
import datetime
import decimal
import enum
import threading
import weakref
import xml.etree.ElementTree as ET

import numpy as np
from worlds import Config, case, vec
from worlds_names import turning


def holder(name, make):
    """make() -> (object, read(object), write(object, rate)); put in a closure."""

    def m():
        o, read, write = make()
        return (lambda x: x * read(o)), (lambda r: write(o, r))

    turning("object_" + name, m)


class Obj:
    def __init__(self):
        self.rate = 2.0


holder(
    "c_double",
    lambda: (ctypes.c_double(2.0), lambda o: o.value, lambda o, r: setattr(o, "value", r)),
)


class S(ctypes.Structure):
    _fields_ = [("rate", ctypes.c_double)]


holder("ctypes_structure", lambda: (S(2.0), lambda o: o.rate, lambda o, r: setattr(o, "rate", r)))
holder(
    "ctypes_array",
    lambda: ((ctypes.c_double * 2)(2.0), lambda o: o[0], lambda o, r: o.__setitem__(0, r)),
)
holder(
    "xml_element",
    lambda: (
        ET.Element("a", rate="2.0"),
        lambda o: float(o.get("rate")),
        lambda o, r: o.set("rate", str(r)),
    ),
)
holder(
    "xml_text",
    lambda: (
        ET.Element("a"),
        lambda o: float(o.text or 2.0),
        lambda o, r: setattr(o, "text", str(r)),
    ),
)
holder(
    "weak_key_dict",
    lambda: (
        (weakref.WeakKeyDictionary(), Obj()),
        lambda o: o[0].get(o[1], 1.0),
        lambda o, r: o[0].__setitem__(o[1], r),
    ),
)
holder(
    "weak_value_dict",
    lambda: (
        weakref.WeakValueDictionary(),
        lambda o: o["a"].rate,
        lambda o, r: (KEEP.append(Config(r)), o.__setitem__("a", KEEP[-1])),
    ),
)
KEEP = []
holder(
    "weak_set",
    lambda: (
        (weakref.WeakSet(), Obj()),
        lambda o: float(len(o[0])) + 1.0,
        lambda o, r: o[0].add(o[1]) if r == 3.0 else o[0].discard(o[1]),
    ),
)
holder(
    "event",
    lambda: (
        threading.Event(),
        lambda o: 3.0 if o.is_set() else 2.0,
        lambda o, r: o.set() if r == 3.0 else o.clear(),
    ),
)
holder(
    "semaphore",
    lambda: (
        threading.Semaphore(5),
        lambda o: float(o._value),
        lambda o, r: o.acquire() if r == 3.0 else None,
    ),
)
holder(
    "lock",
    lambda: (
        threading.Lock(),
        lambda o: 3.0 if o.locked() else 2.0,
        lambda o, r: o.acquire(blocking=False) if r == 3.0 else o.locked() and o.release(),
    ),
)
holder(
    "rlock",
    lambda: (
        threading.RLock(),
        lambda o: 3.0 if o._is_owned() else 2.0,
        lambda o, r: o.acquire() if r == 3.0 else o._is_owned() and o.release(),
    ),
)
holder(
    "thread_name",
    lambda: (
        threading.current_thread(),
        lambda o: 3.0 if threading.current_thread().name == "three" else 2.0,
        lambda o, r: setattr(o, "name", "three" if r == 3.0 else "MainThread"),
    ),
)
holder(
    "null_context",
    lambda: (
        contextlib.nullcontext(2.0),
        lambda o: o.__enter__(),
        lambda o, r: setattr(o, "enter_result", r),
    ),
)


@case
def object_abc_registered_later(compile):
    A = abc.ABCMeta("A", (), {})

    class B:
        pass

    b = B()

    def f(x):
        return x * (3.0 if isinstance(b, A) else 2.0)

    g = compile(f)
    for i in range(9):
        if i == 5:
            A.register(B)
        yield g(vec())


holder(
    "set_of_objects",
    lambda: (
        {Obj()},
        lambda o: sum(v.rate for v in o),
        lambda o, r: [setattr(v, "rate", r) for v in o],
    ),
)
holder(
    "frozenset_of_objects",
    lambda: (
        frozenset([Obj()]),
        lambda o: sum(v.rate for v in o),
        lambda o, r: [setattr(v, "rate", r) for v in o],
    ),
)
holder(
    "dict_keys_objects",
    lambda: (
        {Obj(): 1},
        lambda o: sum(v.rate for v in o),
        lambda o, r: [setattr(v, "rate", r) for v in o],
    ),
)


class Mode(enum.Enum):
    A = 1
    B = 2


holder(
    "enum_member_attribute",
    lambda: (Mode.A, lambda o: getattr(o, "rate", 2.0), lambda o, r: setattr(o, "rate", r)),
)


class IMode(enum.IntEnum):
    A = 1


holder(
    "intenum_member_attribute",
    lambda: (IMode.A, lambda o: getattr(o, "rate", 2.0), lambda o, r: setattr(o, "rate", r)),
)


class Planet(enum.Enum):
    EARTH = ([2.0],)


holder(
    "enum_member_value_list",
    lambda: (Planet.EARTH, lambda o: o.value[0][0], lambda o, r: o.value[0].__setitem__(0, r)),
)


class Rate(float):
    pass


holder(
    "float_subclass_attribute",
    lambda: (Rate(1.0), lambda o: o * getattr(o, "rate", 2.0), lambda o, r: setattr(o, "rate", r)),
)


class Name(str):
    pass


holder(
    "str_subclass_attribute",
    lambda: (Name("a"), lambda o: getattr(o, "rate", 2.0), lambda o, r: setattr(o, "rate", r)),
)


class Day(datetime.date):
    pass


holder(
    "date_subclass_attribute",
    lambda: (
        Day(2020, 1, 1),
        lambda o: getattr(o, "rate", 2.0),
        lambda o, r: setattr(o, "rate", r),
    ),
)
holder(
    "structured_scalar",
    lambda: (
        np.zeros(1, [("rate", float)])[0],
        lambda o: float(o["rate"]) + 1,
        lambda o, r: o.__setitem__("rate", r),
    ),
)
holder(
    "structured_array",
    lambda: (
        np.zeros(1, [("rate", float)]),
        lambda o: float(o["rate"][0]) + 1,
        lambda o, r: o["rate"].__setitem__(0, r),
    ),
)
holder(
    "masked_array_mask",
    lambda: (
        np.ma.array([2.0, 3.0], mask=[False, True]),
        lambda o: float(o.sum()),
        lambda o, r: setattr(o, "mask", [False, True] if r == 2.0 else [False, False]),
    ),
)
holder(
    "masked_array_fill",
    lambda: (
        np.ma.array([2.0, 1e20], mask=[False, True]),
        lambda o: float(o.sum()) if o.count() == 1 else 3.0,
        lambda o, r: setattr(o, "mask", [False, True] if r == 2.0 else [False, False]),
    ),
)


class Arr(np.ndarray):
    pass


holder(
    "array_subclass_attribute",
    lambda: (
        np.ones(2).view(Arr),
        lambda o: float(o[0]) * getattr(o, "rate", 2.0),
        lambda o, r: setattr(o, "rate", r),
    ),
)
holder(
    "array_shape_set",
    lambda: (
        np.ones((2, 3)),
        lambda o: float(o.shape[0]),
        lambda o, r: setattr(o, "shape", (int(r), 6 // int(r))),
    ),
)
holder(
    "array_dtype_set",
    lambda: (
        np.ones(4, np.int64),
        lambda o: float(o.itemsize),
        lambda o, r: setattr(o, "dtype", np.int64 if r == 2.0 else np.float64),
    ),
)
holder(
    "array_readonly",
    lambda: (
        np.ones(4),
        lambda o: 2.0 if o.flags.writeable else 3.0,
        lambda o, r: setattr(o.flags, "writeable", r == 2.0),
    ),
)
holder(
    "zero_d_array", lambda: (np.array(2.0), lambda o: float(o), lambda o, r: o.__setitem__((), r))
)
holder(
    "object_array",
    lambda: (np.array([2.0, None], object), lambda o: o[0], lambda o, r: o.__setitem__(0, r)),
)
holder(
    "array_array",
    lambda: (array.array("d", [2.0]), lambda o: o[0], lambda o, r: o.__setitem__(0, r)),
)
holder(
    "bytearray",
    lambda: (bytearray(b"2"), lambda o: float(o), lambda o, r: o.__setitem__(0, 48 + int(r))),
)
holder(
    "memoryview",
    lambda: (
        memoryview(bytearray(b"2")),
        lambda o: float(o[0]),
        lambda o, r: o.__setitem__(0, 48 + int(r)),
    ),
)
holder(
    "memoryview_cast",
    lambda: (
        memoryview(bytearray(8)).cast("d"),
        lambda o: o[0] + 1,
        lambda o, r: o.__setitem__(0, r),
    ),
)
holder(
    "np_record",
    lambda: (
        np.rec.array([(2.0,)], dtype=[("rate", float)]),
        lambda o: float(o.rate[0]),
        lambda o, r: o.rate.__setitem__(0, r),
    ),
)
holder(
    "np_flatiter",
    lambda: (
        (a := np.ones(2)) is None or (a, a.flat),
        lambda o: float(o[1][0]),
        lambda o, r: o[0].__setitem__(0, r),
    ),
)
holder(
    "decimal_context",
    lambda: (
        decimal.Context(prec=2),
        lambda o: float(o.prec),
        lambda o, r: setattr(o, "prec", int(r) * 14),
    ),
)
holder(
    "decimal_global_context",
    lambda: (
        decimal.getcontext(),
        lambda o: float(decimal.getcontext().prec) / 14,
        lambda o, r: setattr(o, "prec", int(r) * 14),
    ),
)
holder(
    "values_view",
    lambda: (
        (d := {"a": 2.0}) and (d, d.values()),
        lambda o: sum(o[1]),
        lambda o, r: o[0].__setitem__("a", r),
    ),
)
