"""`torch.mtia`: Meta accelerators; not supported."""

from ..no_device import absent_device

globals().update(absent_device("mtia"))
