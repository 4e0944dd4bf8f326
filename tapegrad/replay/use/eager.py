"""Eager operations as native code, where that pays.

Comes in: a primitive's kernel or gradient rule, and its arguments. It is traced once for each form
of the arguments (layouts, dtypes, parameters) and runs as a small program. Goes out: the result,
or NotImplemented if NumPy or CuPy should run. On a CPU the loops are general: all sizes share their
code. The traced function is what runs without llvmlite, so results agree up to rounding. The
arguments alone decide which of the two runs, so a run repeats bit for bit. Small arrays of all
sizes share a program, where that is possible (`families.py`). On a GPU the program
consists of kernels and library calls. Called by `core/primitive.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import numeric, source
from ...core.acceleration import SITES
from ...core.device import GPU_CLASSES, Device, to_device
from ...core.dtypes import DType
from ...core.inplace import through
from ...core.modes import unrecorded
from ...core.primitive import (
    ARRAY_SIZE,
    CONTRACTION,
    ELEMENTWISE,
    MIXED_SIZE,
    REDUCE,
    Accelerator,
    Link,
    Primitive,
    set_accelerator,
)
from ...core.rules import abstract
from ...core.shortpaths import site_key
from ...core.switches import switches
from ...core.tape import Value
from ...core.tensor import Tensor, wrap
from ...core.tree import map_leaves
from ...core.xp import module
from ..cpu import jit, progress
from ..cpu.executable import build
from ..ir.expressions import NoLowering
from ..ir.program import Apply, Input, Program
from ..trace.capture import Capture
from ..trace.log import CaptureError
from ..trace.recording import Given, Made, Part, Plain, Recording
from ..trace.slots import Argument
from .families import Families
from .targets import target_of

#: multiplications of a product below which NumPy, on one thread, is as fast
SMALL_PRODUCT = 1 << 17
#: size of the largest argument, in elements, below which NumPy runs what has no family
SMALL_FORM = MIXED_SIZE
#: most forms that are kept; past that, the older half is dropped
MOST_FORMS = 4096

_ndarray = np.ndarray


class _Learning(threading.local):
    now = False


_learning = _Learning()


def _is_array(x: Any) -> bool:
    return x.__class__ is _ndarray or x.__class__ in GPU_CLASSES


class Host:
    """Runs programs on NumPy arrays."""

    empty = staticmethod(np.empty)
    switches = ()

    def enter(self) -> bool:
        """Whether this thread can run programs here."""
        return True

    def traced(self, array: Any, changes: bool) -> Any:
        """The tensor that stands for an argument while tracing; its memory must not change."""
        # A view: the same array may be passed twice here, but two arrays in another call.
        return wrap(array.copy("K") if changes else array.view())

    def build(self, program: Program, held: list[int]) -> Any:
        """An executable; `held` has the indices of inputs that are numbers in host memory."""
        executable = build(program, general=True)
        executable.expect(range(len(program.inputs)))
        if not executable.callbacks:
            executable.forget()  # there may be thousands of forms, of some 60 kB each
        return executable


class OnGPU:
    """Runs programs on CuPy arrays, and on numbers in NumPy arrays."""

    def __init__(self, device: Any, index: int) -> None:
        self._device, self._index = device, index
        self.empty = device.empty
        self.enter = device.enter

    @property
    def switches(self) -> tuple[Any, ...]:
        """The user's settings on which forms depend."""
        return switches.precision, switches.deterministic

    def traced(self, array: Any, changes: bool) -> Any:
        if array.__class__ is _ndarray:
            return wrap(to_device(array, Device("cuda", self._index)))
        return wrap(array.copy() if changes else array.view())

    def build(self, program: Program, held: list[int]) -> Any:
        from ..cuda.direct import DirectProgram

        return DirectProgram(program, self._device, switches.deterministic, held)


HOST = Host()


