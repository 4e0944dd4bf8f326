"""Deprecated names of `tapegrad.amp` for the CPU, as in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

from .. import amp
from ..core.dtypes import bfloat16


def _deprecated(name: str) -> None:
    warnings.warn(
        f"tapegrad.cpu.amp.{name}(...) is deprecated: use tapegrad.amp.{name}('cpu', ...)",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """Deprecated name of `autocast("cpu", ...)`."""

    def __init__(
        self, enabled: bool = True, dtype: Any = bfloat16, cache_enabled: bool = True
    ) -> None:
        _deprecated("autocast")
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """Deprecated name of `GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


__all__ = ["GradScaler", "autocast"]
