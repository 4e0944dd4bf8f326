"""`torch.utils.flop_counter`: counting operations by dispatch; not supported."""

from ...absent import absent_class

FlopCounterMode = absent_class(
    "torch.utils.flop_counter.FlopCounterMode",
    "explain() of a compiled function tells the work of its kernels",
)
