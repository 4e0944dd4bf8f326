"""Replay: functions recorded once and run as one native program.

    trace, guards ─> ir ─> passes ─> cpu ─> use
                      └─> reference ────┘

Nothing here knows an operation by name: what a pass must know of one is a field of its `Primitive`.
"""

from .cpu.pool import get_num_threads, set_num_threads
from .trace.capture import CaptureError
from .trace.options import decided, runtime_number
from .use.check import CheckError
from .use.compiled import Compiled, compile
from .use.targets import register_target, unregister_target

__all__ = [
    "CaptureError",
    "CheckError",
    "Compiled",
    "compile",
    "decided",
    "get_num_threads",
    "register_target",
    "runtime_number",
    "set_num_threads",
    "unregister_target",
]
