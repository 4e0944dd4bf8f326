"""Making tensors against PyTorch: values, dtypes, shapes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_oracle import assert_all_same

import tapegrad

#: calls with a module `t` (tapegrad or torch)
CALLS: dict[str, Any] = {
    "tensor of floats": lambda t: t.tensor([1.0, 2.0]),
    "tensor of integers": lambda t: t.tensor([[1, 2], [3, 4]]),
    "tensor of bools": lambda t: t.tensor([True, False]),
    "tensor of both": lambda t: t.tensor([1, 2.5]),
    "tensor of bools and integers": lambda t: t.tensor([True, 2]),
    "tensor of nothing": lambda t: t.tensor([]),
    "tensor of empty rows": lambda t: t.tensor([[], []]),
    "tensor of a number": lambda t: t.tensor(3),
    "tensor of a NumPy array": lambda t: t.tensor(np.arange(3.0)),
    "tensor of a NumPy number": lambda t: t.tensor(np.float64(1.5)),
    "tensor of a NumPy float32": lambda t: t.tensor(np.float32(1.5)),
    "tensor of NumPy numbers": lambda t: t.tensor([np.float64(1.5), np.float64(2.5)]),
    "tensor with dtype": lambda t: t.tensor([1.7, -1.7], dtype=t.int32),
    "tensor of tensors": lambda t: t.tensor([t.tensor(1.0), t.tensor(2.0)]),
    "as_tensor": lambda t: t.as_tensor([1, 2], dtype=t.float32),
    "from_numpy": lambda t: t.from_numpy(np.arange(3, dtype=np.int16)),
    "zeros": lambda t: t.zeros(2, 3),
    "zeros of a tuple": lambda t: t.zeros((2, 3), dtype=t.int64),
    "zeros of nothing": lambda t: t.zeros(()),
    "zeros by keyword": lambda t: t.zeros(size=(2, 3)),
    "ones": lambda t: t.ones([2], dtype=t.bool),
    "full": lambda t: t.full((2,), 3),
    "full of a float": lambda t: t.full((2,), 3.5),
    "full of a bool": lambda t: t.full((2,), True),
    "full with dtype": lambda t: t.full((2,), 3, dtype=t.float64),
    "zeros_like": lambda t: t.zeros_like(t.ones(2, dtype=t.int32)),
    "zeros_like with dtype": lambda t: t.zeros_like(t.ones(2), dtype=t.int32),
    "ones_like": lambda t: t.ones_like(t.zeros(2, 2)),
    "full_like": lambda t: t.full_like(t.zeros(2), 7.5),
    "full_like of integers": lambda t: t.full_like(t.zeros(2, dtype=t.int64), 7),
    "empty_like": lambda t: t.empty_like(t.zeros(2, 0)),
    "new_zeros": lambda t: t.ones(2, dtype=t.float64).new_zeros(3),
    "new_ones": lambda t: t.ones(2).new_ones((3, 1)),
    "new_full": lambda t: t.ones(2).new_full((3,), 2),
    "new_tensor": lambda t: t.ones(2, dtype=t.float64).new_tensor([1, 2]),
    "arange": lambda t: t.arange(5),
    "arange from": lambda t: t.arange(2, 5),
    "arange by": lambda t: t.arange(1, 10, 3),
    "arange down": lambda t: t.arange(5, 0, -2),
    "arange of floats": lambda t: t.arange(0.0, 1.0, 0.25),
    "arange of a float": lambda t: t.arange(2.5),
    "arange with dtype": lambda t: t.arange(3, dtype=t.float64),
    "arange in tenths": lambda t: t.arange(0, 1, 0.1),
    "arange of nothing": lambda t: t.arange(0),
    "linspace": lambda t: t.linspace(0, 1, 5),
    "linspace in float64": lambda t: t.linspace(-3, 10, 7, dtype=t.float64),
    "linspace of one": lambda t: t.linspace(2, 3, 1),
    "linspace of none": lambda t: t.linspace(2, 3, 0),
    "linspace of integers": lambda t: t.linspace(0, 10, 4, dtype=t.int64),
    "logspace": lambda t: t.logspace(0, 2, 3),
    "logspace to base 2": lambda t: t.logspace(0, 3, 4, base=2.0, dtype=t.float64),
    "eye": lambda t: t.eye(3),
    "eye of two sizes": lambda t: t.eye(2, 3, dtype=t.int64),
    "tril_indices": lambda t: t.tril_indices(3, 4, 1),
    "triu_indices": lambda t: t.triu_indices(3, 3),
    "meshgrid": lambda t: t.meshgrid(t.arange(2), t.arange(3), indexing="ij"),
    "meshgrid, xy": lambda t: t.meshgrid(t.arange(2), t.arange(3), indexing="xy"),
    "numel": lambda t: t.zeros(2, 3).numel(),
    "casts": lambda t: [
        t.tensor([1.7, -1.7, 0.0]).to(d)
        for d in (t.int8, t.int64, t.bool, t.float16, t.bfloat16, t.float64)
    ],
    "cast methods": lambda t: (
        lambda x: [x.long(), x.int(), x.short(), x.char(), x.bool(), x.half(), x.double()]
    )(t.tensor([1.5, 2.5])),
    "type_as": lambda t: t.ones(2).type_as(t.zeros(1, dtype=t.int64)),
    "to like": lambda t: t.ones(2).to(t.zeros(1, dtype=t.float64)),
    "fill_": lambda t: t.zeros(2).fill_(3),
    "zero_": lambda t: t.ones(2).zero_(),
    "copy_": lambda t: t.zeros(2, 2).copy_(t.tensor([1, 2])),
    "clone": lambda t: t.ones(2).clone(),
    "sizes": lambda t: [
        *t.zeros(2, 3).size(), t.zeros(2, 3).size(-1), t.zeros(2, 3).dim(), *t.zeros(2, 3).stride(),
    ],
    "element_size": lambda t: t.zeros(2, dtype=t.float16).element_size(),
    "tolist": lambda t: t.tensor([[1, 2], [3, 4]]).tolist(),
    "item": lambda t: t.tensor([2.5]).item(),
    "nonzero": lambda t: t.tensor([[0, 1], [2, 0]]).nonzero(),
    "nonzero as a tuple": lambda t: t.tensor([[0, 1], [2, 0]]).nonzero(as_tuple=True),
    "argwhere": lambda t: t.argwhere(t.tensor([[0, 1], [2, 0]])),
    "where of a condition": lambda t: t.where(t.tensor([True, False, True])),
    "promote_types": lambda t: str(t.promote_types(t.int64, t.float16)).split(".")[1],
    "finfo": lambda t: [t.finfo(t.float32).eps, t.finfo(t.bfloat16).max, t.finfo(t.float16).tiny],
    "iinfo": lambda t: [t.iinfo(t.int8).max, t.iinfo(t.int64).min],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    assert_all_same(CALLS[name](tapegrad), CALLS[name](torch), name)


REFUSED: dict[str, Any] = {
    "ragged": lambda t: t.tensor([[1, 2], [3]]),
    "text": lambda t: t.tensor("a"),
    "a negative size": lambda t: t.zeros(-1),
    "arange away": lambda t: t.arange(0, 5, -1),
    "arange by 0": lambda t: t.arange(0, 5, 0),
    "linspace of -1": lambda t: t.linspace(0, 1, -1),
    "randint of nothing": lambda t: t.randint(5, 5, (2,)),
    "gradients of integers": lambda t: t.tensor([1], requires_grad=True),
    "an unknown keyword": lambda t: t.zeros(2, colour=1),
    "multinomial of too many": lambda t: t.multinomial(t.tensor([1.0, 1.0]), 3),
    "multinomial of negative": lambda t: t.multinomial(t.tensor([1.0, -1.0]), 1),
    "from_numpy of a list": lambda t: t.from_numpy([1, 2]),
    "from_numpy of complex as text": lambda t: t.from_numpy(np.array(["a"])),
    "size of a wrong dim": lambda t: t.zeros(2).size(1),
    "size of a number": lambda t: t.zeros(()).size(0),
    "eye of -1": lambda t: t.eye(-1),
    "copy_ of a wrong shape": lambda t: t.zeros(2).copy_(t.zeros(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # which one is what we ask
        REFUSED[name](torch)
    with pytest.raises(Exception) as ours:  # noqa: PT011
        REFUSED[name](tapegrad)
    assert ours.type is theirs.type, f"{ours.value!r} instead of {theirs.value!r}"


def test_random_shapes_and_ranges() -> None:
    tapegrad.manual_seed(0)
    x = tapegrad.rand(1000)
    assert (x >= 0).all()
    assert (x < 1).all()
    assert abs(x.mean().item() - 0.5) < 0.05
    y = tapegrad.randn(10000, dtype=tapegrad.float64)
    assert abs(y.mean().item()) < 0.05
    assert abs(y.std().item() - 1) < 0.05
    n = tapegrad.randint(-2, 3, (1000,))
    assert n.dtype is tapegrad.int64
    assert set(n.tolist()) == {-2, -1, 0, 1, 2}
    assert sorted(tapegrad.randperm(10).tolist()) == list(range(10))
    assert tapegrad.bernoulli(tapegrad.full((1000,), 0.25)).mean().item() == pytest.approx(
        0.25, abs=0.06
    )
    drawn = tapegrad.multinomial(tapegrad.tensor([[0.0, 1.0, 3.0]]), 1000, replacement=True)
    assert (drawn == 2).float().mean().item() == pytest.approx(0.75, abs=0.06)
    assert sorted(tapegrad.multinomial(tapegrad.ones(4), 4).tolist()) == [0, 1, 2, 3]
    z = tapegrad.zeros(1000).uniform_(2, 4)
    assert 2 <= z.min().item() <= z.max().item() < 4
    assert tapegrad.zeros(1000).normal_(3, 0.1).mean().item() == pytest.approx(3, abs=0.05)
    assert tapegrad.normal(2.0, 0.1, (500,)).mean().item() == pytest.approx(2, abs=0.05)
    assert tapegrad.rand_like(y).dtype is tapegrad.float64
    assert tapegrad.randn(3, dtype=tapegrad.bfloat16).dtype is tapegrad.bfloat16
    assert tapegrad.rand(3, dtype=tapegrad.float16).dtype is tapegrad.float16


def test_the_same_seed_gives_the_same_numbers() -> None:
    def draw() -> Any:
        tapegrad.manual_seed(7)
        return [
            tapegrad.rand(5).tolist(),
            tapegrad.randn(3).tolist(),
            tapegrad.randperm(4).tolist(),
        ]

    assert draw() == draw()
    own = tapegrad.Generator().manual_seed(7)
    tapegrad.manual_seed(7)
    assert tapegrad.rand(5, generator=own).tolist() == tapegrad.rand(5).tolist()
