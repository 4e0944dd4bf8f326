"""`torch.version`: the version of the API, and what it was built with (nothing)."""

from __future__ import annotations

from .torch_version import VERSION

__version__ = VERSION
debug = False
cuda: str | None = None
git_version = "unknown"
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
