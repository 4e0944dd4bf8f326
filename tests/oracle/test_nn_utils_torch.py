"""nn.utils and nn.init against PyTorch: weights from the same state, packed sequences."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from test_nn_torch import RNG
from torch_oracle import assert_same, to_torch

import tapegrad
from tapegrad import nn


def apply(library: Any, name: str, layer: Any, **options: Any) -> Any:
    """`nn.utils.name`, or `nn.utils.parametrizations.name` after a dot."""
    home = library.nn.utils
    if name.startswith("."):
        home = __import__(f"{library.__name__}.nn.utils.parametrizations", fromlist=["x"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would rather have its newer forms
        return getattr(home, name.removeprefix("."))(layer, **options)


LAYERS: list[tuple[Any, tuple[int, ...]]] = [
    (lambda n: n.Linear(4, 3), (5, 4)),
    (lambda n: n.Linear(3, 4), (5, 3)),
    (lambda n: n.Conv2d(2, 3, 2), (2, 2, 4, 4)),
]
NORMS: list[tuple[str, dict[str, Any]]] = [
    ("weight_norm", {}),
    ("weight_norm", {"dim": 1}),
    ("weight_norm", {"dim": None}),
    ("spectral_norm", {}),
    ("spectral_norm", {"n_power_iterations": 3, "dim": 1}),
    (".weight_norm", {}),
    (".weight_norm", {"dim": 1}),
    (".spectral_norm", {}),
    (".spectral_norm", {"n_power_iterations": 3, "dim": 1}),
]
ORTHOGONAL = [
    (".orthogonal", {"orthogonal_map": kind, "use_trivialization": trivial})
    for kind in ("matrix_exp", "cayley", "householder")
    for trivial in (True, False)
]


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize(("name", "options"), NORMS + ORTHOGONAL, ids=str)
def test_normalized_weights(layer: int, name: str, options: dict[str, Any]) -> None:
    """The same keys, and from the same state the same outputs, gradients, buffers and steps."""
    make, shape = LAYERS[layer]
    if name == ".orthogonal" and layer == 2:
        make, shape = (lambda n: n.Linear(3, 3)), (5, 3)
    torch.manual_seed(0)
    ours = apply(tapegrad, name, make(nn).double(), **options)
    theirs = apply(torch, name, make(torch.nn).double(), **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += (
                torch.tensor(RNG.normal(size=tuple(parameter.shape)) * 0.3).tril(-1)
                if (parameter.ndim == 2)
                else torch.tensor(RNG.normal(size=tuple(parameter.shape)) * 0.3)
            )
    state = {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    for _ in range(3):
        x = RNG.normal(size=shape)
        out, expected = ours(tapegrad.tensor(x)), theirs(torch.tensor(x))
        assert_same(out, expected, name, 100.0 if name == ".orthogonal" else 1.0)
        ours.zero_grad()
        theirs.zero_grad()
        (out**3).sum().backward()
        (expected**3).sum().backward()
        for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert_same(p.grad, q.grad, f"{name} {key}", 10 * float(q.grad.abs().max()))
            with torch.no_grad(), tapegrad.no_grad():
                q -= 1e-3 * q.grad
                p -= 1e-3 * p.grad
    for (key, a), b in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert_same(a, b, f"{name} {key}")
    ours.eval()
    theirs.eval()
    assert_same(ours(tapegrad.tensor(x)), theirs(torch.tensor(x)), name, 100.0)


def test_texts_of_parametrized_layers() -> None:
    mine = apply(tapegrad, ".weight_norm", nn.Linear(2, 3))
    theirs = apply(torch, ".weight_norm", torch.nn.Linear(2, 3))
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 5, 1, 5]])
def test_packed_sequences(batch_first: bool, lengths: list[int]) -> None:
    ordered = lengths == sorted(lengths, reverse=True)
    x = tapegrad.tensor(RNG.normal(size=(4, 5, 2) if batch_first else (5, 4, 2))).requires_grad_()
    y = to_torch(x)
    mine = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, ordered)
    theirs = torch.nn.utils.rnn.pack_padded_sequence(y, lengths, batch_first, ordered)
    for a, b in zip(mine, theirs, strict=True):
        if b is None:
            assert a is None
        elif not b.is_floating_point():
            assert a.tolist() == b.tolist()
        else:
            assert_same(a, b, "packed")
    for options in ({}, {"padding_value": 2.5, "total_length": 7}):
        a, n = nn.utils.rnn.pad_packed_sequence(mine, batch_first, **options)
        b, m = torch.nn.utils.rnn.pad_packed_sequence(theirs, batch_first, **options)
        assert_same(a, b, "padded")
        assert n.tolist() == m.tolist()
        weights = RNG.normal(size=tuple(b.shape))
        (g,) = tapegrad.autograd.grad((a * tapegrad.tensor(weights)).sum(), [x], retain_graph=True)
        (h,) = torch.autograd.grad((b * torch.tensor(weights)).sum(), [y], retain_graph=True)
        assert_same(g, h, "gradient of padded")
    rows = [RNG.normal(size=(n, 2)) for n in lengths]
    for side in ("left", "right"):
        assert_same(
            nn.utils.rnn.pad_sequence(list(map(tapegrad.tensor, rows)), batch_first, 1.5, side),
            torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first, 1.5, side),
            side,
        )


@pytest.mark.parametrize("bias", [True, False])
def test_fused_layers(bias: bool) -> None:
    conv = torch.nn.Conv2d(3, 4, 2, bias=bias).double()
    norm = torch.nn.BatchNorm2d(4).double()
    norm(conv(torch.randn(5, 3, 4, 4).double()))
    ours, normal = nn.Conv2d(3, 4, 2, bias=bias).double(), nn.BatchNorm2d(4).double()
    for a, b in ((ours, conv), (normal, norm)):
        a.load_state_dict({k: tapegrad.tensor(v.numpy()) for k, v in b.state_dict().items()})
    mine = nn.utils.fuse_conv_bn_eval(ours.eval(), normal.eval())
    theirs = torch.nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
    assert_same(mine.weight, theirs.weight, "weight")
    assert_same(mine.bias, theirs.bias, "bias")


def test_first_values_without_chance() -> None:
    for shape, groups in (((4, 2, 3), 1), ((4, 2, 3, 4), 2), ((6, 3, 2, 2, 3), 3)):
        mine = nn.init.dirac_(tapegrad.empty(*shape), groups)
        assert_same(mine, torch.nn.init.dirac_(torch.empty(*shape), groups), "dirac_")
    for name in (
        *("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose3d"),
        *("sigmoid", "tanh", "relu", "leaky_relu", "selu"),
    ):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 2) == torch.nn.init.calculate_gain("leaky_relu", 2)


def test_clipped_gradients() -> None:
    for kind in (1.0, 2.0, 3.0, float("inf")):
        arrays = [RNG.normal(size=shape) for shape in ((3, 4), (5,), ())]
        mine = [tapegrad.tensor(a).requires_grad_() for a in arrays]
        theirs = [torch.tensor(a).requires_grad_() for a in arrays]
        for p, q in zip(mine, theirs, strict=True):
            g = RNG.normal(size=tuple(q.shape))
            p.grad, q.grad = tapegrad.tensor(g), torch.tensor(g)
        a = nn.utils.clip_grad_norm_(mine, 0.5, kind)
        b = torch.nn.utils.clip_grad_norm_(theirs, 0.5, kind)
        assert_same(a, b, "norm")
        total = nn.utils.get_total_norm([p.grad for p in mine], kind)
        assert_same(total, torch.nn.utils.get_total_norm([q.grad for q in theirs], kind), "total")
        nn.utils.clip_grads_with_norm_(mine, 0.1, total)
        torch.nn.utils.clip_grads_with_norm_(theirs, 0.1, to_torch(total))
        nn.utils.clip_grad_value_(mine, 0.02)
        torch.nn.utils.clip_grad_value_(theirs, 0.02)
        for p, q in zip(mine, theirs, strict=True):
            assert_same(p.grad, q.grad, "clipped")


def test_matrix_functions() -> None:
    x = RNG.normal(size=(2, 4, 4))
    for mine, theirs in (
        (tapegrad.matrix_exp, torch.matrix_exp),
        (tapegrad.inverse, torch.inverse),
    ):
        a, b = tapegrad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        out, expected = mine(a), theirs(b)
        assert_same(out, expected, theirs.__name__, 10.0)
        weights = RNG.normal(size=x.shape)
        out.backward(tapegrad.tensor(weights))
        expected.backward(torch.tensor(weights))
        size = float(b.grad.abs().max())
        assert_same(a.grad, b.grad, theirs.__name__, 100 * size)
    assert np.isfinite(tapegrad.matrix_exp(tapegrad.zeros(0, 3, 3)).numpy()).all()
