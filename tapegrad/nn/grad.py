"""Gradients of convolutions as functions, as in `torch.nn.grad`.

Comes in: the shape of the differentiated operand, the other operand, and the gradient of the
result. Goes out: the gradient, computed by the convolution's own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.api import grad
from ..core.modes import enable_grad
from . import functional as F


def _gradient(
    convolve: Callable[..., Any], of: Any, other: Any, first: bool, grad_output: Any, options: Any
) -> Any:
    with enable_grad():
        wanted = other.new_empty(tuple(of)).requires_grad_()
        operands = (wanted, other) if first else (other, wanted)
        result = convolve(*operands, None, *options)
    (found,) = grad(result, wanted, grad_output)
    return found


def _pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    convolve: Callable[..., Any] = getattr(F, name)

    def of_input(
        input_size: Sequence[int],
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        options = (stride, padding, dilation, groups)
        return _gradient(convolve, input_size, weight, True, grad_output, options)

    def of_weight(
        input: Any,
        weight_size: Sequence[int],
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        options = (stride, padding, dilation, groups)
        return _gradient(convolve, weight_size, input, False, grad_output, options)

    of_input.__name__, of_weight.__name__ = f"{name}_input", f"{name}_weight"
    of_input.__doc__ = f"The gradient of `{name}` with respect to its input, of shape `input_size`."
    of_weight.__doc__ = f"The gradient of `{name}` with respect to its filters."
    return of_input, of_weight


conv1d_input, conv1d_weight = _pair("conv1d")
conv2d_input, conv2d_weight = _pair("conv2d")
conv3d_input, conv3d_weight = _pair("conv3d")

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]
