"""`torch.mps`: Apple GPUs; not supported."""

from ..no_device import absent_device

globals().update(absent_device("mps"))
