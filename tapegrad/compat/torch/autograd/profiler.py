"""`torch.autograd.profiler`: the older path to `torch.profiler`."""

from ...absent import absent_class
from ..profiler import record_function

__all__ = ["emit_nvtx", "profile", "record_function"]

_INSTEAD = "use explain() of a compiled function, or Python's own profilers"

profile = absent_class("torch.autograd.profiler.profile", _INSTEAD)
EventList = absent_class("torch.autograd.profiler.EventList", _INSTEAD)
emit_nvtx = absent_class("torch.autograd.profiler.emit_nvtx", _INSTEAD)
