"""Whether two results are equal up to rounding: `testing.assert_close`.

Comes in: the actual and the expected result, tensors or structures of tensors. Goes out: nothing,
or an error that names the first difference. Called by `testing.py`.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes, numeric
from .device import as_device, to_device
from .tensor import Tensor, wrap

#: by dtype: relative and absolute differences that rounding explains
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}

_OF_NUMBERS = {int: "int64", float: "float64", complex: "complex128"}


class Difference(Exception):
    """A difference and its path: the keys and indices that lead there."""

    def __init__(self, kind: type[Exception], text: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.kind, self.text, self.path = kind, text, path

    def error(self, msg: Any = None) -> Exception:
        """The error to raise, with the caller's message if there is one."""
        if isinstance(msg, str):
            return self.kind(msg)
        text = self.text
        if self.path:
            where = "".join(str([item]) for item in self.path)
            text += f"\n\nThe failure occurred for item {where}"
        return self.kind(msg(text) if callable(msg) else text)


@dataclass
class Criteria:
    """The options that decide what counts as equal."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool

    def tolerances(self, names: Sequence[str], path: tuple[Any, ...]) -> tuple[float, float]:
        """The relative and absolute tolerances: the given ones, or those of the dtypes."""
        if (self.rtol is None) != (self.atol is None):
            raise Difference(
                ValueError,
                "rtol and atol go together: give both or none "
                f"({'rtol' if self.rtol is None else 'atol'} is missing)",
                path,
            )
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        each = [TOLERANCES.get(name, (0.0, 0.0)) for name in names]
        return max(r for r, _ in each), max(a for _, a in each)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Compares tensors, arrays, numbers, booleans and None, and sequences and mappings of them;
    shapes, dtypes and devices have to be the same. The dtypes give the defaults of `rtol` and
    `atol`. Sparse tensors need elements at the same coordinates. `msg` is the message, or a
    function that makes one from the default message.

    >>> import tapegrad
    >>> tapegrad.testing.assert_close(
    ...     tapegrad.tensor([1.0, 2.0]) / 3 * 3, tapegrad.tensor([1.0, 2.0])
    ... )
    >>> tapegrad.testing.assert_close({"a": 1}, {"a": 2})
    Traceback (most recent call last):
    AssertionError: Scalars are not equal!
    <BLANKLINE>
    Expected 2 but got 1.
    Absolute difference: 1
    Relative difference: 0.5
    <BLANKLINE>
    The failure occurred for item ['a']
    """
    options = Criteria(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout,
        check_stride,
    )  # fmt: skip
    try:
        comparisons = _comparisons(actual, expected, options, ())
    except Difference as difference:
        raise difference.error() from None
    for compare in comparisons:
        try:
            compare()
        except Difference as difference:
            raise difference.error(msg) from None


def _comparisons(
    x: Any, y: Any, options: Criteria, path: tuple[Any, ...]
) -> list[Callable[[], None]]:
    """The comparisons of the leaves of two structures; raises where the structures differ."""
    if _is_sequence(x) and _is_sequence(y):
        if len(x) != len(y):
            text = f"The sequences have {len(x)} and {len(y)} items"
            raise Difference(AssertionError, text, path)
        keys: Sequence[Any] = range(len(x))
    elif isinstance(x, Mapping) and isinstance(y, Mapping):
        keys = _keys(x, y, path)
    else:
        return [_leaf(x, y, options, path)]
    return [c for k in keys for c in _comparisons(x[k], y[k], options, (*path, k))]


