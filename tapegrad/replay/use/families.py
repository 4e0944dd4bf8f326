"""Small eager operations as native code: one program for all sizes of a pattern.

Comes in: a kernel or gradient rule with its arguments, arrays of at most `MAX_ELEMENTS` elements.
Their pattern says which dimensions have size 1 and which sizes are equal, and has the dtypes;
arrays must be contiguous. For each pattern the function is traced with three sets of sizes, and
becomes a family (`cpu/family.py`) that serves all of them. Goes out: the results; False where a
pattern has no family; None where an argument is of another kind. Called by `eager.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import numeric
from ...core.acceleration import SITES
from ...core.tensor import wrap
from ..cpu import budget, caller, caller_layout, family
from ..cpu.emit import emit
from ..cpu.progress import Progress
from ..ir.program import Callback, Program
from ..trace.recording import Made

_ndarray = np.ndarray

#: most sites that are kept; past that, the older half is dropped
MOST_SITES = 4096

#: makes a form of these arguments at a target; None if there is none
Maker = Callable[[list[Any], Any], Any]


class Pattern(NamedTuple):
    """What the arguments of a family have in common, and the sizes of one call."""

    rows: tuple[tuple[int, ...], ...]  # as `caller.py` compares them
    sizes: tuple[int, ...]


class Probing:
    """The target of a trace that is not run: it plans a program for one thread."""

    empty = staticmethod(np.empty)

    def traced(self, array: Any, changes: bool) -> Any:
        return wrap(array.view())

    def build(self, program: Program, held: list[int]) -> Any:
        with Progress("compiling an operation") as progress:
            return Planned(program, progress)


class Planned:
    """A program after all passes and emission, but not compiled."""

    def __init__(self, program: Program, progress: Progress) -> None:
        self.program = program
        self.plan = budget.planned(program, True, 1, progress)
        self.emitted = emit(self.plan, True, 1)
        self.callbacks = [s for s in self.emitted.segments if isinstance(s, Callback)]


_PROBING = Probing()


def pattern_of(
    args: Sequence[Any], shapes: Sequence[int], fixed: Sequence[int] = ()
) -> Pattern | None:
    """The pattern of some arguments, of which those at `shapes` are shapes of arrays.

    The arrays at `fixed` have the same sizes in all calls.
    """
    symbols: dict[int, int] = {1: 0}
    rows = []
    for i, x in enumerate(args):
        if i in fixed:
            rows.append(_fixed_row(x))
        elif x.__class__ is _ndarray:
            if x.ndim > caller_layout.MAX_RANK or x.size > family.MAX_ELEMENTS or not x.size:
                return None
            if not x.flags.c_contiguous:
                return None
            item = x.itemsize
            head = (caller_layout.ARRAY, id(x.dtype), x.ndim, item, item * family.MAX_ELEMENTS)
            labels = [symbols.setdefault(n, len(symbols)) for n in x.shape]
            rows.append((*head, *_padded(labels), *_padded(range(x.ndim)[::-1])))
        elif i in shapes and x is not None:
            if len(x) > caller_layout.MAX_RANK or any(n.__class__ is not int or n < 1 for n in x):
                return None
            if math.prod(x) > family.MAX_ELEMENTS:
                return None
            labels = [symbols.setdefault(n, len(symbols)) for n in x]
            rows.append((caller_layout.SHAPE, 0, len(x), 0, 0, *_padded(labels)))
        elif x is None or x is True or x is False or isinstance(x, np.dtype):
            rows.append((caller_layout.SAME, id(x)))
        else:
            return None
    sizes = tuple(symbols)[1:]
    return Pattern(tuple(rows), sizes) if len(sizes) <= caller_layout.MAX_SYMBOLS else None


def _fixed_row(x: Any) -> tuple[int, ...]:
    head = (caller_layout.FIXED, id(x.dtype), x.ndim, 0, 0)
    return (*head, *_padded(x.shape), *_padded(x.strides))


def _fixed_rows(args: Sequence[Any]) -> list[tuple[int, ...]] | None:
    """Rows that only arguments with the same sizes and strides match."""
    rows: list[tuple[int, ...]] = []
    for x in args:
        if x.__class__ is _ndarray and x.ndim <= caller_layout.MAX_RANK:
            rows.append(_fixed_row(x))
        elif x.__class__ is tuple and all(n.__class__ is int and n >= 0 for n in x):
            if len(x) > caller_layout.MAX_RANK or 0 in x:
                return None
            rows.append((caller_layout.SHAPE, 0, len(x), 0, 0, *[0 if n == 1 else -n for n in x]))
        elif x is None or x is True or x is False or isinstance(x, np.dtype):
            rows.append((caller_layout.SAME, id(x)))
        else:
            return None
    return rows


def _padded(numbers: Sequence[int]) -> list[int]:
    return [*numbers, *[0] * (caller_layout.MAX_RANK - len(numbers))]


def _labels_of(row: Sequence[int]) -> Sequence[int]:
    """The labels of an argument's dimensions."""
    if row[caller_layout.KIND] not in (caller_layout.ARRAY, caller_layout.SHAPE):
        return ()
    return row[caller_layout.LABELS : caller_layout.LABELS + row[caller_layout.RANK]]


