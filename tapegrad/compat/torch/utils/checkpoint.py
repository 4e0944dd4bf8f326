"""`torch.utils.checkpoint`: helpers that packages use."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .... import random
from ....core.tensor import Tensor


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The GPU indices of the arguments and their generator states; empty for CPU tensors."""
    found = {x.device.index or 0 for x in args if isinstance(x, Tensor) and x.device.type == "cuda"}
    devices = sorted(found)
    return devices, [random.get_rng_state() for _ in devices]


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Restore the states of `get_device_states`; one generator serves all devices."""
    for state in list(states)[:1]:
        random.set_rng_state(state)


def check_backward_validity(inputs: Any) -> None:
    """Warn if none of the inputs requires gradients."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("none of the inputs requires gradients: there will be none", stacklevel=2)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Detached tensors that require gradients if the originals do."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"detach_variable needs a tuple, got {type(inputs).__name__}")
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
    )


def noop_context_fn() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """A `context_fn` of a checkpoint that has no effect on the call or its rerun."""
    return nullcontext(), nullcontext()
