"""Paths by which PyTorch code imports layers and their helpers."""

from __future__ import annotations

import importlib

import pytest

import tapegrad as tg
from tapegrad import nn

PATHS = [
    ("nn.modules.transformer", "TransformerEncoder"),
    ("nn.modules.transformer", "TransformerEncoderLayer"),
    ("nn.modules.activation", "MultiheadAttention"),
    ("nn.modules.activation", "ReLU"),
    ("nn.modules.batchnorm", "_BatchNorm"),
    ("nn.modules.batchnorm", "BatchNorm2d"),
    ("nn.modules.container", "ModuleList"),
    ("nn.modules.conv", "Conv2d"),
    ("nn.modules.dropout", "Dropout"),
    ("nn.modules.instancenorm", "_InstanceNorm"),
    ("nn.modules.linear", "Linear"),
    ("nn.modules.loss", "_Loss"),
    ("nn.modules.loss", "CrossEntropyLoss"),
    ("nn.modules.module", "Module"),
    ("nn.modules.normalization", "LayerNorm"),
    ("nn.modules.pooling", "MaxPool2d"),
    ("nn.modules.rnn", "LSTM"),
    ("nn.modules.rnn", "RNNBase"),
    ("nn.modules.sparse", "Embedding"),
    ("nn.modules.utils", "_pair"),
    ("nn.modules", "Module"),
    ("nn.parameter", "Parameter"),
    ("nn.common_types", "_size_2_t"),
    ("nn.attention", "sdpa_kernel"),
    ("nn.functional", "scaled_dot_product_attention"),
    ("nn.init", "xavier_uniform_"),
    ("utils.checkpoint", "checkpoint"),
    ("autograd", "Function"),
    ("optim.lr_scheduler", "LambdaLR"),
]


@pytest.mark.parametrize(("module", "name"), PATHS)
def test_paths(module: str, name: str) -> None:
    found = getattr(importlib.import_module(f"tapegrad.{module}"), name)
    public = getattr(nn, name, None)
    assert public is None or found is public


def test_layers_by_path() -> None:
    assert isinstance(nn.BatchNorm2d(3), nn.modules.batchnorm._BatchNorm)
    assert not isinstance(nn.Linear(3, 2), nn.modules.batchnorm._BatchNorm)
    assert "LSTM" in dir(nn.modules.rnn)
    with pytest.raises(ImportError, match="Nothing"):
        from tapegrad.nn.modules.conv import Nothing  # noqa: F401
    with pytest.raises(AttributeError, match="no layer 'Nothing'"):
        _ = nn.modules.conv.Nothing
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tapegrad.nn.modules.nothing")


def test_sizes() -> None:
    from tapegrad.nn.modules.utils import _ntuple, _pair, _reverse_repeat_tuple, _single

    assert _pair(3) == (3, 3)
    assert _pair([1, 2]) == (1, 2)
    assert _single(1) == (1,)
    assert _ntuple(4)(0) == (0, 0, 0, 0)
    assert _reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)


def test_choice_of_attention_kernels() -> None:
    from tapegrad.nn.attention import SDPBackend, sdpa_kernel

    x = tg.ones(1, 2, 3, 4)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        assert nn.functional.scaled_dot_product_attention(x, x, x).shape == (1, 2, 3, 4)
    with pytest.raises(TypeError, match="SDPBackend"), sdpa_kernel("math"):
        pass
