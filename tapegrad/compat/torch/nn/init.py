"""`torch.nn.init`: private functions that packages call for their own initialization."""

from __future__ import annotations

from typing import Any

from ....autograd import no_grad
from ....nn import init


def _no_grad_uniform_(tensor: Any, a: float, b: float, generator: Any = None) -> Any:
    return init.uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor: Any, mean: float, std: float, generator: Any = None) -> Any:
    return init.normal_(tensor, mean, std, generator)


def _no_grad_trunc_normal_(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Any:
    return init.trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor: Any, val: float) -> Any:
    with no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Any) -> Any:
    with no_grad():
        return tensor.zero_()
