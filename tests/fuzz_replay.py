"""Random programs, eager against compiled: `python tests/fuzz_replay.py --count 20000`.

`check(program)` runs a program of `fuzz_programs.py` twice on equal data and state, eagerly and
compiled, through recordings and replays, and compares everything observable after each call:
results, arguments and their bases, parameters, gradients, buffers, Python state, exceptions. Prints
each failure, reduced to the lines and surroundings that it needs. With `--device cuda` it compares
the CPU with a GPU, eager and compiled.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import os
import re
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from fuzz_programs import (
    BUFFERS,
    FAILURES,
    INTEGERS,
    PARAMETERS,
    Program,
    integers,
    laid_out,
    sample,
    write,
)
from fuzz_surroundings import CALLS as SURROUNDED_CALLS
from fuzz_surroundings import Origins, Surroundings, bound

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor
from tapegrad.replay.cpu import pool, tuning

CALLS = 5
#: the backend that programs are compiled for
BACKEND = "native"
#: the device of the runs that are compared with eager runs on the CPU
DEVICE = os.environ.get("FUZZ_DEVICE", "cpu")
#: most bytes for the values of a compiled program; None for no limit
MEMORY: int | None = None
TOLERANCE = 5e-4
EAGERLY = "runs eagerly"
OUTCOMES = ("same", "refused", "invalid", "unstable", "not replayed", "different", "crashed")
#: seconds after which a program counts as hanging
PATIENCE = 120
#: indices that are out of range, or make a divisor zero
BAD = (10_000, -10_000, 3)


class Difference(AssertionError):
    """Eager and compiled disagree."""


class Inexact(Difference):
    """They disagree only in values, possibly because of rounding."""


class Run:
    """One run of a program, eager or compiled, with its own data and state."""

    def __init__(
        self, program: Program, compiles: bool, nudge: float = 0.0, device: str = "cpu"
    ) -> None:
        self.program, self.compiles, self.nudge = program, compiles, nudge
        self.device = tg.device(device)
        self.around = program.surroundings or Surroundings()
        self.calls = CALLS if program.surroundings is None else SURROUNDED_CALLS
        self.refusals: list[str] = []
        self.failed = 0  # number of calls that raised
        self.origins = Origins(self.around)
        names = program.names() | {"compile": self.compile}
        self.scope = scope = {name: self.moved(value) for name, value in names.items()}
        for i, name in enumerate((*PARAMETERS, *BUFFERS)):
            value = self.moved(sample(program.shapes[name], i))
            scope[name] = (value * (1 + nudge)).detach().requires_grad_(name in PARAMETERS)
        with self.device:
            exec(program.state(), scope)
            exec(program.text(), scope)
        self.names = bound(program.state()) if program.surroundings else []
        self.function = self.compile(scope["program"])
        self.late: list[Tensor] = []
        self.kept: list[Any] = []

    def compile(self, function: Any) -> Any:
        if not self.compiles:
            return function
        return tg.compile(function, backend=BACKEND, memory=MEMORY)

    def moved(self, value: Any) -> Any:
        """A tensor on the program's device; anything else unchanged."""
        is_elsewhere = isinstance(value, Tensor) and value.device != self.device
        return value.to(self.device) if is_elsewhere else value

    @property
    def replays(self) -> int:
        """The number of replayed calls of the program itself."""
        return sum(replay.count for replay in getattr(self.function, "replays", ()))

    def observe(self) -> Iterator[dict[str, Any]]:
        """The observations after each call, by name."""
        try:
            for call in range(self.calls):
                with warnings.catch_warnings(record=True) as caught, self.device:
                    warnings.simplefilter("always")
                    seen = self._call(call)
                self.refusals += [str(w.message) for w in caught if EAGERLY in str(w.message)]
                yield seen
                if self.nudge:  # like the rounding error of a value that should be zero
                    for name in (*PARAMETERS, *BUFFERS):
                        self.scope[name].detach().numpy()[...] += self.nudge
        finally:
            self.origins.close()

    def _call(self, call: int) -> dict[str, Any]:
        program, around, scope = self.program, self.around, self.scope
        seen: dict[str, Any] = {}
        for number, (at, statement) in enumerate(around.changes):
            if at == call:
                seen[f"change {number}"] = attempt(lambda s=statement: exec(s, scope))
        given = self._data(call)
        batch = self._batch(given)
        tg.manual_seed(call)
        if call in around.second_calls:
            argument = sample((2, 3), call)
            self._look("second", attempt(lambda: scope[around.second](argument)), seen)
        with tg.no_grad() if call in around.without_grad else nullcontext():
            out = attempt(lambda: self.function(*batch))
        if isinstance(out, str):
            seen["raised"], out = out, []
            self.failed += 1
        captured = [scope[name] for name in (*PARAMETERS, *BUFFERS)]
        known = [*given, *captured, *out]
        seen["identity"] = [next(i for i, k in enumerate(known) if k is o) for o in out]
        tensors = [o for o in out if isinstance(o, Tensor)]
        self._finish(tensors, seen)
        for i, result in enumerate(out):
            self._look(f"result {i}", result, seen)
        for name, value in zip(program.arguments, given, strict=True):
            self._look(name, value, seen)
        if around.batch:
            self._look("batch", batch[0], seen)
        for name, base in self.origins.bases.items():
            self._look(f"base of {name}", base, seen)
        for name in (*PARAMETERS, *BUFFERS, *self.names):
            self._look(name, scope[name], seen)
        for i, value in enumerate(self.kept[-6:]):
            self._look(f"kept {i}", value, seen)
        if program.surroundings is not None:
            self.origins.results = tensors
            self.kept += [*out, scope["p0"].grad]
        return seen

    def _data(self, call: int) -> list[Any]:
        """The arguments of a call."""
        program, made, given = self.program, [], {n: self.scope[n] for n in (*PARAMETERS, "b0")}
        # In native code NaN in their filters reaches more of the border: see docs/design.md.
        mixes_zeros = any("conv_transpose" in line for line in program.lines)
        for i, name in enumerate(program.arguments):
            seed = 100 * (call + 1) + i
            value: Any
            if name == INTEGERS:
                value = tg.from_numpy(integers(program.shapes[name], seed).cpu().numpy())
            elif name == "a0":
                last = 0.5 if self.around.number[call] == "A" else 1.5
                value = np.linspace(0.1, last, 3, dtype=np.float32)
            elif name == "n0":
                value = 2 if self.around.number[call] == "A" else 1
            elif name == "j0":
                bad = call in self.around.bad
                value = tg.tensor([0, BAD[call % len(BAD)] if bad else (call // 2) % 2])
            else:
                x = sample(program.shapes[name], seed).cpu().numpy() * np.float32(1 + self.nudge)
                if program.spoilt and call > 2 and not mixes_zeros:
                    x.reshape(-1)[call::5] = [np.nan, np.inf, -np.inf, -0.0, 0.0][(call + i) % 5]
                layout = program.layouts.get(name)
                x = x if layout is None else laid_out(x, layout)
                value = self.moved(self.origins.give(name, x, call, given))
                given[name] = value
            made.append(self.moved(value))
        return made

    def _batch(self, given: list[Any]) -> list[Any]:
        """The arguments in the form in which they are passed."""
        if not self.around.batch:
            return given
        named = dict(zip(self.program.arguments, given, strict=True))
        forms = {"list": list(given), "dict": named, "record": SimpleNamespace(**named)}
        return [forms[self.around.batch]]

    def _finish(self, out: list[Tensor], seen: dict[str, Any]) -> None:
        """Use the results as the caller does."""
        caller = self.around.caller
        graded = [o for o in out if o.requires_grad and o.grad_fn is not None]
        if not self.program.outside and caller == "once":
            graded = []
        if self.program.surroundings is None and not self.program.outside:
            graded = []

        def backward(tensors: list[Tensor], **options: Any) -> Any:
            loss: Any = sum((o.float().tanh() ** 2).mean() for o in tensors)
            return loss.backward(**options)

        if caller == "late":
            if self.late:
                seen["late"] = attempt(lambda: backward(self.late) and None)
            self.late = graded
        elif graded and caller == "grad":
            loss: Any = sum((o.float().tanh() ** 2).mean() for o in graded)
            wanted = [self.scope[p] for p in PARAMETERS if self.scope[p].requires_grad]
            found = attempt(lambda: tg.autograd.grad(loss, wanted, allow_unused=True))
            self._look("grad", found, seen)
        elif graded and caller != "never":
            twice = caller == "twice"
            found = attempt(lambda: backward(graded, retain_graph=twice))
            if twice:
                found = attempt(lambda: backward(graded))
            self._look("gradients", found, seen)
            if caller == "gradients":
                self.kept.append(found)
        if self.around.writes and out:
            with tg.no_grad():
                seen["write"] = attempt(lambda: out[0].add_(0.5) and None)

    def _look(self, name: str, value: Any, seen: dict[str, Any], depth: int = 0) -> None:
        """Add the observable state of a value to `seen`: arrays, and text for anything else."""
        if isinstance(value, Tensor):
            seen[name] = np.array(value.detach().cpu().numpy())
            seen[f"{name}, as a tensor"] = (value.requires_grad, value.is_leaf)
            if value.is_leaf and value.grad is not None and depth < 4:
                self._look(f"{name}.grad", value.grad, seen, 4)
            elif value.is_leaf:
                seen[f"{name}.grad"] = None
        elif isinstance(value, (np.ndarray, float)):
            seen[name] = np.array(value)
        elif isinstance(value, tg.Gradients):
            for p in PARAMETERS:
                self._look(f"{name}[{p}]", value.get(self.scope[p]), seen, depth + 1)
        elif isinstance(value, nn.Module):
            entries = dict(value.named_parameters()) | dict(value.named_buffers())
            entries |= {f"{n}.training": m.training for n, m in value.named_modules()}
            entries |= {f"{n}.calls": m.calls for n, m in value.named_modules()}
            self._look(name, entries, seen, depth + 1)
        elif isinstance(value, Mapping):
            seen[f"{name}, as a mapping"] = [str(k) for k in value]
            for key, item in value.items():
                self._look(f"{name}[{key!r}]", item, seen, depth + 1)
        elif isinstance(value, (list, tuple, deque)):
            seen[f"{name}, as a sequence"] = (type(value).__name__, len(value))
            for i, item in enumerate(value):
                self._look(f"{name}[{i}]", item, seen, depth + 1)
        elif isinstance(value, set):
            seen[name] = sorted(map(repr, value))
        elif type(value).__name__ in ("Config", "Kind", "Settings", "SimpleNamespace"):
            self._look(name, vars(value), seen, depth + 1)
        else:
            seen[name] = repr(value)


def attempt(action: Any) -> Any:
    """The result of an action, or the name of its exception."""
    try:
        return action()
    except FAILURES as error:
        return type(error).__name__


def compare(expected: dict[str, Any], found: dict[str, Any], call: int) -> None:
    """Raise if two observations differ; the values of arrays are compared last."""
    if expected.keys() != found.keys():
        only = sorted(expected.keys() ^ found.keys(), key=lambda name: name != "raised")[:4]
        shown = "\n".join(f"{n}: {expected.get(n)!r}, {found.get(n)!r}" for n in only)
        raise Difference(f"only seen in eager or compiled in call {call}:\n{shown}")
    for exact in (True, False):
        for name, a in expected.items():
            b = found[name]
            where = f"{name} of call {call}"
            if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
                if type(a) is not type(b) or a != b:
                    raise Difference(f"{where}: {a} in eager, {b} compiled")
            elif (a.dtype, a.shape) != (b.dtype, b.shape):
                facts = f"{a.dtype}{a.shape} in eager, {b.dtype}{b.shape} compiled"
                raise Difference(f"{where}: {facts}")
            elif exact:
                continue
            elif not np.allclose(b, a, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
                raise Inexact(f"{where}: eager\n{a}\ncompiled\n{b}")


def check(program: Program) -> tuple[str, list[str]]:
    """Compare eager and compiled calls.

    Returns "same", "invalid" (each call raises), "unstable", "refused" (each call ran eagerly) or
    "not replayed", and the reasons why calls ran eagerly.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        pool.set_num_threads(1)
        if program.seed % 3 == 0:
            # Without these patches, programs as small as these run on one thread.
            pool.set_num_threads(2 + (program.seed % 2))
            stack.enter_context(mock.patch.object(tuning, "LOOP_WORK_PER_THREAD", 1))
            whole = mock.patch.object(tuning, "MAX_SINGLE_THREAD_PROGRAM_WORK", 0)
            stack.enter_context(whole)
        eager, compiled = Run(program, False), Run(program, True, device=DEVICE)
        expected = list(eager.observe())
        elsewhere = [] if DEVICE == "cpu" else [Run(program, False, device=DEVICE)]
        try:
            for run in (*elsewhere, compiled):
                for call, (a, b) in enumerate(zip(expected, run.observe(), strict=True)):
                    if a.get("late") == "RuntimeError" and b.get("late") is None:
                        break  # a replay keeps a copy of what the next call changes
                    compare(a, b, call)
        except Inexact:
            if unstable(program, expected):
                return "unstable", []
            raise
    reasons = [reason(text) for text in compiled.refusals]
    if eager.failed == eager.calls:
        return "invalid", reasons
    if not compiled.replays:
        return "refused" if reasons else "not replayed", reasons
    return "same", reasons


def reason(text: str) -> str:
    """Why a call ran eagerly, without details that differ between programs."""
    text = text.split(f"{EAGERLY}: ", 1)[1]
    text = re.sub(r"\(the function is at.*?\)|, at .*$|\bat [^ ]*:\d+.*$", "", text)
    return re.sub(r"\d+", "#", text).strip()[:90]


def unstable(program: Program, expected: list[dict[str, Any]]) -> bool:
    """Whether perturbing the data by a few rounding errors makes eager results differ too."""
    for nudge in (2e-7, -2e-7, 1e-6, -1e-6):
        nudged = Run(program, False, nudge)
        for call, (a, b) in enumerate(zip(expected, nudged.observe(), strict=True)):
            try:
                compare(a, b, call)
            except Inexact:
                return True
            except Difference:
                break
    return False


def reduce(program: Program, error: Exception) -> Program:
    """A shorter program that still fails, with the same kind of error."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _shorter(program):
            if fails(candidate, type(error)):
                program, smaller = candidate, True
                break
    return program


def _shorter(program: Program) -> Any:
    for i in reversed(range(len(program.lines))):
        yield program.without(i)
    for name in program.results if len(program.results) > 1 else []:
        candidate = program.without(-1)
        candidate.results = [n for n in program.results if n != name]
        yield candidate
    for name in program.layouts:
        candidate = program.without(-1)
        candidate.layouts = {k: v for k, v in program.layouts.items() if k != name}
        yield candidate
    for flag in ("update", "spoilt", "accumulates", "outside", "ending"):
        if getattr(program, flag):
            candidate = program.without(-1)
            setattr(candidate, flag, type(getattr(program, flag))())
            yield candidate
    for around in program.surroundings.shorter() if program.surroundings is not None else ():
        candidate = program.without(-1)
        candidate.surroundings = around
        yield candidate


def fails(program: Program, kind: type[Exception]) -> bool:
    try:
        check(program)
    except Exception as error:
        return type(error) is kind
    return False


def trial(seed: int, kind: str = "plain") -> tuple[int, str, str, list[str]]:
    """A seed, its outcome, the reduced program and its error if it fails, and refusals."""
    surrounded = kind == "surrounded" or (kind == "mixed" and seed % 4 != 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # operations that are tried may warn
        program = write(seed, surrounded)
    try:
        outcome, reasons = check(program)
        return seed, outcome, "", reasons
    except Exception as first:
        program = reduce(program, first)
        try:
            check(program)
            story = f"it did not fail again; at first: {first}"
        except Exception as error:
            frames = traceback.format_exception(error)
            story = str(error) if isinstance(error, Difference) else "".join(frames[-4:])
        return seed, "different", f"{program}\n# {story}", []


class Worker:
    """A process that tries seeds; one that crashes or hangs is replaced."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.seed: int | None = None
        self.tried = 0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.kind), daemon=True)
        self.process.start()
        other.close()

    def give(self, seed: int) -> None:
        if self.tried == 500:  # so many programs take much memory
            self.stop()
            self._start()
            self.tried = 0
        self.tried += 1
        self.seed, self.since = seed, time.monotonic()
        self.pipe.send(seed)

    def take(self) -> tuple[int, str, str, list[str]]:
        """The outcome of the seed that was given."""
        seed, self.seed = self.seed, None
        assert seed is not None
        try:
            if not self.pipe.poll():
                self.stop()
                raise EOFError
            found: tuple[int, str, str, list[str]] = self.pipe.recv()
            return found
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self._start()
            self.tried = 0
            return seed, "crashed", f"# the process ended with {code}, or ran {PATIENCE} s", []

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()


def serve(pipe: Any, kind: str) -> None:
    """Try each seed that comes from the pipe."""
    while True:
        pipe.send(trial(pipe.recv(), kind))


def outcomes(seeds: Iterator[int], kind: str, jobs: int) -> Iterator[Any]:
    """The outcomes of seeds, in the order in which they finish."""
    workers = [Worker(kind) for _ in range(jobs)]
    while True:
        for worker in workers:
            seed = next(seeds, None) if worker.seed is None else None
            if seed is not None:
                worker.give(seed)
        busy = [w for w in workers if w.seed is not None]
        if not busy:
            break
        ready = multiprocessing.connection.wait([w.pipe for w in busy], 1.0)
        for worker in busy:
            if worker.pipe in ready or time.monotonic() - worker.since > PATIENCE:
                yield worker.take()
    for worker in workers:
        worker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", "--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", choices=("mixed", "plain", "surrounded"), default="mixed")
    parser.add_argument("--device", default="cpu", help="where plain programs are compared")
    options = parser.parse_args()
    if options.device != "cpu":
        options.kind = "plain"  # surroundings make arguments in CPU memory
        os.environ["FUZZ_DEVICE"] = options.device
    seeds = iter(range(options.first, options.first + options.count))
    counts = Counter(dict.fromkeys(OUTCOMES, 0))
    refusals: Counter[str] = Counter()
    began = time.perf_counter()
    for seed, outcome, story, reasons in outcomes(seeds, options.kind, options.jobs):
        counts[outcome] += 1
        refusals.update(reasons)
        if story:
            print(f"\n==== seed {seed}\n{story}", flush=True)
        if counts.total() % 100 == 0:
            print(f"{time.perf_counter() - began:.0f} s: {dict(counts)}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s: {dict(counts)}")
    for text, count in refusals.most_common(20):
        print(f"{count:6} {EAGERLY}: {text}")
    raise SystemExit(bool(counts["different"] or counts["crashed"]))


if __name__ == "__main__":
    main()
