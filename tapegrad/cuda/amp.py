"""Deprecated names of `tapegrad.amp` for GPUs, as in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

from .. import amp
from ..core.dtypes import float16


def _deprecated(name: str) -> None:
    warnings.warn(
        f"tapegrad.cuda.amp.{name}(...) is deprecated: use tapegrad.amp.{name} for 'cuda'",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """Deprecated name of `autocast("cuda", ...)`."""

    def __init__(
        self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True
    ) -> None:
        _deprecated("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """Deprecated name of `GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """Deprecated name of `custom_fwd(..., device_type="cuda")`."""
    _deprecated("custom_fwd")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """Deprecated name of `custom_bwd(..., device_type="cuda")`."""
    _deprecated("custom_bwd")
    return amp.custom_bwd(bwd, device_type="cuda")


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
