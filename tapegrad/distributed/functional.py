"""`tapegrad.distributed.functional`: collectives that return new tensors and have gradients.

The functions of the op table for this namespace, with the group of all ranks as default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtypes import DType, get_default_dtype
from ..core.modes import GRAD, STATE
from ..core.tensor import Tensor, wrap
from ..ops import public_functions
from ..ops.collective import conjugate, moving, reducing  # noqa: F401  # which enter the table
from .process_group import is_initialized, resolved


def _with_default(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the group of all ranks the default of a collective."""
    parameters = list(inspect.signature(function).parameters)
    at = parameters.index("group")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= at and kwargs.get("group") is None and is_initialized():
            kwargs["group"] = resolved(None)
        elif kwargs.get("group", 0) is None:
            kwargs.pop("group")
        return function(*args, **kwargs)

    return call


_FUNCTIONS = {k: _with_default(f) for k, f in public_functions("distributed.functional").items()}
globals().update(_FUNCTIONS)


def send(input: Tensor, dst: int, tag: int = 0, group: Any = None) -> Tensor:
    """Send a tensor to a member of a group; returns a zero.

    Add the zero to this rank's loss: its backward pass then waits for the gradient that the
    receiver's backward pass sends.
    """
    group = resolved(group)
    moving.check_member(dst, group)
    token: Tensor = moving.send_(input, target=dst, tag=tag, group=group)
    return token


def receive(
    shape: tuple[int, ...],
    src: int,
    dtype: DType | None = None,
    tag: int = 0,
    group: Any = None,
) -> Tensor:
    """Receive a tensor from a member of a group; its gradient is sent back.

    While recording is on, a floating tensor requires gradients: the sender's backward pass waits
    for its gradient.
    """
    group = resolved(group)
    moving.check_member(src, group)
    token = wrap(np.zeros((), (dtype or get_default_dtype()).numpy))
    if STATE.mode & GRAD and token.dtype.is_floating_point:
        token.requires_grad_()
    found: Tensor = moving.receive_(token, shape=tuple(shape), source=src, tag=tag, group=group)
    return found


__all__ = sorted([*_FUNCTIONS, "receive", "send"])
