"""Replay: record a function once, then run it as one program.

    trace, guards ─> ir ─> passes ─> cpu ─> use
                      └─> reference ────┘

Comes in: functions from `tapegrad.compile`, and large eager operations. Goes out: replays. No code
here refers to an operation by name: the fields of a `Primitive` hold what passes need to know.
"""

from .trace.log import CaptureError
from .trace.options import decided, runtime_number
from .use.check import CheckError
from .use.compiled import Compiled, compile
from .use.targets import register_target, unregister_target
from .use.threads import get_num_threads, set_num_threads

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