def _keys(x: Mapping[Any, Any], y: Mapping[Any, Any], path: tuple[Any, ...]) -> list[Any]:
    """The keys of two mappings, which must be the same; sorted, if they can be."""
    missing, more = set(y) - set(x), set(x) - set(y)
    if missing or more:
        raise Difference(
            AssertionError,
            f"The mappings have different keys: missing in actual {sorted(missing)}, only in "
            f"actual {sorted(more)}",
            path,
        )
    try:
        return sorted(x)
    except TypeError:
        return list(x)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _leaf(x: Any, y: Any, options: Criteria, path: tuple[Any, ...]) -> Callable[[], None]:
    """The comparison of two leaves."""
    if x is None or y is None:
        return lambda: _check_none(x, y, path)
    booleans = (bool, np.bool_)
    if isinstance(x, booleans) and isinstance(y, booleans):
        return lambda: _check_booleans(bool(x), bool(y))
    numbers = (int, float, complex, np.number)
    if isinstance(x, numbers) and isinstance(y, numbers):
        a, b = (v.item() if isinstance(v, np.number) else v for v in (x, y))
        names = [_OF_NUMBERS.get(type(v), "int64") for v in (a, b)]
        tolerances = options.tolerances(names, path)
        return lambda: _check_numbers(a, b, tolerances, options, path)
    related = isinstance(x, type(y)) or isinstance(y, type(x))
    if related and (options.allow_subclasses or type(x) is type(y)):
        tensors = [_as_tensor(v) for v in (x, y)]
        if None not in tensors:
            p, q = tensors
            tolerances = options.tolerances([p.dtype.name, q.dtype.name], path)
            return lambda: _check_tensors(p, q, tolerances, options, path)
    raise Difference(
        TypeError,
        f"assert_close cannot compare a {type(x)} with a {type(y)}.",
        path,
    )


def _as_tensor(x: Any) -> Any:
    """The value as a tensor, or None if it cannot be one."""
    if isinstance(x, Tensor):
        return x
    try:
        array = np.asarray(x)
        return wrap(array) if array.dtype.kind not in "SUOV" else None
    except (TypeError, ValueError):
        return None


def _check_none(x: Any, y: Any, path: tuple[Any, ...]) -> None:
    if not (x is None and y is None):
        raise Difference(AssertionError, f"None mismatch: {x} is not {y}", path)


def _check_booleans(x: bool, y: bool) -> None:
    if x is not y:
        raise Difference(AssertionError, f"Booleans mismatch: {x} is not {y}")


def _check_numbers(
    x: Any, y: Any, tolerances: tuple[float, float], options: Criteria, path: tuple[Any, ...]
) -> None:
    if options.check_dtype and type(x) is not type(y):
        text = f"The types differ: {type(x)} and {type(y)}."
        raise Difference(AssertionError, text, path)
    if x == y or (options.equal_nan and cmath.isnan(x) and cmath.isnan(y)):
        return
    rtol, atol = tolerances
    apart = abs(x - y)
    if not (cmath.isfinite(apart) and apart <= atol + rtol * abs(y)):
        raise Difference(AssertionError, _scalar_text(x, y, rtol, atol), path)


def _check_tensors(
    x: Tensor,
    y: Tensor,
    tolerances: tuple[float, float],
    options: Criteria,
    path: tuple[Any, ...],
) -> None:
    sparse = [t for t in (x, y) if t.is_sparse]
    strides = [() if sparse else tuple(t.stride()) for t in (x, y)]
    for what, wanted, a, b in (
        ("shape", True, x.shape, y.shape),
        ("layout", options.check_layout, x.layout, y.layout),
        ("stride()", options.check_stride, *strides),
        ("device", options.check_device, x.device, y.device),
        ("dtype", options.check_dtype, x.dtype, y.dtype),
    ):
        if wanted and a != b:
            text = f"The tensors differ in {what}: {a} and {b}."
            raise Difference(AssertionError, text, path)
    if len(sparse) == 2:
        x, y = _elements_of(x, y, path)
    elif sparse:
        x, y = x.to_dense(), y.to_dense()
    a, b = (np.asarray(to_device(t._array, as_device("cpu"))) for t in (x, y))
    if a.dtype != b.dtype:
        common = dtypes.promote_types(_signed(x.dtype), _signed(y.dtype)).numpy
        a, b = a.astype(common), b.astype(common)
    rtol, atol = tolerances
    with np.errstate(all="ignore"):
        near = _near(a, b, rtol, atol, options.equal_nan)
        if near.all():
            return
        if a.ndim == 0:
            text = _scalar_text(a.item(), b.item(), rtol, atol)
        else:
            text = _tensor_text(a, b, near, rtol, atol)
    raise Difference(AssertionError, text, path)


