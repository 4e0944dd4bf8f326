"""Primitives: one record for each operation, and `bind`, which runs and records them.

A `Primitive` holds everything that the library knows about an operation. The parameter names of its
gradient rules declare what the rules need, and exactly that is saved for backward:

    g              the gradient of the result
    x, y, ...      an input, by the kernel's name for it: its value is saved
    out            the result: its value is saved (or the names given as `outputs` and `extras`)
    x_shape        an input's shape;  x_dtype: its dtype; neither keeps the value
    anything else  a static parameter of that name

Rules use only operators and other primitives, which accept raw arrays and Tensors alike: eager
backward calls them with raw arrays, differentiable backward with Tensors.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import dtypes, halves, shortpaths, source, sparse
from .acceleration import ARRAY_SIZE as ARRAY_SIZE
from .acceleration import COMPOSITE_SIZE as COMPOSITE_SIZE
from .acceleration import MIXED_SIZE as MIXED_SIZE
from .acceleration import PRODUCT_SIZE as PRODUCT_SIZE
from .acceleration import SITES as SITES
from .acceleration import Accelerator as Accelerator
from .acceleration import Link as Link
from .acceleration import accelerator as accelerator
from .acceleration import set_accelerator as set_accelerator
from .complexes import HOLOMORPHIC, OWN, conjugating, refuse
from .device import GPU_CLASSES
from .dtypes import DType
from .handles import InferenceExtra
from .histories import UNTRACKED, is_untracked
from .modes import (
    ANOMALY,
    AUTOCAST,
    CAPTURE,
    GRAD,
    HOOKS,
    INFERENCE,
    LISTENING,
    STATE,
    TAPE,
    TRANSFORM,
    numbers,
    switched,
)
from .numeric import COMPLEX, DIFFERENTIABLE
from .operands import BOOL, I64, check_broadcast, check_kinds, check_nan, is_settled, on_one_device
from .packing import pack
from .shortpaths import NEVER as NEVER
from .sparse import SparseArray
from .storage import owner_of
from .tape import Entry, Output, new_entry
from .tensor import Tensor, own, refresh, wrap

ELEMENTWISE = "elementwise"  # one expression for each element, broadcasting its inputs
REDUCE = "reduce"  # folds the dimensions named by `dims`
MOVEMENT = "movement"  # rearranges elements, computes nothing
CONTRACTION = "contraction"  # sums of products
OPAQUE = "opaque"  # none of these

NO_PARAMS: dict[str, Any] = {}

_new = object.__new__
_ndarray = np.ndarray
_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)


class Primitives(dict[str, "Primitive"]):
    """Every primitive by name. A missing name imports the files that define primitives late."""

    #: imports those files
    loader: Callable[[], None] | None = None

    def __missing__(self, name: str) -> Primitive:
        if self.loader is not None:
            self.loader()
        if name not in self:
            raise KeyError(name)
        return self[name]


PRIMITIVES = Primitives()

Rule = Callable[..., Any]
Slot = tuple[str, int, tuple[int, ...] | None]


@dataclass(slots=True, eq=False, repr=False)
class Primitive:
    """Everything that the library knows about one operation. Made by `define`."""

    name: str
    kernel: Callable[..., Any]
    kind: str
    #: names of the required inputs, and the name for any number of further inputs
    inputs: tuple[str, ...]
    rest: str | None = None
    #: names of the results, and of further values that the kernel returns only for the rules
    outputs: tuple[str, ...] = ("out",)
    extras: tuple[str, ...] = ()
    #: one gradient rule for each input, or one joint rule for all of them
    rules: tuple[Rule | None, ...] = ()
    joint: Rule | None = None
    #: "same": cast inputs to a common dtype; "numbers": the same, but refuse bool; "floats": refuse
    #: integers too; "float": the common dtype is floating; "bool": the result is bool
    promote: str | None = None
    #: if half precision cannot hold a Python number operand, compute in float32 and round once
    wide_numbers: bool = False
    #: the result is a view of the first input
    view: bool = False
    #: the result is one of several views that one call returns
    sibling: bool = False
    #: the kernel calls primitives, so it runs on Tensors as well
    composite: bool = False
    #: the same inputs give the same result, without side effects
    pure: bool = True
    #: all processes of a group must run it together
    collective: bool = False
    #: a collective split into two primitives, `start` and `wait`; for such a half, which one it is
    halves: tuple[Primitive, Primitive] | None = None
    half: str | None = None
    #: for native code: a scalar expression, or a lowering (builder, out, *inputs, **params)
    expression: str | None = None
    lower: Callable[..., None] | None = None
    #: (*(shape, dtype), **params) -> (shape, dtype), where it does not follow from the kind
    abstract: Callable[..., Any] | None = None
    #: (inputs, batched, **params): run on inputs of which some have an extra leading dimension,
    #: where it does not follow from the kind; see `batch_rules.py`
    batch: Callable[..., Any] | None = None
    #: (total, g, **params): add the gradient of the only input to an array in place, where the rule
    #: would make an array that is zero in nearly all elements
    into: Callable[..., None] | None = None
    #: the saved values: (what, index, inputs whose rules need it)
    slots: tuple[Slot, ...] = ()
    #: whether `slots` has values, which backward frees, and not only shapes and dtypes
    keeps_values: bool = True
    #: (saved, g) -> what stays saved after backward, for operations whose results have separate
    #: histories
    release: Callable[..., Any] | None = None
    differentiable: bool = False
    #: smallest size of the largest operand, in elements, for which the kernel may run natively
    native_size: int = NEVER
    #: small arrays of all sizes share a native program, if it does not depend on sizes otherwise
    has_families: bool = False
    #: the kernel imports a library that takes longer to load than native code takes to compile
    loads: bool = False
    #: the context that a user's Function keeps between forward and backward
    context: Any = None
    #: it moves or copies elements, so it accepts dtypes that are only stored, such as float8
    stores: bool = False
    #: how it treats complex numbers (`complexes.py`), and the primitive it is a conjugating copy of
    complex: str | None = None
    plain: Primitive | None = None
    #: linear in all of its differentiable inputs together, as movements are
    linear: bool = False
    #: (primals, tangents, outs, **params) -> the tangents of the results, where they should come
    #: neither from the kind nor from differentiating the gradient rules
    jvp: Callable[..., Any] | None = None
    _internal: bool | None = None
    _keywords: Any = False
    _pull: Callable[..., Sequence[Any]] | None = None
    _saver: Callable[..., tuple[Any, ...]] | None = None
    #: `direct(*inputs, params)`: a short `bind` for exactly the named inputs, made on first use.
    #: Public functions call it: through `__call__` a small operation takes 0.5 µs longer.
    direct: Callable[..., Any] = field(init=False)

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return PRIMITIVES.__getitem__, (self.name,)

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        """Run on Tensors (checked, recorded) or, inside rules and kernels, on raw arrays."""
        large = False
        for x in inputs:
            if x.__class__ is _ndarray:
                if x.size >= self.native_size:
                    large = True
            elif isinstance(x, Tensor):
                if len(inputs) == len(self.inputs) or self.rest is not None:
                    return self.direct(*inputs, params)
                return bind(self, inputs, params)
            elif x.__class__ in GPU_CLASSES and self.native_size != NEVER:
                large = True
        return run(self, inputs, params) if large else self.kernel(*inputs, **params)

    @property
    def internal(self) -> bool:
        """Whether kernel and rules are code of this library and call none of the user's."""
        if self._internal is None:
            parts = (self.kernel, self.joint, *self.rules)
            self._internal = self.pure and all(map(source.is_of_library, parts))
        return self._internal

    def __post_init__(self) -> None:
        self.direct = self._first_direct
        self.differentiable = self.joint is not None or any(r is not None for r in self.rules)
        if self.composite:
            self.native_size, self.has_families = COMPOSITE_SIZE, True
        elif self.kind == CONTRACTION:
            self.native_size = PRODUCT_SIZE
        elif self.pure and not self.view and not self.extras and (self.expression or self.lower):
            self.native_size = ARRAY_SIZE

    @property
    def called_natively(self) -> bool:
        """Whether its short paths look for a builtin function that runs it (`SITES`).

        Where native code is for large arrays alone, a call takes longer than the detour.
        """
        return self.native_size <= PRODUCT_SIZE and self.kind != CONTRACTION

    @property
    def registered(self) -> bool:
        """Whether `PRIMITIVES` has it under its name; it has none of users' Functions."""
        return PRIMITIVES.get(self.name) is self

    @property
    def pull(self) -> Callable[..., Sequence[Any]]:
        """`pull(g, edges, saved, params)`: the gradients of all inputs whose edge is not None."""
        if self._pull is None:
            self._pull = _make_pull(self)
        return self._pull

    @property
    def saver(self) -> Callable[..., tuple[Any, ...]]:
        """`saver(arrays, outs, edges)`: what an entry saves, in the order of the slots."""
        if self._saver is None:
            self._saver = shortpaths.saver(self)
        return self._saver

    def _first_direct(self, *given: Any) -> Any:
        """Generate `direct` on its first call."""
        self.direct = _make_direct(self)
        return self.direct(*given)


