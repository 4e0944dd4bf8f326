"""Details that `tests/test_details.py` states in numbers, compared with PyTorch: same calls, same
results, same refusals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

nan, inf = math.nan, math.inf


def described(value: Any) -> Any:
    """Results as types, shapes and numbers that can be compared."""
    if isinstance(value, (torch.Tensor, tapegrad.Tensor)):
        name = str(value.dtype).split(".")[-1]
        return name, tuple(value.shape), np.asarray(value.detach().tolist(), np.float64)
    if isinstance(value, (tuple, list)):
        return [described(item) for item in value]
    return value


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(a, b)
    elif isinstance(ours, tuple):
        assert ours[:2] == theirs[:2]
        np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-6, atol=1e-7)
    else:
        assert ours == theirs


def half(T: Any, *values: float) -> Any:
    return T.tensor(values, dtype=T.float16)


def _gradient(T: Any, function: Callable[[Any], Any], x: Any) -> Any:
    leaf = x.detach().clone().requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad


def _bags(T: Any) -> list[Any]:
    found = []
    for mode in ("sum", "mean", "max"):
        for padding in (None, 0, 1):
            for last in (False, True):
                weight = T.arange(12.0).reshape(6, 2).requires_grad_()
                tokens = T.tensor([0, 1, 2, 1, 1, 5])
                offsets = T.tensor([0, 2, 2, 3, 5, 6] if last else [0, 2, 2, 3, 5])
                out = T.nn.functional.embedding_bag(
                    tokens,
                    weight,
                    offsets,
                    mode=mode,
                    padding_idx=padding,
                    include_last_offset=last,
                )
                out.sum().backward()
                found += [out, weight.grad]
    return found


def _chained(T: Any, name: str) -> Any:
    """The gradient of a training step with respect to the gradient that it was given."""
    g = T.tensor([0.3, 0.4], dtype=T.float64, requires_grad=True)
    parameter = T.tensor([1.0, 2.0], dtype=T.float64).requires_grad_().clone()
    optimizer = getattr(T.optim, name)([parameter], lr=0.1, differentiable=True)
    for k in range(3):
        parameter.grad = g * (k + 1) * (1 + g)
        optimizer.step()
    return T.autograd.grad(parameter.sum(), g)


SAME: dict[str, Callable[[Any], Any]] = {
    "flip": lambda T: T.arange(4).reshape(2, 2).flip(()),
    "dtype": lambda T: [T.ones(2, dtype=float), T.arange(3, dtype=float), T.ones(2).to(float)],
    "of tensors": lambda T: [
        T.tensor([T.tensor(1), T.tensor(2.5, dtype=T.float64)]),
        T.tensor([T.tensor(True)]),
        T.tensor([1.5, T.tensor(2, dtype=T.int8)]),
    ],
    "unique": lambda T: T.tensor([nan, 1.0, nan]).unique(return_inverse=True, return_counts=True),
    "unique rows": lambda T: T.tensor([[nan, 1.0], [nan, 1.0]]).unique(dim=0),
    "index": lambda T: T.arange(9).reshape(3, 3)[((0, 1), (1, 2)),],
    "mask in a tuple": lambda T: T.arange(9).reshape(3, 3)[(True, False, True),],
    "strides": lambda T: [T.zeros(s).stride() for s in ((0,), (0, 3), (3, 0), (2, 0, 3), (0, 0))],
    "combinations": lambda T: T.combinations(T.arange(3), r=0, with_replacement=True),
    "bags": _bags,
    "half numbers": lambda T: [
        half(T, 100.0) / 1e5,
        half(T, 100.0) * 1e-6,
        half(T, 1e-4) * 1e5,
        half(T, 100.0) / T.tensor(1e5),
        half(T, 100.0).div_(1e5),
        T.tensor([1.7], dtype=T.bfloat16) * T.tensor(1.7, dtype=T.float64),
        T.tensor([100.0], dtype=T.bfloat16) * 1.00390625,
        T.addcmul(half(T, 0.0), half(T, 200.0), half(T, 300.0), value=1e-3),
        T.addcdiv(half(T, 0.0), half(T, 200.0), half(T, 0.001), value=1e-3),
    ],
    "bytes": lambda T: [T.tensor([0, 2], dtype=T.uint8).any(), T.tensor([1, 2]).all()],
    "adaptive": lambda T: T.nn.functional.adaptive_max_pool2d(T.zeros(1, 1, 4, 4), 0),
    "hardshrink": lambda T: T.nn.functional.hardshrink(
        T.tensor([0.3, 0.3007, -0.3, 0.299], dtype=T.bfloat16), 0.3
    ),
    "NAdam": lambda T: _chained(T, "NAdam"),
    "RAdam": lambda T: _chained(T, "RAdam"),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", SAME)
def test_same_results(name: str) -> None:
    ours, theirs = (described(SAME[name](T)) for T in (tapegrad, torch))
    assert_equal(ours, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["hardswish", "hardsigmoid", "hardtanh", "relu6", "hardshrink"])
def test_same_gradients_at_kinks(name: str) -> None:
    points = [-3.0, 3.0, -1.0, 1.0, 0.0, 6.0, 0.5, -0.5]
    ours, theirs = (
        described(_gradient(T, getattr(T.nn.functional, name), T.tensor(points)))
        for T in (tapegrad, torch)
    )
    assert_equal(ours, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["mish", "silu", "gelu", "softplus", "elu", "logsigmoid"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_half_precision(name: str, dtype: str) -> None:
    grid = np.linspace(-8, 8, 65).tolist()
    ours, theirs = (
        _gradient(T, getattr(T.nn.functional, name), T.tensor(grid, dtype=getattr(T, dtype)))
        for T in (tapegrad, torch)
    )
    step = 2.0**-10 if dtype == "float16" else 2.0**-7
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1.1 * step, atol=1e-7)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda T: T.ones(2, 2, requires_grad=True).clone().unbind(0)[0].add_(1),
    "split": lambda T: T.ones(4, requires_grad=True).clone().split(2)[0].add_(1),
    "chunk": lambda T: T.ones(4, requires_grad=True).clone().chunk(2)[0].add_(1),
    "iteration": lambda T: [x.add_(1) for x in T.ones(4, requires_grad=True).clone()],
    "pooling": lambda T: T.nn.functional.avg_pool2d(T.zeros(1, 0, 4, 4), 2),
    "group norm": lambda T: T.nn.GroupNorm(2, 2)(T.ones(1, 2)),
    "meshgrid": lambda T: T.meshgrid(T.ones(2), T.ones(2, dtype=T.int64), indexing="ij"),
    "tensors of two": lambda T: T.tensor([T.tensor([1, 2])]),
    "expanded": lambda T: T.ones(1).expand(2).add_(1),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", REFUSED)
def test_same_refusals(name: str) -> None:
    for T in (torch, tapegrad):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            REFUSED[name](T)


@pytest.mark.oracle
def test_sequences_that_are_all_padding() -> None:
    found = []
    for T in (tapegrad, torch):
        layer = T.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
        with T.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(T.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
        x = T.linspace(-1, 2, 24).reshape(2, 3, 4)
        padding = T.tensor([[True] * 3, [False, False, True]])
        with warnings.catch_warnings(), T.no_grad():
            warnings.simplefilter("ignore")
            encoder = T.nn.TransformerEncoder(layer, 2).eval()
            calls = [
                layer(x, src_key_padding_mask=padding),
                layer(x, src_mask=padding.new_tensor([[True] * 3, [False] * 3, [False] * 3])),
                encoder(x, src_key_padding_mask=padding),
                encoder(x, src_key_padding_mask=padding.flip(1)),
                layer.self_attn(x, x, x, key_padding_mask=padding, need_weights=False)[0],
            ]
        calls.append(layer(x, src_key_padding_mask=padding))
        found.append([c.detach().numpy() for c in calls])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", [lambda x: x.view(-1), lambda x: x[0], lambda x: x.t()])
@pytest.mark.parametrize("leaf", [True, False])
def test_views_taken_in_inference_mode(leaf: bool, view: Any) -> None:
    def flags(t: Any) -> list[Any]:
        source = t.ones(2, 3, requires_grad=True)
        base = source if leaf else source * 1
        with t.inference_mode():
            taken = view(base)
            again = taken.view_as(taken)
            found = [x.requires_grad and x.is_leaf and x._is_view() for x in (taken, again)]
            found += [x.is_inference() for x in (taken, again)]
        found += [(taken * taken).requires_grad, view(base.detach()).requires_grad]
        with pytest.raises(RuntimeError):
            taken.add_(1)
        with t.inference_mode():
            taken.add_(1)
            found += [taken.requires_grad, taken.is_inference()]
        return found

    assert flags(tapegrad) == flags(torch)


def test_a_view_of_inference_mode_whose_base_is_changed() -> None:
    for t in (tapegrad, torch):
        base = t.ones(2, 3, requires_grad=True) * 1
        with t.inference_mode():
            taken = base.view(-1)
        base.add_(1)
        with pytest.raises(RuntimeError, match="inference mode"):
            taken.grad_fn  # noqa: B018


# -- what both refuse --------------------------------------------------------------------------

REFUSED: list[Callable[[Any], Any]] = [
    lambda T: T.unique(T.zeros(0, 0), dim=1),
    lambda T: T.unique(T.zeros(2, 0, 0), dim=1),
    lambda T: T.searchsorted(T.tensor(3), 3),
    lambda T: T.index_fill(T.zeros(3, 2), 0, T.tensor([[0, 1]]), 3),
    lambda T: T.index_select(T.tensor(3), 0, T.tensor([0, 0])),
    lambda T: T.cross(T.ones(2, 3), T.ones(3)),
    lambda T: T.repeat_interleave(T.arange(3), T.tensor([1.0, 0.0, 1.0])),
    lambda T: T.tensor_split(T.arange(7), T.tensor(3.0)),
    lambda T: T.tensor_split(T.tensor(3), 1),
    lambda T: T.rot90(T.arange(3), 1),
    lambda T: T.fliplr(T.arange(3)),
    lambda T: T.diff(T.tensor([1, 4, 9]), prepend=T.tensor(0)),
    lambda T: T.diag_embed(T.arange(2), 1, 0, 0),
    lambda T: T.addcdiv(T.tensor([1.0]), T.tensor([2]), T.tensor([3])),
    lambda T: T.zeros(2, 3).narrow(0, -3, 1),
    lambda T: T.zeros(2, 3).narrow(0, 3, 0),
    lambda T: T.equal(T.tensor([1]), 1),
    lambda T: +T.zeros(3, dtype=T.bool),
    lambda T: T.frac(T.zeros(3, dtype=T.int64)),
    lambda T: T.lerp(T.tensor([1]), T.tensor([2]), 0.5),
    lambda T: T.igamma(T.tensor([1]), T.tensor([1])),
    lambda T: T.full((2,), nan, dtype=T.int64),
    lambda T: int(T.tensor([1, 2])),
    lambda T: float(T.tensor([])),
    lambda T: T.tensor([1, 2]).item(),
    lambda T: T.func.grad(lambda x: x, argnums=())(T.tensor(1.0)),
    lambda T: T.func.grad(lambda x: x, argnums=1.5)(T.tensor(1.0)),
    lambda T: T.zeros(3, dtype=T.int64).uniform_(),
    lambda T: T.normal(T.zeros(2), T.ones(3)),
    lambda T: T.multinomial(T.tensor([]), 1),
    lambda T: T.nn.functional.dropout2d(T.ones(2), 0.5),
    lambda T: T.nn.functional.pad(T.ones(1, 3), (1, 0), "middle"),
    lambda T: T.nn.Unflatten(1, (2, 3.0)),
    lambda T: T.func.functional_call(T.nn.Linear(2, 1), 3, T.ones(2)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", REFUSED)
def test_what_pytorch_refuses_is_refused_with_the_same_type(call: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as theirs:
        call(torch)
    with pytest.raises(theirs.type):
        call(tapegrad)


ACCEPTED: list[Callable[[Any], Any]] = [
    lambda T: T.arange(4).view(2, 2)[..., ...],
    lambda T: T.arange(8).view(2, 2, 2)[0, ..., 1, ...],
    lambda T: T.unique(T.zeros(0, 3), dim=0),
    lambda T: T.zeros(3).narrow(0, 3, 0),
    lambda T: T.full((2,), nan, dtype=T.bool),
    lambda T: +T.ones(2),
    lambda T: T.nn.functional.linear(T.ones(3), T.arange(3.0), T.tensor(1.0)),
    lambda T: T.nn.functional.linear(T.ones(4, 3), T.arange(3.0)),
]


@pytest.mark.parametrize("call", ACCEPTED)
def test_corners_that_pytorch_accepts(call: Callable[[Any], Any]) -> None:
    assert_equal(described(call(tapegrad)), described(call(torch)))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("correction", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_spread_without_degrees_of_freedom_warns(name: str, correction: int, n: int) -> None:
    found = []
    for T in (tapegrad, torch):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            out = described(getattr(T, name)(T.arange(float(n)), correction=correction))
        found.append((out, [w.category for w in seen]))
    (ours, warned), (theirs, expected) = found
    assert_equal(ours, theirs)
    assert warned == expected
