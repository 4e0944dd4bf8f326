"""Eager operations as native code, where that pays.

A primitive's kernel, or its rule of gradients, is traced once for each form of its arguments
(layouts, dtypes, parameters) and run as a small program. Its loops are general: other sizes share
their code, unless a size enters the formula, as that of a mean does. What is traced is what runs
without llvmlite, so results agree up to rounding; which of the two runs depends on nothing but the
arguments, so a run repeats bit for bit.

`primitive.py` asks this before it calls a kernel or a rule on arrays that are large enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..inplace import through
from ..primitive import CONTRACTION, Accelerator, Primitive, set_accelerator
from ..state import STATE
from ..tensor import Tensor, wrap
from ..tree import map_leaves
from . import native
from .capture import Capture, CaptureError
from .ir import NoLowering
from .program import FAILURES
from .recording import Given, Made, Plain, Recording
from .run import Executable, build
from .slots import Argument

#: multiplications below which NumPy's product, on one thread, takes as long
SMALL_PRODUCT = 1 << 17
#: what native code raises about bad data; the NumPy kernel then says it in its own words
FAILED = tuple({error for error, _ in FAILURES.values()})
#: forms of arguments that are remembered; when there are more, all are forgotten
MOST_FORMS = 4096

_ndarray = np.ndarray
_empty = np.empty


class Form:
    """A program for arguments of one form."""

    __slots__ = ("executable", "results", "single", "specs", "used")

    def __init__(self, recording: Recording, executable: Executable) -> None:
        self.executable = executable
        #: the arguments that the program reads, in the order of its inputs
        self.used = [slot.index for slot in recording.slots if isinstance(slot, Argument)]
        executable.expect(range(len(self.used)))
        self.specs = [(v.shape, v.dtype) for v in recording.program.results]
        self.results = recording.results
        self.single = isinstance(self.results, Made)

    def run(self, arrays: list[Any]) -> Any:
        """The results for arrays of this form; NotImplemented where NumPy should complain."""
        made = [_empty(shape, dtype) for shape, dtype in self.specs]
        try:
            self.executable.run([*[arrays[i] for i in self.used], *made])
        except FAILED:
            return NotImplemented
        if self.single:
            return made[0]
        return map_leaves(lambda leaf: _rebuilt(leaf, made, arrays), self.results)


def _rebuilt(leaf: Any, made: list[Any], arrays: list[Any]) -> Any:
    if isinstance(leaf, Made):
        return made[leaf.index]
    if isinstance(leaf, Given):
        array = arrays[leaf.slot.index]
        return through(leaf.chain, wrap(array))._array if leaf.chain else array
    assert isinstance(leaf, Plain)
    return leaf.value


def _traced(function: Callable[[list[Tensor]], Any], arrays: list[Any]) -> Recording | None:
    """What a function of Tensors does; None if that cannot be written down."""
    # Views, because the same array may be there twice and need not be in another call.
    tensors = [wrap(a.view()) for a in arrays]
    before = STATE.mode, STATE.tapes
    STATE.mode, STATE.tapes = 0, ()
    try:
        capture = Capture(tensors)
        with capture:
            recording: Recording = capture.finish(function(tensors))
    except CaptureError:
        return None
    finally:
        STATE.mode, STATE.tapes = before
    if recording.obstacle is not None or recording.program.writes or recording.decisions:
        return None
    return recording if all(isinstance(s, Argument) for s in recording.slots) else None


def _formed(function: Callable[[list[Tensor]], Any], arrays: list[Any]) -> Form | None:
    recording = _traced(function, arrays)
    if recording is None or not recording.program.instructions:
        return None
    try:
        executable = build(recording.program, general=True)
    except NoLowering:
        return None
    return None if executable.callbacks else Form(recording, executable)


def _exact(value: Any) -> Any:
    """A value as a part of a key: 1, 1.0 and True differ, so do 0.0 and -0.0; NaN equals itself."""
    kind = value.__class__
    if kind is tuple:
        return tuple([_exact(part) for part in value])
    if isinstance(value, (float, np.floating)) and (value == 0 or value != value):
        return kind, str(value)
    return kind, value


class Native(Accelerator):
    """Programs for kernels and rules, by the form of their arguments."""

    def __init__(self) -> None:
        self.forms: dict[Any, Form | None] = {}

    def kernel(self, p: Primitive, inputs: Any, params: dict[str, Any]) -> Any:
        def function(tensors: list[Tensor]) -> Any:
            placed = _placed(inputs, tensors)
            return p.kernel(*placed, **params) if p.composite else p(*placed, **params)

        if p.kind == CONTRACTION and _multiplications(inputs) < SMALL_PRODUCT:
            return NotImplemented
        return self._run([p], inputs, params, function)

    def rule(
        self, p: Primitive, pull: Any, g: Any, edges: Any, saved: Any, params: dict[str, Any]
    ) -> Any:
        given = [g, *saved] if g.__class__ is _ndarray else [*g, *saved]
        first = len(given) - len(saved)

        def function(tensors: list[Tensor]) -> Any:
            placed = _placed(given, tensors)
            received = placed[0] if g.__class__ is _ndarray else placed[:first]
            results = pull(received, edges, tuple(placed[first:]), params)
            return tuple([None if e is None else r for r, e in zip(results, edges, strict=True)])

        wanted = tuple([e is None for e in edges])
        return self._run([pull, first, wanted], given, params, function)

    def _run(self, key: list[Any], inputs: Any, params: Any, function: Callable[..., Any]) -> Any:
        arrays = []
        for x in inputs:
            if x.__class__ is _ndarray:
                key.append((x.shape, x.strides, x.dtype))
                arrays.append(x)
            elif isinstance(x, np.generic):  # what NumPy makes of arrays of no dimensions
                return NotImplemented
            else:
                key.append(_exact(x))
        for name, value in params.items():
            key.append(name)
            key.append(_exact(value))
        whole = tuple(key)
        try:
            form = self.forms.get(whole, self)
        except TypeError:  # something that has no hash, such as a list of arrays
            return NotImplemented
        if form is self:
            if len(self.forms) >= MOST_FORMS:
                self.forms.clear()
            form = self.forms[whole] = _formed(function, arrays) if native.available() else None
        return NotImplemented if form is None else form.run(arrays)  # type: ignore[union-attr]


def _multiplications(inputs: Any) -> int:
    x, y = inputs
    return int(x.size * y.shape[-1])


def _placed(inputs: Any, tensors: list[Tensor]) -> list[Any]:
    """The inputs with Tensors in the places of arrays."""
    following = iter(tensors)
    return [next(following) if x.__class__ is _ndarray else x for x in inputs]


set_accelerator(Native())
