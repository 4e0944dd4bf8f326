"""Every operation of the table against PyTorch: values, dtypes, shapes and gradients."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest
import torch
from sweep import NAMES, call, differentiated, gradients, mapped, numbered_cases, some_cases
from torch_oracle import (
    arguments_for_torch,
    assert_all_same,
    assert_same,
    assert_same_gradients,
    leaves_of,
    to_torch,
    torch_function,
    torch_gradients,
)

import tapegrad
from tapegrad.core.dtypes import ALL
from tapegrad.ops import TABLE

COMPARED = [name for name in NAMES if TABLE[name].torch is not None and not TABLE[name].random]
each_op = pytest.mark.parametrize("name", COMPARED)


#: PyTorch's own values have this many times the usual error
LOOSE = {
    "digamma": 1e3,
    "lgamma": 1e3,
    "polygamma": 1e3,
    "special.polygamma": 1e3,
    "nn.functional.hardsigmoid": 3e3,
}

#: the same in half precision, where PyTorch rounds more than once
LOOSE_HALF = {"conv_transpose3d": 2.0, "nn.functional.grid_sample": 2.0}
LOOSE_HALF |= {"grid_sampler": 10.0, "grid_sampler_2d": 2.0}

#: samples whose gradient PyTorch cannot compute: the source is larger than the index
NO_GRADIENT = {("scatter", 1), ("scatter_add", 1)}
#: ... or it overwrites what its gradient needs
#: ... or it has none, and says nothing
_WITHOUT = (
    *("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0"),
    *("modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "spherical_bessel_j0"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
)
NO_GRADIENT |= {(f"special.{name}", number) for name in _WITHOUT for number in range(4)}
NO_GRADIENT |= {("_addmm_activation", 0), ("_addmm_activation", 1)}
NO_GRADIENT |= {("vander", 0), ("vander", 1), *[("linalg.cond", i) for i in range(2, 6)]}


@pytest.mark.sweep(keep=1 / 2)
@each_op
@pytest.mark.parametrize("dtype", [tapegrad.float32, tapegrad.float64], ids=["f32", "f64"])
def test_values_and_gradients(name: str, dtype: Any) -> None:
    function = torch_function(TABLE[name])
    scale = LOOSE.get(name, 1.0)
    for number, op, sample, arguments in numbered_cases(name, dtype):
        theirs = arguments_for_torch(arguments)
        got, expected = call(op, arguments), function(*theirs[0], **theirs[1])
        assert_all_same(got, expected, f"{name}{sample}", scale)
        if op.differentiable and (name, number) not in NO_GRADIENT:
            assert_same_gradients(
                gradients(got, differentiated(arguments)),
                torch_gradients(expected, leaves_of(theirs)),
                f"{name}{sample}",
                scale,
            )


#: PyTorch refuses these; we give the obvious result
PERMISSIVE = {(name, tapegrad.bool) for name in ("argmax", "argmin", "topk", "sub", "rsub")}
LAPACK = ("det", "slogdet", "logdet", "matrix_power", "linalg.det", "linalg.slogdet", "linalg.inv")
LAPACK += ("linalg.matrix_power", "linalg.solve", "linalg.cholesky")
HALF = (tapegrad.float16, tapegrad.bfloat16)
PERMISSIVE |= {(name, dtype) for name in ("nanquantile", "quantile", *LAPACK) for dtype in HALF}

#: PyTorch squares a window of half precision in that precision, and divides by the sum of it
ROUNDED = {"istft"}

#: a dtype for every float tensor of the samples, instead of float32
#: (tests/oracle/test_complex_torch.py has complex numbers)
OTHERS = [d for d in ALL if d not in (tapegrad.float32, tapegrad.float64) and not d.is_complex]


@pytest.mark.sweep
@each_op
@pytest.mark.parametrize("dtype", OTHERS, ids=[d.name for d in OTHERS])
def test_other_dtypes(name: str, dtype: Any) -> None:
    """Where PyTorch accepts a dtype, so do we, with the same result; where it refuses, we do."""
    function = torch_function(TABLE[name])
    for op, sample, arguments in some_cases(name, tapegrad.float32, requires_grad=False):
        ours = mapped(lambda x: as_dtype(x, dtype), arguments)
        theirs = arguments_for_torch(ours)
        what = f"{name}{sample} of {dtype}"
        try:
            expected = function(*theirs[0], **theirs[1])
        except NotImplementedError:  # no kernel there; we may have one
            continue
        except (RuntimeError, TypeError, IndexError, ValueError, AssertionError) as error:
            if (name, dtype) not in PERMISSIVE:
                refuses(
                    lambda op=op, ours=ours: call(op, ours),
                    f"{what} gives {{}}, PyTorch raises {error}",
                )
            continue
        if getattr(expected, "dtype", None) is torch.complex32 or (
            name in ROUNDED and dtype in HALF
        ):
            continue
        got = call(op, ours)
        # Which of several equal elements is found is left open.
        if name in ("topk", "kthvalue") or (
            name in ("median", "nanmedian") and isinstance(got, tuple)
        ):
            got, expected = got.values, expected.values
        assert_all_same(got, expected, what, LOOSE_HALF.get(name, 1.0))


def refuses(function: Any, message: str) -> None:
    """`function` raises one of the errors that bad input gives."""
    try:
        got = function()
    except (RuntimeError, TypeError, IndexError, ValueError, AssertionError):
        return
    pytest.fail(message.format(got))


def as_dtype(x: Any, dtype: Any) -> Any:
    """Floats as another dtype; as integers, small ones."""
    if not x.dtype.is_floating_point:
        return x
    if dtype.is_floating_point:
        return x.to(dtype)
    whole = np.nan_to_num(x._array, posinf=5, neginf=-5).round()
    return tapegrad.tensor(whole if dtype.is_signed else np.abs(whole)).to(dtype)


# -- promotion ---------------------------------------------------------------------------------

BINARY = [
    *("add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "atan2", "maximum"),
    *("eq", "lt", "ge", "logical_and", "bitwise_and", "bitwise_or", "fmax", "copysign", "xlogy"),
]
#: PyTorch computes float16 and complex numbers in complex32, of which there are no tensors here
PAIRS = [
    (a, b)
    for a, b in itertools.product(ALL, ALL)
    if not (tapegrad.float16 in (a, b) and (a.is_complex or b.is_complex))
]
SHAPES = [((2,), (2,)), ((2,), ()), ((), (2,)), ((), ()), ((0,), (0,))]


def operand(dtype: Any, shape: tuple[int, ...], value: int) -> Any:
    return tapegrad.full(shape, value).to(dtype)


def compare(ours: Any, theirs: Any, what: str, permissive: bool = False) -> None:
    """Both calls raise, or both give the same."""
    try:
        expected = theirs()
    except NotImplementedError:
        return
    except (RuntimeError, TypeError) as error:
        if not permissive:
            refuses(ours, f"{what} gives {{}}, PyTorch raises {error}")
        return
    assert_all_same(ours(), expected, what)


@pytest.mark.parametrize("name", BINARY)
def test_promotion_of_tensors(name: str) -> None:
    ours, theirs = getattr(tapegrad, name), getattr(torch, name)
    for (a, b), (s, t) in itertools.product(PAIRS, SHAPES):
        x, y = operand(a, s, 3), operand(b, t, 2)
        compare(
            lambda x=x, y=y: ours(x, y),
            lambda x=x, y=y: theirs(to_torch(x), to_torch(y)),
            f"{name}({a}{s}, {b}{t})",
            permissive=name == "sub" and tapegrad.bool in (a, b),
        )


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [True, 2, 2.5, -1, 0.0, 0])
def test_promotion_of_numbers(name: str, number: Any) -> None:
    ours, theirs = getattr(tapegrad.Tensor, name), getattr(torch.Tensor, name)
    if name in ("atan2", "maximum", "fmax", "logical_and"):
        pytest.skip("takes tensors only in PyTorch")
    for dtype, shape in itertools.product(ALL, [(2,), ()]):
        x = operand(dtype, shape, 3)
        compare(
            lambda x=x: ours(x, number),
            lambda x=x: theirs(to_torch(x), number),
            f"{name}({dtype}{shape}, {number})",
            permissive=name == "sub" and (dtype is tapegrad.bool or number is True),
        )


SYMBOLS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "==": operator.eq,
    "<": operator.lt, "&": operator.and_, "^": operator.xor, "<<": operator.lshift,
}  # fmt: skip


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_operators(symbol: str) -> None:
    """Numbers on either side, and every dtype."""
    function = SYMBOLS[symbol]
    for dtype, shape, number in itertools.product(ALL, [(2,), ()], [True, 2, 2.5]):
        x = operand(dtype, shape, 3)
        permissive = symbol == "-" and (dtype is tapegrad.bool or number is True)
        for flipped in (False, True):
            compare(
                lambda x=x, n=number, f=flipped: function(n, x) if f else function(x, n),
                lambda x=x, n=number, f=flipped: (
                    function(n, to_torch(x)) if f else function(to_torch(x), n)
                ),
                f"{dtype}{shape} {symbol} {number}, flipped={flipped}",
                permissive,
            )


def test_promotion_of_where() -> None:
    condition = tapegrad.tensor([True, False])
    for (a, b), (s, t) in itertools.product(PAIRS, SHAPES[:4]):
        x, y = operand(a, s, 3), operand(b, t, 2)
        compare(
            lambda x=x, y=y: tapegrad.where(condition, x, y),
            lambda x=x, y=y: torch.where(to_torch(condition), to_torch(x), to_torch(y)),
            f"where({a}{s}, {b}{t})",
        )
    for a, number in itertools.product(ALL, [True, 2, 2.5]):
        x = operand(a, (2,), 3)
        compare(
            lambda x=x, n=number: tapegrad.where(condition, x, n),
            lambda x=x, n=number: torch.where(to_torch(condition), to_torch(x), n),
            f"where({a}, {number})",
        )


# -- in place ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "pow_", "remainder_"])
def test_in_place_dtypes(name: str) -> None:
    for (a, b), (s, t) in itertools.product(PAIRS, [((2,), (2,)), ((2,), ()), ((), ())]):
        x, y = operand(a, s, 3), operand(b, t, 2)
        compare(
            lambda x=x, y=y: getattr(x.clone(), name)(y),
            lambda x=x, y=y: getattr(to_torch(x), name)(to_torch(y)),
            f"{a}{s}.{name}({b}{t})",
            permissive=name == "sub_" and tapegrad.bool in (a, b),
        )
    for a, number in itertools.product(ALL, [True, 2, 2.5]):
        x = operand(a, (2,), 3)
        compare(
            lambda x=x, n=number: getattr(x.clone(), name)(n),
            lambda x=x, n=number: getattr(to_torch(x), name)(n),
            f"{a}.{name}({number})",
            permissive=name == "sub_" and (a is tapegrad.bool or number is True),
        )


CHANGING = [
    name
    for name in COMPARED
    if any(m.endswith("_") for m in TABLE[name].methods) and hasattr(torch.Tensor, name + "_")
]


@pytest.mark.parametrize("name", CHANGING)
def test_in_place_values_and_gradients(name: str) -> None:
    for number, _, sample, arguments in numbered_cases(name):
        if not isinstance(arguments[0][0], tapegrad.Tensor):
            continue
        theirs = arguments_for_torch(arguments)
        what = f"{name}_{sample}"
        target, wanted = arguments[0][0].clone(), theirs[0][0].clone()
        try:
            expected = getattr(wanted, name + "_")(*theirs[0][1:], **theirs[1])
        except NotImplementedError:  # no derivative there
            continue
        except RuntimeError:
            with pytest.raises(RuntimeError):
                getattr(target, name + "_")(*arguments[0][1:], **arguments[1])
            continue
        got = getattr(target, name + "_")(*arguments[0][1:], **arguments[1])
        assert_same(got, expected, what)
        without = (name, number) in NO_GRADIENT or name in ("acosh", "asinh", "atanh")
        if TABLE[name].differentiable and not without:
            assert_same_gradients(
                gradients(got, differentiated(arguments)),
                torch_gradients(expected, leaves_of(theirs)),
                what,
                LOOSE.get(name, 1.0),
            )
