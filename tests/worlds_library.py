"""State inside the library: distributions, transforms, settings of the process, and files."""

from __future__ import annotations

import os
import tempfile

import numpy as np
from worlds import Config, attempt, case, vec

import tapegrad as tg
from tapegrad import distributions as D
from tapegrad import nn


# -- objects of the library that users change
def changing(name, make, use, change, replays=True):
    """Register a case: an object is changed after four calls, and again after eight."""

    def program(compile):
        made = make()
        g = compile(lambda x: use(made, x))
        for i in range(12):
            if i in (4, 8):
                change(made, i / 4)
            yield attempt(g, vec())

    program.__name__ = f"library_{name}"
    program.__module__ = __name__
    case(program, replays=replays)


def log_prob(distribution, x):
    return distribution.log_prob(x.sigmoid())


def setting(name):
    return lambda made, value: setattr(made, name, tg.tensor(value))


changing("normal_loc", lambda: D.Normal(0.0, 1.0), log_prob, setting("loc"))
changing("student_df", lambda: D.StudentT(3.0), log_prob, setting("df"))
changing(
    "bernoulli_logits",
    lambda: D.Bernoulli(logits=tg.zeros(4), validate_args=False),
    log_prob,
    setting("logits"),
)
changing(
    "independent_base",
    lambda: D.Independent(D.Normal(tg.zeros(4), 1.0), 1),
    log_prob,
    lambda made, value: setattr(made, "base_dist", D.Normal(tg.full((4,), value), 1.0)),
)
changing(
    "affine_scale",
    lambda: D.AffineTransform(0.0, 2.0),
    lambda made, x: made(x),
    lambda made, value: setattr(made, "scale", value + 2),
)
changing(
    "scale_inside_a_distribution",
    lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(0.0, 2.0)]),
    log_prob,
    lambda made, value: setattr(made.transforms[0], "scale", value + 2),
)
changing(
    "another_transform",
    lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(0.0, 2.0)]),
    log_prob,
    lambda made, value: made.transforms.append(D.ExpTransform()),
    replays=False,
)
changing(
    "parametrization_scale",
    lambda: parametrized(),
    lambda made, x: made(x),
    lambda made, value: setattr(made.parametrizations.weight[0], "scale", value),
)
changing(
    "function_scale",
    Config,
    lambda made, x: Scaling.apply(x, made),
    lambda made, value: setattr(made, "rate", value),
)


class Scaled(nn.Module):
    scale = 3.0

    def forward(self, weight):
        return weight * self.scale


def parametrized():
    tg.manual_seed(0)
    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Scaled())
    return layer


class Scaling(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        return x * config.rate

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@case
def draws_of_a_sobol_engine(compile):
    engine = tg.quasirandom.SobolEngine(4)
    g = compile(lambda x: x + engine.draw(1).to(x.device))
    for _ in range(6):
        yield g(vec())


# -- settings of the process
def switching(name, get, set, replays=True):
    """Register a case: a function reads a setting, which is changed and set back."""

    def program(compile):
        before = get()
        g = compile(lambda x: x + len(repr(get())))
        try:
            for i in range(12):
                if i % 4 == 0:
                    set(before, i // 4 % 2)
                yield g(vec())
        finally:
            set(before, False)

    program.__name__ = f"switch_{name}"
    program.__module__ = __name__
    case(program, replays=replays)


switching(
    "threads",
    tg.get_num_threads,
    lambda before, other: tg.set_num_threads(before + 1000 if other else before),
    replays=False,
)
switching(
    "precision",
    tg.get_float32_matmul_precision,
    lambda before, other: tg.set_float32_matmul_precision("medium" if other else before),
)
switching(
    "deterministic",
    tg.are_deterministic_algorithms_enabled,
    lambda before, other: tg.use_deterministic_algorithms(not before if other else before),
)
switching(
    "default_dtype",
    tg.get_default_dtype,
    lambda before, other: tg.set_default_dtype(tg.float64 if other else before),
)


@case
def checks_of_distributions(compile):
    """The default for all distributions, and those of one."""
    one = D.Normal(0.0, 1.0)
    g = compile(lambda x: one.log_prob(x * float("nan")))
    h = compile(lambda x: D.Normal(x * float("nan"), 1.0).mean)
    before = D.Distribution._validate_args
    try:
        for i in range(12):
            D.Distribution.set_default_validate_args(bool(i // 4 % 2))
            yield attempt(g, vec()), attempt(h, vec())
    finally:
        D.Distribution.set_default_validate_args(before)


# -- files that are read anew
def reading(name, write, read):
    """Register a case: a file gets other contents after four calls."""

    def program(compile):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "numbers")
            g = compile(lambda x: x + read(path).to(x.device))
            for i in range(8):
                if i % 4 == 0:
                    write(path, np.full(4, 1 + i, np.float32))
                yield g(vec())

    program.__name__ = f"reading_{name}"
    program.__module__ = __name__
    case(program)


reading("tensors", lambda path, x: tg.save(tg.from_numpy(x), path), tg.load)
reading("text", np.savetxt, lambda path: tg.tensor(np.loadtxt(path, np.float32)))
reading("raw", lambda path, x: x.tofile(path), lambda path: tg.tensor(np.fromfile(path, "f4")))
reading(
    "arrays",
    lambda path, x: np.save(path + ".npy", x),
    lambda path: tg.from_numpy(np.load(path + ".npy")),
)
reading(
    "mapped", lambda path, x: x.tofile(path), lambda path: tg.tensor(np.memmap(path, "f4", "r"))
)
