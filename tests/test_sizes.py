"""Results do not depend on size: small arrays run NumPy's kernels, large ones native code.

Every elementwise primitive gets the special values, in all combinations of its inputs, and every
reduction rows with special values among others: once as a few elements and once repeated until
native code runs. NaN, infinities and zeros must agree with their signs, other values up to
rounding; so must gradients. Parameters are those that the samples of the op table lead to.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, call, cases

import tapegrad as tg
from tapegrad import Tensor
from tapegrad.core.primitive import ELEMENTWISE, NEVER, PRIMITIVES, REDUCE, Primitive
from tapegrad.core.tape import Value
from tapegrad.core.tensor import wrap

pytest.importorskip("llvmlite")

NAN, INF = math.nan, math.inf
#: elements from which on everything runs as native code, and a length that no vector divides
LARGE = 100_003
#: elements below which nothing does
SMALL = 200

#: of zeros of both signs NumPy takes either, depending on where they stand in its vectors
EITHER_ZERO = {
    *("maximum", "minimum", "fmax", "fmin", "clamp", "clamp_low", "clamp_high"),
    "clamp_between",
    *("amax", "amin", "max", "min"),
}
#: differences of large terms, which native code rounds once and NumPy twice
CANCELLING = {"binary_cross_entropy"}

#: parameters that no sample has, because derivatives by differences would not work there
MORE: dict[str, list[dict[str, Any]]] = {
    "clamp": [{"low": 5.0, "high": 2.0}, {"low": -INF, "high": 0.0}, {"low": 0.0, "high": INF}],
    "softplus": [{"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 1.0}],
    "hardtanh": [{"low": -1.0, "high": 1.0}, {"low": 0.0, "high": 6.0}],
}

DTYPES = {"float64": np.dtype(np.float64), "float32": np.dtype(np.float32)}


def special(dtype: Any, inputs: int) -> list[float]:
    """Values at the edges of a dtype and of common functions; fewer where they are combined."""
    if dtype.kind == "b":
        return [False, True]
    if dtype.kind in "iu":
        return [1, 2, 3, 7, 100] if dtype.kind == "u" else [1, -1, 2, -3, 7, 100, -128]
    info = np.finfo(dtype)
    basic = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, INF, -INF, NAN]
    if inputs > 2:
        return [*basic[:6], INF, NAN]
    basic += [float(info.max), float(info.tiny), float(info.smallest_subnormal), 1e-30, -1e30]
    if inputs == 2:
        return basic
    # The edges of exponentials, of branches, and what nearly rounds.
    return [
        *(*basic, -float(info.max), -float(info.tiny), -float(info.smallest_subnormal)),
        *(
            6.0,
            -6.0,
            20.0,
            -20.0,
            20.5,
            -20.5,
            40.0,
            -40.0,
            88.0,
            -88.0,
            89.0,
            -89.0,
            104.0,
            -104.0,
        ),
        *(709.0, -709.0, 710.0, -745.0, 0.9, 1.1, 1e-5, -1e-5, 1e5, -1e5, 1e15, 0.25, 2.0, 1.5),
    ]


@functools.cache
def met() -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """By primitive: the inputs, as dtypes and numbers, and the parameters that samples lead to."""
    found: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        for op, _, arguments in cases(name):
            with tg.Tape() as tape, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(op, arguments)
            for entry in tape:
                inputs = tuple(x.dtype if isinstance(x, Value) else x for x in entry.log[0])
                form = (inputs, entry.params)
                found.setdefault(entry.primitive.name, {}).setdefault(repr(form), form)
    return {name: list(forms.values()) for name, forms in found.items()}


def is_swept(p: Primitive) -> bool:
    return p.native_size < NEVER and p.rest is None and p.pure and len(p.outputs) == 1


ELEMENTWISE_NAMES = sorted(
    p.name for p in PRIMITIVES.values() if is_swept(p) and p.kind == ELEMENTWISE
)
REDUCTIONS = sorted(
    p.name
    for p in PRIMITIVES.values()
    if is_swept(p)
    and len(p.inputs) == 1
    and (p.kind == REDUCE or (p.composite and "dims" in p.kernel.__code__.co_varnames))
)


def as_dtype(given: Any, dtype: Any) -> Any:
    """Floating inputs in the dtype that is swept; others in their own."""
    return dtype if isinstance(given, np.dtype) and given.kind == "f" else given


def results(p: Primitive, arrays: list[Any], params: dict[str, Any]) -> list[Any]:
    """The result and the gradients of floating inputs, with weights that repeat as values do."""
    inputs = [
        wrap(a).requires_grad_(a.dtype.kind == "f") if isinstance(a, np.ndarray) else a
        for a in arrays
    ]
    out = p(*inputs, **params)
    found = [out._array]
    if out.requires_grad:
        weights = np.full(out._array.shape, 0.75, out._array.dtype)
        out.backward(wrap(weights))
        found += [x.grad._array for x in inputs if isinstance(x, Tensor) and x.grad is not None]
    return found


def assert_same(
    small: Any, large: Any, what: str, values: Any, signs: bool = True, sums: bool = False
) -> None:
    """NaN, infinities, zeros and signs are the same, and all else but for rounding.

    Where terms cancel (`sums`) the rest of one may be a zero of the other.
    """
    assert small.dtype == large.dtype, what
    assert small.shape == large.shape, what
    if small.dtype.kind == "c":
        different = (small != large) & ~(np.isnan(small) & np.isnan(large))
    elif small.dtype.kind != "f":
        different = small != large
    else:
        info = np.finfo(small.dtype)
        a, b = np.abs(small), np.abs(large)
        given = [np.abs(v) for v in values if sums and np.shape(v) == small.shape]
        scale = functools.reduce(np.maximum, given, np.ones_like(small))
        scale = np.where(np.isfinite(scale), scale, 1)
        # 1 - y * y and the like: rounded at the size of 1, whatever is left.
        near = np.abs(small - large) <= 16 * info.eps * a + 4 * info.eps * scale
        same = np.where(np.isfinite(small), near & np.isfinite(large), small == large)
        if not sums:
            same &= ((small == 0) == (large == 0)) | (np.maximum(a, b) < info.tiny)
        if signs:
            same &= (np.signbit(small) == np.signbit(large)) | (sums & near)
        different = ~(same | (np.isnan(small) & np.isnan(large)))
    shown = [
        f"{[v[i].tolist() if np.ndim(v) else v for v in values]}: "
        f"{small[i]!r} small, {large[i]!r} large"
        for i in map(tuple, np.argwhere(different)[:8])
    ]
    assert not shown, f"{what} depends on size at\n" + "\n".join(shown)


def forms(name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    more = [((np.dtype(np.float64),), params) for params in MORE.get(name, ())]
    for inputs, params in [*met().get(name, ()), *more]:
        if not any(isinstance(x, np.dtype) and x.kind == "V" for x in inputs):
            yield inputs, params


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ELEMENTWISE_NAMES)
def test_elementwise_results_do_not_depend_on_size(name: str, dtype: str) -> None:
    p = PRIMITIVES[name]
    for given, params in forms(name):
        inputs = [as_dtype(x, DTYPES[dtype]) for x in given]
        arrays = [x for x in inputs if isinstance(x, np.dtype)]
        columns = zip(*itertools.product(*[special(d, len(arrays)) for d in arrays]), strict=True)
        values = iter([np.array(c, d) for c, d in zip(columns, arrays, strict=True)])
        whole = [next(values) if isinstance(x, np.dtype) else x for x in inputs]
        count = max(np.size(x) for x in whole)
        parts = [
            results(p, [x[i : i + SMALL] if np.ndim(x) else x for x in whole], params)
            for i in range(0, count, SMALL)
        ]
        small = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        tiled = [np.tile(x, -(-LARGE // count)) if np.ndim(x) else x for x in whole]
        options = {"signs": name not in EITHER_ZERO, "sums": name in CANCELLING}
        for i, (a, b) in enumerate(zip(small, results(p, tiled, params), strict=True)):
            what = f"{name}{f', gradient {i},' if i else ''} of {given} with {params}"
            assert_same(a, b[:count], what, whole, **options)
            assert_same(a, b[-count:], what, whole, **options)


def rows(dtype: Any) -> Any:
    """Rows with special values among ordinary ones; sums of them do not depend on their order."""
    if dtype.kind != "f":
        return np.array(list(itertools.product(special(dtype, 3)[:4], repeat=4)), dtype)[
            : SMALL // 4
        ]
    info = np.finfo(dtype)
    found = [
        [1.0, 2.0, 4.0, 3.0],
        [2.0, 2.0, 1.0, 2.0],
        [-1.0, -1.0, -1.0, -1.0],
        [0.0, -0.0, 0.0, -0.0],
        [-0.0, -0.0, -0.0, -0.0],
        [INF, -INF, 1.0, 0.0],
        [INF, INF, 1.0, 0.0],
        [-INF, -INF, -INF, -INF],
        [NAN, INF, 0.0, NAN],
    ]
    for x in (
        0.0,
        -0.0,
        INF,
        -INF,
        NAN,
        float(info.tiny),
        1e-20,
        1e10,
        -1e10,
        100.0,
        -100.0,
        745.0,
    ):
        found += [[1.0, 2.0, x, 3.0], [x, 0.0, 0.0, 0.0], [x, x, x, x]]
    return np.array(found, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_do_not_depend_on_size(name: str, dtype: str) -> None:
    p = PRIMITIVES[name]
    for given, params in forms(name):
        values = rows(as_dtype(given[0], DTYPES[dtype]))
        times = -(-LARGE // len(values))
        for dim in (1, 0):
            told = {**params, "dims": (dim,)}
            turned = values if dim else values.T.copy()
            tiled = np.tile(turned, (times, 1) if dim else (1, times))
            small, large = results(p, [turned], told), results(p, [tiled], told)
            for i, (a, b) in enumerate(zip(small, large, strict=True)):
                what = f"{name}{'' if i == 0 else ', gradient,'} of {given} with {told}"
                kept = b[: len(a)] if dim or b.ndim == 1 else b[:, : a.shape[-1]]
                shown = [turned] if a.shape == turned.shape else [values.reshape(*a.shape, 4)]
                assert_same(a, kept, what, shown, name not in EITHER_ZERO, sums=True)
