"""Checking gradients: `gradcheck` and `gradgradcheck` for any function, arguments for op samples.

`assert_close`, for results, is defined in `closeness.py`.

Numerical Jacobians are central differences in float64, whatever the dtype of the inputs; analytical
ones come from backward. Both have one row for each element of an input and one column for each
element of an output, where a complex number is two elements, its real and its imaginary part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .autograd import forward_ad
from .autograd.api import grad
from .core import dtypes
from .core.closeness import assert_close
from .core.device import as_device, to_device
from .core.tensor import Tensor, wrap
from .func.derivatives import _tracked as tracked
from .ops.table import In, Sample
from .transforms.vmap import vmap

__all__ = ["GradcheckError", "assert_close", "gradcheck", "gradgradcheck", "make_arguments"]

# -- gradcheck ---------------------------------------------------------------------------------


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` when gradients are wrong."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of `func` with central differences: |a - n| <= atol + rtol |n|.

    `inputs` is a tensor or a sequence of arguments; those that require gradients are checked.
    Inputs of float64 are changed in place for the differences, and back. If one of them is of lower
    precision, `func` gets float64 copies of all of them. Backward runs twice and may differ by
    `nondet_tol`. `check_forward_ad` compares tangents of forward mode too, and the checks of
    batches compare what `vmap` makes of several gradients or tangents with a loop. With
    `fast_mode`, one random direction stands for the whole Jacobian. `masked` is for sparse tensors,
    and changes nothing here. Returns True, or raises `GradcheckError` (False
    without `raise_exception`).

    >>> import tapegrad
    >>> x = tapegrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> tapegrad.testing.gradcheck(lambda x: (x**2).sum(), x)
    True
    """
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(arguments) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck has nothing to check: no input requires gradients; call requires_grad_()"
        )
    for i in checked:
        array = arguments[i]._array
        if any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True)):
            raise RuntimeError(
                f"input {i} has a dimension of stride 0: gradcheck changes single elements, so "
                "it needs inputs whose elements do not overlap; call .contiguous()"
            )
    if any(arguments[i].dtype.to_real().itemsize < 8 for i in checked):
        # The analytical side is rounded to the inputs' own dtype.
        worst = max(dtypes.finfo(arguments[i].dtype).eps for i in checked)
        atol, rtol = max(atol, 100 * worst), max(rtol, 100 * worst)
    if not check_backward_ad and not check_forward_ad:
        raise AssertionError("one of check_backward_ad and check_forward_ad must be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise ValueError("check_batched_forward_grad=True needs check_forward_ad=True")
    try:
        if check_backward_ad:
            _check_backward(func, arguments, checked, nondet_tol, check_grad_dtypes)
            if fast_mode:
                _check_direction(func, arguments, checked, eps, atol, rtol)
            else:
                _check_jacobians(func, arguments, checked, eps, atol, rtol)
            if check_undefined_grad:
                _check_undefined(func, arguments, checked)
            if check_batched_grad:
                _check_batched_grad(func, arguments, checked)
        if check_forward_ad:
            _check_forward(func, arguments, checked, eps, atol, rtol)
        if check_batched_forward_grad:
            _check_batched_forward(func, arguments, checked)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare second derivatives with central differences of the first ones, as `gradcheck` does.

    The function that is checked takes the inputs and the gradients of the outputs (random ones
    unless `grad_outputs` is given) and returns the gradients of the inputs.
    """
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    count = len(arguments)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        starts = [_random_like(y, rng) for y in _outputs(func, arguments)]
        if gen_non_contig_grad_outputs:
            starts = [_strided(start) for start in starts]
    else:
        starts = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    starts = [s if s.requires_grad else s.detach().requires_grad_() for s in starts]

    def first_derivative(*everything: Any) -> tuple[Tensor, ...]:
        gradients = everything[count:]
        values = [
            tracked(x) if isinstance(a, Tensor) and a.requires_grad and not x.requires_grad else x
            for x, a in zip(everything[:count], arguments, strict=True)
        ]
        wanted = [x for x in values if isinstance(x, Tensor) and x.requires_grad]
        outputs = [
            (y, g.to(y.dtype))
            for y, g in zip(_outputs(func, values), gradients, strict=True)
            if y.requires_grad
        ]
        found = grad(
            [y for y, _ in outputs],
            wanted,
            [g for _, g in outputs],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    if not check_rev_over_rev and not check_fwd_over_rev:
        raise ValueError("one of check_fwd_over_rev and check_rev_over_rev must be True")
    return gradcheck(
        first_derivative,
        (*arguments, *starts),
        check_backward_ad=check_rev_over_rev,
        check_forward_ad=check_fwd_over_rev,
        check_batched_grad=check_batched_grad,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
        masked=masked,
    )


def _outputs(func: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    """The floating and complex results of a call."""
    result = func(*arguments)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [y for y in results if isinstance(y, Tensor) and _is_checked(y)]


def _is_checked(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def _host(x: Tensor) -> Any:
    """The values as a float64 NumPy array of their own; complex ones as pairs, the last dim."""
    array = to_device(x._array, as_device("cpu"))
    if x.dtype.is_complex:
        return np.array(array, np.complex128)[..., None].view(np.float64)
    return np.array(array, np.float64)


def _like(array: Any, x: Tensor, dtype: dtypes.DType) -> Tensor:
    if x.dtype.is_complex:
        array = np.ascontiguousarray(array, np.float64).reshape(-1, 2).view(np.complex128)
    out = wrap(to_device(np.ascontiguousarray(array, dtype.numpy).reshape(x.shape), x.device))
    return out.requires_grad_(x.requires_grad)


def _random_like(x: Tensor, rng: np.random.Generator) -> Tensor:
    return _like(rng.standard_normal(_host(x).shape), x, x.dtype)


def _strided(x: Tensor) -> Tensor:
    """The same values with gaps between them in memory."""
    return wrap(np.repeat(x._array[..., None], 2, -1)[..., 0])


def _pulled(outputs: list[Tensor], inputs: list[Tensor], starts: list[Any]) -> list[Tensor]:
    """Gradients of the inputs, zeros where there is no path."""
    kept = [(y, g) for y, g in zip(outputs, starts, strict=True) if y.requires_grad]
    if not kept:
        return [wrap(np.zeros_like(x._array)) for x in inputs]
    found = grad(
        [y for y, _ in kept],
        inputs,
        [g for _, g in kept],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return [g for g in found if g is not None]


def _check_backward(
    func: Callable[..., Any],
    arguments: tuple[Any, ...],
    checked: list[int],
    nondet_tol: float,
    check_grad_dtypes: bool,
) -> None:
    """Two backward passes agree, and gradients have the shape and dtype of their inputs."""
    inputs = [arguments[i] for i in checked]
    outputs = _outputs(func, arguments)
    rng = np.random.default_rng(0)
    starts = [_random_like(y.detach(), rng) for y in outputs]
    first, second = (_pulled(outputs, inputs, starts) for _ in range(2))
    for i, x, a, b in zip(checked, inputs, first, second, strict=True):
        if a.shape != x.shape or (check_grad_dtypes and a.dtype is not x.dtype):
            raise GradcheckError(
                f"the gradient of input {i} is {a.dtype} of shape {tuple(a.shape)}, but the input "
                f"is {x.dtype} of shape {tuple(x.shape)}"
            )
        apart = np.abs(_host(a) - _host(b)).max(initial=0.0)
        if apart > nondet_tol:
            raise GradcheckError(
                f"Backward is not reentrant: two backward passes gave gradients of input {i} that "
                f"are {apart} apart, more than nondet_tol = {nondet_tol}"
            )


def _check_undefined(
    func: Callable[..., Any], arguments: tuple[Any, ...], checked: list[int]
) -> None:
    """Outputs that no gradient reaches count as zero: one output alone works."""
    inputs = [arguments[i] for i in checked]
    outputs = _outputs(func, arguments)
    for j, y in enumerate(outputs):
        zeros = wrap(y._array * 0)
        alone = _pulled([y], inputs, [zeros])
        if any(np.abs(_host(g)).max(initial=0.0) > 0 for g in alone):
            raise GradcheckError(
                "backward not multiplied by grad_output: a gradient of zeros for output "
                f"{j} alone gives gradients other than zero"
            )


def _differences(
    func: Callable[..., Any], arguments: tuple[Any, ...], i: int, shift: Any, eps: float
) -> list[Any]:
    """By how much each output changes if input `i` moves along `shift`: central differences."""
    above = _shifted(func, arguments, {i: eps * shift})
    below = _shifted(func, arguments, {i: -eps * shift})
    kinds = [[(tuple(y.shape), y.dtype) for y in outputs] for outputs in (above, below)]
    if kinds[0] != kinds[1]:
        raise AssertionError(
            "gradcheck needs outputs whose shapes and dtypes do not depend on the values of the "
            f"inputs; a small change of input {i} gave {kinds[0]} and {kinds[1]}"
        )
    return [(_host(a) - _host(b)) / (2 * eps) for a, b in zip(above, below, strict=True)]


def _shifted(
    func: Callable[..., Any], arguments: tuple[Any, ...], shifts: dict[int, Any]
) -> list[Tensor]:
    """The outputs of a call with float64 inputs moved by `shifts`."""
    tensors = [x for x in arguments if isinstance(x, Tensor) and x.requires_grad]
    if all(x.dtype in (dtypes.float64, dtypes.complex128) for x in tensors):
        return _moved_in_place(func, arguments, shifts)
    moved = list(arguments)
    for i, x in enumerate(arguments):
        if isinstance(x, Tensor) and _is_checked(x):
            wide = dtypes.complex128 if x.dtype.is_complex else dtypes.float64
            moved[i] = _like(_host(x) + shifts.get(i, 0.0), x, wide)
    return [y.detach().clone() for y in _outputs(func, moved)]


def _moved_in_place(
    func: Callable[..., Any], arguments: tuple[Any, ...], shifts: dict[int, Any]
) -> list[Tensor]:
    """The same, with the inputs themselves: a function may reach them by other ways too."""
    kept = {i: arguments[i]._array.copy() for i in shifts}
    try:
        for i, shift in shifts.items():
            x = arguments[i]
            x._array[...] += _like(shift, x, x.dtype)._array
        return [y.detach().clone() for y in _outputs(func, arguments)]
    finally:
        for i, values in kept.items():
            arguments[i]._array[...] = values


def _check_jacobians(
    func: Callable[..., Any],
    arguments: tuple[Any, ...],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    inputs = [arguments[i] for i in checked]
    outputs = _outputs(func, arguments)
    for j, y in enumerate(outputs):
        columns = _host(y.detach()).size
        analytical = [np.zeros((_host(x.detach()).size, columns)) for x in inputs]
        for k in range(columns):
            one = np.zeros(columns)
            one[k] = 1.0
            for jacobian, g in zip(
                analytical, _pulled([y], inputs, [_like(one, y.detach(), y.dtype)]), strict=True
            ):
                jacobian[:, k] = _host(g).reshape(-1)
        for i, x, jacobian in zip(checked, inputs, analytical, strict=True):
            numerical = np.zeros_like(jacobian)
            here = _host(x.detach())
            for k in range(here.size):
                shift = np.zeros(here.size)
                shift[k] = 1.0
                shift = shift.reshape(here.shape)
                numerical[k] = _differences(func, arguments, i, shift, eps)[j].reshape(-1)
            if not np.allclose(jacobian, numerical, rtol, atol, equal_nan=True):
                raise GradcheckError(
                    f"the gradient of output {j} by input {i} is not what differences give\n"
                    f"differences:\n{numerical}\ngradient:\n{jacobian}"
                )


def _tangents(
    func: Callable[..., Any], arguments: tuple[Any, ...], i: int, direction: Tensor
) -> list[Any]:
    """The tangents of the outputs if one input moves; None for those that have none."""
    with forward_ad.dual_level():
        given = [x.detach() if isinstance(x, Tensor) else x for x in arguments]
        given[i] = forward_ad.make_dual(given[i], direction)
        return [forward_ad.unpack_dual(y).tangent for y in _outputs(func, given)]


def _check_forward(
    func: Callable[..., Any],
    arguments: tuple[Any, ...],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    """Tangents of forward mode equal central differences."""
    for i in checked:
        x = arguments[i]
        here = _host(x.detach())
        for k in range(here.size):
            one = np.zeros(here.size)
            one[k] = 1.0
            found = _tangents(func, arguments, i, _like(one, x.detach(), x.dtype))
            differences = _differences(func, arguments, i, one.reshape(here.shape), eps)
            for j, (t, numerical) in enumerate(zip(found, differences, strict=True)):
                analytical = np.zeros_like(numerical) if t is None else _host(t.detach())
                if not np.allclose(analytical, numerical, rtol, atol, equal_nan=True):
                    raise GradcheckError(
                        f"forward mode: the derivative of output {j} by input {i} is not what "
                        f"differences give\ndifferences:\n{numerical}\nderivative:\n{analytical}"
                    )


def _same_rows(what: str, together: Any, rows: list[Any]) -> None:
    for k, row in enumerate(rows):
        for i, (got, expected) in enumerate(zip(together, row, strict=True)):
            if not np.allclose(_host(got.detach())[k], _host(expected.detach())):
                raise GradcheckError(
                    f"{what} with vmap differ from those one by one, at row {k} of number {i}"
                )


def _check_batched_grad(
    func: Callable[..., Any], arguments: tuple[Any, ...], checked: list[int]
) -> None:
    """Gradients of several starts at once equal those one by one."""
    inputs = [arguments[i] for i in checked]
    rng = np.random.default_rng(0)
    for y in _outputs(func, arguments):
        if y.requires_grad:
            starts = [_random_like(y.detach(), rng) for _ in range(2)]
            whole = wrap(np.stack([s._array for s in starts]))
            try:
                together = vmap(lambda g: _pulled([y], inputs, [g]))(whole)  # noqa: B023
            except RuntimeError as error:
                raise GradcheckError(f"gradients with vmap: {error}") from error
            _same_rows("gradients", together, [_pulled([y], inputs, [s]) for s in starts])


def _check_batched_forward(
    func: Callable[..., Any], arguments: tuple[Any, ...], checked: list[int]
) -> None:
    """Tangents of several directions at once equal those one by one."""
    rng = np.random.default_rng(0)
    for i in checked:
        x = arguments[i].detach()
        along = [_random_like(x, rng) for _ in range(2)]

        def tangents(t: Tensor, i: int = i) -> list[Tensor]:
            found = _tangents(func, arguments, i, t)
            zero = wrap(np.zeros(()))
            return [zero if f is None else f for f in found]

        try:
            together = vmap(tangents)(wrap(np.stack([t._array for t in along])))
        except RuntimeError as error:
            raise GradcheckError(f"tangents with vmap: {error}") from error
        _same_rows("tangents", together, [tangents(t) for t in along])


def _check_direction(
    func: Callable[..., Any],
    arguments: tuple[Any, ...],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    rng = np.random.default_rng(0)
    inputs = [arguments[i] for i in checked]
    outputs = _outputs(func, arguments)
    for j, y in enumerate(outputs):
        weights = rng.standard_normal(_host(y.detach()).shape)
        pulled = _pulled([y], inputs, [_like(weights, y.detach(), y.dtype)])
        for i, x, g in zip(checked, inputs, pulled, strict=True):
            direction = rng.standard_normal(_host(x.detach()).shape)
            direction /= max(float(np.linalg.norm(direction)), 1e-12)
            numerical = float((weights * _differences(func, arguments, i, direction, eps)[j]).sum())
            analytical = float((_host(g) * direction).sum())
            if not np.isclose(analytical, numerical, rtol, atol, equal_nan=True):
                raise GradcheckError(
                    f"the gradient of output {j} by input {i}, along a random direction, is not "
                    f"what differences give\ndifferences: {numerical}\ngradient: {analytical}"
                )


# -- samples of the op table -------------------------------------------------------------------


def make_arguments(
    sample: Sample,
    rng: np.random.Generator,
    dtype: dtypes.DType = dtypes.float64,
    requires_grad: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and keywords of a sample's call, with tensors where it has `In` and shapes.

    With `requires_grad`, the tensors that the sample lets be differentiated require gradients.
    """
    distinct = _DistinctValues(sample, rng)

    def build(value: Any) -> Any:
        if isinstance(value, In):
            array = np.asarray(_values(value, rng, distinct))
            if value.kind == "float":
                array = array.astype(dtype.numpy)
            elif value.kind == "complex":
                wide = dtype.to_real().itemsize == 8
                array = array.astype(np.complex128 if wide else np.complex64)
            tensor = wrap(array)
            return tensor.requires_grad_(requires_grad and value.grad)
        if isinstance(value, list):
            return [build(item) for item in value]
        return value

    args = tuple(build(In(*a) if _is_shape(a) else a) for a in sample.args)
    return args, {name: build(value) for name, value in sample.kwargs.items()}


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(n) is int for n in value)


