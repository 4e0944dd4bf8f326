"""Zeros, ties, NaN and infinities: compiled functions give what eager ones give, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import recorded, replayed
from sweep import NAMES, differentiated, generator, some_cases, tensors

import tapegrad as tg
from tapegrad.core.tensor import Tensor
from tapegrad.ops import TABLE
from tapegrad.replay import CaptureError
from tapegrad.replay.use.undo import Undo
from tapegrad.testing import make_arguments

pytest.importorskip("llvmlite")


def some(value: float) -> Callable[..., Any]:
    return lambda a, rng: np.where(rng.random(a.shape) < 0.3, value, a)


#: what floating arguments are filled with
FILLINGS: dict[str, Callable[..., Any]] = {
    "zeros": lambda a, rng: np.zeros_like(a),
    "ones": lambda a, rng: np.ones_like(a),
    "sixes": lambda a, rng: np.full_like(a, 6),
    "some NaN": some(np.nan),
    "some inf": some(np.inf),
    "some -inf": some(-np.inf),
    "mixed": lambda a, rng: rng.choice([0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 2.5], a.shape),
}


def values_and_gradients(op: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Results of an operation, then the gradients of their sums."""
    outs = tensors(op.function(*args, **kwargs))
    inputs = differentiated((args, kwargs))
    graded = [o for o in outs if o.requires_grad]
    values: list[Any] = [o.detach() for o in outs]
    if graded and inputs:
        starts = [tg.ones_like(o) for o in graded]
        values += tg.autograd.grad(graded, inputs, starts, allow_unused=True)
    return values


def fill(arguments: Any, filling: Callable[..., Any]) -> None:
    rng = np.random.default_rng(3)
    for t in tensors([*arguments[0], *arguments[1].values()]):
        if t.dtype is tg.float32:
            t._array[...] = filling(t._array, rng)


def copies(arguments: Any) -> Any:
    def copied(x: Any) -> Any:
        if isinstance(x, list):
            return [copied(item) for item in x]
        if not isinstance(x, Tensor):
            return x
        return tg.tensor(x.detach().numpy().copy()).requires_grad_(x.requires_grad)

    return [copied(x) for x in arguments[0]], {k: copied(v) for k, v in arguments[1].items()}


def compare(fast: Any, op: Any, arguments: Any, what: str) -> None:
    args, kwargs = copies(arguments)
    tg.manual_seed(0)
    try:
        expected = values_and_gradients(op, *args, **kwargs)
    except (RuntimeError, ValueError, IndexError):
        return  # arguments that eager mode looks at and refuses
    args, kwargs = copies(arguments)
    tg.manual_seed(0)
    found = fast(*args, **kwargs)
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        assert (a is None) == (b is None), f"{what}, {i}"
        if a is not None:
            np.testing.assert_allclose(
                b.numpy(), a.numpy(), rtol=1e-3, atol=1e-3, err_msg=f"{what}, {i}"
            )


@pytest.mark.parametrize("name", NAMES)
def test_recordings_of_every_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording differentiates composites as eager mode does, not part by part."""
    monkeypatch.setattr(Undo, "back", recorded)
    for op, sample, arguments in some_cases(name, tg.float32):
        for what, filling in FILLINGS.items():
            fill(arguments, filling)
            # A new function each time, so that every call is a recording.
            fast = tg.compile(
                lambda *args, op=op, **kwargs: values_and_gradients(op, *args, **kwargs),
                fullgraph=True,
            )
            try:
                compare(fast, op, arguments, f"{sample} of {what}")
            except CaptureError:
                return


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", NAMES)
def test_replays_of_the_first_sample(name: str) -> None:
    op = TABLE[name]
    assert op.samples is not None
    sample = op.samples()[0]
    fast = tg.compile(
        lambda *args, **kwargs: values_and_gradients(op, *args, **kwargs), fullgraph=True
    )
    try:
        for i in range(2):
            args, kwargs = make_arguments(sample, generator(name, i), tg.float32, True)
            fast(*args, **kwargs)
    except CaptureError:
        return
    for what, filling in FILLINGS.items():
        arguments = make_arguments(sample, generator(name, 0), tg.float32, True)
        fill(arguments, filling)
        compare(fast, op, arguments, what)
    assert replayed(fast)


INTEGERS = [tg.uint8, tg.int8, tg.int16, tg.int32, tg.int64]

OF_INTEGERS: dict[str, Any] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": lambda x, y: tg.fmod(x, y),
    "trunc": lambda x, y: tg.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: tg.div(x, y, rounding_mode="floor"),
    "/": lambda x, y: x / y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "**": lambda x, y: x**y,
}


def _pairs(dtype: Any) -> tuple[Any, Any]:
    """All pairs of integers at which arithmetic may differ, and so many that vectors are used."""
    limits = np.iinfo(dtype.numpy)
    near = [*range(-9, 10), 15, 16, 17, 31, 32, 33, 63, 64, 65, -31, -32, -64]
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    numbers = np.array([n for n in (*near, *ends) if limits.min <= n <= limits.max], dtype.numpy)
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))
    return np.tile(x, 40), np.tile(y, 40)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integer_arithmetic_equals_eager(name: str, dtype: Any) -> None:
    function = OF_INTEGERS[name]
    compiled = tg.compile(function)
    x, y = _pairs(dtype)
    divides = name in ("//", "%", "fmod", "trunc", "floor")
    kept = y != 0 if divides else y == y
    for _ in range(2):
        compiled(*(tg.ones(int(kept.sum())).to(dtype) for _ in range(2)))
    small = function(tg.tensor(x[kept][:3000]), tg.tensor(y[kept][:3000])).numpy()
    for run in (function, compiled):
        got = run(tg.tensor(x[kept]), tg.tensor(y[kept])).numpy()
        assert got.dtype == small.dtype
        np.testing.assert_array_equal(got[:3000], small)
    if divides:
        zeros = y[kept].copy()
        zeros[-1] = 0
        for run in (function, compiled):
            with pytest.raises(RuntimeError, match="integer division by zero"):
                run(tg.tensor(x[kept]), tg.tensor(zeros))


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float32, tg.float64], ids=str)
@pytest.mark.parametrize("to", [*INTEGERS, tg.bool], ids=str)
def test_floats_become_integers_as_in_eager(dtype: Any, to: Any) -> None:
    powers = [2.0**n + d for n in (7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for d in (-1, 0, 1)]
    numbers = [0.0, -0.0, 0.5, 0.99, 1.5, 1.9, 2.5, 1e19, 1e30, np.inf, np.nan, *powers]
    with np.errstate(over="ignore"):
        array = np.array([*numbers, *(-n for n in numbers)]).astype(dtype.numpy)
    expected = tg.tensor(array).to(to).numpy()
    large = np.tile(array, 1000)
    compiled = tg.compile(lambda x: x.to(to))
    for _ in range(2):
        compiled(tg.ones(large.size, dtype=dtype))
    for run in (lambda x: x.to(to), compiled):
        np.testing.assert_array_equal(run(tg.tensor(large)).numpy(), np.tile(expected, 1000))
