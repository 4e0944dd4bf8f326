"""Worlds: ordinary programs around one compiled function, run twice and compared call by call.

A case is a function that takes `compile` and yields the observable state after each call: results,
Python state, parameters, gradients. It is run with the identity and with `tapegrad.compile`; both
runs must yield the same. The cases are in the files `worlds_*.py`; `test_worlds.py` tests them, and
`python tests/worlds.py [part of a name ...]` prints a table.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor

#: a value that stays, changes, stays, and returns: each is recorded twice and then replayed
TURNS = (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0, 3.0)
EAGERLY = "runs eagerly"


@dataclasses.dataclass(frozen=True)
class Case:
    """A program; with `replays`, one of its last calls must be replayed, and none refused."""

    name: str
    file: str
    program: Callable[..., Iterator[Any]]
    replays: bool


CASES: dict[str, Case] = {}


def case(program: Any = None, *, replays: bool = False) -> Any:
    """Register a program, as `@case` or `@case(replays=True)`."""

    def register(program: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        name = program.__name__
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = Case(name, program.__module__, program, replays)
        return program

    return register if program is None else register(program)


def cases() -> dict[str, Case]:
    """All cases of the files `worlds_*.py`."""
    for path in sorted(Path(__file__).parent.glob("worlds_*.py")):
        importlib.import_module(path.stem)
    return CASES


# -- parts of programs ---------------------------------------------------------------------------


def vec(i: float = 0, **options: Any) -> Tensor:
    """Four numbers that differ with `i`."""
    return tg.tensor([1.0 + i, -2.0, 0.5, 3.0 - i], **options)


def mat(i: int = 0, rows: int = 4, columns: int = 4, **options: Any) -> Tensor:
    """A matrix of normal random numbers, seeded with `i`."""
    values = np.random.default_rng(i).standard_normal((rows, columns)).astype(np.float32)
    return tg.tensor(values, **options)


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or the class of its exception."""
    try:
        return function(*args, **kwargs)
    except (ArithmeticError, AssertionError, LookupError, AttributeError) as error:
        return type(error)
    except (NameError, OSError, RuntimeError, TypeError, ValueError) as error:
        return type(error)
    except (KeyboardInterrupt, StopIteration, SystemExit) as error:
        return type(error)


class Config:
    """A typical settings object."""

    def __init__(self, rate: Any = 2.0) -> None:
        self.rate = rate


def with_rates(function: Any, holder: Any, name: str = "rate") -> Any:
    """Calls a function while an attribute goes through `TURNS`."""
    for rate in TURNS:
        setattr(holder, name, rate)
        yield function(vec())


def batch(i: int, rows: int = 6) -> tuple[Tensor, Tensor]:
    """Inputs and labels of one step, in double precision: steps amplify rounding errors."""
    return mat(i, rows).double(), tg.tensor([(i + j) % 3 for j in range(rows)])


def network(seed: int = 0) -> nn.Sequential:
    """A classifier of three classes."""
    tg.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


class Training:
    """A model, an optimizer, and the usual training step."""

    def __init__(self, compile: Any, kind: Any = tg.optim.SGD, **options: Any) -> None:
        self.model = network()
        self.optimizer = kind(self.model.parameters(), **({"lr": 0.1} | options))
        self.step = compile(self.plain_step)

    def plain_step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, before: Any = None, after: Any = None, steps: int = 10) -> Iterator[Any]:
        """Run steps, with callbacks before and after each; yields loss, model and optimizer."""
        for i in range(steps):
            if before is not None:
                before(i)
            loss = self.step(*batch(i))
            if after is not None:
                after(i, loss)
            yield loss, self.model, self.optimizer


# -- observations --------------------------------------------------------------------------------


@dataclasses.dataclass
class Seen:
    """The state of a tensor, an array, a module or another object at one moment."""

    kind: str
    facts: dict[str, Any]


def look(value: Any) -> Any:
    """A copy of a value's observable state."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, Tensor):
        facts = {
            "shape": tuple(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "values": np.array(value.detach().numpy()),
        }
        return Seen(f"{type(value).__name__} of {value.dtype}", facts)
    if isinstance(value, (np.ndarray, np.generic)):
        return Seen(f"array of {value.dtype}", {"values": np.array(value)})
    if isinstance(value, nn.Module):
        facts = {name: (look(p), look(p.grad)) for name, p in value.named_parameters()}
        facts |= {name: look(b) for name, b in value.named_buffers()}
        return Seen("module", facts | {"training": value.training})
    if isinstance(value, tg.optim.Optimizer):
        return look(value.state_dict())
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return Seen("named", {"name": value.__qualname__})
    if isinstance(value, BaseException):
        return Seen("exception", {"class": type(value).__name__})
    if isinstance(value, (set, frozenset)):
        return Seen(type(value).__name__, {"items": sorted(map(repr, value))})
    if isinstance(value, tg.Gradients):  # its keys are numbers that differ between runs
        return Seen("gradients", {"items": [look(value[key]) for key in sorted(value)]})
    if isinstance(value, collections.abc.Mapping):
        return Seen(type(value).__name__, {"items": [(look(k), look(v)) for k, v in value.items()]})
    if isinstance(value, (list, tuple, collections.deque)):
        return Seen(type(value).__name__, {"items": [look(v) for v in value]})
    if hasattr(value, "__dict__"):
        return Seen(type(value).__name__, {name: look(v) for name, v in vars(value).items()})
    raise TypeError(f"a case yielded {type(value).__name__}; yield what can be compared")


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Where two observations differ, or None."""
    where = path or "the value"
    if type(a) is not type(b):
        return f"{where}: eager {a!r}, compiled {b!r}"
    if isinstance(a, Seen):
        if a.kind != b.kind or list(a.facts) != list(b.facts):
            return f"{where}: eager {a!r:.200}, compiled {b!r:.200}"
        found = (difference(a.facts[k], b.facts[k], f"{path}.{k}") for k in a.facts)
        return next(filter(None, found), None)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{where}: eager has {len(a)} items, compiled {len(b)}"
        found = (
            difference(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))
        )
        return next(filter(None, found), None)
    if isinstance(a, (float, complex, np.ndarray)):
        x, y = np.asarray(a), np.asarray(b)
        same = x.dtype == y.dtype and x.shape == y.shape
        if same and (x.dtype.names or x.dtype.kind not in "fc"):
            same = np.array_equal(x, y)
        elif same:
            scale = np.abs(x[np.isfinite(x)]).max(initial=1e-3)
            same = np.allclose(x, y, rtol=1e-5, atol=1e-6 * scale, equal_nan=True)
        return None if same else f"{where}: eager {a!r}, compiled {b!r}"
    return None if a == b else f"{where}: eager {a!r}, compiled {b!r}"


