"""`torch.ao.nn.quantized`: operations as modules, which work on floating-point tensors."""

from __future__ import annotations

from typing import Any

from ...... import add, cat, matmul, mul, relu
from ......nn.module import Module


class FloatFunctional(Module):
    """Operations that a converted model would run on quantized tensors."""

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not to be called; call one of its methods")

    def add(self, x: Any, y: Any) -> Any:
        """x + y"""
        return add(x, y)

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + y"""
        return add(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """x * y"""
        return mul(x, y)

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x * y"""
        return mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """The tensors concatenated along a dimension."""
        return cat(x, dim=dim)

    def add_relu(self, x: Any, y: Any) -> Any:
        """max(x + y, 0)"""
        return relu(add(x, y))

    def matmul(self, x: Any, y: Any) -> Any:
        """The matrix product."""
        return matmul(x, y)
