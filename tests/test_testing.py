"""The gradient checker itself: it accepts what is right and names what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad
from tapegrad import Function
from tapegrad.ops.table import In, Sample
from tapegrad.testing import GradcheckError, gradcheck, gradgradcheck, make_arguments


def leaf(*shape: int, dtype: Any = tapegrad.float64) -> Any:
    rng = np.random.default_rng(0)
    return tapegrad.tensor(rng.uniform(0.5, 1.5, shape), dtype=dtype, requires_grad=True)


def half_gradient(x: Any) -> Any:
    """x^2 with a gradient that misses a factor."""
    return x * x.detach()


def test_right_gradients_pass() -> None:
    x, y = leaf(2, 3), leaf(3)
    assert gradcheck(lambda x, y: (x * y).exp(), (x, y))
    assert gradcheck(lambda x, y: ((x * y).sum(0), x / y), (x, y), fast_mode=True)
    assert gradgradcheck(lambda x, y: (x * y).sin(), (x, y))
    assert gradgradcheck(lambda x: x**3, x, gen_non_contig_grad_outputs=True, fast_mode=True)
    assert gradgradcheck(lambda x: x.tanh(), x, tapegrad.ones_like(x))


def test_one_float32_tensor() -> None:
    x = tapegrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert gradcheck(lambda x: (x**2).sum(), x, eps=1e-6)
    assert gradcheck(lambda x: x.exp(), leaf(3, dtype=tapegrad.float16))


@pytest.mark.parametrize("fast_mode", [False, True])
def test_wrong_gradients_are_shown(fast_mode: bool) -> None:
    x, y = leaf(2), leaf(2)
    with pytest.raises(GradcheckError, match=r"output 0 by input 1[\s\S]*differences"):
        gradcheck(lambda x, y: x + half_gradient(y), (x, y), fast_mode=fast_mode)
    assert not gradcheck(half_gradient, x, raise_exception=False, fast_mode=fast_mode)


def test_wrong_second_derivatives_are_found() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x.detach()

    assert gradcheck(Cube.apply, leaf(2))
    with pytest.raises(GradcheckError, match="is not what differences give"):
        gradgradcheck(Cube.apply, leaf(2))


def test_nothing_to_check_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to check"):
        gradcheck(lambda x: x, tapegrad.ones(2))


def test_gradients_that_change_are_found() -> None:
    calls = iter(range(100))

    class Unsteady(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g + 1e-9 * next(calls)

    with pytest.raises(GradcheckError, match="nondet_tol"):
        gradcheck(Unsteady.apply, leaf(2), check_undefined_grad=False)
    assert gradcheck(Unsteady.apply, leaf(2), nondet_tol=1e-6, check_undefined_grad=False)


def test_arguments_of_samples() -> None:
    rng = np.random.default_rng(0)
    sample = Sample((2, 3), [4, 5], In(3, kind="int", low=0, high=2), dims=(0, 1), other=In(2))
    args, kwargs = make_arguments(sample, rng, tapegrad.float32, requires_grad=True)
    assert args[0].shape == (2, 3)
    assert args[0].dtype is tapegrad.float32
    assert args[0].requires_grad
    assert args[1] == [4, 5]
    assert args[2].dtype is tapegrad.int64
    assert kwargs["dims"] == (0, 1)
    assert kwargs["other"].shape == (2,)


def test_distinct_values_are_apart() -> None:
    rng = np.random.default_rng(0)
    sample = Sample(In(3, 4, distinct=True), In(4, distinct=True))
    (x, y), _ = make_arguments(sample, rng)
    values = np.sort(np.concatenate([x.numpy().reshape(-1), y.numpy()]))
    assert np.diff(values).min() > 0.2
    assert np.abs(values - values.round()).min() > 0.01


def test_assert_close_names_the_first_difference() -> None:
    close, t = tapegrad.testing.assert_close, tapegrad.tensor
    close({"a": [t([1.0, 2.0]), 3]}, {"a": [t([1.0, 2.0 + 1e-6]), 3]})
    close(t([float("nan"), float("inf")]), t([float("nan"), float("inf")]), equal_nan=True)
    close(t([1, 2]), t([1.0, 2.0]), check_dtype=False)
    for given, message in (
        (
            ({"a": [1, 2.0]}, {"a": [1, 2.5]}),
            r"(?s)Expected 2.5 but got 2.0.*for item \['a'\]\[1\]",
        ),
        ((t([[1.0, 5.0]]), t([[1.0, 2.0]])), r"(?s)1 / 2 .*3.0 at index \(0, 1\)"),
        ((t([1.0]), t([float("nan")])), "1 / 1"),
        ((t([float("inf")]), t([-float("inf")])), "1 / 1"),
        ((t([2**62 + 1]), t([2**62])), r"1 at index \(0,\)"),
        ((tapegrad.ones(2), tapegrad.ones(2, 1)), "shape"),
        ((tapegrad.ones(2), tapegrad.ones(2).double()), "dtype"),
        (({"a": 1}, {"b": 1}), "keys"),
        (([1], [1, 2]), "sequence"),
    ):
        with pytest.raises(AssertionError, match=message):
            close(*given)
    with pytest.raises(AssertionError, match=r"^mine$"):
        close(1, 2, msg="mine")
    with pytest.raises(AssertionError, match=r"(?s)^loss: Scalars are not equal.*got 1"):
        close(1, 2, msg=lambda m: f"loss: {m}")
    with pytest.raises(ValueError, match="give both or none"):
        close(1.0, 1.0, rtol=1e-3)
    with pytest.raises(TypeError, match="cannot compare a <class 'str'>"):
        close("a", "b")


def test_gradcheck_needs_a_mode_and_outputs_of_one_shape():
    x = tapegrad.ones(1, dtype=tapegrad.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="one of check_backward_ad"):
        gradcheck(lambda x: x, x, check_backward_ad=False)
    for f in (
        lambda x: tapegrad.cat([x, x]) if bool((x >= 1).all()) else x,
        lambda x: x.float() if bool((x >= 1).all()) else x,
    ):
        for fast in (False, True):
            with pytest.raises(AssertionError, match="do not depend on the values"):
                gradcheck(f, x, fast_mode=fast)
