"""`torch.backends.cuda`: settings of attention kernels; the one kernel here is always used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_allowed = {"flash": True, "math": True, "mem_efficient": True, "cudnn": True}


def enable_flash_sdp(enabled: bool) -> None:
    """Store the setting; it has no effect: attention has one kernel."""
    _allowed["flash"] = bool(enabled)


def flash_sdp_enabled() -> bool:
    """The stored setting."""
    return _allowed["flash"]


def enable_math_sdp(enabled: bool) -> None:
    """Store the setting; it has no effect: attention has one kernel."""
    _allowed["math"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """The stored setting."""
    return _allowed["math"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Store the setting; it has no effect: attention has one kernel."""
    _allowed["mem_efficient"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """The stored setting."""
    return _allowed["mem_efficient"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Store the setting; it has no effect: attention has one kernel."""
    _allowed["cudnn"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """The stored setting."""
    return _allowed["cudnn"]


def is_flash_attention_available() -> bool:
    """False: PyTorch's kernel of this name does not exist here."""
    return False


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[str, Any]]:
    """Inside, change the settings; only what the functions above return depends on them."""
    before = dict(_allowed)
    _allowed.update(
        flash=bool(enable_flash),
        math=bool(enable_math),
        mem_efficient=bool(enable_mem_efficient),
        cudnn=bool(enable_cudnn),
    )
    try:
        yield {}
    finally:
        _allowed.update(before)