def define(
    name: str,
    kernel: Callable[..., Any],
    *,
    kind: str,
    vjp: Rule | tuple[Rule | None, ...] | None = None,
    joint: Rule | None = None,
    inputs: tuple[str, ...] | None = None,
    outputs: tuple[str, ...] = ("out",),
    extras: tuple[str, ...] = (),
    promote: str | None = None,
    view: bool = False,
    composite: bool = False,
    expression: str | None = None,
    lower: Callable[..., None] | None = None,
    pure: bool = True,
    abstract: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
    into: Callable[..., None] | None = None,
    native_size: int | None = None,
    families: bool = False,
    loads: bool = False,
    linear: bool | None = None,
    jvp: Callable[..., Any] | None = None,
    collective: bool = False,
    halves: tuple[Primitive, Primitive] | None = None,
    half: str | None = None,
    sibling: bool = False,
    wide_numbers: bool = False,
    complex: str | None = None,
    stores: bool = False,
) -> Primitive:
    """Make a primitive. Inputs are the kernel's positional parameters, in order.

    The fields of `Primitive` explain the parameters. The kind gives the default of `native_size`.
    """
    rest = None
    if inputs is None:
        code = getattr(kernel, "__code__", None)
        assert code is not None, f"{name}: name the inputs of a kernel that is not Python"
        inputs = code.co_varnames[: code.co_argcount]
        if code.co_flags & 0x04:
            rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    rules: tuple[Rule | None, ...] = ()
    if isinstance(vjp, tuple):
        assert len(vjp) == len(inputs), f"{name}: one rule for each of {inputs}"
        rules = vjp
    elif joint is None:
        rules = (vjp,) + (None,) * (len(inputs) - 1)
    p = Primitive(
        name, kernel, kind, inputs, rest, outputs, extras, rules, joint, promote, wide_numbers,
        view, sibling, composite,
        pure and not collective, collective, halves, half, expression, lower, abstract, batch, into,
    )  # fmt: skip
    p.loads, p.jvp = loads, jvp
    p.stores = stores or kind == MOVEMENT
    p.complex = complex or {MOVEMENT: OWN, CONTRACTION: HOLOMORPHIC}.get(kind)
    p.linear = kind == MOVEMENT if linear is None else linear
    if native_size is not None:
        p.native_size, p.has_families = native_size, False
    if families:
        p.native_size, p.has_families = COMPOSITE_SIZE, True
    p.slots = _slots_of(p)
    p.keeps_values = any(what not in ("shape", "dtype", "shapes") for what, _, _ in p.slots)
    assert name not in PRIMITIVES, f"a primitive named {name!r} exists already"
    PRIMITIVES[name] = p
    return p


