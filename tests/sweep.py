"""Helpers of the sweeps over the op table: calls, flat results, copies in other layouts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from thinning import some

import tapegrad
import tapegrad.distributed.functional  # adds collectives to the table
import tapegrad.ops.draws.angles
import tapegrad.ops.draws.quantiles  # defines primitives that are otherwise loaded at first use
from tapegrad import Tensor
from tapegrad.autograd.api import grad
from tapegrad.core import numeric
from tapegrad.core.tensor import wrap
from tapegrad.ops import TABLE
from tapegrad.ops.table import Op, Sample
from tapegrad.testing import make_arguments

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

NAMES = sorted(TABLE)


def generator(name: str, number: int) -> np.random.Generator:
    """A generator of values, seeded by the op and the sample's number."""
    return np.random.default_rng([zlib.crc32(name.encode()), number])


def samples_of(name: str) -> list[tuple[int, Sample]]:
    """All samples of an op with their numbers."""
    samples = TABLE[name].samples
    assert samples is not None
    return list(enumerate(samples()))


def cases(
    name: str, dtype: Any = tapegrad.float64, requires_grad: bool = True
) -> Iterator[tuple[Op, Sample, Arguments]]:
    """Each sample of an op with arguments made for it."""
    op = TABLE[name]
    for number, sample in samples_of(name):
        yield op, sample, make_arguments(sample, generator(name, number), dtype, requires_grad)


def numbered_cases(
    name: str, dtype: Any = tapegrad.float64, requires_grad: bool = True
) -> Iterator[tuple[int, Op, Sample, Arguments]]:
    """The samples of an op (some of them in a thinned run) with their numbers and arguments."""
    op = TABLE[name]
    for number, sample in some(samples_of(name)):
        arguments = make_arguments(sample, generator(name, number), dtype, requires_grad)
        yield number, op, sample, arguments


def some_cases(
    name: str, dtype: Any = tapegrad.float64, requires_grad: bool = True
) -> Iterator[tuple[Op, Sample, Arguments]]:
    """The same as `cases`, but only some in a thinned run; most sweeps use it."""
    for _, *case in numbered_cases(name, dtype, requires_grad):
        yield tuple(case)


def call(op: Op, arguments: Arguments) -> Any:
    """Run the op; random ops are seeded."""
    if op.random:
        tapegrad.manual_seed(0)
    return op.function(*arguments[0], **arguments[1])


def flat(value: Any) -> list[Any]:
    """The leaves of nested tuples and lists, in order."""
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def tensors(value: Any) -> list[Tensor]:
    return [x for x in flat(value) if isinstance(x, Tensor)]


def differentiated(arguments: Arguments) -> list[Tensor]:
    """The tensor arguments that require gradients, in order."""
    return [x for x in tensors([*arguments[0], *arguments[1].values()]) if x.requires_grad]


def mapped(function: Callable[[Tensor], Tensor], arguments: Arguments) -> Arguments:
    """The arguments with each tensor replaced by `function(tensor)`."""

    def apply(value: Any) -> Any:
        if isinstance(value, list):
            return [apply(item) for item in value]
        return function(value) if isinstance(value, Tensor) else value

    return tuple(map(apply, arguments[0])), {k: apply(v) for k, v in arguments[1].items()}


def with_array(x: Tensor, array: Any) -> Tensor:
    """A leaf like `x` around another array."""
    return wrap(array).requires_grad_(x.requires_grad)


def weighted_sum(result: Any, seed: int = 0) -> Tensor | None:
    """A weighted sum of all differentiable results, each element with its own weight."""
    rng = np.random.default_rng(seed)
    total = None
    for y in tensors(result):
        weights = rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape)
        if y.dtype.is_complex:
            weights = weights + 1j * rng.uniform(0.5, 1.5, y.shape)
        if numeric.is_differentiable(y._array.dtype) and y.requires_grad:
            term = (y * wrap(np.asarray(weights, y._array.dtype))).sum().real
            total = term if total is None else total + term
    return total


def gradients(
    result: Any, inputs: list[Tensor], create_graph: bool = False, seed: int = 0
) -> list[Tensor | None]:
    """Gradients of the weighted sum of the results."""
    loss = weighted_sum(result, seed)
    if loss is None or not inputs:
        return [None] * len(inputs)
    return list(grad(loss, inputs, create_graph=create_graph, allow_unused=True))


def array_of(x: Any) -> Any:
    """A result as a NumPy array."""
    return x._array if isinstance(x, Tensor) else np.asarray(x)


def as_real(array: Any) -> Any:
    """A NumPy array as float64; complex numbers become pairs in an extra last dimension."""
    if array.dtype.kind == "c":
        return np.array(array, np.complex128)[..., None].view(np.float64)
    return array.astype(np.float64)


def assert_close(got: Any, expected: Any, rtol: float, atol: float, what: str) -> None:
    """Assert equal shapes and close values; NaN equals NaN."""
    a, b = array_of(got), array_of(expected)
    assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
    if a.dtype.kind in "fV":
        a = a.astype(np.float64)
        b = b if b.dtype.kind == "c" else b.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)


def strided(x: Tensor) -> Tensor:
    """The same values, with gaps between them in memory."""
    return with_array(x, np.repeat(x._array[..., None], 2, -1)[..., 0])


def transposed(x: Tensor) -> Tensor:
    """The same values in column-major order."""
    return with_array(x, np.array(x._array, order="F"))
