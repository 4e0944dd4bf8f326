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


def test_modules_that_the_facade_has_too() -> None:
    paths = ("tapegrad.jit", "tapegrad.compat.torch.jit")
    first, second = (importlib.import_module(path) for path in paths)
    assert first is second is tg.jit
    assert tg.jit.__spec__.name == tg.jit.__name__ == "tapegrad.compat.torch.jit"
    names: dict[str, object] = {}
    exec("from tapegrad.hub import get_dir\nfrom tapegrad.types import Number", names)
    assert names["Number"] is tg.types.Number
    assert names["get_dir"] is tg.hub.get_dir
    with pytest.raises(ModuleNotFoundError, match=r"tapegrad\.hubs"):
        importlib.import_module("tapegrad.hubs")


def test_a_script_chooses_its_device_and_marks_its_functions() -> None:
    there = tg.accelerator.is_available()
    found = tg.accelerator.current_accelerator()
    device = found.type if found is not None else "cpu"
    assert there == (found is not None)
    assert device == ("cuda" if tg.cuda.is_available() else "cpu")

    @tg.jit.script
    def double(x: tg.Tensor) -> tg.Tensor:
        return x + x

    @tg.compiler.disable
    def half(x: tg.Tensor) -> tg.Tensor:
        return x / 2

    with tg.profiler.record_function("both"):
        assert half(double(tg.ones(2))).tolist() == [1.0, 1.0]
    assert tg.version.cuda is None
    assert not any((tg.xpu.is_available(), tg.mps.is_available(), tg.compiler.is_compiling()))
    with pytest.raises(NotImplementedError, match=r"torch.jit.trace does not exist in tapegrad"):
        tg.jit.trace(double, tg.ones(2))


def test_questions_about_gpus_without_one() -> None:
    if tg.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    assert not any((tg.cuda.is_initialized(), tg.cuda.is_bf16_supported()))
    assert tg.cuda.get_rng_state_all() == []
    with tg.cuda.device(0):
        pass
    for question in (tg.cuda.get_device_properties, tg.cuda.get_device_name):
        with pytest.raises(RuntimeError, match="needs CuPy and an NVIDIA GPU"):
            question(0)
    with pytest.raises(RuntimeError, match="needs CuPy and an NVIDIA GPU"):
        tg.cuda.set_device(0)


def test_one_generator_serves_all_devices() -> None:
    state = tg.cuda.get_rng_state()
    first = tg.rand(3)
    tg.cuda.set_rng_state(state)
    assert tg.equal(first, tg.rand(3))
    tg.cuda.manual_seed(5)
    assert tg.initial_seed() == tg.cuda.initial_seed() == 5


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
