"""`torch.profiler`: markers in code; tapegrad measures with `explain()` of compiled functions."""

from __future__ import annotations

import enum
from typing import Any

from ..absent import absent, absent_class

_INSTEAD = "use explain() of a compiled function, or Python's own profilers"

profile = absent_class("torch.profiler.profile", _INSTEAD)
schedule = absent("torch.profiler.schedule", _INSTEAD)
tensorboard_trace_handler = absent("torch.profiler.tensorboard_trace_handler", _INSTEAD)


class ProfilerActivity(enum.Enum):
    """The kinds of activity that PyTorch's profiler records."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3


class ProfilerAction(enum.Enum):
    """What PyTorch's profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class record_function:
    """A name for a block of code; without a running profiler it does nothing, as in PyTorch."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function


def kineto_available() -> bool:
    """False: PyTorch's profiler does not exist here."""
    return False