def _at_sizes(args: Sequence[Any], pattern: Pattern, sizes: Sequence[int]) -> list[Any]:
    """The arguments with arrays and shapes of other sizes."""

    def size_of(label: int) -> int:
        return sizes[label - 1] if label else 1

    made: list[Any] = []
    for x, row in zip(args, pattern.rows, strict=True):
        if row[caller_layout.KIND] in (caller_layout.SAME, caller_layout.FIXED):
            made.append(x)
            continue
        shape = tuple(map(size_of, _labels_of(row)))
        if row[caller_layout.KIND] == caller_layout.SHAPE:
            made.append(shape)
            continue
        # Safe to divide by, and a valid index.
        fill = np.ones if numeric.is_floating(x.dtype) else np.zeros
        made.append(fill(shape, x.dtype))
    return made


def canonical(args: Sequence[Any]) -> list[Any]:
    """The arguments with dtypes that are one object each: those of unpickled arrays are not."""

    def made(x: Any) -> Any:
        if x.__class__ is not _ndarray:
            return x
        dtype = np.dtype(x.dtype.type)
        return x.view(dtype) if dtype is not x.dtype and dtype == x.dtype else x

    return [made(x) for x in args]


class Families:
    """The sites of kernels and rules by a key."""

    def __init__(self) -> None:
        self._sites: dict[Any, caller.Site] = {}

    def learn(
        self,
        key: Any,
        args: Sequence[Any],
        shapes: Sequence[int],
        make: Maker,
        fixed: Sequence[int] = (),
    ) -> Any:
        """The results for arguments that no program at the site fits, or None or False."""
        args = canonical(args)
        pattern = pattern_of(args, shapes, fixed)
        if pattern is None:
            return None
        site = self._site(key)
        if site is None:
            return False
        if not site.knows(pattern.rows):
            site.add_family(pattern.rows, self._family(args, pattern, make))
        return site.call(*args)

    def add(self, key: Any, args: Sequence[Any], form: Any) -> None:
        """Let the site run a form, for arguments like these."""
        rows, picks = _fixed_rows(args), _picks_of(form)
        if rows is None or picks is False:
            return
        arrays = [i for i, x in enumerate(args) if x.__class__ is _ndarray]
        reads = [arrays[i] for i in form.argument_indices]
        owned = [x.dtype if x.__class__ is _ndarray else x for x in args]
        site = self._site(key)
        if site is not None:
            program = family.fixed_program(form.executable, rows, owned, form.specs, reads, picks)
            if program is not None:
                site.add_form(program)

    def _site(self, key: Any) -> caller.Site | None:
        """The site of a key; None without a native caller."""
        if key in self._sites:
            return self._sites[key]
        native = caller.find_caller()
        if native is None:
            return None
        if len(self._sites) >= MOST_SITES:
            for old in list(self._sites)[: MOST_SITES // 2]:
                del self._sites[old]
                SITES.pop(old, None)
        site = self._sites[key] = caller.Site(native)
        SITES[key] = site.call
        return site

    def _family(self, args: Sequence[Any], pattern: Pattern, make: Maker) -> caller.SiteProgram:
        """The program of a pattern; an empty one if there is no family."""
        owned = [x.dtype if x.__class__ is _ndarray else x for x in args]
        arrays = [i for i, x in enumerate(args) if x.__class__ is _ndarray]
        probes = []
        labels = [_labels_of(row) for row in pattern.rows]
        for sizes in family.sizes_of_probes(len(pattern.sizes), labels) or ():
            form = _form(make, _at_sizes(args, pattern, sizes))
            if form is None:
                break
            picks = _picks_of(form)
            if picks is False:
                break
            planned = form.executable
            probes.append(
                family.Probe(
                    sizes,
                    planned.program,
                    planned.plan,
                    planned.emitted,
                    tuple(form.specs),
                    tuple([arrays[i] for i in form.argument_indices]),
                )
            )
        else:
            if probes:
                found = family.family_of(probes, pattern.rows, picks, owned)
                if found is not None:
                    return found
        return caller.SiteProgram(pattern.rows, owned)


def _form(make: Maker, args: list[Any]) -> Any:
    """The form of arguments that are not those of a call; None if there is none."""
    try:
        return make(args, _PROBING)
    except (TypeError, ValueError, RuntimeError, IndexError, ArithmeticError):
        return None  # what the arguments stand for is not valid at all sizes


def _picks_of(form: Any) -> Any:
    """The parts of the tuple that a form returns, None for a single array; False for others."""
    if isinstance(form.results, Made):
        return None if len(form.specs) == 1 else False
    if form.picked is None:
        return False
    picks = [-1 if i is None else i for i in form.picked]
    used = sorted(i for i in picks if i >= 0)
    return picks if used == list(range(len(form.specs))) else False
