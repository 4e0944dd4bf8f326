"""`torch.mtia`: accelerators of Meta; there are none here."""

from ..no_device import absent_device

globals().update(absent_device("mtia"))