# -- running -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """The observations of one run of a case."""

    observations: list[Any] = dataclasses.field(default_factory=list)
    counts: list[int] = dataclasses.field(default_factory=list)  # of replays, after each call
    refusals: list[str] = dataclasses.field(default_factory=list)
    crash: str | None = None


class Compiler:
    """The `compile` that a case gets; keeps all compiled functions."""

    def __init__(self, compiles: bool) -> None:
        self.compiles = compiles
        self.made: list[Any] = []

    def __call__(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda function: self(function, **options)
        if not self.compiles:
            return function
        made = tg.compile(function, **options)
        self.made.append(made)
        return made

    def replays(self) -> int:
        return sum(replay.count for made in self.made for replay in made.replays)


def observe(case: Case, compiles: bool) -> Run:
    """Run a case once, with an observation after each call."""
    random.seed(0)
    np.random.seed(0)
    tg.manual_seed(0)
    tg.set_default_dtype(tg.float32)
    tg.set_grad_enabled(True)
    run, compiler = Run(), Compiler(compiles)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for seen in case.program(compiler):
                said = [(w.category.__name__, str(w.message)) for w in caught]
                caught.clear()
                run.refusals += [text for _, text in said if EAGERLY in text]
                said = [warning for warning in said if EAGERLY not in warning[1]]
                run.observations.append((look(seen), said))
                run.counts.append(compiler.replays())
        except Exception as error:  # a program may raise anything: it counts as a crash
            if not compiles:
                raise
            run.crash = f"{type(error).__name__}: {error}"
    return run


@dataclasses.dataclass
class Verdict:
    """How the compiled run of a case compares with the eager one."""

    case: Case
    wrong: str | None
    crash: str | None
    refusals: list[str]
    replays: int
    replays_last: bool  # one of the last three calls was replayed

    @property
    def complaint(self) -> str | None:
        """The failure message of a test; None if all is well."""
        if self.wrong is not None:
            return self.wrong
        if len(set(self.refusals)) < len(self.refusals):
            return f"the same warning came twice: {self.refusals}"
        nameless = [text for text in self.refusals if not re.search(r"\.py:\d+", text)]
        if nameless:
            return f"the warning names no line: {nameless[0]}"
        if self.case.replays and self.refusals:
            return f"should be replayed, but {self.refusals[0]}"
        if self.case.replays and not self.replays_last:
            return f"should be replayed, but none of the last calls was ({self.replays} in all)"
        return None


def judge(case: Case) -> Verdict:
    """Run a case eagerly and compiled."""
    eager, compiled = observe(case, False), observe(case, True)
    assert len(eager.observations) >= 3, f"{case.name} has {len(eager.observations)} calls"
    wrong = None
    for i, (a, b) in enumerate(zip(eager.observations, compiled.observations, strict=False)):
        found = difference(a[0], b[0]) or difference(a[1], b[1], "warnings")
        if found is not None:
            wrong = f"{case.name}, call {i + 1}: {found}"
            break
    if wrong is None and len(compiled.observations) < len(eager.observations):
        wrong = (
            f"{case.name}, call {len(compiled.observations) + 1}: only compiled, {compiled.crash}"
        )
    counts = compiled.counts or [0]
    last = counts[-1] > counts[max(len(counts) - 4, 0)]
    return Verdict(case, wrong, compiled.crash, compiled.refusals, counts[-1], last)


def main(names: list[str]) -> int:
    """Print a line for each case, and the totals."""
    totals: collections.Counter[str] = collections.Counter()
    complaints = []
    print(f"{'case':<52} {'equal':<8} {'refused':<8} {'replays':<8}")
    for name, case in cases().items():
        if names and not any(part in name or part in case.file for part in names):
            continue
        verdict = judge(case)
        equal = "crash" if verdict.crash else "wrong" if verdict.wrong else "yes"
        refused = "yes" if verdict.refusals else "no"
        print(f"{name:<52} {equal:<8} {refused:<8} {verdict.replays:<8}", flush=True)
        totals[{"yes": "equal", "crash": "crashed"}.get(equal, equal)] += 1
        totals["refused"] += bool(verdict.refusals)
        totals["cases"] += 1
        totals["calls replayed"] += verdict.replays
        if verdict.complaint is not None:
            complaints.append(f"{name}: {verdict.complaint[:300]}")
            totals["too slow"] += equal == "yes"
    print("\n".join(["", *complaints, "", str(dict(totals))]))
    return 1 if complaints else 0


if __name__ == "__main__":
    # Imported by name: the cases import `worlds`, a different module from `__main__`.
    sys.exit(importlib.import_module("worlds").main(sys.argv[1:]))
