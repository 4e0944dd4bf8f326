"""Functions of lists of tensors against PyTorch, and what dtypes results have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

UNARY = [
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
]
BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_max", "clamp_min"]


def lists(t: Any, shift: float = 0.0, requires_grad: bool = False) -> list[Any]:
    values = np.linspace(0.1, 0.9, 5) + shift
    return [
        t.tensor(values[:3], dtype=t.float64, requires_grad=requires_grad),
        t.tensor(values[3:].reshape(2, 1), dtype=t.float64, requires_grad=requires_grad),
    ]


def operands(t: Any) -> list[Any]:
    return [0.45, [0.45, 2.0], lists(t, 1.0)]  # no ties, where gradients differ


def compare(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9)


def check(name: str, make: Any, changes: bool = True) -> None:
    """The pure function and its gradients, and the one that changes its first list."""
    mine, other = lists(tapegrad, requires_grad=True), lists(torch, requires_grad=True)
    ours = getattr(tapegrad, f"_foreach_{name}")(mine, *make(tapegrad))
    theirs = getattr(torch, f"_foreach_{name}")(other, *make(torch))
    assert type(ours) is tuple
    compare(ours, theirs)
    if ours[0].requires_grad or theirs[0].requires_grad:
        sum(x.sum() for x in ours).backward()
        sum(x.sum() for x in theirs).backward()
        compare([x.grad for x in mine], [x.grad for x in other])
    if changes:
        mine, other = lists(tapegrad), lists(torch)
        result = getattr(tapegrad, f"_foreach_{name}_")(mine, *make(tapegrad))
        getattr(torch, f"_foreach_{name}_")(other, *make(torch))
        assert result is mine
        compare(mine, other)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(name, lambda t: [])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("which", range(3))
def test_binary(name: str, which: int) -> None:
    check(name, lambda t: [operands(t)[which]])


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_with_values(name: str) -> None:
    check(name, lambda t: [lists(t, 1.0), lists(t, 2.0)])
    check(name, lambda t: [lists(t, 1.0), lists(t, 2.0), 3])
    check(name, lambda t: [lists(t, 1.0), lists(t, 2.0), [3, 0.5]])
    results = [
        getattr(t, f"_foreach_{name}")(
            lists(t), lists(t, 1.0), lists(t, 2.0), t.tensor([3.0, 0.5], dtype=t.float64)
        )
        for t in (tapegrad, torch)
    ]
    compare(*results)


def test_others() -> None:
    for weight in (0.25, [0.25, 0.5]):
        check("lerp", lambda t, w=weight: [lists(t, 1.0), w])
    check("lerp", lambda t: [lists(t, 1.0), lists(t, 2.0)])
    for name in ("max", "norm", "clone"):
        check(name, lambda t: [], changes=False)
    check("norm", lambda t: [1], changes=False)
    compare(tapegrad._foreach_powsum(lists(tapegrad), 3), torch._foreach_powsum(lists(torch), 3))
    compare(
        tapegrad._foreach_addcmul(lists(tapegrad), lists(tapegrad), lists(tapegrad), value=2),
        torch._foreach_addcmul(lists(torch), lists(torch), lists(torch), value=2),
    )
    compare(tapegrad._foreach_pow(2, lists(tapegrad)), torch._foreach_pow(2, lists(torch)))
    compare(
        tapegrad._foreach_add(lists(tapegrad), lists(tapegrad), alpha=2),
        torch._foreach_add(lists(torch), lists(torch), alpha=2),
    )
    compare(
        tapegrad._foreach_mul(lists(tapegrad), tapegrad.tensor(2.0)),
        torch._foreach_mul(lists(torch), torch.tensor(2.0)),
    )
    square = lists(tapegrad)[1] @ lists(tapegrad)[1].T
    assert tapegrad._foreach_mm([square], [square])[0].tolist() == (square @ square).tolist()
    changed = lists(tapegrad)
    tapegrad._foreach_copy_(changed, lists(tapegrad, 3.0))
    compare(changed, lists(torch, 3.0))
    tapegrad._foreach_zero_(changed)
    assert all(float(x.abs().sum()) == 0 for x in changed)
    integers, theirs = [tapegrad.arange(3)], [torch.arange(3)]
    compare(tapegrad._foreach_add(integers, 1.5), torch._foreach_add(theirs, 1.5))
    for t, x in ((tapegrad, integers), (torch, theirs)):
        with pytest.raises(RuntimeError):
            t._foreach_add_(x, 1.5)
        with pytest.raises(RuntimeError, match=r"same number of tensors|equally many"):
            t._foreach_add(x, [x[0], x[0]])
        with pytest.raises(RuntimeError, match="at least one tensor"):
            t._foreach_add([], 1)
        with pytest.raises(TypeError):
            t._foreach_add(x[0], 1)


def test_every_name_exists() -> None:
    assert not [n for n in dir(torch) if n.startswith("_foreach_") and not hasattr(tapegrad, n)]


DTYPES = ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_dtypes(first: str, second: str) -> None:
    def answers(t: Any) -> Any:
        a, b = getattr(t, first), getattr(t, second)
        tensors = [t.ones(2, dtype=a), t.ones((), dtype=a), t.ones(1, dtype=b), t.ones((), dtype=b)]
        found = [t.result_type(x, y) for x in tensors for y in (*tensors, 1, 1.0, True)]
        return [str(d).split(".")[1] for d in [*found, t.promote_types(a, b)]], t.can_cast(a, b)

    assert answers(tapegrad) == answers(torch)
