"""Parameter: a tensor that a Module lists among its parameters when it becomes an attribute."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor, own


class Parameter(Tensor):
    """A leaf that is trained: it requires gradients unless told otherwise.

    >>> import tapegrad
    >>> tapegrad.nn.Parameter(tapegrad.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        if isinstance(data, Tensor):
            own(data)
        super().__init__(data, requires_grad=requires_grad)


class Buffer(Tensor):
    """A tensor that a Module lists among its buffers when it becomes an attribute."""

    def __init__(self, data: Any = (), *, persistent: bool = True) -> None:
        if isinstance(data, Tensor):
            own(data)
        super().__init__(data)
        self.persistent = persistent