def _slots_of(p: Primitive) -> tuple[Slot, ...]:
    users: dict[tuple[str, int], set[int]] = {}
    rules = enumerate(p.rules) if p.joint is None else [(-1, p.joint)]
    for i, rule in rules:
        if rule is None:
            continue
        for name in shortpaths.parameters(rule):
            source = shortpaths.source_of(p, name)
            if name == "needs":
                continue
            if source[0] != "param":
                users.setdefault(source, set()).add(i)
            elif not _is_parameter(p.kernel, name):
                known = ", ".join((*p.inputs, *p.outputs, *p.extras))
                raise TypeError(
                    f"a gradient rule of {p.name} asks for {name!r}; there are {known}, _shape and "
                    "_dtype of inputs, and the keyword parameters of the kernel"
                )
    return tuple(
        (what, index, None if -1 in who else tuple(sorted(who)))
        for (what, index), who in users.items()
    )


def _is_parameter(kernel: Callable[..., Any], name: str) -> bool:
    """Whether a kernel has a keyword parameter of this name, or may have it."""
    code = getattr(kernel, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    first = code.co_argcount
    return name in code.co_varnames[first : first + code.co_kwonlyargcount]


def _make_pull(p: Primitive) -> Callable[..., Sequence[Any]]:
    condition = None
    if p.composite and p.native_size <= MIXED_SIZE:
        condition = "g.__class__ is ndarray or g.__class__ is list or g.__class__ in on_gpu"
    elif p.native_size < NEVER:
        large = f"g.size >= {p.native_size}"
        condition = f"{large} if g.__class__ is ndarray else g.__class__ in on_gpu"
    given = {"ndarray": _ndarray, "on_gpu": GPU_CLASSES, "_native": _native, "sites": SITES}
    return shortpaths.pull(p, condition, given)


def _make_direct(p: Primitive) -> Callable[..., Any]:
    namespace = {
        "BOOL": BOOL, "F32": _F32, "F64": _F64, "I64": I64, "GRAD": GRAD, "STATE": STATE,
        "Entry": Entry, "Output": Output,
        "Tensor": Tensor, "as_array": _as_array, "asarray": np.asarray, "bind": bind,
        "generic": np.generic, "getframe": sys._getframe,
        "kernel": p.kernel, "LIBRARY": source.LIBRARY, "ndarray": _ndarray, "new": _new,
        "note_view": note_view, "numbers": numbers, "outside": source.outside,
        "refresh": refresh, "run": run, "conjugating": conjugating, "sites": SITES,
    }  # fmt: skip
    return shortpaths.direct(p, p.kind == ELEMENTWISE, p.kind == CONTRACTION, namespace)


# -- native code -------------------------------------------------------------------------------


def run(p: Primitive, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """A primitive's result on raw arrays, as native code if that is faster."""
    # During capture the tape runs the kernel, one primitive at a time.
    if STATE.mode & CAPTURE and (not p.loads or _is_for_gpu(p, arrays)):
        return STATE.tapes[-1].kernel(p, arrays, params)
    out = accelerator().kernel(p, arrays, params)
    return p.kernel(*arrays, **params) if out is NotImplemented else out


def _is_for_gpu(p: Primitive, arrays: Sequence[Any]) -> bool:
    """Whether a primitive on raw arrays may run as a program of a GPU."""
    return p.native_size != NEVER and any(a.__class__ in GPU_CLASSES for a in arrays)


def _native(p: Primitive, pull: Any, g: Any, edges: Any, saved: Any, params: Any) -> Any:
    parts = g if g.__class__ is list else (g,)
    if all(x is None or x.__class__ is _ndarray or x.__class__ in GPU_CLASSES for x in parts):
        results = accelerator().rule(p, pull, g, edges, saved, params)
        if results is not NotImplemented:
            return results
    return pull(g, edges, saved, params)


# -- running -----------------------------------------------------------------------------------

#: operands that need no conversion, so no code of the user runs for them
_PLAIN_OPERANDS = (Tensor, int, float, complex, type(None))


def bind(
    p: Primitive,
    inputs: Sequence[Any],
    params: dict[str, Any] = NO_PARAMS,
    captured: bool = False,
) -> Any:
    """Check and promote the inputs, run the kernel, write the entry, wrap the result.

    `captured` means that `_captured` has already handled the call and wants it run as it is.
    """
    mode = STATE.mode
    if mode & (CAPTURE | TRANSFORM) and not captured:
        if mode & TRANSFORM:
            out = STATE.levels[-1].bind(p, inputs, params)
            if out is not NotImplemented:
                return out
        if mode & CAPTURE:
            return _captured(p, inputs, params, mode)
    tensors = list(inputs)
    arrays: list[Any] = tensors.copy()
    dtype = shape = None
    largest = 0
    uniform = plain = same_shape = True
    recorded = mode > GRAD
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            if x is None or x.__class__ is float or x.__class__ is int:
                continue
            if isinstance(x, (int, float, complex)):  # a subclass, such as bool
                uniform = False
                continue
            tensors[i] = x = _as_operand(x)
            if not isinstance(x, Tensor):
                arrays[i], uniform = x, False
                continue
        if x._view is not None:
            refresh(x)
        arrays[i] = a = x._array
        if x._requires:
            recorded = True
        if dtype is None:
            dtype, shape = a.dtype, a.shape
        else:
            if a.dtype is not dtype:
                uniform = False
            if a.shape != shape:
                same_shape = False
        if a.__class__ is not _ndarray:
            plain = False
        elif a.size > largest:
            largest = a.size
    if not plain and any(a.__class__ is SparseArray for a in arrays):
        return sparse.run(p, tensors, params)
    # Operands of one floating dtype, with or without Python numbers, need no promotion.
    if uniform and (dtype is _F32 or dtype is _F64 or is_settled(p, arrays, dtype, mode)):
        pass
    elif p.promote is not None:
        if p.wide_numbers and (wide := halves.widened(tensors, cast_to)) is not None:
            return cast_to(bind(p, wide[0], params), wide[1])
        _promote(p, tensors)
        arrays = [x._array if isinstance(x, Tensor) else x for x in tensors]
    elif (p.complex is None or not p.stores) and dtype is not _F32 and dtype is not _F64:
        refuse(p, arrays)
    if not plain:
        arrays = on_one_device(p, arrays)
    if not same_shape and p.kind == ELEMENTWISE:
        check_broadcast(p, arrays)
    if p.view and tensors[0]._extra is not None:
        own(tensors[0])
        arrays[0] = tensors[0]._array
    if (largest >= p.native_size and plain) or (not plain and _is_for_gpu(p, arrays)):
        out = run(p, arrays, params)
    else:
        out = p.kernel(*arrays, **params)
    if out.__class__ is _ndarray:
        result = wrap(out)
        if p.view:
            note_view(p, params, tensors[0], result, mode)
        if recorded:
            record(p, params, tensors, arrays, (out,), (result,), mode)
        return result
    outs = tuple(map(_as_array, out if isinstance(out, tuple) else (out,)))
    results = tuple(map(wrap, outs[: len(p.outputs)]))
    if p.view:
        note_view(p, params, tensors[0], results[0], mode)
    record(p, params, tensors, arrays, outs, results, mode)
    return results[0] if len(results) == 1 else results


def _captured(p: Primitive, inputs: Sequence[Any], params: dict[str, Any], mode: int) -> Any:
    """`bind` during capture: inline composites; hide the inside of other primitives."""
    if any(isinstance(x, Tensor) and x._array.__class__ is SparseArray for x in inputs):
        return sparse.run(p, inputs, params)
    if p.composite:
        return _inlined(p, list(inputs), params, mode)
    plain = p.internal and not mode & HOOKS  # hooks are functions of the user
    if plain and all(isinstance(x, _PLAIN_OPERANDS) for x in inputs):
        return STATE.tapes[-1].unobserved(bind, p, inputs, params, True)
    return bind(p, inputs, params, True)


def _inlined(p: Primitive, tensors: list[Any], params: dict[str, Any], mode: int) -> Any:
    """Run a composite part by part, so that a capturing tape sees the parts.

    The gradient comes from the composite's own rule: it is exact where the rules of the parts meet
    infinities and ties, for example in the norm of zero.
    """
    for i, x in enumerate(tensors):
        if not isinstance(x, _PLAIN_OPERANDS):
            tensors[i] = x = _as_operand(x)
        if isinstance(x, Tensor) and x._view is not None:
            refresh(x)
    if p.promote is not None:
        _promote(p, tensors)
    graded = mode & GRAD and p.differentiable
    # Autocast chooses a dtype for whole operations, not for their parts.
    with switched(off=AUTOCAST | GRAD if graded else AUTOCAST):
        if p.internal:
            out = STATE.tapes[-1].unobserved(p.kernel, *tensors, **params)
        else:
            out = p.kernel(*tensors, **params)
    made = out if isinstance(out, tuple) else (out,)
    # A kernel may hand back its input, which keeps its own history.
    results = tuple([wrap(t._array) if graded else t for t in made[: len(p.outputs)]])
    entry = None
    if graded:
        arrays = [x._array if isinstance(x, Tensor) else x for x in tensors]
        outs = tuple([t._array if isinstance(t, Tensor) else t for t in made])
        entry = record(p, params, tensors, arrays, outs, results, mode & ~LISTENING)
    if entry is None:
        edges = (None,) * len(tensors)
        entry = new_entry(p, params, edges, (), next(numbers), source.outside(sys._getframe(1)))
    for tape in STATE.tapes:
        tape.enclose(entry, tensors, results)
    return results[0] if len(results) == 1 else results


def note_view(
    p: Primitive, params: dict[str, Any], source: Tensor, view: Tensor, mode: int
) -> None:
    """Remember how a view was derived from its base, unless the kernel had to copy."""
    made, given = view._array.base, source._array
    shown = made is given or (made is not None and made is given.base)
    if shown or owner_of(view._array) is owner_of(given):
        base, chain, _ = source._view or (source, (), 0)
        number: float = view.id
        if not mode & GRAD or (source._view is not None and is_untracked(source._view)):
            number += UNTRACKED
        view._view = (base, (*chain, (p, params)), number)


def record(
    p: Primitive,
    params: dict[str, Any],
    tensors: Sequence[Any],
    arrays: Sequence[Any],
    outs: tuple[Any, ...],
    results: tuple[Tensor, ...],
    mode: int,
) -> Entry | None:
    """Write the entry of an operation that has run, if gradients or a tape need it."""
    taped = mode & TAPE
    if mode & INFERENCE:
        for result in results:
            if result._view is None and result._extra is None:
                result._extra = InferenceExtra()
            elif result._view is not None and not result.is_inference():
                result._requires = tensors[0]._requires  # a leaf with the flag, as in PyTorch
    tracked = needed = False
    edges: list[Any] = [None] * len(tensors)
    if mode & GRAD and p.differentiable:
        started = [tape.started for tape in STATE.tapes if tape.watches] if taped else []
        rules = p.rules
        for i, x in enumerate(tensors):
            if not isinstance(x, Tensor) or (rules and rules[i] is None):
                continue
            edge = x._edge
            if x._requires:
                tracked = True
            elif not started or x._array.dtype.kind not in DIFFERENTIABLE:
                continue
            elif edge is not None and _number_of(edge) < min(started):
                edge = None  # an earlier tape wrote it
            edges[i] = edge or x  # a leaf is its own edge
            needed = True
    if tracked and mode & ANOMALY:
        check_nan(p, arrays, outs)
    if not taped and not tracked:
        return None
    saved = (p._saver or p.saver)(arrays, outs, edges) if needed and p.slots else ()
    line = source.outside(sys._getframe(1))
    entry = new_entry(p, params, tuple(edges), saved, results[0].id, line)
    if needed:
        if len(arrays) > 1 and (p.kind == ELEMENTWISE or p.kind == CONTRACTION):
            shape = outs[0].shape
            for a in arrays:
                if a.__class__ is not _ndarray or a.shape != shape:
                    shapes = tuple([getattr(a, "shape", ()) for a in arrays])
                    if any(other != shape for other in shapes):
                        entry.shapes = shapes
                    break
        if p.complex == HOLOMORPHIC and outs[0].dtype.kind in COMPLEX:
            entry.primitive = conjugating(p, arrays)
        if mode & HOOKS:
            pack(entry)
        for i, result in enumerate(results):
            if result._array.dtype.kind in DIFFERENTIABLE:
                result._edge = entry if len(results) == 1 else Output(entry, i)
                result._requires = tracked
    if taped:
        for tape in STATE.tapes:
            tape.write(entry, tensors, results)
    return entry


def _number_of(edge: Any) -> int:
    return int(edge.entry.number if isinstance(edge, Output) else edge.number)


# -- checks ------------------------------------------------------------------------------------


def _as_operand(x: Any) -> Any:
    """Accept NumPy arrays and scalars beside tensors."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.ndarray) or hasattr(x, "__cuda_array_interface__"):
        dtypes.from_numpy_dtype(x.dtype)
        return wrap(x)
    raise TypeError(
        f"expected a Tensor or a number, got {type(x).__name__}; make a tensor of it with "
        "tapegrad.tensor(...)"
    )


def _as_array(out: Any) -> Any:
    """Make 0-d arrays of the NumPy scalars that kernels of 0-d inputs return."""
    return np.asarray(out) if isinstance(out, (np.generic, int, float, complex)) else out


def _promote(p: Primitive, tensors: list[Any]) -> None:
    """Cast the inputs to their common dtype, by recorded operations where gradients need them."""
    operands = []
    for x in tensors:
        if isinstance(x, Tensor):
            array = x._array
            operands.append((dtypes.from_numpy_dtype(array.dtype), 2 if array.ndim else 1))
        elif x is not None:
            operands.append((dtypes.number_dtype(x), 0))
    target = dtypes.result_type(*operands)
    check_kinds(p, [dtype for dtype, _ in operands], target)
    if p.promote == "float" and target.category < dtypes.FLOAT:
        target = dtypes.get_default_dtype()
    if (target.category == dtypes.COMPLEX and p.complex is None) or target.stored:
        refuse(p, [x._array if isinstance(x, Tensor) else x for x in tensors])
    numpy_target = target.numpy
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor):
            if x._array.dtype != numpy_target:
                tensors[i] = cast_to(x, target)
        elif x is not None:
            tensors[i] = _number(x, target)


def _number(x: Any, target: DType) -> Any:
    """A Python number of the category of `target`, for the kernel."""
    if target.category == dtypes.COMPLEX:
        return complex(x)
    if target.category == dtypes.FLOAT:
        # Beside NumPy's dtypes a Python float is weak; beside those of ml_dtypes it is not.
        foreign = target is dtypes.bfloat16 or target.stored
        return np.asarray(x, target.numpy) if foreign else float(x)
    if target.category == dtypes.INTEGER:
        return np.asarray(int(x)).astype(target.numpy)
    return bool(x)


def cast_to(x: Tensor, dtype: DType) -> Tensor:
    """Cast a tensor by the `cast` primitive, which `ops/convert.py` defines; recorded."""
    result: Tensor = PRIMITIVES["cast"].direct(x, {"dtype": dtype})
    return result
