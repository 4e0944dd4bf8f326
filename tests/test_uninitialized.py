"""Parameters and buffers of lazy layers: what may be asked of them, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

KINDS = [UninitializedParameter, UninitializedBuffer]

REFUSED: dict[str, Any] = {
    "operator": lambda p: p + 1,
    "reflected": lambda p: 1 - p,
    "beside a tensor": lambda p: tg.ones(2) * p,
    "comparison": lambda p: p == p,
    "function": tg.exp,
    "reduction": lambda p: p.sum(),
    "product": lambda p: p @ tg.ones(2, 2),
    "layer": lambda p: nn.functional.linear(tg.ones(1, 2), p),
    "joined": lambda p: tg.cat([p, p]),
    "norm": tg.linalg.norm,
    "view": lambda p: p.view(-1),
    "part": lambda p: p[0],
    "clone": lambda p: p.clone(),
    "like": tg.zeros_like,
    "in place": lambda p: p.fill_(1),
    "first values": nn.init.zeros_,
    "numel": lambda p: p.numel(),
    "dim": lambda p: p.dim(),
    "stride": lambda p: p.stride(),
    "length": len,
    "numbers": lambda p: p.tolist(),
    "truth": bool,
    "array": lambda p: p.numpy(),
    "backward": lambda p: p.backward(),
    "address": lambda p: p.data_ptr(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, kind: Any) -> None:
    p = kind()
    with pytest.raises(ValueError, match="uninitialized parameter"):
        REFUSED[name](p)
    with tg.no_grad(), pytest.raises(ValueError, match="uninitialized parameter"):
        REFUSED[name](p)
    assert is_lazy(p)


def test_an_optimizer_that_needs_shapes_refuses() -> None:
    layer = nn.LazyLinear(2)
    tg.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        tg.optim.Adagrad(layer.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_allowed(kind: Any) -> None:
    p = kind()
    with pytest.raises(RuntimeError, match="no shape"):
        p.shape  # noqa: B018
    assert (p.dtype, p.device, p.grad) == (tg.float32, tg.device("cpu"), None)
    assert repr(p) == f"<{kind.__name__}>"
    for converted, dtype in ((p.half(), tg.float16), (p.to(tg.float64), tg.float64)):
        assert type(converted) is kind
        assert converted.dtype is dtype
    assert type(copy.deepcopy(p)) is type(pickle.loads(pickle.dumps(p))) is kind
    for other in (p, copy.deepcopy(p), pickle.loads(pickle.dumps(p)), p.double()):
        other.materialize((2, 3))
        assert not is_lazy(other)
        assert (other * 1).shape == (2, 3)
        assert other.numel() == 6


def test_a_lazy_layer_is_converted_before_it_has_a_shape() -> None:
    layer = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()).double()
    assert is_lazy(layer[0].weight)
    out = layer(tg.ones(4, 3, dtype=tg.float64))
    assert out.dtype is tg.float64
    assert type(layer[0].weight) is nn.Parameter
    out.sum().backward()
    assert layer[0].weight.grad.shape == (2, 3)
