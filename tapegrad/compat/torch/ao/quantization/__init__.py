"""`torch.ao.quantization`: stubs work as in PyTorch before conversion; all else raises."""

from __future__ import annotations

from typing import Any

from .....nn.module import Module
from ....absent import absent, absent_class

_INSTEAD = "there are no quantized tensors; use the floating-point model"

QConfig = absent_class("torch.ao.quantization.QConfig", _INSTEAD)
FakeQuantizeBase = absent_class("torch.ao.quantization.FakeQuantizeBase", _INSTEAD, Module)
FakeQuantize = absent_class("torch.ao.quantization.FakeQuantize", _INSTEAD, FakeQuantizeBase)
ObserverBase = absent_class("torch.ao.quantization.ObserverBase", _INSTEAD, Module)

_FUNCTIONS = (
    *("convert", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig"),
    *("get_default_qconfig", "prepare", "prepare_qat", "propagate_qconfig_", "quantize"),
    *("quantize_dynamic", "quantize_qat"),
)
globals().update({n: absent(f"torch.ao.quantization.{n}", _INSTEAD) for n in _FUNCTIONS})


class QuantStub(Module):
    """Marks where a converted model would quantize; returns its input."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(Module):
    """Marks where a converted model would dequantize; returns its input."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class QuantWrapper(Module):
    """A module between two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.dequant = DeQuantStub()
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, x: Any) -> Any:
        return self.dequant(self.module(self.quant(x)))