def _values(spec: In, rng: np.random.Generator, distinct: _DistinctValues) -> Any:
    if spec.values is not None:
        kinds = {
            "float": np.float64, "complex": np.complex128, "int": np.int64, "int32": np.int32,
            "int8": np.int8, "bool": np.bool_,
        }  # fmt: skip
        return np.array(spec.values, kinds[spec.kind])
    if spec.kind == "int":
        return rng.integers(int(spec.low), int(spec.high), spec.shape)
    if spec.kind == "bool":
        return rng.integers(0, 2, spec.shape).astype(bool)
    if spec.kind == "complex":
        low, high = spec.low, spec.high
        return rng.uniform(low, high, spec.shape) + 1j * rng.uniform(low, high, spec.shape)
    if spec.distinct:
        return distinct.take(spec)
    return rng.uniform(spec.low, spec.high, spec.shape)


class _DistinctValues:
    """Values for all `distinct` inputs of a sample, apart from each other and from integers."""

    def __init__(self, sample: Sample, rng: np.random.Generator) -> None:
        flat = [*sample.args, *sample.kwargs.values()]
        flat += [item for value in flat if isinstance(value, list) for item in value]
        specs = [s for s in flat if isinstance(s, In) and s.distinct]
        count = sum(math.prod(s.shape) for s in specs)
        # The uneven start keeps a single value away from the middle, which is often 0.
        self.fractions = (rng.permutation(count) + 0.37) / max(count, 1)
        self.used = 0

    def take(self, spec: In) -> Any:
        count = math.prod(spec.shape)
        fractions = self.fractions[self.used : self.used + count]
        self.used += count
        return (spec.low + fractions * (spec.high - spec.low)).reshape(spec.shape)
