"""Training, first values and memory of networks against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_nn_torch import RNG, floats, same_module
from torch.nn import functional as TF
from torch_oracle import assert_same, to_torch

import tapegrad
from tapegrad import nn
from tapegrad.core.storage import owner_of
from tapegrad.core.tape import saved_arrays
from tapegrad.nn import functional as F

# -- training ----------------------------------------------------------------------------------


def convolutional(n: Any) -> Any:
    return n.Sequential(
        n.Conv2d(1, 4, 3, padding=1),
        n.BatchNorm2d(4),
        n.ReLU(),
        n.MaxPool2d(2),
        n.Conv2d(4, 6, 3, padding=1),
        n.GELU(),
        n.AdaptiveAvgPool2d(2),
        n.Flatten(),
        n.LayerNorm(24),
        n.Linear(24, 5),
    )


def test_training_a_network_takes_the_same_steps() -> None:
    ours, theirs = same_module(convolutional)
    x, y = RNG.normal(size=(6, 1, 8, 8)), RNG.integers(0, 5, 6)
    for _ in range(5):
        loss = F.cross_entropy(ours(tapegrad.tensor(x)), tapegrad.tensor(y))
        expected = TF.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-9)
        ours.zero_grad()
        theirs.zero_grad()
        loss.backward()
        expected.backward()
        norm = nn.utils.clip_grad_norm_(ours.parameters(), 0.7)
        wanted = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.7)
        np.testing.assert_allclose(norm.item(), wanted.item(), rtol=1e-8)
        with tapegrad.no_grad(), torch.no_grad():
            for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
                p -= 0.1 * p.grad
                q -= 0.1 * q.grad
    for (name, p), q in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert_same(p, q, name, 100.0)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_norms_of_gradients(norm_type: float) -> None:
    values = [RNG.normal(size=s) for s in ((3, 4), (5,), ())]
    ours = nn.utils.get_total_norm([tapegrad.tensor(v) for v in values], norm_type)
    theirs = torch.nn.utils.get_total_norm([torch.tensor(v) for v in values], norm_type)
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-12)


def test_clip_grad_value_and_vectors() -> None:
    ours, theirs = same_module(lambda n: n.Linear(3, 2))
    x = floats(4, 3)
    ours(x).sum().backward()
    theirs(to_torch(x)).sum().backward()
    nn.utils.clip_grad_value_(ours.parameters(), 0.5)
    torch.nn.utils.clip_grad_value_(theirs.parameters(), 0.5)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(p.grad, q.grad, "clipped")
    vector = nn.utils.parameters_to_vector(ours.parameters())
    assert_same(vector, torch.nn.utils.parameters_to_vector(theirs.parameters()), "vector")
    nn.utils.vector_to_parameters(vector * 2, ours.parameters())
    torch.nn.utils.vector_to_parameters(to_torch(vector.detach()) * 2, theirs.parameters())
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_same(p, q, "from a vector")


# -- first values ------------------------------------------------------------------------------

INITIAL: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("uniform_", (-2.0, 3.0), {}),
    ("normal_", (1.0, 0.5), {}),
    ("trunc_normal_", (0.5, 1.0, -1.0, 1.2), {}),
    ("constant_", (0.3,), {}),
    ("ones_", (), {}),
    ("zeros_", (), {}),
    ("eye_", (), {}),
    ("xavier_uniform_", (1.5,), {}),
    ("xavier_normal_", (), {}),
    ("kaiming_uniform_", (), {"a": 0.3, "mode": "fan_out"}),
    ("kaiming_uniform_", (), {"nonlinearity": "relu"}),
    ("kaiming_normal_", (), {"nonlinearity": "relu"}),
]


def assert_same_distribution(ours: Any, theirs: Any, what: str) -> None:
    """Mean, spread and range agree within what chance allows."""
    a, b = ours.reshape(-1), theirs.reshape(-1)
    spread = max(float(b.std()), 1e-12)
    tolerance = 6 * spread / math.sqrt(len(a))
    assert abs(a.mean() - b.mean()) <= tolerance, what
    assert abs(a.std() - b.std()) <= tolerance, what
    assert abs(a.min() - b.min()) <= 1.5 * spread, what
    assert abs(a.max() - b.max()) <= 1.5 * spread, what


@pytest.mark.parametrize(("name", "args", "options"), INITIAL)
def test_initialisation(name: str, args: Any, options: Any) -> None:
    ours, theirs = tapegrad.empty(80, 120), torch.empty(80, 120)
    assert getattr(nn.init, name)(ours, *args, **options) is ours
    getattr(torch.nn.init, name)(theirs, *args, **options)
    assert_same_distribution(ours.numpy(), theirs.numpy(), name)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 2, 3)])
def test_orthogonal(shape: Any) -> None:
    matrix = nn.init.orthogonal_(tapegrad.empty(shape), gain=2.0).numpy().reshape(shape[0], -1)
    small = min(matrix.shape)
    product = matrix @ matrix.T if matrix.shape[0] == small else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(small), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "param"),
    [("linear", None), ("conv2d", None), ("sigmoid", None), ("tanh", None), ("relu", None),
     ("leaky_relu", 0.2), ("leaky_relu", None), ("selu", None)],
)  # fmt: skip
def test_gains(name: str, param: Any) -> None:
    assert nn.init.calculate_gain(name, param) == torch.nn.init.calculate_gain(name, param)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: n.Linear(200, 100),
        lambda n: n.Conv2d(16, 32, 5, groups=2),
        lambda n: n.Conv1d(16, 64, 7),
        lambda n: n.Embedding(100, 80, padding_idx=3),
        lambda n: n.Bilinear(20, 30, 15),
        lambda n: n.BatchNorm2d(30),
        lambda n: n.LayerNorm(30),
        lambda n: n.PReLU(10),
    ],
    ids=[
        "linear",
        "conv2d",
        "conv1d",
        "embedding",
        "bilinear",
        "batch norm",
        "layer norm",
        "prelu",
    ],
)
def test_layers_start_as_in_pytorch(make: Any) -> None:
    ours, theirs = make(nn).state_dict(), make(torch.nn).state_dict()
    for name, value in theirs.items():
        assert tuple(ours[name].shape) == tuple(value.shape)
        assert str(ours[name].dtype).split(".")[1] == str(value.dtype).split(".")[1]
        if value.dtype.is_floating_point:
            assert_same_distribution(ours[name].numpy(), value.numpy(), name)


# -- memory ------------------------------------------------------------------------------------


def kept_by_torch(make: Any) -> int:
    """Bytes of all storages that PyTorch saves for backward."""
    kept: dict[int, int] = {}

    def pack(x: Any) -> Any:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss = make()
    assert loss.requires_grad
    return sum(kept.values())


def kept_by_us(make: Any) -> int:
    """Bytes of all arrays that the entries behind a loss save, each memory counted once."""
    loss = make()
    seen, kept, stack = set(), {}, [loss.grad_fn]
    while stack:
        entry = stack.pop()
        if id(entry) in seen or not hasattr(entry, "saved"):
            continue
        seen.add(id(entry))
        for array in saved_arrays(entry):
            owner = owner_of(array)
            kept[id(owner)] = owner.nbytes
        stack += [node for node, _ in entry.next_functions if node is not None]
    return sum(kept.values())


def mlp(n: Any) -> Any:
    return n.Sequential(n.Flatten(), n.Linear(784, 256), n.ReLU(), n.Linear(256, 10))


def cnn(n: Any) -> Any:
    return n.Sequential(
        n.Conv2d(1, 16, 3, padding=1), n.ReLU(), n.MaxPool2d(2),
        n.Conv2d(16, 32, 3, padding=1), n.ReLU(), n.MaxPool2d(2),
        n.Flatten(), n.Linear(32 * 49, 10),
    )  # fmt: skip


def normed(n: Any) -> Any:
    return n.Sequential(
        n.Conv2d(1, 8, 3), n.BatchNorm2d(8), n.SiLU(), n.AvgPool2d(2), n.GroupNorm(2, 8), n.GELU(),
        n.Flatten(), n.LayerNorm(8 * 169), n.Linear(8 * 169, 10), n.LeakyReLU(), n.Softplus(),
    )  # fmt: skip


@pytest.mark.parametrize("make", [mlp, cnn, normed])
def test_memory_kept_for_backward_is_at_most_that_of_pytorch(make: Any) -> None:
    x, y = RNG.normal(size=(64, 1, 28, 28)).astype(np.float32), RNG.integers(0, 10, 64)
    ours, theirs = make(nn), make(torch.nn)
    inputs = torch.tensor(x), torch.tensor(y)
    mine = tapegrad.tensor(x), tapegrad.tensor(y)
    expected = kept_by_torch(lambda: TF.cross_entropy(theirs(inputs[0]), inputs[1]))
    got = kept_by_us(lambda: F.cross_entropy(ours(mine[0]), mine[1]))
    assert 0 < got <= expected
