"""Replay: functions recorded once and run as one native program.

    trace, guards ─> ir ─> passes ─> cpu ─> use
                      └─> reference ────┘

`tapegrad.compile` and large eager operations come in here; replays go out. No code here knows an
operation by name: what a pass must know of an operation is a field of its `Primitive`.
"""

from .cpu.pool import get_num_threads, set_num_threads
from .trace.log import CaptureError
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
