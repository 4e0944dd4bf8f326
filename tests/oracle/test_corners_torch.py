"""Corner cases against PyTorch: infinities, NaN, zeros, ties, bounds, empty and wrong input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sweep import gradients
from torch_oracle import assert_all_same, assert_same_gradients, to_torch, torch_gradients

import tapegrad

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.5,
    3.0,
    1e30,
    -1e30,
    1e-30,
    math.inf,
    -math.inf,
    math.nan,
]

UNARY = [
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad"),
    *("digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite"),
    *("isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg"),
    *("positive", "rad2deg", "reciprocal", "relu", "round", "rsqrt", "sgn", "sigmoid", "sign"),
    *("sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "logical_not"),
]
BINARY = [
    *("add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "atan2", "maximum"),
    *("minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "hypot", "logaddexp"),
    *("logaddexp2", "xlogy", "copysign", "logical_and", "heaviside"),
]


def check(ours: Any, theirs: Any, inputs: list[Any], what: str) -> None:
    """Run both on leaves with the same values; results and gradients agree."""
    mine = [tapegrad.tensor(x, dtype=tapegrad.float64, requires_grad=True) for x in inputs]
    other = [to_torch(x) for x in mine]
    got, expected = ours(*mine), theirs(*other)
    scale = 1e3 if "gamma" in what else 1.0  # PyTorch's own error
    assert_all_same(got, expected, what, scale)
    if not any(t.requires_grad for t in _tensors(expected)):
        return
    try:
        wanted = torch_gradients(expected, other)
    except RuntimeError as error:
        if "not implemented" in str(error):
            return
        raise
    assert_same_gradients(gradients(got, mine), wanted, what, scale)


def _tensors(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in _tensors(v)]


#: PyTorch gives a large number at a pole, and ignores the sign of a zero
ODD = {
    *("digamma(-1.0)", "digamma(-1e+30)", "digamma(-inf)", "logit(-0.0)"),
    *("-0.0 ** 0.5", "-inf ** 0.5"),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_at_special_values(name: str) -> None:
    for value in SPECIAL:
        if f"{name}({value})" not in ODD:
            check(getattr(tapegrad, name), getattr(torch, name), [[value]], f"{name}({value})")


@pytest.mark.parametrize("name", BINARY)
def test_binary_at_special_values(name: str) -> None:
    for a in SPECIAL:
        if name == "copysign" and not math.isfinite(a):
            continue  # the gradient is a sign; PyTorch divides and gets NaN
        for b in SPECIAL:
            check(getattr(tapegrad, name), getattr(torch, name), [[a], [b]], f"{name}({a}, {b})")


NUMBERS = [0, 1, 2, 3, -1, 0.0, 0.5, 1.0, 2.0, -2.5, math.inf, math.nan]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_powers_with_numbers(number: float) -> None:
    for value in SPECIAL:
        what = f"{value} ** {number}"
        if what not in ODD:
            check(lambda x: x**number, lambda x: x**number, [[value]], what)
        check(lambda x: number**x, lambda x: number**x, [[value]], f"{number} ** {value}")


NAN, INF = math.nan, math.inf
TIES = [[1.0, 3.0, 3.0, 2.0], [0.0, -0.0, 0.0, -1.0], [5.0, 5.0, 5.0, 5.0]]
ZEROS = [[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 3.0, 1.0], [1.0, 2.0, 3.0, 0.0]]
ODDS = [[1.0, NAN, 2.0, INF], [-INF, -INF, -INF, -INF], [INF, INF, 1.0, -INF]]

#: calls with a module `t` (tapegrad or torch) and tensors
CALLS: dict[str, tuple[Any, list[Any]]] = {
    "clamp at bounds": (lambda t, x: t.clamp(x, -1.0, 1.0), [[-1.0, 1.0, 0.5, 2.0, NAN, INF]]),
    "clamp, low above high": (lambda t, x: t.clamp(x, 1.0, -1.0), [[-2.0, 0.0, 2.0]]),
    "clamp by tensors": (
        lambda t, x, a, b: t.clamp(x, a, b),
        [[-1.0, 1.0, 0.5, 2.0], [-1.0, 0.0, 0.6, 0.0], [1.0, 1.0, 1.0, 1.0]],
    ),
    "clamp_min by a tensor": (lambda t, x, a: t.clamp_min(x, a), [[1.0, 2.0], [1.0, 3.0]]),
    "clamp by NaN": (
        lambda t, x, a, b: t.clamp(x, a, b),
        [[1.0, 2.0, NAN, 3.0, 0.0], [NAN, 1.0, 0.0, 1.0, 1.0], [2.0, NAN, 1.0, 2.0, 0.5]],
    ),
    "clamp by the number NaN": (lambda t, x: t.clamp(x, NAN, 1.0), [[1.0, NAN, 3.0]]),
    "clamp_min by NaN": (lambda t, x, a: t.clamp_min(x, a), [[1.0, NAN, 3.0], [NAN, 1.0, 4.0]]),
    "clamp_max by NaN": (lambda t, x, a: t.clamp_max(x, a), [[1.0, NAN, 3.0], [NAN, 1.0, 2.0]]),
    "max of all with NaN": (lambda t, x: t.max(x), [ODDS]),
    "min of all with NaN": (lambda t, x: t.min(x), [[1.0, NAN, 3.0, NAN]]),
    **{
        f"{name} at NaN": (
            lambda t, x, name=name: getattr(t.nn.functional, name)(x),
            [[NAN, INF, -INF, 0.5, -0.5, 4.0, -4.0, 7.0]],
        )
        for name in ("elu", "selu", "celu", "relu6", "hardtanh", "hardswish", "leaky_relu", "relu")
    },
    "threshold at NaN": (
        lambda t, x: t.nn.functional.threshold(x, 0.3, -7.0),
        [[NAN, INF, -INF, 0.3, 0.5]],
    ),
    "relu at 0": (lambda t, x: t.relu(x), [[0.0, -0.0, 1.0, -1.0]]),
    "max of ties": (lambda t, x: t.max(x), [TIES]),
    "min of ties": (lambda t, x: t.min(x), [TIES]),
    "max of ties along 1": (lambda t, x: t.max(x, 1), [TIES]),
    "min of ties along 0": (lambda t, x: t.min(x, 0, keepdim=True), [TIES]),
    "amax of ties": (lambda t, x: t.amax(x, (0, 1)), [TIES]),
    "amin of ties": (lambda t, x: t.amin(x, 1), [TIES]),
    "max with NaN": (lambda t, x: t.max(x, 1), [ODDS]),
    "min with NaN": (lambda t, x: t.min(x, 1), [ODDS]),
    "amax with NaN": (lambda t, x: t.amax(x, 1), [ODDS]),
    "argmax of ties": (lambda t, x: t.argmax(x, 1), [TIES]),
    "argmin of ties": (lambda t, x: t.argmin(x, 0), [TIES]),
    "argmax with NaN": (lambda t, x: t.argmax(x, 1), [ODDS]),
    "prod with zeros": (lambda t, x: t.prod(x, 1), [ZEROS]),
    "prod of all with a zero": (lambda t, x: t.prod(x), [ZEROS[0]]),
    "cumprod with zeros": (lambda t, x: t.cumprod(x, 1), [ZEROS]),
    "cumsum": (lambda t, x: t.cumsum(x, 0), [ZEROS]),
    "std of a constant": (lambda t, x: t.std(x), [[5.0, 5.0, 5.0]]),
    "var of a constant": (lambda t, x: t.var(x), [[5.0, 5.0, 5.0]]),
    "var of one": (lambda t, x: t.var(x, 1, correction=0), [[[5.0], [2.0]]]),
    "norm at 0": (lambda t, x: t.norm(x), [[0.0, 0.0]]),
    "norm at 0 along 1": (lambda t, x: t.norm(x, dim=1), [[[0.0, 0.0], [3.0, 4.0]]]),
    "1-norm at 0": (lambda t, x: t.norm(x, 1), [[0.0, -2.0]]),
    "3-norm at 0": (lambda t, x: t.norm(x, 3, dim=1), [[[0.0, 0.0], [1.0, -2.0]]]),
    "half-norm": (lambda t, x: t.norm(x, 0.5), [[1.0, -2.0]]),
    "max-norm of ties": (lambda t, x: t.norm(x, INF), [[2.0, -2.0, 1.0]]),
    "0-norm": (lambda t, x: t.norm(x, 0), [[2.0, 0.0, 1.0]]),
    "logsumexp with infinities": (lambda t, x: t.logsumexp(x, 1), [ODDS]),
    "logsumexp of large": (lambda t, x: t.logsumexp(x, 0), [[1000.0, 1000.0, -1000.0]]),
    "sort with NaN": (lambda t, x: t.sort(x, 1), [ODDS]),
    "sort, descending, ties": (lambda t, x: t.sort(x, dim=1, descending=True, stable=True), [TIES]),
    "argsort of ties": (lambda t, x: t.argsort(x, dim=1, stable=True), [TIES]),
    "topk": (lambda t, x: t.topk(x, 2, 1), [[[3.0, 1.0, 2.0], [-1.0, 5.0, 4.0]]]),
    "topk of the smallest": (lambda t, x: t.topk(x, 2, 0, False), [[3.0, 1.0, 2.0]]),
    "nansum": (lambda t, x: t.nansum(x, 1), [ODDS]),
    "nanmean": (lambda t, x: t.nanmean(x, 1), [ODDS]),
    "round halves": (lambda t, x: t.round(x), [[0.5, 1.5, 2.5, -0.5, -1.5]]),
    "round to places": (lambda t, x: t.round(x, decimals=1), [[0.25, 0.35, -1.05]]),
    "remainder of signs": (lambda t, x: t.remainder(x, -3.0), [[-5.0, 5.0, 3.0, -3.0]]),
    "fmod of signs": (lambda t, x: t.fmod(x, -3.0), [[-5.0, 5.0, 3.0, -3.0]]),
    "floor_divide of signs": (lambda t, x: t.floor_divide(x, -3.0), [[-5.0, 5.0, 3.0, -3.0]]),
    "div, floor": (
        lambda t, x, y: t.div(x, y, rounding_mode="floor"),
        [[-5.0, 5.0, 0.0, INF, 1.0], [3.0, -3.0, 0.0, 2.0, INF]],
    ),
    "div, trunc": (lambda t, x: t.div(x, 3.0, rounding_mode="trunc"), [[-5.0, 5.0]]),
    "nan_to_num": (lambda t, x: t.nan_to_num(x, 1.0, 2.0, 3.0), [[NAN, INF, -INF, 0.5]]),
    "sum of nothing": (lambda t, x: t.sum(x), [[]]),
    "sum of nothing along 0": (lambda t, x: t.sum(x.reshape(0, 3), 0), [[]]),
    "prod of nothing": (lambda t, x: t.prod(x), [[]]),
    "mean of nothing": (lambda t, x: t.mean(x), [[]]),
    "matmul over nothing": (lambda t, x: x.reshape(3, 0) @ x.reshape(0, 2), [[]]),
    "cat with an empty vector": (lambda t, x, y: t.cat([x, y]), [[], [[1.0, 2.0]]]),
    "index_put with repeats": (
        lambda t, x, v: t.index_put(x, (t.tensor([0, 0, 1]),), v, accumulate=True),
        [[1.0, 2.0], [5.0, 6.0, 7.0]],
    ),
    "lerp": (lambda t, x, y: t.lerp(x, y, 0.25), [[1.0, 2.0], [5.0, 6.0]]),
    "diag of a vector": (lambda t, x: t.diag(x, -1), [[1.0, 2.0]]),
    **{
        f"{name}, {what}": (lambda t, x, name=name: getattr(t, name)(x), [values])
        for name in ("median", "nanmedian", "max", "min", "amax", "amin")
        for what, values in {
            "ties": TIES,
            "NaN": [[1.0, NAN, 2.0], [2.0, NAN, 1.0]],
            "only NaN": [NAN, NAN],
            "one": 3.0,
        }.items()
    },
    **{
        f"{name} of rows": (lambda t, x, name=name: tuple(getattr(t, name)(x, 1)), [rows])
        for name in ("median", "nanmedian", "max", "min")
        for rows in ([*TIES, [1.0, NAN, 2.0, NAN], [NAN, 1.0, NAN, 0.0]],)
    },
    "clamp by equal tensors": (
        lambda t, x, a, b: t.clamp(x, a, b),
        [[0.0, 2.0, 4.0, 0.0, 4.0, 9.0], [2.0, 2.0, 2.0, 3.0, 3.0, 3.0], [2.0] * 6],
    ),
    "clamp from a number to a tensor": (
        lambda t, x, b: t.clamp(x, t.tensor(1.0), b),
        [[0.0, 2.0, 4.0, NAN], [1.0, 2.0, 3.0, 4.0]],
    ),
    "division by zeros, cut": (
        lambda t, x, y: t.div(x, y, rounding_mode="trunc"),
        [[-1.0, 0.0, NAN, 7.0, -7.0], [0.0, 0.0, 2.0, 2.0, 2.0]],
    ),
    "sinc near 0": (lambda t, x: t.sinc(x), [[0.0, 1e-200, -1e-170, 1e-160, 5e-324, 1e-3, 2.0]]),
    "quantile with NaN": (
        lambda t, x: t.quantile(x, 0.3, dim=1, interpolation="lower"),
        [[[1.0, NAN, 2.0, 0.0], [3.0, 2.0, 1.0, 0.0]]],
    ),
    "cosine_embedding_loss of zeros": (
        lambda t, x, y: t.nn.functional.cosine_embedding_loss(
            x, y, t.tensor([1.0, -1.0, 1.0]), margin=-1.0, reduction="sum"
        ),
        [[[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]], [[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]],
    ),
    "tril below": (lambda t, x: t.tril(x, -1), [TIES]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    function, inputs = CALLS[name]
    check(lambda *x: function(tapegrad, *x), lambda *x: function(torch, *x), inputs, name)


#: calls that are refused, each with the type of error
REFUSED: dict[str, Any] = {
    "quantile above 1": lambda t: t.quantile(t.ones(2), 1.5),
    "quantile below 0": lambda t: t.quantile(t.ones(2), t.tensor([0.5, -0.1])),
    "shapes": lambda t: t.ones(2) + t.ones(3),
    "matmul": lambda t: t.ones(2, 3) @ t.ones(2, 3),
    "matmul of numbers": lambda t: t.tensor(1.0) @ t.ones(2),
    "matmul of batches": lambda t: t.ones(2, 3, 4) @ t.ones(3, 4, 5),
    "mm": lambda t: t.mm(t.ones(2), t.ones(2)),
    "bmm": lambda t: t.bmm(t.ones(2, 3), t.ones(2, 3)),
    "dot": lambda t: t.dot(t.ones(2), t.ones(3)),
    "mixed matmul": lambda t: t.ones(2, 2) @ t.ones(2, 2, dtype=t.float64),
    "dim": lambda t: t.ones(2).sum(1),
    "negative dim": lambda t: t.ones(2).sum(-2),
    "dim twice": lambda t: t.ones(2, 2).sum((0, 0)),
    "mean of integers": lambda t: t.tensor([1, 2]).mean(),
    "max of nothing": lambda t: t.ones(0).max(),
    "max of nothing along a dim": lambda t: t.ones(0, 2).max(0),
    "argmax of nothing": lambda t: t.ones(0).argmax(),
    "reshape": lambda t: t.ones(6).reshape(4, 2),
    "reshape with two -1": lambda t: t.ones(6).reshape(-1, -1),
    "reshape that cannot divide": lambda t: t.ones(6).reshape(-1, 4),
    "view of a transpose": lambda t: t.ones(2, 3).t().view(6),
    "permute": lambda t: t.ones(2, 3).permute(0),
    "permute twice": lambda t: t.ones(2, 3).permute(0, 0),
    "transpose": lambda t: t.ones(2, 3).transpose(0, 2),
    "t of three": lambda t: t.ones(2, 3, 4).t(),
    "expand": lambda t: t.ones(2).expand(3),
    "expand to fewer": lambda t: t.ones(2, 2).expand(2),
    "squeeze": lambda t: t.ones(2).squeeze(1),
    "unsqueeze": lambda t: t.ones(2).unsqueeze(2),
    "flatten": lambda t: t.ones(2, 3).flatten(1, 0),
    "cat": lambda t: t.cat([t.ones(2, 2), t.ones(3, 3)]),
    "cat of nothing": lambda t: t.cat([]),
    "stack": lambda t: t.stack([t.ones(2), t.ones(3)]),
    "split": lambda t: t.ones(4).split([1, 2]),
    "narrow": lambda t: t.ones(4).narrow(0, 2, 3),
    "select": lambda t: t.ones(4).select(0, 4),
    "index": lambda t: t.ones(4)[4],
    "index below": lambda t: t.ones(4)[-5],
    "too many indices": lambda t: t.ones(4)[0, 0],
    "index tensor": lambda t: t.ones(4)[t.tensor([4])],
    "float index": lambda t: t.ones(4)[t.tensor([1.0])],
    "mask": lambda t: t.ones(4)[t.tensor([True, False])],
    "negative step": lambda t: t.ones(4)[::-1],
    "gather": lambda t: t.ones(2, 2).gather(0, t.tensor([0])),
    "gather out of range": lambda t: t.ones(2).gather(0, t.tensor([2])),
    "index_select": lambda t: t.ones(2).index_select(0, t.tensor([2])),
    "topk": lambda t: t.ones(2).topk(3),
    "where with a float": lambda t: t.where(t.ones(2), t.ones(2), t.ones(2)),
    "masked_fill with a float": lambda t: t.ones(2).masked_fill(t.ones(2), 0.0),
    "integer division by zero": lambda t: t.tensor([1]) // 0,
    "integer remainder by zero": lambda t: t.tensor([1]) % 0,
    "negative integer power": lambda t: t.tensor([2]) ** -1,
    "clamp of nothing": lambda t: t.clamp(t.ones(2)),
    "in place, wrong shape": lambda t: t.ones(1).add_(t.ones(3)),
    "in place, wrong dtype": lambda t: t.tensor([1]).add_(0.5),
    "setitem, wrong shape": lambda t: t.ones(3).__setitem__(slice(0, 2), t.ones(3)),
    "bitwise and of floats": lambda t: t.ones(2) & t.ones(2),
    "round with a mode": lambda t: t.div(t.ones(2), 2, rounding_mode="up"),
    "einsum": lambda t: t.einsum("ij,jk->ik", t.ones(2, 3), t.ones(2, 3)),
    "roll": lambda t: t.roll(t.ones(2, 2), (1, 2), (0,)),
    "diagonal": lambda t: t.diagonal(t.ones(2)),
    "item of two": lambda t: t.ones(2).item(),
    "bool of two": lambda t: bool(t.ones(2)),
    "len of a number": lambda t: len(t.tensor(1.0)),
    "repeat": lambda t: t.ones(2, 2).repeat(2),
    "tril of a vector": lambda t: t.tril(t.ones(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function = REFUSED[name]
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # which one is what we ask
        function(torch)
    with pytest.raises(Exception) as ours:  # noqa: PT011
        function(tapegrad)
    assert ours.type is theirs.type, f"{ours.value!r} instead of {theirs.value!r}"
    assert len(str(ours.value)) > 10


@pytest.mark.parametrize("options", [(3, 2, 1), (3, 1, 1), (2, 2, 1), (3, 2, 1, 2)])
def test_max_pool_of_infinities_beside_padding(options: Any) -> None:
    data = np.full((1, 1, 6, 6), -np.inf)
    data[0, 0, 3, 2] = 1.0
    theirs = torch.tensor(data, requires_grad=True)
    ours = tapegrad.tensor(data, requires_grad=True)
    a, i = torch.nn.functional.max_pool2d(theirs, *options, return_indices=True)
    b, j = tapegrad.nn.functional.max_pool2d(ours, *options, return_indices=True)
    assert b.tolist() == a.tolist()
    assert j.tolist() == i.tolist()
    a.sum().backward()
    b.sum().backward()
    assert ours.grad.tolist() == theirs.grad.tolist()


#: calls whose results once depended on whether NumPy or native code ran
SIZES: dict[str, Any] = {
    "sigmoid": lambda t, x: t.sigmoid(x),
    "silu": lambda t, x: t.nn.functional.silu(x),
    "clamp, low above high": lambda t, x: t.clamp(x, 5.0, 2.0),
    "clamp, low is NaN": lambda t, x: t.clamp(x, min=NAN),
    "clamp, high is NaN": lambda t, x: t.clamp(x, max=NAN),
    "square root as a power": lambda t, x: x**0.5,
    "power of 1.5": lambda t, x: x**1.5,
    "lgamma": lambda t, x: t.lgamma(x),
    "erfinv": lambda t, x: t.erfinv(x),
    "hardswish": lambda t, x: t.nn.functional.hardswish(x),
}


@pytest.mark.parametrize("times", [1, 5000], ids=["few", "many"])
@pytest.mark.parametrize("name", SIZES)
def test_calls_of_any_size(name: str, times: int) -> None:
    values = [*SPECIAL[:-1], -40.0, -100.0, 5e-324, -3.0, 5.0, 2.5]
    if not name.startswith("clamp"):
        values.append(NAN)
    if name in ("sigmoid", "silu"):
        values.remove(-math.inf)  # 0 times infinity
    few = tapegrad.tensor(values * times, dtype=tapegrad.float64, requires_grad=True)
    theirs = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    got, expected = SIZES[name](tapegrad, few), SIZES[name](torch, theirs)
    got.sum().backward()
    expected.sum().backward()
    assert few.grad is not None
    for ours, wanted in ((got, expected), (few.grad, theirs.grad)):
        a, b = ours.detach().numpy()[-len(values) :], wanted.detach().numpy()
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-320, err_msg=name)
        zeros = b == 0
        assert (np.signbit(a[zeros]) == np.signbit(b[zeros])).all(), name


def _same_gradient(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    w.sum().backward()
    first = w.grad
    (w * 2).sum().backward()
    w.grad.add_(1)
    return w.grad is first, first


def _zeroed_gradient(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    optimizer = t.optim.SGD([w], 0.1)
    w.sum().backward()
    first = w.grad
    optimizer.zero_grad(set_to_none=False)
    w.sum().backward()
    return w.grad is first, first


def _gradient_with_a_history(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    (w * w).sum().backward(gradient=None, retain_graph=True)
    (w * w).sum().backward(retain_graph=True, inputs=[w])
    first = w.grad
    return w.grad is first, first


def _retained_gradient(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    h = w * 2
    h.retain_grad()
    h.register_hook(lambda g: g * 3)
    (h * h).sum().backward(retain_graph=True)
    first, seen = h.grad, h.grad.tolist()
    h.sum().backward()
    return h.grad, seen, first, w.grad


def _retained_after_a_change(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    h = w * 2
    h.retain_grad()
    h.mul_(3)
    (h * t.tensor([1.0, 2.0])).sum().backward()
    return h.grad, w.grad


def _taken(t: Any) -> Any:
    x = t.arange(24.0).reshape(2, 3, 4).requires_grad_()
    found = [
        t.take_along_dim(x, t.tensor([[[0]], [[2]]]), 1),
        t.take_along_dim(x[:1], t.tensor([[[0, 3]], [[2, 1]]]), 2),
        t.take_along_dim(x[:, :1], t.tensor([[[1], [0], [0]]]), 0),
        x.take_along_dim(t.tensor([[[-1 % 4]]]), -1),
        t.take_along_dim(x, t.tensor([5, 0])),
    ]
    sum((y * y).sum() for y in found).backward()
    return *found, x.grad


def _shared(t: Any) -> Any:
    w = t.ones(4, requires_grad=True)
    h = t.cat([w[:2].reshape(1, 2), w[2:].reshape(1, 2)]).double().sum(0)
    (h * h).sum().backward()
    (h * 3).sum().backward()
    return w.grad


PROGRAMS = {
    f.__name__: f
    for f in (
        *(_same_gradient, _zeroed_gradient, _gradient_with_a_history, _retained_gradient),
        *(_retained_after_a_change, _taken, _shared),
    )
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    assert _plain(PROGRAMS[name](tapegrad)) == _plain(PROGRAMS[name](torch))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
