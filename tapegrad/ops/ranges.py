"""Tensors of generated values: ranges, identity matrices, indices of triangles, grids.

Comes in: numbers and sizes. Goes out: a new tensor without history; `meshgrid` expands tensors to
the coordinates of a grid. All functions are in the main namespace.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtypes, numeric
from ..core.outputs import created_into
from ..core.tensor import Tensor
from .creation import as_size, creation, finished, numpy_dtype, valid_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .annotations import DeviceLike, DTypeLike, Number

#: most elements that fit into the address space
_MOST = np.iinfo(np.int64).max // 16


@creation
def arange(
    start: Number | Tensor,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Numbers from start up to but not including end.

    >>> import tapegrad
    >>> tapegrad.arange(3), tapegrad.arange(1, 7, 2), tapegrad.arange(0, 1, 0.5)
    (tensor([0, 1, 2]), tensor([1, 3, 5]), tensor([0.0000, 0.5000]))
    """
    if out is not None:
        return created_into(
            out, arange, start, end, step, dtype=dtype, requires_grad=requires_grad, counted=True
        )
    if end is None:
        start, end = 0, start
    if isinstance(start, Tensor) or isinstance(end, Tensor) or isinstance(step, Tensor):
        start, end, step = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    if not all(map(math.isfinite, (start, end, step))):
        raise RuntimeError(f"arange needs finite numbers, got {start}, {end} and {step}")
    if step == 0:
        raise RuntimeError("arange needs a step other than 0")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange from {start} to {end} never arrives with step {step}")
    if dtype is not None:
        _check_kind("arange", dtype, dtypes.COMPLEX)
    if dtype is None:
        kinds = {start.__class__, end.__class__, step.__class__}
        whole = all(issubclass(kind, (int, np.integer)) for kind in kinds)
        dtype = dtypes.int64 if whole else dtypes.get_default_dtype()
    amount = (end - start) / step
    if amount > _MOST:
        raise RuntimeError(f"arange from {start} to {end} by {step} has {amount:g} elements")
    count = math.ceil(amount)
    array = start + np.arange(count) * step
    return finished(np.asarray(array), dtype, device, requires_grad)


@creation
def range_(
    start: Number | Tensor = 0,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Floating numbers from start up to and including end; `arange` stops before the end.

    >>> import tapegrad, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     tapegrad.range(1, 3)
    tensor([1., 2., 3.])
    """
    if out is not None:
        return created_into(
            out, range_, start, end, step, dtype=dtype, requires_grad=requires_grad, counted=True
        )
    warnings.warn(
        "range() includes its end, unlike Python's; it is kept for old programs: use arange()",
        UserWarning,
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    first, last, by = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    if by == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(first) and math.isfinite(last)):
        raise RuntimeError(f"unsupported range: {first} -> {last}")
    if (last - first) * by < 0:
        raise RuntimeError("range: the step leads away from the end")
    count = math.floor((last - first) / by) + 1
    array = (first + np.arange(count) * by).astype(numpy_dtype(dtype))
    return finished(array, None, device, requires_grad)


@creation
def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """`steps` numbers evenly spaced from start to end: `linspace(0, 1, 3)` is [0, 0.5, 1]."""
    if out is not None:
        return created_into(
            out, linspace, start, end, steps, dtype=dtype, requires_grad=requires_grad, counted=True
        )
    start, end = _number(start), _number(end)
    _check_steps(steps)
    if dtype is not None:
        _check_kind("linspace", dtype)
    array = np.linspace(start, end, steps)
    return finished(_in_dtype(array, dtype), None, device, requires_grad)


def _check_kind(what: str, dtype: Any, *refused: int) -> None:
    wanted = dtypes.as_dtype(dtype)
    if wanted.category in (dtypes.BOOL, *refused):
        raise NotImplementedError(f"{what} has no {wanted} numbers; convert its result with .to()")


def _in_dtype(array: Any, dtype: Any) -> Any:
    """The array in the given dtype, or in the default one, complex for complex numbers."""
    kind = numpy_dtype(dtype)
    if not numeric.is_complex(array.dtype) or numeric.is_complex(kind):
        return array.astype(kind)
    if dtype is not None:
        raise RuntimeError(f"complex numbers from start to end need a complex dtype, not {kind}")
    return array.astype(dtypes.get_default_dtype().to_complex().numpy)


def _number(value: Number | Tensor) -> Any:
    """A Python number, also from a 0-d tensor."""
    if not isinstance(value, Tensor):
        return value
    if value._array.ndim:
        raise RuntimeError(f"expected a number or a 0-d tensor, got shape {tuple(value.shape)}")
    return value.item()


def _check_steps(steps: int) -> None:
    if steps < 0:
        raise RuntimeError(f"the number of steps must not be negative, got {steps}")


@creation
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """base**start to base**end in `steps` numbers: `logspace(0, 2, 3)` is [1, 10, 100]."""
    if out is not None:
        return created_into(
            out,
            logspace,
            start,
            end,
            steps,
            base,
            dtype=dtype,
            requires_grad=requires_grad,
            counted=True,
        )
    _check_steps(steps)
    start, end = _number(start), _number(end)
    array = np.logspace(start, end, steps, base=base)
    return finished(_in_dtype(array, dtype), None, device, requires_grad)


@creation
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere, in n rows and m (or n) columns."""
    if out is not None:
        return created_into(out, eye, n, m, dtype=dtype, requires_grad=requires_grad)
    valid_shape((n,) if m is None else (n, m))
    return finished(np.eye(n, m, dtype=numpy_dtype(dtype)), None, device, requires_grad)


@creation
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    **unused: Any,
) -> Tensor:
    """Row and column indices of a lower triangle, as a tensor of shape (2, count)."""
    as_size((row, col), unused)
    places = np.stack(np.tril_indices(row, offset, col))
    return finished(places, dtypes.int64 if dtype is None else dtype, device, False)


@creation
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    **unused: Any,
) -> Tensor:
    """Row and column indices of an upper triangle, as a tensor of shape (2, count)."""
    as_size((row, col), unused)
    places = np.stack(np.triu_indices(row, offset, col))
    return finished(places, dtypes.int64 if dtype is None else dtype, device, False)


@creation
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one tensor per dimension; "xy" exchanges the first two dimensions."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    if not tensors:
        raise RuntimeError("meshgrid needs at least one tensor")
    for x in tensors:
        if isinstance(x, Tensor) and x._array.ndim > 1:
            raise RuntimeError(
                f"meshgrid takes vectors and single elements, got {x.ndim} dimensions"
            )
    parts: list[Any] = list(tensors)
    if len({p._array.dtype for p in parts}) > 1:
        shown = " and ".join(sorted({str(p.dtype) for p in parts}))
        raise RuntimeError(f"meshgrid needs tensors of one dtype, got {shown}")
    swap = indexing == "xy" and len(parts) > 1
    if swap:
        parts[0], parts[1] = parts[1], parts[0]
    n = len(parts)
    shape = [p._array.size for p in parts]
    out = [
        p.reshape([-1 if k == i else 1 for k in range(n)]).expand(shape)
        for i, p in enumerate(parts)
    ]
    if swap:
        out[0], out[1] = out[1], out[0]
    return tuple(out)
