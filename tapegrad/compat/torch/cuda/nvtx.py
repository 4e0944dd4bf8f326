"""`torch.cuda.nvtx`: markers for NVIDIA's profiler, which raise as in PyTorch without CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...absent import absent

_INSTEAD = "use torch.profiler, or cupy.cuda.nvtx"

mark = absent("torch.cuda.nvtx.mark", _INSTEAD)
range_end = absent("torch.cuda.nvtx.range_end", _INSTEAD)
range_pop = absent("torch.cuda.nvtx.range_pop", _INSTEAD)
range_push = absent("torch.cuda.nvtx.range_push", _INSTEAD)
range_start = absent("torch.cuda.nvtx.range_start", _INSTEAD)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context that marks a block; raises when entered."""
    range_push(msg)
    yield
