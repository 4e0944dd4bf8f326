"""Replay: functions recorded once and run as one native program.

    capture ─> simplify ─> lower ─> fuse ─> plan ─> emit ─> run

Nothing here knows an operation by name: what a pass must know of one is a field of its `Primitive`.
"""

from .capture import CaptureError
from .check import CheckError
from .compiled import Compiled, compile
from .options import decided, runtime_number
from .pool import get_num_threads, set_num_threads

__all__ = [
    "CaptureError",
    "CheckError",
    "Compiled",
    "compile",
    "decided",
    "get_num_threads",
    "runtime_number",
    "set_num_threads",
]
