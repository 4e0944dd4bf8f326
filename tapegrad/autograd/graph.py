"""The names of `torch.autograd.graph`.

Used by programs written for PyTorch. The library itself imports them from where they are defined.
"""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .checkpointing import saved_tensors_hooks

__all__ = ["save_on_cpu", "saved_tensors_hooks"]


class save_on_cpu(saved_tensors_hooks):
    """A context in which tensors that backward needs are kept on the CPU until it needs them.

    >>> import tapegrad
    >>> from tapegrad.autograd.graph import save_on_cpu
    >>> x = tapegrad.tensor([2.0], requires_grad=True)
    >>> with save_on_cpu():
    ...     y = x * x
    >>> y.backward()[x]
    tensor([4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            return tensor.device, tensor.cpu()

        def unpack(packed: Any) -> Tensor:
            where, tensor = packed
            moved: Tensor = tensor.to(where)
            return moved

        super().__init__(pack, unpack)
