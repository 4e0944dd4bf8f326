"""uint16, uint32, uint64 and float8 against PyTorch: stored, cast, moved; not computed with."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

UNSIGNED = ["uint16", "uint32", "uint64"]
FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda t, x: x,
    "zeros": lambda t, x: t.zeros(2, dtype=x.dtype),
    "ones": lambda t, x: t.ones(2, dtype=x.dtype),
    "full": lambda t, x: t.full((2,), 3, dtype=x.dtype),
    "zeros_like": lambda t, x: t.zeros_like(x),
    "new_tensor": lambda t, x: x.new_tensor([1, 2]),
    "float": lambda t, x: x.float(),
    "double": lambda t, x: x.double(),
    "half": lambda t, x: x.half(),
    "int": lambda t, x: x.to(t.int32),
    "bool": lambda t, x: x.bool(),
    "from float": lambda t, x: t.tensor([0.3, 1.7, 5.0]).to(x.dtype),
    "from int": lambda t, x: t.tensor([1, 5, 9]).to(x.dtype),
    "from half": lambda t, x: t.tensor([1.5, 2.5]).half().to(x.dtype),
    "slice": lambda t, x: x[1:],
    "index": lambda t, x: x[t.tensor([0, 2])],
    "mask": lambda t, x: x[t.tensor([True, False, True])],
    "setitem": lambda t, x: _set(x.clone(), 0, 4),
    "set slice": lambda t, x: _set(x.clone(), slice(1, None), x[:2]),
    "clone": lambda t, x: x.clone(),
    "cat": lambda t, x: t.cat([x, x]),
    "stack": lambda t, x: t.stack([x, x]),
    "view": lambda t, x: x.view(3, 1),
    "bytes": lambda t, x: x.view(t.uint8),
    "reshape": lambda t, x: x.reshape(1, 3),
    "transpose": lambda t, x: x.view(1, 3).T.contiguous(),
    "fill_": lambda t, x: x.clone().fill_(2),
    "copy_": lambda t, x: x.clone().copy_(t.tensor([3.0, 2.0, 1.0])),
    "eq": lambda t, x: x == x,
    "ne": lambda t, x: x != 1,
    "where": lambda t, x: t.where(t.tensor([True, False, True]), x, x.flatten()),
    "repeat": lambda t, x: x.repeat(2),
    "roll": lambda t, x: x.roll(1),
    "expand": lambda t, x: x.expand(2, 3),
    "isnan": lambda t, x: x.isnan(),
    "add": lambda t, x: x + x,
    "add number": lambda t, x: x + 1,
    "lt": lambda t, x: x < x,
    "neg": lambda t, x: -x,
    "matmul": lambda t, x: x @ x,
    "clamp": lambda t, x: x.clamp(0, 1),
    "max": lambda t, x: x.max(),
    "argmax": lambda t, x: x.argmax(),
    "add int32": lambda t, x: x + t.ones(3, dtype=t.int32),
    "add float32": lambda t, x: x + t.ones(3),
    "times float": lambda t, x: x * 2.0,
    "exp": lambda t, x: x.exp(),
    "div": lambda t, x: x / 2,
}


def _set(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [*UNSIGNED, *FLOATS])
def test_the_same_as_pytorch(name: str, dtype: str) -> None:
    def attempt(t: Any) -> Any:
        x = t.tensor([1, 2, 3], dtype=getattr(t, dtype))
        try:
            made = CALLS[name](t, x)
        except (NotImplementedError, RuntimeError) as error:
            return type(error)
        return str(made.dtype).split(".")[1], made.double().tolist()

    ours, theirs = attempt(tapegrad), attempt(torch)
    if name == "exp" and isinstance(theirs, tuple):
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    else:
        assert ours == theirs


@pytest.mark.parametrize("dtype", [*UNSIGNED, *FLOATS, "float8_e8m0fnu"])
def test_facts(dtype: str) -> None:
    ours, theirs = getattr(tapegrad, dtype), getattr(torch, dtype)
    for fact in ("itemsize", "is_floating_point", "is_signed", "is_complex"):
        assert getattr(ours, fact) == getattr(theirs, fact)
    for t in (tapegrad, torch):
        own = getattr(t, dtype)
        assert t.promote_types(own, own) is own
        with pytest.raises(RuntimeError, match=r"Promotion|promote"):
            t.promote_types(own, t.int32)
        assert t.can_cast(own, t.float32)
    if not ours.is_floating_point:
        assert tapegrad.promote_types(ours, tapegrad.float32) is tapegrad.float32
        assert tapegrad.iinfo(ours).max == torch.iinfo(theirs).max
    else:
        assert tapegrad.finfo(ours).max == torch.finfo(theirs).max
        if dtype != "float8_e5m2fnuz":  # PyTorch's is half of the distance from 1 to the next
            assert tapegrad.finfo(ours).eps == torch.finfo(theirs).eps
        values = np.linspace(-500 if ours.is_signed else 1e-3, 500, 401)
        mine = tapegrad.tensor(values).to(ours).double().numpy()
        np.testing.assert_array_equal(mine, torch.tensor(values).to(theirs).double().numpy())
    x = tapegrad.tensor([1, 2, 4], dtype=ours)
    assert x.tolist() == [1, 2, 4]
    assert x[1].item() == 2
    assert type(x[1].item()) is (float if ours.is_floating_point else int)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.dtype is ours
        assert other.tolist() == [1, 2, 4]
    assert f"dtype=tapegrad.{dtype}" in repr(x)


@pytest.mark.parametrize("dtype", [*UNSIGNED, *FLOATS])
def test_compiled_functions_move_and_cast_them(dtype: str) -> None:
    own = getattr(tapegrad, dtype)

    def f(x: Any) -> Any:
        return x[1:].clone(), x.float() * 2, (x.float() + 1).to(own), tapegrad.cat([x, x])

    fast = tapegrad.compile(f)
    for i in range(4):
        x = tapegrad.tensor([1 + i, 2, 3], dtype=own)
        for got, expected in zip(fast(x), f(x), strict=True):
            assert got.dtype is expected.dtype
            assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [*UNSIGNED, "float8_e4m3fn", "float8_e5m2"])
def test_saving(dtype: str, tmp_path: Any) -> None:
    x = tapegrad.tensor([1, 2, 3], dtype=getattr(tapegrad, dtype))
    tapegrad.save({"x": x}, tmp_path / "x.safetensors")
    loaded = tapegrad.load(tmp_path / "x.safetensors")["x"]
    assert loaded.dtype is x.dtype
    assert loaded.tolist() == [1, 2, 3]


def test_large_unsigned_numbers() -> None:
    large = [(1 << 64) - 1, (1 << 63) + 5, 7]
    x = tapegrad.tensor(large, dtype=tapegrad.uint64)
    assert x.tolist() == torch.tensor(large, dtype=torch.uint64).tolist() == large
    fast = tapegrad.compile(lambda x: (x.double(), x.clone(), x == x))
    for _ in range(4):
        double, same, equal = fast(x)
        assert double.tolist() == torch.tensor(large, dtype=torch.uint64).double().tolist()
        assert same.tolist() == large
        assert equal.all()


def test_gradients_through_casts() -> None:
    w = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    (w.to(tapegrad.float8_e4m3fn).float() * 3).sum().backward()
    assert w.grad.tolist() == [3, 3]
    v = torch.tensor([1.0, 2.0], requires_grad=True)
    (v.to(torch.float8_e4m3fn).float() * 3).sum().backward()
    assert v.grad.tolist() == [3, 3]
