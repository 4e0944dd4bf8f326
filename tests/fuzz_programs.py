"""Random programs as Python text, which `fuzz_replay.py` runs eagerly and compiled.

A program is a list of lines over the arguments `x0..x2` and `i0` (integers), the captured
parameters `p0..p1`, the captured buffer `b0` and constants `k0...`. Lines are drawn from a seed; a
drawn line is kept if it runs on the values made so far. As text, a failing program can be reduced
line by line and read. Programs with surroundings (`fuzz_surroundings.py`) also read and change
Python state, and their arguments may share memory with other tensors.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz_surroundings import (
    ALONE,
    BAD,
    BLOCKS,
    CALLERS,
    CALLS,
    EFFECTS,
    OF_ARRAY,
    OF_NUMBER,
    PATTERNS,
    READS,
    SHARED,
    UNSTEADY_EFFECTS,
    Surroundings,
    calls_of,
    draw_changes,
    prelude,
)
from sweep import NAMES, generator

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor
from tapegrad.ops import TABLE
from tapegrad.ops.table import In
from tapegrad.testing import make_arguments

#: operations that a capture refuses, and those that return no tensor for later lines
REFUSED = {
    *("allclose", "argwhere", "equal", "has_inf", "has_nan", "isclose", "masked_select", "nonzero"),
    "nn.functional.one_hot",
}
USABLE = [name for name in NAMES if name not in REFUSED]

#: exceptions of a line that does not fit the values so far
FAILURES = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration),
    *(TypeError, ValueError),
)

LARGEST = 1500
INTEGERS = "i0"
ARGUMENTS, PARAMETERS, BUFFERS = ("x0", "x1", "x2", INTEGERS), ("p0", "p1"), ("b0",)

#: memory layouts of an argument, as code on an array `a` whose sides are twice as long
LAYOUTS = {
    "plain": "a[tuple(slice(n) for n in shape)].copy()",
    "turned": "a[tuple(slice(n) for n in shape)].copy(order='F')",
    "with gaps": "a[tuple(slice(0, 2 * n, 2) for n in shape)]",
    "backwards": "a[tuple(slice(n) for n in shape)][::-1]",
    "inside": "a[tuple(slice(n // 2, n // 2 + n) for n in shape)]",
}

UNARY = """
{0}.tanh() | {0}.sigmoid() | ({0} * 0.3).exp() | {0}.abs() | ({0}.abs() + 0.1).sqrt() | {0}.relu()
-{0} | {0}.sin() | {0}.square() | F.gelu({0}) | F.softplus({0}) | F.silu({0}) | {0}.clamp(-0.5, 0.7)
{0} ** 3 | 1 / ({0}.abs() + 0.5) | ({0}.abs() + 0.2).log() | {0}.erf() | {0}.floor() | {0}.sign()
{0} * 1.5 | 2 - {0} | {0} / 3 | {0}.clone() | {0}.detach() | {0}.contiguous() | {0}.double()
{0}.float() | {0} * 0 | F.leaky_relu({0}, 0.2) | {0}.cos() | F.elu({0}) | {0}.log1p().nan_to_num()
F.dropout({0}, 0.4) | {0} + tg.rand({0}.shape) | tg.zeros_like({0}) + {0} | {0}.trunc()
"""
BINARY = """
{0} + {1} | {0} - {1} | {0} * {1} | {0} / ({1}.abs() + 0.5) | tg.maximum({0}, {1})
tg.minimum({0}, {1}) | tg.where({0} > {1}, {0}, {1} * 0.5) | tg.lerp({0}, {1}, 0.3)
tg.where(({0} > 0) & ({1} < 0.5), {1}, 0.25)
tg.atan2({0}, {1}.abs() + 0.2) | {0}.addcmul({0}, {1})
{0} * ({1} > 0) | tg.hypot({0}, {1} + 0.1) | ({0} <= {1}).float() - {0}
"""
REDUCTIONS = """
{0}.sum({d}) | {0}.sum({d}, keepdim=True) | {0}.mean({d}) | {0}.amax({d})
{0}.amin({d}, keepdim=True)
{0} - {0}.mean({d}, keepdim=True) | {0}.softmax({d}) | F.log_softmax({0}, {d}) | {0}.logsumexp({d})
{0}.var({d}, unbiased=False) | {0}.norm() | {0}.sum() * 0.1 | {0}.mean() | {0}.cumsum({d})
{0}.max({d})[0] | {0}.argmax({d}).float() * 0.1 | {0}.tanh().prod({d}) | {0}.amax() + {0}
({0} > 0).any({d}).float() | ({0} > 0).sum({d}) * 0.1 | {0} / ({0}.abs().sum({d}, keepdim=True) + 1)
{0}.sort({d})[0] | F.layer_norm({0}, {0}.shape[-1:]) | {0}.std({d}, unbiased=False)
"""
VIEWS = """
{0}.transpose({d}, {e}) | {0}.reshape(-1) | {0}.flip({d}) | {0}.roll(1, {d}) | {0}.unsqueeze({d})
{0}.select({d}, -1) | {0}.narrow({d}, 0, ({0}.shape[{d}] + 1) // 2) | {0}[::2] | {0}[..., 1:]
{0}.unsqueeze(0).expand(2, *{0}.shape) | {0}.movedim({d}, {e}) | {0}.reshape(*{0}.shape[::-1])
{0}[None, ..., 0] | {0}.transpose({d}, {e}).contiguous() | {0}.repeat(2, *[1] * ({0}.ndim - 1))
{0}.diagonal(0, 0, -1) | {0}.chunk(2, {d})[-1] | {0}.split(1, {d})[0] | {0}.unbind({d})[0]
{0}.squeeze() | {0}.flatten() | {0}[1:].reshape(-1)[::2] | F.pad({0}, (1, 2)) | tg.tril({0})
tg.cat([{0}, {0} * 2], {d}) | tg.stack([{0}, -{0}], {d}) | {0}.T.reshape(-1)
"""
CHANGES = """
{0}.mul_(0.5) | {0}.add_({1} * 0.1) | {0}.copy_({1}) | {0}[0] = 0.25
{0}.transpose(0, -1).mul_(0.9)
{0}[1:].add_(0.1) | {0}.tanh_() | {0}[..., 0] = {1}.mean() | {0} += {1} | {0}.zero_()
{0}.fill_(0.5)
{0}.narrow(0, 0, 1).copy_({0}.narrow(0, {0}.shape[0] - 1, 1)) | {0}[:1] *= 2 | {0}.clamp_(-1, 1)
{0}.masked_fill_({0} > 0.5, 0.1) | {0}.reshape(-1)[::2].sub_(0.1) | {0}[{0}.shape[0] // 2] += 0.5
{0}.detach().mul_(0.9) | {0}.sub_({0}.mean()) | {0}.flip(0).add_(1) | {0}.relu_()
"""
WITH_INTEGERS = """
{0}[i0 % {0}.shape[0]] | {0}.index_select({d}, (i0 // 2).reshape(-1) % {0}.shape[{d}])
{0} * (i0 > 1).float().sum() | {0} + i0.float().mean() * 0.1 | {0}[i0 % 2 - 1]
F.one_hot(i0 % 5, 5) * {0}.mean() | tg.where(i0 == 2, {0}.sum(), {0}.mean())
F.cross_entropy({0}.reshape(1, -1), i0.reshape(-1)[:1] % {0}.numel())
(i0 << 1).float() * {0}.amax()
F.embedding(i0 % {0}.shape[0], {0}) | (i0 * i0 - 3).float() / 10 | i0.remainder(3) * {0}.mean()
tg.zeros(8).index_add(0, i0.reshape(-1) % 8, i0.reshape(-1).float()) * {0}.mean()
{0}.take_along_dim(i0.reshape(-1)[:1].reshape(*[1] * {0}.ndim) % {0}.shape[{d}], {d})
"""
STATE = """
b0.add_(0.1) | b0.mul_(0.9).add_({0}.detach().mean()) | b0[0] = {0}.detach().mean()
b0.copy_(b0.flip(0)) | p0.data.mul_(0.99) | b0[1:].mul_(0.5) | b0.lerp_({0}.detach().amax(), 0.1)
"""


def choices(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split("|")]


# No line uses `a | b` on masks, so that the bar can separate lines.
PURE, PAIRS, REDUCED, VIEWED = map(choices, (UNARY, BINARY, REDUCTIONS, VIEWS))
CHANGED, STATES, DYNAMIC = choices(CHANGES), choices(STATE), choices(WITH_INTEGERS)
READING, STEADY, UNSTEADY = map(choices, (READS, EFFECTS, UNSTEADY_EFFECTS))
RISKY = choices(BAD)
OF_EXTRA = {"a0": choices(OF_ARRAY), "n0": choices(OF_NUMBER)}


def fit(x: Tensor, shape: tuple[int, ...], low: float, high: float, ramp: Any = None) -> Tensor:
    """A tensor of a given shape and range that depends on the elements of x."""
    count = math.prod(shape)
    values = x.reshape(-1).float()
    values = values.repeat(-(-count // values.numel()))[:count].reshape(shape).sigmoid()
    if ramp is not None:
        values = values * 0.1 + ramp
    return values * (0.96 * (high - low)) + (low + 0.02 * (high - low))


class Program:
    """The lines of a program, its constants, and the shapes of its tensors."""

    def __init__(self, seed: int, shapes: dict[str, tuple[int, ...]]) -> None:
        self.seed = seed
        self.shapes = shapes
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.results: list[str] = []
        self.layouts: dict[str, str] = {}
        self.update = False  # whether it updates parameters after backward
        self.accumulates = False  # whether it adds gradients from call to call
        self.spoilt = False  # whether arguments have NaN and Inf, after the recordings
        self.outside = False  # whether the caller calls backward
        self.ending = (
            ""  # of the backward call: "retain" its graph, return its "mapping" or "gradients"
        )
        self.surroundings: Surroundings | None = None

    def names(self) -> dict[str, Any]:
        """The names that the program's text may use, without arguments and state."""
        functions = {"tg": tg, "nn": nn, "np": np, "F": nn.functional, "OPS": TABLE, "fit": fit}
        functions |= {m.__name__: m for m in (collections, contextlib, dataclasses, functools)}
        constants = {
            name: value.detach().clone() if isinstance(value, tg.Tensor) else value
            for name, value in self.constants.items()
        }
        return functions | {"inf": math.inf, "__name__": __name__} | constants

    @property
    def arguments(self) -> tuple[str, ...]:
        return ARGUMENTS + (self.surroundings.extra if self.surroundings else ())

    def without(self, number: int) -> Program:
        """The program without a line, and without the lines that need its results."""
        made = copy.copy(self)
        made.lines = []
        lost: set[str] = set()
        for i, line in enumerate(self.lines):
            used = set(re.findall(r"\bv\d+\b", line))
            if i == number or used & lost:
                lost |= targets(line)
            else:
                made.lines.append(line)
        made.results = [name for name in self.results if name not in lost]
        return made

    def text(self) -> str:
        """The program as a function."""
        body = [f"    {line}" for line in self.lines]
        if not self.accumulates:
            body = [f"    {p}.grad = None" for p in PARAMETERS] + body
        rebound = sorted({n for n in (*BLOCKS, *BUFFERS) for x in self.lines if binds(x, n)})
        body = [f"    global {', '.join(rebound)}"] * bool(rebound) + body
        body.append(f"    outs = [{', '.join(self.results)}]")
        if not self.outside:
            body += self._backward()
        body.append("    return outs")
        return "\n".join([*self._head(), *body])

    def _head(self) -> list[str]:
        """The `def` line, and the lines that unpack the arguments."""
        names = ", ".join(self.arguments)
        batch = self.surroundings.batch if self.surroundings is not None else ""
        if not batch:
            return [f"def program({names}):"]
        forms = {
            "list": f"    {names}, = batch",
            "dict": "\n".join(f"    {n} = batch['{n}']" for n in self.arguments),
            "record": "\n".join(f"    {n} = batch.{n}" for n in self.arguments),
        }
        more = {
            "list": "",
            "dict": "    batch['made'] = x0 * 2",
            "record": "    batch.made = x0 * 2",
        }
        return ["def program(batch):", forms[batch], *filter(None, [more[batch]])]

    def _backward(self) -> list[str]:
        """The end of a program that calls backward itself."""
        retain = "retain_graph=True" if self.ending == "retain" else ""
        last = {
            "retain": "outs + [loss]",
            "mapping": "[o.detach() for o in outs] + [kept]",
            "gradients": "[o.detach() for o in outs] + [kept[p] for p in (p0, p1) if p in kept]",
        }
        made = last.get(self.ending, "[o.detach() for o in outs] + [loss.detach()]")
        body = [
            "    graded = [o for o in outs if o.requires_grad]",
            "    if graded:",
            "        loss = sum((o.float().tanh() ** 2).mean() for o in graded)",
            f"        kept = loss.backward({retain})",
            f"        outs = {made}",
        ]
        if self.update:
            body.append("    with tg.no_grad():")
            body += [
                f"        if {p}.grad is not None: {p}.sub_(0.1 * {p}.grad)" for p in PARAMETERS
            ]
        return body

    def state(self) -> str:
        """The text of the state that the program and its surroundings need."""
        if self.surroundings is None:
            return ""
        around = self.surroundings
        changes = "\n".join(statement for _, statement in around.changes)
        second = around.second if around.second_calls else ""
        return prelude("\n".join([self.text(), changes, second]))

    def __str__(self) -> str:
        text = self.text()
        used = [n for n in self.constants if re.search(rf"\b{n}\b", text)]
        shown = [f"{name} = {self.constants[name]!r}" for name in used]
        flags = [f for f in ("spoilt", "outside") if getattr(self, f)]
        head = f"# seed {self.seed}: {self.shapes} {self.layouts} {' '.join(flags)}"
        around = [] if self.surroundings is None else [str(self.surroundings), self.state()]
        return "\n".join([head, *around, *shown, text])


def binds(line: str, name: str) -> bool:
    """Whether a line assigns to a name."""
    return re.match(rf"{name} [-+*]?= ", line) is not None


def targets(line: str) -> set[str]:
    """The names that a line binds for the first time."""
    found = re.match(r"(?:with [^:]*: )?((?:v\d+,? ?)+)= ", line)
    return set(re.findall(r"v\d+", found[1])) if found else set()


class Writer:
    """Draws lines and keeps those that run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prefix = ""  # of the line being written
        side = [self.random.choice([1, 2, 3, 4, 5, 7, 16]) for _ in range(3)]
        a, b, c = side
        if self.random.random() < 0.08:
            a, b = 24, 33  # large enough for several threads in reductions and products
        every = [(a, b), (b, c), (b,), (a, b, c), (a, 1), (c, b), (a, c, b), (1, b)]
        names = (*ARGUMENTS, *PARAMETERS, *BUFFERS)
        self.program = Program(seed, {n: self.random.choice(every) for n in names})
        self.scope = self.program.names()
        self.count = 0
        for i, (name, shape) in enumerate(self.program.shapes.items()):
            self.scope[name] = sample(shape, 1000 + i).requires_grad_(name in PARAMETERS)
            if name in ARGUMENTS and self.random.random() < 0.25:
                self.program.layouts[name] = self.random.choice(list(LAYOUTS))
        self.scope[INTEGERS] = integers(self.program.shapes[INTEGERS], 999)
        self.values = [*ARGUMENTS]
        for name in PARAMETERS:
            self.bind(f"{name} * 1.0")

    # -- picking -----------------------------------------------------------------------------

    def pick(self, fits: Callable[[Tensor], Any] = lambda x: True) -> str | None:
        """The name of a nonempty floating value; recent values are likelier."""
        usable = [
            n
            for n in self.values
            if self.scope[n].dtype.is_floating_point
            and self.scope[n].numel()
            and self.has_a_history(n)
            and fits(self.scope[n])
        ]
        if not usable:
            return None
        recent = usable[-4:] if self.random.random() < 0.6 else usable
        return self.random.choice(recent)

    def has_a_history(self, name: str) -> bool:
        """False for one of several views that one call returned, after an in-place change."""
        try:
            return self.scope[name].requires_grad is not None
        except RuntimeError:
            return False

    def partner(self, name: str) -> str:
        """A value that broadcasts with another one."""
        shape = self.scope[name].shape

        def fits(x: Tensor) -> bool:
            pairs = zip(reversed(x.shape), reversed(shape), strict=False)
            return all(m == n or 1 in (m, n) for m, n in pairs)

        return self.pick(fits) or name

    def dims(self, name: str) -> dict[str, int]:
        ndim = max(self.scope[name].ndim, 1)
        return {"d": self.random.randrange(-ndim, ndim), "e": self.random.randrange(ndim)}

    # -- writing -----------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        name = f"k{len(self.program.constants)}"
        self.program.constants[name] = self.scope[name] = value
        return name

    def bind(self, expression: str) -> bool:
        """Bind the tensors that an expression returns, if it runs."""
        try:
            value = eval(expression, self.scope)
        except FAILURES:
            return False
        several = isinstance(value, (tuple, list))
        made = list(value) if several else [value]
        if not made or not all(isinstance(t, Tensor) and sane(t) for t in made):
            return False
        names = [f"v{self.count + i}" for i in range(len(made))]
        self.count += len(made)
        target = f"{', '.join(names)}{',' if several else ''}"
        self.program.lines.append(f"{self.prefix}{target} = {expression}")
        self.scope.update(zip(names, made, strict=True))
        self.values += names
        return True

    def run(self, line: str) -> bool:
        """Add a line that changes something, if it runs."""
        try:
            exec(line, self.scope)
        except FAILURES:
            return False
        self.program.lines.append(line)
        return True

    # -- kinds of lines ----------------------------------------------------------------------

    def unary(self) -> bool:
        x = self.pick()
        return x is not None and self.bind(self.random.choice(PURE).format(x))

    def binary(self) -> bool:
        x = self.pick()
        return x is not None and self.bind(self.random.choice(PAIRS).format(x, self.partner(x)))

    def reduction(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        return x is not None and self.bind(self.random.choice(REDUCED).format(x, **self.dims(x)))

    def view(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        return x is not None and self.bind(self.random.choice(VIEWED).format(x, **self.dims(x)))

    def product(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        if x is None:
            return False
        inner = self.scope[x].shape[-1]
        y = self.pick(lambda y: y.ndim and y.shape[-2 if y.ndim > 1 else 0] == inner)
        forms = ["{0} @ {1} * 0.2", "{0} @ {0}.transpose(-1, -2) * 0.1", "{0}.T @ {0} * 0.1"]
        return self.bind(self.random.choice(forms if y else forms[1:]).format(x, y))

    def indexed(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        if x is None:
            return False
        shape, d = self.scope[x].shape, self.random.randrange(self.scope[x].ndim)
        rng = np.random.default_rng(self.random.randrange(2**31))
        rows = self.constant(
            tg.tensor(rng.integers(-shape[0], shape[0], self.random.randint(1, 4)))
        )
        picked = self.constant(tg.tensor(rng.integers(0, shape[d], shape)))
        some = self.constant(tg.tensor(rng.integers(0, shape[d], self.random.randint(1, 5))))
        return self.bind(
            self.random.choice(
                [
                    f"{x}[{rows}]",
                    f"{x}[{rows}, ..., None]",
                    f"{x}.gather({d}, {picked})",
                    f"{x}.index_select({d}, {some})",
                    f"{x}.scatter_add({d}, {picked}, {x} * 0.5)",
                    f"tg.zeros_like({x}).index_add({d}, {some}, {x}.index_select({d}, {some}))",
                ]
            )
        )

    def of_table(self) -> bool:
        """Any operation of the op table, its floating arguments made from values so far."""
        name = self.random.choice(USABLE)
        samples = TABLE[name].samples
        assert samples is not None
        number = self.random.randrange(len(samples()))
        chosen = samples()[number]
        specs = [In(*a) if type(a) is tuple else a for a in chosen.args]
        args, kwargs = make_arguments(chosen, generator(name, number), tg.float32)
        parts = [self.argument(a, s) for a, s in zip(args, specs, strict=True)]
        parts += [f"{k}={self.argument(v, chosen.kwargs[k])}" for k, v in kwargs.items()]
        return self.bind(f"OPS[{name!r}].function({', '.join(parts)})")

    def argument(self, value: Any, spec: Any) -> str:
        """The text of an argument of a table operation."""
        if isinstance(value, list) and any(isinstance(v, Tensor) for v in value):
            pairs = zip(value, spec, strict=True)
            return f"[{', '.join(self.argument(v, s) for v, s in pairs)}]"
        if not isinstance(value, Tensor):
            plain = isinstance(value, (bool, int, float, str, type(None)))
            return repr(value) if plain and value == value else self.constant(value)
        source = self.pick()
        if source is None or not isinstance(spec, In) or spec.kind != "float":
            return self.constant(value)
        if spec.values is not None or not spec.grad or self.random.random() < 0.2:
            return self.constant(value)
        shape, ramp = tuple(value.shape), ""
        if spec.distinct:
            order = np.random.default_rng(0).permutation(value.numel()) / max(value.numel(), 1)
            ramp = f", {self.constant(tg.tensor((order * 0.9).astype(np.float32).reshape(shape)))}"
        return f"fit({source}, {shape}, {float(spec.low)}, {float(spec.high)}{ramp})"

    def change(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        if x is None:
            return False
        return self.run(self.random.choice(CHANGED).format(x, self.partner(x)))

    def dynamic(self) -> bool:
        """A line that uses the integer argument."""
        x = self.pick(lambda x: x.ndim)
        return x is not None and self.bind(self.random.choice(DYNAMIC).format(x, **self.dims(x)))

    def state(self) -> bool:
        x = self.pick()
        return x is not None and self.run(self.random.choice(STATES).format(x))

    def gradient(self) -> bool:
        y = self.pick(lambda x: x.requires_grad)
        x = self.pick(lambda x: x.requires_grad)
        if x is None or y is None or x == y:
            return False
        graph = self.random.random() < 0.4
        return self.bind(
            f"tg.autograd.grad(({y} * {y}).sum(), {x}, create_graph={graph}, retain_graph=True)[0]"
        )

    def parts(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        d = f"{self.dims(x)['d']}" if x else ""
        forms = ["{0}.chunk(2, {1})", "{0}.max({1})", "{0}.sort({1})", "tg.var_mean({0}, {1})"]
        return x is not None and self.bind(self.random.choice(forms).format(x, d))

    def kinds(self) -> dict[Callable[[], bool], int]:
        """The kinds of lines and their weights."""
        return {
            self.unary: 6, self.binary: 6, self.reduction: 5, self.view: 6, self.product: 2,
            self.indexed: 3, self.of_table: 7, self.change: 4, self.state: 1, self.gradient: 2,
            self.parts: 1, self.dynamic: 2,
        }  # fmt: skip

    def write(self) -> Program:
        weights = self.kinds()
        kinds, often = list(weights), list(weights.values())
        wanted = self.random.randint(3, 14)
        for _ in range(4 * wanted):
            if len(self.program.lines) >= wanted + len(PARAMETERS):
                break
            self.random.choices(kinds, often)[0]()
        made = [n for n in self.values if n.startswith("v")] or ["p0"]
        picked = {made[-1], *self.random.sample(made, min(len(made), 3))}
        program = self.program
        program.results = [n for n in made if n in picked]
        program.update = self.random.random() < 0.3
        program.accumulates = self.random.random() < 0.2
        program.spoilt = self.random.random() < 0.1
        program.outside = self.random.random() < 0.2
        if self.random.random() < 0.15:
            program.results.append(self.random.choice([*ARGUMENTS, *PARAMETERS, *BUFFERS]))
        return program


class SurroundedWriter(Writer):
    """Draws programs that read and change Python state, and their surroundings."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng, program = self.random, self.program
        program.layouts = {}
        self.around = program.surroundings = Surroundings()
        self.scope |= {"compile": lambda function: function}
        exec("\n".join(BLOCKS.values()), self.scope)
        self.around.extra = tuple(n for n in ("a0", "n0") if rng.random() < 0.12)
        if rng.random() < 0.3:
            self.around.extra += ("j0",)
        self.scope |= {"a0": np.ones(3, np.float32), "n0": 2, "j0": tg.tensor([0, 1])}
        for i, name in enumerate(ARGUMENTS[:-1]):
            if rng.random() < 0.5:
                self._place(name, ARGUMENTS[:i])

    def _place(self, name: str, earlier: tuple[str, ...]) -> None:
        """Draw the two origins of an argument and their pattern."""
        rng = self.random
        others = [*earlier, *PARAMETERS, *BUFFERS]
        origins = []
        for _ in range(2):
            if rng.random() < 0.35:
                other = rng.choice(others)
                origins.append(f"{rng.choice(list(SHARED))} of {other}")
                self.program.shapes[name] = self.program.shapes[other]
                self.scope[name] = sample(self.program.shapes[name], 1000 + len(name))
            else:
                origins.append(rng.choice(ALONE))
        pattern = rng.choice(PATTERNS)
        if rng.random() < 0.4:
            pattern = "A" * CALLS
        self.around.origins[name] = (pattern, origins[0], origins[1])

    def reading(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        return x is not None and self.bind(self.random.choice(READING).format(x))

    def effect(self) -> bool:
        x = self.pick(lambda x: x.ndim)
        often = self.random.random() < 0.8
        return x is not None and self.run(
            self.random.choice(STEADY if often else UNSTEADY).format(x)
        )

    def risky(self) -> bool:
        """A line that raises if the index is out of range."""
        x = self.pick(lambda x: x.ndim and x.shape[0] >= 2)
        if x is None or "j0" not in self.around.extra:
            return False
        return self.bind(self.random.choice(RISKY).format(x))

    def of_extra(self) -> bool:
        """A line that uses the array or number argument."""
        x = self.pick(lambda x: x.ndim)
        extra = [n for n in self.around.extra if n in OF_EXTRA]
        if x is None or not extra:
            return False
        return self.bind(self.random.choice(OF_EXTRA[self.random.choice(extra)]).format(x))

    def without_grad(self) -> bool:
        self.prefix = "with tg.no_grad(): "
        made = self.random.choice([self.unary, self.binary, self.reading])()
        self.prefix = ""
        return made

    def write_into_argument(self) -> bool:
        x = self.random.choice(ARGUMENTS[:-1])
        line = self.random.choice(CHANGED).format(x, self.partner(x))
        return bool(self.scope[x].ndim) and self.run(line)

    def kinds(self) -> dict[Callable[[], bool], int]:
        return {
            self.unary: 4, self.binary: 5, self.reduction: 3, self.view: 4, self.product: 1,
            self.indexed: 1, self.of_table: 2, self.change: 3, self.state: 2, self.gradient: 1,
            self.dynamic: 1, self.reading: 14, self.effect: 7, self.risky: 5, self.of_extra: 4,
            self.without_grad: 1, self.write_into_argument: 3,
        }  # fmt: skip

    def write(self) -> Program:
        program, rng, around = super().write(), self.random, self.around
        program.spoilt = rng.random() < 0.04
        program.outside = rng.random() < 0.35
        program.ending = rng.choice(
            ["", "", "", "", "", "retain", "retain", "gradients", "mapping"]
        )
        if rng.random() < 0.25:
            around.second = rng.choice(["second", "second_cell", "inside_state"])
            around.second_calls = calls_of(rng.choice(PATTERNS[1:]))
        around.changes = draw_changes(rng, "\n".join([program.text(), around.second]))
        if "j0" in around.extra:
            around.bad = tuple(i for i in range(CALLS) if rng.random() < 0.2)
        without_grad = rng.random() < 0.15
        if without_grad and "_(" not in program.text():
            # PyTorch refuses views that are taken and written to without gradients.
            around.without_grad = calls_of(rng.choice(PATTERNS[1:]))
        around.caller = rng.choice(CALLERS)
        # Eager and compiled calls save different values, which nobody may change before backward.
        around.writes = rng.random() < 0.15 and around.caller != "late"
        if rng.random() < 0.15:
            around.batch = rng.choice(["list", "dict", "record"])
        if set(around.extra) & set(OF_EXTRA):
            around.number = rng.choice(PATTERNS)
        return program


def sample(shape: tuple[int, ...], seed: int) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def integers(shape: tuple[int, ...], seed: int) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).integers(-6, 7, shape))


def laid_out(array: Any, layout: str) -> Any:
    """The same values in another layout."""
    shape = array.shape
    a = np.zeros([2 * n for n in shape], array.dtype)
    view = eval(LAYOUTS[layout], {"a": a, "shape": shape})
    view[...] = array
    return view


def sane(t: Tensor) -> bool:
    """Whether it is small enough to be quick, with finite values below 1000 in magnitude."""
    if not 0 < t.numel() <= LARGEST:
        return t.numel() == 0
    values = t.detach().float().numpy()
    return bool(np.isfinite(values).all() and np.abs(values).max() < 1e3)


def write(seed: int, surrounded: bool = False) -> Program:
    """The program of a seed."""
    return (SurroundedWriter if surrounded else Writer)(seed).write()
