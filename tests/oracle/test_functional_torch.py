"""Activations, bags of embeddings, distances and norms against PyTorch, beyond its own samples."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from test_nn_torch import check_call, check_module, floats, labels
from torch.nn import functional as TF
from torch_oracle import assert_same, to_torch

import tapegrad
from tapegrad import nn
from tapegrad.nn import functional as F

LAYERS: list[tuple[Any, Any]] = [
    (lambda n: n.RReLU(0.1, 0.4), lambda: [floats(4, 6)]),
    (lambda n: n.Softmax2d(), lambda: [floats(2, 3, 4, 5)]),
    (lambda n: n.AlphaDropout(0.3), lambda: [floats(4, 6)]),
    (lambda n: n.FeatureAlphaDropout(0.3), lambda: [floats(4, 6, 2)]),
    (lambda n: n.Dropout3d(0.3), lambda: [floats(4, 6, 2, 1, 2)]),
    (lambda n: n.EmbeddingBag(7, 3), lambda: [labels(4, 5, classes=7)]),
    (
        lambda n: n.EmbeddingBag(7, 3, mode="max", padding_idx=-2),
        lambda: [labels(9, classes=7), tapegrad.tensor([0, 4, 4])],
    ),
    (
        lambda n: n.EmbeddingBag(7, 3, 0.9, include_last_offset=True),
        lambda: [labels(9, classes=7), tapegrad.tensor([0, 4, 4, 9])],
    ),
    (
        lambda n: n.EmbeddingBag(7, 3, mode="sum"),
        lambda: [labels(9, classes=7), tapegrad.tensor([0, 4, 4]), floats(9)],
    ),
]


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_layers_in_evaluation(number: int) -> None:
    make, arguments = LAYERS[number]
    check_module(make, *arguments(), training=False)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags(mode: str, padding: int | None) -> None:
    # PyTorch's own gradients with scale_grad_by_freq divide by the counts of other tokens.
    options = {"mode": mode, "padding_idx": padding}
    given = [
        (labels(12, classes=7), floats(7, 3), tapegrad.tensor([0, 0, 5, 12])),
        (labels(4, 3, classes=7), floats(7, 3)),
    ]
    for arguments in given:
        check_call(F.embedding_bag, TF.embedding_bag, arguments, f"{options}", **options)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_distances(p: float) -> None:
    """Many rows are compared by products of matrices; equal ones and ties are among them."""
    x, y = floats(30, 4), floats(5, 4)
    tied = tapegrad.tensor([[0.0, 0.0], [1.0, -1.0], [1.0, -1.0]]).double().requires_grad_()
    for a, b in ((x, y), (floats(2, 1, 3, 4), floats(3, 5, 4)), (tied, tied.detach())):
        check_call(tapegrad.cdist, torch.cdist, (a, b), f"cdist {p}", p=p)
    for a in (floats(6, 3), tied):
        check_call(F.pdist, TF.pdist, (a,), f"pdist {p}", p=p)


def test_softmax_without_a_dimension() -> None:
    for shape in ((4,), (3, 4), (2, 3, 4), (2, 3, 4, 2)):
        x = floats(*shape)
        for name in ("softmax", "log_softmax", "softmin"):
            with pytest.warns(UserWarning, match="dim"):
                assert_same(getattr(F, name)(x), getattr(TF, name)(to_torch(x)), name)


NORMS: list[tuple[str, Any, dict[str, Any]]] = [
    ("batch_norm", lambda: (floats(4, 3), None, None), {"training": True}),
    ("batch_norm", lambda: (floats(4, 3, 2), floats(3), floats(3, low=0.1)), {"eps": 0.1}),
    ("layer_norm", lambda: (floats(4, 3), (3,), floats(3), floats(3)), {"eps": 0.1}),
    ("layer_norm", lambda: (floats(4, 3), [4, 3]), {}),
    ("group_norm", lambda: (floats(4, 6, 2), 3, floats(6)), {"eps": 0.1}),
    ("instance_norm", lambda: (floats(2, 3, 4),), {"weight": None, "eps": 0.1}),
    ("rms_norm", lambda: (floats(4, 3), (3,), floats(3)), {"eps": 0.1}),
    ("rms_norm", lambda: (floats(4, 3), (4, 3)), {}),
    ("normalize", lambda: (floats(4, 3), 3.0, 0), {"eps": 1.5}),
]


@pytest.mark.parametrize("number", range(len(NORMS)))
def test_norms(number: int) -> None:
    name, arguments, options = NORMS[number]
    given = arguments()
    if name == "batch_norm" and given[1] is not None:
        given = (given[0], given[1].detach(), given[2].detach())
    check_call(getattr(F, name), getattr(TF, name), given, name, **options)


def test_arguments_are_those_of_pytorch() -> None:
    """Names and order of the arguments of all functions and classes of these families."""
    ours = [
        name
        for name, entry in vars(F).items()
        if callable(entry) and entry.__module__.startswith("tapegrad") and hasattr(TF, name)
    ]
    assert len(ours) > 60
    for name in ours:
        try:
            theirs = list(inspect.signature(getattr(TF, name)).parameters)
        except ValueError:  # a function of C++
            continue
        if theirs != ["args", "kwargs"]:
            assert list(inspect.signature(getattr(F, name)).parameters) == theirs, name
    for name in nn.__all__:
        kind = getattr(torch.nn, name, None)
        if inspect.isclass(kind) and "kwargs" not in inspect.signature(kind).parameters:
            mine = list(inspect.signature(getattr(nn, name)).parameters)
            assert mine == list(inspect.signature(kind).parameters), name
