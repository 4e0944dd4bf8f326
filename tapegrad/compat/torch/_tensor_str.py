"""`torch._tensor_str`: how tensors are printed."""

from ...core.device import CPU, to_device
from ...core.tensor import Tensor
from ...insight.tensor_text import PRINT_OPTS, _body, set_printoptions

__all__ = ["PRINT_OPTS", "set_printoptions"]


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements of a tensor, without `tensor(` and `)`."""
    return _body(to_device(self._array, CPU), indent)