def _elements_of(x: Tensor, y: Tensor, path: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """The elements of two sparse tensors, whose coordinates must be the same."""
    x, y = x.detach().coalesce(), y.detach().coalesce()
    p, q = x.indices(), y.indices()
    if p.shape != q.shape or not bool((p == q).all()):
        text = (
            "The sparse tensors have elements at different coordinates: the actual one has "
            f"{p.shape[1]}, the expected one {q.shape[1]}."
        )
        raise Difference(AssertionError, text, path)
    return x.values(), y.values()


def _signed(dtype: Any) -> Any:
    """A dtype that promotes, for unsigned ones of more than 8 bits, which do not."""
    return dtypes.int64 if dtype.name in ("uint16", "uint32", "uint64") else dtype


def _rounded(dtype: Any) -> Callable[[Any], Any]:
    """How results of a dtype are rounded: half precision is computed in float32."""
    return (lambda v: v.astype(dtype)) if numeric.is_half(dtype) else (lambda v: v)


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if numeric.is_half(x.dtype) else x


def _near(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """Where two arrays of one shape and dtype are close, as `isclose` computes it."""
    near = a == b
    inexact = numeric.is_floating(a.dtype) or numeric.is_complex(a.dtype)
    if equal_nan and inexact:
        near = near | (np.isnan(a) & np.isnan(b))
    if rtol == 0 and atol == 0:
        return near
    if not inexact:
        a, b = (v.astype(dtypes.get_default_dtype().numpy) for v in (a, b))
    rounded = _rounded(a.dtype)
    allowed = _wide(rounded(np.abs(_wide(rounded(_wide(b) * rtol))) + atol))
    apart = _wide(rounded(np.abs(_wide(rounded(_wide(a) - _wide(b))))))
    return near | (np.isfinite(apart) & (apart <= allowed))


def _tolerance_text(text: str, tolerance: float, exact: bool) -> str:
    return text if exact else f"{text} (up to {tolerance} allowed)"


def _scalar_text(x: Any, y: Any, rtol: float, atol: float) -> str:
    exact = rtol == 0 and atol == 0
    apart = abs(x - y)
    relative = math.inf if y == 0 else apart / abs(y)
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {y} but got {x}.\n"
        + _tolerance_text(f"Absolute difference: {apart}", atol, exact)
        + "\n"
        + _tolerance_text(f"Relative difference: {relative}", rtol, exact)
    )


def _tensor_text(a: Any, b: Any, near: Any, rtol: float, atol: float) -> str:
    """How many elements differ, and which differ most."""
    exact = rtol == 0 and atol == 0
    wrong = int(near.size - near.sum())
    head = f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
    share = f"Mismatched elements: {wrong} / {near.size} ({wrong / near.size:.1%})\n"
    inexact = numeric.is_floating(a.dtype) or numeric.is_complex(a.dtype)
    if inexact and a.dtype.itemsize == 1:
        first = tuple(map(int, np.argwhere(~near)[0]))
        head = "Tensor-likes are not 'equal'!\n\n"
        return f"{head}{share}The first of them has the index {first}."
    if not inexact:
        a, b = a.astype(np.int64), b.astype(np.int64)
    rounded = _rounded(a.dtype)
    apart = np.where(near, 0, rounded(np.abs(_wide(rounded(_wide(a) - _wide(b))))))
    size = np.abs(b)
    if not inexact:
        single = np.dtype(dtypes.get_default_dtype().numpy)
        relative = apart.astype(single) / size.astype(single)
    else:
        relative = rounded(_wide(apart) / _wide(size))
    relative = np.where(near, 0, relative)
    lines = []
    for what, values, tolerance in (("absolute", apart, atol), ("relative", relative, rtol)):
        wide = values.astype(np.float64) if inexact else values
        place = tuple(map(int, np.unravel_index(int(wide.argmax()), values.shape)))
        most = wide[place].item()
        text = f"Greatest {what} difference: {most} at index {place}"
        lines.append(_tolerance_text(text, tolerance, exact))
    return head + share + "\n".join(lines)
