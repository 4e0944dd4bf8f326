"""`torch._C`: the few names of PyTorch's C++ part that packages call without need."""

from __future__ import annotations

from typing import Any


def _log_api_usage_once(name: str) -> None:
    """Nothing to do: as in PyTorch, unless a program has set a logger."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""
    return


def _is_torch_function_enabled() -> bool:
    """Whether `__torch_function__` is asked: only of classes that have one."""
    return True


def _get_privateuse1_backend_name() -> str:
    """The name of PyTorch's device for extensions, which nothing has renamed."""
    return "privateuseone"


def _has_storage(x: Any) -> bool:
    """True: every tensor has memory."""
    return True
