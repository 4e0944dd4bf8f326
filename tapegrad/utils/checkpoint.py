"""The place where PyTorch keeps `checkpoint`, which warns there if `use_reentrant` is not given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..autograd import checkpointing
from ..autograd.checkpointing import set_checkpoint_debug_enabled, set_checkpoint_early_stop


def _warn(what: str) -> None:
    warnings.warn(
        f"torch.utils.{what}: the use_reentrant parameter should be passed explicitly. Here both "
        "values mean the same",
        stacklevel=3,
    )


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """`tapegrad.checkpoint`: run a function, and run it again in backward instead of saving."""
    if use_reentrant is None:
        _warn("checkpoint")
    return checkpointing.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of functions in `segments` checkpointed pieces."""
    if use_reentrant is None:
        _warn("checkpoint_sequential")
    return checkpointing.checkpoint_sequential(functions, segments, input, use_reentrant, **kwargs)


__all__ = [
    "checkpoint",
    "checkpoint_sequential",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]
