"""Log handlers, profilers, and a library that is patched."""

from __future__ import annotations

import contextlib
import cProfile
import logging
import sys
import warnings

import numpy as np
from worlds import Config, attempt, case, mat, vec, with_rates
from worlds_identity import writing
from worlds_names import turning

import tapegrad as tg
from tapegrad import nn


def write_loghandler(folder):
    b = []

    class H(logging.Handler):
        def emit(self, record):
            b.append(record.msg)

    logger = logging.getLogger("attack_writing")
    logger.handlers = [H()]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return (lambda: logger.info("a")), (lambda: len(b))


writing("log_handler", write_loghandler)


def write_warn(folder):
    b = []

    def do():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("a", stacklevel=1)
        b.append(len(caught))

    return do, (lambda: list(b))


writing("caught_warnings", write_warn)


def write_exit(folder):
    class M:
        n = 0

        def __enter__(self):
            return self

        def __exit__(self, *a):
            self.n += 1

    m = M()

    def do():
        with m:
            pass

    return do, (lambda: m.n)


writing("manager", write_exit)


# -- profilers
@case
def profiler_inside(compile):
    c = Config()

    def helper(x):
        return x * c.rate

    def f(x):
        p = cProfile.Profile()
        p.enable()
        y = x * 2
        p.disable()
        return helper(y)

    yield from with_rates(compile(f), c)


@case
def profile_function_set_inside(compile):
    c = Config()

    def helper(x):
        return x * c.rate

    def f(x):
        before = sys.getprofile()
        sys.setprofile(None)
        y = helper(x)
        sys.setprofile(before)
        return y

    yield from with_rates(compile(f), c)


# -- the library patched
def patching(name, owner, attribute, new, read):
    def program(compile):
        m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        old = owner.__dict__[attribute]
        g = compile(lambda x: read(m, x))
        try:
            for i in range(10):
                if i == 4:
                    setattr(owner, attribute, new)
                if i == 7:
                    setattr(owner, attribute, old)
                yield attempt(g, vec(i))
        finally:
            setattr(owner, attribute, old)

    program.__name__ = f"library_with_another_{name}"
    case(program)


patching("forward", nn.Linear, "forward", lambda self, x: x * 5, lambda m, x: m(x))


patching("call", nn.Module, "__call__", lambda self, *a: a[0] * 5, lambda m, x: m(x))


patching(
    "function", nn.functional, "relu", lambda x, *a, **k: x * 5, lambda m, x: nn.functional.relu(x)
)


patching("function_of_the_package", tg, "sin", lambda x: x * 5, lambda m, x: tg.sin(x))


# -- objects of packages
def turn_poly():
    p = np.polynomial.Polynomial([2.0])
    return (lambda x: x * float(p(1.0))), (lambda r: p.coef.__setitem__(0, r))


turning("object_of_numpy_polynomial", turn_poly)


def turn_poly1d():
    p = np.poly1d([2.0])
    return (lambda x: x * float(p(1.0))), (lambda r: p.coeffs.__setitem__(0, r))


turning("object_of_numpy_poly1d", turn_poly1d)


def turn_vectorize():
    c = Config()
    p = np.vectorize(lambda v: v * c.rate)
    return (lambda x: x * float(p(1.0))), (lambda r: setattr(c, "rate", r))


turning("object_of_numpy_vectorize", turn_vectorize)


def turn_nditer():
    a = np.array([2.0])
    p = np.lib.stride_tricks.sliding_window_view(a, 1)
    return (lambda x: x * float(p[0, 0])), (lambda r: a.__setitem__(0, r))


turning("object_of_numpy_windows", turn_nditer)


def turn_dist():
    p = tg.distributions.Normal(tg.zeros(4), tg.ones(4))
    return (lambda x: p.log_prob(x)), (lambda r: setattr(p, "scale", tg.ones(4) * r))


if hasattr(tg, "distributions"):
    turning("object_of_the_library_distribution", turn_dist)


def turn_dist2():
    p = tg.distributions.Normal(tg.zeros(4), tg.ones(4))
    return (lambda x: p.log_prob(x)), (lambda r: p.scale.fill_(r))


if hasattr(tg, "distributions"):
    turning("object_of_the_library_distribution_in_place", turn_dist2)


def turn_ds():
    ds = (
        tg.data.TensorDataset(mat(1))
        if hasattr(tg, "data")
        else tg.utils.data.TensorDataset(mat(1))
    )
    return (lambda x: x * ds[0][0]), (lambda r: setattr(ds, "tensors", (mat(int(r)),)))


turning("object_of_the_library_dataset", turn_ds)


def turn_scaler():
    s = tg.amp.GradScaler(init_scale=2.0)
    return (lambda x: s.scale(x)), (lambda r: s.update(r))


turning("object_of_the_library_scaler", turn_scaler)


@case
def anomalies_detected_in_turn(compile):
    w = tg.tensor([0.0, 1.0], requires_grad=True)

    def f(x):
        w.grad = None
        y = (w / w * x).sum() if False else (tg.sqrt(w) * x).sum() * 0.0
        y.backward()
        return y

    g = compile(f)
    manager = getattr(tg.autograd, "detect_anomaly", None)
    for i in range(9):
        with manager() if manager and i % 3 == 2 else contextlib.nullcontext():
            yield attempt(g, tg.ones(2)), w.grad