class Form:
    """A program for arguments of one form."""

    __slots__ = ("argument_indices", "empty", "executable", "picked", "results", "single", "specs")

    def __init__(
        self, executable: Any, program: Program, count: int, read: list[int], results: Any, at: Any
    ) -> None:
        self.executable = executable
        self.empty = at.empty
        #: the arguments that the program reads, in the order of its inputs
        self.argument_indices = read
        self.specs = [(v.shape, v.dtype) for v in program.results]
        self.results = results
        #: if the program reads all arguments and makes one array: its shape and dtype
        self.single: tuple[Any, Any] | None = None
        if isinstance(results, Made) and len(self.specs) == 1 and read == list(range(count)):
            self.single = self.specs[0]
        #: if the result is a tuple of new arrays and None, as of a rule: the index of each array
        self.picked: list[int | None] | None = None
        if results.__class__ is tuple and all(map(_is_new_or_none, results)):
            self.picked = [r.index if isinstance(r, Made) else None for r in results]

    def run(self, arrays: list[Any]) -> Any:
        """The results for arrays of this form; NotImplemented if NumPy should raise an error."""
        if self.single is not None:
            out = self.empty(*self.single)
            # If the data is bad, the NumPy kernel raises its own error.
            return out if self.executable.attempt((*arrays, out)) is None else NotImplemented
        made = [self.empty(shape, dtype) for shape, dtype in self.specs]
        if (
            self.executable.attempt((*[arrays[i] for i in self.argument_indices], *made))
            is not None
        ):
            return NotImplemented
        if isinstance(self.results, Made):
            return made[self.results.index]
        if self.picked is not None:
            return tuple([None if i is None else made[i] for i in self.picked])
        return map_leaves(lambda leaf: _rebuilt(leaf, made, arrays), self.results)


def _site_of(p: Primitive, of: Any, params: dict[str, Any], edges: Sequence[Any] = ()) -> Any:
    """The key of a kernel's or rule's site; None if it has none."""
    if not p.called_natively or not all(map(_is_exact, params.values())):
        return None
    return site_key(p, of, params, edges)


def _is_in_order(x: Any) -> bool:
    return x.__class__ is not _ndarray or bool(x.flags.c_contiguous)


def _unless_large(args: Any, size: int) -> Any:
    """NotImplemented for arrays of fewer elements than `size`; None for others."""
    for x in args:
        if x.__class__ in GPU_CLASSES or (x.__class__ is _ndarray and x.size >= size):
            return None
    return NotImplemented


def _is_exact(value: Any) -> bool:
    """Whether a parameter is hashable and equals no value of its type that means something else.

    Keys of sites hold values and their types. 0.0 equals -0.0, and (1,) equals (True,).
    """
    kind = value.__class__
    if isinstance(value, tuple):
        return all(
            part.__class__ is int or (isinstance(part, tuple) and _is_exact(part)) for part in value
        )
    if kind is float:
        return bool(value) and value == value
    return kind in (int, bool, str, type(None), DType)


def _is_new_or_none(leaf: Any) -> bool:
    return isinstance(leaf, Made) or (isinstance(leaf, Plain) and leaf.value is None)


def _rebuilt(leaf: Any, made: list[Any], arrays: list[Any]) -> Any:
    if isinstance(leaf, Made):
        return made[leaf.index]
    if isinstance(leaf, Given):
        array = arrays[leaf.slot.index]
        return through(leaf.chain, wrap(array))._array if leaf.chain else array
    if isinstance(leaf, Part):
        return through(leaf.chain, wrap(_rebuilt(leaf.base, made, arrays)))._array
    assert isinstance(leaf, Plain)
    return leaf.value


class Tracing(Capture):
    """A capture that does not compute products and convolutions, because no one reads the numbers.

    The first eager step of a small U-Net takes the calling thread 0.27 s instead of 0.49 s.
    """

    keeps_layouts = False

    def kernel(self, primitive: Primitive, arrays: Any, params: dict[str, Any]) -> Any:
        on_gpu = next((x for x in arrays if x.__class__ in GPU_CLASSES), None)
        known = primitive.kind == CONTRACTION or primitive.abstract is not None
        # CuPy would compile each operation on its first run.
        known |= on_gpu is not None and primitive.kind in (ELEMENTWISE, REDUCE)
        if known and len(primitive.outputs) == 1:
            specs = [(x.shape, x.dtype) if _is_array(x) else x for x in arrays]
            shape, dtype = abstract(primitive, *specs, **params)
            if on_gpu is not None:
                return module(on_gpu).zeros(shape, dtype)  # 0 is a valid index
            if isinstance(dtype, np.dtype) and numeric.is_numpy_float(dtype):
                return np.ones(shape, dtype)  # safe to divide by
        return super().kernel(primitive, arrays, params)


def _traced(
    function: Callable[[list[Tensor]], Any], arrays: list[Any], changes: int, at: Any
) -> Recording | None:
    """The recording of a function of Tensors; None if it cannot be recorded."""
    same = len(arrays) - changes
    tensors = [at.traced(array, i >= same) for i, array in enumerate(arrays)]
    try:
        with unrecorded():
            capture = Tracing(tensors)
            with capture:
                recording: Recording = capture.finish(function(tensors))
    except CaptureError:
        return None
    if recording.obstacle is not None or recording.decisions:
        return None
    if recording.program.writes and not changes:
        return None
    return recording if all(isinstance(s, Argument) for s in recording.slots) else None


