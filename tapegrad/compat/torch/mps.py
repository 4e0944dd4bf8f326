"""`torch.mps`: GPUs of Apple; there are none here."""

from ..no_device import absent_device

globals().update(absent_device("mps"))
