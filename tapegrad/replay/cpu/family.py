"""Families: one native program for all sizes of small arrays.

Comes in: one function, recorded and planned for three sets of sizes (`Probe`). Goes out: a
`SiteProgram` for a native caller (`caller.py`), or None. The three programs must have the same
kernels in the same order. Their words (extents, strides, counts, sizes of values) may differ, if
each is a constant or a multiple of a product of the sizes, and the third probe confirms it. If a
word depends on sizes in another way, there is no family, and the function is compiled for its sizes
alone. Probes have different prime sizes, so that no two products are equal by accident. Called by
`use/families.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..ir.program import Loop, Program, bytes_of
from ..native.plan import Plan
from . import caller, caller_layout, driver_layout, jit
from .blueprint import Blueprint, Steps, blueprint_of, texts_of
from .emit import Emitted
from .executable import Layout, NativeProgram

#: the largest number that is added to a product of sizes, as in `size - 1`
MAX_ADDEND = 2
#: numbers that are divided by counts of elements, as in the gradient of a mean or variance
NUMERATORS = (1, -1, 2, -2)
#: the most elements of an array or result: about where a second thread begins to pay
MAX_ELEMENTS = 1 << 14
#: the most steps of a loop: of operands that broadcast there may be more than elements
MAX_STEPS = 1 << 17

#: The sizes of three probes. They are primes, so that no product is the same in two probes, and
#: most products stay below the sizes at which `tuning.py` chooses other kernels. Of any two sizes,
#: each is the larger one in some probe: a function that takes the smaller of two is no family.
_PRIMES = (
    ((17, 19, 23), (29, 23, 17), (31, 17, 19)),
    ((5, 7, 13, 23), (19, 11, 7, 5), (13, 5, 17, 7)),
    ((5, 7, 11, 19, 23), (19, 17, 13, 7, 5), (17, 13, 5, 11, 7)),
)
#: the most elements of an array of a probe
MAX_PROBE_ELEMENTS = 1 << 20
#: numbers 0 to n - 1 for all sizes n
_COUNTING = np.arange(MAX_ELEMENTS, dtype=np.int64)


def sizes_of_probes(symbols: int, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]] | None:
    """The sizes of three probes, for arrays with these labels; None if there are too many."""
    for primes in _PRIMES:
        if symbols <= len(primes[0]) and all(
            math.prod([probe[label - 1] for label in labels if label]) <= MAX_PROBE_ELEMENTS
            for labels in shapes
            for probe in primes
        ):
            return [probe[:symbols] for probe in primes]
    return None


@dataclass(frozen=True, slots=True)
class Probe:
    """A function's program for one set of sizes."""

    sizes: tuple[int, ...]
    program: Program
    plan: Plan
    emitted: Emitted
    specs: tuple[Any, ...]  # shape and dtype of each result
    reads: tuple[int, ...]  # the arguments that the program reads, by position


class Multiple(NamedTuple):
    """factor * product of sizes + addend; a size may be a factor several times."""

    factor: int
    mask: int = 0  # `caller_layout.POWER_BITS` bits for each size, as many of them set as its power
    addend: int = 0

    def of(self, sizes: Sequence[int]) -> int:
        bits = caller_layout.POWER_BITS
        powers = [(self.mask >> bits * i & (1 << bits) - 1).bit_count() for i in range(len(sizes))]
        product: int = math.prod(n**power for n, power in zip(sizes, powers, strict=True))
        return self.factor * product + self.addend


@functools.cache
def _masks(symbols: int) -> tuple[int, ...]:
    """The masks of all products of up to `POWER_BITS` sizes, simple ones first."""
    found: dict[int, None] = {}
    for degree in range(1, caller_layout.POWER_BITS + 1):
        for chosen in itertools.combinations_with_replacement(range(symbols), degree):
            powers = [chosen.count(i) for i in range(symbols)]
            found[
                sum((1 << p) - 1 << caller_layout.POWER_BITS * i for i, p in enumerate(powers))
            ] = None
    return tuple(found)


class Refused(Exception):
    """The probes do not form a family."""


