"""Names from the five documents that tapegrad is based on, where the names here differ.

Everything is an alias or a few lines over the library's own functions. The page
`docs/coming-from-the-five-documents.md` maps every name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .autograd.api import queue_callback
from .autograd.function import custom_op
from .autograd.gradients import GradientMap, Gradients
from .core.dtypes import finfo
from .core.modes import STATE, no_grad
from .core.tape import FREED, GradientTape, Tape
from .core.tensor import Tensor
from .debug import live_entries
from .insight.memory import MemoryStats, memory_stats
from .nn import functional as F
from .nn.utils import clip_grad_norm_, clip_grad_value_
from .ops.creation import as_tensor
from .optim import SGD, Adam, AdamW, RMSprop
from .testing import gradcheck

# -- Variable (ML Odyssey) -----------------------------------------------------------------------


class _Engine:
    """PyTorch's `_execution_engine`: calls a function at the end of a backward pass."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        queue_callback(callback)


_ENGINE = _Engine()


class _VariableType(type):
    """A call makes a Tensor, and every Tensor is an instance."""

    def __call__(cls, data: Any, requires_grad: bool = False) -> Tensor:
        shared = data.detach() if isinstance(data, Tensor) else data
        made = shared if isinstance(shared, Tensor) else as_tensor(shared)
        return made.requires_grad_(requires_grad)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    @property
    def _execution_engine(cls) -> Any:
        return _ENGINE


class Variable(metaclass=_VariableType):
    """`Variable(data, requires_grad=False)`: a Tensor that shares the data and has no history.

    >>> import tapegrad
    >>> x = Variable(tapegrad.ones(2), requires_grad=True)
    >>> grads = (x * 3).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """


# -- gradients as a mapping (ML Odyssey, FLAME) --------------------------------------------------


def accumulate_gradients(gradients: Gradients, total: Gradients | None = None) -> Gradients:
    """Add one call's gradients to a running total, which is returned.

    Not needed for tensors that require gradients: their `.grad` is a running total already.
    """
    return (Gradients() if total is None else total).merge(gradients)


class GradientClipper:
    """Limits the norm of a mapping of gradients; `.grad` of the tensors is unchanged."""

    def __init__(self, max_norm: float, norm_type: float = 2.0) -> None:
        if not max_norm >= 0:
            raise ValueError(f"max_norm must be 0 or more, got {max_norm}")
        self.max_norm = float(max_norm)
        self.norm_type = norm_type

    def clip_grads(self, gradients: Gradients) -> Gradients:
        """Scale all gradients by the same factor if their norm is above `max_norm`."""
        if not gradients:
            return gradients
        factor: Any = self.max_norm / (gradients.norm(self.norm_type) + 1e-6)
        return gradients.scale_(factor.clamp(max=1.0))


clip_grad_norm = clip_grad_norm_
clip_grad_value = clip_grad_value_

# -- everything that is recorded (FLAME) ---------------------------------------------------------


class AutogradContext:
    """All recorded operations of the process."""

    @staticmethod
    def no_grad() -> Any:
        """A context in which nothing is recorded."""
        return no_grad()

    @staticmethod
    def clear() -> None:
        """Free the values that recorded operations saved for backward; empty this thread's tapes.

        `.grad` is not touched: `optimizer.zero_grad()` does that.
        """
        for tape in STATE.tapes:
            tape.clear()
        for entry in live_entries():
            if entry.saved:
                entry.saved = FREED

    @staticmethod
    def memory_stats() -> MemoryStats:
        """The memory that recorded operations keep for backward, such as `saved_memory_mb`."""
        return memory_stats(live_entries())


CustomOp = custom_op

# -- losses --------------------------------------------------------------------------------------

mse_loss = mean_squared_error = F.mse_loss
binary_cross_entropy = F.binary_cross_entropy
cross_entropy = F.cross_entropy


def cross_entropy_loss(
    input: Tensor, target: Tensor, *, from_logits: bool = True, **options: Any
) -> Any:
    """Cross entropy of logits or, with `from_logits=False`, of the probabilities of a softmax.

    `target` has class indices, or one row of probabilities (such as a one-hot row) for each input.
    """
    if not from_logits:
        # The softmax of log(p) is p itself. The bound keeps log and its gradient finite at 0.
        bounded: Any = input.clamp(min=finfo(input.dtype).tiny)
        input = bounded.log()
    return F.cross_entropy(input, target, **options)


# -- checking by hand (FLAME) --------------------------------------------------------------------


def add_at_index(x: Tensor, index: int, value: float) -> Tensor:
    """A copy with `value` added to the element at a flat index."""
    if not -x.numel() <= index < x.numel():
        raise IndexError(f"index {index} is out of range for a tensor of {x.numel()} elements")
    out: Any = x.clone().reshape(-1)
    out[index] += value
    return out.reshape(x.shape)  # type: ignore[no-any-return]


def sub_at_index(x: Tensor, index: int, value: float) -> Tensor:
    """A copy with `value` taken from the element at a flat index."""
    return add_at_index(x, index, -value)


def check_gradients(function: Any, x: Tensor, eps: float = 1e-6) -> bool:
    """Compare the gradient of `function` at `x` with central differences; True if they agree."""
    point = x if x.requires_grad else x.detach().requires_grad_()
    return gradcheck(function, point, eps=eps)


__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "AutogradContext",
    "CustomOp",
    "GradientClipper",
    "GradientMap",
    "GradientTape",
    "RMSprop",
    "Tape",
    "Variable",
    "accumulate_gradients",
    "add_at_index",
    "binary_cross_entropy",
    "check_gradients",
    "clip_grad_norm",
    "clip_grad_value",
    "cross_entropy",
    "cross_entropy_loss",
    "mean_squared_error",
    "mse_loss",
    "sub_at_index",
]
