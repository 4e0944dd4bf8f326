"""Recurrent layers and cells against PyTorch's from the same state: results, gradients, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as torch_rnn
from torch_oracle import assert_all_same, assert_same, to_torch

import tapegrad
from tapegrad import Tensor, nn
from tapegrad.nn.packed import PackedSequence

RNG = np.random.default_rng(11)


def floats(*shape: int) -> Tensor:
    return tapegrad.tensor(RNG.uniform(-1.5, 1.5, shape)).requires_grad_()


def pair(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The same layer in both libraries, in float64, with the same parameters."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    ours = getattr(nn, name)(*args, **kwargs).double()
    assert repr(ours) == repr(theirs)
    state = {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return ours, theirs


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)) and not hasattr(value, "batch_sizes"):
        return [leaf for item in value for leaf in flat(item)]
    return [value.data] if hasattr(value, "batch_sizes") else [value]


def check(ours: Any, theirs: Any, *args: Any) -> None:
    """Results, and the gradients of a sum over all of them with respect to everything."""
    given = [tuple(map(to_torch, a)) if isinstance(a, tuple) else to_torch(a) for a in args]
    got, expected = flat(ours(*args)), flat(theirs(*given))
    compare(ours, theirs, got, expected, flat(list(args)), flat(given))


def compare(
    ours: Any, theirs: Any, got: Any, expected: Any, inputs: list[Any], given: list[Any]
) -> None:
    what = repr(theirs)
    assert_all_same(got, expected, what)
    weights = [RNG.normal(size=tuple(y.shape)) for y in expected]
    sum((y * tapegrad.tensor(w)).sum() for y, w in zip(got, weights, strict=True)).backward()
    sum((y * torch.tensor(w)).sum() for y, w in zip(expected, weights, strict=True)).backward()
    for x, y in zip(inputs, given, strict=True):
        if x is not None:
            assert_same(x.grad, y.grad, f"gradient of an input of {what}", 10.0)
            x.grad = None
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_same(p.grad, q.grad, f"{what}.{name}", 10.0)
        p.grad = q.grad = None


LAYERS: list[dict[str, Any]] = [
    {},
    {"num_layers": 3},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"bias": False, "num_layers": 2},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_layers(name: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(name, 3, 4, **options)
    for steps in (1, 4, 7, 21):
        first = (2, steps, 3) if ours.batch_first else (steps, 2, 3)
        check(ours, theirs, floats(*first))
    runs = ours.num_layers * (2 if ours.bidirectional else 1)
    state: Any = floats(runs, 2, 4)
    state = (state, floats(runs, 2, 4)) if name == "LSTM" else state
    check(ours, theirs, floats(*((2, 5, 3) if ours.batch_first else (5, 2, 3))), state)
    alone: Any = floats(runs, 4)
    check(ours, theirs, floats(5, 3), (alone, floats(runs, 4)) if name == "LSTM" else alone)
    check(ours, theirs, floats(5, 3))


def test_relu() -> None:
    check(*pair("RNN", 3, 4, nonlinearity="relu"), floats(5, 2, 3))
    check(*pair("RNN", 3, 4, 2, "relu", False, True), floats(5, 2, 3))


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_projections(options: dict[str, Any]) -> None:
    ours, theirs = pair("LSTM", 3, 4, proj_size=2, **options)
    first = (2, 9, 3) if ours.batch_first else (9, 2, 3)
    check(ours, theirs, floats(*first))
    runs = ours.num_layers * (2 if ours.bidirectional else 1)
    check(ours, theirs, floats(*first), (floats(runs, 2, 2), floats(runs, 2, 4)))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("options", LAYERS[:4], ids=str)
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_packed(name: str, options: dict[str, Any], ordered: bool) -> None:
    ours, theirs = pair(name, 3, 4, **options)
    lengths = [9, 9, 5, 2] if ordered else [5, 9, 2, 9]
    padded = torch.tensor(RNG.normal(size=(9, 4, 3)))
    made = torch_rnn.pack_padded_sequence(padded, lengths, enforce_sorted=ordered)
    theirs_in = made._replace(data=made.data.detach().requires_grad_())
    indices = [
        None if i is None else tapegrad.tensor(i.numpy())
        for i in (made.sorted_indices, made.unsorted_indices)
    ]
    data = tapegrad.tensor(made.data.numpy()).requires_grad_()
    ours_in = PackedSequence(data, tapegrad.tensor(made.batch_sizes.numpy()), *indices)
    runs = ours.num_layers * (2 if ours.bidirectional else 1)
    states = [floats(runs, 4, 4) for _ in range(2 if name == "LSTM" else 1)]
    given = [to_torch(s) for s in states]
    for hx, torch_hx in ((None, None), (states, given)):
        mine = hx if hx is None or name == "LSTM" else hx[0]
        other = torch_hx if torch_hx is None or name == "LSTM" else torch_hx[0]
        got, expected = ours(ours_in, mine), theirs(theirs_in, other)
        assert isinstance(got[0], PackedSequence)
        assert got[0].batch_sizes.tolist() == made.batch_sizes.tolist()
        ins, outs = [data, *(hx or [])], [theirs_in.data, *(torch_hx or [])]
        compare(ours, theirs, flat(got), flat(expected), ins, outs)
        theirs_in.data.grad = None


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(name: str, bias: bool) -> None:
    ours, theirs = pair(name, 3, 4, bias=bias)
    both = name == "LSTMCell"
    check(ours, theirs, floats(2, 3))
    check(ours, theirs, floats(3))
    check(ours, theirs, floats(2, 3), (floats(2, 4), floats(2, 4)) if both else floats(2, 4))
    check(ours, theirs, floats(3), (floats(4), floats(4)) if both else floats(4))


def test_relu_cell() -> None:
    check(*pair("RNNCell", 3, 4, nonlinearity="relu"), floats(2, 3), floats(2, 4))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_second_derivatives(name: str) -> None:
    ours, theirs = pair(name, 2, 3, bidirectional=True)
    x = floats(11, 2, 2)
    y = to_torch(x)
    (g,) = tapegrad.autograd.grad(ours(x)[0].pow(2).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(theirs(y)[0].pow(2).sum(), y, create_graph=True)
    g.pow(2).sum().backward()
    h.pow(2).sum().backward()
    assert_same(x.grad, y.grad, name, 100.0)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(p.grad, q.grad, name, 100.0)


def test_large_layers_in_float32() -> None:
    """Sizes at which native code runs."""
    for name in ("RNN", "LSTM", "GRU"):
        torch.manual_seed(1)
        theirs = getattr(torch.nn, name)(20, 24, 2, bidirectional=True)
        ours = getattr(nn, name)(20, 24, 2, bidirectional=True)
        ours.load_state_dict(
            {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
        )
        x = tapegrad.tensor(RNG.normal(size=(13, 8, 20)).astype(np.float32)).requires_grad_()
        y = to_torch(x)
        out, expected = ours(x)[0], theirs(y)[0]
        assert_same(out, expected, name, 10.0)
        out.pow(2).sum().backward()
        expected.pow(2).sum().backward()
        assert_same(x.grad, y.grad, name, 10.0)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_same(p.grad, q.grad, name, 10.0 * float(q.grad.abs().max()))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM", "LSTM of 2"])
def test_dtypes_of_layers_inside_autocast(kind: str, lower: bool, packed: bool) -> None:
    """Of results, states and gradients, for an input in float32 or in the dtype of autocast."""
    name, _, size = kind.partition(" of ")
    found = []
    for library in (torch, tapegrad):
        layer = getattr(library.nn, name)(3, 4, **({"proj_size": int(size)} if size else {}))
        x = library.ones(5, 2, 3, dtype=library.bfloat16 if lower else library.float32)
        pack = library.nn.utils.rnn.pack_padded_sequence
        with library.autocast("cpu", library.bfloat16):
            out, last = layer(pack(x, [5, 3]) if packed else x)
        results = [out.data if packed else out, *(last if name == "LSTM" else [last])]
        sum(y.float().sum() for y in results).backward()
        results += [p.grad for p in layer.parameters()]
        found.append([str(y.dtype).split(".")[-1] for y in results])
    assert found[1] == found[0]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_dtypes_of_cells_inside_autocast(name: str, lower: bool) -> None:
    found = []
    for library in (torch, tapegrad):
        cell = getattr(library.nn, name)(3, 4)
        x = library.ones(2, 3, dtype=library.bfloat16 if lower else library.float32)
        with library.autocast("cpu", library.bfloat16):
            made = cell(x)
        states = made if name == "LSTMCell" else [made]
        found.append([str(y.dtype).split(".")[-1] for y in states])
    assert found[1] == found[0]