def _number(words: Sequence[int], probes: Sequence[Probe]) -> Multiple | None:
    """The number that has these values at the sizes of the probes."""
    first, second, _ = words
    if first == second:
        return Multiple(first) if len(set(words)) == 1 else None
    for mask in _masks(len(probes[0].sizes)):
        products = [Multiple(1, mask).of(probe.sizes) for probe in probes]
        factor, rest = divmod(second - first, products[1] - products[0])
        found = Multiple(factor, mask, first - factor * products[0])
        plausible = rest == 0 and factor > 0 and abs(found.addend) <= MAX_ADDEND
        if plausible and [found.of(probe.sizes) for probe in probes] == list(words):
            return found
    return None


def _integer(words: Sequence[int], probes: Sequence[Probe]) -> Multiple:
    found = _number(words, probes)
    if found is None:
        raise Refused
    return found


def _same(values: Sequence[Any]) -> Any:
    """The value that all probes have."""
    if any(value != values[0] for value in values[1:]):
        raise Refused
    return values[0]


def _op(code: int, target: int, number: Multiple) -> tuple[int, ...]:
    return code, target, *number


def _float_bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


def _word_op(words: Sequence[int], target: int, probes: Sequence[Probe]) -> tuple[int, ...] | None:
    """What writes a word of a table; None if it is a constant."""
    if len(set(words)) == 1:
        return None
    number = _number(words, probes)
    if number is not None:
        return _op(caller_layout.WRITE_INTEGER, target, number)
    line = 64
    if all(word % line == 0 for word in words):
        # The bytes of a row, rounded up: the size of an element is at most 16.
        for factor, mask in itertools.product((1, 2, 4, 8, 16), _masks(len(probes[0].sizes))):
            number = Multiple(factor, mask)
            padded = [-(-number.of(probe.sizes) // line) * line for probe in probes]
            if padded == list(words):
                return _op(caller_layout.WRITE_ALIGNED, target, number)
    found = _real(words, target, probes)
    if found is None:
        raise Refused
    return found


def _real(words: Sequence[int], target: int, probes: Sequence[Probe]) -> tuple[int, ...] | None:
    """What writes a number that is a count of elements, or a small number over such a count."""
    reals = [float(np.int64(word).view(np.float64)) for word in words]
    if not all(math.isfinite(real) and 2.0**-40 < abs(real) < 2.0**40 for real in reals):
        return None
    if all(real.is_integer() for real in reals):
        number = _number([int(real) for real in reals], probes)
        if number is not None:
            return _op(caller_layout.WRITE_REAL, target, number)
    for numerator in NUMERATORS:
        below = _number([round(numerator / real) for real in reals], probes)
        if below is not None and below.factor == 1:
            counts = [below.of(probe.sizes) for probe in probes]
            if [_float_bits(numerator / count) for count in counts] == list(words):
                return _op(caller_layout.WRITE_QUOTIENT, target, below._replace(factor=numerator))
    return None


def _steps_of(blueprint: Blueprint) -> Steps:
    if len(blueprint.segments) != 1 or not isinstance(blueprint.segments[0], Steps):
        raise Refused
    return blueprint.segments[0]


def _blocks(probes: Sequence[Probe]) -> Iterator[tuple[list[int], list[Multiple]]]:
    """The blocks of the arena: where each begins in the probes, and the sizes of its values."""
    # An allocation's size is rounded up, and may be the same in all probes by accident.
    bytes_by_number = [
        {v.number: bytes_of(v) for i in probe.plan.program.instructions for v in i.writes()}
        for probe in probes
    ]
    layouts = []
    for probe in probes:
        held: dict[int, list[int]] = {}
        for number, allocation in probe.plan.allocations.items():
            if allocation.kind == "arena":
                held.setdefault(allocation.index, []).append(number)
        layouts.append(held)
    _same([sorted(map(sorted, held.values())) for held in layouts])
    begins = [{tuple(sorted(v)): k for k, v in held.items()} for held in layouts]
    for numbers in begins[0]:
        sizes = [_integer([found[n] for found in bytes_by_number], probes) for n in numbers]
        yield [begin[numbers] for begin in begins], sizes


def _constants(probes: Sequence[Probe], blueprints: Sequence[Blueprint]) -> tuple[Any, ...]:
    """The constants of all sizes: equal in all probes, or counting up to a size."""
    _same([len(b.constants) for b in blueprints])
    found: list[Any] = []
    for arrays in zip(*(b.constants for b in blueprints), strict=True):
        first = arrays[0]
        if all(a.dtype == first.dtype and np.array_equal(a, first) for a in arrays):
            found.append(first)
            continue
        counting = all(a.dtype == _COUNTING.dtype and a.ndim == 1 for a in arrays)
        if not counting or any(not np.array_equal(a, _COUNTING[: len(a)]) for a in arrays):
            raise Refused
        length = _integer([len(a) for a in arrays], probes)
        if length.mask.bit_count() != 1 or length.factor != 1 or length.addend > 0:
            raise Refused
        found.append(_COUNTING)
    return tuple(found)


def family_of(
    probes: Sequence[Probe],
    rows: Sequence[Sequence[int]],
    picks: Sequence[int] | None,
    owned: Sequence[Any],
) -> caller.SiteProgram | None:
    """The program that serves all sizes; None if the probes do not form a family.

    `picks` has the parts of the returned tuple: the position of a result, or -1 for None. Without
    it, the only result is returned.
    """
    try:
        return _family(probes, rows, picks, owned)
    except Refused:
        return None


def _family(
    probes: Sequence[Probe],
    rows: Sequence[Sequence[int]],
    picks: Sequence[int] | None,
    owned: Sequence[Any],
) -> caller.SiteProgram:
    first = probes[0]
    if not all(isinstance(i, Loop) for p in probes for i in p.plan.program.instructions):
        raise Refused
    _same([texts_of(probe.emitted) for probe in probes])
    _same([probe.reads for probe in probes])
    _same([(len(p.plan.program.instructions), len(p.specs)) for p in probes])
    blueprints = [blueprint_of(probe.plan, probe.emitted) for probe in probes]
    _same([len(b.failures) for b in blueprints])
    segments = [_steps_of(b) for b in blueprints]
    for column in (0, 1, 4, 5):  # all but extents and grains
        _same([s.steps[:, column].tolist() for s in segments])
    _same([len(s.tables) for s in segments])
    _same([s.patches[:, :2].tolist() for s in segments])
    if (segments[0].steps[:, 5] > 1).any():
        raise Refused

    base = replace(blueprints[0], constants=_constants(probes, blueprints))
    functions = list(jit.functions(texts_of(first.emitted)).values())
    layout = Layout(first.program, 1, base, functions, (1, None, None))
    layout.expect(range(len(first.program.inputs)))
    frame = layout.frame
    if frame is None:
        raise Refused
    ((steps, tables, patches),) = frame.words
    (descriptor,) = frame.descriptors
    made, results = _complete(layout, rows, owned, first.specs, first.reads, picks)
    checks: list[tuple[int, ...]] = []
    ops: list[tuple[int, ...]] = []
    for i in range(len(first.specs)):
        shapes = [probe.specs[i][0] for probe in probes]
        _same([len(shape) for shape in shapes])
        for d, sizes in enumerate(zip(*shapes, strict=True)):
            target = results[i, 2 + d :].ctypes.data
            ops.append(_op(caller_layout.WRITE_INTEGER, target, _integer(sizes, probes)))
        elements = _integer([math.prod(shape) for shape in shapes], probes)
        checks.append(_limited(elements, MAX_ELEMENTS))
    for loops in zip(*(p.plan.program.instructions for p in probes), strict=True):
        steps_of_loop = _integer([math.prod(loop.shape) for loop in loops], probes)
        checks.append(_limited(steps_of_loop, MAX_STEPS))
    for i, extents in enumerate(zip(*(s.steps[:, 2].tolist() for s in segments), strict=True)):
        target = steps[i, 2:].ctypes.data
        ops.append(_op(caller_layout.WRITE_INTEGER, target, _integer(extents, probes)))
    pointers = set(patches[:, 0].tolist())
    for i, words in enumerate(zip(*(s.tables.tolist() for s in segments), strict=True)):
        found = None if i in pointers else _word_op(words, tables[i:].ctypes.data, probes)
        if found is not None:
            ops.append(found)
    # What is divided by a count, or asks whether it is positive, does something else if it is not.
    checks += [
        _op(caller_layout.CHECK, 0, Multiple(-factor, mask, 1 - addend))
        for code, _, factor, mask, addend in _with_counts(ops)
    ]
    ops += _memory_ops(probes, segments, patches, checks)
    end = _integer([b.scratch for b in blueprints], probes)
    for word, behind in (
        (driver_layout.PARTIALS_OFFSET, Multiple(0)),
        (driver_layout.SCRATCH, end),
    ):
        ops.append(_op(caller_layout.WRITE_END, descriptor[word:].ctypes.data, behind))

    made.table(caller_layout.OPS, checks + ops)
    return made


def fixed_program(
    executable: NativeProgram,
    rows: Sequence[Sequence[int]],
    owned: Sequence[Any],
    specs: Sequence[Any],
    reads: Sequence[int],
    picks: Sequence[int] | None,
) -> caller.SiteProgram | None:
    """The program that serves one form of arguments; None for programs of several threads."""
    layout = executable.alone()
    if layout is None:
        return None
    try:
        return _complete(layout, rows, owned, specs, reads, picks)[0]
    except Refused:
        return None


def _complete(
    layout: Layout,
    rows: Sequence[Sequence[int]],
    owned: Sequence[Any],
    specs: Sequence[Any],
    reads: Sequence[int],
    picks: Sequence[int] | None,
) -> tuple[caller.SiteProgram, Any]:
    """A program that runs a layout, and the words of its results."""
    if len(reads) + len(specs) > caller_layout.MAX_OBJECTS or layout.frame is None:
        raise Refused
    made = caller.SiteProgram(rows, [*owned, layout])
    results = np.zeros((len(specs), caller_layout.RESULT_WORDS), np.int64)
    for words, (shape, dtype) in zip(results, specs, strict=True):
        if len(shape) > caller_layout.MAX_RANK:
            raise Refused
        words[: 2 + len(shape)] = id(dtype), len(shape), *shape
    (descriptor,) = layout.frame.descriptors
    made.words[caller_layout.DESCRIPTOR] = descriptor.ctypes.data
    made.table(caller_layout.READS, reads)
    made.adopt(caller_layout.RESULTS, results, [dtype for _, dtype in specs])
    if picks is None:
        made.words[caller_layout.PICK_COUNT] = -1
    else:
        made.table(caller_layout.PICKS, picks)
    return made, results


def _with_counts(ops: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The operations that write counts of elements less something; of quotients, what is below."""
    for code, target, factor, mask, addend in ops:
        if addend < 0 and code in (caller_layout.WRITE_REAL, caller_layout.WRITE_QUOTIENT):
            count = 1 if code == caller_layout.WRITE_QUOTIENT else factor
            yield code, target, count, mask, addend


def _limited(number: Multiple, most: int) -> tuple[int, ...]:
    return _op(caller_layout.CHECK, 0, number._replace(addend=number.addend - most))


def _memory_ops(
    probes: Sequence[Probe],
    segments: Sequence[Steps],
    patches: Any,
    checks: list[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """What writes the offsets of pointers; values in the arena are laid out anew for each size."""
    ops: list[tuple[int, ...]] = []
    arena = _same([probe.emitted.arena for probe in probes])
    inside: dict[tuple[int, ...], list[int]] = {}
    for i, offsets in enumerate(zip(*(s.patches[:, 2].tolist() for s in segments), strict=True)):
        target = patches[i, 2:].ctypes.data
        if patches[i, 1] == arena:
            inside.setdefault(offsets, []).append(target)
        elif len(set(offsets)) > 1:
            ops.append(_op(caller_layout.WRITE_INTEGER, target, _integer(offsets, probes)))
    for begins, sizes in _blocks(probes):
        for size in sizes:
            ops.append(_op(caller_layout.RESERVE, 0, size))
            checks.append(_limited(size, 8 * MAX_ELEMENTS))
        for target in inside.pop(tuple(begins), ()):
            ops.append(_op(caller_layout.WRITE_OFFSET, target, Multiple(0)))
        ops.append(_op(caller_layout.CLOSE, 0, Multiple(0)))
    if inside:  # a pointer into the middle of a value
        raise Refused
    return ops