def _of_function(
    function: Callable[[list[Tensor]], Any], arrays: list[Any], at: Any, changes: int = 0
) -> Form | None:
    """The form of a function of Tensors, which may change the last `changes` arguments."""
    recording = _traced(function, arrays, changes, at)
    if recording is None:
        return None
    read = [slot.index for slot in recording.slots if isinstance(slot, Argument)]
    return _formed(recording.program, arrays, read, recording.results, at)


def _of_primitive(
    arrays: list[Any], at: Any, p: Primitive, inputs: Any, params: dict[str, Any]
) -> Form | None:
    """The form of a single primitive."""
    if not all(map(_is_ordinary, arrays)):
        return None
    given: list[Any] = []
    for x in inputs:
        given.append(Value(len(given), x.shape, x.dtype) if _is_array(x) else x)
    specs_in = [(x.shape, x.dtype) if isinstance(x, Value) else x for x in given]
    _learning.now = True  # the abstract rule may run the primitive, on arrays of another form
    try:
        found: Any = abstract(p, *specs_in, **params)
    finally:
        _learning.now = False
    specs = (found,) if len(p.outputs) == 1 else found
    made = [Value(len(given) + i, shape, dtype) for i, (shape, dtype) in enumerate(specs)]
    read = [
        Input(v, tuple(s // x.itemsize for s in x.strides), f"argument{i}")
        for i, (v, x) in enumerate(zip(given, inputs, strict=True))
        if isinstance(v, Value)
    ]
    step = Apply(p, params, tuple(given), tuple(made), source.here())
    program = Program(tuple(read), (), (step,), (), tuple(made))
    results = tuple(Made(i, None, None) for i in range(len(made)))
    tree = results[0] if len(results) == 1 else results
    return _formed(program, arrays, list(range(len(read))), tree, at)


def _of_kernel(
    arrays: list[Any], at: Any, p: Primitive, inputs: Any, params: dict[str, Any]
) -> Form | None:
    if not p.composite:
        return _of_primitive(arrays, at, p, inputs, params)

    def function(tensors: list[Tensor]) -> Any:
        return p.kernel(*_with_tensors(inputs, tensors), **params)

    return _of_function(function, arrays, at)


def _of_rule(
    arrays: list[Any],
    at: Any,
    pull: Any,
    g: Any,
    edges: Any,
    given: Any,
    first: int,
    last: int,
    params: Any,
) -> Form | None:
    """The form of a gradient rule: gradients come first, and from `last` on the totals."""

    def function(tensors: list[Tensor]) -> Any:
        filled = _with_tensors(given, tensors)
        received = filled[:first] if g.__class__ is list else filled[0]
        results = list(pull(received, edges, tuple(filled[first:last]), params))
        for i, total in enumerate(filled[last:]):
            if total is not None and results[i] is not None:
                _add(total, results[i])
                results[i] = None
        return tuple([None if e is None else r for r, e in zip(results, edges, strict=True)])

    return _of_function(function, arrays, at, changes=sum(map(_is_array, given[last:])))


def _add(total: Tensor, r: Tensor) -> None:
    if total._array.shape != r._array.shape or total._array.dtype != r._array.dtype:
        raise CaptureError("a gradient that its total cannot hold")
    total.add_(r)


def _of_chain(
    arrays: list[Any], at: Any, links: Sequence[Link], given: Sequence[Any], waiting: int
) -> Form | None:
    """The form of a chain of rules; given are the waiting gradients, then each rule's saved."""

    def function(tensors: list[Tensor]) -> Any:
        filled = _with_tensors(given, tensors)
        sums = filled[:waiting]
        read = waiting
        for i, (p, params, saved, targets) in enumerate(links):
            arguments = tuple(filled[read : read + len(saved)])
            read += len(saved)
            results = () if sums[i] is None else p.pull(sums[i], targets, arguments, params)
            for r, to in zip(results, targets, strict=False):
                if to is not None and r is not None:
                    sums[to] = r if sums[to] is None else sums[to] + r
        return tuple(sums[len(links) :])

    return _of_function(function, arrays, at)


def _is_ordinary(array: Any) -> bool:
    """Whether an array has native byte order and strides of whole elements."""
    size = array.itemsize
    return bool(array.dtype.isnative) and not any(s % size for s in array.strides)


def _formed(
    program: Program, arrays: list[Any], read: list[int], results: Any, at: Any
) -> Form | None:
    """The form of a program that reads some of the arguments."""
    if not program.instructions:
        return None
    held = [i for i, index in enumerate(read) if arrays[index].__class__ is _ndarray]
    try:
        executable = at.build(program, held)
    except NoLowering:
        return None
    if executable.callbacks:
        return None
    return Form(executable, program, len(arrays), read, results, at)


def _exact(value: Any) -> Any:
    """A value as part of a key: 1, 1.0 and True differ, 0.0 and -0.0 too; NaN equals itself."""
    kind = value.__class__
    if kind is tuple:
        for part in value:
            if part.__class__ is not int:
                return tuple([_exact(part) for part in value])
        return value
    if kind is bool or kind is int or kind is str:
        return kind, value
    if isinstance(value, (float, np.floating)) and (value == 0 or value != value):
        return kind, str(value)
    return kind, value


class Native(Accelerator):
    """Programs for kernels and rules, by the form of their arguments."""

    def __init__(self) -> None:
        self.forms: dict[Any, Form | None] = {}
        self._families = Families()
        #: GPUs by index; None for one that cannot run programs
        self._gpus: dict[int, OnGPU | None] = {}
        #: seconds spent on making forms; None after the user has been told
        self.seconds: float | None = 0.0

    def kernel(self, p: Primitive, inputs: Any, params: dict[str, Any]) -> Any:
        if p.kind == CONTRACTION:
            x, y = inputs
            if x.__class__ is _ndarray and x.size * y.shape[-1] < SMALL_PRODUCT:
                return NotImplemented
        else:
            inputs = _with_numbers_in_memory(p, inputs, inputs)

        def make(given: list[Any], at: Any) -> Form | None:
            return _of_kernel([x for x in given if _is_array(x)], at, p, given, params)

        site = _site_of(p, p, params)
        out = self._at_site(site, p, inputs, (), make)
        if out is not None:
            return out
        one = p.kind == ELEMENTWISE and len(p.outputs) == 1
        order = _order_of(inputs) if one else None
        if order is not None:
            inputs = [x.transpose(order) if getattr(x, "ndim", 0) else x for x in inputs]
        out = self._run(site, [p], inputs, params, _of_kernel, p, inputs, params)
        if order is None or out is NotImplemented:
            return out
        back = sorted(range(len(order)), key=order.__getitem__)
        return out.transpose(back)

    def rule(
        self,
        p: Primitive,
        pull: Any,
        g: Any,
        edges: Any,
        saved: Any,
        params: dict[str, Any],
        totals: Sequence[Any] = (),
    ) -> Any:
        saved = _with_numbers_in_memory(p, saved, (g,))
        several = g.__class__ is list
        given = (*(g if several else (g,)), *saved, *totals)
        first = len(g) if several else 1
        last = len(given) - len(totals)
        site = None
        if not totals:
            site = _site_of(p, pull, params, edges)
            shapes = [first + i for i, (what, _, _) in enumerate(p.slots) if what == "shape"]

            def make(given: list[Any], at: Any) -> Form | None:
                arrays = [x for x in given if _is_array(x)]
                received = given[:first] if several else given[0]
                return _of_rule(arrays, at, pull, received, edges, given, first, last, params)

            out = self._at_site(site, p, given, shapes, make)
            if out is not None:
                return out
        key = [pull, first, len(totals), *[e is None for e in edges]]
        made_of = (pull, g, edges, given, first, last, params)
        return self._run(site, key, given, params, _of_rule, *made_of)

    def draw(self, p: Primitive, state: Any, blocks: int, each: int, params: dict[str, Any]) -> Any:
        def make(given: list[Any], at: Any) -> Form | None:
            of_size = {**params, "shape": (given[1][0] * each,)}
            return _of_kernel(given[:1], at, p, given[:1], of_size)

        site = (p, *params.values())
        out = self._at_site(site, p, (state, (blocks,)), (1,), make, fixed=(0,), learns=True)
        return NotImplemented if out is None else out

    def chain(self, links: Sequence[Link], waiting: Sequence[Any]) -> Any:
        given = list(waiting)
        for link in links:
            given += _with_numbers_in_memory(link.primitive, link.saved, waiting[:1])

        key: list[Any] = [
            (p, targets, _exact(tuple(params.items()))) for p, params, _, targets in links
        ]
        return self._run(None, key, given, {}, _of_chain, links, given, len(waiting))

    def _at_site(
        self,
        site: Any,
        p: Primitive,
        args: Any,
        shapes: Sequence[int],
        make: Callable[..., Form | None],
        fixed: Sequence[int] = (),
        learns: bool = False,
    ) -> Any:
        """What a site answers, after it has learned the pattern of these arguments.

        None if a form of these arguments alone should run, NotImplemented if NumPy should.
        """
        learns = learns or p.has_families
        call = out = None
        if site is not None:
            call = SITES.get(site)
            out = None if call is None else call(*args)
        if out is None and site is not None and learns and not _learning.now:
            _learning.now = True  # what is traced may run other kernels
            try:
                out = self._families.learn(site, args, shapes, make, fixed)
            finally:
                _learning.now = False
        if out is None or out is False:
            if not learns:
                return None
            # NumPy keeps the layout of elementwise operands.
            form = p.composite and (p.kind != ELEMENTWISE or all(map(_is_in_order, args)))
            return _unless_large(args, SMALL_FORM if form else ARRAY_SIZE)
        return out

    def _run(
        self,
        site: Any,
        key: list[Any],
        inputs: Any,
        params: Any,
        make: Callable[..., Form | None],
        *made_of: Any,
    ) -> Any:
        """Run the form of these arguments; make it if they are new, and tell the site of it."""
        arrays = []
        at: Any = HOST
        for x in inputs:
            if x.__class__ is _ndarray:
                key += (x.shape, x.strides, x.dtype)
                arrays.append(x)
            elif x.__class__ in GPU_CLASSES:
                index = x.data.device_id
                at = self._gpus[index] if index in self._gpus else self._found(index)
                if at is None:
                    return NotImplemented
                key += (x.shape, x.strides, x.dtype, index)
                arrays.append(x)
            elif isinstance(x, np.generic):  # NumPy's result for 0-d arrays
                return NotImplemented
            else:
                key.append(_exact(x))
        for name, value in params.items():
            key.append(name)
            key.append(_exact(value))
        key += at.switches
        whole = tuple(key)
        try:
            form = self.forms.get(whole, self)
        except TypeError:  # an argument without a hash, such as a list of arrays
            return NotImplemented
        if form is self:
            if _learning.now or not at.enter():
                return NotImplemented
            if len(self.forms) >= MOST_FORMS:
                for old in list(self.forms)[: MOST_FORMS // 2]:
                    self.forms.pop(old, None)
            form = self.forms[whole] = self._made(make, arrays, at, made_of)
            if form is not None and site is not None and at is HOST:
                self._families.add(site, inputs, form)
        if form is None or not at.enter():
            return NotImplemented
        return form.run(arrays)  # type: ignore[union-attr]

    def _found(self, index: int) -> OnGPU | None:
        """The GPU with an index, if it can run programs."""
        target: Any = target_of("cuda")
        usable = target.missing() is None
        self._gpus[index] = OnGPU(target.device(index), index) if usable else None
        return self._gpus[index]

    def _made(
        self, make: Callable[..., Form | None], arrays: list[Any], at: Any, made_of: Any
    ) -> Any:
        """A new form; None where NumPy should run."""
        if not jit.available():
            return None
        began = progress.clock()
        form = make(arrays, at, *made_of)
        if self.seconds is not None:
            self.seconds += progress.clock() - began
            if self.seconds > progress.PATIENCE_SECONDS:
                progress.say(
                    "tapegrad: compiling operations as they are first met, "
                    f"{len(self.forms) + 1} in {self.seconds:.1f} s so far; later runs find them "
                    "on disk\n"
                )
                self.seconds = None
        return form


def _order_of(inputs: Any) -> list[int] | None:
    """The order in memory of the dimensions of operands on a GPU; None if they are in order.

    An elementwise operation keeps the layout of its operands, as on a CPU, where NumPy does so for
    small operands, and native code runs for large ones alone.
    """
    first = next((x for x in inputs if x.__class__ in GPU_CLASSES and x.ndim), None)
    if first is None or first.flags.c_contiguous:
        return None
    rank = first.ndim
    if any(getattr(x, "ndim", 0) not in (0, rank) for x in inputs):
        return None
    order = sorted(range(rank), key=lambda d: -abs(first.strides[d]))
    return None if order == list(range(rank)) else order


def _with_numbers_in_memory(p: Primitive, inputs: Any, beside: Any) -> Any:
    """Turn numbers in plain arithmetic into 0-d arrays, so that all numbers share a form."""
    if p.expression is None or "(" in p.expression or p.composite:
        return inputs
    dtype = next((x.dtype for x in beside if _is_array(x)), None)
    if dtype is None or not numeric.is_numpy_float(dtype):
        return inputs
    return [np.asarray(x, dtype) if x.__class__ in (float, int) else x for x in inputs]


def _with_tensors(inputs: Any, tensors: list[Tensor]) -> list[Any]:
    """The inputs with Tensors instead of arrays."""
    following = iter(tensors)
    return [next(following) if _is_array(x) else x for x in inputs]


set_accelerator(Native())
